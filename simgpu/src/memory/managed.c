/* managed.c: memory that the host may touch, too, and memory in rows.
 *
 * A managed allocation is memory of the device that was current when it was made. It consists of
 * whole pages, which are also mapped, readable and writable, at the address that the program sees.
 * So one pointer serves the host, the kernels of every device, copies and collectives. A touch by
 * the host after cudaFree is reported as for any device memory. For a communicator it is memory of
 * the device where it was made.
 *
 * It counts against that device as memory of cudaMalloc does; a real device may oversubscribe it.
 * On hardware the host must wait for the kernels that use managed memory before it touches it.
 * Since operations run at their call, a missing wait does no harm here, and it is not reported.
 *
 * Interface: allocation.h; cudaMallocManaged, cudaMallocPitch.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "core/error.h"
#include "memory/allocation.h"
#include "memory/heap.h"
#include "memory/shared_memory.h"
#include "report/report.h"

#define PITCH ((size_t)512) // bytes to a multiple of which a row is rounded, as GPUs of today do

static atomic_uint alive; // managed allocations: usually none, which is a quick check

// Ends the program: bytes of the device's program range could not be mapped again.
static void must_be_mapped(const void *at, size_t bytes)
{
    if (at != MAP_FAILED) return;
    sim_fatal(SIMGPU_SYSTEM, "managed memory could not be mapped",
              "mmap of %zu bytes failed: %s.\n"
              "Each managed allocation is a mapping of its own; vm.max_map_count limits them.",
              bytes, strerror(errno));
}

void sim_managed_show(SimDevice *device, size_t offset, size_t bytes)
{
    must_be_mapped(sim_shared_map(device->memory, device->program + offset, offset, bytes), bytes);
    atomic_fetch_add(&alive, 1);
}

void sim_managed_hide(SimDevice *device, size_t offset, size_t bytes)
{
    // Without memory and without access.
    must_be_mapped(mmap(device->program + offset, bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0),
                   bytes);
    atomic_fetch_sub(&alive, 1);
}

bool sim_managed(const void *ptr)
{
    size_t offset;
    SimDevice *device = atomic_load(&alive) ? sim_device_of(ptr, &offset) : NULL;
    if (!device) return false;
    pthread_mutex_lock(&device->lock);
    const SimBlock *block = sim_heap_find(device->heap, offset);
    bool managed = block && block->state == BLOCK_LIVE && block->managed;
    pthread_mutex_unlock(&device->lock);
    return managed;
}

cudaError_t cudaMallocManaged(void **devPtr, size_t size, unsigned int flags)
{
    SIM_ENTER();
    if (!devPtr || size == 0 || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost))
        return sim_leave(cudaErrorInvalidValue);
    return sim_malloc("cudaMallocManaged", devPtr, size, MEMORY_MANAGED, SIM_SITE);
}

static cudaError_t allocate_rows(const char *name, void **ptr, size_t *pitch, size_t width,
                                 size_t rows, const void *site)
{
    *ptr = NULL;
    *pitch = (width + PITCH - 1) / PITCH * PITCH;
    if (rows > 0 && *pitch > SIZE_MAX / rows) return sim_leave(cudaErrorMemoryAllocation);
    return sim_malloc(name, ptr, *pitch * rows, MEMORY_PLAIN, site);
}

cudaError_t cudaMallocPitch(void **devPtr, size_t *pitch, size_t width, size_t height)
{
    SIM_ENTER();
    if (!devPtr || !pitch || width > SIZE_MAX - PITCH) return sim_leave(cudaErrorInvalidValue);
    return allocate_rows("cudaMallocPitch", devPtr, pitch, width, height, SIM_SITE);
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *pitchedDevPtr, struct cudaExtent extent)
{
    SIM_ENTER();
    bool too_many = extent.depth && extent.height > SIZE_MAX / extent.depth;
    if (!pitchedDevPtr || extent.width > SIZE_MAX - PITCH) return sim_leave(cudaErrorInvalidValue);
    pitchedDevPtr->xsize = extent.width;
    pitchedDevPtr->ysize = extent.height;
    return allocate_rows("cudaMalloc3D", &pitchedDevPtr->ptr, &pitchedDevPtr->pitch, extent.width,
                         too_many ? SIZE_MAX : extent.height * extent.depth, SIM_SITE);
}
