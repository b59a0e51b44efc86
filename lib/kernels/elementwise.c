/* elementwise.c: kernels that treat every element alike: fill, scale, add. cast.c has those
 * between types.
 *
 * IEEE 754 rounds each operation here exactly, the order is fixed, and there is no fused
 * multiply-add. So an element gets the same bits in a vector and in the tail of a loop, and a
 * result does not depend on how a parameter was cut into shards.
 */
#include "kernels.h"
#include "mix.h"
#include "pieces.h"
#include "typed.h"

// The arguments of these kernels; each uses some of them.
typedef struct Elements {
    DType to_type, from_type;
    void *to;
    const void *a, *b;
    float number; // the value, the factor or the divisor
    uint64_t key, first;
    uint32_t least; // of the numbers of elements that stay
} Elements;

static DType block_type(const Elements *e)
{
    return e->to_type != DTYPE_F32 ? e->to_type : e->from_type;
}

static void fill_piece(void *arg, size_t begin, size_t end)
{
    const Elements *e = arg;
    float *out = e->to, value = e->number;
#pragma omp simd
    for (size_t i = begin; i < end; i++) out[i] = value;
}

cudaError_t kernel_fill(float *x, float value, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_fill", stream, kernel_fill, x, value, n);
    Elements e = {.to = simgpu_write(&op, x, n * sizeof *x), .number = value};
    if (simgpu_ready(&op)) simgpu_parallel(n, PIECE, fill_piece, &e);
    return simgpu_end(&op);
}

static void scale_piece(void *arg, size_t begin, size_t end)
{
    const Elements *e = arg;
    DType type = e->to_type;
    float factor = e->number;
    for (size_t i = begin; i < end; i += typed_step(type, end)) {
        float copy[TYPED_BLOCK];
        size_t count = typed_count(type, end, i);
        float *restrict part = typed_open(type, copy, e->to, i, count);
#pragma omp simd
        for (size_t j = 0; j < count; j++) part[j] *= factor;
        typed_store(type, e->to, i, part, count);
    }
}

static cudaError_t scale_of(SimgpuOp *op, DType type, void *x, float factor, size_t n)
{
    Elements e = {.to_type = type, .to = typed_update(op, type, x, n), .number = factor};
    simgpu_cost(op, n, GPU_F32);
    if (simgpu_ready(op)) simgpu_parallel(n, PIECE, scale_piece, &e);
    return simgpu_end(op);
}

cudaError_t kernel_scale(float *x, float factor, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_scale", stream, kernel_scale, x, factor, n);
    return scale_of(&op, DTYPE_F32, x, factor, n);
}

cudaError_t kernel_scale_ex(DType type, void *x, float factor, size_t n, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_scale", type, stream, kernel_scale_ex, type, x, factor, n);
    return scale_of(&op, type, x, factor, n);
}

static void dropout_piece(void *arg, size_t begin, size_t end)
{
    const Elements *e = arg;
    DType type = e->to_type;
    for (size_t i = begin; i < end; i += typed_step(type, end)) {
        float copy[TYPED_BLOCK];
        size_t count = typed_count(type, end, i);
        float *part = typed_open(type, copy, e->to, i, count);
        for (size_t j = 0; j < count; j++)
            part[j] =
                dropout_number(e->key, e->first + i + j) < e->least ? 0.0f : part[j] / e->number;
        typed_store(type, e->to, i, part, count);
    }
}

cudaError_t kernel_dropout_ex(DType type, void *x, float p, uint64_t key, uint64_t first, size_t n,
                              cudaStream_t stream)
{
    SimgpuOp op =
        TYPED_BEGIN("kernel_dropout", type, stream, kernel_dropout_ex, type, x, p, key, first, n);
    Elements e = {.to_type = type, .to = typed_update(&op, type, x, n), .number = 1.0f - p};
    e.key = key;
    e.first = first;
    e.least = (uint32_t)(p * 0x1p24f);
    simgpu_cost(&op, 10 * n, GPU_F32);
    if (simgpu_ready(&op)) simgpu_parallel(n, PIECE, dropout_piece, &e);
    return simgpu_end(&op);
}

// Where the types differ, both go in blocks.
static void add_piece(void *arg, size_t begin, size_t end)
{
    const Elements *e = arg;
    DType to_type = e->to_type, blocks = block_type(e);
    for (size_t i = begin; i < end; i += typed_step(blocks, end)) {
        float copy_to[TYPED_BLOCK], copy_from[TYPED_BLOCK];
        size_t count = typed_count(blocks, end, i);
        float *sum = typed_open(to_type, copy_to, e->to, i, count);
        const float *x = typed_load(e->from_type, copy_from, e->a, i, count);
#pragma omp simd
        for (size_t j = 0; j < count; j++) sum[j] += x[j];
        typed_store(to_type, e->to, i, sum, count);
    }
}

static cudaError_t add_of(SimgpuOp *op, DType to_type, void *dst, DType from_type, const void *src,
                          size_t n)
{
    Elements e = {.to_type = to_type, .from_type = from_type};
    e.to = typed_update(op, to_type, dst, n);
    e.a = typed_read(op, from_type, src, n);
    simgpu_cost(op, n, GPU_F32);
    if (simgpu_ready(op)) simgpu_parallel(n, PIECE, add_piece, &e);
    return simgpu_end(op);
}

cudaError_t kernel_add(float *dst, const float *src, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_add", stream, kernel_add, dst, src, n);
    return add_of(&op, DTYPE_F32, dst, DTYPE_F32, src, n);
}

cudaError_t kernel_add_ex(DType dst_type, void *dst, DType src_type, const void *src, size_t n,
                          cudaStream_t stream)
{
    bool floats = dst_type == DTYPE_F32 && src_type == DTYPE_F32;
    SimgpuOp op = SIMGPU_BEGIN(floats ? "kernel_add" : "kernel_add_ex", stream, kernel_add_ex,
                               dst_type, dst, src_type, src, n);
    return add_of(&op, dst_type, dst, src_type, src, n);
}

static void add_out_piece(void *arg, size_t begin, size_t end)
{
    const Elements *e = arg;
    DType type = e->to_type;
    for (size_t i = begin; i < end; i += typed_step(type, end)) {
        float copy_sum[TYPED_BLOCK], copy_x[TYPED_BLOCK], copy_y[TYPED_BLOCK];
        size_t count = typed_count(type, end, i);
        const float *x = typed_load(type, copy_x, e->a, i, count);
        const float *y = typed_load(type, copy_y, e->b, i, count);
        float *sum = typed_place(type, copy_sum, e->to, i);
#pragma omp simd
        for (size_t j = 0; j < count; j++) sum[j] = x[j] + y[j];
        typed_store(type, e->to, i, sum, count);
    }
}

static cudaError_t add_out_of(SimgpuOp *op, DType type, void *out, const void *a, const void *b,
                              size_t n)
{
    Elements e = {.to_type = type, .to = typed_write(op, type, out, n)};
    e.a = typed_read(op, type, a, n);
    e.b = typed_read(op, type, b, n);
    simgpu_cost(op, n, GPU_F32);
    if (simgpu_ready(op)) simgpu_parallel(n, PIECE, add_out_piece, &e);
    return simgpu_end(op);
}

cudaError_t kernel_add_out(float *out, const float *a, const float *b, size_t n,
                           cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_add_out", stream, kernel_add_out, out, a, b, n);
    return add_out_of(&op, DTYPE_F32, out, a, b, n);
}

cudaError_t kernel_add_out_ex(DType type, void *out, const void *a, const void *b, size_t n,
                              cudaStream_t stream)
{
    SimgpuOp op =
        TYPED_BEGIN("kernel_add_out", type, stream, kernel_add_out_ex, type, out, a, b, n);
    return add_out_of(&op, type, out, a, b, n);
}

static void add_divided_piece(void *arg, size_t begin, size_t end)
{
    const Elements *e = arg;
    DType to_type = e->to_type, blocks = block_type(e);
    float divisor = e->number;
    for (size_t i = begin; i < end; i += typed_step(blocks, end)) {
        float copy_to[TYPED_BLOCK], copy_from[TYPED_BLOCK];
        size_t count = typed_count(blocks, end, i);
        float *sum = typed_open(to_type, copy_to, e->to, i, count);
        const float *x = typed_load(e->from_type, copy_from, e->a, i, count);
#pragma omp simd
        for (size_t j = 0; j < count; j++) sum[j] += x[j] / divisor;
        typed_store(to_type, e->to, i, sum, count);
    }
}

static cudaError_t add_divided_of(SimgpuOp *op, DType to_type, void *dst, DType from_type,
                                  const void *src, float divisor, size_t n)
{
    Elements e = {.to_type = to_type, .from_type = from_type, .number = divisor};
    e.to = typed_update(op, to_type, dst, n);
    e.a = typed_read(op, from_type, src, n);
    simgpu_cost(op, 2 * n, GPU_F32);
    if (simgpu_ready(op)) simgpu_parallel(n, PIECE, add_divided_piece, &e);
    return simgpu_end(op);
}

cudaError_t kernel_add_divided(float *dst, const float *src, float divisor, size_t n,
                               cudaStream_t stream)
{
    SimgpuOp op =
        SIMGPU_BEGIN("kernel_add_divided", stream, kernel_add_divided, dst, src, divisor, n);
    return add_divided_of(&op, DTYPE_F32, dst, DTYPE_F32, src, divisor, n);
}

cudaError_t kernel_add_divided_ex(DType dst_type, void *dst, DType src_type, const void *src,
                                  float divisor, size_t n, cudaStream_t stream)
{
    bool floats = dst_type == DTYPE_F32 && src_type == DTYPE_F32;
    SimgpuOp op = SIMGPU_BEGIN(floats ? "kernel_add_divided" : "kernel_add_divided_ex", stream,
                               kernel_add_divided_ex, dst_type, dst, src_type, src, divisor, n);
    return add_divided_of(&op, dst_type, dst, src_type, src, divisor, n);
}
