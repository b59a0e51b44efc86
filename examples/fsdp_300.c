/* fsdp_300.c: Fully Sharded Data Parallel as one program, to be read from top to bottom.
 *
 * W ranks train one model, each on its own part of a batch, and each keeps 1/W of the parameters,
 * their gradients and Adam's moments (ZeRO stage 3). The model is cut into *units*: the blocks, and
 * the root with all else. A unit's parameters lie in one *flat parameter*, of which each rank owns
 * an equal *shard*. Before a unit runs, all its shards are gathered; then they are freed. After its
 * backward a reduce-scatter sums the ranks' gradients and leaves each rank the sum of its shard.
 *
 *     all-gather       AG 0 | AG 1      | free 0, AG 2 …    the backward:  AG 1      | AG 0
 *     compute               | forward 0 | forward 1 …         backward 2   | backward 1 …
 *     reduce-scatter                                                       | RS 2    | RS 1
 *
 * The model learns which byte follows which: an embedding, blocks of Linear → GELU → Linear, a
 * linear head. Usage: build/bin/launch -n 4 build/bin/fsdp_300 FILE. See handouts/one_file.md.
 */
#include <cublas_v2.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels.h"
#include "launch.h"
#include "text.h"

enum { BLOCKS = 4, C = 64, H = 4 * C, VOCAB = 256, T = 64, B = 4, ROWS = B * T, STEPS = 100 };
static const float LR = 1e-3f, BETA1 = 0.9f, BETA2 = 0.95f, EPS = 1e-8f, WEIGHT_DECAY = 0.1f;

// A call that fails ends the program. CUDA, cuBLAS, NCCL and launch.h all call success 0.
#define MUST(call) must((int)(call), #call, __LINE__)
static void must(int error, const char *call, int line)
{
    if (error == 0) return;
    fprintf(stderr, "%s:%d: %s failed: error %d\n", __FILE__, line, call, error);
    exit(1);
}

// A unit has two matrices: the root (0) an embedding and a head (VOCAB,C), a block (H,C) and (C,H).
static const size_t NUMEL[] = {VOCAB * C, H *C};              // elements of one of them
static const float BOUND[][2] = {{1.0f, 0.2f}, {0.3f, 0.1f}}; // of their initial values

typedef struct Unit {
    size_t numel, shard;         // elements of a matrix; of a shard: both / W, rounded up
    float *sharded_param;        // (shard) what this rank owns,
    float *sharded_grad, *m, *v; // (shard) its gradient, and Adam's moments
    float *unsharded_param;      // (W·shard) all ranks' shards; NULL while the unit is sharded
    float *unsharded_grad;       // (W·shard) of this rank's data; NULL but in the unit's backward
    cudaEvent_t all_gather_done;
} Unit;

typedef struct GivenUp {
    float *buffer;     // nobody needs it any more; NULL: there is none
    cudaEvent_t event; // … once this has happened
} GivenUp;

// What a device holds apart from the units.
typedef struct Activations {
    int32_t tokens[ROWS], targets[ROWS];
    float x[BLOCKS + 1][ROWS * C], dx[BLOCKS + 1][ROWS * C]; // between the blocks; their gradients
    float fc[BLOCKS][ROWS * H], gelu[BLOCKS][ROWS * H], dgelu[ROWS * H], dfc[ROWS * H];
    float logits[ROWS * VOCAB], losses[ROWS], loss;
} Activations;

// This process's rank of W, and what it has.
static int rank, W;
static ncclComm_t comm;
static cublasHandle_t blas;
static cudaStream_t compute, all_gather, reduce_scatter;
static cudaEvent_t compute_done;
static GivenUp resharded, reduced; // the last unit's parameter, and the last one's gradient
static Unit unit[BLOCKS + 1], *const root = unit; // then the blocks, from 1 on
static Activations *act;                          // device memory: the host takes addresses in it

// ---- A unit: cut into shards, gathered, freed; its gradient reduced ----

// Element i of a flat parameter. It depends on the unit and i alone: the model is the same on any
// number of ranks (splitmix64: Steele, Lea and Flood 2014).
static float initial_value(int which, size_t i)
{
    uint64_t z = (((uint64_t)which << 32) + i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    float bound = BOUND[which > 0][i >= NUMEL[which > 0]];
    return bound * ((float)((z ^ (z >> 31)) >> 40) * 0x1p-23f - 1.0f);
}

// The model is nowhere in full: a rank makes the values of its own shard. The flat parameter ends
// in padding, which is zero and stays so: its gradient is zero, and so is its step of AdamW.
static void unit_create(int which)
{
    static float values[2 * VOCAB * C]; // room for a shard of any unit
    Unit *u = &unit[which];
    u->numel = NUMEL[which > 0];
    u->shard = (2 * u->numel + (size_t)W - 1) / (size_t)W;
    size_t first = (size_t)rank * u->shard, bytes = u->shard * sizeof(float);
    for (size_t i = 0; i < u->shard; i++)
        values[i] = first + i < 2 * u->numel ? initial_value(which, first + i) : 0.0f;
    MUST(cudaMalloc((void **)&u->sharded_param, 4 * bytes)); // and three arrays more
    MUST(cudaMemset(u->sharded_param, 0, 4 * bytes));
    MUST(cudaMemcpy(u->sharded_param, values, bytes, cudaMemcpyHostToDevice));
    u->sharded_grad = u->sharded_param + u->shard;
    u->m = u->sharded_grad + u->shard;
    u->v = u->m + u->shard;
    MUST(cudaEventCreateWithFlags(&u->all_gather_done, cudaEventDisableTiming));
}

// Frees a buffer on the stream that owns it, after its last use.
static void free_given_up(GivenUp *given_up, cudaStream_t owner)
{
    if (given_up->buffer == NULL) return;
    MUST(cudaStreamWaitEvent(owner, given_up->event, 0));
    MUST(cudaFreeAsync(given_up->buffer, owner));
    given_up->buffer = NULL;
}

// Queues the all-gather. The all-gather stream owns the buffer: it allocates, fills and frees it.
static void unshard(Unit *u)
{
    float *all;
    MUST(cudaMallocAsync((void **)&all, (size_t)W * u->shard * sizeof(float), all_gather));
    MUST(ncclAllGather(u->sharded_param, all, u->shard, ncclFloat, comm, all_gather));
    u->unsharded_param = all;
    MUST(cudaEventRecord(u->all_gather_done, all_gather));
}

// The unit has run. Its buffer is freed when the next all-gather is queued: in front of that, the
// wait for this unit's kernels would keep the two apart. So two blocks are unsharded at a time.
static void reshard(Unit *u)
{
    free_given_up(&resharded, all_gather);
    MUST(cudaEventRecord(resharded.event, compute));
    resharded.buffer = u->unsharded_param;
    u->unsharded_param = NULL;
}

// Zeros, to which the backward adds. The compute stream owns them.
static void begin_grad(Unit *u)
{
    size_t bytes = (size_t)W * u->shard * sizeof(float);
    MUST(cudaMallocAsync((void **)&u->unsharded_grad, bytes, compute));
    MUST(cudaMemsetAsync(u->unsharded_grad, 0, bytes, compute));
}

// Queues the reduction: the ranks' sum of this rank's shard, in place, then their mean. To sum and
// then divide rounds nothing where W gradients are equal and W is 2, 4, 8.
static void reduce_grad(Unit *u)
{
    float *sum = u->unsharded_grad + (size_t)rank * u->shard;
    free_given_up(&reduced, compute);
    MUST(cudaEventRecord(compute_done, compute));
    MUST(cudaStreamWaitEvent(reduce_scatter, compute_done, 0));
    MUST(ncclReduceScatter(u->unsharded_grad, sum, u->shard, ncclFloat, ncclSum, comm,
                           reduce_scatter));
    MUST(kernel_add_divided(u->sharded_grad, sum, (float)W, u->shard, reduce_scatter));
    MUST(cudaEventRecord(reduced.event, reduce_scatter));
    reduced.buffer = u->unsharded_grad;
    u->unsharded_grad = NULL;
}

// ---- The model: what a unit computes, with its unsharded parameters ----

static const float ZERO = 0.0f, ONE = 1.0f;

// y (ROWS,O) = x (ROWS,I) · w (O,I) transposed. cuBLAS reads by columns, so it sees each matrix
// transposed: the products are written down that way.
static void linear(const float *x, int I, const float *w, float *y, int O)
{
    MUST(cublasSgemm(blas, CUBLAS_OP_T, CUBLAS_OP_N, O, ROWS, I, &ONE, w, I, x, I, &ZERO, y, O));
}

// dx = dy · w, and dw += dy transposed · x
static void linear_backward(const float *dy, int O, const float *w, const float *x, int I,
                            float *dx, float *dw)
{
    MUST(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, I, ROWS, O, &ONE, w, I, dy, O, &ZERO, dx, I));
    MUST(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_T, I, O, ROWS, &ONE, x, I, dy, O, &ONE, dw, I));
}

// From x[i] to x[i+1]; block i is unit i+1.
static void block_forward(int i)
{
    const Unit *u = &unit[i + 1];
    const float *w = u->unsharded_param;
    linear(act->x[i], C, w, act->fc[i], H);
    MUST(kernel_gelu_forward(act->gelu[i], act->fc[i], ROWS * H, compute));
    linear(act->gelu[i], H, w + u->numel, act->x[i + 1], C);
}

// From dx[i+1] to dx[i].
static void block_backward(int i)
{
    const Unit *u = &unit[i + 1];
    const float *w = u->unsharded_param;
    float *dw = u->unsharded_grad;
    linear_backward(act->dx[i + 1], C, w + u->numel, act->gelu[i], H, act->dgelu, dw + u->numel);
    MUST(kernel_gelu_backward(act->dfc, act->dgelu, act->fc[i], ROWS * H, compute));
    linear_backward(act->dfc, H, w, act->x[i], C, act->dx[i], dw);
}

// ---- The program ----

static void forward(void)
{
    MUST(cudaEventRecord(compute_done, compute)); // the optimizer has written the shards
    MUST(cudaStreamWaitEvent(all_gather, compute_done, 0));
    unshard(root); // to stay: its forward ends last, its backward begins first
    MUST(cudaStreamWaitEvent(compute, root->all_gather_done, 0));
    const float *w = root->unsharded_param;
    MUST(kernel_embedding_forward(act->x[0], act->tokens, w, NULL, B, T, C, VOCAB, compute));
    for (int i = 0; i < BLOCKS; i++) {
        unshard(&unit[i + 1]); // the host is ahead of the GPU: block i-1 still computes
        free_given_up(&resharded, all_gather);
        MUST(cudaStreamWaitEvent(compute, unit[i + 1].all_gather_done, 0));
        block_forward(i);
        reshard(&unit[i + 1]);
    }
    linear(act->x[BLOCKS], C, w + root->numel, act->logits, VOCAB);
    // The gradient of the mean takes the place of the logits.
    MUST(kernel_cross_entropy(act->losses, act->logits, act->logits, act->targets, ROWS, VOCAB,
                              1.0f / ROWS, compute));
    MUST(kernel_mean(&act->loss, act->losses, ROWS, compute));
    free_given_up(&resharded, all_gather);
}

static void backward(void)
{
    unshard(&unit[BLOCKS]);
    begin_grad(root);
    float *dw = root->unsharded_grad;
    linear_backward(act->logits, VOCAB, root->unsharded_param + root->numel, act->x[BLOCKS], C,
                    act->dx[BLOCKS], dw + root->numel);
    for (int i = BLOCKS - 1; i >= 0; i--) {
        free_given_up(&resharded, all_gather);
        MUST(cudaStreamWaitEvent(compute, unit[i + 1].all_gather_done, 0));
        // One ahead. A communicator's operations run in the order in which they were queued: after
        // the reduction of block i, the all-gather of block i-1 would wait for it.
        if (i > 0) unshard(&unit[i]);
        begin_grad(&unit[i + 1]);
        block_backward(i);
        reshard(&unit[i + 1]);
        reduce_grad(&unit[i + 1]);
    }
    MUST(kernel_embedding_backward(dw, NULL, act->dx[0], act->tokens, B, T, C, VOCAB, compute));
    reshard(root);
    reduce_grad(root);
    free_given_up(&resharded, all_gather);
    free_given_up(&reduced, compute); // waits for the last reduction, and so for all
}

// Step t = 1, 2, … on this rank's part of the batch; *loss is the mean of that part.
static void train_step(const Text *text, int t, float *loss)
{
    int32_t tokens[2][ROWS]; // and targets: of each the token that follows
    text_batch(text, 42, t, rank * B, B, T, tokens[0], tokens[1]);
    MUST(cudaMemcpyAsync(act->tokens, tokens, sizeof tokens, cudaMemcpyHostToDevice, compute));
    forward();
    backward();
    for (Unit *u = unit; u <= &unit[BLOCKS]; u++) {
        MUST(kernel_adamw(u->sharded_param, u->sharded_grad, u->m, u->v, u->shard, LR, BETA1, BETA2,
                          EPS, WEIGHT_DECAY, t, compute));
        MUST(cudaMemsetAsync(u->sharded_grad, 0, u->shard * sizeof(float), compute));
    }
    MUST(cudaMemcpyAsync(loss, &act->loss, sizeof *loss, cudaMemcpyDeviceToHost, compute));
    MUST(cudaStreamSynchronize(compute));
}

static void create(const World *world)
{
    rank = world->rank, W = world->size;
    MUST(world_connect(world, &comm)); // takes the rank's device
    cudaStream_t *streams[] = {&compute, &all_gather, &reduce_scatter};
    cudaEvent_t *events[] = {&compute_done, &resharded.event, &reduced.event};
    for (int i = 0; i < 3; i++) {
        MUST(cudaStreamCreateWithFlags(streams[i], cudaStreamNonBlocking));
        MUST(cudaEventCreateWithFlags(events[i], cudaEventDisableTiming));
    }
    MUST(cublasCreate(&blas));
    MUST(cublasSetStream(blas, compute));
    MUST(cudaMalloc((void **)&act, sizeof *act));
    for (int i = 0; i <= BLOCKS; i++) unit_create(i);
    MUST(cudaDeviceSynchronize()); // the other streams do not wait for the default stream
}

int main(int argc, char **argv)
{
    World world;
    Text text;
    float loss = 0.0f;
    if (argc != 2) return fprintf(stderr, "usage: %s FILE\n", argv[0]), 2;
    MUST(world_from_env(&world));
    MUST(text_load(&text, argv + 1, 1, T));
    create(&world);
    for (int t = 1; t <= STEPS; t++) {
        train_step(&text, t, &loss);
        if (t % 20 == 0 && rank == 0) printf("step %3d  loss %.4f\n", t, (double)loss);
    }
    text_free(&text);
    MUST(cublasDestroy(blas));
    MUST(world_disconnect(comm));
    MUST(cudaDeviceReset()); // frees all that was allocated
    return 0;
}
