/* block.cuh: sums and maxima over the threads of a warp or a block.
 *
 * Each lane exchanges with the lane whose number differs in one bit, five times. a + b and b + a
 * are the same float, so all lanes end with the same bits; the order depends only on the lanes'
 * numbers. No float atomics: they add in the order of arrival.
 *
 * All threads of the block must call these together; blocks are whole warps, of at most 1024
 * threads.
 */
#ifndef SHARDLAB_BLOCK_CUH
#define SHARDLAB_BLOCK_CUH

#include <cuda_runtime.h>
#include <math.h>

#define WARP 32
#define ALL_LANES 0xffffffffu
#define MOST_WARPS 32

template <class Number> static __device__ Number warp_sum(Number x)
{
    for (int bit = WARP / 2; bit > 0; bit /= 2) x += __shfl_xor_sync(ALL_LANES, x, bit);
    return x;
}

static inline __device__ float warp_max(float x)
{
    for (int bit = WARP / 2; bit > 0; bit /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, bit));
    return x;
}

// Warps leave their results in `of_warp` (MOST_WARPS), and each warp reduces those once more, so
// that all threads have the result without a second round trip. The first barrier keeps a fast warp
// from overwriting results of the call before that a slow one still reads.
template <class Number> static __device__ Number sum_of_warps(Number mine, Number *of_warp)
{
    unsigned lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    if (warps == 1) return mine;
    __syncthreads();
    if (lane == 0) of_warp[threadIdx.x / WARP] = mine;
    __syncthreads();
    return warp_sum(lane < warps ? of_warp[lane] : (Number)0);
}

static inline __device__ float block_sum(float x)
{
    __shared__ float of_warp[MOST_WARPS];
    return sum_of_warps(warp_sum(x), of_warp);
}

static inline __device__ double block_sum(double x)
{
    __shared__ double of_warp[MOST_WARPS];
    return sum_of_warps(warp_sum(x), of_warp);
}

// Two sums with the barriers of one.
static inline __device__ float2 block_sum2(float x, float y)
{
    __shared__ float2 of_warp[MOST_WARPS];
    unsigned lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    float2 mine = {warp_sum(x), warp_sum(y)};
    if (warps == 1) return mine;
    __syncthreads();
    if (lane == 0) of_warp[threadIdx.x / WARP] = mine;
    __syncthreads();
    float2 other = {0.0f, 0.0f};
    if (lane < warps) other = of_warp[lane];
    return {warp_sum(other.x), warp_sum(other.y)};
}

static inline __device__ float block_max(float x)
{
    __shared__ float of_warp[MOST_WARPS];
    unsigned lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    float mine = warp_max(x);
    if (warps == 1) return mine;
    __syncthreads();
    if (lane == 0) of_warp[threadIdx.x / WARP] = mine;
    __syncthreads();
    return warp_max(lane < warps ? of_warp[lane] : -INFINITY);
}

#endif
