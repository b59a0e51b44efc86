/* number.c: the formats of numbers in device memory, and their way to double and back.
 *
 * Narrow formats round to the nearest, ties to even; whole numbers saturate. The 8-bit formats of
 * floating point are decoded by their definition (OCP 8-bit Floating Point Specification).
 *
 * Interface: simblas_S … simblas_I, simblas_format, simblas_real, simblas_divide.
 */
#include <math.h>
#include <string.h>

#include "blas.h"

// ---- Bits ----

// A number with a sign, `exponent` and `fraction` bits; `top` is its largest exponent field that
// holds numbers.
typedef struct Bits {
    int exponent, fraction, top;
} Bits;
static const Bits HALF = {5, 10, 30}, BFLOAT16 = {8, 7, 254}, E4M3 = {4, 3, 15}, E5M2 = {5, 2, 30};

// E4M3 has no infinity, and one NaN: all ones.
static double decode(const Bits *b, unsigned bits)
{
    unsigned field = bits >> b->fraction & ((1u << b->exponent) - 1);
    unsigned fraction = bits & ((1u << b->fraction) - 1);
    int bias = (1 << (b->exponent - 1)) - 1;
    bool negative = bits >> (b->exponent + b->fraction) & 1;
    bool all_ones = (int)field == b->top && fraction == (1u << b->fraction) - 1;
    double value;
    if ((int)field > b->top)
        value = fraction ? NAN : INFINITY;
    else if (b->top == 15 && all_ones)
        value = NAN;
    else if (field == 0)
        value = ldexp(fraction, 1 - bias - b->fraction);
    else
        value = ldexp(fraction | 1u << b->fraction, (int)field - bias - b->fraction);
    return negative ? -value : value;
}

// Too large becomes infinity, in E4M3 the largest number, as conversions on a GPU saturate there.
static unsigned encode(const Bits *b, double x)
{
    int bias = (1 << (b->exponent - 1)) - 1, power;
    unsigned sign = signbit(x) ? 1u << (b->exponent + b->fraction) : 0;
    bool small = b->top == 15; // E4M3
    unsigned nan = (1u << (b->exponent + b->fraction)) - 1;
    unsigned largest = small ? nan - 1 : ((unsigned)(b->top + 1) << b->fraction) - 1;
    if (isnan(x)) return nan;
    if (isinf(x)) return sign | (small ? largest : largest + 1);
    if (x == 0.0) return sign;
    frexp(x, &power);
    int field = power - 1 + bias;
    if (field < 1) field = 1; // below the smallest normal number the step stays the same
    double steps = nearbyint(ldexp(fabs(x), b->fraction + bias - field));
    double bits = steps + (double)(field - 1) * (1 << b->fraction);
    if (bits > largest) return sign | (small ? largest : largest + 1);
    return sign | (unsigned)bits;
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
REAL_FORMAT(E4M3, uint8_t, decode(&E4M3, x), encode(&E4M3, y))
REAL_FORMAT(E5M2, uint8_t, decode(&E5M2, x), encode(&E5M2, y))
REAL_FORMAT(I8, int8_t, x, whole(y, INT8_MIN, INT8_MAX))
REAL_FORMAT(U8, uint8_t, x, whole(y, 0, UINT8_MAX))
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
const Format simblas_I = {CUDA_R_32I, "CUDA_R_32I", 4, 4, false, get_I, put_I};
static const Format E4M3_FORMAT = {CUDA_R_8F_E4M3, "CUDA_R_8F_E4M3", 1,       1,
                                   false,          get_E4M3,         put_E4M3};
static const Format E5M2_FORMAT = {CUDA_R_8F_E5M2, "CUDA_R_8F_E5M2", 1,       1,
                                   false,          get_E5M2,         put_E5M2};
static const Format I8_FORMAT = {CUDA_R_8I, "CUDA_R_8I", 1, 1, false, get_I8, put_I8};
static const Format U8_FORMAT = {CUDA_R_8U, "CUDA_R_8U", 1, 1, false, get_U8, put_U8};
static const Format CI8_FORMAT = {CUDA_C_8I, "CUDA_C_8I", 2, 2, true, get_CI8, put_CI8};

const Format *simblas_format(cudaDataType type)
{
    static const Format *const all[] = {&simblas_S,   &simblas_D, &simblas_C, &simblas_Z,
                                        &simblas_H,   &simblas_T, &simblas_I, &E4M3_FORMAT,
                                        &E5M2_FORMAT, &I8_FORMAT, &U8_FORMAT, &CI8_FORMAT};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->type == type) return all[i];
    return NULL;
}

const Format *simblas_real(const Format *format)
{
    if (format == &simblas_C) return &simblas_S;
    return format == &simblas_Z ? &simblas_D : format;
}

// By the larger part of the divisor, so that nothing overflows on the way (Smith's algorithm).
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
