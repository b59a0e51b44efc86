/* What labs put on a root (extensions.h) is taken off in the opposite order: root and units are
 * then as they were, and any other order is refused with a line that says what has to go first.
 */
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "per_parameter.h"
#include "strategies.h"

// ---- What can be put on ----

static Status put_strategy(Module *model)
{
    const StrategyOptions options = {.strategy = STRATEGY_ZERO2};
    return strategy_apply(model, &options);
}

static Status put_precision(Module *model)
{
    const MixedPrecisionPolicy policy = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    return precision_apply(model, &policy);
}

static Status put_fp8(Module *model)
{
    return fp8_apply(model, NULL);
}

static Status put_prefetch(Module *model)
{
    const PrefetchOptions options = {2, 2, 0};
    return prefetch_apply(model, &options);
}

static Status put_recompute(Module *model)
{
    return recompute_apply(model, RECOMPUTE_BLOCKS);
}

typedef struct Extended {
    Status (*put)(Module *model);
    Status (*take)(Module *model);
    const char *before; // what is said where another is to be taken off
} Extended;

static const Extended STRATEGY_OF = {put_strategy, strategy_remove, "call strategy_remove first"},
                      OFFLOAD = {offload_apply, offload_remove, "call offload_remove first"},
                      PRECISION = {put_precision, precision_remove, "call precision_remove first"},
                      FP8 = {put_fp8, fp8_remove, "call fp8_remove first"},
                      PREFETCH = {put_prefetch, prefetch_remove, "call prefetch_remove first"},
                      RECOMPUTE = {put_recompute, recompute_remove, "call recompute_remove first"};

enum { MOST = 6, UNITS = 4 };
static const Extended *const ORDERS[][MOST] = {
    {&STRATEGY_OF, &PRECISION, &FP8, &PREFETCH, &RECOMPUTE},
    {&STRATEGY_OF, &OFFLOAD, &PRECISION, &PREFETCH, &RECOMPUTE},
    {&RECOMPUTE, &STRATEGY_OF, &PREFETCH, &OFFLOAD, &PRECISION},
    {&STRATEGY_OF, &RECOMPUTE, &PREFETCH, &PRECISION, &FP8},
};

// ---- What root and units are ----

typedef struct UnitIs {
    Status (*all_gather)(FsdpUnit *unit);
    Status (*gather_shards)(FsdpUnit *unit);
    Status (*reduce_scatter)(FsdpUnit *unit);
    Hook *hooks[HOOK_POINTS];
    HookFn functions[HOOK_POINTS];
    const FlatLayoutOps *layout_ops;
    FsdpReshard reshard_after_forward;
    Buffer unsharded_param, unsharded_grad;
    FlatState state;
    bool is_shard;
} UnitIs;

typedef struct RootIs {
    FsdpRootOps ops;
    UnitIs unit[UNITS];
    float *shards[UNITS]; // what is in sharded_param
} RootIs;

static void keep_functions(RootIs *is, const FsdpRoot *root)
{
    memset(is, 0, sizeof *is);
    is->ops = root->ops;
    need_cuda(cudaDeviceSynchronize());
    for (int i = 0; i < root->n_units; i++) {
        const FsdpUnit *unit = root->units[i];
        const FlatParam *flat = &unit->flat;
        UnitIs *u = &is->unit[i];
        u->all_gather = unit->all_gather;
        u->gather_shards = unit->gather_shards;
        u->reduce_scatter = unit->reduce_scatter;
        for (int h = 0; h < HOOK_POINTS; h++) {
            u->hooks[h] = unit->hooks[h];
            u->functions[h] = unit->hooks[h]->fn;
        }
        u->layout_ops = flat->layout.ops;
        u->reshard_after_forward = unit->reshard_after_forward;
        u->unsharded_param.numel = flat->unsharded_param.numel;
        u->unsharded_param.dtype = flat->unsharded_param.dtype;
        u->unsharded_grad.numel = flat->unsharded_grad.numel;
        u->unsharded_grad.dtype = flat->unsharded_grad.dtype;
        u->state = flat->state;
        u->is_shard = flat_param_is_shard(flat);
        is->shards[i] = fetch(flat->sharded_param.data, (size_t)flat->layout.shard_numel);
    }
}

static void compare(const RootIs *was, const FsdpRoot *root, const char *removed)
{
    RootIs is;
    keep_functions(&is, root);
    check(memcmp(&is.ops, &was->ops, sizeof is.ops) == 0,
          "after what says \"%s\" the root does something else than before", removed);
    for (int i = 0; i < root->n_units; i++) {
        check(memcmp(&is.unit[i], &was->unit[i], sizeof is.unit[i]) == 0,
              "after what says \"%s\" unit %s is not what it was", removed,
              root->units[i]->flat.name);
        size_t bytes = (size_t)root->units[i]->flat.layout.shard_numel * sizeof(float);
        check(memcmp(is.shards[i], was->shards[i], bytes) == 0,
              "after what says \"%s\" the shard of %s is another", removed,
              root->units[i]->flat.name);
        free(is.shards[i]);
    }
}

// ---- On and off ----

static void order_body(const Rank *r, void *arg)
{
    const Extended *const *order = arg;
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO2, r->world, 1, 1);
    bool fp8 = order[2] == &FP8 || order[4] == &FP8;
    RootIs was[MOST];
    Wrapped w;
    size_t n[2];
    float *grads[2];
    int on = 0;
    c.layout = fp8 ? per_parameter_layout : NULL;
    case_wrap(&w, &c, r);
    case_train(&w, &c, r, 0);
    grads[0] = case_gradients(&w, &n[0]);
    need(fsdp_zero_grad(w.model, &w.ctx));
    fsdp_adamw_destroy(&w.adamw);
    need(strategy_remove(w.model));
    for (; on < MOST && order[on] != NULL; on++) {
        need_refused(order[on]->take(w.model), w.model->name); // it is not on
        keep_functions(&was[on], w.root);
        need(order[on]->put(w.model));
        for (int below = 0; below < on; below++)
            need_refused(order[below]->take(w.model), order[on]->before);
    }
    while (on-- > 0) {
        need(order[on]->take(w.model));
        compare(&was[on], w.root, order[on]->before);
        for (int i = 0; i < w.root->n_units; i++) free(was[on].shards[i]);
    }
    need(strategy_apply(w.model, &c.options));
    need(fsdp_adamw_create(&w.adamw, w.model, &w.ctx, &TEST_ADAMW));
    case_train(&w, &c, r, 0);
    grads[1] = case_gradients(&w, &n[1]);
    check(n[0] == n[1] && memcmp(grads[0], grads[1], n[0] * sizeof(float)) == 0,
          "a training after everything was on and off gives other gradients");
    free(grads[0]);
    free(grads[1]);
    case_unwrap(&w, r);
}

TEST(labs_are_removed_in_reverse_order)
{
    for (size_t i = 0; i < sizeof ORDERS / sizeof ORDERS[0]; i++)
        for (int world = 1; world <= 3; world += 2) run_ranks(world, order_body, (void *)ORDERS[i]);
}

// A pipeline changes no function, and is in the order like the others.
RANK_TEST(pipelines_are_in_the_order, 2)
{
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 1, 1, 2);
    Wrapped w;
    c.stages = 2;
    case_wrap(&w, &c, r);
    need_refused(strategy_remove(w.model), "call pipeline_destroy first");
    need(recompute_apply(w.model, RECOMPUTE_BLOCKS));
    need_refused(pipeline_destroy(w.pipeline), "call recompute_remove first");
    need(recompute_remove(w.model));
    case_unwrap(&w, r);
}

// ---- Functions that ask what was there before ----

RANK_TEST(a_forward_that_runs_again_is_not_recorded, 2)
{
    Sharded s;
    Spec spec = spec_mlp(3);
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    FsdpUnit *unit = s.root->units[1];
    need(recompute_apply(s.model, RECOMPUTE_BLOCKS));
    need(fsdp_record_post_forward(unit));
    s.root->extensions->recomputes = true;
    need(fsdp_record_post_forward(unit));
    check(s.root->n_post_forward == 1 && unit->n_indices == 1,
          "a forward that ran again is in the order: %d forwards, %d of its unit",
          s.root->n_post_forward, unit->n_indices);
    s.root->extensions->recomputes = false;
    fsdp_clear_post_forward(s.root);
    need(recompute_remove(s.model));
    sharded_destroy(&s);
}

// What was copied out goes at the end of the outermost forward, and not before.
RANK_TEST(copied_out_is_freed_after_the_forward, 2)
{
    Spec spec = spec_mlp(3);
    FsdpOptions options = TEST_OPTIONS;
    Sharded s;
    options.layout = per_parameter_layout;
    sharded_create(&s, &spec, &options, NULL, r);
    AllGatherState *copied_out = &s.root->extensions->copied_out;
    for (int i = 0; i < 2; i++) {
        FsdpUnit *inner = s.root->units[1];
        need(fsdp_pre_forward(s.model, fsdp_unit(s.model)));
        need(fsdp_pre_forward(inner->module, inner));
        void *buffer = copied_out->buffer;
        need(fsdp_post_forward(inner->module, inner));
        check(buffer != NULL && copied_out->buffer == buffer,
              "an inner forward has freed what was copied out: the outermost one's end does");
        need(fsdp_post_forward(s.model, fsdp_unit(s.model)));
        check(copied_out->buffer == NULL,
              "what was copied out is still there after the outermost forward");
        need(fsdp_reshard_all(s.model));
    }
    need_cuda(cudaDeviceSynchronize());
    sharded_destroy(&s);
}

// Also to a list that has no room yet: a lab's file may leave one.
RANK_TEST(forwards_are_appended_to_any_list, 1)
{
    FsdpUnit units[40];
    for (int room = 0; room <= 3; room++) {
        PrefetchState state = {.begun.units = calloc(4, sizeof(FsdpUnit *)), .max_begun = room};
        for (int i = 0; i < 40; i++) {
            need(prefetch_append(&state, &units[i]));
            check(state.begun.n == i + 1 && state.max_begun > i,
                  "with room for %d units, %d are appended: n is %d and max_begun is %d", room,
                  i + 1, state.begun.n, state.max_begun);
        }
        for (int i = 0; i < 40; i++)
            check(state.begun.units[i] == &units[i], "unit %d is not where it was appended", i);
        free(state.begun.units);
    }
}

SUITE_MAIN("extensions")
