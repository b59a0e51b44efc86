/* cuda_bf16.h: numbers in bfloat16, a float's upper half, for programs in C++ that fill or read
 * buffers of them on the host: the type __nv_bfloat16 (nv_bfloat16), and conversions that round to
 * the nearest, ties to even.
 *
 * Names as in CUDA 13's header of the same name; left out are arithmetic (a __nv_bfloat16 computes
 * as the float to which it converts) and everything for device code.
 */
#if defined(__CUDA_BF16_H__) && !defined(SIMGPU_CUDA_BF16)
#error "NVIDIA's cuda_bf16.h comes before simgpu's: put simgpu/include first"
#endif
#ifndef __CUDA_BF16_H__
#define __CUDA_BF16_H__
#define SIMGPU_CUDA_BF16

#include "vector_types.h"

#ifdef __cplusplus
#include <cstring>

struct __nv_bfloat16_raw {
    unsigned short x;
};

static inline __nv_bfloat16_raw simgpu_bfloat16_of(float value)
{
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return {0x7fff}; // NaN
    return {(unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

static inline float simgpu_float_of(__nv_bfloat16_raw number)
{
    unsigned bits = (unsigned)number.x << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

struct __nv_bfloat16 {
    __nv_bfloat16() = default;
    __nv_bfloat16(const __nv_bfloat16_raw &raw) : bits(raw)
    {
    }
    __nv_bfloat16(float value) : bits(simgpu_bfloat16_of(value))
    {
    }
    operator __nv_bfloat16_raw() const
    {
        return bits;
    }
    operator float() const
    {
        return simgpu_float_of(bits);
    }

  private:
    __nv_bfloat16_raw bits;
};
typedef __nv_bfloat16 nv_bfloat16;

static inline __nv_bfloat16 __float2bfloat16(float value)
{
    return __nv_bfloat16(value);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    return __nv_bfloat16(value);
}
static inline float __bfloat162float(__nv_bfloat16 value)
{
    return (float)value;
}
#endif
#endif
