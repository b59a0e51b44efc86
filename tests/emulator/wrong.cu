/* wrong.cu: kernels with a mistake each.
 *
 * Interface: wrong_kernel (wrong.cuh).
 */
#include "../../lib/kernels/cuda/launch.cuh"
#include "wrong.cuh"

#define THREADS 64
#define ALL_LANES 0xffffffffu

static __global__ void turn_round(float *x)
{
    __shared__ float kept[THREADS];
    kept[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = kept[THREADS - 1 - threadIdx.x];
}

static __global__ void no_barrier(float *x)
{
    __shared__ float kept[THREADS];
    kept[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = kept[THREADS - 1 - threadIdx.x];
}

static __global__ void never_written(float *x)
{
    __shared__ float kept[THREADS];
    if (x == NULL) kept[threadIdx.x] = 0.0f;
    x[threadIdx.x] = kept[threadIdx.x];
}

static __global__ void left_early(float *x)
{
    if (threadIdx.x % 2 == 1) return;
    __syncthreads();
    x[threadIdx.x] = 0.0f;
}

static __global__ void two_barriers(float *x)
{
    if (threadIdx.x < THREADS / 2)
        __syncthreads();
    else
        __syncthreads();
    x[threadIdx.x] = 0.0f;
}

static __global__ void half_a_warp(float *x)
{
    if (threadIdx.x % 2 == 1) x[threadIdx.x] = __shfl_xor_sync(ALL_LANES, x[threadIdx.x], 2);
}

static __global__ void two_shuffles(float *x)
{
    if (threadIdx.x % 2 == 1)
        x[threadIdx.x] = __shfl_xor_sync(ALL_LANES, x[threadIdx.x], 2);
    else
        x[threadIdx.x] = __shfl_xor_sync(ALL_LANES, x[threadIdx.x], 4);
}

static __global__ void short_mask(float *x)
{
    x[threadIdx.x] = __shfl_xor_sync(0xffffu, x[threadIdx.x], 1);
}

static __global__ void zero(float *x)
{
    if (threadIdx.x < THREADS) x[threadIdx.x] = 0.0f;
}

static __global__ void trap(float *x)
{
    __syncthreads();
    if (threadIdx.x == 40) __trap();
    __syncthreads();
    x[threadIdx.x] = 0.0f;
}

static void launch_wrong(Launch *launch, Wrong wrong, float *x, float *other)
{
    switch (wrong) {
    case RIGHT: return launch_grid(launch, turn_round, 1, THREADS, x);
    case NO_BARRIER: return launch_grid(launch, no_barrier, 1, THREADS, x);
    case NEVER_WRITTEN: return launch_grid(launch, never_written, 1, THREADS, x);
    case LEFT_EARLY: return launch_grid(launch, left_early, 1, THREADS, x);
    case TWO_BARRIERS: return launch_grid(launch, two_barriers, 1, THREADS, x);
    case HALF_A_WARP: return launch_grid(launch, half_a_warp, 1, THREADS, x);
    case TWO_SHUFFLES: return launch_grid(launch, two_shuffles, 1, THREADS, x);
    case SHORT_MASK: return launch_grid(launch, short_mask, 1, THREADS, x);
    case ODD_BLOCK: return launch_grid(launch, zero, 1, 33, x);
    case HUGE_BLOCK: return launch_grid(launch, zero, 1, 2048, x);
    case NOT_DECLARED: return launch_grid(launch, zero, 1, THREADS, other);
    case TOO_LONG: return launch_grid(launch, zero, 1, THREADS, x);
    case TRAP: return launch_grid(launch, trap, 1, THREADS, x);
    case AFTER_A_TRAP:
        launch_grid(launch, trap, 1, THREADS, x);
        return launch_grid(launch, zero, 1, THREADS, x);
    }
}

extern "C" cudaError_t wrong_kernel(Wrong wrong, float *x, float *other, cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("wrong_kernel", stream);
    launch_update(&launch, x, THREADS * sizeof *x + (wrong == TOO_LONG));
    launch_wrong(&launch, wrong, x, other);
    return launch_end(&launch);
}
