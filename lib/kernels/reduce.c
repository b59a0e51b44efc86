/* reduce.c: kernels that add many numbers up.
 *
 * Every sum has an order of its own that depends on the sizes alone, never on addresses or timing.
 *
 * Interface: kernel_sum_squares, kernel_mean, kernel_sum_rows.
 */
#include "kernels.h"
#include "rows.h"
#include "simgpu.h"

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

cudaError_t kernel_sum_rows(float *out, const float *x, int rows, int cols, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_sum_rows", stream);
    size_t width = (size_t)cols;
    float *to = simgpu_update(&op, out, width * sizeof *out);
    const float *from = simgpu_read(&op, x, (size_t)rows * width * sizeof *x);
    simgpu_cost(&op, (size_t)rows * width, GPU_F32);
    if (simgpu_ready(&op)) {
        for (size_t first = 0; first < width; first += ROW_BLOCK) {
            size_t n = width - first < ROW_BLOCK ? width - first : ROW_BLOCK;
            float sum[ROW_BLOCK] = {0};
            for (size_t r = 0; r < (size_t)rows; r++) row_add(sum, from + r * width + first, n);
            row_add(to + first, sum, n);
        }
    }
    return simgpu_end(&op);
}
