/* walks_of_paths.c: A step's paths by walks from node to node, depth first; and a launch whose
 * numbers are worked out before the host waits.
 */
// ==== graph.c
#include <string.h>

static void walk(const StepTrace *trace, int at, bool back, bool *reached)
{
    reached[at] = true;
    for (int i = trace->n_edges - 1; i >= 0; i--) {
        const int *edge = trace->edges[i];
        if (edge[back] == at && !reached[edge[!back]]) walk(trace, edge[!back], back, reached);
    }
}

static void reach(const StepTrace *trace, int node, bool back, bool *reached)
{
    memset(reached, 0, (size_t)trace->n_nodes * sizeof *reached);
    walk(trace, node, back, reached);
}

void step_numbers(const AdamWConfig *config, int t, StepNumbers *out)
{
    double left1 = pow(config->beta1, t), left2 = pow(config->beta2, t);
    *out = (StepNumbers){
        .lr = config->lr, .unbias2 = (float)(1.0 - left2), .unbias1 = (float)(1.0 - left1)};
}

Status step_graph_launch(StepGraph *graph)
{
    FsdpAdamW *opt = graph->opt;
    cudaStream_t stream = opt->ctx->compute_stream;
    bool steps = !graph->options.accumulates;
    if (graph->exec == NULL) return fail(ERR_ARGUMENT, "no step is captured");
    if (steps) {
        StepNumbers next;
        step_numbers(&opt->config, opt->t + 1, &next);
        CUDA_TRY(cudaEventSynchronize(graph->launched));
        *graph->host = next;
    }
    CUDA_TRY(cudaGraphLaunch(graph->exec, stream));
    CUDA_TRY(cudaEventRecord(graph->launched, stream));
    opt->t += steps;
    if (steps) fsdp_shards_written(opt->root);
    return OK;
}
