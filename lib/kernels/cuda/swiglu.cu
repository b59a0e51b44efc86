/* swiglu.cu: the gated unit of a feed-forward part (Shazeer 2020): out = g·sigmoid(g)·u, where g
 * and u are the left and the right half of a row. A block takes a row.
 */
#include <math.h>

#include "typed.cuh"

#define SWIGLU_THREADS 256

static inline __device__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

// out (rows, C), in (rows, 2·C)
template <class T>
static __global__ void __launch_bounds__(SWIGLU_THREADS)
    swiglu_forward(T *out, const T *in, size_t rows, size_t C)
{
    for (size_t r = blockIdx.x; r < rows; r += gridDim.x)
        for (size_t c = threadIdx.x; c < C; c += blockDim.x) {
            float g = in[2 * r * C + c], u = in[2 * r * C + C + c];
            out[r * C + c] = g * sigmoid(g) * u;
        }
}

// din, in (rows, 2·C), which may be one array; dout (rows, C)
template <class T>
static __global__ void __launch_bounds__(SWIGLU_THREADS)
    swiglu_backward(T *din, const T *dout, const T *in, size_t rows, size_t C)
{
    for (size_t r = blockIdx.x; r < rows; r += gridDim.x)
        for (size_t c = threadIdx.x; c < C; c += blockDim.x) {
            float g = in[2 * r * C + c], u = in[2 * r * C + C + c], dy = dout[r * C + c];
            float s = sigmoid(g), silu = g * s, both = dy * u;
            din[2 * r * C + C + c] = dy * silu;
            din[2 * r * C + c] = both * (s + silu * (1.0f - s));
        }
}

template <class T>
static cudaError_t swiglu_forward_of(Launch launch, T *out, const T *in, int rows, int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    launch_write(&launch, out, R * C * sizeof *out);
    launch_read(&launch, in, 2 * R * C * sizeof *in);
    if (rows > 0)
        launch_grid(&launch, swiglu_forward<T>, blocks_of(R, 1), SWIGLU_THREADS, out, in, R, C);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_swiglu_forward(float *out, const float *in, int rows, int cols,
                                             cudaStream_t stream)
{
    return swiglu_forward_of(LAUNCH_BEGIN("kernel_swiglu_forward", stream), out, in, rows, cols);
}

extern "C" cudaError_t kernel_swiglu_forward_ex(DType type, void *out, const void *in, int rows,
                                                int cols, cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_swiglu_forward", type, stream);
    BY_TYPE(type, swiglu_forward_of(launch, (T *)out, (const T *)in, rows, cols));
}

template <class T>
static cudaError_t swiglu_backward_of(Launch launch, T *din, const T *dout, const T *in, int rows,
                                      int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    launch_write(&launch, din, 2 * R * C * sizeof *din);
    launch_read(&launch, dout, R * C * sizeof *dout);
    launch_read(&launch, in, 2 * R * C * sizeof *in);
    if (rows > 0)
        launch_grid(&launch, swiglu_backward<T>, blocks_of(R, 1), SWIGLU_THREADS, din, dout, in, R,
                    C);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_swiglu_backward(float *din, const float *dout, const float *in,
                                              int rows, int cols, cudaStream_t stream)
{
    return swiglu_backward_of(LAUNCH_BEGIN("kernel_swiglu_backward", stream), din, dout, in, rows,
                              cols);
}

extern "C" cudaError_t kernel_swiglu_backward_ex(DType type, void *din, const void *dout,
                                                 const void *in, int rows, int cols,
                                                 cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_swiglu_backward", type, stream);
    BY_TYPE(type, swiglu_backward_of(launch, (T *)din, (const T *)dout, (const T *)in, rows, cols));
}
