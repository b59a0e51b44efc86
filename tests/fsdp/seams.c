/* The seams of the core: places where part two hangs something in without a change to the six
 * files. Each test fills one with something small.
 */
#include "backend.h"
#include "harness.h"
#include "kernels.h"
#include "training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Mesh and reduction: replicas of one shard (DDP) or of several (HSDP) ----

// The sum over the shards' group, then over the replicas', then the average: what HSDP does, and
// where the shard is all of the parameter, DDP.
static Status average_replicas(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    const Mesh *mesh = &unit->ctx->mesh;
    cudaStream_t stream = unit->ctx->reduce_scatter_stream;
    int64_t n = flat->layout.shard_numel;
    Buffer sum = buffer_range(&flat->unsharded_grad, flat->layout.rank * n, n);
    if (mesh->shard.size > 1)
        NCCL_TRY(ncclReduceScatter(flat->unsharded_grad.data, sum.data, (size_t)n,
                                   dtype_nccl(sum.dtype), ncclSum, mesh->shard.comm, stream));
    NCCL_TRY(ncclAllReduce(sum.data, sum.data, (size_t)n, dtype_nccl(sum.dtype), ncclSum,
                           mesh->replicate.comm, stream));
    CUDA_TRY(kernel_add_divided(flat->sharded_grad.data, sum.data, (float)mesh_size(mesh),
                                (size_t)n, stream));
    return OK;
}

// A mesh of `shards` times the rest: ranks that follow each other shard together.
static void mesh_of_shards(Mesh *mesh, const Rank *r, int shards)
{
    *mesh = (Mesh){.shard = {.rank = r->rank % shards, .size = shards},
                   .replicate = {.rank = r->rank / shards, .size = r->world / shards}};
    if (shards > 1)
        need_nccl(ncclCommSplit(r->comm, mesh->replicate.rank, r->rank, &mesh->shard.comm, NULL));
    need_nccl(ncclCommSplit(r->comm, mesh->shard.rank, r->rank, &mesh->replicate.comm, NULL));
}

// The average of all ranks' gradients, by one process for each, summed in the collectives' order.
static float *average_alone(const Spec *spec, const Rank *r)
{
    float *each[8];
    size_t numel = 0;
    for (int rank = 0; rank < r->world; rank++) {
        Plain plain;
        Batch batch = batch_create(spec, 1 + (uint64_t)rank);
        plain_create(&plain, spec, TEST_OPTIONS.seed, NULL, r->stream);
        train_batch(spec, &plain.run, plain.model, &batch);
        each[rank] = plain_grads(&plain);
        numel = (size_t)meta_count(plain.model);
        plain_destroy(&plain);
        batch_destroy(&batch);
    }
    float *average = malloc(numel * sizeof *average);
    tree_average(average, each, r->world, numel);
    for (int rank = 0; rank < r->world; rank++) free(each[rank]);
    return average;
}

// The gradient shards of n units after two micro-batches on `world` ranks.
static void check_twice(FsdpUnit **units, int n, int world, const float *average)
{
    float bound = backend_sums_in_tree_order(world) ? 0.0f : 1e-6f;
    need_cuda(cudaDeviceSynchronize());
    for (int i = 1; i <= n; i++) { // `average` has the blocks first and the root's own last
        const FlatParam *flat = &units[i % n]->flat;
        const FlatLayout *layout = &flat->layout;
        int64_t begin = layout->rank * layout->shard_numel;
        float *got = fetch(flat->sharded_grad.data, (size_t)layout->shard_numel);
        for (int64_t e = 0; e < layout->shard_numel; e++) {
            float want = begin + e < layout->numel ? 2.0f * average[begin + e] : 0.0f;
            check(fabsf(got[e] - want) <= bound,
                  "unit %s, gradient %lld after two micro-batches: %g, want twice the average, %g",
                  flat->name, (long long)(begin + e), (double)got[e], (double)want);
        }
        average += layout->numel;
        free(got);
    }
}

static Status count_visit(const Param *param, const float *values, void *arg)
{
    ++*(int *)arg;
    return OK;
}

static void replicate_body(const Rank *r, void *arg)
{
    int shards = *(const int *)arg, visits = 0;
    Spec spec = spec_mlp(3);
    Mesh mesh;
    Module *model = spec_create(&spec);
    FsdpUnit *units[8];
    FsdpContext ctx;
    NnRun run;
    float norm;
    mesh_of_shards(&mesh, r, shards);
    need(nn_run_create(&run, r->stream));
    need(fsdp_context_create(&ctx, &mesh, r->stream));
    for (int i = 0; i < model->n_children - 1; i++)
        need(fully_shard(model->children[i], &ctx, &TEST_OPTIONS));
    need(fully_shard(model, &ctx, &TEST_OPTIONS));
    int n = fsdp_units(model, units, 8);
    for (int i = 0; i < n; i++) units[i]->reduce_scatter = average_replicas;
    Batch batch = batch_create(&spec, 1 + (uint64_t)r->rank);
    uint64_t log = gpulog_length();
    for (int micro = 0; micro < 2; micro++) train_batch(&spec, &run, model, &batch);
    check_no_race(log);
    check(gpulog_count(GPU_ALL_GATHER, log) == (shards == 1 ? 0 : 4 * (uint64_t)n),
          "two micro-batches of %d units in %d shards made %llu all-gathers", n, shards,
          (unsigned long long)gpulog_count(GPU_ALL_GATHER, log));
    float *average = average_alone(&spec, r);
    check_twice(units, n, r->world, average);
    double squares = 0.0;
    for (int64_t e = 0; e < meta_count(model); e++)
        squares += 4.0 * (double)average[e] * (double)average[e];
    float want = (float)sqrt(squares);
    free(average);

    need(fsdp_full_state(model, count_visit, &visits));
    check(visits == (r->rank == 0 ? meta_params(model, NULL, 0) : 0),
          "rank %d was shown %d parameters: the first of all ranks is shown each once", r->rank,
          visits);
    need(fsdp_grad_norm(model, &ctx, &norm));
    check(fabsf(norm - want) <= 1e-6f * want, "the norm is %g, want %g", (double)norm,
          (double)want);
    need(fsdp_sgd_step(model, &ctx, 0.125f, 0.0f));
    batch_destroy(&batch);
    fsdp_unwrap(model);
    need(fsdp_context_destroy(&ctx));
    module_destroy(model);
    need(nn_run_destroy(&run));
    if (shards > 1) need_nccl(ncclCommDestroy(mesh.shard.comm));
    need_nccl(ncclCommDestroy(mesh.replicate.comm));
}

TEST(replicas_without_shards)
{
    int shards = 1;
    run_worlds(replicate_body, &shards, 2, 4);
}

TEST(replicas_of_shards)
{
    int shards = 2;
    run_ranks(4, replicate_body, &shards);
}

// ---- Gather ----

static int gathers;

// Broadcasts in place of an all-gather.
static Status gather_by_broadcasts(FsdpUnit *unit)
{
    const FlatLayout *layout = &unit->flat.layout;
    cudaStream_t stream = unit->ctx->all_gather_stream;
    gathers++;
    NCCL_TRY(ncclGroupStart());
    for (int rank = 0; rank < layout->world; rank++) {
        Buffer part = buffer_range(&unit->flat.unsharded_param, rank * layout->shard_numel,
                                   layout->shard_numel);
        NCCL_TRY(ncclBroadcast(unit->flat.sharded_param.data, part.data, (size_t)part.numel,
                               dtype_nccl(part.dtype), rank, unit->ctx->mesh.shard.comm, stream));
    }
    NCCL_TRY(ncclGroupEnd());
    return OK;
}

RANK_TEST(another_all_gather, 2, 3)
{
    Spec spec = spec_mlp(3);
    float loss[2];
    for (int own = 0; own <= 1; own++) {
        Sharded s;
        FsdpUnit *units[8];
        sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
        int n = fsdp_units(s.model, units, 8);
        for (int i = 0; i < n && own; i++) units[i]->all_gather = gather_by_broadcasts;
        Batch batch = batch_create(&spec, 1);
        gathers = 0;
        uint64_t log = gpulog_length();
        loss[own] = train_batch(&spec, &s.run, s.model, &batch);
        check(gathers == (own ? 2 * n : 0), "the unit's own all-gather ran %d times, want %d",
              gathers, own ? 2 * n : 0);
        check(gpulog_count(GPU_ALL_GATHER, log) == (own ? 0 : 2 * (uint64_t)n),
              "the plain all-gather ran where another was hung in");
        check_no_race(log);
        batch_destroy(&batch);
        sharded_destroy(&s);
    }
    check(loss[0] == loss[1], "the loss depends on how parameters are gathered: %g and %g",
          (double)loss[0], (double)loss[1]);
}

// ---- Hooks ----

typedef struct Diary {
    char text[400];
    Hook *mine;
} Diary;

static Status write_state(Module *m, void *arg)
{
    Diary *diary = arg;
    static const char *const NAME[] = {"sharded", "unsharding", "unsharded"};
    size_t used = strlen(diary->text);
    snprintf(diary->text + used, sizeof diary->text - used, "%s %s; ", m->name,
             NAME[fsdp_unit(m)->flat.state]);
    return OK;
}

// Removes itself while it runs.
static Status write_once(Module *m, void *arg)
{
    Diary *diary = arg;
    module_remove_hook(m, diary->mine);
    return write_state(m, arg);
}

RANK_TEST(hooks_chain, 2)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    Diary before = {.text = ""}, after = {.text = ""}, once = {.text = ""};
    s.model = spec_create(&spec);
    Module *block = s.model->children[1];
    // One that was there before FSDP's own, and runs first; one that comes after.
    Hook *first = module_add_hook(block, HOOK_PRE_FORWARD, write_state, &before);
    need(nn_run_create(&s.run, r->stream));
    make_context(&s.ctx, r);
    need(fully_shard(block, &s.ctx, &TEST_OPTIONS));
    need(fully_shard(s.model, &s.ctx, &TEST_OPTIONS));
    Hook *second = module_add_hook(block, HOOK_PRE_FORWARD, write_state, &after);
    once.mine = module_add_hook(block, HOOK_PRE_FORWARD, write_once, &once);
    check(first != NULL && second != NULL && once.mine != NULL, "no memory for hooks");
    Batch batch = batch_create(&spec, 1);
    for (int i = 0; i < 2; i++) forward_batch(&spec, &s.run, s.model, &batch);
    check(strcmp(before.text, "l.1 sharded; l.1 sharded; ") == 0 &&
              strcmp(after.text, "l.1 unsharded; l.1 unsharded; ") == 0 &&
              strcmp(once.text, "l.1 unsharded; ") == 0,
          "hooks ran as \"%s\", \"%s\", \"%s\"", before.text, after.text, once.text);

    module_remove_hook(block, second);
    fsdp_unwrap(s.model); // takes its own hooks, and no others
    check(block->hooks[HOOK_PRE_FORWARD] == first && first->next == NULL,
          "of the hooks the one that was there before must be left");
    check(block->hooks[HOOK_POST_BACKWARD] == NULL, "fsdp_unwrap left a hook");
    batch_destroy(&batch);
    need(fsdp_context_destroy(&s.ctx));
    need(nn_run_destroy(&s.run));
    module_destroy(s.model); // frees the hook that is left
}

// ---- Layout apart from storage ----

// A checkpoint for another number of ranks needs no device: who has which range is arithmetic.
TEST(other_world_has_a_layout)
{
    Param param[2] = {{.name = "a", .ndim = 1, .shape = {7}},
                      {.name = "b", .ndim = 1, .shape = {6}}};
    Param *params[] = {&param[0], &param[1]};
    int owner[2][7] = {{0}};
    for (int rank = 0; rank < 5; rank++) {
        FlatLayout layout;
        assert_int_equal(flat_layout(&layout, "unit", params, 2, rank, 5, false), OK);
        assert_int_equal(layout.shard_numel, 3);
        for (int i = 0; i < 2; i++) {
            int64_t begin, end, at;
            flat_param_range_in_shard(&layout, i, rank, &begin, &end, &at);
            for (int64_t e = begin; e < end; e++) {
                assert_int_equal(rank * 3 + at + e - begin, 7 * i + e);
                owner[i][e]++;
            }
        }
        flat_layout_destroy(&layout);
    }
    for (int e = 0; e < 7; e++) assert_int_equal(owner[0][e], 1);
    for (int e = 0; e < 6; e++) assert_int_equal(owner[1][e], 1);
}

// ---- Typed buffers ----

TEST(buffers_have_a_type)
{
    char memory[64];
    Buffer half = {memory, DTYPE_BF16, 32};
    Buffer range = buffer_range(&half, 5, 3);
    assert_int_equal(buffer_bytes(&half), 64);
    assert_ptr_equal(range.data, memory + 10);
    assert_int_equal(buffer_bytes(&range), 6);
    assert_int_equal(dtype_nccl(range.dtype), ncclBfloat16);
    assert_int_equal(dtype_nccl(DTYPE_F32), ncclFloat);
    assert_int_equal(dtype_nccl(DTYPE_F16), ncclHalf);
    half.data = NULL;
    range = buffer_range(&half, 5, 3);
    assert_null(range.data);
    assert_int_equal(range.numel, 3);
}

static Status gather_nothing(FsdpUnit *unit)
{
    return OK;
}

// A layer that gets a buffer of another type says so, and reads nothing. One rank's unsharded
// parameter of another type is no longer the shard: it is gathered.
RANK_TEST(layers_check_the_type, 1)
{
    Spec spec = spec_mlp(2);
    Sharded s;
    float *logits;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    Batch batch = batch_create(&spec, 1);
    FsdpUnit *unit = fsdp_unit(s.model);
    unit->flat.unsharded_param.dtype = DTYPE_BF16;
    unit->all_gather = gather_nothing;
    s.run.B = spec.B;
    s.run.T = spec.T;
    check(module_forward(s.model, &s.run, batch.in, &logits) == ERR_ARGUMENT &&
              strstr(check_last(), "last.weight is bf16") != NULL,
          "a layer that computes in float took bf16: %s", check_last());
    check(unit->flat.unsharded_param.data != unit->flat.sharded_param.data,
          "a buffer of bf16 is the memory of a shard of floats");
    need(module_discard(s.model, &s.run));
    need(fsdp_reshard_all(s.model));
    batch_destroy(&batch);
    sharded_destroy(&s);
}

SUITE_MAIN("seams")
