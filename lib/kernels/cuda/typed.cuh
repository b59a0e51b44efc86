/* typed.cuh: numbers of two bytes that kernels read and write as floats.
 *
 * A kernel is a template of the type of its arrays. It computes in float: an element read is one,
 * and one assigned is rounded to nearest, ties to even (rounding.h). A launcher goes from a DType
 * to the type:
 *
 *   Launch launch = TYPED_BEGIN("kernel_scale", type, stream);
 *   BY_TYPE(type, scale_of(launch, (T *)x, factor, n));
 */
#ifndef SHARDLAB_TYPED_CUH
#define SHARDLAB_TYPED_CUH

#include "launch.cuh"
#include "rounding.h"

struct Bf16 {
    uint16_t bits;

    static __device__ uint16_t narrow(float x)
    {
        return bf16_from_float(x);
    }
    __device__ operator float() const
    {
        return bf16_to_float(bits);
    }
    __device__ Bf16 &operator=(float x)
    {
        bits = narrow(x);
        return *this;
    }
    __device__ Bf16 &operator+=(float x)
    {
        return *this = (float)*this + x;
    }
};

struct F16 {
    uint16_t bits;

    static __device__ uint16_t narrow(float x)
    {
        return f16_from_float(x);
    }
    __device__ operator float() const
    {
        return f16_to_float(bits);
    }
    __device__ F16 &operator=(float x)
    {
        bits = narrow(x);
        return *this;
    }
    __device__ F16 &operator+=(float x)
    {
        return *this = (float)*this + x;
    }
};

// The value that a kernel reads after x was stored as a T.
template <class T> static __device__ __forceinline__ float rounded(float x)
{
    T stored;
    stored = x;
    return stored;
}

// ---- Four neighbours, at a multiple of their size, as floats ----

struct alignas(8) FourHalves {
    uint16_t x, y, z, w;
};

static inline __device__ float4 load_four(const float *x)
{
    return *(const float4 *)(uintptr_t)x;
}
// The compiler drops a load whose value nobody uses, but then would cut a plain store into four;
// __stwb is an ordinary store that stays whole.
static inline __device__ void store_four(float *x, float4 v)
{
    __stwb((float4 *)(uintptr_t)x, v);
}

template <class Half> static __device__ float4 load_four(const Half *x)
{
    FourHalves v = *(const FourHalves *)(uintptr_t)x;
    return {Half{v.x}, Half{v.y}, Half{v.z}, Half{v.w}};
}
template <class Half> static __device__ void store_four(Half *x, float4 v)
{
    *(FourHalves *)(uintptr_t)x = {Half::narrow(v.x), Half::narrow(v.y), Half::narrow(v.z),
                                   Half::narrow(v.w)};
}

// LAUNCH_BEGIN of a kernel's _ex form, which for floats is the kernel of floats.
#define TYPED_BEGIN(name, type, stream)                                                            \
    LAUNCH_BEGIN((type) == DTYPE_F32 ? name : name "_ex", (stream))

// Returns `call`, in which T is the type.
#define BY_TYPE(type, call)                                                                        \
    do {                                                                                           \
        if ((type) == DTYPE_BF16) {                                                                \
            typedef Bf16 T;                                                                        \
            return call;                                                                           \
        } else if ((type) == DTYPE_F16) {                                                          \
            typedef F16 T;                                                                         \
            return call;                                                                           \
        } else {                                                                                   \
            typedef float T;                                                                       \
            return call;                                                                           \
        }                                                                                          \
    } while (0)

#endif
