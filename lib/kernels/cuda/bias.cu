/* bias.cu: a bias laid under a matrix or added to it, alone and together with GELU.
 *
 * A kernel that adds a bias and one that applies GELU would each read and write the whole matrix;
 * in one kernel the sum is still in a register when GELU wants it. Compiled with -fmad=false, so
 * that the bits are those of the separate kernels.
 *
 * Interface: kernel_broadcast_bias, kernel_bias_gelu_forward, kernel_bias_gelu_backward.
 */
#include <stdint.h>

#include "columns.cuh"
#include "gelu.cuh"

#define WIDE 64 // threads along the columns: two warps, side by side
#define DEEP 4  // rows at a time
#define MOST_ROW_BLOCKS 64

// A grid over a matrix of `cols` things a row: threads walk down their column with its bias in a
// register. Returns false where there is nothing to walk over.
static bool matrix_grid(dim3 *blocks, int rows, size_t cols)
{
    size_t across = (cols + WIDE - 1) / WIDE, down = ((size_t)rows + DEEP - 1) / DEEP;
    if (rows <= 0 || cols == 0) return false;
    *blocks = dim3((unsigned)across, (unsigned)(down < MOST_ROW_BLOCKS ? down : MOST_ROW_BLOCKS));
    return true;
}

// Whether rows of `cols` floats at these addresses can be taken four floats at a time.
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

// y (rows, cols) += bias (cols), out (rows, cols) = gelu(y)
template <class Number>
static __global__ void __launch_bounds__(WIDE *DEEP)
    bias_gelu_forward(Number *out, Number *y, const Number *bias, int rows, size_t cols)
{
    size_t c = blockIdx.x * (size_t)WIDE + threadIdx.x;
    if (c >= cols) return;
    Number b = bias[c];
    for (size_t r = blockIdx.y * DEEP + threadIdx.y; r < (size_t)rows; r += gridDim.y * DEEP) {
        Number sum = y[r * cols + c] + b;
        y[r * cols + c] = sum;
        out[r * cols + c] = gelu_of(sum);
    }
}

// din (rows, cols) = dout · gelu'(y), dbias (cols) += its column sums; din may be y
static __global__ void __launch_bounds__(COLUMNS *MOST_LANES)
    bias_gelu_backward(float *din, float *dbias, const float *dout, const float *y, int rows,
                       unsigned cols)
{
    __shared__ float lane[MOST_LANES][COLUMNS];
    unsigned c = blockIdx.x * COLUMNS + threadIdx.x;
    float sum = 0.0f;
    if (c < cols) {
#pragma unroll 4
        for (size_t r = threadIdx.y; r < (size_t)rows; r += blockDim.y) {
            float d = dout[r * cols + c] * gelu_slope_of(y[r * cols + c]);
            din[r * cols + c] = d;
            sum += d;
        }
    }
    sum = add_lanes(lane, sum);
    if (threadIdx.y == 0 && c < cols) dbias[c] += sum;
}

extern "C" cudaError_t kernel_broadcast_bias(float *out, const float *bias, int rows, int cols,
                                          cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_broadcast_bias", stream);
    size_t width = (size_t)cols;
    launch_write(&launch, out, (size_t)rows * width * sizeof *out);
    launch_read(&launch, bias, width * sizeof *bias);
    bool fours = in_fours(cols, out, bias, NULL);
    dim3 blocks, threads(WIDE, DEEP);
    if (matrix_grid(&blocks, rows, fours ? width / 4 : width)) {
        if (fours)
            launch_grid(&launch, spread_bias<float4>, blocks, threads, (float4 *)(uintptr_t)out,
                        (const float4 *)(uintptr_t)bias, rows, width / 4);
        else
            launch_grid(&launch, spread_bias<float>, blocks, threads, out, bias, rows, width);
    }
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_bias_gelu_forward(float *out, float *y, const float *bias, int rows,
                                                int cols, cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_bias_gelu_forward", stream);
    size_t width = (size_t)cols;
    launch_write(&launch, out, (size_t)rows * width * sizeof *out);
    launch_update(&launch, y, (size_t)rows * width * sizeof *y);
    launch_read(&launch, bias, width * sizeof *bias);
    bool fours = in_fours(cols, out, y, bias);
    dim3 blocks, threads(WIDE, DEEP);
    if (matrix_grid(&blocks, rows, fours ? width / 4 : width)) {
        if (fours)
            launch_grid(&launch, bias_gelu_forward<float4>, blocks, threads,
                        (float4 *)(uintptr_t)out, (float4 *)(uintptr_t)y,
                        (const float4 *)(uintptr_t)bias, rows, width / 4);
        else
            launch_grid(&launch, bias_gelu_forward<float>, blocks, threads, out, y, bias, rows,
                        width);
    }
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_bias_gelu_backward(float *din, float *dbias, const float *dout,
                                                 const float *y, int rows, int cols,
                                                 cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_bias_gelu_backward", stream);
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
        launch_grid(&launch, bias_gelu_backward, column_grid(cols), column_threads(rows), din,
                    dbias, dout, y, rows, (unsigned)cols);
    return launch_end(&launch);
}
