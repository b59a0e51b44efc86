/* columns.cuh: sums down the columns of a matrix, in an order that depends only on its sizes.
 *
 * A block owns 8 columns: 32 bytes, the smallest piece that a GPU's memory reads (a sector), so no
 * byte is fetched in vain, while a matrix of 768 columns still gives 96 blocks. Its threads are 8
 * columns wide and `lanes` rows deep; a lane adds up every lanes-th row, and then the lanes are
 * added in pairs, in shared memory.
 */
#ifndef SHARDLAB_COLUMNS_CUH
#define SHARDLAB_COLUMNS_CUH

#include "typed.cuh"

#define COLUMNS 8
#define MOST_LANES 128

// More lanes for more rows: more loads in flight.
static inline dim3 column_threads(int rows)
{
    return dim3(COLUMNS, rows >= 1024 ? MOST_LANES : 32);
}

static inline dim3 column_grid(int cols)
{
    return dim3((unsigned)(cols / COLUMNS + (cols % COLUMNS != 0)));
}

// Shared memory for one sum over lanes; `which` is 0 or 1, as a kernel has at most two. (It is not
// in the kernels, which are templates: the emulator puts it into a section of its own.)
static inline __device__ float (*shared_lanes(int which))[COLUMNS]
{
    __shared__ float lane[2][MOST_LANES][COLUMNS];
    return lane[which];
}

// The sum over threadIdx.y of `mine`, for the threads with threadIdx.y = 0; the others get a value
// without use. `lane` (MOST_LANES) is shared memory of this sum alone.
static inline __device__ float add_lanes(float (*lane)[COLUMNS], float mine)
{
    unsigned x = threadIdx.x, y = threadIdx.y;
    lane[y][x] = mine;
    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (y < half) lane[y][x] += lane[y + half][x];
    }
    return lane[0][x];
}

#endif
