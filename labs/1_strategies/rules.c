/* rules.c: sentences of strategy.h that no other body of this suite reads: what is refused, what is
 * taken off again, the handout's own numbers, sizes beyond 2^31. See rules.h of tests/support.
 */
#include <math.h>
#include <stdlib.h>

#include "backend.h"
#include "fsdp.h"
#include "huge.h"
#include "rules.h"
#include "snapshot.h"
#include "tests.h"

// ---- Taken off ----

static Status put(Wrapped *w, const Case *c)
{
    return strategy_apply(w->model, &c->options);
}

void rule_strategy_is_removed(Strategy strategy, int ranks, int replicas, int slices,
                              FsdpReshard reshard)
{
    static const Removal removal = {"strategy_remove", put, strategy_remove, false};
    Case c = case_of(spec_mlp(3), strategy, ranks, replicas, 1);
    c.options.reshard_ranks = slices;
    c.reshard = reshard;
    run_removed(ranks, &c, &removal);
    if (ranks > 1) run_growth(ranks, &c);
}

// ---- Refused ----

typedef struct Wrong {
    StrategyOptions options;
    int world, replicas;
    bool one_unit;
    const char *words;
} Wrong;

static const Wrong WRONG[] = {
    {{.strategy = STRATEGY_ZERO2, .reshard_ranks = 2}, 4, 1, false, "only ZeRO-3"},
    {{.strategy = STRATEGY_ZERO3, .reshard_ranks = 1}, 4, 1, false, "it must divide the 4 ranks"},
    {{.strategy = STRATEGY_ZERO3, .reshard_ranks = 3}, 4, 1, false, "it must divide the 4 ranks"},
    {{.strategy = STRATEGY_ZERO3, .reshard_ranks = 4}, 4, 1, false, "it must divide the 4 ranks"},
    {{.strategy = STRATEGY_ZERO3, .reshard_ranks = -2}, 4, 1, false, "it must divide the 4 ranks"},
    {{.strategy = STRATEGY_ZERO3, .reshard_ranks = 2}, 4, 2, false, "it must divide the 2 ranks"},
    {{.strategy = STRATEGY_ZERO3, .divide_factor = NAN}, 2, 1, false, "positive and finite"},
    {{.strategy = STRATEGY_ZERO3, .divide_factor = INFINITY}, 2, 1, false, "positive and finite"},
    {{.strategy = STRATEGY_ZERO3, .divide_factor = -1.0f}, 2, 1, false, "positive and finite"},
    {{.strategy = STRATEGY_ZERO3, .divide_factor = 2.0f}, 1, 1, false, "one rank reduces nothing"},
    {{.strategy = STRATEGY_DDP, .first_bucket_bytes = -1}, 2, 2, true, "must be positive, or 0"},
    {{.strategy = STRATEGY_DDP, .bucket_bytes = -1}, 2, 2, true, "must be positive, or 0"},
    {{.strategy = STRATEGY_DDP}, 2, 1, true, "DDP shards nothing"},
    {{.strategy = STRATEGY_DDP}, 4, 2, true, "DDP shards nothing"},
    {{.strategy = STRATEGY_DDP}, 2, 2, false, "DDP wants one unit"},
    {{.strategy = STRATEGY_ZERO1}, 2, 2, false, "leaves no rank to shard with"},
    {{.strategy = STRATEGY_ZERO1, .reduce_every_time = true}, 2, 1, false, "cannot reduce every"},
    {{.strategy = (Strategy)4}, 2, 1, false, "4 is not a Strategy"},
};

static void refuse(const Rank *r, const Wrong *wrong)
{
    Case c = case_of(spec_mlp(3), wrong->one_unit ? STRATEGY_DDP : STRATEGY_ZERO3, r->world, 1, 1);
    c.replicas = wrong->replicas;
    PipelineTies ties;
    Wrapped w = {0};
    need(nn_run_create(&w.run, r->stream));
    need(case_mesh(&w, &c, r));
    need(case_shard(&w, &c, &ties));
    need_refused_whole(w.model, NULL, strategy_apply(w.model, &wrong->options), wrong->words);
    check(w.root->extensions->strategy == NULL, "a refused strategy has left something");
    case_unwrap(&w, r);
}

static void refused_body(const Rank *r, void *arg)
{
    check_leaks();
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++)
        if (WRONG[i].world == r->world) refuse(r, &WRONG[i]);
}

static void modules_body(Wrapped *w, const Case *c, const Rank *r)
{
    Module *block = w->model->children[0], *plain = block->children[0];
    need_refused_whole(w->model, NULL, strategy_apply(w->model, &c->options), "a strategy already");
    need_refused_whole(w->model, NULL, strategy_apply(block, &c->options), "is below the root");
    need_refused_whole(w->model, NULL, strategy_apply(plain, &c->options), "is not sharded");
    need_refused_whole(w->model, NULL, strategy_remove(block), "is below the root");
    need_refused_whole(w->model, NULL, fsdp_set_training(block, false), "is below the root");
    need_refused_whole(w->model, NULL, strategy_micro_batch(block, 0, 1), "is below the root");
    need_refused_whole(w->model, NULL, strategy_micro_batch(w->model, 1, 1), "micro-batch 1 of 1");
    need_refused_whole(w->model, NULL, strategy_micro_batch(w->model, -1, 1), "micro-batch -1");
    need_refused_whole(w->model, NULL, strategy_micro_batch(w->model, 0, 0), "micro-batch 0 of 0");
}

#ifndef BACKEND_CUDA
static void no_world_body(const Rank *r, void *arg)
{
    Mesh mesh;
    backend_ignore_reports();
    need_failure(mesh_2d(&mesh, NULL, 1), ERR_NCCL, "");
    backend_listen();
}
#endif

void rule_strategy_refusals(void)
{
    run_worlds(refused_body, NULL, 1, 2, 4);
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO2, 2, 1, 1);
    run_wrapped(2, modules_body, &c);
#ifndef BACKEND_CUDA
    run_ranks(1, no_world_body, NULL);
#endif
}

// ---- The backward, hook by hook ----

// The unit that the next backward needs is in flight while this one computes, and no other.
static void ahead_body(Wrapped *w, const Case *c, const Rank *r)
{
    static const char *const NAME[] = {"sharded", "in flight", "unsharded"};
    const int n = w->root->n_units;
    Batch batch = case_batch(c, 0, r->rank, 0);
    forward_batch(&c->spec, &w->run, w->model, &batch);
    for (int i = n; i > 0; i--) { // the root, and the blocks from the last one on
        FsdpUnit *unit = w->root->units[i % n];
        need(strategy_pre_backward(unit->module, unit));
        for (int u = 1; u < n; u++) {
            const FlatParam *flat = &w->root->units[u]->flat;
            FlatState want = u > i - 1    ? FLAT_UNSHARDED
                             : u == i - 1 ? FLAT_UNSHARDING
                                          : FLAT_SHARDED;
            check(flat->state == want,
                  "before the backward of %s %s is %s, must be %s: strategy_pre_backward has the "
                  "all-gather of the next unit queued (fsdp_pop_post_forward), and waits for none",
                  unit->flat.name, flat->name, NAME[flat->state], NAME[want]);
        }
    }
    need(fsdp_reshard_all(w->model));
    batch_destroy(&batch);
}

void rule_backward_gathers_ahead(void)
{
    Case c = case_of(spec_mlp(4), STRATEGY_ZERO3, 2, 1, 1);
    run_wrapped(2, ahead_body, &c);
}

// ---- A call that fails ----

void rule_failed_strategies_are_told(Strategy strategy, int ranks, int replicas, int slices)
{
    Case c = case_of(spec_mlp(2), strategy, ranks, replicas, replicas);
    c.options.reshard_ranks = slices;
    c.partial = strategy != STRATEGY_DDP && replicas > 1;
    run_failing_calls(ranks, &c);
}

// ---- Buckets, by hand ----

enum { MOST = 5 };
typedef struct Cut {
    int n;
    int64_t numel[MOST], first_bytes, bytes;
    int buckets, first[MOST]; // the first parameter of each
} Cut;

// The handout's five parameters of 40, 8, 40, 8 and 20 bytes; sizes that are reached to the byte,
// or missed by one; and more elements, and bytes, than 32 bits count.
static const Cut CUTS[] = {
    {5, {10, 2, 10, 2, 5}, 16, 48, 3, {4, 2, 0}},
    {5, {10, 2, 10, 2, 5}, 20, 48, 3, {4, 2, 0}},
    {5, {10, 2, 10, 2, 5}, 21, 48, 3, {3, 1, 0}},
    {5, {10, 2, 10, 2, 5}, 28, 49, 2, {3, 0}},
    {5, {10, 2, 10, 2, 5}, 29, 40, 2, {2, 0}},
    {5, {10, 2, 10, 2, 5}, 116, 1, 1, {0}},
    {5, {10, 2, 10, 2, 5}, 1, 1, 5, {4, 3, 2, 1, 0}},
    {3, {INT64_C(1) << 31, INT64_C(1) << 31, 5}, 16, INT64_C(1) << 33, 3, {2, 1, 0}},
    {3, {INT64_C(1) << 31, INT64_C(1) << 31, 5}, 16, (INT64_C(1) << 33) + 1, 2, {2, 0}},
    {3, {5, 1 << 29, 1 << 29}, INT64_C(1) << 32, 1, 2, {1, 0}},
};

static void cut_body(const Rank *r, void *arg)
{
    const Cut *cut = arg;
    Param param[MOST] = {0}, *params[MOST];
    FlatLayout layout;
    Bucket got[MOST + 1];
    for (int i = 0; i < cut->n; i++) {
        param[i] = (Param){.ndim = 1, .shape = {cut->numel[i]}};
        params[i] = &param[i];
    }
    need(flat_layout(&layout, "model", params, cut->n, 0, 1, false));
    int n = ddp_buckets(&layout, cut->first_bytes, cut->bytes, got, MOST + 1), last = cut->n;
    for (int b = 0; b < n && b < cut->buckets; b++) {
        check(got[b].first == cut->first[b] && got[b].last == last &&
                  got[b].missing == last - cut->first[b],
              "with buckets of %lld and %lld bytes bucket %d holds parameters %d to %d of %d, want "
              "%d to %d: it takes the next as long as it has fewer bytes than its size",
              (long long)cut->first_bytes, (long long)cut->bytes, b, got[b].first, got[b].last - 1,
              cut->n, cut->first[b], last - 1);
        int64_t begin = layout.offset[cut->first[b]];
        int64_t end = last < cut->n ? layout.offset[last] : layout.numel;
        check(got[b].begin == begin && got[b].end == end,
              "bucket %d is elements %lld to %lld, want %lld to %lld", b, (long long)got[b].begin,
              (long long)got[b].end, (long long)begin, (long long)end);
        last = cut->first[b];
    }
    check(n == cut->buckets, "there are %d buckets of %lld and %lld bytes, want %d", n,
          (long long)cut->first_bytes, (long long)cut->bytes, cut->buckets);
    flat_layout_destroy(&layout);
}

void rule_buckets_by_hand(void)
{
    for (size_t i = 0; i < sizeof CUTS / sizeof CUTS[0]; i++)
        run_ranks(1, cut_body, (void *)&CUTS[i]);
}

// ---- Buckets, hook by hook ----

static bool is_complete(const Ddp *ddp, const Bucket *bucket)
{
    bool complete = true;
    for (int p = bucket->first; p < bucket->last; p++) complete &= ddp->done[p] >= ddp->uses[p];
    return complete;
}

static Status check_sent(Module *module, void *arg)
{
    const StrategyState *state = arg;
    const Ddp *ddp = &state->ddp;
    const FlatLayout *layout = &state->root->units[0]->flat.layout;
    for (int i = 0; i < layout->n; i++)
        for (int k = 0; k < module->n_params; k++)
            check(layout->params[i] != module->params[k] || ddp->done[i] > 0,
                  "after the backward of %s ddp->done of %s is 0: ddp_post_backward counts it for "
                  "each parameter of the module, also after one that is not complete yet",
                  module->name, layout->params[i]->name);
    check(ddp->next == ddp->n_buckets || !is_complete(ddp, &ddp->buckets[ddp->next]),
          "after the backward of %s bucket %d is complete, and those before it are sent: "
          "ddp_post_backward sends all that may be",
          module->name, ddp->next);
    return OK;
}

static void check_all_sent(Module *m, StrategyState *state)
{
    check(module_add_hook(m, HOOK_POST_BACKWARD, check_sent, state) != NULL, "no memory");
    for (int i = 0; i < m->n_children; i++) check_all_sent(m->children[i], state);
}

static void sent_body(Wrapped *w, const Case *c, const Rank *r)
{
    for (int i = 0; i < w->model->n_children; i++)
        check_all_sent(w->model->children[i], w->root->extensions->strategy);
    case_train(w, c, r, 0);
}

void rule_complete_buckets_are_sent(void)
{
    // A module whose bias comes after a weight that another module holds, too.
    static const RandomModel tied = {
        .in_dim = 7, .out_dim = 5, .blocks = 1, .layers = 1, .width = 13, .tied = true};
    Case c = case_of(spec_mlp(4), STRATEGY_DDP, 2, 2, 1);
    c.options.first_bucket_bytes = c.options.bucket_bytes = 1; // a weight's, and its bias's
    run_wrapped(2, sent_body, &c);
    c.random = &tied;
    run_wrapped(2, sent_body, &c);
}

// ---- Larger than 32 bits can count ----

static void huge_gradient(OneUnit *u, const Rank *r)
{
    const StrategyOptions options = {.strategy = STRATEGY_ZERO2};
    FlatParam *flat = &u->unit->flat;
    need(strategy_apply(u->model, &options));
    need(fsdp_begin_grad(u->unit));
    Buffer gradient = flat->unsharded_grad, valid = flat->sharded_grad;
    valid.numel = flat_valid_numel(&flat->layout, flat->layout.rank);
    const bool pairs = u->ctx.mesh.replicate.size > 1;
    const char *sums = pairs ? "reduce_within, which sums an unsharded gradient"
                             : "strategy_reduce, which sums an unsharded gradient";
    const char *adds = pairs ? "reduce_between, which adds to a gradient shard"
                             : "strategy_reduce, which adds to a gradient shard";
    uint64_t log = gpulog_length();
    need(fsdp_reduce_grad(u->unit));
    check_covers(log, &gradient, GPU_READ, sums);
    check_covers(log, &valid, GPU_WRITE, adds);
    need(strategy_remove(u->model));
}

static void huge_slice(OneUnit *u, const Rank *r)
{
    const StrategyOptions options = {.strategy = STRATEGY_ZERO3, .reshard_ranks = 2};
    FsdpUnit *unit = u->unit;
    FlatParam *flat = &unit->flat;
    need(strategy_apply(u->model, &options));
    need(fsdp_unshard(unit));
    need(fsdp_wait_for_unshard(unit));
    int64_t half = flat->layout.padded / 2;
    Buffer part = buffer_range(&flat->unsharded_param, r->rank % 2 * half, half);
    uint64_t log = gpulog_length();
    need(strategy_post_forward(u->model, unit));
    Buffer slice = u->unit->root->extensions->strategy->slices[0];
    check(
        slice.data != NULL && slice.numel == half,
        "the slice of keep_slice has %lld elements, want %lld: half of the unit, padding included",
        (long long)slice.numel, (long long)half);
    check_covers(log, &part, GPU_READ, "keep_slice, which copies this rank's half of the unit");
    check_covers(log, &slice, GPU_WRITE, "keep_slice, which copies this rank's half of the unit");
    need(fsdp_reshard(unit));
    unit->all_gather = strategy_all_gather;
    log = gpulog_length();
    need(fsdp_unshard(unit));
    check_covers(log, &slice, GPU_READ, "strategy_all_gather, which sends a slice");
    check_covers(log, &flat->unsharded_param, GPU_WRITE, "strategy_all_gather of slices");
    need(strategy_remove(u->model));
}

void rule_strategies_beyond_32_bits(void)
{
    run_huge(huge_gradient, 2);
    run_huge_pairs(huge_gradient);
}

void rule_slices_beyond_32_bits(void)
{
    run_huge(huge_slice, 4);
}
