/* memory.c: cudaMalloc and friends: the bytes held, a limit to them, and NaNs in fresh memory.
 *
 * Memory is counted as requested, whatever CUDA makes of it. With GPULOG_MEMORY an allocation fails
 * exactly when the bytes in use and the bytes requested exceed the limit. The device is not asked:
 * a program can run out of memory on a GPU of any size.
 *
 * Interface: memory_reserve, memory_unreserve, memory_made, memory_leaves, memory_stays,
 * memory_freed, memory_reset; the wrapped cudaMalloc*, cudaFree*, cudaMemGetInfo, cudaGetLastError,
 * cudaPeekAtLastError.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "interpose.h"

#define POISON_WHOLE ((size_t)1 << 30)
#define POISON_ENDS ((size_t)64 << 20)

WRAPPED(cudaMalloc);
WRAPPED(cudaMallocManaged);
WRAPPED(cudaMallocPitch);
WRAPPED(cudaMallocAsync);
WRAPPED(cudaMallocFromPoolAsync);
WRAPPED(cudaFree);
WRAPPED(cudaFreeAsync);
WRAPPED(cudaMemGetInfo);
WRAPPED(cudaGetLastError);
WRAPPED(cudaPeekAtLastError);
__typeof__(cudaMemset) __real_cudaMemset;
__typeof__(cudaMemsetAsync) __real_cudaMemsetAsync;
__typeof__(cudaStreamSynchronize) __real_cudaStreamSynchronize;

static Table allocations = EMPTY_TABLE;
static _Atomic size_t reserved[GPULOG_DEVICES]; // bytes in use or asked for right now

// ---- The limit ----

// The error that cudaGetLastError returns for an allocation that was not passed on to CUDA.
static _Thread_local cudaError_t refusal;

static cudaError_t refuse(void **ptr)
{
    *ptr = NULL;
    return refusal = cudaErrorMemoryAllocation;
}

cudaError_t __wrap_cudaPeekAtLastError(void)
{
    cudaError_t error = __real_cudaPeekAtLastError();
    return error != cudaSuccess ? error : refusal;
}

cudaError_t __wrap_cudaGetLastError(void)
{
    cudaError_t error = __real_cudaGetLastError(), ours = refusal;
    refusal = cudaSuccess;
    return error != cudaSuccess ? error : ours;
}

// Reports once per process: a program may try again in a loop.
static void report_no_memory(const char *name, int device, size_t bytes, size_t used,
                             const void *site)
{
    static atomic_bool told;
    char where[256];
    if (atomic_exchange(&told, true)) return;
    gpulog_where(site, where, sizeof where);
    fprintf(stderr,
            "gpulog: out of device memory: %s of %zu bytes at %s on device %d, where %zu of the "
            "%zu bytes that GPULOG_MEMORY allows are in use\n",
            name, bytes, where, device, used, settings()->memory);
}

bool memory_reserve(const char *name, int device, size_t bytes, const void *site)
{
    if (device < 0 || device >= GPULOG_DEVICES) return true;
    size_t limit = settings()->memory, used = atomic_load(&reserved[device]);
    do {
        if (bytes > limit || used > limit - bytes) {
            report_no_memory(name, device, bytes, used, site);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&reserved[device], &used, used + bytes));
    return true;
}

void memory_unreserve(int device, size_t bytes)
{
    if (device >= 0 && device < GPULOG_DEVICES) atomic_fetch_sub(&reserved[device], bytes);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Reports no more memory than the program can have.
cudaError_t __wrap_cudaMemGetInfo(size_t *free, size_t *total)
{
    cudaError_t error = __real_cudaMemGetInfo(free, total);
    int device = current_device();
    size_t limit = settings()->memory;
    if (error != cudaSuccess || limit == SIZE_MAX || device >= GPULOG_DEVICES) return error;
    *total = smaller(*total, limit);
    *free = smaller(*free, limit - atomic_load(&reserved[device]));
    return cudaSuccess;
}

// ---- Allocation ----

// Fresh memory may hold anything, so it is filled with NaNs, which reveal a sum that does not start
// from zero. If an allocation is too large to fill, both its ends are filled.
static void poison(void *ptr, size_t bytes, cudaStream_t stream)
{
    if (!settings()->poison) return;
    if (bytes <= POISON_WHOLE) {
        __real_cudaMemsetAsync(ptr, 0xff, bytes, stream);
    } else {
        __real_cudaMemsetAsync(ptr, 0xff, POISON_ENDS, stream);
        __real_cudaMemsetAsync((char *)ptr + bytes - POISON_ENDS, 0xff, POISON_ENDS, stream);
    }
}

// cudaMalloc uses no stream: when it returns, the memory is ready for all streams, NaNs included.
void memory_made(const char *name, void *ptr, size_t bytes, const void *site)
{
    int device = current_device();
    poison(ptr, bytes, NULL);
    if (settings()->poison) __real_cudaStreamSynchronize(NULL);
    table_put(&allocations, (Known){.key = ptr, .bytes = bytes, .device = device});
    gpulog_allocated(device, bytes);
    gpulog_category_begins(ptr, bytes);
    GpuLogEntry entry = {.op = GPU_ALLOC,
                         .name = name,
                         .device = device,
                         .host_waits = true,
                         .bytes = bytes,
                         .site = site};
    add_range(&entry, ptr, bytes, GPU_WRITE);
    write_entry(&entry);
}

cudaError_t __wrap_cudaMalloc(void **devPtr, size_t size)
{
    const char *name = "cudaMalloc";
    int device = current_device();
    if (!devPtr || size == 0) return __real_cudaMalloc(devPtr, size);
    if (!memory_reserve(name, device, size, SITE)) return refuse(devPtr);
    cudaError_t error = WAITING(name, SITE, __real_cudaMalloc(devPtr, size));
    if (error == cudaSuccess)
        memory_made(name, *devPtr, size, SITE);
    else
        memory_unreserve(device, size);
    return error;
}

// Managed memory counts on the device where it was made, wherever its pages move.
cudaError_t __wrap_cudaMallocManaged(void **devPtr, size_t size, unsigned int flags)
{
    const char *name = "cudaMallocManaged";
    int device = current_device();
    if (!devPtr || size == 0) return __real_cudaMallocManaged(devPtr, size, flags);
    if (!memory_reserve(name, device, size, SITE)) return refuse(devPtr);
    cudaError_t error = WAITING(name, SITE, __real_cudaMallocManaged(devPtr, size, flags));
    if (error == cudaSuccess)
        memory_made(name, *devPtr, size, SITE);
    else
        memory_unreserve(device, size);
    return error;
}

// CUDA chooses the length of a row, and so the bytes.
cudaError_t __wrap_cudaMallocPitch(void **devPtr, size_t *pitch, size_t width, size_t height)
{
    const char *name = "cudaMallocPitch";
    cudaError_t error = WAITING(name, SITE, __real_cudaMallocPitch(devPtr, pitch, width, height));
    if (error != cudaSuccess || width == 0 || height == 0) return error;
    size_t bytes = *pitch * height;
    if (!memory_reserve(name, current_device(), bytes, SITE)) {
        __real_cudaFree(*devPtr);
        return refuse(devPtr);
    }
    memory_made(name, *devPtr, bytes, SITE);
    return cudaSuccess;
}

// The entry is made before the call: it knows the stream's device, which will own the memory.
static cudaError_t made_on_stream(cudaError_t error, GpuLogEntry *entry, void **ptr, int device,
                                  cudaStream_t stream)
{
    size_t size = entry->bytes;
    if (error != cudaSuccess || graph_captures(stream)) memory_unreserve(device, size);
    if (error != cudaSuccess) return error;
    if (graph_captures(stream)) { // a launch allocates it
        entry->pool = true;
        add_range(entry, *ptr, size, GPU_WRITE);
        write_entry(entry);
        return cudaSuccess;
    }
    poison(*ptr, size, stream);
    table_put(&allocations, (Known){.key = *ptr, .bytes = size, .device = device, .pool = true});
    gpulog_allocated(device, size);
    gpulog_category_begins(*ptr, size);
    entry->pool = true;
    add_range(entry, *ptr, size, GPU_WRITE);
    write_entry(entry);
    return cudaSuccess;
}

cudaError_t __wrap_cudaMallocAsync(void **devPtr, size_t size, cudaStream_t hStream)
{
    const char *name = "cudaMallocAsync";
    if (!devPtr || size == 0) return __real_cudaMallocAsync(devPtr, size, hStream);
    GpuLogEntry entry = entry_on(GPU_ALLOC, name, hStream, SITE);
    entry.bytes = size;
    if (!memory_reserve(name, entry.device, size, SITE)) return refuse(devPtr);
    cudaError_t error = __real_cudaMallocAsync(devPtr, size, hStream);
    return made_on_stream(error, &entry, devPtr, entry.device, hStream);
}

// A pool may belong to another device; only memory from it tells which.
cudaError_t __wrap_cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t memPool,
                                           cudaStream_t stream)
{
    const char *name = "cudaMallocFromPoolAsync";
    struct cudaPointerAttributes attributes;
    cudaError_t error = __real_cudaMallocFromPoolAsync(ptr, size, memPool, stream);
    if (error != cudaSuccess || size == 0) return error;
    GpuLogEntry entry = entry_on(GPU_ALLOC, name, stream, SITE);
    entry.bytes = size;
    int device = entry.device;
    if (cudaPointerGetAttributes(&attributes, *ptr) == cudaSuccess) device = attributes.device;
    if (!memory_reserve(name, device, size, SITE)) {
        __real_cudaFreeAsync(*ptr, stream);
        return refuse(ptr);
    }
    return made_on_stream(cudaSuccess, &entry, ptr, device, stream);
}

// ---- Freeing ----

bool memory_leaves(const void *ptr, Known *known)
{
    return table_take(&allocations, ptr, known);
}

void memory_stays(const Known *known)
{
    table_put(&allocations, *known);
}

// Counts the memory as freed and returns its category.
static GpuCategory let_go(const Known *known)
{
    gpulog_freed(known->device, known->bytes);
    memory_unreserve(known->device, known->bytes);
    return gpulog_category_ends(known->key);
}

// cudaFree waits for the whole device before it frees.
void memory_freed(const char *name, const Known *known, const void *site)
{
    GpuLogEntry entry = {.op = GPU_FREE,
                         .name = name,
                         .category = let_go(known),
                         .pool = known->pool,
                         .device = known->device,
                         .blocking_stream = true,
                         .host_waits = true,
                         .bytes = known->bytes,
                         .site = site};
    add_range(&entry, known->key, known->bytes, GPU_WRITE);
    write_entry(&entry);
}

cudaError_t __wrap_cudaFree(void *devPtr)
{
    Known known;
    bool ours = memory_leaves(devPtr, &known);
    cudaError_t error = WAITING("cudaFree", SITE, __real_cudaFree(devPtr));
    if (ours && error == cudaSuccess) memory_freed("cudaFree", &known, SITE);
    if (ours && error != cudaSuccess) memory_stays(&known);
    return error;
}

void memory_launched(GpuLogEntry *entry)
{
    const void *ptr = entry->range[0].ptr;
    Known known = {.key = ptr, .bytes = entry->bytes, .device = entry->device, .pool = true};
    if (entry->op == GPU_ALLOC) {
        table_put(&allocations, known);
        atomic_fetch_add(&reserved[entry->device], known.bytes);
        gpulog_allocated(entry->device, known.bytes);
        gpulog_category_begins(ptr, known.bytes);
    } else if (memory_leaves(ptr, &known)) {
        entry->category = let_go(&known);
        entry->bytes = entry->range[0].bytes = known.bytes;
    }
}

static cudaError_t free_captured(void *ptr, cudaStream_t stream, const void *site)
{
    cudaError_t error = __real_cudaFreeAsync(ptr, stream);
    if (error != cudaSuccess) return error;
    GpuLogEntry entry = entry_on(GPU_FREE, "cudaFreeAsync", stream, site);
    entry.pool = true;
    add_range(&entry, ptr, 0, GPU_WRITE);
    write_entry(&entry);
    return error;
}

cudaError_t __wrap_cudaFreeAsync(void *devPtr, cudaStream_t hStream)
{
    Known known;
    if (devPtr && graph_captures(hStream)) return free_captured(devPtr, hStream, SITE);
    bool ours = memory_leaves(devPtr, &known);
    cudaError_t error = __real_cudaFreeAsync(devPtr, hStream);
    if (ours && error != cudaSuccess) memory_stays(&known);
    if (!ours || error != cudaSuccess) return error;
    GpuLogEntry entry = entry_on(GPU_FREE, "cudaFreeAsync", hStream, SITE);
    entry.category = let_go(&known);
    entry.pool = known.pool;
    entry.bytes = known.bytes;
    add_range(&entry, devPtr, known.bytes, GPU_WRITE);
    write_entry(&entry);
    return cudaSuccess;
}

void memory_reset(int device)
{
    Known known;
    while (table_take_device(&allocations, device, &known)) let_go(&known);
}
