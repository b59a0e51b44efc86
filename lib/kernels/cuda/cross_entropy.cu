/* cross_entropy.cu: softmax and cross entropy of each row, with the gradient; one block per row.
 *
 * loss = log Σ e^(x - max) - (x[target] - max). A row of a whole vocabulary is too long to keep, so
 * one read gives maximum and sum: the sum uses the maximum so far, and shrinks when a larger number
 * comes (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax"). A second read
 * writes the gradient, which may replace the logits.
 */
#include <stdio.h>

#include "block.cuh"
#include "row.cuh"

// Σ e^(x - max) over some numbers, and their maximum.
struct MaxSum {
    float max, sum;
};

// Compares equal numbers first: -∞ less -∞ would be NaN, and must count as 0 here.
static __device__ float exp_below(float x, float max)
{
    return x == max ? 1.0f : expf(x - max);
}

static __device__ MaxSum with_number(MaxSum a, float x)
{
    if (x > a.max) return {x, a.sum * exp_below(a.max, x) + 1.0f};
    return {a.max, a.sum + exp_below(x, a.max)};
}

static __device__ MaxSum with_both(MaxSum a, MaxSum b)
{
    float max = fmaxf(a.max, b.max);
    return {max, a.sum * exp_below(a.max, max) + b.sum * exp_below(b.max, max)};
}

// Like block.cuh's sums: over a warp, then over the warps' results; all lanes get the same.
static __device__ MaxSum warp_max_sum(MaxSum mine)
{
    for (int bit = WARP / 2; bit > 0; bit /= 2) {
        MaxSum other;
        other.max = __shfl_xor_sync(ALL_LANES, mine.max, bit);
        other.sum = __shfl_xor_sync(ALL_LANES, mine.sum, bit);
        mine = with_both(mine, other);
    }
    return mine;
}

static __device__ MaxSum block_max_sum(MaxSum mine)
{
    __shared__ MaxSum of_warp[MOST_WARPS];
    unsigned lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    mine = warp_max_sum(mine);
    if (warps == 1) return mine;
    __syncthreads();
    if (lane == 0) of_warp[threadIdx.x / WARP] = mine;
    __syncthreads();
    MaxSum nothing = {-INFINITY, 0.0f};
    return warp_max_sum(lane < warps ? of_warp[lane] : nothing);
}

static __device__ void check_target(int target, size_t row, int vocab)
{
    if (target >= 0 && target < vocab) return;
    if (threadIdx.x == 0)
        printf("kernel_cross_entropy: target %d in row %d, but the vocabulary has %d\n", target,
               (int)row, vocab);
    __syncthreads(); // the trap may stop the block at once
    __trap();
}

// losses (rows), dlogits (rows, vocab) or NULL, logits (rows, vocab), targets (rows). A thread
// reads and writes only its own columns, so that logits and dlogits may be the same.
template <class T>
static __global__ void __launch_bounds__(ROW_THREADS)
    cross_entropy(float *losses, T *dlogits, const T *logits, const int32_t *targets, size_t rows,
                  unsigned vocab, float scale)
{
    for (size_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const T *x = logits + r * vocab;
        check_target(targets[r], r, (int)vocab);
        unsigned target = (unsigned)targets[r];
        MaxSum all = {-INFINITY, 0.0f};
#pragma unroll 4
        for (unsigned c = threadIdx.x; c < vocab; c += blockDim.x) all = with_number(all, x[c]);
        all = block_max_sum(all);
        float log_sum = logf(all.sum);
        if (threadIdx.x == target % blockDim.x) losses[r] = log_sum - (x[target] - all.max);
        if (dlogits == NULL) continue;
        T *dx = dlogits + r * vocab;
#pragma unroll 4
        for (unsigned c = threadIdx.x; c < vocab; c += blockDim.x) {
            float d = expf((x[c] - all.max) - log_sum) * scale;
            dx[c] = c == target ? d - scale : d;
        }
    }
}

template <class T>
static cudaError_t cross_entropy_of(Launch launch, float *losses, T *dlogits, const T *logits,
                                    const int32_t *targets, int rows, int vocab, float scale)
{
    size_t R = (size_t)rows, V = (size_t)vocab, bytes = R * V * sizeof *logits;
    launch_write(&launch, losses, R * sizeof *losses);
    if (dlogits == logits) {
        launch_update(&launch, dlogits, bytes);
    } else {
        launch_read(&launch, logits, bytes);
        if (dlogits != NULL) launch_write(&launch, dlogits, bytes);
    }
    launch_read(&launch, targets, R * sizeof *targets);
    if (rows > 0)
        launch_grid(&launch, cross_entropy<T>, blocks_of(R, 1), row_threads(V), losses, dlogits,
                    logits, targets, R, (unsigned)vocab, scale);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_cross_entropy(float *losses, float *dlogits, const float *logits,
                                            const int32_t *targets, int rows, int vocab,
                                            float scale, cudaStream_t stream)
{
    return cross_entropy_of(LAUNCH_BEGIN("kernel_cross_entropy", stream), losses, dlogits, logits,
                            targets, rows, vocab, scale);
}

extern "C" cudaError_t kernel_cross_entropy_ex(DType type, float *losses, void *dlogits,
                                               const void *logits, const int32_t *targets, int rows,
                                               int vocab, float scale, cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_cross_entropy", type, stream);
    BY_TYPE(type, cross_entropy_of(launch, losses, (T *)dlogits, (const T *)logits, targets, rows,
                                   vocab, scale));
}
