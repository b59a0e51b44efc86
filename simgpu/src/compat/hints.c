/* hints.c: calls that make a GPU faster, limit it, or watch it. None changes a result, so they
 * check their arguments, remember values for later queries, and succeed.
 *
 * Interface: cudaMemPrefetchAsync, cudaMemAdvise, cudaStreamAttachMemAsync, cudaDeviceSetLimit,
 * cudaDeviceGetLimit, cudaDeviceSetCacheConfig, cudaDeviceGetCacheConfig, cudaInitDevice,
 * cudaDeviceGetP2PAttribute, cudaProfilerStart, cudaProfilerStop.
 */
#include <cuda_profiler_api.h>
#include <stdatomic.h>

#include "compat/compat.h"
#include "report/report.h"

static bool is_device(int index)
{
    return index >= 0 && index < sim_config()->devices;
}

// ---- Managed memory: where its pages had better be ----

static bool is_place(struct cudaMemLocation location)
{
    if (location.type == cudaMemLocationTypeDevice) return is_device(location.id);
    return location.type == cudaMemLocationTypeHost ||
           location.type == cudaMemLocationTypeHostNuma ||
           location.type == cudaMemLocationTypeHostNumaCurrent;
}

static cudaError_t check_managed(const char *name, const void *ptr, size_t bytes, const void *site)
{
    char where[256];
    if (bytes == 0) return cudaErrorInvalidValue;
    if (sim_managed(ptr))
        return sim_use_bytes(ptr, bytes, GPU_READ, USE_OVERWRITE, name, site)
                   ? cudaSuccess
                   : cudaErrorInvalidValue;
    gpulog_where(site, where, sizeof where);
    sim_report(SIMGPU_POINTER, "a hint for memory that is not managed",
               "%s, called at %s,\nwas given %p, which cudaMallocManaged did not return.\n"
               "Only managed memory moves between host and devices by itself.",
               name, where, ptr);
    return cudaErrorInvalidValue;
}

cudaError_t cudaMemPrefetchAsync(const void *devPtr, size_t count, struct cudaMemLocation location,
                                 unsigned int flags, cudaStream_t stream)
{
    SIM_ENTER();
    unsigned stream_flags;
    if (flags) return sim_leave(cudaErrorInvalidValue);
    if (!is_place(location)) return sim_leave(cudaErrorInvalidDevice);
    cudaError_t error = check_managed("cudaMemPrefetchAsync", devPtr, count, SIM_SITE);
    if (error != cudaSuccess) return sim_leave(error);
    return cudaStreamGetFlags(stream, &stream_flags);
}

cudaError_t cudaMemAdvise(const void *devPtr, size_t count, enum cudaMemoryAdvise advice,
                          struct cudaMemLocation location)
{
    SIM_ENTER();
    if (advice < cudaMemAdviseSetReadMostly || advice > cudaMemAdviseUnsetAccessedBy)
        return sim_leave(cudaErrorInvalidValue);
    bool placed =
        advice > cudaMemAdviseUnsetReadMostly && advice != cudaMemAdviseUnsetPreferredLocation;
    if (placed && !is_place(location)) return sim_leave(cudaErrorInvalidDevice);
    return sim_leave(check_managed("cudaMemAdvise", devPtr, count, SIM_SITE));
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void *devPtr, size_t length,
                                     unsigned int flags)
{
    SIM_ENTER();
    unsigned stream_flags;
    if (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost && flags != cudaMemAttachSingle)
        return sim_leave(cudaErrorInvalidValue);
    cudaError_t error =
        check_managed("cudaStreamAttachMemAsync", devPtr, length ? length : 1, SIM_SITE);
    if (error != cudaSuccess) return sim_leave(error);
    return cudaStreamGetFlags(stream, &stream_flags);
}

// ---- Devices ----

#define LIMITS (cudaLimitPersistingL2CacheSize + 1)

// Set values, plus one; 0: the default of a GPU.
static atomic_size_t limits[LIMITS];

static size_t usual_limit(enum cudaLimit limit)
{
    static const size_t usual[LIMITS] = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0};
    return usual[limit];
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    SIM_ENTER();
    if ((unsigned)limit >= LIMITS) return sim_leave(cudaErrorUnsupportedLimit);
    atomic_store(&limits[limit], value + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetLimit(size_t *pValue, enum cudaLimit limit)
{
    SIM_ENTER();
    if (!pValue) return sim_leave(cudaErrorInvalidValue);
    if ((unsigned)limit >= LIMITS) return sim_leave(cudaErrorUnsupportedLimit);
    size_t set = atomic_load(&limits[limit]);
    *pValue = set ? set - 1 : usual_limit(limit);
    return cudaSuccess;
}

static atomic_int cache;

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache cacheConfig)
{
    SIM_ENTER();
    if ((unsigned)cacheConfig > cudaFuncCachePreferEqual) return sim_leave(cudaErrorInvalidValue);
    atomic_store(&cache, (int)cacheConfig);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *pCacheConfig)
{
    SIM_ENTER();
    if (!pCacheConfig) return sim_leave(cudaErrorInvalidValue);
    *pCacheConfig = (enum cudaFuncCache)atomic_load(&cache);
    return cudaSuccess;
}

// Makes the device ready, and leaves the current one as it is.
cudaError_t cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags)
{
    SIM_ENTER();
    if (!is_device(device)) return sim_leave(cudaErrorInvalidDevice);
    return sim_leave(sim_device(device) ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attr, int srcDevice,
                                      int dstDevice)
{
    SIM_ENTER();
    if (!value || attr < cudaDevP2PAttrPerformanceRank ||
        attr > cudaDevP2PAttrOnlyPartialNativeAtomicSupported)
        return sim_leave(cudaErrorInvalidValue);
    if (!is_device(srcDevice) || !is_device(dstDevice) || srcDevice == dstDevice)
        return sim_leave(cudaErrorInvalidDevice);
    *value = attr == cudaDevP2PAttrAccessSupported || attr == cudaDevP2PAttrNativeAtomicSupported;
    return cudaSuccess;
}

// ---- Profiling: there is no profiler ----

cudaError_t cudaProfilerStart(void)
{
    SIM_ENTER();
    return cudaSuccess;
}

cudaError_t cudaProfilerStop(void)
{
    SIM_ENTER();
    return cudaSuccess;
}
