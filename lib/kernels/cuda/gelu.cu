/* gelu.cu: GELU and its gradient, element by element.
 *
 * The exponential is CUDA's expf, which differs from that of lib/kernels/vector_math.h in the last
 * place or two; but here, too, an element's bits do not depend on its place.
 */
#include "each.cuh"
#include "gelu.cuh"

struct Gelu {
    __device__ void operator()(float &out, const float &in) const
    {
        out = gelu_of(in);
    }
};

struct GeluBackward {
    __device__ void operator()(float &din, const float &dout, const float &in) const
    {
        din = dout * gelu_slope_of(in);
    }
};

template <class T> static cudaError_t gelu_forward_of(Launch launch, T *out, const T *in, size_t n)
{
    launch_write(&launch, out, n * sizeof *out);
    launch_read(&launch, in, n * sizeof *in);
    launch_each(&launch, Gelu{}, n, out, in);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_gelu_forward(float *out, const float *in, size_t n,
                                           cudaStream_t stream)
{
    return gelu_forward_of(LAUNCH_BEGIN("kernel_gelu_forward", stream), out, in, n);
}

extern "C" cudaError_t kernel_gelu_forward_ex(DType type, void *out, const void *in, size_t n,
                                              cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_gelu_forward", type, stream);
    BY_TYPE(type, gelu_forward_of(launch, (T *)out, (const T *)in, n));
}

template <class T>
static cudaError_t gelu_backward_of(Launch launch, T *din, const T *dout, const T *in, size_t n)
{
    launch_write(&launch, din, n * sizeof *din);
    launch_read(&launch, dout, n * sizeof *dout);
    launch_read(&launch, in, n * sizeof *in);
    launch_each(&launch, GeluBackward{}, n, din, dout, in);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_gelu_backward(float *din, const float *dout, const float *in,
                                            size_t n, cudaStream_t stream)
{
    return gelu_backward_of(LAUNCH_BEGIN("kernel_gelu_backward", stream), din, dout, in, n);
}

extern "C" cudaError_t kernel_gelu_backward_ex(DType type, void *din, const void *dout,
                                               const void *in, size_t n, cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_gelu_backward", type, stream);
    BY_TYPE(type, gelu_backward_of(launch, (T *)din, (const T *)dout, (const T *)in, n));
}
