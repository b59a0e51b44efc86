/* softmax.c: the causal softmax of attention, in place, and its gradient.
 *
 * Row t of a (T,T) matrix belongs to the query at position t, which may look at the keys 0 … t
 * alone. Columns behind t are never read, and become 0.
 */
#include <string.h>

#include "kernels.h"
#include "pieces.h"
#include "rows.h"
#include "typed.h"
#include "vector_math.h"

// Where a loop over the first n numbers of a row of `width` ends: at the end of a vector, if the
// row has room for it. Numbers after the last whole vector are computed one at a time, and each
// costs as much as a vector.
static size_t whole_lanes(size_t n, size_t width)
{
    size_t up = (n + ROW_LANES - 1) / ROW_LANES * ROW_LANES;
    return up < width ? up : width;
}

// The first n of x (width) become softmax(scale·x), the others 0. The maximum is subtracted first,
// so that no exponential overflows.
static void softmax_row(float *x, size_t n, size_t width, float scale)
{
    size_t end = whole_lanes(n, width);
    for (size_t i = n; i < end; i++) x[i] = x[0]; // no other maximum, and no other minimum
    float max = row_max(x, end);
    if (scale < 0.0f) // then the largest product comes from the smallest number
        for (size_t i = 0; i < n; i++) max = x[i] < max ? x[i] : max;
#pragma omp simd
    for (size_t i = 0; i < end; i++) x[i] = vm_exp(scale * (x[i] - max));
    memset(x + n, 0, (width - n) * sizeof *x);
    float factor = 1.0f / row_sum(x, end);
#pragma omp simd
    for (size_t i = 0; i < end; i++) x[i] *= factor;
}

typedef struct Softmax {
    DType type;
    char *data;       // in place
    const void *prob; // of the backward
    size_t width;
    float scale;
    atomic_bool failed; // for want of memory
} Softmax;

static void softmax_rows(void *arg, size_t begin, size_t end)
{
    Softmax *s = arg;
    DType type = s->type;
    size_t width = s->width;
    float *copy = NULL;
    if (!typed_room(type, &copy, width, &s->failed)) return;
    for (size_t r = begin; r < end; r++) {
        size_t first = r * width, seen = r % width + 1;
        float *row = typed_open(type, copy, s->data, first, seen);
        softmax_row(row, seen, width, s->scale);
        typed_store(type, s->data, first, row, width);
    }
    free(copy);
}

static cudaError_t softmax_forward_of(SimgpuOp *op, DType type, void *att, int n, int T,
                                      float scale)
{
    size_t rows = (size_t)n * (size_t)T, width = (size_t)T;
    Softmax s = {.type = type, .width = width, .scale = scale};
    s.data = typed_update(op, type, att, rows * width);
    simgpu_cost(op, 5 * rows * (width + 1) / 2, GPU_F32);
    if (simgpu_ready(op)) {
        simgpu_parallel(rows, piece_rows(width), softmax_rows, &s);
        typed_check_room(op, &s.failed);
    }
    return simgpu_end(op);
}

cudaError_t kernel_causal_softmax_forward(float *att, int n, int T, float scale,
                                          cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_causal_softmax_forward", stream,
                               kernel_causal_softmax_forward, att, n, T, scale);
    return softmax_forward_of(&op, DTYPE_F32, att, n, T, scale);
}

cudaError_t kernel_causal_softmax_forward_ex(DType type, void *att, int n, int T, float scale,
                                             cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_causal_softmax_forward", type, stream,
                              kernel_causal_softmax_forward_ex, type, att, n, T, scale);
    return softmax_forward_of(&op, type, att, n, T, scale);
}

static void softmax_backward_row(float *restrict d, const float *restrict p, size_t n, float scale)
{
    float dot = row_dot(d, p, n);
#pragma omp simd
    for (size_t i = 0; i < n; i++) d[i] = scale * p[i] * (d[i] - dot);
}

static void softmax_backward_rows(void *arg, size_t begin, size_t end)
{
    Softmax *s = arg;
    DType type = s->type;
    size_t width = s->width, one = (size_t)dtype_bytes(type);
    float *copy = NULL;
    if (!typed_room(type, &copy, 2 * width, &s->failed)) return;
    for (size_t r = begin; r < end; r++) {
        size_t first = r * width, seen = r % width + 1;
        float *d = typed_open(type, copy, s->data, first, seen);
        softmax_backward_row(d, typed_load(type, typed_part(copy, width), s->prob, first, seen),
                             seen, s->scale);
        typed_store(type, s->data, first, d, seen);
        memset(s->data + (first + seen) * one, 0, (width - seen) * one);
    }
    free(copy);
}

static cudaError_t softmax_backward_of(SimgpuOp *op, DType type, void *datt, const void *att, int n,
                                       int T, float scale)
{
    size_t rows = (size_t)n * (size_t)T, width = (size_t)T;
    Softmax s = {.type = type, .width = width, .scale = scale};
    s.data = typed_update(op, type, datt, rows * width);
    s.prob = typed_read(op, type, att, rows * width);
    simgpu_cost(op, 5 * rows * (width + 1) / 2, GPU_F32);
    if (simgpu_ready(op)) {
        simgpu_parallel(rows, piece_rows(width), softmax_backward_rows, &s);
        typed_check_room(op, &s.failed);
    }
    return simgpu_end(op);
}

cudaError_t kernel_causal_softmax_backward(float *datt, const float *att, int n, int T, float scale,
                                           cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_causal_softmax_backward", stream,
                               kernel_causal_softmax_backward, datt, att, n, T, scale);
    return softmax_backward_of(&op, DTYPE_F32, datt, att, n, T, scale);
}

cudaError_t kernel_causal_softmax_backward_ex(DType type, void *datt, const void *att, int n, int T,
                                              float scale, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_causal_softmax_backward", type, stream,
                              kernel_causal_softmax_backward_ex, type, datt, att, n, T, scale);
    return softmax_backward_of(&op, type, datt, att, n, T, scale);
}
