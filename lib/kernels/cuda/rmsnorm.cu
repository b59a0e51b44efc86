/* rmsnorm.cu: root mean square normalisation (Zhang & Sennrich 2019) over the columns of each row.
 *
 * With x̂ = x·rstd, rstd = 1/√(mean(x²) + eps), forward is y = x̂·weight. Backward, with
 * g = dy·weight: dx = rstd·(g - x̂·mean(g·x̂)). dx goes row by row, one block per row; dweight goes
 * column by column, in a grid of its own.
 */
#include "block.cuh"
#include "columns.cuh"
#include "row.cuh"

// out, rstd, x, weight as in kernels.h. If residual (rows, cols) is not NULL, sum is x, and x +
// residual takes its place. The first loop stores only columns without a register (layernorm.cu
// says why).
template <class T>
static __device__ void normalise(T *out, float *rstd, T *sum, const T *x, const T *residual,
                                 const T *__restrict__ weight, int rows, unsigned C, float eps)
{
    for (size_t r = blockIdx.x; r < (size_t)rows; r += gridDim.x) {
        size_t row = r * C;
        float kept[KEPT], squares = 0.0f;
        each_column(C, [&](unsigned c, int k) {
            float v = x[row + c];
            if (residual != NULL) v = rounded<T>(v + residual[row + c]);
            if (residual != NULL && k == KEPT) sum[row + c] = v;
            keep(kept, k, v);
            squares += v * v;
        });
        float s = 1.0f / sqrtf(block_sum(squares) / (float)C + eps);
        each_column(C, [&](unsigned c, int k) {
            float v = kept_or(kept, k, x + row + c);
            if (residual != NULL && k < KEPT) sum[row + c] = v;
            out[row + c] = v * s * weight[c];
        });
        if (threadIdx.x == 0) rstd[r] = s;
    }
}

template <class T>
static __global__ void __launch_bounds__(ROW_THREADS)
    rmsnorm_forward(T *out, float *rstd, const T *in, const T *weight, int rows, unsigned C,
                    float eps)
{
    normalise<T>(out, rstd, NULL, in, NULL, weight, rows, C, eps);
}

template <class T>
static __global__ void __launch_bounds__(ROW_THREADS)
    residual_rmsnorm_forward(T *out, float *rstd, T *sum, const T *residual, const T *weight,
                             int rows, unsigned C, float eps)
{
    normalise<T>(out, rstd, sum, sum, residual, weight, rows, C, eps);
}

// din, dout, in, residual (rows, C), weight (C), rstd (rows); residual may be NULL. A thread reads
// all it needs of a column before it writes there, so din may be residual.
template <class T>
static __global__ void __launch_bounds__(ROW_THREADS)
    rmsnorm_backward_rows(T *din, const T *dout, const T *in, const T *weight, const float *rstd,
                          const T *residual, int rows, unsigned C)
{
    for (size_t r = blockIdx.x; r < (size_t)rows; r += gridDim.x) {
        size_t row = r * C;
        float s = rstd[r], kept_g[KEPT], kept_x[KEPT], sum_gx = 0.0f;
        each_column(C, [&](unsigned c, int k) {
            float g = keep(kept_g, k, dout[row + c] * weight[c]);
            sum_gx += g * keep(kept_x, k, in[row + c]);
        });
        float mean_gx = s * block_sum(sum_gx) / (float)C;
        each_column(C, [&](unsigned c, int k) {
            float g = k < KEPT ? kept_g[k] : dout[row + c] * weight[c];
            float dx = s * (g - kept_or(kept_x, k, in + row + c) * s * mean_gx);
            din[row + c] = residual != NULL ? rounded<T>(dx) + residual[row + c] : dx;
        });
    }
}

// dweight[c] += Σ_r dout·x̂
template <class T>
static __global__ void __launch_bounds__(COLUMNS *MOST_LANES)
    rmsnorm_backward_columns(T *dweight, const T *dout, const T *in, const float *rstd, int rows,
                             unsigned C)
{
    unsigned c = blockIdx.x * COLUMNS + threadIdx.x;
    float dw = 0.0f;
    if (c < C) {
#pragma unroll 4
        for (size_t r = threadIdx.y; r < (size_t)rows; r += blockDim.y)
            dw += dout[r * C + c] * (in[r * C + c] * rstd[r]);
    }
    dw = add_lanes(shared_lanes(0), dw);
    if (threadIdx.y == 0 && c < C) dweight[c] += dw;
}

template <class T>
static cudaError_t rmsnorm_forward_of(Launch launch, T *out, float *rstd, const T *in,
                                      const T *weight, int rows, int cols, float eps)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    launch_write(&launch, out, R * C * sizeof *out);
    launch_write(&launch, rstd, R * sizeof *rstd);
    launch_read(&launch, in, R * C * sizeof *in);
    launch_read(&launch, weight, C * sizeof *weight);
    if (rows > 0)
        launch_grid(&launch, rmsnorm_forward<T>, blocks_of(R, 1), row_threads(C), out, rstd, in,
                    weight, rows, (unsigned)cols, eps);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_rmsnorm_forward(float *out, float *rstd, const float *in,
                                              const float *weight, int rows, int cols, float eps,
                                              cudaStream_t stream)
{
    return rmsnorm_forward_of(LAUNCH_BEGIN("kernel_rmsnorm_forward", stream), out, rstd, in, weight,
                              rows, cols, eps);
}

extern "C" cudaError_t kernel_rmsnorm_forward_ex(DType type, void *out, float *rstd, const void *in,
                                                 const void *weight, int rows, int cols, float eps,
                                                 cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_rmsnorm_forward", type, stream);
    BY_TYPE(type, rmsnorm_forward_of(launch, (T *)out, rstd, (const T *)in, (const T *)weight, rows,
                                     cols, eps));
}

template <class T>
static cudaError_t residual_forward_of(Launch launch, T *out, float *rstd, T *sum,
                                       const T *residual, const T *weight, int rows, int cols,
                                       float eps)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    launch_write(&launch, out, R * C * sizeof *out);
    launch_write(&launch, rstd, R * sizeof *rstd);
    launch_update(&launch, sum, R * C * sizeof *sum);
    launch_read(&launch, residual, R * C * sizeof *residual);
    launch_read(&launch, weight, C * sizeof *weight);
    if (rows > 0)
        launch_grid(&launch, residual_rmsnorm_forward<T>, blocks_of(R, 1), row_threads(C), out,
                    rstd, sum, residual, weight, rows, (unsigned)cols, eps);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_residual_rmsnorm_forward(float *out, float *rstd, float *sum,
                                                       const float *residual, const float *weight,
                                                       int rows, int cols, float eps,
                                                       cudaStream_t stream)
{
    return residual_forward_of(LAUNCH_BEGIN("kernel_residual_rmsnorm_forward", stream), out, rstd,
                               sum, residual, weight, rows, cols, eps);
}

extern "C" cudaError_t kernel_residual_rmsnorm_forward_ex(DType type, void *out, float *rstd,
                                                          void *sum, const void *residual,
                                                          const void *weight, int rows, int cols,
                                                          float eps, cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_residual_rmsnorm_forward", type, stream);
    BY_TYPE(type, residual_forward_of(launch, (T *)out, rstd, (T *)sum, (const T *)residual,
                                      (const T *)weight, rows, cols, eps));
}

template <class T>
static cudaError_t rmsnorm_backward_of(Launch launch, T *din, T *dweight, const T *dout,
                                       const T *in, const T *weight, const float *rstd,
                                       const T *residual, int rows, int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    launch_write(&launch, din, R * C * sizeof *din);
    launch_update(&launch, dweight, C * sizeof *dweight);
    launch_read(&launch, dout, R * C * sizeof *dout);
    launch_read(&launch, in, R * C * sizeof *in);
    launch_read(&launch, weight, C * sizeof *weight);
    launch_read(&launch, rstd, R * sizeof *rstd);
    if (residual != NULL) launch_read(&launch, residual, R * C * sizeof *residual);
    if (rows > 0 && cols > 0) {
        // The columns come first, so that din may be dout.
        launch_grid(&launch, rmsnorm_backward_columns<T>, column_grid(cols), column_threads(rows),
                    dweight, dout, in, rstd, rows, (unsigned)cols);
        launch_grid(&launch, rmsnorm_backward_rows<T>, blocks_of(R, 1), row_threads(C), din, dout,
                    in, weight, rstd, residual, rows, (unsigned)cols);
    }
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_rmsnorm_backward(float *din, float *dweight, const float *dout,
                                               const float *in, const float *weight,
                                               const float *rstd, const float *residual, int rows,
                                               int cols, cudaStream_t stream)
{
    return rmsnorm_backward_of(LAUNCH_BEGIN("kernel_rmsnorm_backward", stream), din, dweight, dout,
                               in, weight, rstd, residual, rows, cols);
}

extern "C" cudaError_t kernel_rmsnorm_backward_ex(DType type, void *din, void *dweight,
                                                  const void *dout, const void *in,
                                                  const void *weight, const float *rstd,
                                                  const void *residual, int rows, int cols,
                                                  cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_rmsnorm_backward", type, stream);
    BY_TYPE(type,
            rmsnorm_backward_of(launch, (T *)din, (T *)dweight, (const T *)dout, (const T *)in,
                                (const T *)weight, rstd, (const T *)residual, rows, cols));
}
