/* collectives.c: all-gather, reduce-scatter and all-reduce of 1 KiB to 64 MiB, and memcpy of as
 * many bytes.
 *
 *   launch -n W collectives [--rounds N] [--most BYTES]
 *
 * The size of a collective is that of its larger buffer, as nccl-tests has it: what an all-gather
 * receives, what a reduce-scatter sends. Each round does every size of every collective for some
 * milliseconds, and a memcpy in each rank between two arrays of that size. Rank 0 prints a line for
 * each round, size and operation:
 *
 *   OPERATION BYTES WALL CPU     seconds of one operation: rank 0's clock; CPU of a rank, the mean
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../examples/common/options.h"
#include "../examples/common/trainer.h"

enum { SMALLEST = 1024, GROWTH = 4, WARM_UP = 2 };
static const char *const OPERATIONS[] = {"all-gather", "reduce-scatter", "all-reduce", "memcpy"};
enum { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, MEMCPY, N_OPERATIONS };

typedef struct Bench {
    Trainer t;                    // for gather_over_ranks: world, comm and stream
    float *small, *large, *other; // device: the parts of a rank, and two buffers of the full size
    char *from, *to;              // host
    int rounds, most;
} Bench;

static uint64_t now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static Status once(Bench *b, int operation, size_t bytes)
{
    size_t n = bytes / sizeof(float), part = n / (size_t)b->t.world.size;
    ncclComm_t comm = b->t.comm;
    cudaStream_t stream = b->t.stream;
    if (operation == ALL_GATHER)
        NCCL_TRY(ncclAllGather(b->small, b->large, part, ncclFloat, comm, stream));
    else if (operation == REDUCE_SCATTER)
        NCCL_TRY(ncclReduceScatter(b->large, b->small, part, ncclFloat, ncclSum, comm, stream));
    else if (operation == ALL_REDUCE)
        NCCL_TRY(ncclAllReduce(b->large, b->other, n, ncclFloat, ncclSum, comm, stream));
    else
        memcpy(b->to, b->from, bytes);
    return OK;
}

// How often: as many bytes for all sizes up to a bound, so that each takes milliseconds.
static int times_of(size_t bytes)
{
    size_t times = ((size_t)64 << 20) / bytes;
    return times > 200 ? 200 : times < 2 ? 2 : (int)times;
}

static Status measure(Bench *b, int operation, size_t bytes)
{
    int times = times_of(bytes), size = b->t.world.size;
    for (int i = 0; i < WARM_UP; i++) TRY(once(b, operation, bytes));
    CUDA_TRY(cudaStreamSynchronize(b->t.stream));
    uint64_t wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < times; i++) {
        TRY(once(b, operation, bytes));
        // memcpy's result is read, or the compiler may leave the copy out.
        if (operation == MEMCPY) __asm__ volatile("" : : "r"(b->to) : "memory");
    }
    CUDA_TRY(cudaStreamSynchronize(b->t.stream));
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    wall = now(CLOCK_MONOTONIC) - wall;
    uint64_t *all = malloc((size_t)size * sizeof *all), total = 0;
    if (all == NULL) return fail(ERR_MEMORY, "no host memory for %d ranks", size);
    Status status = gather_over_ranks(&b->t, &cpu, 1, all);
    for (int i = 0; i < size; i++) total += all[i];
    free(all);
    if (b->t.world.rank == 0 && status == OK)
        printf("%s %zu %.9f %.9f\n", OPERATIONS[operation], bytes, 1e-9 * (double)wall / times,
               1e-9 * (double)total / size / times);
    return status;
}

static Status allocate(Bench *b)
{
    size_t most = (size_t)b->most, part = most / (size_t)b->t.world.size;
    CUDA_TRY(cudaMalloc((void **)&b->small, part));
    CUDA_TRY(cudaMalloc((void **)&b->large, most));
    CUDA_TRY(cudaMalloc((void **)&b->other, most));
    CUDA_TRY(cudaMemsetAsync(b->small, 0, part, b->t.stream));
    CUDA_TRY(cudaMemsetAsync(b->large, 0, most, b->t.stream));
    CUDA_TRY(cudaMemsetAsync(b->other, 0, most, b->t.stream));
    b->from = malloc(most);
    b->to = malloc(most);
    if (b->from == NULL || b->to == NULL)
        return fail(ERR_MEMORY, "no host memory for %d bytes", b->most);
    memset(b->from, 1, most);
    memset(b->to, 1, most);
    return OK;
}

static Status run(Bench *b)
{
    TRY(world_connect(&b->t.world, &b->t.comm));
    CUDA_TRY(cudaStreamCreate(&b->t.stream));
    TRY(allocate(b));
    for (int round = 0; round < b->rounds; round++)
        for (size_t bytes = SMALLEST; bytes <= (size_t)b->most; bytes *= GROWTH)
            for (int operation = 0; operation < N_OPERATIONS; operation++)
                TRY(measure(b, operation, bytes));
    CUDA_TRY(cudaStreamSynchronize(b->t.stream));
    CUDA_TRY(cudaFree(b->small));
    CUDA_TRY(cudaFree(b->large));
    CUDA_TRY(cudaFree(b->other));
    CUDA_TRY(cudaStreamDestroy(b->t.stream));
    free(b->from);
    free(b->to);
    return world_disconnect(b->t.comm);
}

int main(int argc, char **argv)
{
    static Bench bench = {.rounds = 5, .most = 64 << 20};
    const Option options[] = {{"rounds", OPTION_INT, &bench.rounds, 1, NULL, NULL},
                              {"most", OPTION_INT, &bench.most, SMALLEST, NULL, NULL}};
    World *world = &bench.t.world;
    int rest;
    bool help;
    if (world_from_env(world) != OK) return 2;
    check_set_silent(world->rank != 0);
    if (options_parse(options, 2, argc, argv, &rest, &help) != OK) return 2;
    if (help || rest < argc) {
        fail(ERR_ARGUMENT, "collectives: options only; bench/collectives.c says which");
        return 2;
    }
    check_set_silent(false);
    check_set_rank(world->size > 1 ? world->rank : -1);
    return run(&bench) == OK ? 0 : 1;
}
