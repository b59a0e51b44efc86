/* lent_drawn.c: large all-gathers into the same buffers, and between them what each rank draws, or
 * each thread of one process: memory has what it would have of copies (lent.c).
 */
#include <pthread.h>

#include "lent.h"

// ---- Drawn operations, against memory of the host ----

enum { BUFFERS = 3, ROUNDS = 80 };

static uint32_t state_of_draw; // this rank's own
static size_t draw_below(size_t n)
{
    state_of_draw = state_of_draw * 1664525u + 1013904223u;
    return (size_t)(state_of_draw >> 8) % n;
}

static void draw_one(Gathered *g, Gathered *other, const Rank *r, cublasHandle_t handle)
{
    size_t from = draw_below(g->all), n = 1 + draw_below(g->all - from);
    size_t at = draw_below(g->all - n + 1);
    switch (draw_below(7)) {
    case 0:
        need_cuda(cudaMemsetAsync(g->recv + from, 0, n * sizeof(float), r->stream));
        memset(g->want + from, 0, n * sizeof(float));
        break;
    case 1:
        need_cuda(cudaMemcpyAsync(g->recv + from, other->recv + at, n * sizeof(float),
                                  cudaMemcpyDeviceToDevice, r->stream));
        memcpy(g->want + from, other->want + at, n * sizeof(float));
        break;
    case 2:
        need_cuda(kernel_promise(g->recv + from, n, n, n, r->stream));
        for (size_t i = 0; i < n; i++) g->want[from + i] = 5.0f;
        break;
    case 3:
        need_cuda(cudaFreeAsync(g->recv, r->stream));
        need_cuda(cudaMallocAsync((void **)&g->recv, g->all * sizeof(float), r->stream));
        need_cuda(cudaMemsetAsync(g->recv, 0, g->all * sizeof(float), r->stream));
        memset(g->want, 0, g->all * sizeof(float));
        break;
    case 4: holds(g, r, from, from + n, "drawn"); break;
    default: multiply(g, r, handle, draw_below(g->all - ROWS * INNER));
    }
}

// All ranks gather into the same buffer, and between that each does what it draws for itself.
static void draws(const Rank *r, void *arg)
{
    Gathered g[BUFFERS];
    cublasHandle_t handle = handle_of(r);
    uint32_t seed = *(uint32_t *)arg;
    state_of_draw = seed + 977u * (uint32_t)r->rank;
    for (int i = 0; i < BUFFERS; i++) {
        g[i] = make(r, lent_each(r) / (i == 2 ? 2 : 1)); // the last is not lent
        gather(&g[i], r, i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        gather(&g[(seed >> 3) * (uint32_t)round % BUFFERS], r, round);
        for (size_t n = draw_below(5); n > 0; n--) {
            size_t i = draw_below(BUFFERS), other = i == 2 ? 2 : draw_below(2);
            draw_one(&g[i], &g[other == i ? 1 - i % 2 : other], r, handle);
        }
    }
    for (int i = 0; i < BUFFERS; i++) holds(&g[i], r, 0, g[i].all, "at the end");
    for (int i = 0; i < BUFFERS; i++) drop(&g[i], r);
    cublasDestroy(handle);
}

TEST(test_draws)
{
    setenv("SIMGPU_CHECK", "fast", 1);
    for (int world = 2; world <= 4; world++)
        for (uint32_t seed = 1; seed <= 2; seed++) {
            uint32_t *drawn = shared_alloc(sizeof *drawn);
            *drawn = 7919u * seed + (uint32_t)world;
            run_ranks(world, draws, drawn);
        }
    unsetenv("SIMGPU_CHECK");
}

// ---- Ranks of one process ----

enum { THREADS = 4 };

typedef struct Member {
    ncclComm_t comm;
    int number;
} Member;

static void *gather_by_thread(void *arg)
{
    const Member *m = arg;
    Rank r = {.rank = m->number, .world = THREADS, .device = m->number, .comm = m->comm};
    need_cuda(cudaSetDevice(m->number));
    need_cuda(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    cublasHandle_t handle = handle_of(&r);
    Gathered g = make(&r, lent_each(&r));
    for (int round = 0; round < 60; round++) {
        gather(&g, &r, round);
        multiply(&g, &r, handle, 64 * (size_t)round);
        if ((round + r.rank) % 4 == 0) holds(&g, &r, 0, g.all, "by a thread");
    }
    drop(&g, &r);
    cublasDestroy(handle);
    need_cuda(cudaStreamSynchronize(r.stream));
    need_cuda(cudaStreamDestroy(r.stream));
    return NULL;
}

RANK_TEST_BETWEEN(test_threads, unheard, heard_again, 1)
{
    static const int devices[THREADS] = {0, 1, 2, 3};
    ncclComm_t comm[THREADS];
    pthread_t thread[THREADS];
    Member member[THREADS];
    need_nccl(ncclCommInitAll(comm, THREADS, devices));
    for (int i = 0; i < THREADS; i++) {
        member[i] = (Member){comm[i], i};
        check(pthread_create(&thread[i], NULL, gather_by_thread, &member[i]) == 0, "no thread");
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++) need_nccl(ncclCommDestroy(comm[i]));
}

SUITE_MAIN("lent_drawn")
