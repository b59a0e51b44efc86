/* gelu.cu: GELU and its gradient, element by element.
 *
 * The exponential is CUDA's expf, which differs from the one of lib/kernels/vector_math.h in the
 * last place or two; but an element's bits do not depend on its place here either.
 *
 * Interface: kernel_gelu_forward, kernel_gelu_backward.
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

extern "C" cudaError_t kernel_gelu_forward(float *out, const float *in, size_t n,
                                           cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_gelu_forward", stream);
    launch_write(&launch, out, n * sizeof *out);
    launch_read(&launch, in, n * sizeof *in);
    launch_each(&launch, Gelu{}, n, out, in);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_gelu_backward(float *din, const float *dout, const float *in,
                                            size_t n, cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_gelu_backward", stream);
    launch_write(&launch, din, n * sizeof *din);
    launch_read(&launch, dout, n * sizeof *dout);
    launch_read(&launch, in, n * sizeof *in);
    launch_each(&launch, GeluBackward{}, n, din, dout, in);
    return launch_end(&launch);
}
