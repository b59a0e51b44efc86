/* Lab 8, first half: a step as a graph. Queued once, launched as one thing.
 *
 * A step of GPT-2 is some hundreds of calls, and each costs the host a few microseconds. Where the
 * kernels are short, the GPU waits for the host. A graph keeps the calls: the host makes one.
 *
 *     host     queue, queue, queue …  | launch | launch | launch
 *     streams  (captured: nothing)    | step 1          | step 2
 *
 * A graph is what was queued, with the numbers that it was queued with. So a step that is launched
 * again and again is the same each time: its numbers are data on the device, which the graph's
 * first node copies from pinned memory when it runs; a decision of the host becomes a factor; and
 * each stream that takes part is waited for at the end.
 *
 * Interface:
 *   step_numbers, step_clip, step_update      the parts of a step that the host took part in
 *   step_queue                                a whole step
 *   step_graph_capture, step_graph_launch     once, and each time
 *   step_calls                                what the graph says of the collectives' order
 */
#include "step_graph.h"

#include <math.h>
#include <stdlib.h>

#include "kernels.h"

// ---- The parts of a step ----

void step_numbers(const AdamWConfig *config, int t, StepNumbers *out)
{
    //[L8.1] The three numbers, each bitwise what task 5's kernel works out (lib/host/optimizer.c).
    //? The power in double, the difference in double: where does it become a float?
    out->lr = config->lr;
    out->unbias1 = (float)(1.0 - pow(config->beta1, t));
    out->unbias2 = (float)(1.0 - pow(config->beta2, t));
    //[end L8.1]
}

Status step_clip(StepGraph *graph)
{
    FsdpRoot *root = graph->opt->root;
    FsdpContext *ctx = graph->opt->ctx;
    //[L8.2] On the compute stream: graph->squares has the sum of all gradients' squares, over units
    //  and ranks; graph->clip has the norm and the factor; and each gradient shard is multiplied by
    //  that factor.
    //? In which three places did task 5's version need the host? What of that is left here?
    //? A kernel adds to squares. What is in it when the graph is launched for the second
    //  time?
    CUDA_TRY(cudaMemsetAsync(graph->squares, 0, sizeof *graph->squares, ctx->compute_stream));
    for (int i = 0; i < root->n_units; i++) {
        const Buffer *grad = &root->units[i]->flat.sharded_grad;
        CUDA_TRY(kernel_sum_squares(graph->squares, grad->data, (size_t)grad->numel,
                                    ctx->compute_stream));
    }
    if (ctx->mesh.shard.size > 1)
        NCCL_TRY(ncclAllReduce(graph->squares, graph->squares, 1, ncclDouble, ncclSum,
                               ctx->mesh.shard.comm, ctx->compute_stream));
    CUDA_TRY(kernel_clip_factor(graph->clip, graph->squares, graph->options.max_norm,
                                ctx->compute_stream));
    for (int i = 0; i < root->n_units; i++) {
        const Buffer *grad = &root->units[i]->flat.sharded_grad;
        CUDA_TRY(
            kernel_scale_by(grad->data, graph->clip + 1, (size_t)grad->numel, ctx->compute_stream));
    }
    return OK;
    //[end L8.2]
}

Status step_update(StepGraph *graph)
{
    const FsdpAdamW *opt = graph->opt;
    const AdamWConfig *c = &opt->config;
    cudaStream_t stream = opt->ctx->compute_stream;
    TRY(extension_check_sharded(opt->root));
    //[L8.3] Every shard has made one step with the numbers in graph->numbers, and its padding is
    //  zero.
    //? Which numbers of *c may be a kernel's arguments here, and which one must not?
    for (int i = 0; i < opt->n; i++) {
        FlatParam *flat = &opt->root->units[i]->flat;
        CUDA_TRY(kernel_adamw_numbers(flat->sharded_param.data, flat->sharded_grad.data, opt->m[i],
                                      opt->v[i], (size_t)flat->sharded_grad.numel,
                                      &graph->numbers->lr, c->beta1, c->beta2, c->eps,
                                      c->weight_decay, stream));
        TRY(flat_zero_padding(flat, &flat->sharded_param, stream));
    }
    return OK;
    //[end L8.3]
}

// What comes after the pass.
static Status queue_update(StepGraph *graph)
{
    cudaStream_t stream = graph->opt->ctx->compute_stream;
    //[[L8.4a] The clip where options.max_norm asks for one, with the norm's copy to graph->norm,
    //  and the update.
    if (graph->options.max_norm > 0.0f) {
        TRY(step_clip(graph));
        CUDA_TRY(cudaMemcpyAsync(graph->norm, graph->clip, sizeof *graph->norm,
                                 cudaMemcpyDeviceToHost, stream));
    }
    return step_update(graph);
    //[end L8.4a]
}

Status step_queue(StepGraph *graph)
{
    FsdpContext *ctx = graph->opt->ctx;
    const StepGraphOptions *options = &graph->options;
    //[L8.4] These are queued, as step_graph.h says: the numbers' copy; the other streams'
    //  waits for the compute stream; the pass; the update (queue_update); the compute stream's
    //  waits for them.
    //? Which stream's work after the last backward has nobody waited for? (Task 3 frees late.)
    if (!options->accumulates)
        CUDA_TRY(cudaMemcpyAsync(graph->numbers, graph->host, sizeof *graph->numbers,
                                 cudaMemcpyHostToDevice, ctx->compute_stream));
    TRY(stream_run_after(ctx->all_gather_stream, ctx->compute_stream, graph->join));
    TRY(stream_run_after(ctx->reduce_scatter_stream, ctx->compute_stream, graph->join));
    TRY(options->pass(options->arg));
    if (!options->accumulates) TRY(queue_update(graph));
    TRY(stream_run_after(ctx->compute_stream, ctx->all_gather_stream, graph->join));
    TRY(stream_run_after(ctx->compute_stream, ctx->reduce_scatter_stream, graph->join));
    return OK;
    //[end L8.4]
}

// ---- Captured once, launched each time ----

// Drops a capture that is under way, or the graph of it.
static void drop_graph(StepGraph *graph)
{
    //[[L8.5a] graph->graph and exec are freed and NULL.
    if (graph->exec != NULL) cudaGraphExecDestroy(graph->exec);
    if (graph->graph != NULL) cudaGraphDestroy(graph->graph);
    graph->exec = NULL;
    graph->graph = NULL;
    //[end L8.5a]
}

Status step_graph_capture(StepGraph *graph)
{
    cudaStream_t stream = graph->opt->ctx->compute_stream;
    if (graph->exec != NULL) return fail(ERR_ARGUMENT, "a step is captured already");
    //[L8.5] graph->graph is what step_queue queues, and graph->exec its executable. If
    //  anything fails, the capture has ended, and both are NULL.
    //? step_queue fails in the middle. Is the stream still capturing?
    CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    Status status = step_queue(graph);
    cudaError_t ended = cudaStreamEndCapture(stream, &graph->graph);
    if (status == OK && ended == cudaSuccess)
        ended = cudaGraphInstantiate(&graph->exec, graph->graph, 0);
    if (status == OK && ended == cudaSuccess) return OK;
    drop_graph(graph);
    if (status == OK) CUDA_TRY(ended);
    return status;
    //[end L8.5]
}

Status step_graph_launch(StepGraph *graph)
{
    FsdpAdamW *opt = graph->opt;
    if (graph->exec == NULL) return fail(ERR_ARGUMENT, "no step is captured: step_graph_capture");
    //[L8.6] The step runs with the present rate and the next t. opt->t has counted it, the
    //  root knows that its shards are written (fsdp_shards_written), and graph->launched says when
    //  it is done. With `accumulates` there are no numbers, and nothing is counted.
    //? graph->host is read when the graph runs. When may the next launch write there?
    if (!graph->options.accumulates) {
        CUDA_TRY(cudaEventSynchronize(graph->launched));
        step_numbers(&opt->config, opt->t + 1, graph->host);
    }
    CUDA_TRY(cudaGraphLaunch(graph->exec, opt->ctx->compute_stream));
    CUDA_TRY(cudaEventRecord(graph->launched, opt->ctx->compute_stream));
    if (graph->options.accumulates) return OK;
    opt->t++;
    fsdp_shards_written(opt->root);
    return OK;
    //[end L8.6]
}

// ---- What the graph says ----

// reached[i]: a path leads from `node` to node i, or the other way round where `back`.
static void reach(const StepTrace *trace, int node, bool back, bool *reached)
{
    //[[L8.7a] As the comment says; the node reaches itself.
    for (int i = 0; i < trace->n_nodes; i++) reached[i] = i == node;
    for (bool more = true; more;) {
        more = false;
        for (int j = 0; j < trace->n_edges; j++) {
            int i = back ? trace->n_edges - 1 - j : j; // most edges are in the graph's order
            int from = trace->edges[i][back], to = trace->edges[i][!back];
            if (!reached[from] || reached[to]) continue;
            reached[to] = more = true;
        }
    }
    //[end L8.7a]
}

Status step_calls(const StepTrace *trace, StepCall *out, int max, int *n)
{
    bool *reached = calloc((size_t)trace->n_nodes + 1, sizeof *reached);
    *n = 0;
    if (reached == NULL) return fail(ERR_MEMORY, "no host memory for a record");
    //[L8.7] out has the first `max` collectives of the trace; *n counts all of them.
    //? Two streams, and no event between them: does an edge lead from one to the other?
    for (int i = 0; i < trace->n; i++) {
        const StepMark *call = &trace->marks[i];
        if (call->kind < STEP_GATHER || (*n)++ >= max) continue;
        StepCall c = {call->kind, call->unit, call->bytes, -1, -1};
        const StepMark *first = NULL; // of those that wait for it, which end in the order of `last`
        for (int back = 0; back < 2 && call->node >= 0; back++) {
            reach(trace, call->node, back, reached);
            for (int k = 0; k < trace->n; k++) {
                const StepMark *end = &trace->marks[k];
                if (end->kind > STEP_BACKWARD || end->node < 0 || !reached[end->node]) continue;
                if (back && end->phase > c.after) c.after = end->phase;
                if (back || (first != NULL && first->last < end->last)) continue;
                if (first == NULL || first->last > end->last || first->phase < end->phase)
                    first = end;
            }
        }
        if (first != NULL) c.before = first->phase;
        out[*n - 1] = c;
    }
    //[end L8.7]
    free(reached);
    return OK;
}
