/* layernorm.c: layer normalisation (Ba, Kiros & Hinton 2016) over the columns of each row.
 *
 * With x̂ = (x - mean)·rstd, forward is y = x̂·weight + bias. Backward, with g = dy·weight:
 * dx = rstd·(g - mean(g) - x̂·mean(g·x̂)), because mean and rstd themselves depend on
 * every x of the row.
 *
 * A residual connection is an addition before a layer norm in the forward, and after it in the
 * backward. It is done here, while the row is still in the nearest cache.
 */
#include <math.h>

#include "kernels.h"
#include "pieces.h"
#include "rows.h"
#include "typed.h"

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

// ---- Forward ----

// out, mean, rstd from x (rows, cols), to which `residual` is added first unless it is NULL.
typedef struct Forward {
    DType type;
    void *out, *x;
    float *mean, *rstd;
    const void *residual, *weight, *bias;
    size_t rows, cols;
    atomic_bool failed; // for want of memory
} Forward;

// The sum is rounded before it is normalised: the backward reads the sum that is stored.
static void normalise_rows(void *arg, size_t begin, size_t end)
{
    Forward *f = arg;
    DType type = f->type;
    size_t C = f->cols;
    float *copies = NULL;
    if (!typed_room(type, &copies, 4 * C, &f->failed)) return;
    const float *weight = typed_load(type, copies, f->weight, 0, C);
    const float *bias = typed_load(type, typed_part(copies, C), f->bias, 0, C);
    float *copy_x = typed_part(copies, 2 * C), *copy_y = typed_part(copies, 3 * C);
    for (size_t r = begin; r < end; r++) {
        float *x = typed_open(type, copy_x, f->x, r * C, C);
        if (f->residual != NULL) {
            row_add(x, typed_load(type, copy_y, f->residual, r * C, C), C);
            typed_store(type, f->x, r * C, x, C);
            typed_round(type, x, C);
        }
        float *y = typed_place(type, copy_y, f->out, r * C);
        normalise_row(y, f->mean + r, f->rstd + r, x, weight, bias, C);
        typed_store(type, f->out, r * C, y, C);
    }
    free(copies);
}

static cudaError_t run_forward(SimgpuOp *op, Forward *f)
{
    if (simgpu_ready(op)) {
        simgpu_parallel(f->rows, piece_rows(f->cols), normalise_rows, f);
        typed_check_room(op, &f->failed);
    }
    return simgpu_end(op);
}

static cudaError_t layernorm_forward_of(SimgpuOp *op, DType type, void *out, float *mean,
                                        float *rstd, const void *in, const void *weight,
                                        const void *bias, int rows, int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    Forward f = {.type = type, .rows = R, .cols = C};
    f.out = typed_write(op, type, out, R * C);
    f.mean = simgpu_write(op, mean, R * sizeof *mean);
    f.rstd = simgpu_write(op, rstd, R * sizeof *rstd);
    f.x = (void *)typed_read(op, type, in, R * C); // without a residual it is only read
    f.weight = typed_read(op, type, weight, C);
    f.bias = typed_read(op, type, bias, C);
    simgpu_cost(op, 8 * R * C, GPU_F32);
    return run_forward(op, &f);
}

cudaError_t kernel_layernorm_forward(float *out, float *mean, float *rstd, const float *in,
                                     const float *weight, const float *bias, int rows, int cols,
                                     cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_layernorm_forward", stream, kernel_layernorm_forward, out,
                               mean, rstd, in, weight, bias, rows, cols);
    return layernorm_forward_of(&op, DTYPE_F32, out, mean, rstd, in, weight, bias, rows, cols);
}

cudaError_t kernel_layernorm_forward_ex(DType type, void *out, float *mean, float *rstd,
                                        const void *in, const void *weight, const void *bias,
                                        int rows, int cols, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_layernorm_forward", type, stream, kernel_layernorm_forward_ex,
                              type, out, mean, rstd, in, weight, bias, rows, cols);
    return layernorm_forward_of(&op, type, out, mean, rstd, in, weight, bias, rows, cols);
}

static cudaError_t residual_forward_of(SimgpuOp *op, DType type, void *out, float *mean,
                                       float *rstd, void *sum, const void *residual,
                                       const void *weight, const void *bias, int rows, int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    Forward f = {.type = type, .rows = R, .cols = C};
    f.out = typed_write(op, type, out, R * C);
    f.mean = simgpu_write(op, mean, R * sizeof *mean);
    f.rstd = simgpu_write(op, rstd, R * sizeof *rstd);
    f.x = typed_update(op, type, sum, R * C);
    f.residual = typed_read(op, type, residual, R * C);
    f.weight = typed_read(op, type, weight, C);
    f.bias = typed_read(op, type, bias, C);
    simgpu_cost(op, 9 * R * C, GPU_F32);
    return run_forward(op, &f);
}

cudaError_t kernel_residual_layernorm_forward(float *out, float *mean, float *rstd, float *sum,
                                              const float *residual, const float *weight,
                                              const float *bias, int rows, int cols,
                                              cudaStream_t stream)
{
    SimgpuOp op =
        SIMGPU_BEGIN("kernel_residual_layernorm_forward", stream, kernel_residual_layernorm_forward,
                     out, mean, rstd, sum, residual, weight, bias, rows, cols);
    return residual_forward_of(&op, DTYPE_F32, out, mean, rstd, sum, residual, weight, bias, rows,
                               cols);
}

cudaError_t kernel_residual_layernorm_forward_ex(DType type, void *out, float *mean, float *rstd,
                                                 void *sum, const void *residual,
                                                 const void *weight, const void *bias, int rows,
                                                 int cols, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_residual_layernorm_forward", type, stream,
                              kernel_residual_layernorm_forward_ex, type, out, mean, rstd, sum,
                              residual, weight, bias, rows, cols);
    return residual_forward_of(&op, type, out, mean, rstd, sum, residual, weight, bias, rows, cols);
}

// ---- Backward ----

// dx = dy·weight, and one row's share of dweight and dbias.
static void scale_and_add_row(float *restrict dx, float *restrict dweight, float *restrict dbias,
                              const float *restrict dy, const float *restrict x,
                              const float *restrict weight, float mean, float rstd, size_t C)
{
#pragma omp simd
    for (size_t c = 0; c < C; c++) {
        dx[c] = dy[c] * weight[c];
        dweight[c] += dy[c] * ((x[c] - mean) * rstd);
        dbias[c] += dy[c];
    }
}

// These two are the same in parts, with the same bits.
static void scale_row(float *restrict dx, const float *restrict dy, const float *restrict weight,
                      size_t C)
{
#pragma omp simd
    for (size_t c = 0; c < C; c++) dx[c] = dy[c] * weight[c];
}

static void add_row(float *restrict dweight, float *restrict dbias, const float *restrict dy,
                    const float *restrict x, float mean, float rstd, size_t C)
{
#pragma omp simd
    for (size_t c = 0; c < C; c++) {
        dweight[c] += dy[c] * ((x[c] - mean) * rstd);
        dbias[c] += dy[c];
    }
}

// dx is g, and becomes one row's result.
static void backward_row(float *restrict dx, const float *restrict x, float mean, float rstd,
                         size_t C)
{
    // mean(g·x̂) = rstd·(Σ g·x - mean·Σ g)/C would cancel where the mean is large; so x̂ is made
    // again.
    RowLanes products = {0};
    size_t c = 0;
    for (; c + ROW_LANES <= C; c += ROW_LANES) EACH_PART(p)
    products.part[p] += row_part(dx + c, p) * ((row_part(x + c, p) - mean) * rstd);
    if (c < C) {
        float lanes_g[ROW_LANES], lanes_x[ROW_LANES];
        const float *g = row_tail(lanes_g, dx + c, C - c), *rest = row_tail(lanes_x, x + c, C - c);
        EACH_PART(p) products.part[p] += row_part(g, p) * ((row_part(rest, p) - mean) * rstd);
    }
    float mean_g = row_sum(dx, C) / (float)C, mean_gx = row_add_lanes(&products) / (float)C;
#pragma omp simd
    for (size_t i = 0; i < C; i++) dx[i] = rstd * (dx[i] - mean_g - (x[i] - mean) * rstd * mean_gx);
}

// What a backward reads and writes.
typedef struct Backward {
    void *dx, *dweight, *dbias;
    const void *dy, *x, *weight, *residual; // residual: NULL for none
    const float *mean, *rstd;
    DType type;
    size_t rows, cols;
    bool summed;        // the rows' pass has made dweight and dbias too
    atomic_bool failed; // for want of memory
} Backward;

// [Note: two passes] One thread makes all three gradients in one pass over the rows. Several share
// the rows for dx, and then the columns for dweight and dbias, each of which remains a sum over the
// rows in their order. The residual is added to what is stored without one.
static void backward_rows(void *arg, size_t begin, size_t end)
{
    Backward *b = arg;
    DType type = b->type;
    size_t C = b->cols;
    bool alone = begin == 0 && end == b->rows;
    float *copies = NULL;
    if (!typed_room(type, &copies, 6 * C, &b->failed)) return;
    const float *weight = typed_load(type, copies, b->weight, 0, C);
    float *dweight = NULL, *dbias = NULL;
    if (alone) {
        dweight = typed_open(type, typed_part(copies, C), b->dweight, 0, C);
        dbias = typed_open(type, typed_part(copies, 2 * C), b->dbias, 0, C);
    }
    float *copy_dy = typed_part(copies, 3 * C), *copy_x = typed_part(copies, 4 * C);
    float *copy_dx = typed_part(copies, 5 * C);
    for (size_t r = begin; r < end; r++) {
        const float *dy = typed_load(type, copy_dy, b->dy, r * C, C);
        const float *x = typed_load(type, copy_x, b->x, r * C, C);
        float *dx = typed_place(type, copy_dx, b->dx, r * C);
        if (alone)
            scale_and_add_row(dx, dweight, dbias, dy, x, weight, b->mean[r], b->rstd[r], C);
        else
            scale_row(dx, dy, weight, C);
        backward_row(dx, x, b->mean[r], b->rstd[r], C);
        if (b->residual != NULL) {
            typed_round(type, dx, C);
            row_add(dx, typed_load(type, copy_x, b->residual, r * C, C), C);
        }
        typed_store(type, b->dx, r * C, dx, C);
    }
    if (alone) {
        typed_store(type, b->dweight, 0, dweight, C);
        typed_store(type, b->dbias, 0, dbias, C);
        b->summed = true;
    }
    free(copies);
}

static void backward_columns_of(void *arg, size_t begin, size_t end)
{
    const Backward *b = arg;
    DType type = b->type;
    for (size_t c = begin, n; c < end; c += n) {
        float copy_w[ROW_BLOCK], copy_b[ROW_BLOCK], copy_dy[ROW_BLOCK], copy_x[ROW_BLOCK];
        n = end - c < ROW_BLOCK ? end - c : ROW_BLOCK;
        float *dweight = typed_open(type, copy_w, b->dweight, c, n);
        float *dbias = typed_open(type, copy_b, b->dbias, c, n);
        for (size_t r = 0; r < b->rows; r++) {
            const float *dy = typed_load(type, copy_dy, b->dy, r * b->cols + c, n);
            const float *x = typed_load(type, copy_x, b->x, r * b->cols + c, n);
            add_row(dweight, dbias, dy, x, b->mean[r], b->rstd[r], n);
        }
        typed_store(type, b->dweight, c, dweight, n);
        typed_store(type, b->dbias, c, dbias, n);
    }
}

static cudaError_t layernorm_backward_of(SimgpuOp *op, DType type, Backward b, int rows, int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    b.type = type;
    b.rows = R;
    b.cols = C;
    b.dx = typed_write(op, type, b.dx, R * C);
    b.dweight = typed_update(op, type, b.dweight, C);
    b.dbias = typed_update(op, type, b.dbias, C);
    b.dy = typed_read(op, type, b.dy, R * C);
    b.x = typed_read(op, type, b.x, R * C);
    b.weight = typed_read(op, type, b.weight, C);
    b.mean = simgpu_read(op, b.mean, R * sizeof *b.mean);
    b.rstd = simgpu_read(op, b.rstd, R * sizeof *b.rstd);
    if (b.residual != NULL) b.residual = typed_read(op, type, b.residual, R * C);
    simgpu_cost(op, 14 * R * C, GPU_F32);
    if (simgpu_ready(op)) {
        simgpu_parallel(R, piece_rows(C), backward_rows, &b);
        if (!b.summed && !atomic_load(&b.failed))
            simgpu_parallel(C, piece_cols(R), backward_columns_of, &b);
        typed_check_room(op, &b.failed);
    }
    return simgpu_end(op);
}

cudaError_t kernel_layernorm_backward(float *din, float *dweight, float *dbias, const float *dout,
                                      const float *in, const float *weight, const float *mean,
                                      const float *rstd, const float *residual, int rows, int cols,
                                      cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_layernorm_backward", stream, kernel_layernorm_backward, din,
                               dweight, dbias, dout, in, weight, mean, rstd, residual, rows, cols);
    Backward b = {din, dweight, dbias, dout, in, weight, residual, mean, rstd, .summed = false};
    return layernorm_backward_of(&op, DTYPE_F32, b, rows, cols);
}

cudaError_t kernel_layernorm_backward_ex(DType type, void *din, void *dweight, void *dbias,
                                         const void *dout, const void *in, const void *weight,
                                         const float *mean, const float *rstd, const void *residual,
                                         int rows, int cols, cudaStream_t stream)
{
    SimgpuOp op =
        TYPED_BEGIN("kernel_layernorm_backward", type, stream, kernel_layernorm_backward_ex, type,
                    din, dweight, dbias, dout, in, weight, mean, rstd, residual, rows, cols);
    Backward b = {din, dweight, dbias, dout, in, weight, residual, mean, rstd, .summed = false};
    return layernorm_backward_of(&op, type, b, rows, cols);
}
