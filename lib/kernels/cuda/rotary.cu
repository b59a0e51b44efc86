/* rotary.cu: rotary positions (Su et al. 2021): turns pairs of columns of the queries and keys by
 * an angle that grows with the position. Column i of a head and column i + hs/2 are a pair.
 *
 * A block takes a row. A thread stays on one pair of all heads: it computes the sine and the cosine
 * once, in double (lib/kernels/rotary.c says why).
 */
#include <math.h>

#include "typed.cuh"

#define ROTARY_THREADS 256

// x (rows, width); a block has as many lanes of `pairs` threads as fit
template <class Number>
static __global__ void __launch_bounds__(ROTARY_THREADS)
    rotary(Number *x, size_t rows, unsigned T, size_t width, unsigned heads, unsigned pairs,
           RotaryFrequencies frequencies, int direction)
{
    unsigned pair = threadIdx.x % pairs, first = threadIdx.x / pairs, lanes = blockDim.x / pairs;
    for (size_t r = blockIdx.x; r < rows && first < lanes; r += gridDim.x) {
        float angle = (float)(unsigned)(r % T) * frequencies.of_pair[pair];
        float cosine = (float)cos((double)angle), sine = (float)(direction * sin((double)angle));
        for (unsigned h = first; h < heads; h += lanes) {
            Number *at = x + r * width + (size_t)h * 2 * pairs + pair;
            float left = at[0], right = at[pairs];
            at[0] = left * cosine - right * sine;
            at[pairs] = right * cosine + left * sine;
        }
    }
}

template <class Number>
static cudaError_t rotary_of(Launch launch, Number *x, int B, int T, int width, int heads, int hs,
                             RotaryFrequencies frequencies, int direction)
{
    size_t rows = (size_t)B * (size_t)T;
    launch_update(&launch, x, rows * (size_t)width * sizeof *x);
    if (rows > 0 && heads > 0 && hs > 1)
        launch_grid(&launch, rotary<Number>, blocks_of(rows, 1), ROTARY_THREADS, x, rows,
                    (unsigned)T, (size_t)width, (unsigned)heads, (unsigned)hs / 2, frequencies,
                    direction);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_rotary(float *x, int B, int T, int width, int heads, int hs,
                                     RotaryFrequencies frequencies, int direction,
                                     cudaStream_t stream)
{
    return rotary_of(LAUNCH_BEGIN("kernel_rotary", stream), x, B, T, width, heads, hs, frequencies,
                     direction);
}

extern "C" cudaError_t kernel_rotary_ex(DType type, void *x, int B, int length, int width,
                                        int heads, int hs, RotaryFrequencies frequencies,
                                        int direction, cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_rotary", type, stream);
    BY_TYPE(type, rotary_of(launch, (T *)x, B, length, width, heads, hs, frequencies, direction));
}
