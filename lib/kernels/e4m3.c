/* e4m3.c: converts parameters to 8 bits and back (e4m3.h), each with a scale of its own.
 *
 * The scale stays on the device: these kernels compute it from the amax, and the host never waits
 * for it.
 */
#include "e4m3.h"
#include "kernels.h"
#include "typed.h"

cudaError_t kernel_amax(uint32_t *amax, const float *x, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_amax", stream, kernel_amax, amax, x, n);
    uint32_t *most = simgpu_update(&op, amax, sizeof *amax);
    const float *data = simgpu_read(&op, x, n * sizeof *x);
    simgpu_cost(&op, n, GPU_F32);
    if (simgpu_ready(&op)) {
        uint32_t all = *most;
#pragma omp simd reduction(max : all)
        for (size_t i = 0; i < n; i++) {
            uint32_t size = rounding_bits(data[i]) & 0x7fffffff;
            all = size > all ? size : all;
        }
        *most = all;
    }
    return simgpu_end(&op);
}

cudaError_t kernel_quantize_e4m3(uint8_t *dst, const float *src, const uint32_t *amax, size_t n,
                                 cudaStream_t stream)
{
    SimgpuOp op =
        SIMGPU_BEGIN("kernel_quantize_e4m3", stream, kernel_quantize_e4m3, dst, src, amax, n);
    uint8_t *to = simgpu_write(&op, dst, n);
    const float *from = simgpu_read(&op, src, n * sizeof *src);
    const uint32_t *most = simgpu_read(&op, amax, sizeof *amax);
    simgpu_cost(&op, n, GPU_F32);
    if (simgpu_ready(&op)) {
        float scale = e4m3_scale(*most);
#pragma omp simd
        for (size_t i = 0; i < n; i++) to[i] = e4m3_from_float(from[i] * scale);
    }
    return simgpu_end(&op);
}

cudaError_t kernel_dequantize_e4m3(DType dst_type, void *dst, const uint8_t *src, size_t stride,
                                   const uint32_t *amax, size_t rows, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_dequantize_e4m3", stream, kernel_dequantize_e4m3, dst_type,
                               dst, src, stride, amax, rows, n);
    void *to = typed_write(&op, dst_type, dst, rows * n);
    const uint8_t *from = simgpu_read(&op, src, rows > 0 ? (rows - 1) * stride + n : 0);
    const uint32_t *most = simgpu_read(&op, amax, sizeof *amax);
    simgpu_cost(&op, rows * n, GPU_F32);
    for (size_t r = 0; r < rows && simgpu_ready(&op); r++) {
        float back = 1.0f / e4m3_scale(*most); // exact: a power of two
        for (size_t i = 0; i < n; i += typed_step(dst_type, n)) {
            float copy[TYPED_BLOCK];
            size_t count = typed_count(dst_type, n, i);
            float *y = typed_place(dst_type, copy, to, r * n + i);
            const uint8_t *x = from + r * stride + i;
#pragma omp simd
            for (size_t j = 0; j < count; j++) y[j] = e4m3_to_float(x[j]) * back;
            typed_store(dst_type, to, r * n + i, y, count);
        }
    }
    return simgpu_end(&op);
}
