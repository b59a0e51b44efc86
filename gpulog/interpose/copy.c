/* copy.c: cudaMemcpy and cudaMemset in all their forms.
 *
 * Calls wait as CUDA documents it ("API synchronization behavior") and as in simgpu: a copy without
 * Async waits, except between two places on devices; an Async copy waits only if it writes pageable
 * memory. CUDA tells whose memory a pointer is.
 *
 * Interface: log_copy; the wrapped cudaMemcpy* and cudaMemset*.
 */
#include "interpose.h"

__typeof__(cudaGetLastError) __real_cudaGetLastError;
WRAPPED(cudaMemcpy);
WRAPPED(cudaMemcpyAsync);
WRAPPED(cudaMemcpy2D);
WRAPPED(cudaMemcpy2DAsync);
WRAPPED(cudaMemcpyPeer);
WRAPPED(cudaMemcpyPeerAsync);
WRAPPED(cudaMemset);
WRAPPED(cudaMemsetAsync);
WRAPPED(cudaMemset2D);
WRAPPED(cudaMemset2DAsync);

typedef struct Owner {
    enum cudaMemoryType type;
    int device; // GPULOG_HOST: host memory
} Owner;

static Owner owner(const void *ptr)
{
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, ptr) != cudaSuccess) {
        __real_cudaGetLastError(); // before CUDA 11, pageable memory was an error
        return (Owner){cudaMemoryTypeUnregistered, GPULOG_HOST};
    }
    bool there =
        attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    return (Owner){attributes.type, there ? attributes.device : GPULOG_HOST};
}

static bool host_waits(const Copy *c, const Owner *to, const Owner *from)
{
    if (c->async) return to->type == cudaMemoryTypeUnregistered;
    return to->device == GPULOG_HOST || from->device == GPULOG_HOST;
}

void log_copy(const char *name, const Copy *c, cudaStream_t stream, const void *site)
{
    if (c->width == 0 || c->height == 0) return;
    GpuLogEntry entry = entry_on(GPU_COPY, name, stream, site);
    Owner to = owner(c->dst), from = owner(c->src);
    entry.host_waits = host_waits(c, &to, &from);
    entry.to = to.device;
    entry.from = from.device;
    entry.bytes = c->width * c->height;
    add_range(&entry, c->dst, (c->height - 1) * c->dpitch + c->width, GPU_WRITE);
    add_range(&entry, c->src, (c->height - 1) * c->spitch + c->width, GPU_READ);
    write_entry(&entry);
}

static cudaError_t copied(cudaError_t error, const char *name, Copy copy, cudaStream_t stream,
                          const void *site)
{
    if (error == cudaSuccess) log_copy(name, &copy, stream, site);
    return error;
}

static Copy plain(void *dst, const void *src, size_t count, bool async)
{
    return (Copy){dst, src, count, count, count, 1, async};
}

cudaError_t __wrap_cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    const char *name = "cudaMemcpy";
    cudaError_t error = WAITING(name, SITE, __real_cudaMemcpy(dst, src, count, kind));
    return copied(error, name, plain(dst, src, count, false), NULL, SITE);
}

cudaError_t __wrap_cudaMemcpyAsync(void *dst, const void *src, size_t count,
                                   enum cudaMemcpyKind kind, cudaStream_t stream)
{
    const char *name = "cudaMemcpyAsync";
    cudaError_t error = WAITING(name, SITE, __real_cudaMemcpyAsync(dst, src, count, kind, stream));
    return copied(error, name, plain(dst, src, count, true), stream, SITE);
}

cudaError_t __wrap_cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch,
                                size_t width, size_t height, enum cudaMemcpyKind kind)
{
    const char *name = "cudaMemcpy2D";
    Copy copy = {dst, src, dpitch, spitch, width, height, false};
    cudaError_t error =
        WAITING(name, SITE, __real_cudaMemcpy2D(dst, dpitch, src, spitch, width, height, kind));
    return copied(error, name, copy, NULL, SITE);
}

cudaError_t __wrap_cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                                     size_t width, size_t height, enum cudaMemcpyKind kind,
                                     cudaStream_t stream)
{
    const char *name = "cudaMemcpy2DAsync";
    Copy copy = {dst, src, dpitch, spitch, width, height, true};
    cudaError_t error =
        WAITING(name, SITE,
                __real_cudaMemcpy2DAsync(dst, dpitch, src, spitch, width, height, kind, stream));
    return copied(error, name, copy, stream, SITE);
}

cudaError_t __wrap_cudaMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice,
                                  size_t count)
{
    const char *name = "cudaMemcpyPeer";
    cudaError_t error =
        WAITING(name, SITE, __real_cudaMemcpyPeer(dst, dstDevice, src, srcDevice, count));
    return copied(error, name, plain(dst, src, count, false), NULL, SITE);
}

cudaError_t __wrap_cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice,
                                       size_t count, cudaStream_t stream)
{
    const char *name = "cudaMemcpyPeerAsync";
    cudaError_t error = WAITING(
        name, SITE, __real_cudaMemcpyPeerAsync(dst, dstDevice, src, srcDevice, count, stream));
    return copied(error, name, plain(dst, src, count, true), stream, SITE);
}

// ---- Memset ----

static cudaError_t filled(cudaError_t error, const char *name, const void *ptr, size_t pitch,
                          size_t width, size_t height, cudaStream_t stream, const void *site)
{
    if (error != cudaSuccess || width == 0 || height == 0) return error;
    GpuLogEntry entry = entry_on(GPU_MEMSET, name, stream, site);
    entry.bytes = width * height;
    add_range(&entry, ptr, (height - 1) * pitch + width, GPU_WRITE);
    write_entry(&entry);
    return cudaSuccess;
}

cudaError_t __wrap_cudaMemset(void *devPtr, int value, size_t count)
{
    return filled(__real_cudaMemset(devPtr, value, count), "cudaMemset", devPtr, count, count, 1,
                  NULL, SITE);
}

cudaError_t __wrap_cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream)
{
    return filled(__real_cudaMemsetAsync(devPtr, value, count, stream), "cudaMemsetAsync", devPtr,
                  count, count, 1, stream, SITE);
}

cudaError_t __wrap_cudaMemset2D(void *devPtr, size_t pitch, int value, size_t width, size_t height)
{
    return filled(__real_cudaMemset2D(devPtr, pitch, value, width, height), "cudaMemset2D", devPtr,
                  pitch, width, height, NULL, SITE);
}

cudaError_t __wrap_cudaMemset2DAsync(void *devPtr, size_t pitch, int value, size_t width,
                                     size_t height, cudaStream_t stream)
{
    return filled(__real_cudaMemset2DAsync(devPtr, pitch, value, width, height, stream),
                  "cudaMemset2DAsync", devPtr, pitch, width, height, stream, SITE);
}
