/* cast.c: numbers from one type to another, and whether all of them are finite.
 *
 * A cast converts to float and from it. It is exact to a wider type; to a narrower one it rounds to
 * nearest, ties to even.
 */
#include <stdatomic.h>
#include <string.h>

#include "kernels.h"
#include "pieces.h"
#include "typed.h"

typedef struct Cast {
    DType to_type, from_type;
    void *to;
    const void *from;
} Cast;

static void cast_piece(void *arg, size_t begin, size_t end)
{
    const Cast *c = arg;
    DType blocks = c->to_type != DTYPE_F32 ? c->to_type : c->from_type;
    for (size_t i = begin; i < end; i += typed_step(blocks, end)) {
        float copy[TYPED_BLOCK];
        size_t count = typed_count(blocks, end, i);
        float *y = typed_place(c->to_type, copy, c->to, i);
        const float *x = typed_load(c->from_type, y, c->from, i, count);
        if (x != y && c->to_type == DTYPE_F32) memmove(y, x, count * sizeof *y);
        typed_store(c->to_type, c->to, i, x, count);
    }
}

cudaError_t kernel_cast(DType dst_type, void *dst, DType src_type, const void *src, size_t n,
                        cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_cast", stream, kernel_cast, dst_type, dst, src_type, src, n);
    Cast c = {.to_type = dst_type, .from_type = src_type};
    c.to = typed_write(&op, dst_type, dst, n);
    c.from = typed_read(&op, src_type, src, n);
    simgpu_cost(&op, n, GPU_F32);
    if (simgpu_ready(&op)) simgpu_parallel(n, PIECE, cast_piece, &c);
    return simgpu_end(&op);
}

typedef struct Finite {
    DType type;
    const void *x;
    atomic_bool found;
} Finite;

// Infinity and NaN have the largest exponent, and nothing else has.
static void check_piece(void *arg, size_t begin, size_t end)
{
    Finite *f = arg;
    for (size_t i = begin; i < end; i += typed_step(f->type, end)) {
        float copy[TYPED_BLOCK];
        size_t count = typed_count(f->type, end, i);
        const float *part = typed_load(f->type, copy, f->x, i, count);
        uint32_t any = 0;
#pragma omp simd reduction(| : any)
        for (size_t j = 0; j < count; j++)
            any |= (rounding_bits(part[j]) & 0x7f800000u) == 0x7f800000u;
        if (any) atomic_store(&f->found, true);
    }
}

cudaError_t kernel_check_finite(int32_t *found, DType type, const void *x, size_t n,
                                cudaStream_t stream)
{
    SimgpuOp op =
        SIMGPU_BEGIN("kernel_check_finite", stream, kernel_check_finite, found, type, x, n);
    int32_t *flag = simgpu_update(&op, found, sizeof *found);
    Finite f = {.type = type, .x = typed_read(&op, type, x, n)};
    simgpu_cost(&op, n, GPU_F32);
    if (simgpu_ready(&op)) {
        simgpu_parallel(n, PIECE, check_piece, &f);
        if (atomic_load(&f.found)) *flag = 1;
    }
    return simgpu_end(&op);
}
