/* cuComplex.h: complex numbers as pairs, x + y·i, and their arithmetic.
 *
 * Interface: cuFloatComplex (cuComplex) with cuCrealf … cuCfmaf, cuDoubleComplex with cuCreal …
 * cuCfma, and conversions between the two.
 */
#if defined(CU_COMPLEX_H_) && !defined(SIMGPU_COMPLEX)
#error "NVIDIA's cuComplex.h comes before simgpu's: put simgpu/include first"
#endif
#ifndef CU_COMPLEX_H_
#define CU_COMPLEX_H_
#define SIMGPU_COMPLEX

#include <math.h>

#include "vector_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;

// The arithmetic of one type; its names end in `f` or in nothing, like those of math.h. Division is
// scaled by the size of the divisor, so that no product overflows.
#define SIMGPU_COMPLEX_OF(type, real, f)                                                           \
    static __inline__ real cuCreal##f(type x)                                                      \
    {                                                                                              \
        return x.x;                                                                                \
    }                                                                                              \
    static __inline__ real cuCimag##f(type x)                                                      \
    {                                                                                              \
        return x.y;                                                                                \
    }                                                                                              \
    static __inline__ type make_##type(real r, real i)                                             \
    {                                                                                              \
        type z = {r, i};                                                                           \
        return z;                                                                                  \
    }                                                                                              \
    static __inline__ type cuConj##f(type x)                                                       \
    {                                                                                              \
        return make_##type(x.x, -x.y);                                                             \
    }                                                                                              \
    static __inline__ type cuCadd##f(type x, type y)                                               \
    {                                                                                              \
        return make_##type(x.x + y.x, x.y + y.y);                                                  \
    }                                                                                              \
    static __inline__ type cuCsub##f(type x, type y)                                               \
    {                                                                                              \
        return make_##type(x.x - y.x, x.y - y.y);                                                  \
    }                                                                                              \
    static __inline__ type cuCmul##f(type x, type y)                                               \
    {                                                                                              \
        return make_##type(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x);                          \
    }                                                                                              \
    static __inline__ type cuCdiv##f(type x, type y)                                               \
    {                                                                                              \
        real s = fabs##f(y.x) + fabs##f(y.y);                                                      \
        real a = x.x / s, b = x.y / s, c = y.x / s, d = y.y / s, t = c * c + d * d;                \
        return make_##type((a * c + b * d) / t, (b * c - a * d) / t);                              \
    }                                                                                              \
    static __inline__ real cuCabs##f(type x)                                                       \
    {                                                                                              \
        return hypot##f(x.x, x.y);                                                                 \
    }                                                                                              \
    static __inline__ type cuCfma##f(type x, type y, type d)                                       \
    {                                                                                              \
        return cuCadd##f(cuCmul##f(x, y), d);                                                      \
    }

SIMGPU_COMPLEX_OF(cuFloatComplex, float, f)
SIMGPU_COMPLEX_OF(cuDoubleComplex, double, )
#undef SIMGPU_COMPLEX_OF

typedef cuFloatComplex cuComplex;
static __inline__ cuComplex make_cuComplex(float x, float y)
{
    return make_cuFloatComplex(x, y);
}
static __inline__ cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex c)
{
    return make_cuDoubleComplex((double)c.x, (double)c.y);
}
static __inline__ cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex c)
{
    return make_cuFloatComplex((float)c.x, (float)c.y);
}

#ifdef __cplusplus
}
#endif
#endif
