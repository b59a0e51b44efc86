/* vector_math.h: exponentials that the compiler can vectorise.
 *
 * The C library's expf is a call, and a loop with a call in it is not vectorised. vm_exp is a few
 * multiplications and additions instead.
 */
#ifndef SHARDLAB_VECTOR_MATH_H
#define SHARDLAB_VECTOR_MATH_H

#include <stdint.h>
#include <string.h>

// a·b + c: rounded once if the machine has an instruction for that, which takes the time of a
// multiplication; otherwise twice. The compiler does not choose (-ffp-contract=off): it might
// choose otherwise for the elements after the last whole vector.
static inline float vm_fma(float a, float b, float c)
{
#ifdef __FP_FAST_FMAF
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

// e^x, off by less than 2 units in the last place. Above 88.73 it is infinity, below -103.98 it is
// 0, and a NaN stays one.
//
// x = n·ln 2 + r with n whole and |r| <= ln 2 / 2, so e^x = 2^n · e^r, and e^r is its Taylor
// series: the first term left out, r^8/8!, is below a tenth of a unit.
static inline float vm_exp(float x)
{
    const float log2_e = 1.44269504f;
    // ln 2 in two parts: n times the first, which has 11 bits set at its head and zeros after
    // them, is exact.
    const float ln2_head = 0.693359375f, ln2_tail = -2.12194440e-4f;
    // Adding 1.5·2^23 rounds to a whole number, which is then in the low bits of the sum.
    const float round_to_whole = 12582912.0f;

    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    float sum = vm_fma(x, log2_e, round_to_whole);
    int32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    float n = sum - round_to_whole;
    float r = vm_fma(-n, ln2_tail, vm_fma(-n, ln2_head, x));

    float series = 1.0f / 5040.0f;
    series = vm_fma(series, r, 1.0f / 720.0f);
    series = vm_fma(series, r, 1.0f / 120.0f);
    series = vm_fma(series, r, 1.0f / 24.0f);
    series = vm_fma(series, r, 1.0f / 6.0f);
    series = vm_fma(series, r, 0.5f);
    series = vm_fma(series * r, r, r) + 1.0f;

    // 2^n in two factors, because n = 128 and n < -126 are not representable in float.
    uint32_t whole = (uint32_t)bits - 0x4b400000u;
    uint32_t half = (uint32_t)((int32_t)whole >> 1);
    uint32_t first_bits = (half + 127u) << 23, second_bits = (whole - half + 127u) << 23;
    float first, second;
    memcpy(&first, &first_bits, sizeof first);
    memcpy(&second, &second_bits, sizeof second);
    return series * first * second;
}

// 1 / (1 + e^-x)
static inline float vm_sigmoid(float x)
{
    return 1.0f / (1.0f + vm_exp(-x));
}

#endif
