/* Lab 1, strategies: the mesh; what each strategy keeps, sends and sums.
 *
 * Every case trains a small model with a strategy, and each rank compares the result with an oracle
 * of its own (tests/support/strategies.h).
 */
#include <stdlib.h>
#include <string.h>

#include "draw_model.h"
#include "fsdp.h"
#include "harness.h"
#include "strategies.h"

enum { MOST_BUCKETS = 64 };

static const Strategy ALL[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3};

// ---- The tests ----

static void mesh_body(const Rank *r, void *arg)
{
    int replicas = *(const int *)arg, shards = r->world / replicas;
    Mesh mesh;
    check(mesh_2d(&mesh, r->comm, r->world + 1) == ERR_ARGUMENT, "%d ranks were made %d replicas",
          r->world, r->world + 1);
    need(mesh_2d(&mesh, r->comm, replicas));
    check(mesh.shard.size == shards && mesh.replicate.size == replicas,
          "the mesh of %d ranks and %d replicas is %d shards × %d replicas", r->world, replicas,
          mesh.shard.size, mesh.replicate.size);
    check(mesh.shard.rank == r->rank % shards && mesh.replicate.rank == r->rank / shards,
          "of %d shards and %d replicas, rank %d has place %d among those that shard and %d among "
          "the replicas, want %d and %d: in mesh_2d neighbours shard together",
          shards, replicas, r->rank, mesh.shard.rank, mesh.replicate.rank, r->rank % shards,
          r->rank / shards);
    const ProcessGroup groups[] = {mesh.shard, mesh.replicate};
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "ranks that shard" : "replicas";
        int rank = 0, size = 1;
        bool own = groups[i].comm != NULL && groups[i].comm != r->comm;
        check(own == (shards > 1 && replicas > 1),
              "the %s have %s: in mesh_2d a communicator is made only for a group that is neither "
              "one rank nor all",
              name, own ? "a communicator of their own" : "none of their own");
        if (groups[i].size == 1) continue;
        check(groups[i].comm != NULL, "the %d %s have no communicator", groups[i].size, name);
        need_nccl(ncclCommUserRank(groups[i].comm, &rank));
        need_nccl(ncclCommCount(groups[i].comm, &size));
        check(rank == groups[i].rank && size == groups[i].size,
              "the communicator of the %s says rank %d of %d, the mesh %d of %d", name, rank, size,
              groups[i].rank, groups[i].size);
    }
    need(mesh_destroy(&mesh, r->comm));
}

static void mesh_of_shards_and_replicas(void **state)
{
    for (int world = 1; world <= 8; world++)
        for (int replicas = 1; replicas <= world; replicas++)
            if (world % replicas == 0) run_ranks(world, mesh_body, &replicas);
}

// ---- All of them ----

static void refused_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    FsdpOptions fsdp = {.seed = 42};
    Mesh mesh;
    FsdpContext ctx;
    Module *model = spec_create(&c->spec);
    need(mesh_2d(&mesh, r->comm, c->replicas));
    need(fsdp_context_create(&ctx, &mesh, r->stream));
    need(fully_shard(model, &ctx, &fsdp));
    check(strategy_apply(model, &c->options) == ERR_ARGUMENT,
          "options that do not suit were taken");
    check(strstr(check_last(), case_refusal(c, r->world)) != NULL, "the line says: %s",
          check_last());
    check(fsdp_unit(model)->root->strategy == NULL, "a refused strategy has left something");
    fsdp_unwrap(model);
    module_destroy(model);
    need(fsdp_context_destroy(&ctx));
    need(mesh_destroy(&mesh, r->comm));
}

static void run_or_refuse(int world, Case *c)
{
    if (case_refusal(c, world)[0] != '\0')
        run_ranks(world, refused_body, c);
    else
        run_case(world, c);
}

static void strategies_sum_the_same(void **state)
{
    Case bad = case_of(spec_mlp(3), STRATEGY_ZERO1, 2, 1, 1);
    bad.options.reduce_every_time = true;
    run_or_refuse(2, &bad);
    bad = case_of(spec_mlp(3), STRATEGY_ZERO3, 2, 2, 1);
    run_or_refuse(2, &bad);
    for (size_t i = 0; i < sizeof ALL / sizeof ALL[0]; i++) {
        Case c = case_of(spec_mlp(3), ALL[i], 4, 1, 1);
        run_case(4, &c);
        c = case_of(spec_mlp(3), ALL[i], 1, 1, 2);
        run_case(1, &c);
    }
    Case gpt2 = case_of(spec_gpt2(1), STRATEGY_DDP, 2, 1, 1);
    run_case(2, &gpt2);
    Case tied = case_of(spec_mlp(4), STRATEGY_DDP, 2, 1, 1);
    tied.tied = true;
    tied.options.first_bucket_bytes = tied.options.bucket_bytes = 1; // each parameter by itself
    run_case(2, &tied);
    Spec spec = draw_mlp(4);
    Strategy strategy = draw_of(ALL);
    int world = drawn_world(&spec, 2, 8);
    Case c = case_of(spec, strategy, world, 1, 1);
    c.align = draw_chance(50);
    c.options.divide_factor = (float)draw(1, 9);
    run_case(world, &c);
}

static void micro_batches_accumulate(void **state)
{
    for (size_t i = 0; i < sizeof ALL / sizeof ALL[0]; i++) {
        Case c = case_of(spec_mlp(3), ALL[i], 3, 1, 3);
        run_case(3, &c);
        if (ALL[i] == STRATEGY_ZERO1) continue;
        c.options.reduce_every_time = true;
        run_case(3, &c);
    }
}

static void replicas_are_summed_last(void **state)
{
    static const int SHAPES[][2] = {{4, 2}, {6, 2}, {6, 3}, {8, 2}};
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        Case c = case_of(spec_mlp(3), ALL[1 + i % 3], SHAPES[i][0], SHAPES[i][1], 2);
        run_case(SHAPES[i][0], &c);
    }
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 4, 2, 3);
    c.options.reduce_every_time = true;
    run_case(4, &c);
    c.options.reduce_every_time = false;
    c.partial = true;
    run_case(4, &c);
}

// ---- Memory and traffic ----

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
    check_messages(first, GPU_ALL_GATHER, world / c->replicas, f->gathers, c,
                   o->strategy == STRATEGY_ZERO1
                       ? "ZeRO-1 gathers for the first micro-batch alone: strategy_micro_batch "
                         "says when parameters stay after a backward"
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
          "at most %zu bytes of gradients are unsharded at a time, want %zu%s" LIKELY
          "strategy_pre_backward begins them, strategy_post_backward reduces them",
          grads, f->grads, kept ? ": all of them accumulate" : "");
    check(sums == f->sums,
          "at most %zu bytes hold sums over the shards that the replicas are still to add, want "
          "%zu" LIKELY "reduce_within allocates them, free_all_reduce frees the one before",
          sums, f->sums);
    check(slices == f->slices,
          "at most %zu bytes are slices kept for the backward, want %zu: of all units but the "
          "root" LIKELY "keep_slice allocates them, strategy_all_gather frees them",
          slices, f->slices);
}

static void costs_body(const Rank *r, void *arg)
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
    check_all_messages(first, c, &f, r->world);
    check_peaks(first, c, &f);
    check(gpulog_live_bytes(r->device) - before == f.held,
          "after the step %zu bytes are left that were not there before it",
          gpulog_live_bytes(r->device) - before - f.held);
    case_unwrap(&w, r);
}

// One, two that accumulate, two that reduce each, two of which the last is all-reduced.
enum { ONE, ACCUMULATE, EVERY, PARTIAL, MODES };

static Case case_in_mode(Spec spec, Strategy strategy, int world, int replicas, int mode)
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

static void costs_are_the_formula(void **state)
{
    Spec spec = spec_gpt2(3);
    spec.dim = 24; // bytes that 8 ranks divide
    if (getenv("STRATEGIES_ALL") != NULL) costs_of_all(spec);
    for (int world = 1; world <= 8; world++)
        for (size_t i = 0; i < sizeof ALL / sizeof ALL[0]; i++) {
            Case c = case_in_mode(spec, ALL[i], world, 1, world % 3 == 0 ? ONE : ACCUMULATE);
            run_ranks(world, costs_body, &c);
        }
    for (size_t i = 0; i < sizeof ALL / sizeof ALL[0]; i++)
        for (int mode = ACCUMULATE; mode <= PARTIAL; mode++) {
            Case c = case_in_mode(spec, ALL[i], 4, 2, mode);
            if (case_refusal(&c, 4)[0] == '\0') run_ranks(4, costs_body, &c);
        }
}

// ---- A slice from forward to backward ----

// That those which have the slices of one unit are neighbours, in their order.
static void check_neighbours(const Wrapped *w, const Rank *r, int slice)
{
    const ProcessGroup *shard = &w->mesh.shard, *part = &w->root->strategy->slice_group;
    float *sum, mine = (float)shard->rank, first = (float)(shard->rank / slice * slice);
    int rank = -1, size = 0;
    check(part->comm != NULL && part->size == slice && part->rank == shard->rank % slice,
          "group_split: rank %d of the %d that shard is rank %d of %d neighbours, want %d of %d",
          shard->rank, shard->size, part->rank, part->size, shard->rank % slice, slice);
    need_nccl(ncclCommUserRank(part->comm, &rank));
    need_nccl(ncclCommCount(part->comm, &size));
    check(rank == part->rank && size == slice,
          "group_split: the neighbours' communicator says rank %d of %d, want %d of %d", rank, size,
          part->rank, slice);
    need_cuda(cudaMalloc((void **)&sum, sizeof *sum));
    send_to(sum, &mine, 1);
    need_nccl(ncclAllReduce(sum, sum, 1, ncclFloat, ncclSum, part->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    float *got = fetch(sum, 1), want = (float)slice * (first + 0.5f * (float)(slice - 1));
    check(*got == want,
          "group_split: the places of rank %d and its neighbours add up to %g, want %g: from %g on",
          shard->rank, (double)*got, (double)want, (double)first);
    free(got);
    need_cuda(cudaFree(sum));
}

static void slice_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    uint64_t comm[2] = {0, 0};
    case_wrap(&w, c, r);
    check_neighbours(&w, r, c->options.reshard_ranks);
    for (int step = 0; step < 2; step++) {
        uint64_t first = gpulog_length();
        GpuLogEntry entry;
        case_train(&w, c, r, step);
        for (uint64_t i = first; i < gpulog_length(); i++)
            if (gpulog_get(i, &entry) && entry.op == GPU_ALL_GATHER &&
                entry.collective.ranks == c->options.reshard_ranks)
                comm[step] = entry.collective.comm;
        check(comm[step] != 0,
              "step %d gathers from all ranks that shard, and never slices" LIKELY
              "strategy_all_gather gathers the slice that keep_slice has kept",
              step);
        check(comm[step] == comm[0],
              "the slices of step %d are gathered on another communicator than those of step 0: "
              "strategy_apply makes one, once",
              step);
        check_no_race(first);
        need(fsdp_adamw_step(&w.adamw));
    }
    case_unwrap(&w, r);
}

// Before the optimizer steps: a forward whose backward never comes. It leaves slices.
static void discard(Wrapped *w, const Case *c, const Rank *r, int step)
{
    Batch batch = case_batch(c, step, r->rank, 0);
    forward_batch(&c->spec, &w->run, w->model, &batch);
    need(fsdp_reshard_all(w->model));
    batch_destroy(&batch);
}

static void unused_slice_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    case_wrap(&w, c, r);
    Batch batch = case_batch(c, 0, r->rank, 0);
    need(fsdp_set_training(w.model, false));
    forward_batch(&c->spec, &w.run, w.model, &batch);
    need(fsdp_set_training(w.model, true));
    batch_destroy(&batch);
    for (int i = 0; i < w.root->n_units; i++)
        check(w.root->strategy->slices[i].data == NULL,
              "an evaluation has kept a slice of %s for a backward that it does not have",
              w.root->units[i]->flat.name);
    case_unwrap(&w, r);
}

static void a_slice_is_gathered_from_fewer(void **state)
{
    static const int SHAPES[][2] = {{4, 2}, {6, 3}, {8, 4}}; // ranks, slices
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        Case c = case_of(spec_mlp(4), STRATEGY_ZERO3, SHAPES[i][0], 1, 1);
        c.options.reshard_ranks = SHAPES[i][1];
        run_ranks(SHAPES[i][0], slice_body, &c);
        run_case(SHAPES[i][0], &c);
        Case costs = case_in_mode(spec_gpt2(3), STRATEGY_ZERO3, SHAPES[i][0], 1, ONE);
        costs.options.reshard_ranks = SHAPES[i][1];
        run_ranks(SHAPES[i][0], costs_body, &costs);
    }
    Case c = case_of(spec_mlp(4), STRATEGY_ZERO3, 4, 1, 1);
    c.options.reshard_ranks = 2;
    c.before_update = discard;
    c.steps = 3;
    run_case(4, &c);
    run_ranks(4, unused_slice_body, &c);
    for (int slice = 1; slice <= 4; slice += slice == 1 ? 2 : 1) { // 1, 3, 4 of 4
        Case bad = case_of(spec_mlp(3), STRATEGY_ZERO3, 4, 1, 1);
        bad.options.reshard_ranks = slice;
        run_or_refuse(4, &bad);
    }
    c.options.strategy = STRATEGY_ZERO2;
    run_or_refuse(4, &c);
}

// ---- Streams and order ----

// The entry of the log that is the n-th of this operation since `first`; -1.
static int64_t nth(uint64_t first, GpuOp op, int n, GpuLogEntry *entry)
{
    for (uint64_t i = first; i < gpulog_length(); i++)
        if (gpulog_get(i, entry) && entry->op == op && n-- == 0) return (int64_t)i;
    return -1;
}

static void overlap_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    GpuLogEntry all_reduce, next;
    case_wrap(&w, c, r);
    uint64_t first = gpulog_length();
    case_train(&w, c, r, 0);
    int64_t a = nth(first, GPU_ALL_REDUCE, 0, &all_reduce);
    int64_t b = nth(first, GPU_REDUCE_SCATTER, 1, &next);
    check(a >= 0 && b >= 0, "the step has no all-reduce, or no second reduce-scatter");
    check(
        all_reduce.stream != next.stream && !log_ordered((uint64_t)a, (uint64_t)b),
        "the second unit's reduce-scatter waits for the first unit's all-reduce: the sum over the "
        "replicas needs a stream and memory of its own, and nobody may wait for it at once: in "
        "reduce_between");
    check_no_race(first);
    case_unwrap(&w, r);
}

static void replicas_overlap_shards(void **state)
{
    Case c = case_of(spec_mlp(4), STRATEGY_ZERO3, 4, 2, 1);
    run_ranks(4, overlap_body, &c);
}

// ---- Buckets ----

// From the end, bucket after bucket, each as the sentence in strategy.h has it.
static void check_buckets(const FlatLayout *layout, int64_t first_bytes, int64_t bytes)
{
    Bucket got[MOST_BUCKETS];
    int n = ddp_buckets(layout, first_bytes, bytes, got, MOST_BUCKETS), last = layout->n;
    check(ddp_buckets(layout, first_bytes, bytes, NULL, 0) == n, "the count depends on the room");
    for (int b = 0; b < n; b++) {
        int64_t size = b == 0 ? first_bytes : bytes, taken = 0;
        int first = last;
        while (first > 0 && (first == last || taken < size))
            taken += 4 * meta_numel(layout->params[--first]);
        check(got[b].first == first && got[b].last == last && got[b].missing == last - first,
              "bucket %d holds parameters %d to %d and misses %d, want %d to %d, all missing: it "
              "takes "
              "the next from the end while it has fewer than %lld bytes",
              b, got[b].first, got[b].last - 1, got[b].missing, first, last - 1, (long long)size);
        int64_t end = last < layout->n ? layout->offset[last] : layout->numel;
        check(got[b].begin == layout->offset[first] && got[b].end == end,
              "bucket %d is elements %lld to %lld of the flat gradient, want %lld to %lld", b,
              (long long)got[b].begin, (long long)got[b].end, (long long)layout->offset[first],
              (long long)end);
        last = first;
    }
    check(last == 0, "%d buckets leave %d parameters over", n, last);
}

static void buckets_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Module *model = spec_create(&c->spec);
    Param *params[64];
    FlatLayout layout;
    int n = meta_params(model, params, 64);
    need(flat_layout(&layout, "model", params, n, 0, 1, false));
    check_buckets(&layout, c->options.first_bucket_bytes, c->options.bucket_bytes);
    check_buckets(&layout, 1, 1);
    check_buckets(&layout, 1, 1 << 30);
    flat_layout_destroy(&layout);
    module_destroy(model);
}

static void buckets_are_filled_from_the_end(void **state)
{
    Case c = case_of(spec_mlp(4), STRATEGY_DDP, 1, 1, 1);
    run_ranks(1, buckets_body, &c);
    for (int i = 0; i < 3; i++) {
        c.spec = draw_mlp(5);
        c.options.first_bucket_bytes = draw(1, 400);
        c.options.bucket_bytes = draw(1, 3000);
        drawn_model(&c.spec, 1);
        run_ranks(1, buckets_body, &c);
    }
}

static void buckets_overlap_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    GpuLogEntry entry, last;
    case_wrap(&w, c, r);
    int n = w.root->strategy->ddp.n_buckets, sent = 0;
    uint64_t first = gpulog_length();
    case_train(&w, c, r, 0);
    int64_t product = -1;
    for (uint64_t i = first; i < gpulog_length(); i++)
        if (gpulog_get(i, &last) && last.op == GPU_BLAS) product = (int64_t)i;
    while (nth(first, GPU_ALL_REDUCE, sent, &entry) >= 0) sent++;
    check(sent == n, "a backward made %d all-reduces of %d buckets", sent, n);
    int64_t early = nth(first, GPU_ALL_REDUCE, 0, &entry);
    check(early < product,
          "the first bucket is sent after the backward's last product: ddp_post_backward sends a "
          "bucket when it is complete");
    check(!log_ordered((uint64_t)early, (uint64_t)product),
          "the backward's last product waits for the first bucket: send_bucket is on a stream of "
          "its own, and nobody waits for it at once");
    check_no_race(first);
    case_unwrap(&w, r);
}

static void buckets_overlap_the_backward(void **state)
{
    Case c = case_of(spec_mlp(4), STRATEGY_DDP, 2, 2, 1);
    run_ranks(2, buckets_overlap_body, &c);
}

// A backward that leaves out what is below it.
static Status skip_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    size_t bytes = (size_t)(run->B * run->T) * (size_t)self->in_dim * sizeof(float);
    if (din != NULL) CUDA_TRY(cudaMemsetAsync(din, 0, bytes, run->stream));
    return OK;
}

static void missing_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    Param *params[8];
    float *logits = NULL, *dlogits = NULL, *din = NULL, loss;
    case_wrap(&w, c, r);
    Module *left_out = w.model->children[1];
    meta_params(left_out, params, 8);
    Batch batch = case_batch(c, 0, r->rank, 0);
    w.run.B = c->spec.B;
    w.run.T = c->spec.T;
    need(module_forward(w.model, &w.run, batch.in, &logits));
    need(cross_entropy(&w.run, logits, batch.targets, c->spec.B, c->spec.vocab, &loss, &dlogits));
    if (r->rank == 1) left_out->backward = skip_backward;
    Status status = module_backward(w.model, &w.run, dlogits, &din);
    if (r->rank == 1) {
        check(status == ERR_ARGUMENT, "a parameter without a gradient was not refused: status %d",
              status);
        check(strstr(check_last(), params[0]->name) != NULL,
              "the line must name %s, the first parameter without a gradient, and says: %s",
              params[0]->name, check_last());
    } else {
        check(status == OK, "rank %d failed because rank 1 left out a module: %s", r->rank,
              check_last());
    }
    need_cuda(cudaStreamSynchronize(r->stream));
    need(module_discard(w.model, &w.run));
    need_cuda(cudaFreeAsync(dlogits, r->stream));
    if (din != NULL) need_cuda(cudaFreeAsync(din, r->stream));
    batch_destroy(&batch);
    case_unwrap(&w, r);
}

static void a_missing_gradient_is_named(void **state)
{
    Case c = case_of(spec_mlp(4), STRATEGY_DDP, 2, 2, 1);
    run_ranks(2, missing_body, &c);
}

// ---- Evaluation, and what does not go together ----

static int unsharded_units(const Wrapped *w)
{
    int n = 0;
    for (int i = 0; i < w->root->n_units; i++) n += w->root->units[i]->flat.state != FLAT_SHARDED;
    return n;
}

static void evaluation_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    case_wrap(&w, c, r);
    Batch batch = case_batch(c, 0, r->rank, 0);
    for (int round = 0; round < 2; round++) {
        need(fsdp_set_training(w.model, false));
        forward_batch(&c->spec, &w.run, w.model, &batch);
        forward_batch(&c->spec, &w.run, w.model, &batch);
        check(unsharded_units(&w) == 0,
              "after an evaluation's forward %d units are unsharded: set_reshard_after_forward",
              unsharded_units(&w));
        check(w.root->n_post_forward == 0,
              "after an evaluation's forward the post-forward order has %d units: no backward will "
              "take them out",
              w.root->n_post_forward);
        need(fsdp_set_training(w.model, true));
        case_train(&w, c, r, round);
        check(unsharded_units(&w) == 0, "after the last backward %d units are unsharded",
              unsharded_units(&w));
        need(fsdp_adamw_step(&w.adamw));
    }
    batch_destroy(&batch);
    case_unwrap(&w, r);
}

static void an_evaluation_leaves_nothing(void **state)
{
    for (size_t i = 0; i < sizeof ALL / sizeof ALL[0]; i++) {
        Case c = case_of(spec_mlp(3), ALL[i], 2, 1, 1);
        run_ranks(2, evaluation_body, &c);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(mesh_of_shards_and_replicas),
    cmocka_unit_test(strategies_sum_the_same),
    cmocka_unit_test(micro_batches_accumulate),
    cmocka_unit_test(replicas_are_summed_last),
    cmocka_unit_test(replicas_overlap_shards),
    cmocka_unit_test(costs_are_the_formula),
    cmocka_unit_test(a_slice_is_gathered_from_fewer),
    cmocka_unit_test(an_evaluation_leaves_nothing),
    cmocka_unit_test(buckets_are_filled_from_the_end),
    cmocka_unit_test(buckets_overlap_the_backward),
    cmocka_unit_test(a_missing_gradient_is_named),
};
SUITE_MAIN("strategies", tests)
