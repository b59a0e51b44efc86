/* free.c: cudaFree, and memory that is allocated and freed in the order of a stream.
 *
 * Interface: sim_free, sim_allocate_on_stream,
 * sim_free_on_stream (operation.h); cudaFree, cudaMallocAsync, cudaMallocFromPoolAsync,
 * cudaFreeAsync.
 */
#include "check/check.h"
#include "core/error.h"
#include "memory/allocation.h"
#include "runtime/graph_memory.h"
#include "runtime/operation.h"
#include "streams/streams.h"
#include "time/time.h"

cudaError_t sim_allocate_on_stream(const char *call, void **ptr, size_t size, cudaStream_t stream,
                                   cudaMemPool_t pool, const void *site)
{
    if (!ptr) return sim_leave(cudaErrorInvalidValue);
    *ptr = NULL;
    SimgpuOp op = sim_begin(GPU_ALLOC, call, stream, site);
    if (op.error != cudaSuccess || size == 0) return sim_leave(op.error);
    SimDevice *device = pool ? sim_pool_device(pool, call, site) : sim_device(op.entry.device);
    if (pool && !device) return sim_leave(cudaErrorInvalidValue);
    if (device && !pool) pool = sim_pool_current(device);
    if (op.captured) return sim_capture_allocation(&op, device, ptr, size, pool);
    SimWanted wanted = {call, size, MEMORY_PLAIN, pool, site, sim_kept_for_node()};
    void *memory = device && pool ? sim_allocate(device, wanted) : NULL;
    if (!memory) return sim_leave(cudaErrorMemoryAllocation);
    *ptr = memory;
    op.entry.bytes = size;
    op.entry.pool = true;
    op.entry.range[op.entry.n_ranges++] = (GpuRange){memory, size, GPU_WRITE};
    SimShape shape = sim_plain_shape(size);
    sim_race_touch(&op, memory, &shape, GPU_WRITE);
    return simgpu_end(&op);
}

cudaError_t cudaMallocAsync(void **devPtr, size_t size, cudaStream_t hStream)
{
    SIM_ENTER();
    return sim_allocate_on_stream("cudaMallocAsync", devPtr, size, hStream, NULL, SIM_SITE);
}

cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t memPool,
                                    cudaStream_t stream)
{
    SIM_ENTER();
    if (!memPool) return sim_leave(cudaErrorInvalidValue);
    return sim_allocate_on_stream("cudaMallocFromPoolAsync", ptr, size, stream, memPool, SIM_SITE);
}

// cudaFree waits for the whole device before it frees, but not for memory of a pool: it assumes
// that this is no longer in use (CUDA programming guide, stream ordered memory allocator).
cudaError_t sim_free(void *devPtr, bool from_nccl, const void *site)
{
    SIM_ENTER_UNSAFE_AS("cudaFree", site);
    if (!devPtr) return cudaSuccess;
    if (!from_nccl && sim_is_nccls("cudaFree", devPtr, site))
        return sim_leave(cudaErrorInvalidValue);
    size_t offset, bytes = 0;
    bool pool = false;
    SimDevice *device = sim_device_of(devPtr, &offset);
    if (device && !sim_is_from_pool(device, offset))
        sim_device_wait(device->index, "cudaFree", site);
    if (device) sim_race_free(NULL, devPtr, site);
    GpuCategory category = gpulog_category_of(devPtr);
    if (!sim_release("cudaFree", devPtr, false, &bytes, &pool, site))
        return sim_leave(cudaErrorInvalidValue);
    GpuLogEntry entry = {.op = GPU_FREE,
                         .name = "cudaFree",
                         .device = device->index,
                         .blocking_stream = true,
                         .host_waits = true,
                         .pool = pool,
                         .bytes = bytes,
                         .site = site,
                         .category = category,
                         .n_ranges = 1};
    entry.range[0] = (GpuRange){devPtr, bytes, GPU_WRITE};
    sim_clock_log(&entry);
    return cudaSuccess;
}

cudaError_t cudaFree(void *devPtr)
{
    return sim_free(devPtr, false, SIM_SITE);
}

cudaError_t sim_free_on_stream(void *devPtr, cudaStream_t stream, const void *site)
{
    SimgpuOp op = sim_begin(GPU_FREE, "cudaFreeAsync", stream, site);
    if (op.error != cudaSuccess || !devPtr) return sim_leave(op.error);
    if (op.captured) return sim_capture_free(&op, devPtr);
    site = op.entry.site;
    size_t bytes = 0;
    if (sim_is_nccls("cudaFreeAsync", devPtr, site)) return sim_leave(cudaErrorInvalidValue);
    sim_race_free(&op, devPtr, site);
    op.entry.category = gpulog_category_of(devPtr);
    if (!sim_release("cudaFreeAsync", devPtr, true, &bytes, &op.entry.pool, site)) {
        op.error = cudaErrorInvalidValue;
        return simgpu_end(&op);
    }
    op.entry.bytes = bytes;
    op.entry.range[op.entry.n_ranges++] = (GpuRange){devPtr, bytes, GPU_WRITE};
    return simgpu_end(&op);
}

cudaError_t cudaFreeAsync(void *devPtr, cudaStream_t hStream)
{
    return sim_free_on_stream(devPtr, hStream, SIM_SITE);
}
