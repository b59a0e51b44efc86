/* cuda_fp16.h: numbers in half precision, for programs in C++ that fill or read buffers of them on
 * the host: the type __half (half), and conversions that round to the nearest, ties to even.
 *
 * Names as in CUDA 13's header of the same name; left out are arithmetic (a __half computes as the
 * float to which it converts) and everything for device code.
 */
#if defined(__CUDA_FP16_H__) && !defined(SIMGPU_CUDA_FP16)
#error "NVIDIA's cuda_fp16.h comes before simgpu's: put simgpu/include first"
#endif
#ifndef __CUDA_FP16_H__
#define __CUDA_FP16_H__
#define SIMGPU_CUDA_FP16

#include "vector_types.h"

#ifdef __cplusplus
#include <cstring>

struct __half_raw {
    unsigned short x;
};

static inline __half_raw simgpu_half_of(float value)
{
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    unsigned sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return {0x7fff};                           // NaN
    if (rest >= 0x477ff000) return {(unsigned short)(sign | 0x7c00)}; // rounds to infinity
    int exponent = (int)(rest >> 23) - 127;
    if (exponent < -25) return {(unsigned short)sign};
    // Drops the bits after a half's last one: below 2^-14 these are more.
    unsigned shift = exponent < -14 ? (unsigned)(-1 - exponent) : 13;
    unsigned fraction = (rest & 0x7fffff) | 0x800000;
    unsigned kept = fraction >> shift, lost = fraction & ((1u << shift) - 1);
    unsigned tie = 1u << (shift - 1);
    if (lost > tie || (lost == tie && (kept & 1))) kept++;
    // The hidden bit, if there is one, adds 1 to the exponent.
    unsigned base = exponent < -14 ? 0 : (unsigned)(exponent + 14) << 10;
    return {(unsigned short)(sign | (base + kept))};
}

static inline float simgpu_float_of(__half_raw half)
{
    unsigned sign = (half.x & 0x8000u) << 16;
    unsigned exponent = half.x >> 10 & 31, fraction = half.x & 0x3ff;
    float value;
    if (exponent == 0) { // fraction · 2^-24, exact in a float
        value = (float)fraction * 5.9604644775390625e-8f;
        return sign ? -value : value;
    }
    unsigned bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

struct __half {
    __half() = default;
    __half(const __half_raw &raw) : bits(raw)
    {
    }
    __half(float value) : bits(simgpu_half_of(value))
    {
    }
    operator __half_raw() const
    {
        return bits;
    }
    operator float() const
    {
        return simgpu_float_of(bits);
    }

  private:
    __half_raw bits;
};
typedef __half half;

static inline __half __float2half(float value)
{
    return __half(value);
}
static inline __half __float2half_rn(float value)
{
    return __half(value);
}
static inline float __half2float(__half value)
{
    return (float)value;
}
#endif
#endif
