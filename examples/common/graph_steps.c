/* graph_steps.c: the trainer's step as a CUDA graph, and regrouped. See graph_steps.h. */
#include "graph_steps.h"

#include <math.h>
#include <stdlib.h>

// What a step by launches has of its own.
struct GraphSteps {
    StepGraph graph;
    int n;                 // micro-batches of a step
    size_t tokens;         // of one
    int32_t *in, *targets; // device: (n·tokens), in the same place in each step
    float *loss;           // device: (n)
    float *losses;         // (n)
    float scale;           // of a token's loss
};

Status graph_steps_check(const TrainerOptions *o)
{
    const char *name = o->graph ? "--graph" : "--regroup";
    if (!o->graph && !o->regroups) return OK;
    if (o->unsharded || o->stages > 1)
        return fail(ERR_ARGUMENT, "%s is of FSDP's step: leave out %s", name,
                    o->unsharded ? "--unsharded" : "--stages");
    if (o->mixed || o->offload || o->gather > 0)
        return fail(ERR_ARGUMENT, "%s: leave out --dtype, --reduce-dtype, --offload and --gather",
                    name);
    if (o->graph && (o->uneven || o->decay_groups || o->clip == 0.0f))
        return fail(ERR_ARGUMENT,
                    "--graph: each step is the same: leave out --uneven, --decay-groups and "
                    "--clip 0");
    if (o->graph && (o->spike > 0.0f || o->on_nan == ON_NAN_SKIP))
        return fail(ERR_ARGUMENT, "--graph: the norm is known when the step is done: leave out "
                                  "--spike and --on-nan skip");
    if (o->regroups && (o->prefetches || o->reshard_ranks > 0 || o->layout > 0))
        return fail(ERR_ARGUMENT,
                    "--regroup queues the all-gathers of flat units: leave out --prefetch, "
                    "--reshard-ranks and --layout");
    return OK;
}

// ---- A graph ----

static Status micro_batch(Trainer *t, int i)
{
    struct GraphSteps *g = t->graph;
    float *logits, *dlogits, *din;
    size_t at = (size_t)i * g->tokens;
    if (t->opt.strategic) TRY(strategy_micro_batch(t->model, i, g->n));
    if (t->opt.reduce_replicas_once) TRY(fsdp_set_requires_all_reduce(t->model, i == g->n - 1));
    TRY(regroup_record(t, i, g->n));
    TRY(module_forward(t->model, &t->run, g->in + at, &logits));
    TRY(cross_entropy_queued(&t->run, logits, g->targets + at, (int)g->tokens, t->opt.model.vocab,
                             g->scale, g->loss + i, &dlogits));
    TRY(module_backward(t->model, &t->run, dlogits, &din));
    CUDA_TRY(cudaFreeAsync(dlogits, t->stream));
    return regroup_by_record(t, i, g->n);
}

static Status pass(void *arg)
{
    Trainer *t = arg;
    TRY(fsdp_zero_grad(t->model, &t->ctx));
    for (int i = 0; i < t->graph->n; i++) TRY(micro_batch(t, i));
    return OK;
}

Status graph_steps_create(Trainer *t)
{
    if (!t->opt.graph) return OK;
    struct GraphSteps *g = t->graph = calloc(1, sizeof *g);
    if (g == NULL) return fail(ERR_MEMORY, "no host memory for a graph's steps");
    StepGraphOptions options = {.pass = pass, .arg = t, .max_norm = t->opt.clip};
    g->n = t->opt.accumulate > 1 ? t->opt.accumulate : 1;
    g->tokens = (size_t)t->opt.B * (size_t)t->opt.T;
    g->scale = 1.0f / (float)((size_t)g->n * g->tokens);
    g->losses = calloc((size_t)g->n, sizeof *g->losses);
    if (g->losses == NULL) return fail(ERR_MEMORY, "no host memory for %d losses", g->n);
    CUDA_TRY(cudaMalloc((void **)&g->in, (size_t)g->n * g->tokens * sizeof *g->in));
    CUDA_TRY(cudaMalloc((void **)&g->targets, (size_t)g->n * g->tokens * sizeof *g->targets));
    CUDA_TRY(cudaMalloc((void **)&g->loss, (size_t)g->n * sizeof *g->loss));
    return step_graph_create(&g->graph, &t->adamw, &options);
}

Status graph_steps_destroy(Trainer *t)
{
    struct GraphSteps *g = t->graph;
    free(t->passes);
    t->passes = NULL;
    if (t->regrouped) TRY(regroup_remove(t->model));
    if (g == NULL) return OK;
    step_graph_destroy(&g->graph);
    CUDA_TRY(cudaFree(g->in));
    CUDA_TRY(cudaFree(g->targets));
    CUDA_TRY(cudaFree(g->loss));
    free(g->losses);
    free(g);
    t->graph = NULL;
    return OK;
}

Status graph_steps_run(Trainer *t, const int32_t *in, const int32_t *targets, float *loss)
{
    struct GraphSteps *g = t->graph;
    size_t bytes = (size_t)g->n * g->tokens * sizeof *in;
    t->run.B = t->opt.B;
    t->run.T = t->opt.T;
    t->adamw.config.lr = t->rate;
    CUDA_TRY(cudaMemcpy(g->in, in, bytes, cudaMemcpyHostToDevice));
    CUDA_TRY(cudaMemcpy(g->targets, targets, bytes, cudaMemcpyHostToDevice));
    if (g->graph.exec == NULL) {
        TRY(step_graph_warm_up(&g->graph));
        TRY(step_graph_capture(&g->graph));
    } else {
        TRY(step_graph_launch(&g->graph));
    }
    CUDA_TRY(cudaMemcpyAsync(g->losses, g->loss, (size_t)g->n * sizeof *g->losses,
                             cudaMemcpyDeviceToHost, t->stream));
    CUDA_TRY(cudaStreamSynchronize(t->stream));
    *loss = 0.0f;
    for (int i = 0; i < g->n; i++) *loss += g->losses[i] * g->scale * (float)g->tokens;
    t->norm = *g->graph.norm;
    if (isfinite(t->norm) || t->opt.on_nan == ON_NAN_GO_ON) return OK;
    return fail(ERR_ARGUMENT, "the gradient's norm is %g, and the step's graph has taken it",
                (double)t->norm);
}

// ---- A plan ----

// Of an H100 and its node, in round numbers: what a plan is made for.
enum { LATENCY_US = 20, BYTES_PER_US = 200000, FLOPS_PER_US = 200000000, PHASE_US = 60 };

// Whether micro-batch i of n is recorded: the first one gathers, and the last one reduces.
static bool records(const Trainer *t, int i, int n)
{
    return t->opt.regroups && !t->regrouped && (i == 0 || i == n - 1);
}

Status regroup_record(Trainer *t, int i, int n)
{
    return records(t, i, n) ? step_trace_begin(&t->trace, fsdp_unit(t->model)->root) : OK;
}

Status regroup_by_record(Trainer *t, int i, int n)
{
    const TrainerOptions *o = &t->opt;
    if (!records(t, i, n)) return OK;
    // A forward is two FLOP for each parameter and token.
    StepCosts costs = {LATENCY_US, BYTES_PER_US,
                       (double)FLOPS_PER_US / (2.0 * (double)o->B * (double)o->T), PHASE_US};
    if (t->passes == NULL) t->passes = calloc(4, sizeof *t->passes);
    StepPass *passes = t->passes, *last = i > 0 ? passes + 2 : passes;
    Status status = step_trace_end(&t->trace, NULL);
    if (status == OK && passes == NULL) status = fail(ERR_MEMORY, "no host memory for a plan");
    if (status == OK) status = step_passes(&t->trace, &costs, last);
    step_trace_free(&t->trace);
    if (status != OK || i < n - 1) return status;
    for (int p = 0; p < passes[1].n && p < last[1].n; p++)
        passes[1].phase[p].reduce_bytes = last[1].phase[p].reduce_bytes;
    TRY(regroup_apply(t->model, passes, &costs, (int64_t)o->regroup << 20));
    t->regrouped = true;
    return OK;
}
