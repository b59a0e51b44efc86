/* cuComplex.h: complex numbers as pairs, x + y·i, and their arithmetic.
 *
 * Interface: cuFloatComplex (cuComplex) with cuCrealf … cuCfmaf, cuDoubleComplex with cuCreal …
 * cuCfma, and the ways from one to the other.
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

static __inline__ float cuCrealf(cuFloatComplex x)
{
    return x.x;
}
static __inline__ float cuCimagf(cuFloatComplex x)
{
    return x.y;
}
static __inline__ cuFloatComplex make_cuFloatComplex(float r, float i)
{
    cuFloatComplex z = {r, i};
    return z;
}
static __inline__ cuFloatComplex cuConjf(cuFloatComplex x)
{
    return make_cuFloatComplex(x.x, -x.y);
}
static __inline__ cuFloatComplex cuCaddf(cuFloatComplex x, cuFloatComplex y)
{
    return make_cuFloatComplex(x.x + y.x, x.y + y.y);
}
static __inline__ cuFloatComplex cuCsubf(cuFloatComplex x, cuFloatComplex y)
{
    return make_cuFloatComplex(x.x - y.x, x.y - y.y);
}
static __inline__ cuFloatComplex cuCmulf(cuFloatComplex x, cuFloatComplex y)
{
    return make_cuFloatComplex(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x);
}
// Scaled by the size of the divisor, so that no product overflows.
static __inline__ cuFloatComplex cuCdivf(cuFloatComplex x, cuFloatComplex y)
{
    float s = fabsf(y.x) + fabsf(y.y);
    float a = x.x / s, b = x.y / s, c = y.x / s, d = y.y / s, t = c * c + d * d;
    return make_cuFloatComplex((a * c + b * d) / t, (b * c - a * d) / t);
}
static __inline__ float cuCabsf(cuFloatComplex x)
{
    return hypotf(x.x, x.y);
}
// x·y + d
static __inline__ cuFloatComplex cuCfmaf(cuFloatComplex x, cuFloatComplex y, cuFloatComplex d)
{
    return cuCaddf(cuCmulf(x, y), d);
}

typedef double2 cuDoubleComplex;

static __inline__ double cuCreal(cuDoubleComplex x)
{
    return x.x;
}
static __inline__ double cuCimag(cuDoubleComplex x)
{
    return x.y;
}
static __inline__ cuDoubleComplex make_cuDoubleComplex(double r, double i)
{
    cuDoubleComplex z = {r, i};
    return z;
}
static __inline__ cuDoubleComplex cuConj(cuDoubleComplex x)
{
    return make_cuDoubleComplex(x.x, -x.y);
}
static __inline__ cuDoubleComplex cuCadd(cuDoubleComplex x, cuDoubleComplex y)
{
    return make_cuDoubleComplex(x.x + y.x, x.y + y.y);
}
static __inline__ cuDoubleComplex cuCsub(cuDoubleComplex x, cuDoubleComplex y)
{
    return make_cuDoubleComplex(x.x - y.x, x.y - y.y);
}
static __inline__ cuDoubleComplex cuCmul(cuDoubleComplex x, cuDoubleComplex y)
{
    return make_cuDoubleComplex(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x);
}
// Scaled by the size of the divisor, so that no product overflows.
static __inline__ cuDoubleComplex cuCdiv(cuDoubleComplex x, cuDoubleComplex y)
{
    double s = fabs(y.x) + fabs(y.y);
    double a = x.x / s, b = x.y / s, c = y.x / s, d = y.y / s, t = c * c + d * d;
    return make_cuDoubleComplex((a * c + b * d) / t, (b * c - a * d) / t);
}
static __inline__ double cuCabs(cuDoubleComplex x)
{
    return hypot(x.x, x.y);
}
// x·y + d
static __inline__ cuDoubleComplex cuCfma(cuDoubleComplex x, cuDoubleComplex y, cuDoubleComplex d)
{
    return cuCadd(cuCmul(x, y), d);
}

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
