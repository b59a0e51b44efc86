/* softmax.c: the causal softmax of attention, in place, and its gradient.
 *
 * Row t of a (T,T) matrix belongs to the query at position t, which may look at the keys 0 … t
 * alone. Columns behind t are never read, and become 0.
 *
 * Interface: kernel_causal_softmax_forward, kernel_causal_softmax_backward.
 */
#include <string.h>

#include "kernels.h"
#include "rows.h"
#include "simgpu.h"
#include "vector_math.h"

// x (n) becomes softmax(scale·x). The maximum is taken off first, so that no exponential overflows.
static void softmax_row(float *x, size_t n, float scale)
{
    float max = row_max(x, n);
    if (scale < 0.0f) // then the largest product comes from the smallest number
        for (size_t i = 0; i < n; i++) max = x[i] < max ? x[i] : max;
#pragma omp simd
    for (size_t i = 0; i < n; i++) x[i] = vm_exp(scale * (x[i] - max));
    float factor = 1.0f / row_sum(x, n);
#pragma omp simd
    for (size_t i = 0; i < n; i++) x[i] *= factor;
}

cudaError_t kernel_causal_softmax_forward(float *att, int n, int T, float scale,
                                          cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_causal_softmax_forward", stream);
    size_t rows = (size_t)n * (size_t)T, width = (size_t)T;
    float *data = simgpu_update(&op, att, rows * width * sizeof *att);
    simgpu_cost(&op, 5 * rows * (width + 1) / 2, GPU_F32);
    if (simgpu_ready(&op)) {
        for (size_t r = 0; r < rows; r++) {
            float *row = data + r * width;
            size_t seen = r % width + 1;
            softmax_row(row, seen, scale);
            memset(row + seen, 0, (width - seen) * sizeof *row);
        }
    }
    return simgpu_end(&op);
}

cudaError_t kernel_causal_softmax_backward(float *datt, const float *att, int n, int T, float scale,
                                           cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_causal_softmax_backward", stream);
    size_t rows = (size_t)n * (size_t)T, width = (size_t)T;
    float *grad = simgpu_update(&op, datt, rows * width * sizeof *datt);
    const float *prob = simgpu_read(&op, att, rows * width * sizeof *att);
    simgpu_cost(&op, 5 * rows * (width + 1) / 2, GPU_F32);
    if (simgpu_ready(&op)) {
        for (size_t r = 0; r < rows; r++) {
            float *restrict d = grad + r * width;
            const float *restrict p = prob + r * width;
            size_t seen = r % width + 1;
            float dot = row_dot(d, p, seen);
#pragma omp simd
            for (size_t i = 0; i < seen; i++) d[i] = scale * p[i] * (d[i] - dot);
            memset(d + seen, 0, (width - seen) * sizeof *d);
        }
    }
    return simgpu_end(&op);
}
