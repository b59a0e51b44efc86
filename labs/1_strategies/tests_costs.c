/* Lab 1, what each strategy keeps and sends: memory and messages of a step, as the handout's tables
 * have them.
 */
#include <stdlib.h>

#include "draw_model.h"
#include "fsdp.h"
#include "tests.h"

// What the handout's tables say of one rank. P: all units padded; u: a block's; root: the root's.
typedef struct Messages {
    uint64_t calls, sent; // of a step; sent in bytes
} Messages;
typedef struct Figures {
    size_t held, params, grads; // persistent, and the most that is unsharded; bytes
    size_t sums;                // the most that waits for an all-reduce, or is in one
    size_t slices;              // the most that is kept for the backward
    Messages gathers, part_gathers, scatters, reduces; // part: over slice_group
} Figures;

// DDP's buckets, one after the other from the end of the parameters, each sent `times`.
static Messages bucket_messages(const Case *c, const FlatLayout *layout, uint64_t r, uint64_t times)
{
    Messages m = {0, 0};
    for (int last = layout->n; last > 0;) {
        int64_t bytes = 0,
                size = m.calls == 0 ? c->options.first_bucket_bytes : c->options.bucket_bytes;
        do bytes += 4 * meta_numel(layout->params[--last]);
        while (last > 0 && bytes < size);
        m.calls += times;
        m.sent += times * (2 * (r - 1) * (uint64_t)bytes / r);
    }
    return m;
}

static void figure_messages(Figures *f, const Wrapped *w, const Case *c, uint64_t s)
{
    const StrategyOptions *o = &c->options;
    uint64_t n = (uint64_t)c->rounds, r = (uint64_t)c->replicas, p = (uint64_t)o->reshard_ranks;
    uint64_t reductions = o->reduce_every_time || c->partial ? n : 1;
    if (o->strategy == STRATEGY_DDP && r > 1)
        f->reduces = bucket_messages(c, &w->root->units[0]->flat.layout, r, reductions);
    for (int i = 0; i < w->root->n_units && s > 1; i++) {
        uint64_t unit = (uint64_t)w->root->units[i]->flat.layout.padded * sizeof(float);
        bool again = o->strategy == STRATEGY_ZERO3 && i > 0; // gathered for the backward, too
        uint64_t gathers = o->strategy == STRATEGY_ZERO1 ? 1 : again && p == 0 ? 2 * n : n;
        f->gathers.calls += gathers;
        f->gathers.sent += gathers * (s - 1) * (unit / s);
        if (again && p > 0) f->part_gathers.calls += n;
        if (again && p > 0) f->part_gathers.sent += n * (p - 1) * (unit / p);
        f->scatters.calls += reductions;
        f->scatters.sent += reductions * (s - 1) * (unit / s);
        if (r == 1) continue;
        f->reduces.calls += c->partial ? 1 : reductions;
        f->reduces.sent += (c->partial ? 1 : reductions) * (2 * (r - 1) * (unit / s) / r);
    }
}

static Figures figures_of(const Wrapped *w, const Case *c, int world)
{
    const StrategyOptions *o = &c->options;
    uint64_t P = 0, root = 0, u = 0, s = (uint64_t)(world / c->replicas);
    for (int i = 0; i < w->root->n_units; i++) {
        uint64_t bytes = (uint64_t)w->root->units[i]->flat.layout.padded * sizeof(float);
        P += bytes;
        if (i == 0) root = bytes;
        if (i > 0 && bytes > u) u = bytes;
    }
    bool ddp = o->strategy == STRATEGY_DDP;
    bool kept = c->rounds > 1 && !o->reduce_every_time && !c->partial;
    uint64_t most = root > u ? root : u;
    Figures f = {.held = 4 * P / s};
    figure_messages(&f, w, c, s);
    if (world == 1) return f; // the shard is all there is
    f.params = ddp ? 0 : o->strategy == STRATEGY_ZERO3 ? root + 2 * u : P;
    f.grads = ddp || kept ? P : root + 2 * u;
    if (!ddp && c->replicas > 1) f.sums = (c->partial ? P + most : u + most) / s;
    if (o->reshard_ranks > 0) f.slices = (P - root) / (uint64_t)o->reshard_ranks;
    return f;
}

// Of the collectives of this kind since `first` that so many ranks take part in (0: however many).
static Messages messages_since(uint64_t first, GpuOp op, int ranks)
{
    Messages m = {0, 0};
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry;
        if (!gpulog_get(i, &entry) || entry.op != op) continue;
        if (ranks > 0 && entry.collective.ranks != ranks) continue;
        m.calls++;
        m.sent += entry.sent;
    }
    return m;
}

static void check_messages(uint64_t first, GpuOp op, int ranks, Messages want, const Case *c,
                           const char *cause)
{
    Messages got = messages_since(first, op, ranks);
    check(got.calls == want.calls && got.sent == want.sent,
          "a step of %d micro-batches made %llu %ss of %llu bytes, want %llu of %llu" LIKELY "%s",
          c->rounds, (unsigned long long)got.calls, gpulog_op_name(op),
          (unsigned long long)got.sent, (unsigned long long)want.calls,
          (unsigned long long)want.sent, cause);
}

static void check_all_messages(uint64_t first, const Case *c, const Figures *f, int world)
{
    const StrategyOptions *o = &c->options;
    bool ddp = o->strategy == STRATEGY_DDP;
    bool fewer = messages_since(first, GPU_ALL_GATHER, 0).calls < f->gathers.calls;
    check_messages(first, GPU_ALL_GATHER, world / c->replicas, f->gathers, c,
                   o->strategy == STRATEGY_ZERO1 || (o->strategy == STRATEGY_ZERO2 && fewer)
                       ? "only ZeRO-1 gathers for the first micro-batch alone: "
                         "strategy_micro_batch says when parameters stay after a backward, "
                         "strategy_post_backward asks"
                   : o->reshard_ranks > 0
                       ? "the backward gathers slices: in strategy_all_gather"
                       : "set_reshard_after_forward decides whether the backward gathers again");
    if (o->reshard_ranks > 0)
        check_messages(first, GPU_ALL_GATHER, o->reshard_ranks, f->part_gathers, c,
                       "the backward of each unit but the root gathers the slices: in "
                       "strategy_all_gather");
    const char *when = "who reduces, and when: strategy_post_backward asks "
                       "requires_gradient_sync, which strategy_micro_batch sets";
    check_messages(first, GPU_REDUCE_SCATTER, 0, f->scatters, c, when);
    bool each = messages_since(first, GPU_ALL_REDUCE, 0).calls >= 2 * f->reduces.calls;
    check_messages(first, GPU_ALL_REDUCE, 0, f->reduces, c,
                   ddp && !each ? "a message for each bucket, once: ddp_buckets cuts them"
                   : c->partial ? "without requires_all_reduce strategy_reduce leaves the sum in "
                                  "state->partial"
                                : when);
}

static void check_peaks(uint64_t first, const Case *c, const Figures *f)
{
    bool kept = c->rounds > 1 && !c->options.reduce_every_time && !c->partial;
    size_t params = case_peak(first, GPU_UNSHARDED_PARAM),
           grads = case_peak(first, GPU_UNSHARDED_GRAD);
    size_t sums = case_peak(first, GPU_COMMUNICATION), slices = case_peak(first, GPU_SHARDED_PARAM);
    check(params == f->params,
          "at most %zu bytes of parameters are unsharded at a time, want %zu" LIKELY
          "set_reshard_after_forward and strategy_post_backward decide how long they stay",
          params, f->params);
    check(grads == f->grads,
          "at most %zu bytes of gradients are unsharded at a time, want %zu%s" LIKELY "%s", grads,
          f->grads, kept ? ": all of them accumulate" : "",
          grads > f->grads || kept
              ? "strategy_pre_backward begins them, strategy_post_backward reduces them"
              : "strategy_pre_backward calls fsdp_free_reduce_scatter in each unit's backward, not "
                "in the outermost alone: a gradient is freed before the next is reduced");
    check(sums == f->sums,
          "at most %zu bytes hold sums over the shards that the replicas are still to add, want "
          "%zu" LIKELY "reduce_within allocates them, free_all_reduce frees the one before",
          sums, f->sums);
    check(slices == f->slices,
          "at most %zu bytes are slices kept for the backward, want %zu: of all units but the "
          "root" LIKELY "keep_slice allocates them, strategy_all_gather frees them",
          slices, f->slices);
}

void costs_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    size_t before = gpulog_live_bytes(r->device);
    case_wrap(&w, c, r);
    Figures f = figures_of(&w, c, r->world);
    size_t held = gpulog_live_bytes(r->device) - before;
    check(
        held == f.held,
        "parameters, gradients and moments take %zu bytes, want %zu: 16 for each parameter of this "
        "rank's shard",
        held, f.held);
    uint64_t first = gpulog_length();
    case_train(&w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    const bool slices = c->options.reshard_ranks > 0; // whose peak says more than a leak
    if (!slices) check_all_freed(first);
    check_all_messages(first, c, &f, r->world);
    check_peaks(first, c, &f);
    if (slices) check_all_freed(first);
    case_unwrap(&w, r);
}

Case case_in_mode(Spec spec, Strategy strategy, int world, int replicas, int mode)
{
    Case c = case_of(spec, strategy, world, replicas, mode == ONE ? 1 : 2);
    c.options.reduce_every_time = mode == EVERY;
    c.partial = mode == PARTIAL;
    return c;
}

// STRATEGIES_ALL, for test-all: each mesh, kind of accumulation and slice.
static void costs_of_all(Spec spec)
{
    for (int world = 1; world <= 8; world++)
        for (int replicas = 1; replicas <= world; replicas++)
            for (int i = 0; i < 4 * MODES && world % replicas == 0; i++)
                for (int slice = 0; slice < world; slice++) {
                    Case c = case_in_mode(spec, ALL[i / MODES], world, replicas, i % MODES);
                    c.options.reshard_ranks = slice;
                    if (ALL[i / MODES] == STRATEGY_DDP && replicas > 1) continue; // one per rank
                    drawn("%d ranks, %d replicas, strategy %d, mode %d, reshard_ranks %d", world,
                          replicas, i / MODES, i % MODES, slice);
                    if (case_refusal(&c, world)[0] == '\0') run_ranks(world, costs_body, &c);
                }
}

enum { MOST_CASES = 4 * MODES + 1 };

static void add_case(Case *cases, Case c, int world)
{
    if (case_refusal(&c, world)[0] != '\0') return;
    while (cases->rounds > 0) cases++;
    *cases = c;
}

// With bytes that 8 ranks divide.
static Spec divided(void)
{
    Spec spec = spec_gpt2(3);
    spec.dim = 24;
    return spec;
}

void rule_costs_of_replicas(Strategy strategy)
{
    Case all[MOST_CASES] = {{0}};
    for (int i = 0; i < 4 * MODES; i++)
        if ((i % MODES != ONE || strategy == STRATEGY_DDP) &&
            (ALL[i / MODES] == STRATEGY_DDP) == (strategy == STRATEGY_DDP))
            add_case(all, case_in_mode(divided(), ALL[i / MODES], 4, 2, i % MODES), 4);
    run_each(4, costs_body, all);
}

TEST(costs_are_the_formula)
{
    if (getenv("STRATEGIES_ALL") != NULL) costs_of_all(divided());
    for (int world = 1; world <= 8; world += world == 5 ? 3 : 1) { // all of them: costs_of_all
        Case all[MOST_CASES] = {{0}};
        for (int i = 1; i < 4; i++)
            add_case(all,
                     case_in_mode(divided(), ALL[i], world, 1, world % 3 == 0 ? ONE : ACCUMULATE),
                     world);
        run_each(world, costs_body, all);
    }
}
