/* softmax.cu: the causal softmax of attention, in place, and its gradient; one block per row.
 *
 * Row t of a (T,T) matrix belongs to the query at position t, which may see only the keys 0 … t.
 * Columns after t are never read, and become 0.
 */
#include "block.cuh"
#include "row.cuh"

// att (rows, width): x becomes softmax(scale·x). The maximum is subtracted first, so that no
// exponential overflows; if scale is negative, the smallest number gives the largest product.
template <class T>
static __global__ void __launch_bounds__(ROW_THREADS)
    softmax_forward(T *att, size_t rows, unsigned width, float scale)
{
    const bool floats = sizeof *att == sizeof(float);
    float sign = scale < 0.0f ? -1.0f : 1.0f;
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        T *x = att + row * width;
        unsigned seen = (unsigned)(row % width) + 1;
        float kept[KEPT], max = -INFINITY, sum = 0.0f;
        each_column(seen, [&](unsigned c, int k) { max = fmaxf(max, sign * keep(kept, k, x[c])); });
        max = sign * block_max(max);
        each_column(seen, [&](unsigned c, int k) {
            float e = expf(scale * (kept_or(kept, k, x + c) - max));
            if (k == KEPT && floats) x[c] = e; // no register for it: the row itself keeps it
            sum += keep(kept, k, e);
        });
        float factor = 1.0f / block_sum(sum);
        each_column(width, [&](unsigned c, int k) {
            float e = kept_or(kept, k, x + c);
            if (k == KEPT && !floats) e = expf(scale * (e - max)); // the row would round it
            x[c] = c < seen ? e * factor : 0.0f;
        });
    }
}

// datt (rows, width): the gradient by the output becomes the one by the input; att: the output
template <class T>
static __global__ void __launch_bounds__(ROW_THREADS)
    softmax_backward(T *datt, const T *att, size_t rows, unsigned width, float scale)
{
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        T *d = datt + row * width;
        const T *p = att + row * width;
        unsigned seen = (unsigned)(row % width) + 1;
        float kept_d[KEPT], kept_p[KEPT], dot = 0.0f;
        each_column(seen, [&](unsigned c, int k) {
            float of_output = keep(kept_d, k, d[c]), output = keep(kept_p, k, p[c]);
            dot += of_output * output;
        });
        dot = block_sum(dot);
        each_column(width, [&](unsigned c, int k) {
            d[c] = c < seen ? scale * kept_or(kept_p, k, p + c) * (kept_or(kept_d, k, d + c) - dot)
                            : 0.0f;
        });
    }
}

template <class T>
static cudaError_t softmax_forward_of(Launch launch, T *att, int n, int length, float scale)
{
    size_t rows = (size_t)n * (size_t)length, width = (size_t)length;
    launch_update(&launch, att, rows * width * sizeof *att);
    if (rows > 0)
        launch_grid(&launch, softmax_forward<T>, blocks_of(rows, 1), row_threads(width), att, rows,
                    (unsigned)length, scale);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_causal_softmax_forward(float *att, int n, int length, float scale,
                                                     cudaStream_t stream)
{
    return softmax_forward_of(LAUNCH_BEGIN("kernel_causal_softmax_forward", stream), att, n, length,
                              scale);
}

extern "C" cudaError_t kernel_causal_softmax_forward_ex(DType type, void *att, int n, int length,
                                                        float scale, cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_causal_softmax_forward", type, stream);
    BY_TYPE(type, softmax_forward_of(launch, (T *)att, n, length, scale));
}

template <class T>
static cudaError_t softmax_backward_of(Launch launch, T *datt, const T *att, int n, int length,
                                       float scale)
{
    size_t rows = (size_t)n * (size_t)length, width = (size_t)length;
    launch_update(&launch, datt, rows * width * sizeof *datt);
    launch_read(&launch, att, rows * width * sizeof *att);
    if (rows > 0)
        launch_grid(&launch, softmax_backward<T>, blocks_of(rows, 1), row_threads(width), datt, att,
                    rows, (unsigned)length, scale);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_causal_softmax_backward(float *datt, const float *att, int n,
                                                      int length, float scale, cudaStream_t stream)
{
    return softmax_backward_of(LAUNCH_BEGIN("kernel_causal_softmax_backward", stream), datt, att, n,
                               length, scale);
}

extern "C" cudaError_t kernel_causal_softmax_backward_ex(DType type, void *datt, const void *att,
                                                         int n, int length, float scale,
                                                         cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_causal_softmax_backward", type, stream);
    BY_TYPE(type, softmax_backward_of(launch, (T *)datt, (const T *)att, n, length, scale));
}
