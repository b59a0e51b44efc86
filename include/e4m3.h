/* e4m3.h: floating point of 8 bits, 4 of exponent and 3 of fraction, from float and back, and the
 * scale with which a parameter fits into it. For C, CUDA C and vector loops.
 *
 * OFP8 E4M3 (Micikevicius et al. 2022, "FP8 formats for deep learning"): up to 448, normal from
 * 2^-6 on, below that multiples of 2^-9; no infinity, and one NaN of each sign (0x7f, 0xff).
 * Narrowing rounds to nearest, ties to even; what is larger than 448, infinity too, becomes 448, as
 * CUDA's conversion with __NV_SATFINITE has it, and NaN stays one (0x7f).
 *
 * The largest element of a parameter is its *amax*. It is kept as the bits of a float without a
 * sign: these order as the numbers do, infinity above them and NaN above that.
 */
#ifndef SHARDLAB_E4M3_H
#define SHARDLAB_E4M3_H

#include "rounding.h"

// If its bits are moved to where a float has them, a number's exponent is 120 too small, also if it
// is subnormal.
ROUNDING_FN float e4m3_to_float(uint8_t x)
{
    uint32_t bits = rounding_bits(rounding_float((uint32_t)(x & 0x7f) << 20) * 0x1p120f);
    bits = (x & 0x7f) == 0x7f ? 0x7fc00000u : bits;
    return rounding_float(bits | (uint32_t)(x & 0x80) << 24);
}

// Below 2^-6 adding 2^14 rounds to a multiple of 2^-9, which is where the last bit is.
ROUNDING_FN uint8_t e4m3_from_float(float x)
{
    uint32_t bits = rounding_bits(x), size = bits & 0x7fffffff;
    uint32_t normal = (size - 0x3c000000 + 0x7ffff + (size >> 20 & 1)) >> 20;
    uint32_t small = rounding_bits(rounding_float(size) + 0x1p14f) - 0x46800000;
    uint32_t code = size < 0x3c800000 ? small : normal;
    code = size > 0x43e00000 ? 0x7e : code; // 448
    code = code | (bits >> 24 & 0x80);
    return (uint8_t)(size > 0x7f800000 ? 0x7f : code);
}

// The largest power of two up to 2^126 whose product with the amax is at most 448. For an amax of 0
// it is 1; for infinity and NaN it is NaN.
ROUNDING_FN float e4m3_scale(uint32_t amax)
{
    int32_t power = 135 - (int32_t)(amax >> 23) - ((amax & 0x7fffff) > 0x600000 ? 1 : 0);
    uint32_t bits = (uint32_t)((power < 126 ? power : 126) + 127) << 23;
    bits = amax == 0 ? 0x3f800000 : bits;
    return rounding_float(amax >= 0x7f800000 ? 0x7fc00000 : bits);
}

#endif
