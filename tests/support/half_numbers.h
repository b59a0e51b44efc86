/* half_numbers.h: bf16 and fp16 by their definition, for tests of what rounds to them: by powers of
 * two and nearbyint in double, where rounding.h shifts bits.
 */
#ifndef SHARDLAB_HALF_NUMBERS_H
#define SHARDLAB_HALF_NUMBERS_H

#include <math.h>
#include <stdint.h>

#include "dtype.h"

// Bits of fraction, and the exponent of the smallest normal number.
static inline int fraction_of(DType type)
{
    return type == DTYPE_BF16 ? 7 : 10;
}
static inline int least_exponent(DType type)
{
    return type == DTYPE_BF16 ? -126 : -14;
}

// What the 16 bits mean.
static inline double half_value(DType type, uint16_t bits)
{
    int places = fraction_of(type), fields = 1 << (15 - places);
    int field = bits >> places & (fields - 1), fraction = bits & ((1 << places) - 1);
    double size = ldexp(field > 0 ? fraction + (1 << places) : fraction,
                        (field > 0 ? field - 1 : 0) + least_exponent(type) - places);
    if (field == fields - 1) size = fraction != 0 ? NAN : INFINITY;
    return bits & 0x8000 ? -size : size;
}

// The bits of the nearest number to x; of two as near, that with an even last bit.
static inline uint16_t half_round(DType type, double x)
{
    int places = fraction_of(type), exponent = 0, infinity = 0x7fff >> places << places;
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return 0x7fff;
    if (x == 0.0) return sign;
    if (isinf(x)) return (uint16_t)(sign | infinity);
    frexp(x, &exponent);
    exponent = exponent - 1 < least_exponent(type) ? least_exponent(type) : exponent - 1;
    // In steps of the last place; a number of 2^places of them and more is normal.
    double steps = nearbyint(ldexp(fabs(x), places - exponent));
    double bits = steps + ldexp(exponent - least_exponent(type), places);
    return (uint16_t)(sign | (bits < infinity ? (int)bits : infinity));
}

// x as a float that the type has.
static inline float half_float(DType type, float x)
{
    return type == DTYPE_F32 ? x : (float)half_value(type, half_round(type, x));
}

static inline const char *type_name(DType type)
{
    return type == DTYPE_F32 ? "float" : type == DTYPE_BF16 ? "bf16" : "fp16";
}

#endif
