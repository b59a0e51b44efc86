/* typed.c: bfloat16 and float16 to floats and back, for typed.h, compiled once and not in each
 * kernel.
 */
#include "typed.h"

void typed_widen(DType type, float *to, const uint16_t *from, size_t n)
{
    if (type == DTYPE_BF16) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) to[i] = bf16_to_float(from[i]);
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++) to[i] = f16_to_float(from[i]);
    }
}

void typed_narrow(DType type, uint16_t *to, const float *from, size_t n)
{
    if (type == DTYPE_BF16) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) to[i] = bf16_from_float(from[i]);
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++) to[i] = f16_from_float(from[i]);
    }
}

void typed_narrow_and_widen(DType type, float *x, size_t n)
{
    if (type == DTYPE_BF16) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) x[i] = bf16_to_float(bf16_from_float(x[i]));
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++) x[i] = f16_to_float(f16_from_float(x[i]));
    }
}
