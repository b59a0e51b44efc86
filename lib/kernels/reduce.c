/* reduce.c: kernels that add many numbers up.
 *
 * The order of every sum depends on the sizes alone, never on addresses or timing.
 */
#include "kernels.h"
#include "pieces.h"
#include "rows.h"
#include "typed.h"

// Eight sums side by side, so that one addition need not wait for the one before.
#define LANES 8

static double add_up(const double *lane)
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static double sum_of_squares(const float *data, size_t n)
{
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++) lane[j] += (double)data[i + j] * data[i + j];
    for (size_t j = 0; i + j < n; j++) lane[j] += (double)data[i + j] * data[i + j];
    return add_up(lane);
}

// The sums of blocks, which are added in the order of the blocks.
enum { LEAST_BLOCK = 1 << 16, MOST_BLOCKS = 64 };
typedef struct Squares {
    const float *data;
    size_t block;
    double sum[MOST_BLOCKS];
} Squares;

static void sum_block_squares(void *arg, size_t begin, size_t end)
{
    Squares *s = arg;
    for (size_t i = begin; i < end; i += s->block)
        s->sum[i / s->block] = sum_of_squares(s->data + i, end - i < s->block ? end - i : s->block);
}

cudaError_t kernel_sum_squares(double *sum, const float *x, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_sum_squares", stream, kernel_sum_squares, sum, x, n);
    double *total = simgpu_update(&op, sum, sizeof *sum);
    Squares s = {.data = simgpu_read(&op, x, n * sizeof *x), .block = LEAST_BLOCK};
    simgpu_cost(&op, 2 * n, GPU_F64);
    if (simgpu_ready(&op)) {
        if (n > MOST_BLOCKS * s.block) s.block = (n + MOST_BLOCKS - 1) / MOST_BLOCKS;
        simgpu_parallel(n, s.block, sum_block_squares, &s);
        double all = s.sum[0];
        for (size_t i = 1; i * s.block < n; i++) all += s.sum[i];
        *total += all;
    }
    return simgpu_end(&op);
}

cudaError_t kernel_mean(float *mean, const float *x, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_mean", stream, kernel_mean, mean, x, n);
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

typedef struct RowSum {
    DType type;
    void *to;
    const void *from;
    size_t rows, width;
} RowSum;

static void sum_columns(void *arg, size_t begin, size_t end)
{
    const RowSum *s = arg;
    row_add_all(s->type, s->to, s->from, s->rows, s->width, begin, end);
}

static cudaError_t sum_rows_of(SimgpuOp *op, DType type, void *out, const void *x, int rows,
                               int cols)
{
    size_t width = (size_t)cols, all = (size_t)rows * width;
    RowSum s = {.type = type, .rows = (size_t)rows, .width = width};
    s.to = typed_update(op, type, out, width);
    s.from = typed_read(op, type, x, all);
    simgpu_cost(op, all, GPU_F32);
    if (simgpu_ready(op)) simgpu_parallel(width, piece_cols((size_t)rows), sum_columns, &s);
    return simgpu_end(op);
}

cudaError_t kernel_sum_rows(float *out, const float *x, int rows, int cols, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_sum_rows", stream, kernel_sum_rows, out, x, rows, cols);
    return sum_rows_of(&op, DTYPE_F32, out, x, rows, cols);
}

cudaError_t kernel_sum_rows_ex(DType type, void *out, const void *x, int rows, int cols,
                               cudaStream_t stream)
{
    SimgpuOp op =
        TYPED_BEGIN("kernel_sum_rows", type, stream, kernel_sum_rows_ex, type, out, x, rows, cols);
    return sum_rows_of(&op, type, out, x, rows, cols);
}
