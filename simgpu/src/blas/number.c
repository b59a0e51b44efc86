/* number.c: the formats of numbers in device memory, and conversions to double and back.
 *
 * Narrow formats round to the nearest, ties to even; whole numbers saturate.
 */
#include <math.h>
#include <string.h>

#include "blas.h"

// ---- Bits ----

// A number with a sign, `exponent` and `fraction` bits.
typedef struct Bits {
    int exponent, fraction;
} Bits;
static const Bits HALF = {5, 10}, BFLOAT16 = {8, 7};

static double decode(const Bits *b, unsigned bits)
{
    unsigned top = (1u << b->exponent) - 1, field = bits >> b->fraction & top;
    unsigned fraction = bits & ((1u << b->fraction) - 1);
    int bias = (1 << (b->exponent - 1)) - 1;
    bool negative = bits >> (b->exponent + b->fraction) & 1;
    double value;
    if (field == top)
        value = fraction ? NAN : INFINITY;
    else if (field == 0)
        value = ldexp(fraction, 1 - bias - b->fraction);
    else
        value = ldexp(fraction | 1u << b->fraction, (int)field - bias - b->fraction);
    return negative ? -value : value;
}

// Too large becomes infinity.
static unsigned encode(const Bits *b, double x)
{
    int bias = (1 << (b->exponent - 1)) - 1, power;
    unsigned sign = signbit(x) ? 1u << (b->exponent + b->fraction) : 0;
    unsigned infinity = ((1u << b->exponent) - 1) << b->fraction;
    if (isnan(x)) return (1u << (b->exponent + b->fraction)) - 1;
    if (isinf(x)) return sign | infinity;
    if (x == 0.0) return sign;
    frexp(x, &power);
    int field = power - 1 + bias;
    if (field < 1) field = 1; // below the smallest normal number the step stays the same
    double steps = nearbyint(ldexp(fabs(x), b->fraction + bias - field));
    double bits = steps + (double)(field - 1) * (1 << b->fraction);
    return sign | (bits < infinity ? (unsigned)bits : infinity);
}

// ---- Access by format ----

#define REAL_FORMAT(letter, T, from_memory, to_memory)                                             \
    static Number get_##letter(const void *from, size_t i)                                         \
    {                                                                                              \
        T x;                                                                                       \
        memcpy(&x, (const char *)from + i * sizeof x, sizeof x);                                   \
        return number(from_memory);                                                                \
    }                                                                                              \
    static void put_##letter(void *to, size_t i, Number value)                                     \
    {                                                                                              \
        double y = value.re;                                                                       \
        T x = (T)(to_memory);                                                                      \
        memcpy((char *)to + i * sizeof x, &x, sizeof x);                                           \
    }
#define COMPLEX_FORMAT(letter, part)                                                               \
    static Number get_##letter(const void *from, size_t i)                                         \
    {                                                                                              \
        return (Number){get_##part(from, 2 * i).re, get_##part(from, 2 * i + 1).re};               \
    }                                                                                              \
    static void put_##letter(void *to, size_t i, Number x)                                         \
    {                                                                                              \
        put_##part(to, 2 * i, number(x.re));                                                       \
        put_##part(to, 2 * i + 1, number(x.im));                                                   \
    }

// To the nearest whole number between two; NaN becomes 0.
static double whole(double x, double least, double most)
{
    if (isnan(x)) return 0.0;
    x = nearbyint(x);
    return x < least ? least : x > most ? most : x;
}

REAL_FORMAT(S, float, x, y)
REAL_FORMAT(D, double, x, y)
REAL_FORMAT(H, uint16_t, decode(&HALF, x), encode(&HALF, y))
REAL_FORMAT(T, uint16_t, decode(&BFLOAT16, x), encode(&BFLOAT16, y))
REAL_FORMAT(I8, int8_t, x, whole(y, INT8_MIN, INT8_MAX))
REAL_FORMAT(I, int32_t, x, whole(y, INT32_MIN, INT32_MAX))
COMPLEX_FORMAT(C, S)
COMPLEX_FORMAT(Z, D)
COMPLEX_FORMAT(CI8, I8)

const Format simblas_S = {CUDA_R_32F, "CUDA_R_32F", 4, 4, false, get_S, put_S};
const Format simblas_D = {CUDA_R_64F, "CUDA_R_64F", 8, 8, false, get_D, put_D};
const Format simblas_C = {CUDA_C_32F, "CUDA_C_32F", 8, 8, true, get_C, put_C};
const Format simblas_Z = {CUDA_C_64F, "CUDA_C_64F", 16, 16, true, get_Z, put_Z};
const Format simblas_H = {CUDA_R_16F, "CUDA_R_16F", 2, 2, false, get_H, put_H};
const Format simblas_T = {CUDA_R_16BF, "CUDA_R_16BF", 2, 2, false, get_T, put_T};
static const Format I_FORMAT = {CUDA_R_32I, "CUDA_R_32I", 4, 4, false, get_I, put_I};
static const Format I8_FORMAT = {CUDA_R_8I, "CUDA_R_8I", 1, 1, false, get_I8, put_I8};
static const Format CI8_FORMAT = {CUDA_C_8I, "CUDA_C_8I", 2, 2, true, get_CI8, put_CI8};

const Format *simblas_format(cudaDataType type)
{
    static const Format *const all[] = {&simblas_S, &simblas_D, &simblas_C, &simblas_Z, &simblas_H,
                                        &simblas_T, &I_FORMAT,  &I8_FORMAT, &CI8_FORMAT};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->type == type) return all[i];
    return NULL;
}

const Format *simblas_real(const Format *format)
{
    if (format == &simblas_C) return &simblas_S;
    return format == &simblas_Z ? &simblas_D : format;
}

// Divides by the larger part of the divisor first, so that nothing overflows (Smith's algorithm).
Number simblas_divide(Number a, Number b)
{
    if (a.im == 0.0 && b.im == 0.0) return number(a.re / b.re);
    if (fabs(b.re) >= fabs(b.im)) {
        double ratio = b.im / b.re, divisor = b.re + b.im * ratio;
        return (Number){(a.re + a.im * ratio) / divisor, (a.im - a.re * ratio) / divisor};
    }
    double ratio = b.re / b.im, divisor = b.re * ratio + b.im;
    return (Number){(a.re * ratio + a.im) / divisor, (a.im * ratio - a.re) / divisor};
}
