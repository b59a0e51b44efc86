/* launch.cuh: queues a kernel on its stream and notes it in the log.
 *
 * A launcher declares the bytes that the kernel reads and writes, as the kernels for the simulated
 * GPU do (simgpu.h): the same ranges in the same order, so that a test of the log asserts the same
 * on both. The log needs the ranges; a real GPU does not.
 *
 *   extern "C" cudaError_t kernel_scale(float *x, float factor, size_t n, cudaStream_t stream)
 *   {
 *       Launch launch = LAUNCH_BEGIN("kernel_scale", stream);
 *       launch_update(&launch, x, n * sizeof *x);
 *       if (n > 0) launch_grid(&launch, scale, blocks, threads, x, factor, n);
 *       return launch_end(&launch);
 *   }
 *
 * One entry is logged for any number of grids, also for none if there is nothing to do.
 */
#ifndef SHARDLAB_LAUNCH_CUH
#define SHARDLAB_LAUNCH_CUH

#include <cuda_runtime.h>

#include "gpulog.h"
#include "kernels.h"

#ifdef EMULATED
#include "emulator.h"
#endif

// The most blocks of a grid. A loop does the work above that: a block that takes the next piece
// itself costs less than a new one, and a grid has a limit while sizes have 64 bits. A
// multiprocessor runs at most 32 blocks at a time (CUDA C++ Programming Guide, technical
// specifications by compute capability), and a GPU of 132 of them (H100) half of these 8192.
#define MAX_BLOCKS 8192

// One call of a kernel_X, from its begin to its end. It is on the caller's stack.
typedef struct Launch {
    const char *name;
    cudaStream_t stream;
    const void *site;
    cudaError_t error; // the first error
    int grids;         // launched so far
    int n_ranges;
    GpuRange ranges[GPULOG_RANGES];
} Launch;

// The call site in the log is the caller of the function that uses the macro.
#define LAUNCH_BEGIN(name, stream) launch_begin((name), (stream), __builtin_return_address(0))
static inline Launch launch_begin(const char *name, cudaStream_t stream, const void *site)
{
    Launch launch = {};
    launch.name = name;
    launch.stream = stream;
    launch.site = site;
    return launch;
}

static inline void launch_touch(Launch *launch, const void *ptr, size_t bytes, GpuAccess access)
{
    GpuRange range = {ptr, bytes, access};
    if (launch->n_ranges < GPULOG_RANGES) launch->ranges[launch->n_ranges++] = range;
}
static inline void launch_read(Launch *launch, const void *ptr, size_t bytes)
{
    launch_touch(launch, ptr, bytes, GPU_READ);
}
static inline void launch_write(Launch *launch, void *ptr, size_t bytes)
{
    launch_touch(launch, ptr, bytes, GPU_WRITE);
}
static inline void launch_update(Launch *launch, void *ptr, size_t bytes)
{
    launch_touch(launch, ptr, bytes, GPU_UPDATE);
}

// The number of blocks for `pieces` pieces of work, `each` per block.
static inline unsigned blocks_of(size_t pieces, size_t each)
{
    size_t blocks = pieces / each + (pieces % each != 0);
    return (unsigned)(blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS);
}

// kernel<<<blocks, threads, 0, stream>>>(args…) as a call: the <<<>>> form reports an error only
// through cudaGetLastError, which may hold an older one.
template <class... Parameters, class... Arguments>
static inline void launch_grid(Launch *launch, void (*kernel)(Parameters...), dim3 blocks,
                               dim3 threads, Arguments... args)
{
    if (launch->error != cudaSuccess) return;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.stream = launch->stream;
#ifdef EMULATED
    if (launch->grids == 0)
        emulator_begin(launch->name, launch->stream, launch->site, launch->n_ranges,
                       launch->ranges);
#endif
    launch->grids++;
    launch->error = cudaLaunchKernelEx(&config, kernel, args...);
}

static inline cudaError_t launch_end(Launch *launch)
{
#ifdef EMULATED
    if (launch->grids > 0) launch->error = emulator_end();
#endif
    if (launch->error == cudaSuccess)
        gpulog_kernel(launch->name, launch->stream, launch->site, launch->n_ranges, launch->ranges);
    return launch->error;
}

#endif
