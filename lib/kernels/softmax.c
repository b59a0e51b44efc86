/* softmax.c: the causal softmax of attention, in place, and its gradient.
 *
 * Row t of a (T,T) matrix belongs to the query at position t, which may look at the keys 0 … t
 * alone. Columns behind t are never read, and become 0.
 *
 * Interface: kernel_causal_softmax_forward, kernel_causal_softmax_backward; the _ex
 * form of each.
 */
#include <string.h>

#include "kernels.h"
#include "rows.h"
#include "typed.h"
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

static cudaError_t softmax_forward_of(SimgpuOp *op, DType type, void *att, int n, int T,
                                      float scale)
{
    size_t rows = (size_t)n * (size_t)T, width = (size_t)T, one = (size_t)dtype_bytes(type);
    char *data = typed_update(op, type, att, rows * width);
    float *copy = NULL;
    simgpu_cost(op, 5 * rows * (width + 1) / 2, GPU_F32);
    if (simgpu_ready(op) && typed_alloc(op, type, &copy, width)) {
        for (size_t r = 0; r < rows; r++) {
            size_t first = r * width, seen = r % width + 1;
            float *row = typed_open(type, copy, data, first, seen);
            softmax_row(row, seen, scale);
            typed_store(type, data, first, row, seen);
            memset(data + (first + seen) * one, 0, (width - seen) * one);
        }
        free(copy);
    }
    return simgpu_end(op);
}

cudaError_t kernel_causal_softmax_forward(float *att, int n, int T, float scale,
                                          cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_causal_softmax_forward", stream);
    return softmax_forward_of(&op, DTYPE_F32, att, n, T, scale);
}

cudaError_t kernel_causal_softmax_forward_ex(DType type, void *att, int n, int T, float scale,
                                             cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_causal_softmax_forward", type, stream);
    return softmax_forward_of(&op, type, att, n, T, scale);
}

static void softmax_backward_row(float *restrict d, const float *restrict p, size_t n, float scale)
{
    float dot = row_dot(d, p, n);
#pragma omp simd
    for (size_t i = 0; i < n; i++) d[i] = scale * p[i] * (d[i] - dot);
}

static cudaError_t softmax_backward_of(SimgpuOp *op, DType type, void *datt, const void *att, int n,
                                       int T, float scale)
{
    size_t rows = (size_t)n * (size_t)T, width = (size_t)T, one = (size_t)dtype_bytes(type);
    char *grad = typed_update(op, type, datt, rows * width);
    const void *prob = typed_read(op, type, att, rows * width);
    float *copy = NULL;
    simgpu_cost(op, 5 * rows * (width + 1) / 2, GPU_F32);
    if (simgpu_ready(op) && typed_alloc(op, type, &copy, 2 * width)) {
        for (size_t r = 0; r < rows; r++) {
            size_t first = r * width, seen = r % width + 1;
            float *d = typed_open(type, copy, grad, first, seen);
            softmax_backward_row(d, typed_load(type, typed_part(copy, width), prob, first, seen),
                                 seen, scale);
            typed_store(type, grad, first, d, seen);
            memset(grad + (first + seen) * one, 0, (width - seen) * one);
        }
        free(copy);
    }
    return simgpu_end(op);
}

cudaError_t kernel_causal_softmax_backward(float *datt, const float *att, int n, int T, float scale,
                                           cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_causal_softmax_backward", stream);
    return softmax_backward_of(&op, DTYPE_F32, datt, att, n, T, scale);
}

cudaError_t kernel_causal_softmax_backward_ex(DType type, void *datt, const void *att, int n, int T,
                                              float scale, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_causal_softmax_backward", type, stream);
    return softmax_backward_of(&op, type, datt, att, n, T, scale);
}
