/* halves.h: half precision, bfloat16 and the 8-bit floats to float, which is exact, and back to the
 * nearest, ties to even; of 16 bits without branches, so that the loops become vector code. 8-bit
 * floats (arXiv 2209.05433) saturate: what is too large, infinity too, becomes the largest number.
 *
 * Interface: float_of_half, half_of_float; float_of_bfloat, bfloat_of_float; float_of_e4m3,
 * e4m3_of_float; float_of_e5m2, e5m2_of_float.
 */
#ifndef SIMGPU_HALVES_H
#define SIMGPU_HALVES_H

#include <math.h>
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

static inline float float_of_e4m3(uint8_t x)
{
    int field = x >> 3 & 15, part = x & 7;
    float value = field ? ldexpf((float)(8 + part), field - 10) : ldexpf((float)part, -9);
    if ((x & 0x7f) == 0x7f) value = NAN; // there is no infinity
    return x & 0x80 ? -value : value;
}

static inline float float_of_e5m2(uint8_t x)
{
    return float_of_half((uint16_t)(x << 8)); // a half without its last eight bits
}

// Below the smallest normal number steps are even: `field` is then 1.
static inline uint8_t eight_bits(float value, int fraction, int bias, unsigned largest)
{
    unsigned sign = signbit(value) ? 0x80 : 0;
    int power = 0;
    if (isnan(value)) return (uint8_t)(sign | 0x7f);
    if (isinf(value)) return (uint8_t)(sign | largest);
    frexpf(value, &power);
    int field = value == 0.0f || power - 1 + bias < 1 ? 1 : power - 1 + bias;
    float steps = nearbyintf(ldexpf(fabsf(value), fraction + bias - field));
    float bits = steps + (float)((field - 1) << fraction);
    return (uint8_t)(sign | (bits > (float)largest ? largest : (unsigned)bits));
}

static inline uint8_t e4m3_of_float(float value)
{
    return eight_bits(value, 3, 7, 0x7e);
}

static inline uint8_t e5m2_of_float(float value)
{
    return eight_bits(value, 2, 15, 0x7b);
}

#endif
