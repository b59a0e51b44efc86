/* halves.h: half precision and bfloat16 to float, which is exact, and back to the nearest, ties to
 * even; without branches, so that the loops become vector code.
 *
 * Interface: float_of_half, half_of_float; float_of_bfloat, bfloat_of_float.
 */
#ifndef SIMGPU_HALVES_H
#define SIMGPU_HALVES_H

#include <stdint.h>
#include <string.h>

static inline float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Seen as a float, a half's exponent is 112 too small, which a multiplication mends exactly, for
// subnormal halves too; infinities and NaNs get the exponent of theirs.
static inline float float_of_half(uint16_t half)
{
    uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
    uint32_t bits = bits_of_float(float_of_bits(magnitude) * 0x1p112f);
    bits |= magnitude >= 0x0f800000u ? 0x7f800000u : 0;
    return float_of_bits(bits | (uint32_t)(half & 0x8000) << 16);
}

// Rounds to nearest, ties to even. Below the smallest normal half, adding 0.5 makes the float unit
// do the rounding: a float near 0.5 has steps of 2^-24, as subnormal halves have.
static inline uint16_t half_of_float(float value)
{
    uint32_t bits = bits_of_float(value);
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1)) >> 13;
    uint32_t small = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t half = magnitude < 0x38800000u ? small : normal;
    half = magnitude >= 0x47800000u ? 0x7c00 : half;
    half = magnitude > 0x7f800000u ? 0x7e00 : half;
    return (uint16_t)(half | (bits >> 16 & 0x8000));
}

static inline float float_of_bfloat(uint16_t bfloat)
{
    return float_of_bits((uint32_t)bfloat << 16);
}

static inline uint16_t bfloat_of_float(float value)
{
    uint32_t bits = bits_of_float(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0 : rounded);
}

#endif
