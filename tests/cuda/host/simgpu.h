/* simgpu.h: a stand-in for simgpu's header of this name, so that the CPU's kernels work on host
 * memory: every pointer is usable as it is, and the ranges are noted for a test to compare.
 *
 * Interface: SIMGPU_BEGIN, simgpu_read, simgpu_write, simgpu_update, and these with an
 * alignment (_as); simgpu_cost, simgpu_ready, simgpu_end; simgpu_parallel, on one thread.
 */
#ifndef HOST_SIMGPU_H
#define HOST_SIMGPU_H

#include <stdbool.h>

#include "cpu_kernels.h"

typedef struct SimgpuOp {
    GpuLogEntry entry;
    cudaError_t error;
} SimgpuOp;

#define SIMGPU_BEGIN(name, stream, ...) simgpu_begin((name), (stream))
static inline SimgpuOp simgpu_begin(const char *name, cudaStream_t stream)
{
    return (SimgpuOp){.entry = {.op = GPU_KERNEL, .name = name, .stream = stream}};
}

static inline void *simgpu_touch(SimgpuOp *op, const void *ptr, size_t bytes, GpuAccess access)
{
    if (op->entry.n_ranges < GPULOG_RANGES)
        op->entry.range[op->entry.n_ranges++] = (GpuRange){ptr, bytes, access};
    return (void *)ptr;
}
static inline const void *simgpu_read(SimgpuOp *op, const void *ptr, size_t bytes)
{
    return simgpu_touch(op, ptr, bytes, GPU_READ);
}
static inline void *simgpu_write(SimgpuOp *op, void *ptr, size_t bytes)
{
    return simgpu_touch(op, ptr, bytes, GPU_WRITE);
}
static inline void *simgpu_update(SimgpuOp *op, void *ptr, size_t bytes)
{
    return simgpu_touch(op, ptr, bytes, GPU_UPDATE);
}
#define simgpu_read_as(op, ptr, bytes, align) simgpu_read((op), (ptr), (bytes))
#define simgpu_write_as(op, ptr, bytes, align) simgpu_write((op), (ptr), (bytes))
#define simgpu_overwrite_as(op, ptr, bytes, align) simgpu_write((op), (ptr), (bytes))
#define simgpu_update_as(op, ptr, bytes, align) simgpu_update((op), (ptr), (bytes))

static inline void simgpu_cost(SimgpuOp *op, uint64_t flops, GpuType type)
{
    op->entry.flops = flops;
    op->entry.type = type;
}

static inline bool simgpu_ready(const SimgpuOp *op)
{
    return op->error == cudaSuccess;
}

static inline void simgpu_parallel(size_t n, size_t grain,
                                   void (*body)(void *arg, size_t begin, size_t end), void *arg)
{
    if (n > 0) body(arg, 0, n);
}

static inline cudaError_t simgpu_end(SimgpuOp *op)
{
    host_entry = op->entry;
    return op->error;
}

#endif
