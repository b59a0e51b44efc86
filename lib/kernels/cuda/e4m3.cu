/* e4m3.cu: parameters to 8 bits and back (e4m3.h), each with its own scale. */
#include "block.cuh"
#include "e4m3.h"
#include "typed.cuh"

#define FP8_THREADS 256

// A maximum of whole numbers does not depend on the order, so the warps may come in any order.
static __global__ void __launch_bounds__(FP8_THREADS)
    amax_of(uint32_t *amax, const float *x, size_t n)
{
    size_t stride = gridDim.x * (size_t)FP8_THREADS;
    uint32_t most = 0;
    for (size_t i = blockIdx.x * (size_t)FP8_THREADS + threadIdx.x; i < n; i += stride) {
        uint32_t size = rounding_bits(x[i]) & 0x7fffffff;
        most = size > most ? size : most;
    }
    for (int bit = WARP / 2; bit > 0; bit /= 2) {
        uint32_t other = __shfl_xor_sync(ALL_LANES, most, bit);
        most = other > most ? other : most;
    }
    if (threadIdx.x % WARP == 0) atomicMax(amax, most);
}

extern "C" cudaError_t kernel_amax(uint32_t *amax, const float *x, size_t n, cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_amax", stream);
    launch_update(&launch, amax, sizeof *amax);
    launch_read(&launch, x, n * sizeof *x);
    if (n > 0) launch_grid(&launch, amax_of, blocks_of(n, FP8_THREADS), FP8_THREADS, amax, x, n);
    return launch_end(&launch);
}

static __global__ void __launch_bounds__(FP8_THREADS)
    quantize(uint8_t *dst, const float *src, const uint32_t *amax, size_t n)
{
    size_t stride = gridDim.x * (size_t)FP8_THREADS;
    float scale = e4m3_scale(*amax);
    for (size_t i = blockIdx.x * (size_t)FP8_THREADS + threadIdx.x; i < n; i += stride)
        dst[i] = e4m3_from_float(src[i] * scale);
}

extern "C" cudaError_t kernel_quantize_e4m3(uint8_t *dst, const float *src, const uint32_t *amax,
                                            size_t n, cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_quantize_e4m3", stream);
    launch_write(&launch, dst, n);
    launch_read(&launch, src, n * sizeof *src);
    launch_read(&launch, amax, sizeof *amax);
    if (n > 0)
        launch_grid(&launch, quantize, blocks_of(n, FP8_THREADS), FP8_THREADS, dst, src, amax, n);
    return launch_end(&launch);
}

template <class T>
static __global__ void __launch_bounds__(FP8_THREADS)
    dequantize(T *dst, const uint8_t *src, size_t pitch, const uint32_t *amax, size_t rows,
               size_t n)
{
    size_t all = rows * n, stride = gridDim.x * (size_t)FP8_THREADS;
    float back = 1.0f / e4m3_scale(*amax); // exact: a power of two
    for (size_t i = blockIdx.x * (size_t)FP8_THREADS + threadIdx.x; i < all; i += stride)
        dst[i] = e4m3_to_float(src[i / n * pitch + i % n]) * back;
}

template <class T>
static cudaError_t dequantize_of(Launch launch, T *dst, const uint8_t *src, size_t stride,
                                 const uint32_t *amax, size_t rows, size_t n)
{
    launch_write(&launch, dst, rows * n * sizeof *dst);
    launch_read(&launch, src, rows > 0 ? (rows - 1) * stride + n : 0);
    launch_read(&launch, amax, sizeof *amax);
    if (rows * n > 0)
        launch_grid(&launch, dequantize<T>, blocks_of(rows * n, FP8_THREADS), FP8_THREADS, dst, src,
                    stride, amax, rows, n);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_dequantize_e4m3(DType dst_type, void *dst, const uint8_t *src,
                                              size_t stride, const uint32_t *amax, size_t rows,
                                              size_t n, cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_dequantize_e4m3", stream);
    BY_TYPE(dst_type, dequantize_of(launch, (T *)dst, src, stride, amax, rows, n));
}
