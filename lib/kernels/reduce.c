/* reduce.c: kernels that add many numbers up.
 *
 * Every sum has an order of its own that depends on the sizes alone, never on addresses or timing.
 *
 * Interface: kernel_sum_squares, kernel_mean, kernel_sum_rows, kernel_sum_rows_ex.
 */
#include "kernels.h"
#include "rows.h"
#include "typed.h"

// Eight sums side by side, so that one addition need not wait for the one before.
#define LANES 8

static double add_up(const double *lane)
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

cudaError_t kernel_sum_squares(double *sum, const float *x, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_sum_squares", stream);
    double *total = simgpu_update(&op, sum, sizeof *sum);
    const float *data = simgpu_read(&op, x, n * sizeof *x);
    simgpu_cost(&op, 2 * n, GPU_F64);
    if (simgpu_ready(&op)) {
        double lane[LANES] = {0};
        size_t i = 0;
        for (; i + LANES <= n; i += LANES)
            for (size_t j = 0; j < LANES; j++) lane[j] += (double)data[i + j] * data[i + j];
        for (size_t j = 0; i + j < n; j++) lane[j] += (double)data[i + j] * data[i + j];
        *total += add_up(lane);
    }
    return simgpu_end(&op);
}

cudaError_t kernel_mean(float *mean, const float *x, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_mean", stream);
    float *out = simgpu_write(&op, mean, sizeof *mean);
    const float *data = simgpu_read(&op, x, n * sizeof *x);
    simgpu_cost(&op, n, GPU_F64);
    if (simgpu_ready(&op)) {
        double lane[LANES] = {0};
        size_t i = 0;
        for (; i + LANES <= n; i += LANES)
            for (size_t j = 0; j < LANES; j++) lane[j] += data[i + j];
        for (size_t j = 0; i + j < n; j++) lane[j] += data[i + j];
        *out = (float)(add_up(lane) / (double)n);
    }
    return simgpu_end(&op);
}

static cudaError_t sum_rows_of(SimgpuOp *op, DType type, void *out, const void *x, int rows,
                               int cols)
{
    size_t width = (size_t)cols, all = (size_t)rows * width;
    void *to = typed_update(op, type, out, width);
    const void *from = typed_read(op, type, x, all);
    simgpu_cost(op, all, GPU_F32);
    for (size_t first = 0; first < width && simgpu_ready(op); first += ROW_BLOCK) {
        size_t n = width - first < ROW_BLOCK ? width - first : ROW_BLOCK;
        float sum[ROW_BLOCK] = {0}, copy[ROW_BLOCK];
        for (size_t at = first; at < all; at += width)
            row_add(sum, typed_load(type, copy, from, at, n), n);
        float *total = typed_open(type, copy, to, first, n);
        row_add(total, sum, n);
        typed_store(type, to, first, total, n);
    }
    return simgpu_end(op);
}

cudaError_t kernel_sum_rows(float *out, const float *x, int rows, int cols, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_sum_rows", stream);
    return sum_rows_of(&op, DTYPE_F32, out, x, rows, cols);
}

cudaError_t kernel_sum_rows_ex(DType type, void *out, const void *x, int rows, int cols,
                               cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_sum_rows", type, stream);
    return sum_rows_of(&op, type, out, x, rows, cols);
}
