/* rmsnorm.c: root mean square normalisation (Zhang & Sennrich 2019) over the columns of each row.
 *
 * With x̂ = x·rstd, rstd = 1/√(mean(x²) + eps), forward is y = x̂·weight. Backward, with
 * g = dy·weight: dx = rstd·(g - x̂·mean(g·x̂)), because rstd depends on every x of the row.
 *
 * As in layernorm.c a residual is added on the way: before the forward, after the backward.
 */
#include <math.h>

#include "kernels.h"
#include "pieces.h"
#include "rows.h"
#include "typed.h"

enum { RMSNORM = 4, RMSNORM_BACK = 9 }; // FLOP of one element

// ---- Forward ----

// out, rstd from x (rows, cols), to which `residual` is added first unless it is NULL.
typedef struct RmsForward {
    DType type;
    void *out, *x;
    float *rstd;
    const void *residual, *weight;
    size_t rows, cols;
    float eps;
    atomic_bool failed; // for want of memory
} RmsForward;

static float rms_normalise_row(float *restrict y, const float *restrict x,
                               const float *restrict weight, size_t C, float eps)
{
    float r = 1.0f / sqrtf(row_dot(x, x, C) / (float)C + eps);
#pragma omp simd
    for (size_t c = 0; c < C; c++) y[c] = x[c] * r * weight[c];
    return r;
}

// The sum is rounded before it is normalised: the backward reads the sum that is stored.
static void rms_normalise_rows(void *arg, size_t begin, size_t end)
{
    RmsForward *f = arg;
    DType type = f->type;
    size_t C = f->cols;
    float *copies = NULL;
    if (!typed_room(type, &copies, 3 * C, &f->failed)) return;
    const float *weight = typed_load(type, copies, f->weight, 0, C);
    float *copy_x = typed_part(copies, C), *copy_y = typed_part(copies, 2 * C);
    for (size_t r = begin; r < end; r++) {
        float *x = typed_open(type, copy_x, f->x, r * C, C);
        if (f->residual != NULL) {
            row_add(x, typed_load(type, copy_y, f->residual, r * C, C), C);
            typed_store(type, f->x, r * C, x, C);
            typed_round(type, x, C);
        }
        float *y = typed_place(type, copy_y, f->out, r * C);
        f->rstd[r] = rms_normalise_row(y, x, weight, C, f->eps);
        typed_store(type, f->out, r * C, y, C);
    }
    free(copies);
}

// f's pointers are the caller's. With a residual `x` is updated, else it is only read.
static cudaError_t rmsnorm_forward_of(SimgpuOp *op, DType type, RmsForward f, int rows, int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    bool adds = f.residual != NULL;
    f.type = type;
    f.rows = R;
    f.cols = C;
    f.out = typed_write(op, type, f.out, R * C);
    f.rstd = simgpu_write(op, f.rstd, R * sizeof *f.rstd);
    f.x = adds ? typed_update(op, type, f.x, R * C) : (void *)typed_read(op, type, f.x, R * C);
    if (adds) f.residual = typed_read(op, type, f.residual, R * C);
    f.weight = typed_read(op, type, f.weight, C);
    simgpu_cost(op, (size_t)(RMSNORM + adds) * R * C, GPU_F32);
    if (simgpu_ready(op)) {
        simgpu_parallel(R, piece_rows(C), rms_normalise_rows, &f);
        typed_check_room(op, &f.failed);
    }
    return simgpu_end(op);
}

cudaError_t kernel_rmsnorm_forward(float *out, float *rstd, const float *in, const float *weight,
                                   int rows, int cols, float eps, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_rmsnorm_forward", stream, kernel_rmsnorm_forward, out, rstd,
                               in, weight, rows, cols, eps);
    RmsForward f = {.out = out, .x = (void *)in, .rstd = rstd, .weight = weight, .eps = eps};
    return rmsnorm_forward_of(&op, DTYPE_F32, f, rows, cols);
}

cudaError_t kernel_rmsnorm_forward_ex(DType type, void *out, float *rstd, const void *in,
                                      const void *weight, int rows, int cols, float eps,
                                      cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_rmsnorm_forward", type, stream, kernel_rmsnorm_forward_ex,
                              type, out, rstd, in, weight, rows, cols, eps);
    RmsForward f = {.out = out, .x = (void *)in, .rstd = rstd, .weight = weight, .eps = eps};
    return rmsnorm_forward_of(&op, type, f, rows, cols);
}

cudaError_t kernel_residual_rmsnorm_forward(float *out, float *rstd, float *sum,
                                            const float *residual, const float *weight, int rows,
                                            int cols, float eps, cudaStream_t stream)
{
    SimgpuOp op =
        SIMGPU_BEGIN("kernel_residual_rmsnorm_forward", stream, kernel_residual_rmsnorm_forward,
                     out, rstd, sum, residual, weight, rows, cols, eps);
    RmsForward f = {
        .out = out, .x = sum, .rstd = rstd, .residual = residual, .weight = weight, .eps = eps};
    return rmsnorm_forward_of(&op, DTYPE_F32, f, rows, cols);
}

cudaError_t kernel_residual_rmsnorm_forward_ex(DType type, void *out, float *rstd, void *sum,
                                               const void *residual, const void *weight, int rows,
                                               int cols, float eps, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_residual_rmsnorm_forward", type, stream,
                              kernel_residual_rmsnorm_forward_ex, type, out, rstd, sum, residual,
                              weight, rows, cols, eps);
    RmsForward f = {
        .out = out, .x = sum, .rstd = rstd, .residual = residual, .weight = weight, .eps = eps};
    return rmsnorm_forward_of(&op, type, f, rows, cols);
}

// ---- Backward ----

// What a backward reads and writes.
typedef struct RmsBackward {
    void *dx, *dweight;
    const void *dy, *x, *weight, *residual; // residual: NULL for none
    const float *rstd;
    DType type;
    size_t rows, cols;
    bool summed;        // the rows' pass has made dweight too
    atomic_bool failed; // for want of memory
} RmsBackward;

// dx = dy·weight, and one row's share of dweight.
static void rms_scale_and_add_row(float *restrict dx, float *restrict dweight,
                                  const float *restrict dy, const float *restrict x,
                                  const float *restrict weight, float rstd, size_t C)
{
#pragma omp simd
    for (size_t c = 0; c < C; c++) {
        dx[c] = dy[c] * weight[c];
        dweight[c] += dy[c] * (x[c] * rstd);
    }
}

// These two are the same in parts, with the same bits.
static void rms_scale_row(float *restrict dx, const float *restrict dy,
                          const float *restrict weight, size_t C)
{
#pragma omp simd
    for (size_t c = 0; c < C; c++) dx[c] = dy[c] * weight[c];
}

static void rms_add_row(float *restrict dweight, const float *restrict dy, const float *restrict x,
                        float rstd, size_t C)
{
#pragma omp simd
    for (size_t c = 0; c < C; c++) dweight[c] += dy[c] * (x[c] * rstd);
}

// dx is g, and becomes one row's result.
static void rms_backward_row(float *restrict dx, const float *restrict x, float rstd, size_t C)
{
    float mean_gx = rstd * row_dot(dx, x, C) / (float)C;
#pragma omp simd
    for (size_t c = 0; c < C; c++) dx[c] = rstd * (dx[c] - x[c] * rstd * mean_gx);
}

// In one pass or in two, as layernorm.c's. The residual is added to what is stored without one.
static void rms_backward_rows(void *arg, size_t begin, size_t end)
{
    RmsBackward *b = arg;
    DType type = b->type;
    size_t C = b->cols;
    bool alone = begin == 0 && end == b->rows;
    float *copies = NULL;
    if (!typed_room(type, &copies, 5 * C, &b->failed)) return;
    const float *weight = typed_load(type, copies, b->weight, 0, C);
    float *dweight = NULL;
    if (alone) dweight = typed_open(type, typed_part(copies, C), b->dweight, 0, C);
    float *copy_dy = typed_part(copies, 2 * C), *copy_x = typed_part(copies, 3 * C);
    float *copy_dx = typed_part(copies, 4 * C);
    for (size_t r = begin; r < end; r++) {
        const float *dy = typed_load(type, copy_dy, b->dy, r * C, C);
        const float *x = typed_load(type, copy_x, b->x, r * C, C);
        float *dx = typed_place(type, copy_dx, b->dx, r * C);
        if (alone)
            rms_scale_and_add_row(dx, dweight, dy, x, weight, b->rstd[r], C);
        else
            rms_scale_row(dx, dy, weight, C);
        rms_backward_row(dx, x, b->rstd[r], C);
        if (b->residual != NULL) {
            typed_round(type, dx, C);
            row_add(dx, typed_load(type, copy_x, b->residual, r * C, C), C);
        }
        typed_store(type, b->dx, r * C, dx, C);
    }
    if (alone) {
        typed_store(type, b->dweight, 0, dweight, C);
        b->summed = true;
    }
    free(copies);
}

static void rms_backward_columns(void *arg, size_t begin, size_t end)
{
    const RmsBackward *b = arg;
    DType type = b->type;
    for (size_t c = begin, n; c < end; c += n) {
        float copy_w[ROW_BLOCK], copy_dy[ROW_BLOCK], copy_x[ROW_BLOCK];
        n = end - c < ROW_BLOCK ? end - c : ROW_BLOCK;
        float *dweight = typed_open(type, copy_w, b->dweight, c, n);
        for (size_t r = 0; r < b->rows; r++) {
            const float *dy = typed_load(type, copy_dy, b->dy, r * b->cols + c, n);
            const float *x = typed_load(type, copy_x, b->x, r * b->cols + c, n);
            rms_add_row(dweight, dy, x, b->rstd[r], n);
        }
        typed_store(type, b->dweight, c, dweight, n);
    }
}

static cudaError_t rmsnorm_backward_of(SimgpuOp *op, DType type, RmsBackward b, int rows, int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    b.type = type;
    b.rows = R;
    b.cols = C;
    b.dx = typed_write(op, type, b.dx, R * C);
    b.dweight = typed_update(op, type, b.dweight, C);
    b.dy = typed_read(op, type, b.dy, R * C);
    b.x = typed_read(op, type, b.x, R * C);
    b.weight = typed_read(op, type, b.weight, C);
    b.rstd = simgpu_read(op, b.rstd, R * sizeof *b.rstd);
    if (b.residual != NULL) b.residual = typed_read(op, type, b.residual, R * C);
    simgpu_cost(op, (size_t)(RMSNORM_BACK + (b.residual != NULL)) * R * C, GPU_F32);
    if (simgpu_ready(op)) {
        simgpu_parallel(R, piece_rows(C), rms_backward_rows, &b);
        if (!b.summed && !atomic_load(&b.failed))
            simgpu_parallel(C, piece_cols(R), rms_backward_columns, &b);
        typed_check_room(op, &b.failed);
    }
    return simgpu_end(op);
}

cudaError_t kernel_rmsnorm_backward(float *din, float *dweight, const float *dout, const float *in,
                                    const float *weight, const float *rstd, const float *residual,
                                    int rows, int cols, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_rmsnorm_backward", stream, kernel_rmsnorm_backward, din,
                               dweight, dout, in, weight, rstd, residual, rows, cols);
    RmsBackward b = {din, dweight, dout, in, weight, residual, rstd, .summed = false};
    return rmsnorm_backward_of(&op, DTYPE_F32, b, rows, cols);
}

cudaError_t kernel_rmsnorm_backward_ex(DType type, void *din, void *dweight, const void *dout,
                                       const void *in, const void *weight, const float *rstd,
                                       const void *residual, int rows, int cols,
                                       cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_rmsnorm_backward", type, stream, kernel_rmsnorm_backward_ex,
                              type, din, dweight, dout, in, weight, rstd, residual, rows, cols);
    RmsBackward b = {din, dweight, dout, in, weight, residual, rstd, .summed = false};
    return rmsnorm_backward_of(&op, type, b, rows, cols);
}
