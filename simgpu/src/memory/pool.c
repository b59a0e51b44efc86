/* pool.c: a device's pool of stream-ordered memory, as cudaMallocAsync takes from it.
 *
 * Interface: sim_pool_device (allocation.h); cudaDeviceGetDefaultMemPool, cudaDeviceGetMemPool,
 * cudaDeviceSetMemPool, the cudaMemPool* calls.
 */
#include "core/config.h"
#include "core/error.h"
#include "memory/allocation.h"
#include "time/trace.h"

// A device's pool: the default one, and the only one.
struct CUmemPoolHandle_st {
    int device;
    int reuse[3]; // cudaMemPoolReuse*: kept for who asks, decided by nothing here
    uint64_t threshold;
};
static struct CUmemPoolHandle_st pools[SIM_MAX_DEVICES];
static pthread_once_t pools_once = PTHREAD_ONCE_INIT;

static void make_pools(void)
{
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        pools[i].device = i;
        for (int j = 0; j < 3; j++) pools[i].reuse[j] = 1;
    }
}

static struct CUmemPoolHandle_st *pool_of(int device)
{
    pthread_once(&pools_once, make_pools);
    return &pools[device];
}

static bool is_pool(cudaMemPool_t pool)
{
    return pool >= pools && pool < pools + sim_config()->devices && pool == &pools[pool - pools];
}

int sim_pool_device(cudaMemPool_t pool)
{
    return is_pool(pool) ? pool->device : -1;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *memPool, int device)
{
    SIM_ENTER();
    if (!memPool) return sim_leave(cudaErrorInvalidValue);
    if (device < 0 || device >= sim_config()->devices) return sim_leave(cudaErrorInvalidDevice);
    *memPool = pool_of(device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *memPool, int device)
{
    return cudaDeviceGetDefaultMemPool(memPool, device);
}

// A device has one pool here, so there is only one to set.
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t memPool)
{
    SIM_ENTER();
    if (device < 0 || device >= sim_config()->devices) return sim_leave(cudaErrorInvalidDevice);
    return sim_leave(memPool == pool_of(device) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
    SIM_ENTER();
    SimDevice *device = is_pool(memPool) && value ? sim_device(memPool->device) : NULL;
    if (!device) return sim_leave(cudaErrorInvalidValue);
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&device->lock);
    switch (attr) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
        memPool->reuse[attr - cudaMemPoolReuseFollowEventDependencies] = *(int *)value;
        break;
    case cudaMemPoolAttrReleaseThreshold:
        memPool->threshold = *(uint64_t *)value;
        sim_trace_release_threshold(memPool->device, memPool->threshold);
        break;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh: // can only be set to zero, as documented: it begins anew
        if (*(uint64_t *)value)
            error = cudaErrorInvalidValue;
        else
            device->pool_high = device->pool_live;
        break;
    default: error = cudaErrorInvalidValue;
    }
    pthread_mutex_unlock(&device->lock);
    return sim_leave(error);
}

// What is free belongs to no pool here, so what a pool has reserved is what is in use.
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
    SIM_ENTER();
    SimDevice *device = is_pool(memPool) && value ? sim_device(memPool->device) : NULL;
    if (!device) return sim_leave(cudaErrorInvalidValue);
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&device->lock);
    switch (attr) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
        *(int *)value = memPool->reuse[attr - cudaMemPoolReuseFollowEventDependencies];
        break;
    case cudaMemPoolAttrReleaseThreshold: *(uint64_t *)value = memPool->threshold; break;
    case cudaMemPoolAttrReservedMemCurrent:
    case cudaMemPoolAttrUsedMemCurrent: *(uint64_t *)value = device->pool_live; break;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh: *(uint64_t *)value = device->pool_high; break;
    default: error = cudaErrorInvalidValue;
    }
    pthread_mutex_unlock(&device->lock);
    return sim_leave(error);
}

// Gives back the pages of all that is free.
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep)
{
    SIM_ENTER();
    SimDevice *device = is_pool(memPool) ? sim_device(memPool->device) : NULL;
    if (!device) return sim_leave(cudaErrorInvalidValue);
    sim_trim(device);
    return cudaSuccess;
}
