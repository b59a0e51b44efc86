/* elementwise.cu: kernels with one operation for all elements: fill, scale, add.
 *
 * IEEE 754 rounds each of these operations exactly, and nothing is fused (-fmad=false), so the bits
 * are those of lib/kernels/elementwise.c.
 */
#include "each.cuh"
#include "mix.h"

struct Fill {
    float value;
    __device__ void operator()(float &x) const
    {
        x = value;
    }
};

struct Scale {
    float factor;
    __device__ void operator()(float &x) const
    {
        x *= factor;
    }
};

struct Add {
    __device__ void operator()(float &to, const float &from) const
    {
        to += from;
    }
};

struct Sum2 {
    __device__ void operator()(float &sum, const float &a, const float &b) const
    {
        sum = a + b;
    }
};

struct AddDivided {
    float divisor;
    __device__ void operator()(float &to, const float &from) const
    {
        to += from / divisor;
    }
};

extern "C" cudaError_t kernel_fill(float *x, float value, size_t n, cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_fill", stream);
    launch_write(&launch, x, n * sizeof *x);
    launch_each(&launch, Fill{value}, n, x);
    return launch_end(&launch);
}

template <class T> static cudaError_t scale_of(Launch launch, T *x, float factor, size_t n)
{
    launch_update(&launch, x, n * sizeof *x);
    launch_each(&launch, Scale{factor}, n, x);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_scale(float *x, float factor, size_t n, cudaStream_t stream)
{
    return scale_of(LAUNCH_BEGIN("kernel_scale", stream), x, factor, n);
}

extern "C" cudaError_t kernel_scale_ex(DType type, void *x, float factor, size_t n,
                                       cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_scale", type, stream);
    BY_TYPE(type, scale_of(launch, (T *)x, factor, n));
}

// x (n); numbers below `least` go.
template <class T>
static __global__ void __launch_bounds__(EACH_THREADS)
    dropout(T *x, uint32_t least, float kept, uint64_t key, uint64_t first, size_t n)
{
    size_t stride = gridDim.x * (size_t)EACH_THREADS;
    for (size_t i = blockIdx.x * (size_t)EACH_THREADS + threadIdx.x; i < n; i += stride)
        x[i] = dropout_number(key, first + i) < least ? 0.0f : (float)x[i] / kept;
}

template <class T>
static cudaError_t dropout_of(Launch launch, T *x, float p, uint64_t key, uint64_t first, size_t n)
{
    launch_update(&launch, x, n * sizeof *x);
    if (n > 0)
        launch_grid(&launch, dropout<T>, blocks_of(n, EACH_THREADS), EACH_THREADS, x,
                    (uint32_t)(p * 0x1p24f), 1.0f - p, key, first, n);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_dropout_ex(DType type, void *x, float p, uint64_t key, uint64_t first,
                                         size_t n, cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_dropout", type, stream);
    BY_TYPE(type, dropout_of(launch, (T *)x, p, key, first, n));
}

template <class To, class From>
static cudaError_t add_of(Launch launch, To *dst, const From *src, size_t n)
{
    launch_update(&launch, dst, n * sizeof *dst);
    launch_read(&launch, src, n * sizeof *src);
    launch_each(&launch, Add{}, n, dst, src);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_add(float *dst, const float *src, size_t n, cudaStream_t stream)
{
    return add_of(LAUNCH_BEGIN("kernel_add", stream), dst, src, n);
}

template <class From>
static cudaError_t add_to(Launch launch, DType type, void *dst, const From *src, size_t n)
{
    BY_TYPE(type, add_of(launch, (T *)dst, src, n));
}

extern "C" cudaError_t kernel_add_ex(DType dst_type, void *dst, DType src_type, const void *src,
                                     size_t n, cudaStream_t stream)
{
    bool floats = dst_type == DTYPE_F32 && src_type == DTYPE_F32;
    Launch launch = LAUNCH_BEGIN(floats ? "kernel_add" : "kernel_add_ex", stream);
    BY_TYPE(src_type, add_to(launch, dst_type, dst, (const T *)src, n));
}

template <class T>
static cudaError_t add_out_of(Launch launch, T *out, const T *a, const T *b, size_t n)
{
    launch_write(&launch, out, n * sizeof *out);
    launch_read(&launch, a, n * sizeof *a);
    launch_read(&launch, b, n * sizeof *b);
    launch_each(&launch, Sum2{}, n, out, a, b);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_add_out(float *out, const float *a, const float *b, size_t n,
                                      cudaStream_t stream)
{
    return add_out_of(LAUNCH_BEGIN("kernel_add_out", stream), out, a, b, n);
}

extern "C" cudaError_t kernel_add_out_ex(DType type, void *out, const void *a, const void *b,
                                         size_t n, cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_add_out", type, stream);
    BY_TYPE(type, add_out_of(launch, (T *)out, (const T *)a, (const T *)b, n));
}

template <class To, class From>
static cudaError_t add_divided_of(Launch launch, To *dst, const From *src, float divisor, size_t n)
{
    launch_update(&launch, dst, n * sizeof *dst);
    launch_read(&launch, src, n * sizeof *src);
    launch_each(&launch, AddDivided{divisor}, n, dst, src);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_add_divided(float *dst, const float *src, float divisor, size_t n,
                                          cudaStream_t stream)
{
    return add_divided_of(LAUNCH_BEGIN("kernel_add_divided", stream), dst, src, divisor, n);
}

template <class From>
static cudaError_t add_divided_to(Launch launch, DType type, void *dst, const From *src,
                                  float divisor, size_t n)
{
    BY_TYPE(type, add_divided_of(launch, (T *)dst, src, divisor, n));
}

extern "C" cudaError_t kernel_add_divided_ex(DType dst_type, void *dst, DType src_type,
                                             const void *src, float divisor, size_t n,
                                             cudaStream_t stream)
{
    bool floats = dst_type == DTYPE_F32 && src_type == DTYPE_F32;
    Launch launch = LAUNCH_BEGIN(floats ? "kernel_add_divided" : "kernel_add_divided_ex", stream);
    BY_TYPE(src_type, add_divided_to(launch, dst_type, dst, (const T *)src, divisor, n));
}
