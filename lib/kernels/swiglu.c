/* swiglu.c: the gated unit of a feed-forward part (Shazeer 2020): out = g·sigmoid(g)·u, where g and
 * u are the left and the right half of a row.
 */
#include "kernels.h"
#include "pieces.h"
#include "typed.h"
#include "vector_math.h"

enum { SWIGLU = 5, SWIGLU_SLOPES = 10 }; // FLOP of one

// y, g, u (n)
static void swiglu(float *restrict y, const float *restrict g, const float *restrict u, size_t n)
{
#pragma omp simd
    for (size_t c = 0; c < n; c++) y[c] = g[c] * vm_sigmoid(g[c]) * u[c];
}

// dg and du may be g and u.
static void swiglu_back(float *dg, float *du, const float *dy, const float *g, const float *u,
                        size_t n)
{
#pragma omp simd
    for (size_t c = 0; c < n; c++) {
        float s = vm_sigmoid(g[c]), silu = g[c] * s, both = dy[c] * u[c];
        du[c] = dy[c] * silu;
        dg[c] = both * (s + silu * (1.0f - s));
    }
}

typedef struct Swiglu {
    DType type;
    void *to;
    const void *gradient, *from;
    size_t C;
    atomic_bool failed; // for want of memory
} Swiglu;

static void swiglu_rows(void *arg, size_t begin, size_t end)
{
    Swiglu *s = arg;
    DType type = s->type;
    size_t C = s->C;
    float *copies = NULL;
    if (!typed_room(type, &copies, 3 * C, &s->failed)) return;
    for (size_t r = begin; r < end; r++) {
        const float *x = typed_load(type, copies, s->from, 2 * r * C, 2 * C);
        float *y = typed_place(type, typed_part(copies, 2 * C), s->to, r * C);
        swiglu(y, x, x + C, C);
        typed_store(type, s->to, r * C, y, C);
    }
    free(copies);
}

static cudaError_t swiglu_forward_of(SimgpuOp *op, DType type, void *out, const void *in, int rows,
                                     int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    Swiglu s = {.type = type, .C = C, .to = typed_write(op, type, out, R * C)};
    s.from = typed_read(op, type, in, 2 * R * C);
    simgpu_cost(op, SWIGLU * R * C, GPU_F32);
    if (simgpu_ready(op)) {
        simgpu_parallel(R, piece_rows(2 * C), swiglu_rows, &s);
        typed_check_room(op, &s.failed);
    }
    return simgpu_end(op);
}

cudaError_t kernel_swiglu_forward(float *out, const float *in, int rows, int cols,
                                  cudaStream_t stream)
{
    SimgpuOp op =
        SIMGPU_BEGIN("kernel_swiglu_forward", stream, kernel_swiglu_forward, out, in, rows, cols);
    return swiglu_forward_of(&op, DTYPE_F32, out, in, rows, cols);
}

cudaError_t kernel_swiglu_forward_ex(DType type, void *out, const void *in, int rows, int cols,
                                     cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_swiglu_forward", type, stream, kernel_swiglu_forward_ex, type,
                              out, in, rows, cols);
    return swiglu_forward_of(&op, type, out, in, rows, cols);
}

static void swiglu_back_rows(void *arg, size_t begin, size_t end)
{
    Swiglu *s = arg;
    DType type = s->type;
    size_t C = s->C;
    float *copies = NULL;
    if (!typed_room(type, &copies, 5 * C, &s->failed)) return;
    for (size_t r = begin; r < end; r++) {
        const float *x = typed_load(type, copies, s->from, 2 * r * C, 2 * C);
        const float *dy = typed_load(type, typed_part(copies, 2 * C), s->gradient, r * C, C);
        float *dx = typed_place(type, typed_part(copies, 3 * C), s->to, 2 * r * C);
        swiglu_back(dx, dx + C, dy, x, x + C, C);
        typed_store(type, s->to, 2 * r * C, dx, 2 * C);
    }
    free(copies);
}

static cudaError_t swiglu_backward_of(SimgpuOp *op, DType type, void *din, const void *dout,
                                      const void *in, int rows, int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    Swiglu s = {.type = type, .C = C, .to = typed_write(op, type, din, 2 * R * C)};
    s.gradient = typed_read(op, type, dout, R * C);
    s.from = typed_read(op, type, in, 2 * R * C);
    simgpu_cost(op, SWIGLU_SLOPES * R * C, GPU_F32);
    if (simgpu_ready(op)) {
        simgpu_parallel(R, piece_rows(2 * C), swiglu_back_rows, &s);
        typed_check_room(op, &s.failed);
    }
    return simgpu_end(op);
}

cudaError_t kernel_swiglu_backward(float *din, const float *dout, const float *in, int rows,
                                   int cols, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_swiglu_backward", stream, kernel_swiglu_backward, din, dout,
                               in, rows, cols);
    return swiglu_backward_of(&op, DTYPE_F32, din, dout, in, rows, cols);
}

cudaError_t kernel_swiglu_backward_ex(DType type, void *din, const void *dout, const void *in,
                                      int rows, int cols, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_swiglu_backward", type, stream, kernel_swiglu_backward_ex,
                              type, din, dout, in, rows, cols);
    return swiglu_backward_of(&op, type, din, dout, in, rows, cols);
}
