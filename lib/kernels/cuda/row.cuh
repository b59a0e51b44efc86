/* row.cuh: one block per row, with the row kept in registers.
 *
 * LayerNorm and softmax need a row several times: for the mean or the maximum, for the sum, for the
 * result. Reading it from memory each time would take two or three times as long. A thread takes
 * every blockDim.x-th column, so that a warp's loads are contiguous, and keeps its first KEPT of
 * them in registers; further columns are read again, from the cache if they are still there.
 *
 *   float kept[KEPT], sum = 0.0f;
 *   each_column(cols, [&](unsigned c, int k) { sum += keep(kept, k, x[c]); });
 *   each_column(cols, [&](unsigned c, int k) { y[c] = kept_or(kept, k, x + c) / sum; });
 *
 * k is a constant where each_column is unrolled, so kept[k] can be a register.
 */
#ifndef SHARDLAB_ROW_CUH
#define SHARDLAB_ROW_CUH

#include "typed.cuh"

#define KEPT 8
#define ROW_THREADS 1024 // the most of them

// Threads for a row of `cols`: enough to keep all of it (up to 8192 columns), and no more; a short
// row needs only one warp, and no barrier.
static inline unsigned row_threads(size_t cols)
{
    return cols <= 32 * KEPT ? 32 : cols <= 256 * KEPT ? 256 : ROW_THREADS;
}

// body(c, k) for each of this thread's columns; c is unsigned because the last step may go past the
// largest int.
template <class Body> static __device__ __forceinline__ void each_column(unsigned cols, Body body)
{
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        unsigned c = threadIdx.x + k * blockDim.x;
        if (c < cols) body(c, k);
    }
    for (unsigned c = threadIdx.x + KEPT * blockDim.x; c < cols; c += blockDim.x) body(c, KEPT);
}

static __device__ __forceinline__ float keep(float *kept, int k, float x)
{
    if (k < KEPT) kept[k] = x;
    return x;
}

template <class T>
static __device__ __forceinline__ float kept_or(const float *kept, int k, const T *again)
{
    return k < KEPT ? kept[k] : (float)*again;
}

#endif
