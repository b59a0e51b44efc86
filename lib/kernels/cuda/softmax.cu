/* softmax.cu: the causal softmax of attention, in place, and its gradient; one block a row.
 *
 * Row t of a (T,T) matrix belongs to the query at position t, which may look at the keys 0 … t
 * alone. Columns behind t are never read, and become 0.
 *
 * Interface: kernel_causal_softmax_forward, kernel_causal_softmax_backward.
 */
#include "block.cuh"
#include "row.cuh"

// att (rows, T): x becomes softmax(scale·x). The maximum is taken off first, so that no exponential
// overflows; where scale is negative, the largest product comes from the smallest number.
static __global__ void __launch_bounds__(ROW_THREADS)
    softmax_forward(float *att, size_t rows, unsigned T, float scale)
{
    float sign = scale < 0.0f ? -1.0f : 1.0f;
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        float *x = att + row * T;
        unsigned seen = (unsigned)(row % T) + 1;
        float kept[KEPT], max = -INFINITY, sum = 0.0f;
        each_column(seen, [&](unsigned c, int k) { max = fmaxf(max, sign * keep(kept, k, x[c])); });
        max = sign * block_max(max);
        each_column(seen, [&](unsigned c, int k) {
            float e = expf(scale * (kept_or(kept, k, x + c) - max));
            if (k == KEPT) x[c] = e; // no register for it: the row itself holds it
            sum += keep(kept, k, e);
        });
        float factor = 1.0f / block_sum(sum);
        each_column(T, [&](unsigned c, int k) {
            x[c] = c < seen ? kept_or(kept, k, x + c) * factor : 0.0f;
        });
    }
}

// datt (rows, T), gradient by the output, becomes the one by the input; att (rows, T): the output
static __global__ void __launch_bounds__(ROW_THREADS)
    softmax_backward(float *datt, const float *att, size_t rows, unsigned T, float scale)
{
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        float *d = datt + row * T;
        const float *p = att + row * T;
        unsigned seen = (unsigned)(row % T) + 1;
        float kept_d[KEPT], kept_p[KEPT], dot = 0.0f;
        each_column(seen, [&](unsigned c, int k) {
            float of_output = keep(kept_d, k, d[c]), output = keep(kept_p, k, p[c]);
            dot += of_output * output;
        });
        dot = block_sum(dot);
        each_column(T, [&](unsigned c, int k) {
            d[c] = c < seen ? scale * kept_or(kept_p, k, p + c) * (kept_or(kept_d, k, d + c) - dot)
                            : 0.0f;
        });
    }
}

extern "C" cudaError_t kernel_causal_softmax_forward(float *att, int n, int T, float scale,
                                                     cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_causal_softmax_forward", stream);
    size_t rows = (size_t)n * (size_t)T, width = (size_t)T;
    launch_update(&launch, att, rows * width * sizeof *att);
    if (rows > 0)
        launch_grid(&launch, softmax_forward, blocks_of(rows, 1), row_threads(width), att, rows,
                    (unsigned)T, scale);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_causal_softmax_backward(float *datt, const float *att, int n, int T,
                                                      float scale, cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_causal_softmax_backward", stream);
    size_t rows = (size_t)n * (size_t)T, width = (size_t)T;
    launch_update(&launch, datt, rows * width * sizeof *datt);
    launch_read(&launch, att, rows * width * sizeof *att);
    if (rows > 0)
        launch_grid(&launch, softmax_backward, blocks_of(rows, 1), row_threads(width), datt, att,
                    rows, (unsigned)T, scale);
    return launch_end(&launch);
}
