/* cast.cu: converts numbers between types, and checks whether all are finite. */
#include "each.cuh"

struct Cast {
    __device__ void operator()(float &to, const float &from) const
    {
        to = from;
    }
};

// All threads that find one store the same value. Infinity and NaN have the largest exponent.
template <class T>
static __global__ void __launch_bounds__(EACH_THREADS)
    check_finite(int32_t *found, const T *x, size_t n)
{
    size_t stride = gridDim.x * (size_t)EACH_THREADS;
    bool any = false;
    for (size_t i = blockIdx.x * (size_t)EACH_THREADS + threadIdx.x; i < n; i += stride)
        any |= (rounding_bits(x[i]) & 0x7f800000u) == 0x7f800000u;
    if (any) *found = 1;
}

template <class To, class From>
static cudaError_t cast_of(Launch launch, To *dst, const From *src, size_t n)
{
    launch_write(&launch, dst, n * sizeof *dst);
    launch_read(&launch, src, n * sizeof *src);
    launch_each(&launch, Cast{}, n, dst, src);
    return launch_end(&launch);
}

template <class From>
static cudaError_t cast_to(Launch launch, DType type, void *dst, const From *src, size_t n)
{
    BY_TYPE(type, cast_of(launch, (T *)dst, src, n));
}

extern "C" cudaError_t kernel_cast(DType dst_type, void *dst, DType src_type, const void *src,
                                   size_t n, cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_cast", stream);
    BY_TYPE(src_type, cast_to(launch, dst_type, dst, (const T *)src, n));
}

template <class T>
static cudaError_t check_finite_of(Launch launch, int32_t *found, const T *x, size_t n)
{
    launch_update(&launch, found, sizeof *found);
    launch_read(&launch, x, n * sizeof *x);
    if (n > 0)
        launch_grid(&launch, check_finite<T>, blocks_of(n, EACH_THREADS), EACH_THREADS, found, x,
                    n);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_check_finite(int32_t *found, DType type, const void *x, size_t n,
                                           cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_check_finite", stream);
    BY_TYPE(type, check_finite_of(launch, found, (const T *)x, n));
}
