/* gelu.c: the Gaussian error linear unit in its tanh form (Hendrycks & Gimpel 2016).
 *
 * gelu(x) = x/2 · (1 + tanh u) with u = √(2/π)·(x + 0.044715·x³). Since (1 + tanh u)/2 is the
 * sigmoid of 2u, it is computed as x · sigmoid(2u): no difference of nearly equal numbers for
 * negative x.
 *
 * Interface: kernel_gelu_forward, kernel_gelu_backward; kernel_bias_gelu_forward,
 * kernel_bias_gelu_backward, which also add the bias and sum its gradient.
 */
#include <math.h>

#include "kernels.h"
#include "rows.h"
#include "simgpu.h"
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

cudaError_t kernel_gelu_forward(float *out, const float *in, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_gelu_forward", stream);
    float *restrict y = simgpu_write(&op, out, n * sizeof *out);
    const float *restrict x = simgpu_read(&op, in, n * sizeof *in);
    simgpu_cost(&op, GELU * n, GPU_F32);
    if (simgpu_ready(&op)) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) y[i] = gelu(x[i]);
    }
    return simgpu_end(&op);
}

cudaError_t kernel_gelu_backward(float *din, const float *dout, const float *in, size_t n,
                                 cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_gelu_backward", stream);
    float *restrict dx = simgpu_write(&op, din, n * sizeof *din);
    const float *restrict dy = simgpu_read(&op, dout, n * sizeof *dout);
    const float *restrict x = simgpu_read(&op, in, n * sizeof *in);
    simgpu_cost(&op, GELU_SLOPE * n, GPU_F32);
    if (simgpu_ready(&op)) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) dx[i] = dy[i] * gelu_slope(x[i]);
    }
    return simgpu_end(&op);
}

cudaError_t kernel_bias_gelu_forward(float *out, float *y, const float *bias, int rows, int cols,
                                     cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_bias_gelu_forward", stream);
    size_t R = (size_t)rows, C = (size_t)cols;
    float *to = simgpu_write(&op, out, R * C * sizeof *out);
    float *sum = simgpu_update(&op, y, R * C * sizeof *y);
    const float *restrict b = simgpu_read(&op, bias, C * sizeof *bias);
    simgpu_cost(&op, (GELU + 1) * R * C, GPU_F32);
    if (simgpu_ready(&op)) {
        for (size_t r = 0; r < R; r++) {
            float *restrict g = to + r * C, *restrict x = sum + r * C;
#pragma omp simd
            for (size_t c = 0; c < C; c++) {
                x[c] += b[c];
                g[c] = gelu(x[c]);
            }
        }
    }
    return simgpu_end(&op);
}

// dbias (n) and din for n <= ROW_BLOCK columns of all rows, which lie `width` apart. din may be y.
// The sum takes the rows in the order of kernel_sum_rows.
static void backward_columns(float *din, float *dbias, const float *dout, const float *y, size_t n,
                             size_t rows, size_t width)
{
    float sum[ROW_BLOCK] = {0};
    for (size_t r = 0; r < rows; r++) {
        float *dx = din + r * width;
        const float *dy = dout + r * width, *x = y + r * width;
#pragma omp simd
        for (size_t c = 0; c < n; c++) {
            float gradient = dy[c] * gelu_slope(x[c]);
            dx[c] = gradient;
            sum[c] += gradient;
        }
    }
    row_add(dbias, sum, n);
}

cudaError_t kernel_bias_gelu_backward(float *din, float *dbias, const float *dout, const float *y,
                                      int rows, int cols, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_bias_gelu_backward", stream);
    size_t R = (size_t)rows, C = (size_t)cols, bytes = R * C * sizeof *y;
    float *db = simgpu_update(&op, dbias, C * sizeof *dbias);
    const float *dy = simgpu_read(&op, dout, bytes), *x = NULL;
    float *dx = NULL;
    if (din == y) {
        x = dx = simgpu_update(&op, din, bytes);
    } else {
        dx = simgpu_write(&op, din, bytes);
        x = simgpu_read(&op, y, bytes);
    }
    simgpu_cost(&op, (GELU_SLOPE + 1) * R * C, GPU_F32);
    if (simgpu_ready(&op)) {
        for (size_t c = 0; c < C; c += ROW_BLOCK)
            backward_columns(dx + c, db + c, dy + c, x + c, C - c < ROW_BLOCK ? C - c : ROW_BLOCK,
                             R, C);
    }
    return simgpu_end(&op);
}
