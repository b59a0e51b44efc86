/* reduce.cu: kernels that add up many numbers.
 *
 * Each sum has an order that depends only on the sizes, never on addresses or timing. So numbers
 * are loaded one by one, because the address decides where a float4 begins. A warp's 32 loads of 4
 * bytes read the same sectors as 8 loads of 16.
 */
#include <pthread.h>

#include "block.cuh"
#include "columns.cuh"

#define SUM_THREADS 256
#define PART (SUM_THREADS * 16) // a part has at least that many numbers
#define MOST_PARTS 512
#define SLOTS 64

// The parts that the blocks of one call leave for its last block to add up. Calls on two streams
// may run at once, so each has its own slot (slot_of); calls on one stream follow each other.
static __device__ double parts_of_slot[SLOTS][MOST_PARTS];
static __device__ unsigned blocks_done[SLOTS];

// The sum of part number `part` of `parts`: of the numbers that a grid of `parts` blocks would
// meet, striding over x (n). Four sums side by side keep four loads under way.
static __device__ double sum_part(const float *x, size_t n, unsigned part, unsigned parts)
{
    double lane[4] = {0.0, 0.0, 0.0, 0.0};
    size_t stride = (size_t)parts * SUM_THREADS, i = (size_t)part * SUM_THREADS + threadIdx.x;
    for (; i < n; i += 4 * stride) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            double v = i + j * stride < n ? x[i + j * stride] : 0.0f;
            lane[j] += v * v;
        }
    }
    return block_sum((lane[0] + lane[2]) + (lane[1] + lane[3]));
}

// The sum of part[0 … parts), for thread 0 to use.
static __device__ double add_parts(const volatile double *part, unsigned parts)
{
    double sum = 0.0;
    for (unsigned i = threadIdx.x; i < parts; i += SUM_THREADS) sum += part[i];
    return block_sum(sum);
}

// One block per part. The block that finishes last adds the parts up in their order and sets the
// count back to 0 for the next call (atomicInc wraps round).
static __global__ void __launch_bounds__(SUM_THREADS)
    sum_squares(double *sum, const float *x, size_t n, unsigned slot)
{
    __shared__ bool last;
    double mine = sum_part(x, n, blockIdx.x, gridDim.x);
    if (threadIdx.x == 0) {
        *(volatile double *)&parts_of_slot[slot][blockIdx.x] = mine;
        __threadfence(); // all blocks see the part before the block counts as done
        last = atomicInc(&blocks_done[slot], gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last) return;
    double all = add_parts(parts_of_slot[slot], gridDim.x);
    if (threadIdx.x == 0) *sum += all;
}

// Bitwise the same sum, by one block that needs no slot.
static __global__ void __launch_bounds__(SUM_THREADS)
    sum_squares_alone(double *sum, const float *x, size_t n, unsigned parts)
{
    __shared__ double part[MOST_PARTS];
    for (unsigned i = 0; i < parts; i++) {
        double mine = sum_part(x, n, i, parts);
        if (threadIdx.x == 0) part[i] = mine;
    }
    __syncthreads();
    double all = add_parts(part, parts);
    if (threadIdx.x == 0) *sum += all;
}

// The slot of a stream of the current device; -1: other streams have them all. Slots are never
// returned: a handle may come again after cudaStreamDestroy, with its slot.
static int slot_of(cudaStream_t stream)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        int device;
        cudaStream_t stream;
    } owner[SLOTS];
    static int taken;

    int device = 0, slot = 0;
    // This name means another stream in each thread.
    if (stream == cudaStreamPerThread || cudaGetDevice(&device) != cudaSuccess) return -1;
    pthread_mutex_lock(&lock);
    while (slot < taken && (owner[slot].device != device || owner[slot].stream != stream)) slot++;
    if (slot == taken && taken < SLOTS) {
        owner[slot].device = device;
        owner[slot].stream = stream;
        taken++;
    }
    if (slot == taken) slot = -1;
    pthread_mutex_unlock(&lock);
    return slot;
}

extern "C" cudaError_t kernel_sum_squares(double *sum, const float *x, size_t n,
                                          cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_sum_squares", stream);
    launch_update(&launch, sum, sizeof *sum);
    launch_read(&launch, x, n * sizeof *x);
    unsigned parts = blocks_of(n, PART);
    if (parts > MOST_PARTS) parts = MOST_PARTS;
    int slot = n > 0 ? slot_of(stream) : -1;
    if (n > 0 && slot >= 0)
        launch_grid(&launch, sum_squares, parts, SUM_THREADS, sum, x, n, (unsigned)slot);
    else if (n > 0)
        launch_grid(&launch, sum_squares_alone, 1, SUM_THREADS, sum, x, n, parts);
    return launch_end(&launch);
}

// One block: the mean is over one loss per row, at most a few thousand numbers.
static __global__ void __launch_bounds__(SUM_THREADS) average(float *mean, const float *x, size_t n)
{
    double sum = 0.0;
    for (size_t i = threadIdx.x; i < n; i += SUM_THREADS) sum += x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *mean = (float)(sum / (double)n);
}

// The mean of no numbers is NaN, so it launches even then.
extern "C" cudaError_t kernel_mean(float *mean, const float *x, size_t n, cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_mean", stream);
    launch_write(&launch, mean, sizeof *mean);
    launch_read(&launch, x, n * sizeof *x);
    launch_grid(&launch, average, 1, SUM_THREADS, mean, x, n);
    return launch_end(&launch);
}

// out (cols) += the column sums of x (rows, cols)
template <class T>
static __global__ void __launch_bounds__(COLUMNS *MOST_LANES)
    sum_rows(T *out, const T *x, int rows, int cols)
{
    unsigned c = blockIdx.x * COLUMNS + threadIdx.x;
    float sum = 0.0f;
    if (c < (unsigned)cols) {
#pragma unroll 4
        for (size_t r = threadIdx.y; r < (size_t)rows; r += blockDim.y)
            sum += x[r * (size_t)cols + c];
    }
    sum = add_lanes(shared_lanes(0), sum);
    if (threadIdx.y == 0 && c < (unsigned)cols) out[c] += sum;
}

template <class T>
static cudaError_t sum_rows_of(Launch launch, T *out, const T *x, int rows, int cols)
{
    size_t width = (size_t)cols;
    launch_update(&launch, out, width * sizeof *out);
    launch_read(&launch, x, (size_t)rows * width * sizeof *x);
    if (rows > 0 && cols > 0)
        launch_grid(&launch, sum_rows<T>, column_grid(cols), column_threads(rows), out, x, rows,
                    cols);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_sum_rows(float *out, const float *x, int rows, int cols,
                                       cudaStream_t stream)
{
    return sum_rows_of(LAUNCH_BEGIN("kernel_sum_rows", stream), out, x, rows, cols);
}

extern "C" cudaError_t kernel_sum_rows_ex(DType type, void *out, const void *x, int rows, int cols,
                                          cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_sum_rows", type, stream);
    BY_TYPE(type, sum_rows_of(launch, (T *)out, (const T *)x, rows, cols));
}
