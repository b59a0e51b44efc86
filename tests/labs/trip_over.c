/* What users of PyTorch's FSDP2 trip over, a test each: right here, or refused with one clear line.
 * The numbers are those of pytorch/pytorch's issues.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "checkpoint.h"
#include "files.h"
#include "harness.h"
#include "per_parameter.h"
#include "strategies.h"

static double *squares; // of each rank's shard, in shared memory

static double squares_of(const Wrapped *w)
{
    double sum = 0.0;
    for (int u = 0; u < w->root->n_units; u++) {
        size_t n = (size_t)w->root->units[u]->flat.layout.shard_numel;
        float *grad = fetch(w->root->units[u]->flat.sharded_grad.data, n);
        for (size_t i = 0; i < n; i++) sum += (double)grad[i] * (double)grad[i];
        free(grad);
    }
    return sum;
}

// ---- 1. #148532, #170862 (under offload): clipping by this rank's part of the norm ----

static void clip_body(Wrapped *w, const Case *c, const Rank *r)
{
    float norm;
    double before, after;
    case_train(w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    before = squares_of(w);
    squares[r->rank] = before;
    need(fsdp_clip_grad_norm(w->model, &w->ctx, 0.01f, &norm)); // all ranks have come here
    double all = 0.0;
    for (int i = 0; i < w->mesh.shard.size; i++)
        all += squares[w->mesh.replicate.rank * w->mesh.shard.size + i];
    check(fabs((double)norm - sqrt(all)) <= 1e-6 * sqrt(all),
          "the norm is %.9g, want %.9g: over all ranks that shard, and each replica once",
          (double)norm, sqrt(all));
    need_cuda(cudaDeviceSynchronize());
    after = squares_of(w);
    check(fabs(sqrt(after / before) * sqrt(all) - 0.01) < 1e-6,
          "this rank's gradients were scaled by %.9g, want %.9g", sqrt(after / before),
          0.01 / sqrt(all));
}

TEST(clipping_by_the_norm_of_all_ranks)
{
    squares = shared_alloc(CASE_RANKS * sizeof *squares);
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 3, 1, 1);
    run_wrapped(3, clip_body, &c);
    c = case_of(spec_mlp(3), STRATEGY_ZERO2, 6, 2, 2);
    run_wrapped(6, clip_body, &c);
    c = case_of(spec_mlp(3), STRATEGY_DDP, 5, 5, 1);
    run_wrapped(5, clip_body, &c);
    c = case_of(spec_mlp(3), STRATEGY_ZERO3, 6, 2, 2);
    c.offload = true;
    run_wrapped(6, clip_body, &c);
    c.layout = per_parameter_layout;
    run_wrapped(6, clip_body, &c);
}

// Ten steps, each of them clipped, in which replicas count once.
TEST(clipped_trainings_are_near_the_oracle)
{
    static const int SHAPES[][3] = {{STRATEGY_DDP, 3, 3},   {STRATEGY_ZERO1, 5, 1},
                                    {STRATEGY_ZERO2, 6, 2}, {STRATEGY_ZERO3, 8, 2},
                                    {STRATEGY_ZERO3, 7, 1}, {STRATEGY_ZERO3, 1, 1}};
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        Case c = case_of(spec_mlp(3), (Strategy)SHAPES[i][0], SHAPES[i][1], SHAPES[i][2], 2);
        c.clip = 0.05f;
        c.steps = 10;
        run_case(SHAPES[i][1], &c);
        c.offload = c.options.strategy != STRATEGY_DDP;
        if (c.offload) run_case(SHAPES[i][1], &c);
    }
}

// ---- 2. #176076: a tied weight that the last rank never updates ----

static void tied_body(Wrapped *w, const Case *c, const Rank *r)
{
    const FlatParam *flat = &w->root->units[0]->flat;
    size_t n = (size_t)flat->layout.shard_numel;
    float *before = fetch(flat->sharded_param.data, n);
    case_train(w, c, r, 0);
    need(fsdp_adamw_step(&w->adamw));
    float *after = fetch(flat->sharded_param.data, n);
    const Param *tied = w->model->children[0]->params[0];
    for (int p = 0; p < flat->layout.n; p++) {
        int64_t begin, end, at;
        if (flat->layout.params[p] != tied) continue;
        flat_param_range_in_shard(&flat->layout, p, r->rank, &begin, &end, &at);
        for (int64_t e = begin; e < end; e++)
            check(before[at + e - begin] != after[at + e - begin],
                  "element %lld of %s, which is tied, was not updated", (long long)e, tied->name);
    }
    free(before);
    free(after);
}

TEST(a_tied_weight_is_updated_on_every_rank)
{
    static const int WORLDS[] = {3, 5, 7};
    for (int i = 0; i < 3; i++) {
        Case c = case_of(spec_gpt2(1), i == 1 ? STRATEGY_ZERO1 : STRATEGY_ZERO3, WORLDS[i], 1, 1);
        run_wrapped(WORLDS[i], tied_body, &c);
        run_case(WORLDS[i], &c);
    }
}

// ---- 3. #158719: a parameter that some ranks do not use ----

// Lab 1's a_missing_gradient_is_named has what a backward does. After a forward that was left out,
// what a rank gathers no longer belongs to what the others gather.
typedef struct Skip {
    Case c;
    bool all; // rank 1 leaves out the micro-batch; false: its forward leaves out l.1
} Skip;

static void skip_body(const Rank *r, void *arg)
{
    const Skip *skip = arg;
    Wrapped w;
    case_wrap(&w, &skip->c, r);
    Module *model = w.model;
    if (r->rank == 1 && skip->all) return;
    if (r->rank == 1)
        memmove(&model->children[1], &model->children[2],
                (size_t)(--model->n_children - 1) * sizeof *model->children);
    case_train(&w, &skip->c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    bool names_itself =
        skip->c.options.strategy == STRATEGY_DDP && !skip->all; // rank 1 alone fails
    check(names_itself, "rank %d has done a step in which rank 1 left out a forward", r->rank);
    case_unwrap(&w, r);
}

static void must_name(const Skip *skip, const char *what, const char *whom)
{
    char *message = run_ranks_message(3, RANKS_LIMIT, skip_body, (void *)(uintptr_t)skip);
    if (message == NULL || strstr(message, what) == NULL || strstr(message, whom) == NULL)
        fail_msg("strategy %d, a forward left out: want \"%s\" and \"%s\", got: %s",
                 skip->c.options.strategy, what, whom, message != NULL ? message : "no failure");
    free(message);
}

TEST(a_skipped_forward_is_named)
{
    if (!backend_names_missing_calls()) skip();
    for (int s = STRATEGY_DDP; s <= STRATEGY_ZERO3; s++) {
        Skip one = {case_of(spec_mlp(4), (Strategy)s, 3, 1, 1), false}, all = one;
        all.all = true;
        must_name(&all, "rank 1 will never arrive", "nccl");
        if (s == STRATEGY_DDP)
            must_name(&one, "rank 1 of 3", "l.1.fc.weight has no gradient");
        else if (s ==
                 STRATEGY_ZERO3) // the next all-gather is taken for it, and then the sizes differ
            must_name(&one, "Did rank 0 or rank 1 skip a call there", "fsdp_all_gather");
        else
            must_name(&one, "Rank 1 did not come to the ncclAllGather", "fsdp_all_gather");
    }
}

// ---- 4. #147179, #153302: a process group in each call ----

static void communicators_body(Wrapped *w, const Case *c, const Rank *r)
{
    uint64_t seen[8];
    int n = 0;
    uint64_t first = gpulog_length();
    for (int step = 0; step < 4; step++) {
        case_train(w, c, r, step);
        need(fsdp_adamw_step(&w->adamw));
    }
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry;
        int k = 0;
        if (!gpulog_get(i, &entry) || entry.collective.comm == 0) continue;
        while (k < n && seen[k] != entry.collective.comm) k++;
        check(k < 3, "4 steps use more than 3 communicators: is one made in each call?");
        if (k == n) seen[n++] = entry.collective.comm;
    }
    check(n == (c->replicas > 1 ? 3 : 2), "4 steps use %d communicators", n);
}

TEST(an_integer_reshard_makes_one_communicator)
{
    Case c = case_of(spec_mlp(5), STRATEGY_ZERO3, 4, 1, 2);
    c.options.reshard_ranks = 2;
    run_wrapped(4, communicators_body, &c);
    c = case_of(spec_mlp(5), STRATEGY_ZERO3, 8, 2, 1);
    c.options.reshard_ranks = 2;
    run_wrapped(8, communicators_body, &c);
}

// ---- 5. #160279, #196996, #197203: what accumulation means, and in which type ----

TEST(accumulation_is_what_was_asked_for)
{
    for (int mode = 0; mode < 3; mode++) {
        Case c = case_of(spec_mlp(3), STRATEGY_ZERO2, 6, 2, 3);
        c.options.reduce_every_time = mode == 1;
        c.partial = mode == 2;
        c.uneven = true;
        run_case(6, &c);
    }
}

// ---- 6. #136336: full and sharded state, on another world size ----

enum { MOST_NUMEL = 1 << 14 };
static char dir[PATH_BYTES + 16];
static float *full; // shared memory: the model's state as it was saved

// Writes the state in the order of its parameters (arg: where), or compares it.
typedef struct Walk {
    bool compares;
    size_t at;
} Walk;

static Status visit(const Param *param, const float *values, void *arg)
{
    Walk *walk = arg;
    size_t n = 1;
    for (int d = 0; d < param->ndim; d++) n *= (size_t)param->shape[d];
    check(walk->at + n <= MOST_NUMEL, "the test's model is too large");
    if (!walk->compares) memcpy(full + walk->at, values, n * sizeof *values);
    check(memcmp(full + walk->at, values, n * sizeof *values) == 0,
          "%s is not what was saved on other ranks", param->name);
    walk->at += n;
    return OK;
}

static void state_body(Wrapped *w, const Case *c, const Rank *r)
{
    CheckpointPosition position = {.step = 1, .data_seed = 42};
    Walk walk = {.compares = c->steps == 0};
    if (c->steps > 0) {
        case_train(w, c, r, 0);
        need(fsdp_adamw_step(&w->adamw));
        need(checkpoint_save(dir, w->model, &w->adamw, &position));
    } else {
        need(checkpoint_load(dir, w->model, &w->adamw, &position));
    }
    need(fsdp_full_state(w->model, visit, &walk));
}

TEST(a_state_is_the_same_on_another_world)
{
    needs_ranks(3);
    static const int SHAPES[][2] = {{1, 1}, {2, 1}, {6, 3}, {8, 1}};
    char folder[PATH_BYTES];
    full = shared_alloc(MOST_NUMEL * sizeof *full);
    make_folder(folder);
    snprintf(dir, sizeof dir, "%s/state", folder);
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 3, 1, 1);
    run_wrapped(3, state_body, &c);
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        c = case_of(spec_mlp(3), STRATEGY_ZERO2, SHAPES[i][0], SHAPES[i][1], 1);
        c.steps = 0;
        run_wrapped(SHAPES[i][0], state_body, &c);
    }
    remove_folder(folder);
}

// ---- 7. #114299: initialisation on meta, and what is not saved ----

static void meta_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    CheckpointIndex index;
    CheckpointPosition position = {.step = 0, .data_seed = 0};
    size_t before = gpulog_live_bytes(r->device);
    case_wrap(&w, c, r);
    int64_t shards = 0;
    for (int u = 0; u < w.root->n_units; u++) shards += w.root->units[u]->flat.layout.shard_numel;
    check(gpulog_live_bytes(r->device) - before == 16 * (size_t)shards,
          "a model from meta holds %zu bytes, want 16 for each element of its shards, %zu",
          gpulog_live_bytes(r->device) - before, 16 * (size_t)shards);
    need(checkpoint_save(dir, w.model, NULL, &position));
    need(index_read(&index, dir));
    Param *params[256];
    int n = meta_params(w.model, params, 256);
    check(index.n == n, "%d of %d parameters are in the checkpoint", index.n, n);
    for (int i = 0; i < n; i++)
        check(index_find(&index, params[i]->name) != NULL, "%s was not saved", params[i]->name);
    index_free(&index);
    case_unwrap(&w, r);
}

TEST(nothing_is_left_on_meta_or_out_of_a_checkpoint)
{
    char folder[PATH_BYTES];
    make_folder(folder);
    snprintf(dir, sizeof dir, "%s/meta", folder);
    Case c = case_of(spec_gpt2(2), STRATEGY_ZERO3, 3, 1, 1);
    run_ranks(3, meta_body, &c);
    remove_folder(folder);
}

// ---- 8. #104690: frozen parameters, their type and what they take ----

// An adapter of a few columns at the end of each frozen block.
static const RandomModel ADAPTERS = {.in_dim = 7,
                                     .out_dim = 5,
                                     .blocks = 3,
                                     .layers = 2,
                                     .width = 13,
                                     .adapter = 2,
                                     .units = UNITS_BLOCKS};

static Case adapted(Strategy strategy, int world, int replicas)
{
    Case c = case_of(spec_mlp(4), strategy, world, replicas, 2);
    c.random = &ADAPTERS;
    c.frozen_base = true;
    c.layout = per_parameter_layout;
    return c;
}

// Elements that train, and all; of the model's shapes.
static void count_elements(const Module *model, int64_t *trained, int64_t *all)
{
    Param *params[64];
    int n = meta_params(model, params, 64);
    *trained = *all = 0;
    for (int i = 0; i < n; i++) {
        *all += meta_numel(params[i]);
        if (!params[i]->frozen) *trained += meta_numel(params[i]);
    }
}

// What is sent to reduce, per step; and what gradients and moments take.
static void frozen_body(Wrapped *w, const Case *c, const Rank *r)
{
    int64_t trained, all, chunks = 0, moments = 0;
    count_elements(w->model, &trained, &all);
    check(trained > 0 && trained < all / 3, "%lld of %lld elements train", (long long)trained,
          (long long)all);
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatLayout *layout = &w->root->units[u]->flat.layout;
        for (int i = 0; i < layout->n; i++)
            if (!layout->params[i]->frozen)
                chunks += per_parameter_chunk(layout->params[i], layout->world);
        moments += w->root->units[u]->flat.sharded_grad.numel;
    }
    check(moments == chunks,
          "the gradients have %lld elements on this rank, want %lld: those of "
          "what trains",
          (long long)moments, (long long)chunks);
    uint64_t first = gpulog_length();
    case_train(w, c, r, 0);
    need(fsdp_adamw_step(&w->adamw));
    need_cuda(cudaDeviceSynchronize());
    int64_t reduced = 0;
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry;
        if (gpulog_get(i, &entry) && entry.op == GPU_REDUCE_SCATTER)
            reduced += (int64_t)entry.bytes;
    }
    int64_t want = chunks * w->mesh.shard.size * (int64_t)sizeof(float);
    check(reduced == want, "%lld bytes were reduced, want %lld: of what trains alone",
          (long long)reduced, (long long)want);
}

TEST(a_frozen_base_costs_no_gradient)
{
    static const MixedPrecisionPolicy BF16 = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    static const int SHAPES[][2] = {{4, 1}, {8, 1}, {8, 2}};
    for (int i = 0; i < 3; i++) {
        Case c = adapted(STRATEGY_ZERO3, SHAPES[i][0], SHAPES[i][1]);
        run_wrapped(SHAPES[i][0], frozen_body, &c);
        run_case(SHAPES[i][0], &c);
        c.policy = &BF16; // what is frozen is gathered in the type of the others
        run_wrapped(SHAPES[i][0], frozen_body, &c);
        run_case(SHAPES[i][0], &c);
    }
}

// ---- 9. #179443: HSDP's buffers grow with depth; #180665: under offload a replica's sum alone
// ----

TEST(offloaded_replicas_have_the_sum_of_all)
{
    static const int SHAPES[][2] = {{4, 2}, {6, 3}, {8, 2}, {8, 4}};
    for (int i = 0; i < 4; i++) {
        Case c = case_of(spec_mlp(4), STRATEGY_ZERO3, SHAPES[i][0], SHAPES[i][1], 2);
        c.offload = true;
        c.options.reduce_every_time = i % 2 == 1;
        run_case(SHAPES[i][0], &c);
    }
}

static size_t *peaks; // shared memory

static void depth_body(Wrapped *w, const Case *c, const Rank *r)
{
    uint64_t first = gpulog_length();
    case_train(w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    if (r->rank == 0) peaks[c->spec.layers] = case_peak(first, GPU_COMMUNICATION);
}

TEST(replicas_hold_two_sums_at_any_depth)
{
    needs_ranks(4);
    peaks = shared_alloc(16 * sizeof *peaks);
    for (int layers = 4; layers <= 12; layers += 4) {
        Case c = case_of(spec_gpt2(layers), STRATEGY_ZERO3, 4, 2, 1);
        run_wrapped(4, depth_body, &c);
    }
    if (peaks[4] == 0 || peaks[8] != peaks[4] || peaks[12] != peaks[4])
        fail_msg("with 4, 8 and 12 blocks the sums for the replicas take at most %zu, %zu and %zu "
                 "bytes: they must not grow",
                 peaks[4], peaks[8], peaks[12]);
}

// ---- 10. #173680: host time of many small units ----

static uint64_t *calls; // shared memory

static void calls_body(Wrapped *w, const Case *c, const Rank *r)
{
    case_train(w, c, r, 0);
    uint64_t first = gpulog_length();
    case_train(w, c, r, 1);
    if (r->rank == 0) calls[c->spec.layers] = gpulog_length() - first;
}

TEST(calls_grow_linearly_with_units)
{
    calls = shared_alloc(32 * sizeof *calls);
    for (int slice = 0; slice <= 2; slice += 2) {
        for (int layers = 6; layers <= 24; layers += 6) {
            Case c = case_of(spec_mlp(layers), STRATEGY_ZERO3, 4, 1, 1);
            c.options.reshard_ranks = slice;
            run_wrapped(4, calls_body, &c);
        }
        for (int layers = 12; layers <= 18; layers += 6)
            if (calls[layers + 6] - calls[layers] != calls[12] - calls[6])
                fail_msg("6 units more than %d are %d calls more, and 6 more than 6 are %d", layers,
                         (int)(calls[layers + 6] - calls[layers]), (int)(calls[12] - calls[6]));
    }
}

SUITE_MAIN("trip_over")
