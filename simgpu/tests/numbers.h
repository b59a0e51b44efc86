/* numbers.h: small whole numbers in every data type of NCCL, for tests whose right answer is exact.
 *
 * Interface: number_put and number_get write and read element i of a buffer as a double;
 * number_size. The 16-bit types are coded by arithmetic (ldexp, frexp), not with the bits that
 * simgpu plays with.
 */
#ifndef SIMGPU_TEST_NUMBERS_H
#define SIMGPU_TEST_NUMBERS_H

#include <math.h>
#include <nccl.h>
#include <stdint.h>
#include <string.h>

static inline size_t number_size(ncclDataType_t type)
{
    static const size_t size[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return size[type];
}

// A float of `mantissa` bits behind the point and an exponent bias, of a value that fits exactly.
static inline uint16_t number_code(double value, int mantissa, int bias)
{
    int exponent;
    if (value == 0) return 0;
    double fraction = frexp(fabs(value), &exponent); // in [0.5, 1)
    uint16_t bits = (uint16_t)ldexp(fraction * 2 - 1, mantissa);
    bits = (uint16_t)(bits | (exponent - 1 + bias) << mantissa);
    return value < 0 ? (uint16_t)(bits | 0x8000) : bits;
}

static inline double number_decode(uint16_t bits, int mantissa, int bias)
{
    int exponent = (bits & 0x7fff) >> mantissa, low = bits & ((1 << mantissa) - 1);
    double value = exponent ? ldexp(1 + ldexp(low, -mantissa), exponent - bias)
                            : ldexp(low, 1 - bias - mantissa);
    return bits & 0x8000 ? -value : value;
}

static inline void number_put(void *buffer, ncclDataType_t type, size_t i, double value)
{
    switch (type) {
    case ncclInt8: ((int8_t *)buffer)[i] = (int8_t)value; break;
    case ncclUint8: ((uint8_t *)buffer)[i] = (uint8_t)value; break;
    case ncclInt32: ((int32_t *)buffer)[i] = (int32_t)value; break;
    case ncclUint32: ((uint32_t *)buffer)[i] = (uint32_t)value; break;
    case ncclInt64: ((int64_t *)buffer)[i] = (int64_t)value; break;
    case ncclUint64: ((uint64_t *)buffer)[i] = (uint64_t)value; break;
    case ncclFloat16: ((uint16_t *)buffer)[i] = number_code(value, 10, 15); break;
    case ncclBfloat16: ((uint16_t *)buffer)[i] = number_code(value, 7, 127); break;
    case ncclFloat32: ((float *)buffer)[i] = (float)value; break;
    default: ((double *)buffer)[i] = value; break;
    }
}

static inline double number_get(const void *buffer, ncclDataType_t type, size_t i)
{
    switch (type) {
    case ncclInt8: return ((const int8_t *)buffer)[i];
    case ncclUint8: return ((const uint8_t *)buffer)[i];
    case ncclInt32: return ((const int32_t *)buffer)[i];
    case ncclUint32: return ((const uint32_t *)buffer)[i];
    case ncclInt64: return (double)((const int64_t *)buffer)[i];
    case ncclUint64: return (double)((const uint64_t *)buffer)[i];
    case ncclFloat16: return number_decode(((const uint16_t *)buffer)[i], 10, 15);
    case ncclBfloat16: return number_decode(((const uint16_t *)buffer)[i], 7, 127);
    case ncclFloat32: return (double)((const float *)buffer)[i];
    default: return ((const double *)buffer)[i];
    }
}

#endif
