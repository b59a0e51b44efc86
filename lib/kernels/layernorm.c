/* layernorm.c: layer normalisation (Ba, Kiros & Hinton 2016) over the columns of each row.
 *
 * With x̂ = (x - mean)·rstd, forward is y = x̂·weight + bias. Backward, with g = dy·weight:
 * dx = rstd·(g - mean(g) - x̂·mean(g·x̂)), because mean and rstd themselves depend on
 * every x of the row.
 *
 * A residual connection is an addition in front of a layer norm in the forward, and behind it in
 * the backward; it is done here, while the row is still in the nearest cache.
 *
 * Interface: kernel_layernorm_forward, kernel_residual_layernorm_forward,
 * kernel_layernorm_backward.
 */
#include <math.h>

#include "kernels.h"
#include "rows.h"
#include "simgpu.h"

static const float EPS = 1e-5f;

// One row: x, y, weight, bias (C). y serves as the place for x - mean.
static void normalise_row(float *restrict y, float *mean, float *rstd, const float *restrict x,
                          const float *restrict weight, const float *restrict bias, size_t C)
{
    float m = row_sum(x, C) / (float)C;
#pragma omp simd
    for (size_t c = 0; c < C; c++) y[c] = x[c] - m;
    float r = 1.0f / sqrtf(row_dot(y, y, C) / (float)C + EPS);
#pragma omp simd
    for (size_t c = 0; c < C; c++) y[c] = y[c] * r * weight[c] + bias[c];
    *mean = m;
    *rstd = r;
}

cudaError_t kernel_layernorm_forward(float *out, float *mean, float *rstd, const float *in,
                                     const float *weight, const float *bias, int rows, int cols,
                                     cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_layernorm_forward", stream);
    size_t R = (size_t)rows, C = (size_t)cols;
    float *y = simgpu_write(&op, out, R * C * sizeof *out);
    float *m = simgpu_write(&op, mean, R * sizeof *mean);
    float *r = simgpu_write(&op, rstd, R * sizeof *rstd);
    const float *x = simgpu_read(&op, in, R * C * sizeof *in);
    const float *w = simgpu_read(&op, weight, C * sizeof *weight);
    const float *b = simgpu_read(&op, bias, C * sizeof *bias);
    simgpu_cost(&op, 8 * R * C, GPU_F32);
    if (simgpu_ready(&op))
        for (size_t i = 0; i < R; i++) normalise_row(y + i * C, m + i, r + i, x + i * C, w, b, C);
    return simgpu_end(&op);
}

cudaError_t kernel_residual_layernorm_forward(float *out, float *mean, float *rstd, float *sum,
                                              const float *residual, const float *weight,
                                              const float *bias, int rows, int cols,
                                              cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_residual_layernorm_forward", stream);
    size_t R = (size_t)rows, C = (size_t)cols;
    float *y = simgpu_write(&op, out, R * C * sizeof *out);
    float *m = simgpu_write(&op, mean, R * sizeof *mean);
    float *r = simgpu_write(&op, rstd, R * sizeof *rstd);
    float *x = simgpu_update(&op, sum, R * C * sizeof *sum);
    const float *more = simgpu_read(&op, residual, R * C * sizeof *residual);
    const float *w = simgpu_read(&op, weight, C * sizeof *weight);
    const float *b = simgpu_read(&op, bias, C * sizeof *bias);
    simgpu_cost(&op, 9 * R * C, GPU_F32);
    if (simgpu_ready(&op)) {
        for (size_t i = 0; i < R; i++) {
            row_add(x + i * C, more + i * C, C);
            normalise_row(y + i * C, m + i, r + i, x + i * C, w, b, C);
        }
    }
    return simgpu_end(&op);
}

// One row's share of all three gradients. dx serves as the place for g, then for its own result.
static void backward_row(float *restrict dx, float *restrict dweight, float *restrict dbias,
                         const float *restrict dy, const float *restrict x,
                         const float *restrict weight, float mean, float rstd, size_t C)
{
#pragma omp simd
    for (size_t c = 0; c < C; c++) {
        dx[c] = dy[c] * weight[c];
        dweight[c] += dy[c] * ((x[c] - mean) * rstd);
        dbias[c] += dy[c];
    }
    // mean(g·x̂) = rstd·(Σ g·x - mean·Σ g)/C would cancel where the mean is large; so x̂ is made
    // again.
    RowLanes products = {0};
    size_t c = 0;
    for (; c + ROW_LANES <= C; c += ROW_LANES) {
        RowLanes g, values;
        memcpy(&g, dx + c, sizeof g);
        memcpy(&values, x + c, sizeof values);
        products += g * ((values - mean) * rstd);
    }
    if (c < C) {
        RowLanes g, values;
        row_load_tail(&g, dx + c, C - c);
        row_load_tail(&values, x + c, C - c);
        products += g * ((values - mean) * rstd);
    }
    float mean_g = row_sum(dx, C) / (float)C, mean_gx = row_add_lanes(&products) / (float)C;
#pragma omp simd
    for (size_t i = 0; i < C; i++) dx[i] = rstd * (dx[i] - mean_g - (x[i] - mean) * rstd * mean_gx);
}

cudaError_t kernel_layernorm_backward(float *din, float *dweight, float *dbias, const float *dout,
                                      const float *in, const float *weight, const float *mean,
                                      const float *rstd, const float *residual, int rows, int cols,
                                      cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_layernorm_backward", stream);
    size_t R = (size_t)rows, C = (size_t)cols;
    float *dx = simgpu_write(&op, din, R * C * sizeof *din);
    float *dw = simgpu_update(&op, dweight, C * sizeof *dweight);
    float *db = simgpu_update(&op, dbias, C * sizeof *dbias);
    const float *dy = simgpu_read(&op, dout, R * C * sizeof *dout);
    const float *x = simgpu_read(&op, in, R * C * sizeof *in);
    const float *w = simgpu_read(&op, weight, C * sizeof *weight);
    const float *m = simgpu_read(&op, mean, R * sizeof *mean);
    const float *r = simgpu_read(&op, rstd, R * sizeof *rstd);
    const float *more =
        residual != NULL ? simgpu_read(&op, residual, R * C * sizeof *residual) : NULL;
    simgpu_cost(&op, 14 * R * C, GPU_F32);
    if (simgpu_ready(&op)) {
        for (size_t i = 0; i < R; i++) {
            backward_row(dx + i * C, dw, db, dy + i * C, x + i * C, w, m[i], r[i], C);
            if (more != NULL) row_add(dx + i * C, more + i * C, C);
        }
    }
    return simgpu_end(&op);
}
