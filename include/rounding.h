/* rounding.h: bfloat16 and half precision, as the 16 bits that memory holds, from float and back.
 *
 * A float can hold each of their numbers, so widening is exact. Narrowing rounds to nearest, ties
 * to even, as a GPU's conversions do: too large becomes infinity, too small a subnormal number or
 * 0, and NaN stays one (0x7fff). For C, CUDA C and vector loops: nothing branches.
 */
#ifndef SHARDLAB_ROUNDING_H
#define SHARDLAB_ROUNDING_H

#include <stdint.h>
#include <string.h>

#include "dtype.h"

#ifdef __CUDACC__
#define ROUNDING_FN static inline __host__ __device__
#else
#define ROUNDING_FN static inline
#endif

ROUNDING_FN float rounding_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

ROUNDING_FN uint32_t rounding_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// ---- bfloat16: a float's upper half ----

ROUNDING_FN float bf16_to_float(uint16_t x)
{
    return rounding_float((uint32_t)x << 16);
}

ROUNDING_FN uint16_t bf16_from_float(float x)
{
    uint32_t bits = rounding_bits(x), half = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : half);
}

// ---- Half precision: 5 bits of exponent, 10 of fraction ----

// If its bits are moved to where a float has them, a number's exponent is 112 too small, also if it
// is subnormal.
ROUNDING_FN float f16_to_float(uint16_t x)
{
    uint32_t bits = rounding_bits(rounding_float((uint32_t)(x & 0x7fff) << 13) * 0x1p112f);
    bits |= (x & 0x7c00) == 0x7c00 ? 0x7f800000u : 0; // infinity and NaN
    return rounding_float(bits | (uint32_t)(x & 0x8000) << 16);
}

// Below 2^-14 adding 0.5 rounds to a multiple of 2^-24, which is where the half's last bit is.
ROUNDING_FN uint16_t f16_from_float(float x)
{
    uint32_t bits = rounding_bits(x), size = bits & 0x7fffffff;
    uint32_t normal = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
    uint32_t small = rounding_bits(rounding_float(size) + 0.5f) - 0x3f000000;
    uint32_t half = size < 0x38800000 ? small : normal;
    half = size >= 0x477ff000 ? 0x7c00 : half; // 65520 and more
    half = half | (bits >> 16 & 0x8000);
    return (uint16_t)(size > 0x7f800000 ? 0x7fff : half);
}

// x as a number of this type.
ROUNDING_FN float round_to(DType dtype, float x)
{
    if (dtype == DTYPE_BF16) return bf16_to_float(bf16_from_float(x));
    return dtype == DTYPE_F16 ? f16_to_float(f16_from_float(x)) : x;
}

#endif
