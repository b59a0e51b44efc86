/* cast.c: numbers from one type to another, and whether all of them are finite.
 *
 * A cast goes by way of float: it is exact where the type gets wider, and rounds to nearest, ties
 * to even, where it gets narrower.
 *
 * Interface: kernel_cast, kernel_check_finite.
 */
#include <string.h>

#include "kernels.h"
#include "typed.h"

cudaError_t kernel_cast(DType dst_type, void *dst, DType src_type, const void *src, size_t n,
                        cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_cast", stream);
    void *to = typed_write(&op, dst_type, dst, n);
    const void *from = typed_read(&op, src_type, src, n);
    DType blocks = dst_type != DTYPE_F32 ? dst_type : src_type;
    simgpu_cost(&op, n, GPU_F32);
    for (size_t i = 0; i < n && simgpu_ready(&op); i += typed_step(blocks, n)) {
        float copy[TYPED_BLOCK];
        size_t count = typed_count(blocks, n, i);
        float *y = typed_place(dst_type, copy, to, i);
        const float *x = typed_load(src_type, y, from, i, count);
        if (x != y && dst_type == DTYPE_F32) memmove(y, x, count * sizeof *y);
        typed_store(dst_type, to, i, x, count);
    }
    return simgpu_end(&op);
}

// Infinity and NaN have the largest exponent, and nothing else has.
cudaError_t kernel_check_finite(int32_t *found, DType type, const void *x, size_t n,
                                cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_check_finite", stream);
    int32_t *flag = simgpu_update(&op, found, sizeof *found);
    const void *from = typed_read(&op, type, x, n);
    simgpu_cost(&op, n, GPU_F32);
    for (size_t i = 0; i < n && simgpu_ready(&op); i += typed_step(type, n)) {
        float copy[TYPED_BLOCK];
        size_t count = typed_count(type, n, i);
        const float *part = typed_load(type, copy, from, i, count);
        uint32_t any = 0;
#pragma omp simd reduction(| : any)
        for (size_t j = 0; j < count; j++)
            any |= (rounding_bits(part[j]) & 0x7f800000u) == 0x7f800000u;
        if (any) *flag = 1;
    }
    return simgpu_end(&op);
}
