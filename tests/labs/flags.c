/* The flags of a strategy that a training loop sets itself (strategy.h, lib/fsdp/strategy_flags.c):
 * what each does, and what is refused.
 */
#include <math.h>
#include <stdlib.h>

#include "harness.h"
#include "strategies.h"

static void without_body(Wrapped *w, const Case *c, const Rank *r)
{
    StrategyState *state;
    need(strategy_find(w->model, &state));
    check(state == w->root->extensions->strategy, "strategy_find has found another state");
    need(strategy_remove(w->model));
    need_refused(strategy_find(w->model, &state), "has no strategy");
    need_refused(strategy_remove(w->model), "has no strategy");
    need_refused(strategy_micro_batch(w->model, 0, 1), "has no strategy");
    need_refused(fsdp_set_requires_gradient_sync(w->model, true), "has no strategy");
    need_refused(fsdp_set_requires_all_reduce(w->model, true), "has no strategy");
    need_refused(fsdp_set_is_last_backward(w->model, true), "has no strategy");
    need_refused(fsdp_set_reshard_after_backward(w->model, true), "has no strategy");
    need_refused(fsdp_set_gradient_divide_factor(w->model, 2.0f), "has no strategy");
    need_refused(fsdp_set_training(w->model, true), "has no strategy");
    need_refused(strategy_find(w->model->children[0], &state), "");
    need(strategy_apply(w->model, &c->options));
}

TEST(flags_need_a_strategy)
{
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 2, 1, 1);
    run_wrapped(2, without_body, &c);
}

static void refusals_body(Wrapped *w, const Case *c, const Rank *r)
{
    need_refused(fsdp_set_gradient_divide_factor(w->model, 0.0f), "it must be positive");
    need_refused(fsdp_set_gradient_divide_factor(w->model, -2.0f), "it must be positive");
    need_refused(fsdp_set_gradient_divide_factor(w->model, NAN), "it must be positive");
    need_refused(fsdp_set_gradient_divide_factor(w->model, INFINITY), "positive and finite");
    if (r->world == 1)
        need_refused(fsdp_set_gradient_divide_factor(w->model, 2.0f), "one rank reduces nothing");
    need(fsdp_set_gradient_divide_factor(w->model, 1.0f));
    if (c->options.strategy == STRATEGY_DDP)
        need_refused(fsdp_set_requires_all_reduce(w->model, false), "DDP's reduction is the");
    else if (c->replicas == 1)
        need_refused(fsdp_set_requires_all_reduce(w->model, false), "there is one replica");
    else
        need(fsdp_set_requires_all_reduce(w->model, false));
    need_refused(strategy_micro_batch(w->model, 2, 2), "micro-batch 2 of 2");
    need_refused(strategy_micro_batch(w->model, -1, 2), "micro-batch -1 of 2");
    need_refused(strategy_micro_batch(w->model, 0, 0), "micro-batch 0 of 0");
}

TEST(flags_refuse_what_does_not_suit)
{
    static const int SHAPES[][3] = {{STRATEGY_DDP, 2, 2},
                                    {STRATEGY_ZERO2, 2, 1},
                                    {STRATEGY_ZERO3, 4, 2},
                                    {STRATEGY_ZERO3, 1, 1}};
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        Case c = case_of(spec_mlp(3), (Strategy)SHAPES[i][0], SHAPES[i][1], SHAPES[i][2], 1);
        run_wrapped(SHAPES[i][1], refusals_body, &c);
    }
}

// ---- What each does ----

static void pass(Wrapped *w, const Case *c, const Rank *r)
{
    float *logits, *dlogits, loss;
    Batch batch = case_batch(c, 0, r->rank, 0);
    w->run.B = c->spec.B;
    w->run.T = c->spec.T;
    need(module_forward(w->model, &w->run, batch.in, &logits));
    need(cross_entropy(&w->run, logits, batch.targets, c->spec.B, c->spec.vocab, &loss, &dlogits));
    need(module_backward(w->model, &w->run, dlogits, NULL));
    need_cuda(cudaFreeAsync(dlogits, r->stream));
    need_cuda(cudaDeviceSynchronize());
    batch_destroy(&batch);
}

// Reduce-scatters since `first`, units that are unsharded, and units with an unsharded gradient.
static void check_after(const char *when, const Wrapped *w, uint64_t first, int reduced,
                        int unsharded, int grads)
{
    int got[3] = {0, 0, 0};
    GpuLogEntry entry;
    for (uint64_t i = first; i < gpulog_length(); i++)
        got[0] += gpulog_get(i, &entry) && entry.op == GPU_REDUCE_SCATTER;
    for (int u = 0; u < w->root->n_units; u++) {
        got[1] += w->root->units[u]->flat.state != FLAT_SHARDED;
        got[2] += w->root->units[u]->flat.unsharded_grad.data != NULL;
    }
    check(got[0] == reduced && got[1] == unsharded && got[2] == grads,
          "%s: %d reduce-scatters, %d units unsharded, %d with an unsharded gradient; want %d, %d "
          "and %d",
          when, got[0], got[1], got[2], reduced, unsharded, grads);
}

static void flags_body(Wrapped *w, const Case *c, const Rank *r)
{
    int n = w->root->n_units;
    uint64_t first = gpulog_length();
    need(fsdp_set_requires_gradient_sync(w->model, false));
    need(fsdp_set_reshard_after_backward(w->model, false));
    need(fsdp_set_is_last_backward(w->model, false));
    pass(w, c, r);
    check_after("without sync and resharding", w, first, 0, n, n);
    need(fsdp_set_reshard_after_backward(w->model, true));
    pass(w, c, r);
    check_after("without sync", w, first, 0, 0, n);
    need(fsdp_set_requires_gradient_sync(w->model, true));
    pass(w, c, r);
    check_after("with sync", w, first, n, 0, 0);
    check(w->root->reduce_scatter_state.buffer != NULL,
          "a backward that is not the last has waited for its reductions");
    need(fsdp_set_is_last_backward(w->model, true));
    pass(w, c, r);
    check(w->root->reduce_scatter_state.buffer == NULL, "the last backward has left a reduction");
    const Buffer *grad = &w->root->units[1]->flat.sharded_grad;
    float *sums[2];
    for (int i = 0; i < 2; i++) {
        need(fsdp_set_gradient_divide_factor(w->model, i == 0 ? 2.0f : 8.0f));
        need(fsdp_zero_grad(w->model, &w->ctx));
        pass(w, c, r);
        sums[i] = fetch(grad->data, (size_t)grad->numel);
    }
    for (int64_t e = 0; e < grad->numel; e++)
        check(sums[0][e] == 4.0f * sums[1][e], "divided by 2 gradient %lld is %g, by 8 %g",
              (long long)e, (double)sums[0][e], (double)sums[1][e]);
    free(sums[0]);
    free(sums[1]);
}

TEST(each_flag_does_what_it_says)
{
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO2, 3, 1, 1);
    run_wrapped(3, flags_body, &c);
}

SUITE_MAIN("flags")
