/* strategies_graph.c: a case's step whose collectives are regrouped, or that is captured as a graph
 * and launched (lab 8). See strategies.h.
 */
#include "strategies_oracle.h"

// ---- Regrouped ----

// So that a plan merges what it may, where a call costs much.
static StepCosts costs_of(const Case *c)
{
    return (StepCosts){
        .latency_us = c->regroup, .bytes_per_us = 100.0, .elements_per_us = 100.0, .phase_us = 1.0};
}

Status regroup_nothing(Wrapped *w, const Case *c)
{
    static const StepPass none[2]; // without phases: nothing is planned
    StepCosts costs = costs_of(c);
    return regroup_apply(w->model, none, &costs, 0);
}

void regroup_by_step(Wrapped *w, const Case *c, int step)
{
    static StepPass passes[2];
    StepCosts costs = costs_of(c);
    StepTrace trace;
    if (w->root->extensions->regroup->pass[0].n > 0) return;
    need(regroup_remove(w->model));
    need(strategy_micro_batch(w->model, 0, 1));
    need(step_trace_begin(&trace, w->root));
    case_pass(c, &w->run, w->model, step, w->ranks.place, 0, 1.0f);
    need(step_trace_end(&trace, NULL));
    need(step_passes(&trace, &costs, passes));
    step_trace_free(&trace);
    need(regroup_apply(w->model, passes, &costs, 0));
    need(fsdp_zero_grad(w->model, &w->ctx));
}

// ---- As a graph ----

typedef struct Launched {
    Wrapped *w;
    const Case *c;
    int step;
    float scale;
    Batch batch[CASE_ROUNDS];
    float *loss; // device: (rounds)
} Launched;

static Status queue_pass(void *arg)
{
    const Launched *l = arg;
    const Case *c = l->c;
    Module *model = l->w->model;
    NnRun *run = &l->w->run;
    for (int k = 0; k < c->rounds; k++) {
        float *logits, *dlogits, *din = NULL;
        TRY(case_micro_batch(model, c, k));
        run->B = case_rows(c, l->step, l->w->ranks.place, k);
        run->T = c->spec.T;
        TRY(module_forward(model, run, l->batch[k].in, &logits));
        TRY(cross_entropy_queued(run, logits, l->batch[k].targets, run->B * run->T, c->spec.vocab,
                                 l->scale, l->loss + k, &dlogits));
        TRY(module_backward(model, run, dlogits, &din));
        CUDA_TRY(cudaFreeAsync(dlogits, run->stream));
        if (din != NULL) CUDA_TRY(cudaFreeAsync(din, run->stream));
    }
    return OK;
}

Status graph_nothing(Wrapped *w)
{
    StepGraphOptions options = {.pass = queue_pass, .accumulates = true};
    StepGraph graph;
    FsdpAdamW adamw;
    TRY(fsdp_adamw_create(&adamw, w->model, &w->ctx, &TEST_ADAMW));
    Status status = step_graph_create(&graph, &adamw, &options);
    if (status == OK) step_graph_destroy(&graph);
    fsdp_adamw_destroy(&adamw);
    return status;
}

void train_by_launch(Wrapped *w, const Case *c, int step, float scale)
{
    Launched l = {.w = w, .c = c, .step = step, .scale = scale};
    StepGraphOptions options = {.pass = queue_pass, .arg = &l, .accumulates = true};
    StepGraph graph;
    for (int k = 0; k < c->rounds; k++) l.batch[k] = case_batch(c, step, w->ranks.place, k);
    need_cuda(cudaMalloc((void **)&l.loss, CASE_ROUNDS * sizeof *l.loss));
    need(step_graph_create(&graph, &w->adamw, &options));
    need(step_graph_warm_up(&graph));
    need(fsdp_zero_grad(w->model, &w->ctx));
    need(step_graph_capture(&graph));
    need(step_graph_launch(&graph));
    need_cuda(cudaDeviceSynchronize());
    step_graph_destroy(&graph);
    need_cuda(cudaFree(l.loss));
    for (int k = 0; k < c->rounds; k++) batch_destroy(&l.batch[k]);
}
