/* halves.c: columns of half precision and bfloat16, widened to floats for a product and rounded
 * once after it.
 *
 * The same conversions as number.c's, which go element by element and serve all formats: a NaN
 * becomes 0x7fff.
 */
#include <math.h>

#include "blas.h"
#include "halves.h"

bool simblas_widen(const Format *format, float *to, const void *from, size_t n)
{
    const uint16_t *x = from;
    if (format == &simblas_H) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) to[i] = float_of_half(x[i]);
    } else if (format == &simblas_T) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) to[i] = float_of_bfloat(x[i]);
    }
    return format == &simblas_H || format == &simblas_T;
}

bool simblas_narrow(const Format *format, void *to, const float *from, size_t n)
{
    uint16_t *x = to;
    if (format == &simblas_H) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            x[i] = isnan(from[i]) ? (uint16_t)0x7fff : half_of_float(from[i]);
    } else if (format == &simblas_T) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            x[i] = isnan(from[i]) ? (uint16_t)0x7fff : bfloat_of_float(from[i]);
    }
    return format == &simblas_H || format == &simblas_T;
}
