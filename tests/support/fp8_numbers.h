/* fp8_numbers.h: e4m3 by its definition, and what a parameter is after it was quantised: by powers
 * of two and nearbyint in double, where e4m3.h shifts bits.
 */
#ifndef SHARDLAB_FP8_NUMBERS_H
#define SHARDLAB_FP8_NUMBERS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

// What the 8 bits mean: 4 of exponent with a bias of 7, 3 of fraction.
static inline double fp8_value(uint8_t code)
{
    int field = code >> 3 & 15, fraction = code & 7;
    double size = field > 0 ? ldexp(8 + fraction, field - 10) : ldexp(fraction, -9);
    if (field == 15 && fraction == 7) size = NAN;
    return code & 0x80 ? -size : size;
}

// The nearest number to x, or 448 where that is too small; of two as near, the even one.
static inline double fp8_round(double x)
{
    int exponent = 0;
    if (isnan(x) || x == 0.0) return x;
    if (fabs(x) >= 448.0) return copysign(448.0, x);
    frexp(x, &exponent); // |x| is in [2^(exponent-1), 2^exponent)
    int last = exponent - 1 < -6 ? -9 : exponent - 4;
    return ldexp(nearbyint(ldexp(x, -last)), last);
}

// The largest power of two, up to 2^126, with which the largest of n numbers is at most 448.
static inline double fp8_scale(const float *x, size_t n)
{
    double most = 0.0, scale = 0x1p126;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return NAN;
        most = fmax(most, fabs((double)x[i]));
    }
    while (most * scale > 448.0) scale /= 2;
    return most == 0.0 ? 1.0 : scale;
}

// A parameter's n elements as they are after a gather in FP8.
static inline void fp8_param(float *x, size_t n)
{
    double scale = fp8_scale(x, n);
    for (size_t i = 0; i < n; i++) x[i] = (float)(fp8_round(x[i] * scale) / scale);
}

#endif
