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
#define MOST_ROW_BLOCKS 256

// A grid over a matrix with `cols` elements per row: threads walk down their column with its bias
// in a register. Returns false if there are no elements.
static bool matrix_grid(dim3 *blocks, int rows, size_t cols)
{
    size_t across = (cols + WIDE - 1) / WIDE, down = ((size_t)rows + DEEP - 1) / DEEP;
    if (rows <= 0 || cols == 0) return false;
    *blocks = dim3((unsigned)across, (unsigned)(down < MOST_ROW_BLOCKS ? down : MOST_ROW_BLOCKS));
    return true;
}

// Whether rows of `cols` numbers at these addresses can be read four at a time.
template <class T> static bool in_fours(size_t cols, const T *a, const T *b, const T *c)
{
    return cols % 4 == 0 && ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % (4 * sizeof *a) == 0;
}

// N neighbours of a row, as floats.
template <int N> struct Part {
    float v[N];
};

template <int N, class T> static __device__ __forceinline__ Part<N> load(const T *x)
{
    if constexpr (N == 1)
        return {{*x}};
    else {
        float4 four = load_four(x);
        return {{four.x, four.y, four.z, four.w}};
    }
}

template <int N, class T> static __device__ __forceinline__ void store(T *x, const Part<N> &p)
{
    if constexpr (N == 1)
        *x = p.v[0];
    else
        store_four(x, {p.v[0], p.v[1], p.v[2], p.v[3]});
}

// out (rows, cols) = bias (cols)
template <int N, class T>
static __global__ void __launch_bounds__(WIDE *DEEP)
    spread_bias(T *out, const T *bias, int rows, size_t cols)
{
    size_t c = N * (blockIdx.x * (size_t)WIDE + threadIdx.x);
    if (c >= cols) return;
    Part<N> b = load<N>(bias + c);
    for (size_t r = blockIdx.y * DEEP + threadIdx.y; r < (size_t)rows; r += gridDim.y * DEEP)
        store(out + r * cols + c, b);
}

// y (rows, cols) += bias (cols), out (rows, cols) = gelu(y), of the y that is stored
template <int N, class T>
static __global__ void __launch_bounds__(WIDE *DEEP)
    bias_gelu_forward(T *out, T *y, const T *bias, int rows, size_t cols)
{
    size_t c = N * (blockIdx.x * (size_t)WIDE + threadIdx.x);
    if (c >= cols) return;
    Part<N> b = load<N>(bias + c);
    for (size_t r = blockIdx.y * DEEP + threadIdx.y; r < (size_t)rows; r += gridDim.y * DEEP) {
        Part<N> sum = load<N>(y + r * cols + c), of_sum;
#pragma unroll
        for (int i = 0; i < N; i++) {
            sum.v[i] = rounded<T>(sum.v[i] + b.v[i]);
            of_sum.v[i] = gelu_of(sum.v[i]);
        }
        store(y + r * cols + c, sum);
        store(out + r * cols + c, of_sum);
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

template <class T>
static cudaError_t broadcast_of(Launch launch, T *out, const T *bias, int rows, int cols)
{
    size_t width = (size_t)cols;
    launch_write(&launch, out, (size_t)rows * width * sizeof *out);
    launch_read(&launch, bias, width * sizeof *bias);
    dim3 blocks, threads(WIDE, DEEP);
    bool fours = in_fours(width, out, bias, bias);
    if (matrix_grid(&blocks, rows, fours ? width / 4 : width))
        launch_grid(&launch, fours ? spread_bias<4, T> : spread_bias<1, T>, blocks, threads, out,
                    bias, rows, width);
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

template <class T>
static cudaError_t bias_gelu_of(Launch launch, T *out, T *y, const T *bias, int rows, int cols)
{
    size_t width = (size_t)cols;
    launch_write(&launch, out, (size_t)rows * width * sizeof *out);
    launch_update(&launch, y, (size_t)rows * width * sizeof *y);
    launch_read(&launch, bias, width * sizeof *bias);
    dim3 blocks, threads(WIDE, DEEP);
    bool fours = in_fours(width, out, y, bias);
    if (matrix_grid(&blocks, rows, fours ? width / 4 : width))
        launch_grid(&launch, fours ? bias_gelu_forward<4, T> : bias_gelu_forward<1, T>, blocks,
                    threads, out, y, bias, rows, width);
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
