/* gelu.c: the Gaussian error linear unit in its tanh form (Hendrycks & Gimpel 2016).
 *
 * gelu(x) = x/2 · (1 + tanh u) with u = √(2/π)·(x + 0.044715·x³). Since (1 + tanh u)/2 is the
 * sigmoid of 2u, it is computed as x · sigmoid(2u): no difference of nearly equal numbers for
 * negative x.
 */
#include <math.h>
#include <string.h>

#include "kernels.h"
#include "pieces.h"
#include "rows.h"
#include "typed.h"
#include "vector_math.h"

enum { GELU = 9, GELU_SLOPE = 18 }; // FLOP of one

static const float TWO_ROOT = 1.5957691216f; // 2·√(2/π)
static const float CUBE = 0.044715f;

static inline float gelu(float x)
{
    float twice_u = TWO_ROOT * vm_fma(CUBE * x * x, x, x);
    return x * vm_sigmoid(twice_u);
}

// gelu'(x)
static inline float gelu_slope(float x)
{
    float square = x * x;
    float twice_u = TWO_ROOT * vm_fma(CUBE * square, x, x);
    // The sigmoid s and its slope s·(1-s) from e^-|2u|, so that no 1 - s loses digits.
    float e = vm_exp(-fabsf(twice_u)), q = 1.0f / (1.0f + e);
    float s = twice_u < 0.0f ? e * q : q;
    float slope = TWO_ROOT * vm_fma(3.0f * CUBE, square, 1.0f); // of 2u
    return vm_fma(x * (e * q * q), slope, s);
}

// ---- GELU ----

typedef struct Gelu {
    DType type;
    void *to;
    const void *gradient, *from;
} Gelu;

static void gelu_piece(void *arg, size_t begin, size_t end)
{
    const Gelu *g = arg;
    DType type = g->type;
    for (size_t i = begin; i < end; i += typed_step(type, end)) {
        float copy_x[TYPED_BLOCK], copy_y[TYPED_BLOCK];
        size_t count = typed_count(type, end, i);
        const float *restrict x = typed_load(type, copy_x, g->from, i, count);
        float *restrict y = typed_place(type, copy_y, g->to, i);
#pragma omp simd
        for (size_t j = 0; j < count; j++) y[j] = gelu(x[j]);
        typed_store(type, g->to, i, y, count);
    }
}

static cudaError_t gelu_forward_of(SimgpuOp *op, DType type, void *out, const void *in, size_t n)
{
    Gelu g = {.type = type, .to = typed_write(op, type, out, n)};
    g.from = typed_read(op, type, in, n);
    simgpu_cost(op, GELU * n, GPU_F32);
    if (simgpu_ready(op)) simgpu_parallel(n, PIECE, gelu_piece, &g);
    return simgpu_end(op);
}

cudaError_t kernel_gelu_forward(float *out, const float *in, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_gelu_forward", stream, kernel_gelu_forward, out, in, n);
    return gelu_forward_of(&op, DTYPE_F32, out, in, n);
}

cudaError_t kernel_gelu_forward_ex(DType type, void *out, const void *in, size_t n,
                                   cudaStream_t stream)
{
    SimgpuOp op =
        TYPED_BEGIN("kernel_gelu_forward", type, stream, kernel_gelu_forward_ex, type, out, in, n);
    return gelu_forward_of(&op, type, out, in, n);
}

// `to` may be `from`.
static void gelu_slope_piece(void *arg, size_t begin, size_t end)
{
    const Gelu *g = arg;
    DType type = g->type;
    for (size_t i = begin; i < end; i += typed_step(type, end)) {
        float copy_x[TYPED_BLOCK], copy_dy[TYPED_BLOCK], copy_dx[TYPED_BLOCK];
        size_t count = typed_count(type, end, i);
        const float *x = typed_load(type, copy_x, g->from, i, count);
        const float *dy = typed_load(type, copy_dy, g->gradient, i, count);
        float *dx = typed_place(type, copy_dx, g->to, i);
#pragma omp simd
        for (size_t j = 0; j < count; j++) dx[j] = dy[j] * gelu_slope(x[j]);
        typed_store(type, g->to, i, dx, count);
    }
}

static cudaError_t gelu_backward_of(SimgpuOp *op, DType type, void *din, const void *dout,
                                    const void *in, size_t n)
{
    Gelu g = {.type = type, .to = typed_write(op, type, din, n)};
    g.gradient = typed_read(op, type, dout, n);
    g.from = typed_read(op, type, in, n);
    simgpu_cost(op, GELU_SLOPE * n, GPU_F32);
    if (simgpu_ready(op)) simgpu_parallel(n, PIECE, gelu_slope_piece, &g);
    return simgpu_end(op);
}

cudaError_t kernel_gelu_backward(float *din, const float *dout, const float *in, size_t n,
                                 cudaStream_t stream)
{
    SimgpuOp op =
        SIMGPU_BEGIN("kernel_gelu_backward", stream, kernel_gelu_backward, din, dout, in, n);
    return gelu_backward_of(&op, DTYPE_F32, din, dout, in, n);
}

cudaError_t kernel_gelu_backward_ex(DType type, void *din, const void *dout, const void *in,
                                    size_t n, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_gelu_backward", type, stream, kernel_gelu_backward_ex, type,
                              din, dout, in, n);
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

typedef struct BiasGelu {
    DType type;
    void *to, *sum;
    const void *bias;
    size_t C;
} BiasGelu;

static void bias_gelu_rows(void *arg, size_t begin, size_t end)
{
    const BiasGelu *f = arg;
    DType type = f->type;
    size_t C = f->C;
    if (type == DTYPE_F32) {
        for (size_t r = begin; r < end; r++)
            add_and_gelu((float *)f->to + r * C, (float *)f->sum + r * C, f->bias, C);
        return;
    }
    for (size_t c = 0; c < C; c += TYPED_BLOCK) {
        float b[TYPED_BLOCK], x[TYPED_BLOCK], g[TYPED_BLOCK];
        size_t n = typed_count(type, C, c);
        typed_load(type, b, f->bias, c, n);
        for (size_t at = begin * C + c; at < end * C; at += C) {
            typed_load(type, x, f->sum, at, n);
            row_add(x, b, n);
            typed_store(type, f->sum, at, x, n);
            typed_round(type, x, n);
#pragma omp simd
            for (size_t i = 0; i < n; i++) g[i] = gelu(x[i]);
            typed_store(type, f->to, at, g, n);
        }
    }
}

static cudaError_t bias_gelu_forward_of(SimgpuOp *op, DType type, void *out, void *y,
                                        const void *bias, int rows, int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    BiasGelu f = {.type = type, .C = C, .to = typed_write(op, type, out, R * C)};
    f.sum = typed_update(op, type, y, R * C);
    f.bias = typed_read(op, type, bias, C);
    simgpu_cost(op, (GELU + 1) * R * C, GPU_F32);
    if (simgpu_ready(op)) simgpu_parallel(R, piece_rows(C), bias_gelu_rows, &f);
    return simgpu_end(op);
}

cudaError_t kernel_bias_gelu_forward(float *out, float *y, const float *bias, int rows, int cols,
                                     cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_bias_gelu_forward", stream, kernel_bias_gelu_forward, out, y,
                               bias, rows, cols);
    return bias_gelu_forward_of(&op, DTYPE_F32, out, y, bias, rows, cols);
}

cudaError_t kernel_bias_gelu_forward_ex(DType type, void *out, void *y, const void *bias, int rows,
                                        int cols, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_bias_gelu_forward", type, stream, kernel_bias_gelu_forward_ex,
                              type, out, y, bias, rows, cols);
    return bias_gelu_forward_of(&op, type, out, y, bias, rows, cols);
}

typedef struct BiasGeluBack {
    Gelu gelu; // from y (rows,width) and dout to din, which may be y
    void *dbias;
    size_t rows, width;
    bool summed; // dbias is done: one thread had all rows
} BiasGeluBack;

// Floats of a row at a time: rows up to this width are read from end to end, which suits the
// processor's prefetching, and the sums stay in the nearest cache.
enum { FLOAT_BLOCK = 4096 };

// One row: dx = dy·gelu'(x); adds dx to the sums. dx may be x.
static void gelu_slope_and_add(float *dx, float *restrict sum, const float *dy, const float *x,
                               size_t n)
{
#pragma omp simd
    for (size_t c = 0; c < n; c++) {
        float gradient = dy[c] * gelu_slope(x[c]);
        dx[c] = gradient;
        sum[c] += gradient;
    }
}

// dbias and din of n <= FLOAT_BLOCK columns from `first` on, of all rows, which lie `width` apart.
// din may be y. The sum takes the rows in the order of kernel_sum_rows.
static void backward_floats(const BiasGeluBack *f, size_t first, size_t n)
{
    float sum[FLOAT_BLOCK], *dx = f->gelu.to;
    const float *dy = f->gelu.gradient, *x = f->gelu.from;
    memset(sum, 0, n * sizeof *sum);
    for (size_t at = first; at < f->rows * f->width; at += f->width)
        gelu_slope_and_add(dx + at, sum, dy + at, x + at, n);
    row_add((float *)f->dbias + first, sum, n);
}

// din of rows [begin, end); if these are all rows and floats, also dbias, in one pass.
static void bias_gelu_back_rows(void *arg, size_t begin, size_t end)
{
    BiasGeluBack *f = arg;
    if (f->gelu.type != DTYPE_F32 || end - begin < f->rows) {
        gelu_slope_piece(&f->gelu, begin * f->width, end * f->width);
        return;
    }
    for (size_t c = 0; c < f->width; c += FLOAT_BLOCK)
        backward_floats(f, c, f->width - c < FLOAT_BLOCK ? f->width - c : FLOAT_BLOCK);
    f->summed = true;
}

// dbias of columns [begin, end), from din: the same sums as those of backward_floats.
static void bias_gelu_back_columns(void *arg, size_t begin, size_t end)
{
    const BiasGeluBack *f = arg;
    row_add_all(f->gelu.type, f->dbias, f->gelu.to, f->rows, f->width, begin, end);
}

static cudaError_t bias_gelu_backward_of(SimgpuOp *op, DType type, void *din, void *dbias,
                                         const void *dout, const void *y, int rows, int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    BiasGeluBack f = {.gelu.type = type, .rows = R, .width = C};
    f.dbias = typed_update(op, type, dbias, C);
    f.gelu.gradient = typed_read(op, type, dout, R * C);
    if (din == y) {
        f.gelu.from = f.gelu.to = typed_update(op, type, din, R * C);
    } else {
        f.gelu.to = typed_write(op, type, din, R * C);
        f.gelu.from = typed_read(op, type, y, R * C);
    }
    simgpu_cost(op, (GELU_SLOPE + 1) * R * C, GPU_F32);
    if (simgpu_ready(op)) {
        simgpu_parallel(R, piece_rows(C), bias_gelu_back_rows, &f);
        if (!f.summed) simgpu_parallel(C, piece_cols(R), bias_gelu_back_columns, &f);
    }
    return simgpu_end(op);
}

cudaError_t kernel_bias_gelu_backward(float *din, float *dbias, const float *dout, const float *y,
                                      int rows, int cols, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_bias_gelu_backward", stream, kernel_bias_gelu_backward, din,
                               dbias, dout, y, rows, cols);
    return bias_gelu_backward_of(&op, DTYPE_F32, din, dbias, dout, y, rows, cols);
}

cudaError_t kernel_bias_gelu_backward_ex(DType type, void *din, void *dbias, const void *dout,
                                         const void *y, int rows, int cols, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_bias_gelu_backward", type, stream,
                              kernel_bias_gelu_backward_ex, type, din, dbias, dout, y, rows, cols);
    return bias_gelu_backward_of(&op, type, din, dbias, dout, y, rows, cols);
}
