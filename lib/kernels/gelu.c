/* gelu.c: the Gaussian error linear unit in its tanh form (Hendrycks & Gimpel 2016).
 *
 * gelu(x) = x/2 · (1 + tanh u) with u = √(2/π)·(x + 0.044715·x³). Since (1 + tanh u)/2 is the
 * sigmoid of 2u, it is computed as x · sigmoid(2u): no difference of nearly equal numbers for
 * negative x.
 *
 * Interface: kernel_gelu_forward, kernel_gelu_backward; kernel_bias_gelu_forward,
 * kernel_bias_gelu_backward, which also add the bias and sum its gradient; the _ex form of each.
 */
#include <math.h>

#include "kernels.h"
#include "rows.h"
#include "typed.h"
#include "vector_math.h"

enum { GELU = 9, GELU_SLOPE = 18 }; // FLOP of one

static const float TWO_ROOT = 1.5957691216f; // 2·√(2/π)
static const float CUBE = 0.044715f;

static inline float gelu(float x)
{
    float twice_u = TWO_ROOT * (x + CUBE * x * x * x);
    return x * vm_sigmoid(twice_u);
}

// gelu'(x)
static inline float gelu_slope(float x)
{
    float square = x * x;
    float twice_u = TWO_ROOT * (x + CUBE * square * x);
    // The sigmoid s and its slope s·(1-s) from e^-|2u|, so that no 1 - s loses digits.
    float e = vm_exp(-fabsf(twice_u)), q = 1.0f / (1.0f + e);
    float s = twice_u < 0.0f ? e * q : q;
    float slope = TWO_ROOT * (1.0f + 3.0f * CUBE * square); // of 2u
    return s + x * (e * q * q) * slope;
}

// ---- GELU ----

static cudaError_t gelu_forward_of(SimgpuOp *op, DType type, void *out, const void *in, size_t n)
{
    void *to = typed_write(op, type, out, n);
    const void *from = typed_read(op, type, in, n);
    simgpu_cost(op, GELU * n, GPU_F32);
    for (size_t i = 0; i < n && simgpu_ready(op); i += typed_step(type, n)) {
        float copy_x[TYPED_BLOCK], copy_y[TYPED_BLOCK];
        size_t count = typed_count(type, n, i);
        const float *restrict x = typed_load(type, copy_x, from, i, count);
        float *restrict y = typed_place(type, copy_y, to, i);
#pragma omp simd
        for (size_t j = 0; j < count; j++) y[j] = gelu(x[j]);
        typed_store(type, to, i, y, count);
    }
    return simgpu_end(op);
}

cudaError_t kernel_gelu_forward(float *out, const float *in, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_gelu_forward", stream);
    return gelu_forward_of(&op, DTYPE_F32, out, in, n);
}

cudaError_t kernel_gelu_forward_ex(DType type, void *out, const void *in, size_t n,
                                   cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_gelu_forward", type, stream);
    return gelu_forward_of(&op, type, out, in, n);
}

static cudaError_t gelu_backward_of(SimgpuOp *op, DType type, void *din, const void *dout,
                                    const void *in, size_t n)
{
    void *to = typed_write(op, type, din, n);
    const void *gradient = typed_read(op, type, dout, n);
    const void *from = typed_read(op, type, in, n);
    simgpu_cost(op, GELU_SLOPE * n, GPU_F32);
    for (size_t i = 0; i < n && simgpu_ready(op); i += typed_step(type, n)) {
        float copy_x[TYPED_BLOCK], copy_dy[TYPED_BLOCK], copy_dx[TYPED_BLOCK];
        size_t count = typed_count(type, n, i);
        const float *restrict x = typed_load(type, copy_x, from, i, count);
        const float *restrict dy = typed_load(type, copy_dy, gradient, i, count);
        float *restrict dx = typed_place(type, copy_dx, to, i);
#pragma omp simd
        for (size_t j = 0; j < count; j++) dx[j] = dy[j] * gelu_slope(x[j]);
        typed_store(type, to, i, dx, count);
    }
    return simgpu_end(op);
}

cudaError_t kernel_gelu_backward(float *din, const float *dout, const float *in, size_t n,
                                 cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_gelu_backward", stream);
    return gelu_backward_of(&op, DTYPE_F32, din, dout, in, n);
}

cudaError_t kernel_gelu_backward_ex(DType type, void *din, const void *dout, const void *in,
                                    size_t n, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_gelu_backward", type, stream);
    return gelu_backward_of(&op, type, din, dout, in, n);
}

// ---- With a bias. What the kernel of the sum alone would store is rounded here too. ----

// g and x (n) are parts of one row, b of the bias.
static void add_and_gelu(float *restrict g, float *restrict x, const float *restrict b, size_t n)
{
#pragma omp simd
    for (size_t c = 0; c < n; c++) {
        x[c] += b[c];
        g[c] = gelu(x[c]);
    }
}

static cudaError_t bias_gelu_forward_of(SimgpuOp *op, DType type, void *out, void *y,
                                        const void *bias, int rows, int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    void *to = typed_write(op, type, out, R * C), *sum = typed_update(op, type, y, R * C);
    const void *of_bias = typed_read(op, type, bias, C);
    simgpu_cost(op, (GELU + 1) * R * C, GPU_F32);
    if (type == DTYPE_F32) {
        for (size_t r = 0; r < R && simgpu_ready(op); r++)
            add_and_gelu((float *)to + r * C, (float *)sum + r * C, of_bias, C);
        return simgpu_end(op);
    }
    for (size_t c = 0; c < C && simgpu_ready(op); c += TYPED_BLOCK) {
        float b[TYPED_BLOCK], x[TYPED_BLOCK], g[TYPED_BLOCK];
        size_t n = typed_count(type, C, c);
        typed_load(type, b, of_bias, c, n);
        for (size_t at = c; at < R * C; at += C) {
            typed_load(type, x, sum, at, n);
            row_add(x, b, n);
            typed_store(type, sum, at, x, n);
            typed_round(type, x, n);
#pragma omp simd
            for (size_t i = 0; i < n; i++) g[i] = gelu(x[i]);
            typed_store(type, to, at, g, n);
        }
    }
    return simgpu_end(op);
}

cudaError_t kernel_bias_gelu_forward(float *out, float *y, const float *bias, int rows, int cols,
                                     cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_bias_gelu_forward", stream);
    return bias_gelu_forward_of(&op, DTYPE_F32, out, y, bias, rows, cols);
}

cudaError_t kernel_bias_gelu_forward_ex(DType type, void *out, void *y, const void *bias, int rows,
                                        int cols, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_bias_gelu_forward", type, stream);
    return bias_gelu_forward_of(&op, type, out, y, bias, rows, cols);
}

// dbias and din of n <= ROW_BLOCK columns from `first` on, of all rows, which lie `width` apart.
// din may be y. The sum takes the rows in the order of kernel_sum_rows.
static void backward_columns(DType type, void *din, void *dbias, const void *dout, const void *y,
                             size_t first, size_t n, size_t rows, size_t width)
{
    float sum[ROW_BLOCK] = {0}, copy_dx[ROW_BLOCK], copy_dy[ROW_BLOCK], copy_x[ROW_BLOCK];
    for (size_t at = first; at < rows * width; at += width) {
        const float *dy = typed_load(type, copy_dy, dout, at, n);
        const float *x = typed_load(type, copy_x, y, at, n);
        float *dx = typed_place(type, copy_dx, din, at);
        if (type == DTYPE_F32) { // nothing to round between the product and the sum
#pragma omp simd
            for (size_t c = 0; c < n; c++) {
                float gradient = dy[c] * gelu_slope(x[c]);
                dx[c] = gradient;
                sum[c] += gradient;
            }
            continue;
        }
#pragma omp simd
        for (size_t c = 0; c < n; c++) dx[c] = dy[c] * gelu_slope(x[c]);
        typed_store(type, din, at, dx, n);
        typed_round(type, dx, n);
        row_add(sum, dx, n);
    }
    float *total = typed_open(type, copy_dx, dbias, first, n);
    row_add(total, sum, n);
    typed_store(type, dbias, first, total, n);
}

static cudaError_t bias_gelu_backward_of(SimgpuOp *op, DType type, void *din, void *dbias,
                                         const void *dout, const void *y, int rows, int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    void *db = typed_update(op, type, dbias, C), *dx = NULL;
    const void *dy = typed_read(op, type, dout, R * C), *x = NULL;
    if (din == y) {
        x = dx = typed_update(op, type, din, R * C);
    } else {
        dx = typed_write(op, type, din, R * C);
        x = typed_read(op, type, y, R * C);
    }
    simgpu_cost(op, (GELU_SLOPE + 1) * R * C, GPU_F32);
    for (size_t c = 0; c < C && simgpu_ready(op); c += ROW_BLOCK)
        backward_columns(type, dx, db, dy, x, c, C - c < ROW_BLOCK ? C - c : ROW_BLOCK, R, C);
    return simgpu_end(op);
}

cudaError_t kernel_bias_gelu_backward(float *din, float *dbias, const float *dout, const float *y,
                                      int rows, int cols, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_bias_gelu_backward", stream);
    return bias_gelu_backward_of(&op, DTYPE_F32, din, dbias, dout, y, rows, cols);
}

cudaError_t kernel_bias_gelu_backward_ex(DType type, void *din, void *dbias, const void *dout,
                                         const void *y, int rows, int cols, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_bias_gelu_backward", type, stream);
    return bias_gelu_backward_of(&op, type, din, dbias, dout, y, rows, cols);
}
