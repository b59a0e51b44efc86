/* cuda_fp8.h: numbers of 8 bits, for programs in C++ that fill or read buffers of them on the host:
 * the types __nv_fp8_e4m3 (448 is the largest number, no infinity) and __nv_fp8_e5m2, and
 * conversions that round to the nearest, ties to even, and saturate.
 *
 * Names as in CUDA 13's header of the same name; left out are vectors of two and four, and
 * everything for device code.
 */
#if defined(__CUDA_FP8_H__) && !defined(SIMGPU_CUDA_FP8)
#error "NVIDIA's cuda_fp8.h comes before simgpu's: put simgpu/include first"
#endif
#ifndef __CUDA_FP8_H__
#define __CUDA_FP8_H__
#define SIMGPU_CUDA_FP8

#ifdef __cplusplus
#include <cmath>

#include "cuda_bf16.h"
#include "cuda_fp16.h"

typedef unsigned char __nv_fp8_storage_t;
typedef enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

static inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate,
                                                       __nv_fp8_interpretation_t kind)
{
    int fraction = kind == __NV_E4M3 ? 3 : 2, bias = kind == __NV_E4M3 ? 7 : 15, power;
    unsigned sign = std::signbit(x) ? 0x80 : 0, largest = kind == __NV_E4M3 ? 0x7e : 0x7b;
    unsigned too_large = saturate == __NV_SATFINITE ? largest : kind == __NV_E4M3 ? 0x7f : 0x7c;
    if (std::isnan(x)) return 0x7f;
    if (x == 0.0f) return (__nv_fp8_storage_t)sign;
    if (std::isinf(x)) return (__nv_fp8_storage_t)(sign | too_large);
    std::frexp(x, &power);
    int field = power - 1 + bias < 1 ? 1 : power - 1 + bias; // subnormal numbers are equally spaced
    float steps = std::nearbyint(std::ldexp(std::fabs(x), fraction + bias - field));
    float bits = steps + (float)((field - 1) << fraction);
    return (__nv_fp8_storage_t)(sign | (bits > (float)largest ? too_large : (unsigned)bits));
}

static inline float simgpu_float_of_fp8(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind)
{
    int fraction = kind == __NV_E4M3 ? 3 : 2, bias = kind == __NV_E4M3 ? 7 : 15;
    int field = (x & 0x7f) >> fraction, part = x & ((1 << fraction) - 1);
    float value = std::ldexp((float)(field ? part | 1 << fraction : part),
                             (field ? field : 1) - bias - fraction);
    if (kind == __NV_E4M3 && (x & 0x7f) == 0x7f) value = NAN;
    if (kind == __NV_E5M2 && field == 31) value = part ? NAN : INFINITY;
    return x & 0x80 ? -value : value;
}

#define SIMGPU_FP8(type, kind)                                                                     \
    struct type {                                                                                  \
        __nv_fp8_storage_t __x;                                                                    \
        type() = default;                                                                          \
        explicit type(float x) : __x(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, kind))               \
        {                                                                                          \
        }                                                                                          \
        explicit type(double x) : type((float)x)                                                   \
        {                                                                                          \
        }                                                                                          \
        explicit type(int x) : type((float)x)                                                      \
        {                                                                                          \
        }                                                                                          \
        explicit type(__half x) : type((float)x)                                                   \
        {                                                                                          \
        }                                                                                          \
        explicit type(__nv_bfloat16 x) : type((float)x)                                            \
        {                                                                                          \
        }                                                                                          \
        explicit operator float() const                                                            \
        {                                                                                          \
            return simgpu_float_of_fp8(__x, kind);                                                 \
        }                                                                                          \
        explicit operator double() const                                                           \
        {                                                                                          \
            return simgpu_float_of_fp8(__x, kind);                                                 \
        }                                                                                          \
    };
SIMGPU_FP8(__nv_fp8_e4m3, __NV_E4M3)
SIMGPU_FP8(__nv_fp8_e5m2, __NV_E5M2)
#undef SIMGPU_FP8
#endif
#endif
