/* box_muller.c: normal numbers from random words. See box_muller.h.
 *
 * It computes in double and rounds to float once, at the end. Polynomials replace log, cos and sin;
 * Remez' exchange found those of least maximum error for their degree. Without calls and branches
 * the compiler can vectorise the loop. Vectorised or not, the result is bitwise equal, as long as
 * no product and sum are fused, which would round once instead of twice: -ffp-contract=off.
 */
#include "box_muller.h"

#include <math.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "box_muller.c: with -ffast-math the values would differ between machines: leave it out"
#endif

static inline double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// √(-2·ln u) for u = (a + 1) / 2³².
//
// 1/u = 2^e / m with √½ <= m < √2, and -ln m = 2·atanh(s) for s = (1 - m) / (1 + m), which is at
// most 0.172: s·(2 + s²·P(s²)), with an error of 8e-10 of it.
static inline double radius(uint32_t a)
{
    const uint64_t mantissa = ((uint64_t)1 << 52) - 1, bias = 1023;
    const uint64_t sqrt_half = 0x3fe6a09e667f3bcd; // the bits of √½, rounded up
    double u = ((double)a + 1.0) * 0x1p-32;        // exact
    uint64_t beyond = bits_of(u) - sqrt_half;      // -e in the bits above the mantissa
    double m = double_of((beyond & mantissa) + sqrt_half);
    // bias - e is a small integer: as the low bits of 2^52 it becomes a double.
    uint64_t biased = (beyond + (bias << 52)) >> 52;
    double e = (0x1p52 + (double)bias) - double_of(bits_of(0x1p52) + biased);

    double s = (1.0 - m) / (1.0 + m), z = s * s;
    double p = 0.29871727737728832;
    p = p * z + 0.39977541577659459;
    p = p * z + 0.66666776381581683;
    return sqrt(2.0 * (e * 0.69314718055994531 + s * (p * z + 2.0)));
}

// sin(π/2·y) and cos(π/2·y) for |y| <= ½, with errors of 4e-12 and 5e-11.
static inline double sin_quarters(double y)
{
    double z = y * y, p = 0.00015820674370773766;
    p = p * z - 0.0046812664768221017;
    p = p * z + 0.079692582760025027;
    p = p * z - 0.64596409614851535;
    p = p * z + 1.5707963267881133;
    return p * y;
}

static inline double cos_quarters(double y)
{
    double z = y * y, p = 0.00090402167169572386;
    p = p * z - 0.020860288508924588;
    p = p * z + 0.25366924403008423;
    p = p * z - 1.2337005433534907;
    return p * z + 1.0;
}

void box_muller4(const uint32_t *restrict words, float *restrict out, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < 2 * n; i++) {
        double r = radius(words[2 * i]);
        // The angle is `quarters` quarters of a turn and y of one.
        uint32_t b = words[2 * i + 1], quarters = (b + 0x20000000) >> 30;
        double y = (double)(int32_t)(b - (quarters << 30)) * 0x1p-30;
        uint64_t x_axis = bits_of(cos_quarters(y)), y_axis = bits_of(sin_quarters(y));
        // An odd number of quarters swaps the two; the cosine is negative in quarters 1 and 2, the
        // sine in 2 and 3.
        uint64_t exchange = (x_axis ^ y_axis) & (0 - (uint64_t)(quarters & 1));
        x_axis ^= exchange ^ (uint64_t)((quarters + 1) & 2) << 62;
        y_axis ^= exchange ^ (uint64_t)(quarters & 2) << 62;
        out[2 * i] = (float)(r * double_of(x_axis));
        out[2 * i + 1] = (float)(r * double_of(y_axis));
    }
}
