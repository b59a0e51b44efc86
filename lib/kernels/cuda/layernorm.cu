/* layernorm.cu: layer normalisation (Ba, Kiros & Hinton 2016) over the columns of each row.
 *
 * With x̂ = (x - mean)·rstd, forward is y = x̂·weight + bias. Backward, with g = dy·weight:
 * dx = rstd·(g - mean(g) - x̂·mean(g·x̂)), because mean and rstd themselves depend on all x of the
 * row. dx goes row by row, one block per row; dweight and dbias go column by column, in a grid of
 * their own.
 */
#include "block.cuh"
#include "columns.cuh"
#include "row.cuh"

#define EPS 1e-5f

// out, mean, rstd, x, weight, bias as in kernels.h. If residual (rows, cols) is not NULL, sum is x,
// and x + residual takes its place. The variance comes from the differences from the mean, which
// are in registers: E[x²] - E[x]² would cancel if the mean is large. The first loop has no store,
// as the compiler could not move the next load in front of it; but a column without a register must
// be stored there to be read again. __restrict__ lets the compiler load weights and biases ahead of
// the stores in the last loop.
template <class T>
static __device__ void normalise(T *out, float *mean, float *rstd, T *sum, const T *x,
                                 const T *residual, const T *__restrict__ weight,
                                 const T *__restrict__ bias, int rows, unsigned C)
{
    for (size_t r = blockIdx.x; r < (size_t)rows; r += gridDim.x) {
        size_t row = r * C;
        float kept[KEPT], total = 0.0f, squares = 0.0f;
        each_column(C, [&](unsigned c, int k) {
            float v = x[row + c];
            if (residual != NULL) v = rounded<T>(v + residual[row + c]);
            if (residual != NULL && k == KEPT) sum[row + c] = v;
            total += keep(kept, k, v);
        });
        float m = block_sum(total) / (float)C;
        each_column(C, [&](unsigned c, int k) {
            float off = kept_or(kept, k, x + row + c) - m;
            squares += off * off;
        });
        float s = 1.0f / sqrtf(block_sum(squares) / (float)C + EPS);
        each_column(C, [&](unsigned c, int k) {
            float v = kept_or(kept, k, x + row + c);
            if (residual != NULL && k < KEPT) sum[row + c] = v;
            out[row + c] = (v - m) * s * weight[c] + bias[c];
        });
        if (threadIdx.x == 0) {
            mean[r] = m;
            rstd[r] = s;
        }
    }
}

template <class T>
static __global__ void __launch_bounds__(ROW_THREADS)
    layernorm_forward(T *out, float *mean, float *rstd, const T *in, const T *weight, const T *bias,
                      int rows, unsigned C)
{
    normalise<T>(out, mean, rstd, NULL, in, NULL, weight, bias, rows, C);
}

template <class T>
static __global__ void __launch_bounds__(ROW_THREADS)
    residual_layernorm_forward(T *out, float *mean, float *rstd, T *sum, const T *residual,
                               const T *weight, const T *bias, int rows, unsigned C)
{
    normalise<T>(out, mean, rstd, sum, sum, residual, weight, bias, rows, C);
}

// din, dout, in, residual (rows, C), weight (C), mean, rstd (rows); residual may be NULL. A thread
// reads all it needs of a column before it writes there, so din may be residual.
template <class T>
static __global__ void __launch_bounds__(ROW_THREADS)
    layernorm_backward_rows(T *din, const T *dout, const T *in, const T *weight, const float *mean,
                            const float *rstd, const T *residual, int rows, unsigned C)
{
    for (size_t r = blockIdx.x; r < (size_t)rows; r += gridDim.x) {
        size_t row = r * C;
        float m = mean[r], s = rstd[r], kept_g[KEPT], kept_hat[KEPT];
        float sum_g = 0.0f, sum_gx = 0.0f;
        each_column(C, [&](unsigned c, int k) {
            float g = keep(kept_g, k, dout[row + c] * weight[c]);
            sum_g += g;
            sum_gx += g * keep(kept_hat, k, (in[row + c] - m) * s);
        });
        float2 sums = block_sum2(sum_g, sum_gx);
        float mean_g = sums.x / (float)C, mean_gx = sums.y / (float)C;
        each_column(C, [&](unsigned c, int k) {
            float g = k < KEPT ? kept_g[k] : dout[row + c] * weight[c];
            float hat = k < KEPT ? kept_hat[k] : (in[row + c] - m) * s;
            float dx = s * (g - mean_g - hat * mean_gx);
            din[row + c] = residual != NULL ? rounded<T>(dx) + residual[row + c] : dx;
        });
    }
}

// dweight[c] += Σ_r dout·x̂;  dbias[c] += Σ_r dout
template <class T>
static __global__ void __launch_bounds__(COLUMNS *MOST_LANES)
    layernorm_backward_columns(T *dweight, T *dbias, const T *dout, const T *in, const float *mean,
                               const float *rstd, int rows, unsigned C)
{
    unsigned c = blockIdx.x * COLUMNS + threadIdx.x;
    float dw = 0.0f, db = 0.0f;
    if (c < C) {
#pragma unroll 4
        for (size_t r = threadIdx.y; r < (size_t)rows; r += blockDim.y) {
            float dy = dout[r * C + c];
            dw += dy * ((in[r * C + c] - mean[r]) * rstd[r]);
            db += dy;
        }
    }
    dw = add_lanes(shared_lanes(0), dw);
    db = add_lanes(shared_lanes(1), db);
    if (threadIdx.y == 0 && c < C) {
        dweight[c] += dw;
        dbias[c] += db;
    }
}

template <class T>
static cudaError_t layernorm_forward_of(Launch launch, T *out, float *mean, float *rstd,
                                        const T *in, const T *weight, const T *bias, int rows,
                                        int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    launch_write(&launch, out, R * C * sizeof *out);
    launch_write(&launch, mean, R * sizeof *mean);
    launch_write(&launch, rstd, R * sizeof *rstd);
    launch_read(&launch, in, R * C * sizeof *in);
    launch_read(&launch, weight, C * sizeof *weight);
    launch_read(&launch, bias, C * sizeof *bias);
    if (rows > 0)
        launch_grid(&launch, layernorm_forward<T>, blocks_of(R, 1), row_threads(C), out, mean, rstd,
                    in, weight, bias, rows, (unsigned)cols);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_layernorm_forward(float *out, float *mean, float *rstd,
                                                const float *in, const float *weight,
                                                const float *bias, int rows, int cols,
                                                cudaStream_t stream)
{
    return layernorm_forward_of(LAUNCH_BEGIN("kernel_layernorm_forward", stream), out, mean, rstd,
                                in, weight, bias, rows, cols);
}

extern "C" cudaError_t kernel_layernorm_forward_ex(DType type, void *out, float *mean, float *rstd,
                                                   const void *in, const void *weight,
                                                   const void *bias, int rows, int cols,
                                                   cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_layernorm_forward", type, stream);
    BY_TYPE(type, layernorm_forward_of(launch, (T *)out, mean, rstd, (const T *)in,
                                       (const T *)weight, (const T *)bias, rows, cols));
}

template <class T>
static cudaError_t residual_forward_of(Launch launch, T *out, float *mean, float *rstd, T *sum,
                                       const T *residual, const T *weight, const T *bias, int rows,
                                       int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    launch_write(&launch, out, R * C * sizeof *out);
    launch_write(&launch, mean, R * sizeof *mean);
    launch_write(&launch, rstd, R * sizeof *rstd);
    launch_update(&launch, sum, R * C * sizeof *sum);
    launch_read(&launch, residual, R * C * sizeof *residual);
    launch_read(&launch, weight, C * sizeof *weight);
    launch_read(&launch, bias, C * sizeof *bias);
    if (rows > 0)
        launch_grid(&launch, residual_layernorm_forward<T>, blocks_of(R, 1), row_threads(C), out,
                    mean, rstd, sum, residual, weight, bias, rows, (unsigned)cols);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_residual_layernorm_forward(float *out, float *mean, float *rstd,
                                                         float *sum, const float *residual,
                                                         const float *weight, const float *bias,
                                                         int rows, int cols, cudaStream_t stream)
{
    return residual_forward_of(LAUNCH_BEGIN("kernel_residual_layernorm_forward", stream), out, mean,
                               rstd, sum, residual, weight, bias, rows, cols);
}

extern "C" cudaError_t kernel_residual_layernorm_forward_ex(DType type, void *out, float *mean,
                                                            float *rstd, void *sum,
                                                            const void *residual,
                                                            const void *weight, const void *bias,
                                                            int rows, int cols, cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_residual_layernorm_forward", type, stream);
    BY_TYPE(type, residual_forward_of(launch, (T *)out, mean, rstd, (T *)sum, (const T *)residual,
                                      (const T *)weight, (const T *)bias, rows, cols));
}

template <class T>
static cudaError_t layernorm_backward_of(Launch launch, T *din, T *dweight, T *dbias, const T *dout,
                                         const T *in, const T *weight, const float *mean,
                                         const float *rstd, const T *residual, int rows, int cols)
{
    size_t R = (size_t)rows, C = (size_t)cols;
    launch_write(&launch, din, R * C * sizeof *din);
    launch_update(&launch, dweight, C * sizeof *dweight);
    launch_update(&launch, dbias, C * sizeof *dbias);
    launch_read(&launch, dout, R * C * sizeof *dout);
    launch_read(&launch, in, R * C * sizeof *in);
    launch_read(&launch, weight, C * sizeof *weight);
    launch_read(&launch, mean, R * sizeof *mean);
    launch_read(&launch, rstd, R * sizeof *rstd);
    if (residual != NULL) launch_read(&launch, residual, R * C * sizeof *residual);
    if (rows > 0 && cols > 0) {
        // The columns come first, so that din may be dout.
        launch_grid(&launch, layernorm_backward_columns<T>, column_grid(cols), column_threads(rows),
                    dweight, dbias, dout, in, mean, rstd, rows, (unsigned)cols);
        launch_grid(&launch, layernorm_backward_rows<T>, blocks_of(R, 1), row_threads(C), din, dout,
                    in, weight, mean, rstd, residual, rows, (unsigned)cols);
    }
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_layernorm_backward(float *din, float *dweight, float *dbias,
                                                 const float *dout, const float *in,
                                                 const float *weight, const float *mean,
                                                 const float *rstd, const float *residual, int rows,
                                                 int cols, cudaStream_t stream)
{
    return layernorm_backward_of(LAUNCH_BEGIN("kernel_layernorm_backward", stream), din, dweight,
                                 dbias, dout, in, weight, mean, rstd, residual, rows, cols);
}

extern "C" cudaError_t kernel_layernorm_backward_ex(DType type, void *din, void *dweight,
                                                    void *dbias, const void *dout, const void *in,
                                                    const void *weight, const float *mean,
                                                    const float *rstd, const void *residual,
                                                    int rows, int cols, cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_layernorm_backward", type, stream);
    BY_TYPE(type, layernorm_backward_of(launch, (T *)din, (T *)dweight, (T *)dbias, (const T *)dout,
                                        (const T *)in, (const T *)weight, mean, rstd,
                                        (const T *)residual, rows, cols));
}
