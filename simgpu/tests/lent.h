/* lent.h: all-gathers that lend, for lent.c and lent_drawn.c: a rank's buffers, and what must be in
 * them. Numbers are small integers, so that sums of them are exact.
 */
#ifndef SHARDLAB_LENT_H
#define SHARDLAB_LENT_H

#include <stdlib.h>
#include <string.h>

#include "cublas_v2.h"
#include "heard.h"

// Element i of what a rank sends in a round.
static inline float number_of(int rank, int round, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 31 + (size_t)round * 13) % 251);
}

// A rank's buffers, and what is to be in the one that it receives.
typedef struct Gathered {
    size_t each, all; // floats
    float *send, *recv, *host, *want;
} Gathered;

static inline void fill_send(const Gathered *g, const Rank *r, int round)
{
    for (size_t i = 0; i < g->each; i++) g->host[i] = number_of(r->rank, round, i);
    need_cuda(cudaMemcpyAsync(g->send, g->host, g->each * sizeof(float), cudaMemcpyHostToDevice,
                              r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
}

static inline void expect(const Gathered *g, const Rank *r, int round)
{
    for (int rank = 0; rank < r->world; rank++)
        for (size_t i = 0; i < g->each; i++)
            g->want[(size_t)rank * g->each + i] = number_of(rank, round, i);
}

static inline void gather(const Gathered *g, const Rank *r, int round)
{
    fill_send(g, r, round);
    need_nccl(ncclAllGather(g->send, g->recv, g->each, ncclFloat, r->comm, r->stream));
    expect(g, r, round);
}

static inline Gathered make(const Rank *r, size_t each)
{
    Gathered g = {.each = each, .all = each * (size_t)r->world};
    need_cuda(cudaMallocAsync((void **)&g.send, g.each * sizeof(float), r->stream));
    need_cuda(cudaMallocAsync((void **)&g.recv, g.all * sizeof(float), r->stream));
    g.host = malloc(g.all * sizeof(float));
    g.want = malloc(g.all * sizeof(float));
    check(g.host && g.want, "no memory");
    return g;
}

static inline void drop(const Gathered *g, const Rank *r)
{
    need_cuda(cudaFreeAsync(g->send, r->stream));
    need_cuda(cudaFreeAsync(g->recv, r->stream));
    free(g->host);
    free(g->want);
}

// Elements [from, to) of the buffer are as they should be.
static inline void holds(const Gathered *g, const Rank *r, size_t from, size_t to, const char *when)
{
    need_cuda(cudaMemcpyAsync(g->host, g->recv + from, (to - from) * sizeof(float),
                              cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (size_t i = from; i < to; i++)
        check(g->host[i - from] == g->want[i], "%s: element %zu is %g, not %g", when, i,
              g->host[i - from], g->want[i]);
}

// All ranks have come so far. Too small to be lent itself.
static inline void meet(const Rank *r)
{
    static float *one;
    if (!one) need_cuda(cudaMalloc((void **)&one, sizeof *one));
    need_cuda(cudaMemsetAsync(one, 0, sizeof *one, r->stream));
    need_nccl(ncclAllReduce(one, one, 1, ncclFloat, ncclSum, r->comm, r->stream));
}

static inline cublasHandle_t handle_of(const Rank *r)
{
    cublasHandle_t handle;
    check(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "no handle");
    check(cublasSetStream(handle, r->stream) == CUBLAS_STATUS_SUCCESS, "no stream");
    return handle;
}

enum { ROWS = 24, INNER = 64, COLS = 3 };

// The sums of the rows of a matrix at element `from`, by a product with ones, are exact.
static inline void multiply(const Gathered *g, const Rank *r, cublasHandle_t handle, size_t from)
{
    static const float one = 1.0f, zero = 0.0f;
    float ones[INNER * COLS], sums[ROWS * COLS], *B, *C;
    for (int i = 0; i < INNER * COLS; i++) ones[i] = 1.0f;
    need_cuda(cudaMallocAsync((void **)&B, sizeof ones, r->stream));
    need_cuda(cudaMallocAsync((void **)&C, sizeof sums, r->stream));
    need_cuda(cudaMemcpyAsync(B, ones, sizeof ones, cudaMemcpyHostToDevice, r->stream));
    check(cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, ROWS, COLS, INNER, &one, g->recv + from,
                      INNER, B, INNER, &zero, C, ROWS) == CUBLAS_STATUS_SUCCESS,
          "a product failed");
    need_cuda(cudaMemcpyAsync(sums, C, sizeof sums, cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < ROWS * COLS; i++) {
        float sum = 0.0f;
        for (int k = 0; k < INNER; k++)
            sum += g->want[from + (size_t)(i % ROWS) * INNER + (size_t)k];
        check(sums[i] == sum, "sum %d of the rows at %zu is %g, not %g", i, from, sums[i], sum);
    }
    need_cuda(cudaFreeAsync(B, r->stream));
    need_cuda(cudaFreeAsync(C, r->stream));
}

// Promises to write all of n floats, and leaves out [from, to).
static inline cudaError_t kernel_promise(float *p, size_t n, size_t from, size_t to,
                                         cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_promise", stream);
    float *all = simgpu_overwrite(&op, p, n * sizeof *p);
    for (size_t i = 0; simgpu_ready(&op) && i < n; i++)
        if (i < from || i >= to) all[i] = 5.0f;
    return simgpu_end(&op);
}

// As many floats of each rank that all of them are lent, by a page and a bit.
static inline size_t lent_each(const Rank *r)
{
    return ((size_t)256 << 10) / sizeof(float) / (size_t)r->world + 1000;
}

#endif
