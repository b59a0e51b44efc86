/* bias.cu: lays a bias under a matrix or adds it, alone and together with GELU.
 *
 * Separate kernels for a bias and for GELU would each read and write the whole matrix; in one
 * kernel the sum is still in a register when GELU needs it. Compiled with -fmad=false, so that the
 * bits are those of the separate kernels.
 */
#include <stdint.h>

#include "columns.cuh"
#include "gelu.cuh"

#define WIDE 64 // threads along the columns: two warps, side by side
#define DEEP 4  // rows at a time
#define MOST_ROW_BLOCKS 64

// A grid over a matrix with `cols` elements per row: threads walk down their column with its bias
// in a register. Returns false if there are no elements.
static bool matrix_grid(dim3 *blocks, int rows, size_t cols)
{
    size_t across = (cols + WIDE - 1) / WIDE, down = ((size_t)rows + DEEP - 1) / DEEP;
    if (rows <= 0 || cols == 0) return false;
    *blocks = dim3((unsigned)across, (unsigned)(down < MOST_ROW_BLOCKS ? down : MOST_ROW_BLOCKS));
    return true;
}

// Whether rows of `cols` floats at these addresses can be read four floats at a time.
static bool in_fours(int cols, const void *a, const void *b, const void *c)
{
    return cols % 4 == 0 && ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0;
}

static inline __device__ float4 operator+(float4 a, float4 b)
{
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

static inline __device__ float4 gelu_of(float4 v)
{
    return {gelu_of(v.x), gelu_of(v.y), gelu_of(v.z), gelu_of(v.w)};
}

// out (rows, cols) = bias (cols); a Number is a float or a float4
template <class Number>
static __global__ void __launch_bounds__(WIDE *DEEP)
    spread_bias(Number *out, const Number *bias, int rows, size_t cols)
{
    size_t c = blockIdx.x * (size_t)WIDE + threadIdx.x;
    if (c >= cols) return;
    Number b = bias[c];
    for (size_t r = blockIdx.y * DEEP + threadIdx.y; r < (size_t)rows; r += gridDim.y * DEEP)
        out[r * cols + c] = b;
}

// A sum converted to a Number, which gelu takes.
template <class Number> static __device__ float4 stored(float4 sum)
{
    return sum;
}
template <class Number> static __device__ float stored(float sum)
{
    return rounded<Number>(sum);
}

// y (rows, cols) += bias (cols), out (rows, cols) = gelu(y); a Sum is the type that adds Numbers
template <class Number, class Sum>
static __global__ void __launch_bounds__(WIDE *DEEP)
    bias_gelu_forward(Number *out, Number *y, const Number *bias, int rows, size_t cols)
{
    size_t c = blockIdx.x * (size_t)WIDE + threadIdx.x;
    if (c >= cols) return;
    Sum b = bias[c];
    for (size_t r = blockIdx.y * DEEP + threadIdx.y; r < (size_t)rows; r += gridDim.y * DEEP) {
        Sum sum = stored<Number>(y[r * cols + c] + b);
        y[r * cols + c] = sum;
        out[r * cols + c] = gelu_of(sum);
    }
}

// din (rows, cols) = dout · gelu'(y), dbias (cols) += its column sums; din may be y
template <class T>
static __global__ void __launch_bounds__(COLUMNS *MOST_LANES)
    bias_gelu_backward(T *din, T *dbias, const T *dout, const T *y, int rows, unsigned cols)
{
    unsigned c = blockIdx.x * COLUMNS + threadIdx.x;
    float sum = 0.0f;
    if (c < cols) {
#pragma unroll 4
        for (size_t r = threadIdx.y; r < (size_t)rows; r += blockDim.y) {
            float d = rounded<T>(dout[r * cols + c] * gelu_slope_of(y[r * cols + c]));
            din[r * cols + c] = d;
            sum += d;
        }
    }
    sum = add_lanes(shared_lanes(0), sum);
    if (threadIdx.y == 0 && c < cols) dbias[c] += sum;
}

// Uses four floats at a time if the rows allow it.
static void launch_spread(Launch *launch, float *out, const float *bias, int rows, size_t width)
{
    dim3 blocks, threads(WIDE, DEEP);
    bool fours = in_fours((int)width, out, bias, NULL);
    if (!matrix_grid(&blocks, rows, fours ? width / 4 : width)) return;
    if (fours)
        launch_grid(launch, spread_bias<float4>, blocks, threads, (float4 *)(uintptr_t)out,
                    (const float4 *)(uintptr_t)bias, rows, width / 4);
    else
        launch_grid(launch, spread_bias<float>, blocks, threads, out, bias, rows, width);
}

template <class T>
static void launch_spread(Launch *launch, T *out, const T *bias, int rows, size_t width)
{
    dim3 blocks, threads(WIDE, DEEP);
    if (matrix_grid(&blocks, rows, width))
        launch_grid(launch, spread_bias<T>, blocks, threads, out, bias, rows, width);
}

template <class T>
static cudaError_t broadcast_of(Launch launch, T *out, const T *bias, int rows, int cols)
{
    size_t width = (size_t)cols;
    launch_write(&launch, out, (size_t)rows * width * sizeof *out);
    launch_read(&launch, bias, width * sizeof *bias);
    launch_spread(&launch, out, bias, rows, width);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_broadcast_bias(float *out, const float *bias, int rows, int cols,
                                             cudaStream_t stream)
{
    return broadcast_of(LAUNCH_BEGIN("kernel_broadcast_bias", stream), out, bias, rows, cols);
}

extern "C" cudaError_t kernel_broadcast_bias_ex(DType type, void *out, const void *bias, int rows,
                                                int cols, cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_broadcast_bias", type, stream);
    BY_TYPE(type, broadcast_of(launch, (T *)out, (const T *)bias, rows, cols));
}

static void launch_bias_gelu(Launch *launch, float *out, float *y, const float *bias, int rows,
                             size_t width)
{
    dim3 blocks, threads(WIDE, DEEP);
    bool fours = in_fours((int)width, out, y, bias);
    if (!matrix_grid(&blocks, rows, fours ? width / 4 : width)) return;
    if (fours)
        launch_grid(launch, bias_gelu_forward<float4, float4>, blocks, threads,
                    (float4 *)(uintptr_t)out, (float4 *)(uintptr_t)y,
                    (const float4 *)(uintptr_t)bias, rows, width / 4);
    else
        launch_grid(launch, bias_gelu_forward<float, float>, blocks, threads, out, y, bias, rows,
                    width);
}

template <class T>
static void launch_bias_gelu(Launch *launch, T *out, T *y, const T *bias, int rows, size_t width)
{
    dim3 blocks, threads(WIDE, DEEP);
    if (matrix_grid(&blocks, rows, width))
        launch_grid(launch, bias_gelu_forward<T, float>, blocks, threads, out, y, bias, rows,
                    width);
}

template <class T>
static cudaError_t bias_gelu_of(Launch launch, T *out, T *y, const T *bias, int rows, int cols)
{
    size_t width = (size_t)cols;
    launch_write(&launch, out, (size_t)rows * width * sizeof *out);
    launch_update(&launch, y, (size_t)rows * width * sizeof *y);
    launch_read(&launch, bias, width * sizeof *bias);
    launch_bias_gelu(&launch, out, y, bias, rows, width);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_bias_gelu_forward(float *out, float *y, const float *bias, int rows,
                                                int cols, cudaStream_t stream)
{
    return bias_gelu_of(LAUNCH_BEGIN("kernel_bias_gelu_forward", stream), out, y, bias, rows, cols);
}

extern "C" cudaError_t kernel_bias_gelu_forward_ex(DType type, void *out, void *y, const void *bias,
                                                   int rows, int cols, cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_bias_gelu_forward", type, stream);
    BY_TYPE(type, bias_gelu_of(launch, (T *)out, (T *)y, (const T *)bias, rows, cols));
}

template <class T>
static cudaError_t bias_gelu_backward_of(Launch launch, T *din, T *dbias, const T *dout, const T *y,
                                         int rows, int cols)
{
    size_t C = (size_t)cols, bytes = (size_t)rows * C * sizeof *y;
    launch_update(&launch, dbias, C * sizeof *dbias);
    launch_read(&launch, dout, bytes);
    if (din == y) {
        launch_update(&launch, din, bytes);
    } else {
        launch_write(&launch, din, bytes);
        launch_read(&launch, y, bytes);
    }
    if (rows > 0 && cols > 0)
        launch_grid(&launch, bias_gelu_backward<T>, column_grid(cols), column_threads(rows), din,
                    dbias, dout, y, rows, (unsigned)cols);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_bias_gelu_backward(float *din, float *dbias, const float *dout,
                                                 const float *y, int rows, int cols,
                                                 cudaStream_t stream)
{
    return bias_gelu_backward_of(LAUNCH_BEGIN("kernel_bias_gelu_backward", stream), din, dbias,
                                 dout, y, rows, cols);
}

extern "C" cudaError_t kernel_bias_gelu_backward_ex(DType type, void *din, void *dbias,
                                                    const void *dout, const void *y, int rows,
                                                    int cols, cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_bias_gelu_backward", type, stream);
    BY_TYPE(type, bias_gelu_backward_of(launch, (T *)din, (T *)dbias, (const T *)dout, (const T *)y,
                                        rows, cols));
}
