/* pool.c: pools of stream-ordered memory, from which cudaMallocAsync allocates: the default one of
 * a device, and those that a program makes.
 *
 * A pool reserves the memory of its allocations, and what was freed to it and not released. When
 * the host waits, the pool releases what it has beyond its release threshold, which is 0 unless the
 * program sets it (CUDA C++ programming guide, stream ordered memory allocator). Reserved memory
 * serves the pool's next allocations, and any other allocation if the device would be full. Bytes
 * are counted as requested; a driver reserves whole chunks.
 *
 * Interface: allocation.h; the cudaMemPool* calls, cudaDeviceGetDefaultMemPool,
 * cudaDeviceGetMemPool, cudaDeviceSetMemPool.
 */
#include <stdlib.h>

#include "core/config.h"
#include "core/error.h"
#include "core/leak.h"
#include "memory/allocation.h"
#include "report/hooks.h"
#include "report/report.h"
#include "time/trace.h"

// Guarded by its device's lock. A destroyed pool stays, so that a use of it is reported.
struct CUmemPoolHandle_st {
    SimDevice *device;
    bool reuse[3]; // cudaMemPoolReuse*: only for cudaMemPoolGetAttribute
    uint64_t threshold;
    size_t most; // bytes that it may reserve; 0: all of the device
    size_t live, live_high;
    size_t kept, reserved_high; // freed to it, and still reserved; the most of both together
    const void *made, *destroyed;
    struct CUmemPoolHandle_st *next; // of the device, the default one first
};

static void note_pools(SimLeaks *leaks)
{
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        SimDevice *device = sim_device_made(i);
        if (!device || pthread_mutex_trylock(&device->lock)) continue;
        for (cudaMemPool_t p = device->pools ? device->pools->next : NULL; p; p = p->next)
            if (!p->destroyed) sim_leak_note(leaks, THING_POOL, p, 0, p->made);
        pthread_mutex_unlock(&device->lock);
    }
}

static SimHooks hooks = {.visit = note_pools};

// NULL: no memory. Called with the lock held.
static cudaMemPool_t add_pool(SimDevice *device, const void *site)
{
    cudaMemPool_t pool = calloc(1, sizeof *pool), *end = &device->pools;
    if (!pool) return NULL;
    pool->device = device;
    pool->made = site;
    for (int i = 0; i < 3; i++) pool->reuse[i] = true;
    while (*end) end = &(*end)->next;
    *end = pool;
    return pool;
}

static cudaMemPool_t default_pool(SimDevice *device)
{
    return device->pools ? device->pools : add_pool(device, NULL);
}

cudaMemPool_t sim_pool_current(SimDevice *device)
{
    pthread_mutex_lock(&device->lock);
    cudaMemPool_t pool = device->pool ? device->pool : default_pool(device);
    pthread_mutex_unlock(&device->lock);
    return pool;
}

SimDevice *sim_pool_device(cudaMemPool_t pool, const char *call, const void *site)
{
    char where[256], destroyed[256];
    const void *end = NULL;
    SimDevice *found = NULL;
    for (int i = 0; i < SIM_MAX_DEVICES && !found; i++) {
        SimDevice *device = sim_device_made(i);
        if (!device) continue;
        pthread_mutex_lock(&device->lock);
        cudaMemPool_t p = device->pools;
        while (p && p != pool) p = p->next;
        if (p) found = device;
        if (p) end = p->destroyed;
        pthread_mutex_unlock(&device->lock);
    }
    if (found && !end) return found;
    gpulog_where(site, where, sizeof where);
    sim_facts_call(call, site, SIM_NO_STREAM);
    if (!found) {
        sim_report(SIMGPU_POINTER, "this is not a memory pool",
                   "%s, called at %s,\nwas given %p, which is not a memory pool.\n"
                   "Is it from cudaMemPoolCreate, or from cudaDeviceGetDefaultMemPool?",
                   call, where, (void *)pool);
        return NULL;
    }
    gpulog_where(end, destroyed, sizeof destroyed);
    sim_facts_call("cudaMemPoolDestroy", end, SIM_NO_STREAM);
    sim_report(SIMGPU_LIFETIME, "a memory pool is used after it was destroyed",
               "%s, called at %s,\nwas given a memory pool that\n"
               "cudaMemPoolDestroy, called at %s, destroyed.\n"
               "On a GPU it is an invalid argument, or another pool has its handle by now.\n"
               "Can it be destroyed later, or its handle be set to NULL with it?",
               call, where, destroyed);
    return NULL;
}

// ---- What a pool reserves. Called with the lock held. ----

static void note_highs(cudaMemPool_t pool)
{
    if (pool->live > pool->live_high) pool->live_high = pool->live;
    if (pool->live + pool->kept > pool->reserved_high)
        pool->reserved_high = pool->live + pool->kept;
}

// Sets how many freed bytes it keeps.
static void keep(cudaMemPool_t pool, size_t bytes)
{
    pool->device->kept -= pool->kept - bytes;
    pool->kept = bytes;
}

bool sim_pool_has_room(cudaMemPool_t pool, size_t bytes)
{
    return !pool->most || (bytes <= pool->most && pool->live <= pool->most - bytes);
}

void sim_pool_take(cudaMemPool_t pool, size_t bytes)
{
    keep(pool, pool->kept > bytes ? pool->kept - bytes : 0);
    pool->live += bytes;
    note_highs(pool);
}

void sim_pool_give(cudaMemPool_t pool, size_t bytes)
{
    pool->live -= bytes;
    pool->device->kept += bytes;
    pool->kept += bytes;
    if (pool->destroyed) keep(pool, 0);
}

void sim_pools_make_room(SimDevice *device, size_t most)
{
    for (cudaMemPool_t p = device->pools; p && device->kept > most; p = p->next) {
        size_t over = device->kept - most;
        keep(p, p->kept > over ? p->kept - over : 0);
    }
}

void sim_pools_reset(SimDevice *device, const void *site)
{
    sim_pools_make_room(device, 0);
    for (cudaMemPool_t p = device->pools ? device->pools->next : NULL; p; p = p->next)
        if (!p->destroyed) p->destroyed = site;
    device->pool = NULL;
}

// Releases freed memory until it reserves `least` bytes, with what is in use.
static void shrink(cudaMemPool_t pool, uint64_t least)
{
    if (least <= pool->live)
        keep(pool, 0);
    else if (pool->kept > least - pool->live)
        keep(pool, (size_t)(least - pool->live));
}

void sim_pools_after_wait(int index)
{
    SimDevice *device = sim_device_made(index);
    if (!device || !__atomic_load_n(&device->kept, __ATOMIC_RELAXED)) return;
    pthread_mutex_lock(&device->lock);
    for (cudaMemPool_t p = device->pools; p; p = p->next) shrink(p, p->threshold);
    pthread_mutex_unlock(&device->lock);
}

// ---- The calls ----

// "Must be specified as cudaMemAllocationTypePinned", on a device; other processes cannot be given
// its memory here.
cudaError_t cudaMemPoolCreate(cudaMemPool_t *memPool, const struct cudaMemPoolProps *poolProps)
{
    SIM_ENTER();
    if (!memPool || !poolProps || poolProps->allocType != cudaMemAllocationTypePinned ||
        poolProps->location.type != cudaMemLocationTypeDevice ||
        !sim_is_device(poolProps->location.id))
        return sim_leave(cudaErrorInvalidValue);
    if (poolProps->handleTypes != cudaMemHandleTypeNone) return sim_leave(cudaErrorNotSupported);
    SimDevice *device = sim_device(poolProps->location.id);
    if (!device) return sim_leave(cudaErrorInvalidDevice);
    pthread_mutex_lock(&device->lock);
    cudaMemPool_t pool = default_pool(device) ? add_pool(device, SIM_SITE) : NULL;
    if (pool) pool->most = poolProps->maxSize;
    pthread_mutex_unlock(&device->lock);
    if (!pool) return sim_leave(cudaErrorMemoryAllocation);
    sim_hooks_add(&hooks);
    *memPool = pool;
    return cudaSuccess;
}

// It is released with the last of its allocations. A device whose pool it was uses its default pool
// again, which cannot be destroyed.
cudaError_t cudaMemPoolDestroy(cudaMemPool_t memPool)
{
    SIM_ENTER();
    SimDevice *device = sim_pool_device(memPool, "cudaMemPoolDestroy", SIM_SITE);
    if (!device || memPool == device->pools) return sim_leave(cudaErrorInvalidValue);
    pthread_mutex_lock(&device->lock);
    memPool->destroyed = SIM_SITE;
    keep(memPool, 0);
    if (device->pool == memPool) device->pool = NULL;
    pthread_mutex_unlock(&device->lock);
    return cudaSuccess;
}

static cudaError_t hand_out(cudaMemPool_t *memPool, int index, bool by_default)
{
    SimDevice *device = sim_is_device(index) ? sim_device(index) : NULL;
    if (!memPool) return sim_leave(cudaErrorInvalidValue);
    if (!device) return sim_leave(cudaErrorInvalidDevice);
    pthread_mutex_lock(&device->lock);
    *memPool = by_default || !device->pool ? default_pool(device) : device->pool;
    pthread_mutex_unlock(&device->lock);
    return *memPool ? cudaSuccess : sim_leave(cudaErrorMemoryAllocation);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *memPool, int device)
{
    SIM_ENTER();
    return hand_out(memPool, device, true);
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *memPool, int device)
{
    SIM_ENTER();
    return hand_out(memPool, device, false);
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t memPool)
{
    SIM_ENTER();
    if (!sim_is_device(device)) return sim_leave(cudaErrorInvalidDevice);
    SimDevice *of = sim_pool_device(memPool, "cudaDeviceSetMemPool", SIM_SITE);
    if (!of || of->index != device) return sim_leave(cudaErrorInvalidValue);
    pthread_mutex_lock(&of->lock);
    of->pool = memPool;
    pthread_mutex_unlock(&of->lock);
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
    SIM_ENTER();
    SimDevice *device = sim_pool_device(memPool, "cudaMemPoolSetAttribute", SIM_SITE);
    if (!device || !value) return sim_leave(cudaErrorInvalidValue);
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&device->lock);
    switch (attr) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
        memPool->reuse[attr - cudaMemPoolReuseFollowEventDependencies] = *(int *)value != 0;
        break;
    case cudaMemPoolAttrReleaseThreshold:
        memPool->threshold = *(uint64_t *)value;
        if (memPool == device->pools)
            sim_trace_release_threshold(device->index, memPool->threshold);
        break;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh: // can only be set to zero, as documented: a reset
        if (*(uint64_t *)value)
            error = cudaErrorInvalidValue;
        else if (attr == cudaMemPoolAttrUsedMemHigh)
            memPool->live_high = memPool->live;
        else
            memPool->reserved_high = memPool->live + memPool->kept;
        break;
    default: error = cudaErrorInvalidValue;
    }
    pthread_mutex_unlock(&device->lock);
    return sim_leave(error);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
    SIM_ENTER();
    SimDevice *device = sim_pool_device(memPool, "cudaMemPoolGetAttribute", SIM_SITE);
    if (!device || !value) return sim_leave(cudaErrorInvalidValue);
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
        *(uint64_t *)value = memPool->live + memPool->kept;
        break;
    case cudaMemPoolAttrReservedMemHigh: *(uint64_t *)value = memPool->reserved_high; break;
    case cudaMemPoolAttrUsedMemCurrent: *(uint64_t *)value = memPool->live; break;
    case cudaMemPoolAttrUsedMemHigh: *(uint64_t *)value = memPool->live_high; break;
    default: error = cudaErrorInvalidValue;
    }
    pthread_mutex_unlock(&device->lock);
    return sim_leave(error);
}

// Releases what is free beyond minBytesToKeep, and the pages of all free memory.
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep)
{
    SIM_ENTER();
    SimDevice *device = sim_pool_device(memPool, "cudaMemPoolTrimTo", SIM_SITE);
    if (!device) return sim_leave(cudaErrorInvalidValue);
    pthread_mutex_lock(&device->lock);
    shrink(memPool, minBytesToKeep);
    pthread_mutex_unlock(&device->lock);
    sim_trim(device);
    return cudaSuccess;
}
