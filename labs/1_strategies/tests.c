/* Lab 1, strategies: the mesh; what each strategy keeps, sends and sums.
 *
 * Every case trains a small model with a strategy, and each rank compares the result with an oracle
 * of its own: gradients of a model without FSDP, one for each rank and micro-batch, which are added
 * in the order that strategy.h states.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "draw_model.h"
#include "fsdp.h"
#include "harness.h"
#include "strategy.h"
#include "training.h"

enum { MOST_RANKS = 8, MOST_ROUNDS = 4, MOST_BUCKETS = 64 };

// A training: which model on which mesh, and how.
typedef struct Case {
    Spec spec;
    StrategyOptions options;
    int replicas, rounds, steps;
    bool partial; // the all-reduce is left to the last micro-batch
    bool align;
    bool tied;     // an MLP whose blocks l.1 and l.2 share their bias
    float **grads; // shared memory: of each rank and micro-batch, as the ranks make them
} Case;

// A model under a strategy on one rank.
typedef struct Wrapped {
    NnRun run;
    Mesh mesh;
    FsdpContext ctx;
    Module *model;
    FsdpRoot *root;
    FsdpAdamW adamw;
} Wrapped;

static bool is_block(const Spec *spec, const Module *model, int i)
{
    if (spec->gpt2) return strncmp(model->children[i]->name, "h.", 2) == 0;
    return i < model->n_children - 1;
}

static Module *model_of(const Case *c)
{
    Module *model = spec_create(&c->spec);
    if (!c->tied) return model;
    Module *first = model->children[1]->children[0], *second = model->children[2]->children[0];
    free(second->params[1]);
    second->params[1] = first->params[1];
    return model;
}

static void wrap(Wrapped *w, const Case *c, const Rank *r)
{
    FsdpOptions fsdp = {.align_shards = c->align, .seed = 42};
    memset(w, 0, sizeof *w);
    need(nn_run_create(&w->run, r->stream));
    need(mesh_2d(&w->mesh, r->comm, c->replicas));
    need(fsdp_context_create(&w->ctx, &w->mesh, r->stream));
    w->model = model_of(c);
    for (int i = 0; i < w->model->n_children; i++)
        if (c->options.strategy != STRATEGY_DDP && is_block(&c->spec, w->model, i))
            need(fully_shard(w->model->children[i], &w->ctx, &fsdp));
    need(fully_shard(w->model, &w->ctx, &fsdp));
    need(strategy_apply(w->model, &c->options));
    w->root = fsdp_unit(w->model)->root;
    need(fsdp_adamw_create(&w->adamw, w->model, &w->ctx, &TEST_ADAMW));
    need_cuda(cudaDeviceSynchronize());
}

static void unwrap(Wrapped *w, const Rank *r)
{
    need_cuda(cudaDeviceSynchronize());
    fsdp_adamw_destroy(&w->adamw);
    need(strategy_remove(w->model));
    fsdp_unwrap(w->model);
    module_destroy(w->model);
    need(fsdp_context_destroy(&w->ctx));
    need(mesh_destroy(&w->mesh, r->comm));
    need(nn_run_destroy(&w->run));
}

static Batch batch_of(const Case *c, int step, int rank, int round)
{
    return batch_create(&c->spec, (uint64_t)(1 + step * 1000 + rank * 10 + round));
}

// One step without the optimizer.
static void train(Wrapped *w, const Case *c, const Rank *r, int step)
{
    need(fsdp_zero_grad(w->model, &w->ctx));
    for (int k = 0; k < c->rounds; k++) {
        Batch batch = batch_of(c, step, r->rank, k);
        need(strategy_micro_batch(w->model, k, c->rounds));
        if (c->partial) {
            need(fsdp_set_requires_gradient_sync(w->model, true));
            need(fsdp_set_requires_all_reduce(w->model, k == c->rounds - 1));
        }
        train_batch(&c->spec, &w->run, w->model, &batch);
        batch_destroy(&batch);
    }
}

// ---- The oracle ----

// g[0][i] + g[1][i] + …, n of them, in a collective's order: a balanced tree.
static float tree(float *const *g, int n, size_t i)
{
    if (n == 1) return g[0][i];
    int half = 1;
    while (2 * half < n) half *= 2;
    return tree(g, half, i) + tree(g + half, n - half, i);
}

// Of micro-batch k: the sum over the shards of each replica.
static float within(const Case *c, int world, int replica, int k, size_t i)
{
    int shards = world / c->replicas;
    float *of[MOST_RANKS];
    for (int s = 0; s < shards; s++) of[s] = c->grads[(replica * shards + s) * MOST_ROUNDS + k];
    return tree(of, shards, i);
}

// Element i of the gradient that a step leaves.
static float oracle(const Case *c, int world, size_t i)
{
    float factor = c->options.divide_factor > 0.0f ? c->options.divide_factor : (float)world;
    bool unsharded = !c->options.reduce_every_time && !c->partial;
    float grad = 0.0f, sums[MOST_RANKS] = {0.0f}, *place[MOST_RANKS];
    for (int p = 0; p < c->replicas; p++) place[p] = &sums[p];
    if (world == 1) return c->grads[c->rounds - 1][i]; // the backwards have added
    for (int k = unsharded ? c->rounds - 1 : 0; k < c->rounds; k++) {
        for (int p = 0; p < c->replicas; p++)
            sums[p] = c->partial && k > 0 ? sums[p] + within(c, world, p, k, i)
                                          : within(c, world, p, k, i);
        if (!c->partial || k == c->rounds - 1) grad += tree(place, c->replicas, 0) / factor;
    }
    return grad;
}

// Waits until every rank is here.
static void meet(const Rank *r)
{
    float *one;
    need_cuda(cudaMalloc((void **)&one, sizeof *one));
    need_cuda(cudaMemset(one, 0, sizeof *one));
    need_cuda(cudaDeviceSynchronize());
    need_nccl(ncclAllReduce(one, one, 1, ncclFloat, ncclSum, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaFree(one));
}

// Writes this rank's gradients at the parameters of p into the shared memory.
static void make_grads(Plain *p, const Case *c, const Rank *r, int step)
{
    bool apart = c->options.reduce_every_time || c->partial;
    size_t n = (size_t)model_numel(p->model);
    if (r->world == 1) apart = false; // one gradient, to which every backward adds
    need(plain_adamw_zero_grad(p->adamw));
    for (int k = 0; k < c->rounds; k++) {
        Batch batch = batch_of(c, step, r->rank, k);
        train_batch(&c->spec, &p->run, p->model, &batch);
        float *grads = plain_grads(p);
        memcpy(c->grads[r->rank * MOST_ROUNDS + k], grads, n * sizeof *grads);
        free(grads);
        batch_destroy(&batch);
        if (apart) need(plain_adamw_zero_grad(p->adamw));
    }
    meet(r);
}

// The parameters of a shard against those of p, and its gradient against the oracle's.
static void check_shards(Wrapped *w, Plain *p, const Case *c, const Rank *r, int step)
{
    size_t n = (size_t)model_numel(p->model);
    float *want = malloc(n * sizeof *want);
    check(want != NULL, "no memory for the oracle");
    for (size_t i = 0; i < n; i++) want[i] = oracle(c, r->world, i);
    Layout all;
    layout_module(&all, p->model, false, 1, LAYOUT_WHOLE);
    Param *params[256];
    int n_params = meta_params(w->model, params, 256);
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatParam *flat = &w->root->units[u]->flat;
        float *got = fetch(flat->sharded_grad.data, (size_t)flat->layout.shard_numel);
        for (int j = 0; j < flat->layout.n; j++) {
            int64_t begin, end, at;
            int i = 0;
            while (i < n_params && params[i] != flat->layout.params[j]) i++;
            flat_param_range_in_shard(&flat->layout, j, flat->layout.rank, &begin, &end, &at);
            for (int64_t e = begin; e < end; e++)
                check(
                    memcmp(&got[at + e - begin], &want[(int64_t)all.begin[i] + e], 4) == 0,
                    "step %d, the gradient of %s[%lld] is %.9g, want %.9g: the sum over the ranks "
                    "that shard, then over the replicas, divided once",
                    step, flat->layout.params[j]->name, (long long)e, (double)got[at + e - begin],
                    (double)want[(int64_t)all.begin[i] + e]);
        }
        for (int64_t i = flat_valid_numel(&flat->layout, flat->layout.rank);
             i < flat->layout.shard_numel; i++)
            check(got[i] == 0.0f, "step %d, the gradient of %s has %g in its padding", step,
                  flat->name, (double)got[i]);
        free(got);
    }
    double squares = 0.0;
    float norm;
    for (size_t i = 0; i < n; i++) squares += (double)want[i] * (double)want[i];
    need(fsdp_grad_norm(w->model, &w->ctx, &norm));
    check(fabs((double)norm - sqrt(squares)) <= 1e-6 * sqrt(squares),
          "step %d, the gradient's norm is %.9g, want %.9g: each replica counts once", step,
          (double)norm, sqrt(squares));
    // The oracle's own step: by parameter, with its gradient.
    for (int i = 0; i < all.n; i++)
        send_to(all.param[i]->grad.data, want + all.begin[i], all.begin[i + 1] - all.begin[i]);
    free(want);
    need(plain_adamw_step(p->adamw));
}

static Status compare_param(const Param *param, const float *values, void *arg)
{
    const Plain *p = arg;
    Layout all;
    layout_module(&all, p->model, false, 1, LAYOUT_WHOLE);
    for (int i = 0; i < all.n; i++) {
        size_t n = all.begin[i + 1] - all.begin[i];
        if (strcmp(all.param[i]->name, param->name) != 0) continue;
        float *want = fetch(all.param[i]->data.data, n);
        check(memcmp(values, want, n * sizeof *want) == 0,
              "after the steps %s is not what one process makes of the same gradients",
              param->name);
        free(want);
    }
    return OK;
}

static void oracle_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Plain plain;
    Wrapped w;
    memset(&plain, 0, sizeof plain);
    plain.spec = c->spec;
    plain.model = model_of(c);
    need(nn_run_create(&plain.run, r->stream));
    need(meta_materialize(plain.model, 42, r->stream));
    need(plain_adamw_create(&plain.adamw, plain.model, &TEST_ADAMW, &plain.run));
    wrap(&w, c, r);
    uint64_t first = gpulog_length();
    for (int step = 0; step < c->steps; step++) {
        make_grads(&plain, c, r, step);
        train(&w, c, r, step);
        need_cuda(cudaDeviceSynchronize());
        check_shards(&w, &plain, c, r, step);
        need(fsdp_adamw_step(&w.adamw));
        meet(r); // before the shared gradients are written again
    }
    check_no_race(first);
    need(fsdp_full_state(w.model, compare_param, &plain));
    unwrap(&w, r);
    plain_destroy(&plain);
}

static void run_oracle(int world, Case *c)
{
    static float *grads[MOST_RANKS * MOST_ROUNDS];
    static float *memory;
    enum { MOST_NUMEL = 1 << 16 };
    if (memory == NULL) memory = shared_alloc(sizeof grads / sizeof *grads * MOST_NUMEL * 4);
    for (int i = 0; i < MOST_RANKS * MOST_ROUNDS; i++) grads[i] = memory + (size_t)i * MOST_NUMEL;
    c->grads = grads;
    run_ranks(world, oracle_body, c);
}

static const Strategy ALL[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3};

static Case case_of(Spec spec, Strategy strategy, int world, int replicas, int rounds)
{
    return (Case){.spec = spec,
                  .options = {.strategy = strategy, .first_bucket_bytes = 64, .bucket_bytes = 900},
                  .replicas = strategy == STRATEGY_DDP ? world : replicas,
                  .rounds = rounds,
                  .steps = 2};
}

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
          "the replicas, want %d and %d: neighbours shard together",
          shards, replicas, r->rank, mesh.shard.rank, mesh.replicate.rank, r->rank % shards,
          r->rank / shards);
    const ProcessGroup groups[] = {mesh.shard, mesh.replicate};
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "ranks that shard" : "replicas";
        int rank = 0, size = 1;
        bool own = groups[i].comm != NULL && groups[i].comm != r->comm;
        check(
            own == (shards > 1 && replicas > 1),
            "the %s have %s: a communicator is made only for a group that is neither one rank nor "
            "all",
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

// What does not suit the mesh or itself; "": it does.
static const char *why_not(const Case *c, int world)
{
    bool ddp = c->options.strategy == STRATEGY_DDP;
    if (!ddp && c->replicas == world && world > 1) return "leaves nobody to shard with";
    if (c->options.strategy == STRATEGY_ZERO1 && c->options.reduce_every_time)
        return "cannot reduce every time";
    return "";
}

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
    check(strstr(check_last(), why_not(c, r->world)) != NULL, "the line says: %s", check_last());
    check(fsdp_unit(model)->root->strategy == NULL, "a refused strategy has left something");
    fsdp_unwrap(model);
    module_destroy(model);
    need(fsdp_context_destroy(&ctx));
    need(mesh_destroy(&mesh, r->comm));
}

static void run_or_refuse(int world, Case *c)
{
    if (why_not(c, world)[0] != '\0')
        run_ranks(world, refused_body, c);
    else
        run_oracle(world, c);
}

// Every strategy, mesh and kind of accumulation: with STRATEGIES_ALL set, for test-all.
static void run_all(void)
{
    for (int world = 1; world <= 8; world++)
        for (int replicas = 1; replicas <= world; replicas++)
            for (size_t i = 0; i < sizeof ALL / sizeof ALL[0] && world % replicas == 0; i++)
                for (int mode = 0; mode < 3; mode++) {
                    Case c = case_of(spec_mlp(3), ALL[i], world, replicas, 2);
                    c.options.reduce_every_time = mode == 1;
                    c.partial = mode == 2;
                    if (mode == 2 && (ALL[i] <= STRATEGY_ZERO1 || replicas == 1)) continue;
                    if (ALL[i] == STRATEGY_DDP && replicas > 1) continue; // always one per rank
                    drawn("%d ranks, %d replicas, strategy %d, mode %d", world, replicas,
                          (int)ALL[i], mode);
                    run_or_refuse(world, &c);
                }
}

static void strategies_sum_the_same(void **state)
{
    if (getenv("STRATEGIES_ALL") != NULL) run_all();
    Case bad = case_of(spec_mlp(3), STRATEGY_ZERO1, 2, 1, 1);
    bad.options.reduce_every_time = true;
    run_or_refuse(2, &bad);
    bad = case_of(spec_mlp(3), STRATEGY_ZERO3, 2, 2, 1);
    run_or_refuse(2, &bad);
    for (size_t i = 0; i < sizeof ALL / sizeof ALL[0]; i++) {
        Case c = case_of(spec_mlp(3), ALL[i], 4, 1, 1);
        run_oracle(4, &c);
        c = case_of(spec_mlp(3), ALL[i], 1, 1, 2);
        run_oracle(1, &c);
    }
    Case gpt2 = case_of(spec_gpt2(1), STRATEGY_DDP, 2, 1, 1);
    run_oracle(2, &gpt2);
    Case tied = case_of(spec_mlp(4), STRATEGY_DDP, 2, 1, 1);
    tied.tied = true;
    tied.options.first_bucket_bytes = tied.options.bucket_bytes = 1; // each parameter by itself
    run_oracle(2, &tied);
    Spec spec = draw_mlp(4);
    Strategy strategy = draw_of(ALL);
    int world = drawn_world(&spec, 2, 8);
    Case c = case_of(spec, strategy, world, 1, 1);
    c.align = draw_chance(50);
    c.options.divide_factor = (float)draw(1, 9);
    run_oracle(world, &c);
}

static void micro_batches_accumulate(void **state)
{
    for (size_t i = 0; i < sizeof ALL / sizeof ALL[0]; i++) {
        Case c = case_of(spec_mlp(3), ALL[i], 3, 1, 3);
        run_oracle(3, &c);
        if (ALL[i] == STRATEGY_ZERO1) continue;
        c.options.reduce_every_time = true;
        run_oracle(3, &c);
    }
}

static void replicas_are_summed_last(void **state)
{
    static const int SHAPES[][2] = {{4, 2}, {6, 2}, {6, 3}, {8, 2}};
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        Case c = case_of(spec_mlp(3), ALL[1 + i % 3], SHAPES[i][0], SHAPES[i][1], 2);
        run_oracle(SHAPES[i][0], &c);
    }
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 4, 2, 3);
    c.options.reduce_every_time = true;
    run_oracle(4, &c);
    c.options.reduce_every_time = false;
    c.partial = true;
    run_oracle(4, &c);
}

// ---- Memory and traffic ----

// The most bytes of a category that were there at a time, of allocations that came and went since
// `first`: what an allocation was for is known when it is freed.
static size_t peak_of(uint64_t first, GpuCategory category)
{
    size_t live = 0, peak = 0;
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry, later;
        if (!gpulog_get(i, &entry)) continue;
        if (entry.op == GPU_FREE && entry.category == category && entry.bytes <= live)
            live -= entry.range[0].bytes;
        if (entry.op != GPU_ALLOC) continue;
        bool found = false;
        for (uint64_t j = i + 1; j < gpulog_length() && !found; j++) {
            if (!gpulog_get(j, &later) || later.op != GPU_FREE) continue;
            found = later.range[0].ptr == entry.range[0].ptr;
        }
        if (found && later.category == category) live += entry.range[0].bytes;
        if (live > peak) peak = live;
    }
    return peak;
}

// The handout's figures, in bytes. P: all units padded; u: a block's; root: the root's.
typedef struct Figures {
    size_t held, params, grads;            // persistent, and the most that is unsharded
    size_t sums;                           // the most that waits for an all-reduce, or is in one
    uint64_t gathered, scattered, reduced; // sent in a step by each rank
} Figures;

static Figures figures_of(const Wrapped *w, const Case *c, int world)
{
    const StrategyOptions *o = &c->options;
    uint64_t P = 0, root = 0, u = 0, s = (uint64_t)(world / c->replicas), n = (uint64_t)c->rounds;
    for (int i = 0; i < w->root->n_units; i++) {
        const FlatLayout *layout = &w->root->units[i]->flat.layout;
        uint64_t bytes = (uint64_t)layout->padded * sizeof(float);
        P += bytes;
        if (i == 0) root = bytes;
        if (i > 0 && bytes > u) u = bytes;
    }
    bool ddp = o->strategy == STRATEGY_DDP;
    uint64_t reductions = o->reduce_every_time || c->partial ? n : 1;
    uint64_t all_reductions = c->partial ? 1 : reductions, r = (uint64_t)c->replicas;
    bool kept = n > 1 && !o->reduce_every_time && !c->partial;
    Figures f = {.held = 4 * P / s};
    f.params = ddp ? 0 : o->strategy == STRATEGY_ZERO3 ? root + 2 * u : P;
    f.grads = ddp || kept ? P : root + 2 * u;
    uint64_t most = root > u ? root : u;
    if (!ddp && r > 1) f.sums = (c->partial ? P + most : u + most) / s;
    f.gathered = (s - 1) * P / s * n;
    if (o->strategy == STRATEGY_ZERO1) f.gathered = (s - 1) * P / s;
    if (o->strategy == STRATEGY_ZERO3) f.gathered += (s - 1) * (P - root) / s * n;
    f.scattered = ddp ? 0 : (s - 1) * P / s * reductions;
    f.reduced = 2 * (r - 1) * (P / s) / r * all_reductions;
    return f;
}

static void costs_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    size_t before = gpulog_live_bytes(r->device);
    wrap(&w, c, r);
    Figures f = figures_of(&w, c, r->world);
    size_t held = gpulog_live_bytes(r->device) - before;
    check(
        held == f.held,
        "parameters, gradients and moments take %zu bytes, want %zu: 16 for each parameter of this "
        "rank's shard",
        held, f.held);
    uint64_t first = gpulog_length();
    gpulog_reset_traffic();
    train(&w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    uint64_t gathered = gpulog_traffic(GPU_ALL_GATHER).sent;
    uint64_t scattered = gpulog_traffic(GPU_REDUCE_SCATTER).sent;
    uint64_t reduced = gpulog_traffic(GPU_ALL_REDUCE).sent;
    check(gathered == f.gathered,
          "a step of %d micro-batches sent %llu bytes in all-gathers, want %llu", c->rounds,
          (unsigned long long)gathered, (unsigned long long)f.gathered);
    check(scattered == f.scattered,
          "a step of %d micro-batches sent %llu bytes in reduce-scatters, want %llu", c->rounds,
          (unsigned long long)scattered, (unsigned long long)f.scattered);
    check(reduced == f.reduced,
          "a step of %d micro-batches sent %llu bytes in all-reduces, want %llu", c->rounds,
          (unsigned long long)reduced, (unsigned long long)f.reduced);
    size_t params = peak_of(first, GPU_UNSHARDED_PARAM), grads = peak_of(first, GPU_UNSHARDED_GRAD);
    size_t sums = peak_of(first, GPU_COMMUNICATION);
    check(params == f.params, "at most %zu bytes of parameters are unsharded at a time, want %zu",
          params, f.params);
    check(grads == f.grads, "at most %zu bytes of gradients are unsharded at a time, want %zu",
          grads, f.grads);
    check(
        sums == f.sums,
        "at most %zu bytes hold sums over the shards that the replicas are still to add, want %zu",
        sums, f.sums);
    check(gpulog_live_bytes(r->device) - before == f.held,
          "after the step %zu bytes are left that were not there before it",
          gpulog_live_bytes(r->device) - before - f.held);
    unwrap(&w, r);
}

static void costs_are_the_formula(void **state)
{
    Spec spec = spec_gpt2(3);
    spec.dim = 24; // bytes that 8 ranks divide
    for (size_t i = 0; i < sizeof ALL / sizeof ALL[0]; i++)
        for (int replicas = 1; replicas <= 2; replicas++)
            for (int every = 0; every <= (ALL[i] != STRATEGY_ZERO1); every++) {
                Case c = case_of(spec, ALL[i], 4, replicas, 2);
                if (ALL[i] == STRATEGY_DDP && replicas == 2) continue;
                c.options.reduce_every_time = every;
                run_ranks(4, costs_body, &c);
            }
    Case c = case_of(spec, STRATEGY_ZERO3, 4, 2, 3);
    c.partial = true;
    run_ranks(4, costs_body, &c);
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
    wrap(&w, c, r);
    uint64_t first = gpulog_length();
    train(&w, c, r, 0);
    int64_t a = nth(first, GPU_ALL_REDUCE, 0, &all_reduce);
    int64_t b = nth(first, GPU_REDUCE_SCATTER, 1, &next);
    check(a >= 0 && b >= 0, "the step has no all-reduce, or no second reduce-scatter");
    check(
        all_reduce.stream != next.stream && !log_ordered((uint64_t)a, (uint64_t)b),
        "the second unit's reduce-scatter waits for the first unit's all-reduce: the sum over the "
        "replicas needs a stream and memory of its own, and nobody may wait for it at once");
    check_no_race(first);
    unwrap(&w, r);
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
    wrap(&w, c, r);
    int n = w.root->strategy->ddp.n_buckets, sent = 0;
    uint64_t first = gpulog_length();
    train(&w, c, r, 0);
    int64_t product = -1;
    for (uint64_t i = first; i < gpulog_length(); i++)
        if (gpulog_get(i, &last) && last.op == GPU_BLAS) product = (int64_t)i;
    while (nth(first, GPU_ALL_REDUCE, sent, &entry) >= 0) sent++;
    check(sent == n, "a backward made %d all-reduces of %d buckets", sent, n);
    int64_t early = nth(first, GPU_ALL_REDUCE, 0, &entry);
    check(
        early < product && !log_ordered((uint64_t)early, (uint64_t)product),
        "the first bucket is sent after the backward's last product, or that waits for it: send a "
        "bucket when it is complete, on a stream of its own");
    check_no_race(first);
    unwrap(&w, r);
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
    wrap(&w, c, r);
    Module *left_out = w.model->children[1];
    meta_params(left_out, params, 8);
    Batch batch = batch_of(c, 0, r->rank, 0);
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
    unwrap(&w, r);
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
    wrap(&w, c, r);
    Batch batch = batch_of(c, 0, r->rank, 0);
    for (int round = 0; round < 2; round++) {
        need(fsdp_set_training(w.model, false));
        forward_batch(&c->spec, &w.run, w.model, &batch);
        forward_batch(&c->spec, &w.run, w.model, &batch);
        check(unsharded_units(&w) == 0, "after an evaluation's forward %d units are unsharded",
              unsharded_units(&w));
        check(w.root->n_post_forward == 0,
              "after an evaluation's forward the post-forward order has %d units: no backward will "
              "take them out",
              w.root->n_post_forward);
        need(fsdp_set_training(w.model, true));
        train(&w, c, r, round);
        check(unsharded_units(&w) == 0, "after the last backward %d units are unsharded",
              unsharded_units(&w));
        need(fsdp_adamw_step(&w.adamw));
    }
    batch_destroy(&batch);
    unwrap(&w, r);
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
    cmocka_unit_test(an_evaluation_leaves_nothing),
    cmocka_unit_test(buckets_are_filled_from_the_end),
    cmocka_unit_test(buckets_overlap_the_backward),
    cmocka_unit_test(a_missing_gradient_is_named),
};
SUITE_MAIN("strategies", tests)
