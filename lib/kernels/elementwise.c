/* elementwise.c: kernels that treat every element alike: fill, scale, add.
 *
 * Each operation here is one that IEEE 754 rounds exactly, in a fixed order, with no fused
 * multiply-add; so an element gets the same bits in a vector and in the tail of a loop, and a
 * result does not depend on how a parameter was cut into shards.
 *
 * Interface: kernel_fill, kernel_scale, kernel_add, kernel_add_out, kernel_add_divided.
 */
#include "kernels.h"
#include "simgpu.h"

cudaError_t kernel_fill(float *x, float value, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_fill", stream);
    float *out = simgpu_write(&op, x, n * sizeof *x);
    if (simgpu_ready(&op)) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) out[i] = value;
    }
    return simgpu_end(&op);
}

cudaError_t kernel_scale(float *x, float factor, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_scale", stream);
    float *data = simgpu_update(&op, x, n * sizeof *x);
    simgpu_cost(&op, n, GPU_F32);
    if (simgpu_ready(&op)) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) data[i] *= factor;
    }
    return simgpu_end(&op);
}

cudaError_t kernel_add(float *dst, const float *src, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_add", stream);
    float *to = simgpu_update(&op, dst, n * sizeof *dst);
    const float *from = simgpu_read(&op, src, n * sizeof *src);
    simgpu_cost(&op, n, GPU_F32);
    if (simgpu_ready(&op)) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) to[i] += from[i];
    }
    return simgpu_end(&op);
}

cudaError_t kernel_add_out(float *out, const float *a, const float *b, size_t n,
                           cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_add_out", stream);
    float *sum = simgpu_write(&op, out, n * sizeof *out);
    const float *x = simgpu_read(&op, a, n * sizeof *a);
    const float *y = simgpu_read(&op, b, n * sizeof *b);
    simgpu_cost(&op, n, GPU_F32);
    if (simgpu_ready(&op)) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) sum[i] = x[i] + y[i];
    }
    return simgpu_end(&op);
}

cudaError_t kernel_add_divided(float *dst, const float *src, float divisor, size_t n,
                               cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_add_divided", stream);
    float *to = simgpu_update(&op, dst, n * sizeof *dst);
    const float *from = simgpu_read(&op, src, n * sizeof *src);
    simgpu_cost(&op, 2 * n, GPU_F32);
    if (simgpu_ready(&op)) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) to[i] += from[i] / divisor;
    }
    return simgpu_end(&op);
}
