/* rules.c: sentences of precision.h that no other body of this suite reads: what is refused, what
 * is taken off again, what fails, any scale and gradient, sizes beyond 2^31. See rules.h of
 * tests/support.
 */
#include <math.h>
#include <stdlib.h>

#include "failing.h"
#include "huge.h"
#include "rules.h"
#include "snapshot.h"
#include "strategies_oracle.h"
#include "tests.h"

// ---- Taken off, and a long training ----

static Status put(Wrapped *w, const Case *c)
{
    const FsdpUnit *unit = w->root->units[w->root->n_units - 1];
    const void *before = (const void *)unit->all_gather;
    TRY(precision_apply(w->model, c->policy));
    check(c->options.reshard_ranks == 0 || (const void *)unit->all_gather == before,
          "set_types replaces an all_gather that gathers slices (lab 1): it calls gather_shards, "
          "and frees the slice");
    return OK;
}

static const struct {
    Strategy strategy;
    int world, replicas, slices;
    DType param, reduce;
} SHAPES[] = {
    {STRATEGY_DDP, 2, 2, 0, DTYPE_BF16, DTYPE_F32},
    {STRATEGY_ZERO3, 4, 2, 0, DTYPE_F16, DTYPE_F16},
    {STRATEGY_ZERO3, 4, 1, 2, DTYPE_BF16, DTYPE_F32},
    {STRATEGY_ZERO1, 1, 1, 0, DTYPE_F16, DTYPE_F32},
};

void rule_precision_is_removed(void)
{
    static const Removal removal = {"precision_remove", put, precision_remove, true};
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        Case c = typed(spec_mlp(3), SHAPES[i].param, SHAPES[i].reduce, SHAPES[i].strategy,
                       SHAPES[i].world);
        c.replicas = SHAPES[i].replicas;
        c.options.reshard_ranks = SHAPES[i].slices;
        run_removed(SHAPES[i].world, &c, &removal);
    }
}

void rule_policies_grow_nothing(void)
{
    Case c = typed(spec_mlp(3), BF16, F32, STRATEGY_ZERO3, 4);
    c.replicas = 2;
    run_growth(4, &c);
}

// ---- Refused ----

typedef struct WrongScaler {
    float scale, growth, backoff;
    int interval;
    const char *words;
} WrongScaler;

static const WrongScaler SCALERS[] = {
    {0.0f, 2.0f, 0.5f, 1, "a loss scale of 0"},    {-1.0f, 2.0f, 0.5f, 1, "a loss scale of -1"},
    {NAN, 2.0f, 0.5f, 1, "positive and finite"},   {INFINITY, 2.0f, 0.5f, 1, "a loss scale of inf"},
    {1.0f, 1.0f, 0.5f, 1, "a scale grows by 1"},   {1.0f, NAN, 0.5f, 1, "a scale grows by"},
    {1.0f, INFINITY, 0.5f, 1, "a scale grows by"}, {1.0f, 2.0f, 0.0f, 1, "shrinks by 0"},
    {1.0f, 2.0f, 1.0f, 1, "shrinks by 1"},         {1.0f, 2.0f, NAN, 1, "shrinks by"},
    {1.0f, 2.0f, -0.5f, 1, "shrinks by -0.5"},     {1.0f, 2.0f, 0.5f, 0, "after 0 steps"},
    {1.0f, 2.0f, 0.5f, -1, "after -1 steps"},
};

static void scalers_body(Wrapped *w, const Case *c, const Rank *r)
{
    for (size_t i = 0; i < sizeof SCALERS / sizeof SCALERS[0]; i++) {
        const WrongScaler *wrong = &SCALERS[i];
        LossScaler scaler = {.scale = wrong->scale,
                             .growth_factor = wrong->growth,
                             .backoff_factor = wrong->backoff,
                             .growth_interval = wrong->interval};
        need_refused_whole(w->model, &w->adamw, loss_scaler_create(&scaler, w->model),
                           wrong->words);
        loss_scaler_destroy(&scaler);
    }
    LossScaler below = LOSS_SCALER_DEFAULTS;
    need_refused(loss_scaler_create(&below, w->root->units[1]->module), "is below the root");
}

// ---- A failure that is passed on ----

static Status failing_visitor(const Param *param, const float *values, void *arg)
{
    return fail(ERR_IO, "%s: the test's visitor fails", param->name);
}

// Whether it fails or not: the unit then gathers as the policy says.
static void visitor_body(Wrapped *w, const Case *c, const Rank *r)
{
    Status status;
    check_set_silent(true);
    need_unchanged(w->model, &w->adamw, status = fsdp_full_state(w->model, failing_visitor, NULL));
    check_set_silent(false);
    check(status == (r->rank == 0 ? ERR_IO : OK),
          "the visitor of rank 0 fails, and rank %d's status is %d", r->rank, (int)status);
    case_train(w, c, r, 0);
}

// A step of the loss scale, without a backward.
static Status scaled_step(LossScaler *scaler, Wrapped *w)
{
    *scaler = LOSS_SCALER_DEFAULTS;
    TRY(loss_scaler_create(scaler, w->model));
    TRY(loss_scaler_scale(scaler, w->root->units[1]->flat.sharded_grad.data, 1, w->run.stream));
    TRY(loss_scaler_unscale(scaler));
    return loss_scaler_step(scaler, &w->adamw);
}

static void failing_scaler_body(Wrapped *w, const Case *c, const Rank *r)
{
    LossScaler scaler;
    const size_t live = gpulog_live_bytes(r->device);
    for (int n = 1;; n++) {
        Status status;
        FAILS_AT(n, status = scaled_step(&scaler, w));
        check((status == OK) == (failing_call() == NULL) &&
                  (status == OK || status == ERR_CUDA || status == ERR_NCCL),
              "call %d of a step of the loss scale, %s, fails, and its status is %d: who calls "
              "what fails returns its status",
              n, failing_call(), (int)status);
        check(scaler.stepped == (status == OK),
              "call %d of a step of the loss scale, %s, fails, and loss_scaler_step counts a step",
              n, failing_call());
        loss_scaler_destroy(&scaler);
        check(gpulog_live_bytes(r->device) == live, "loss_scaler_destroy leaves %zd bytes",
              (ssize_t)(gpulog_live_bytes(r->device) - live));
        if (status == OK) break;
    }
}

void rule_failed_policies_are_told(void)
{
    Case c = typed(spec_mlp(2), F16, F32, STRATEGY_ZERO3, 2);
    c.rounds = 2;
    run_failing_calls(2, &c);
}

void rule_scaler_refusals(void)
{
    Case c = typed(spec_mlp(3), F16, F32, STRATEGY_ZERO3, 2);
    run_wrapped(2, scalers_body, &c);
    run_wrapped(2, failing_scaler_body, &c);
}

void rule_masters_after_a_failure(void)
{
    Case c = typed(spec_mlp(3), BF16, F32, STRATEGY_ZERO3, 2);
    run_wrapped(2, visitor_body, &c);
}

// ---- Between micro-batches ----

// Units have the gradient that accumulates, in the type of the reduction, and so do the views.
static void between_body(Wrapped *w, const Case *c, const Rank *r)
{
    need(strategy_micro_batch(w->model, 0, 2));
    case_pass(c, &w->run, w->model, 0, r->rank, 0, 1.0f);
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatParam *flat = &w->root->units[u]->flat;
        const Buffer *all = &flat->unsharded_grad, *view = &flat->layout.params[0]->grad;
        const PrecisionUnit *own = precision_of(w->root->units[u]);
        check(all->dtype == c->policy->reduce_dtype && own->reduce.data == NULL,
              "between two micro-batches the gradient of %s is of %s, want %s, and own->reduce has "
              "%s memory: precision_post_backward puts it in the place of unsharded_grad",
              flat->name, type_name(all->dtype), type_name(c->policy->reduce_dtype),
              own->reduce.data == NULL ? "no" : "some");
        check(view->data == all->data && view->dtype == all->dtype,
              "between two micro-batches the first parameter of %s has a view of another gradient "
              "than unsharded_grad: the one that precision_post_backward has freed",
              flat->name);
    }
}

void rule_gradients_between_micro_batches(void)
{
    for (int i = 0; i < 2; i++) {
        Case c = typed(spec_mlp(3), BF16, i == 0 ? F32 : F16, STRATEGY_ZERO2, 2);
        run_wrapped(2, between_body, &c);
    }
}

// ---- Any scale, any gradient ----

// Every gradient of this rank is v; then `bad` is its last valid one, where it is not finite.
static void fill(const Wrapped *w, int unit, float v, float bad)
{
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatParam *flat = &w->root->units[u]->flat;
        size_t n = (size_t)flat_valid_numel(&flat->layout, flat->layout.rank);
        float *values = calloc(n + 1, sizeof *values);
        check(values != NULL, "no memory for %zu gradients", n);
        for (size_t i = 0; i < n; i++) values[i] = v;
        if (u == unit && !isfinite(bad) && n > 0) values[n - 1] = bad;
        if (n > 0) send_to(flat->sharded_grad.data, values, n);
        free(values);
    }
}

static void check_quotient(const Wrapped *w, float v, float scale)
{
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatParam *flat = &w->root->units[u]->flat;
        size_t n = (size_t)flat_valid_numel(&flat->layout, flat->layout.rank);
        float *got = fetch(flat->sharded_grad.data, n);
        for (size_t i = 0; i < n; i++)
            check(got[i] == v / scale,
                  "a gradient of %g with a scale of %g is unscaled to %g, want %g", (double)v,
                  (double)scale, (double)got[i], (double)(v / scale));
        free(got);
    }
}

static void any_body(Wrapped *w, const Case *c, const Rank *r)
{
    static const float SCALES[] = {0.25f, 0x1p-20f, 1.0f, 0x1p40f};
    static const float FINITE[] = {0.0f, 1.0f, 1e20f, -1e20f, 3e25f};
    static const float BAD[] = {NAN, -NAN, INFINITY, -INFINITY};
    LossScaler scaler = LOSS_SCALER_DEFAULTS;
    need(loss_scaler_create(&scaler, w->model));
    for (int s = 0; s < 4; s++)
        for (int v = 0; v < 5; v++) {
            scaler.scale = SCALES[s];
            fill(w, 0, FINITE[v], 0.0f);
            need(loss_scaler_unscale(&scaler));
            check(!scaler.found_inf,
                  "gradients of %g with a scale of %g are finite, and found_inf is true: each is "
                  "looked at by itself, not by its square",
                  (double)FINITE[v], (double)SCALES[s]);
            check_quotient(w, FINITE[v], SCALES[s]);
            need(loss_scaler_update(&scaler));
        }
    for (int u = 0; u < w->root->n_units; u++)
        for (int b = 0; b < 4; b++) {
            bool mine = w->mesh.shard.rank == (u + b) % w->mesh.shard.size;
            scaler.scale = 0.5f;
            // Of a rank whose shard is all padding there is none.
            uint64_t any = 0;
            const FlatParam *flat = &w->root->units[u]->flat;
            any = flat_valid_numel(&flat->layout, (u + b) % w->mesh.shard.size) > 0;
            fill(w, u, 1.0f, mine ? BAD[b] : 0.0f);
            need(loss_scaler_unscale(&scaler));
            check(scaler.found_inf == (any > 0),
                  "the last gradient of unit %d on one rank is %g, and found_inf is %s", u,
                  (double)BAD[b], scaler.found_inf ? "true" : "false");
            need(loss_scaler_update(&scaler));
            check(scaler.scale == (any > 0 ? 0.25f : 0.5f), "the scale is %g",
                  (double)scaler.scale);
        }
    need(fsdp_zero_grad(w->model, &w->ctx));
    loss_scaler_destroy(&scaler);
}

void rule_scales_any_gradient(void)
{
    Case c = typed(spec_mlp(3), F16, F32, STRATEGY_ZERO3, 4);
    c.replicas = 2;
    run_wrapped(4, any_body, &c);
    c.replicas = 1;
    run_wrapped(3, any_body, &c);
    run_wrapped(1, any_body, &c);
}

// ---- Larger than 32 bits can count ----

static void huge_body(OneUnit *u, const Rank *r)
{
    const StrategyOptions options = {.strategy = STRATEGY_ZERO2};
    FsdpUnit *unit = u->unit;
    FlatParam *flat = &unit->flat;
    LossScaler scaler = LOSS_SCALER_DEFAULTS;
    need(strategy_apply(u->model, &options));
    need(precision_apply(u->model, policy_of(F16, F32)));
    uint64_t log = gpulog_length();
    need(fsdp_unshard(unit));
    int64_t shard = flat->layout.shard_numel;
    Buffer own = buffer_range(&flat->unsharded_param, flat->layout.rank * shard, shard);
    check_covers(log, &flat->sharded_param, GPU_READ, "precision_all_gather, which casts a shard");
    check_covers(log, &own, GPU_WRITE, "precision_all_gather, which casts a shard");
    need(fsdp_wait_for_unshard(unit));
    log = gpulog_length();
    need(precision_pre_backward(u->model, unit));
    Buffer written = flat->unsharded_grad;
    check_covers(log, &written, GPU_WRITE, "precision_pre_backward, which zeroes a gradient");
    unit->root->iter_backward_root = NULL; // its end is not asked for
    log = gpulog_length();
    need(precision_reduce_input(unit, 0, &own));
    check_covers(log, &written, GPU_READ, "precision_reduce_input, which casts a gradient");
    check_covers(log, &own, GPU_WRITE, "precision_reduce_input, which casts a gradient");
    need(precision_post_backward(u->model, unit));
    need(loss_scaler_create(&scaler, u->model));
    log = gpulog_length();
    need(loss_scaler_unscale(&scaler));
    check_covers(log, &flat->sharded_grad, GPU_WRITE, "check_and_unscale, which divides");
    loss_scaler_destroy(&scaler);
    need(fsdp_reshard_all(u->model));
    need(precision_remove(u->model));
    need(strategy_remove(u->model));
}

void rule_policies_beyond_32_bits(void)
{
    run_huge(huge_body, 2);
}
