/* memory/allocation.h: allocations of device memory. */
#ifndef SIMGPU_ALLOCATION_H
#define SIMGPU_ALLOCATION_H

#include <cuda_runtime_api.h>

#include "memory/device.h"

struct SimShadow; // shadow.h

// Managed memory consists of whole pages, which the host may touch.
typedef enum SimMemoryKind {
    MEMORY_PLAIN,
    MEMORY_MANAGED,
    MEMORY_OF_NCCL // of ncclMemAlloc: it begins at a page, and cudaFree refuses it
} SimMemoryKind;
typedef struct SimWanted {
    const char *call; // that wants it
    size_t bytes;
    SimMemoryKind kind;
    cudaMemPool_t pool; // that it is taken from; NULL: none
    const void *site;
    const void *kept; // the place that a graph has kept for it; NULL: any place
} SimWanted;
// Returns NULL, with a report, if the device or the pool is full.
void *sim_allocate(SimDevice *device, SimWanted wanted);
// Reserves a place for so many bytes until it is released. NULL, with a report: there is no room.
void *sim_keep_place(SimDevice *device, size_t bytes, const void *site);
void sim_keep_place_no_more(const void *ptr);
// Frees ptr, and returns the number of its bytes and whether a pool had them; false, with a report:
// ptr is not the beginning of a live allocation. As on hardware, the memory may be of any device,
// whichever is current.
bool sim_release(const char *call, void *ptr, bool keep_pages, size_t *bytes, bool *pool,
                 const void *site);
// Returns the pages of all free memory to the system.
void sim_trim(SimDevice *device);
// Whether a live allocation of cudaMallocAsync begins at ptr.
bool sim_is_from_pool(SimDevice *device, size_t offset);
// Frees everything on a device: cudaDeviceReset.
void sim_memory_reset(SimDevice *device, const void *site);
// The bytes of the live allocation of device memory that begins at ptr; 0: none does.
size_t sim_allocated_at(const void *ptr);
// The size of the live allocation that holds ptr, its first byte, and its kind; 0: none does.
size_t sim_allocation_of(const void *ptr, const void **base, SimMemoryKind *kind);
// Whether ptr is memory of ncclMemAlloc, which `call` must not free: then reports it.
bool sim_is_nccls(const char *call, const void *ptr, const void *site);
// cudaMalloc, with the name of the call that needs it.
cudaError_t sim_malloc(const char *name, void **ptr, size_t size, SimMemoryKind kind,
                       const void *site);

// The shadow (shadow.h) of the allocation of device or pinned memory that holds ptr, and ptr's
// offset in it; NULL: there is none. It stays as it is until sim_shadow_release of its *device.
struct SimShadow *sim_shadow_hold(const void *ptr, SimDevice **device, size_t *offset);
void sim_shadow_release(SimDevice *device);

// Reports once in a process that the device is full, and which places have its memory.
void sim_report_full(SimDevice *device, const char *call, size_t bytes, const void *site);

// ---- managed.c ----

// Opens whole pages of a device's program range to the host, and closes them.
void sim_managed_show(SimDevice *device, size_t offset, size_t bytes);
void sim_managed_hide(SimDevice *device, size_t offset, size_t bytes);
// Whether ptr is an address of live managed memory.
bool sim_managed(const void *ptr);

// ---- pool.c ----

// The pool from which cudaMallocAsync allocates; NULL: no memory.
cudaMemPool_t sim_pool_current(SimDevice *device);
// The device of the pool; NULL, with a report: there is no such pool.
SimDevice *sim_pool_device(cudaMemPool_t pool, const char *call, const void *site);
// The host has waited for the device, or for a part of its work.
void sim_pools_after_wait(int device);
// These need the device's lock. Whether the pool may get so many bytes more; it gets them; it gives
// them back; frees what all pools of the device together keep, down to `most` bytes.
bool sim_pool_has_room(cudaMemPool_t pool, size_t bytes);
void sim_pool_take(cudaMemPool_t pool, size_t bytes);
void sim_pool_give(cudaMemPool_t pool, size_t bytes);
void sim_pools_make_room(SimDevice *device, size_t most);
void sim_pools_reset(SimDevice *device, const void *site); // all memory of the device was freed

#endif
