/* step_graph.c: what a step as a graph needs of memory, and no student writes. See step_graph.h. */
#include "step_graph.h"

#include <string.h>

// What a step asks the host for, and a graph cannot.
static Status check_options(const FsdpAdamW *opt, const StepGraphOptions *options)
{
    const char *name = opt->root->units[0]->flat.name;
    const FsdpExtensions *on = opt->root->extensions;
    if (options->max_norm < 0.0f)
        return fail(ERR_ARGUMENT, "a clip to a norm of %g: it is positive, or 0 for none",
                    (double)options->max_norm);
    if (opt->root->ops.adamw_step != fsdp_adamw_step_default ||
        opt->step != fsdp_adamw_step_by_root)
        return fail(ERR_ARGUMENT, "%s steps in another way than fsdp.h's AdamW", name);
    if (on->pipeline != NULL || on->precision != NULL || on->fp8 != NULL)
        return fail(ERR_ARGUMENT, "%s %s, whose step asks the host: it cannot be a graph", name,
                    on->pipeline != NULL ? "is in a pipeline"
                    : on->fp8 != NULL    ? "gathers in FP8"
                                         : "has a precision");
    return OK;
}

static Status create(StepGraph *graph)
{
    CUDA_TRY(cudaMallocHost((void **)&graph->host, sizeof *graph->host));
    CUDA_TRY(cudaMallocHost((void **)&graph->norm, sizeof *graph->norm));
    CUDA_TRY(cudaMalloc((void **)&graph->numbers, sizeof *graph->numbers));
    CUDA_TRY(cudaMalloc((void **)&graph->squares, sizeof *graph->squares));
    CUDA_TRY(cudaMalloc((void **)&graph->clip, 2 * sizeof *graph->clip));
    CUDA_TRY(cudaEventCreateWithFlags(&graph->join, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&graph->launched, cudaEventDisableTiming));
    *graph->host = (StepNumbers){0};
    *graph->norm = 0.0f;
    return OK;
}

Status step_graph_create(StepGraph *graph, FsdpAdamW *opt, const StepGraphOptions *options)
{
    TRY(check_options(opt, options));
    *graph = (StepGraph){.opt = opt, .options = *options};
    Status status = create(graph);
    if (status != OK) step_graph_destroy(graph);
    return status;
}

void step_graph_destroy(StepGraph *graph)
{
    if (graph->launched != NULL) cudaEventSynchronize(graph->launched);
    if (graph->exec != NULL) cudaGraphExecDestroy(graph->exec);
    if (graph->graph != NULL) cudaGraphDestroy(graph->graph);
    if (graph->launched != NULL) cudaEventDestroy(graph->launched);
    if (graph->join != NULL) cudaEventDestroy(graph->join);
    cudaFree(graph->clip);
    cudaFree(graph->squares);
    cudaFree(graph->numbers);
    if (graph->norm != NULL) cudaFreeHost(graph->norm);
    if (graph->host != NULL) cudaFreeHost(graph->host);
    memset(graph, 0, sizeof *graph);
}

Status step_graph_warm_up(StepGraph *graph)
{
    FsdpAdamW *opt = graph->opt;
    if (!graph->options.accumulates) {
        CUDA_TRY(cudaEventSynchronize(graph->launched));
        step_numbers(&opt->config, opt->t + 1, graph->host);
    }
    TRY(step_queue(graph));
    CUDA_TRY(cudaEventRecord(graph->launched, opt->ctx->compute_stream));
    if (graph->options.accumulates) return OK;
    opt->t++;
    fsdp_shards_written(opt->root);
    return OK;
}
