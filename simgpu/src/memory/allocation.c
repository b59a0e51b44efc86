/* allocation.c: allocations of device memory, from cudaMalloc to their end.
 *
 * Memory is counted as requested, before any rounding: an allocation fails exactly if the bytes in
 * use and the requested bytes together exceed the device's memory. Physical memory follows use:
 * large ranges that cudaFree frees return their pages; those that cudaFreeAsync frees keep them for
 * the next allocation, as CUDA's memory pools do.
 *
 * Interface: allocation.h; cudaMalloc, cudaMemGetInfo, cudaPointerGetAttributes.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/config.h"
#include "core/error.h"
#include "core/leak.h"
#include "log_writer.h"
#include "memory/allocation.h"
#include "memory/dry.h"
#include "memory/heap.h"
#include "memory/owed.h"
#include "memory/pinned.h"
#include "memory/place.h"
#include "memory/shadow.h"
#include "report/hooks.h"
#include "report/report.h"
#include "time/time.h"

#define WHERE 256
#define PUNCH_FROM ((size_t)1 << 20) // smaller ranges keep their pages

// ---- Making ----

static void note_live(SimLeaks *leaks)
{
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        SimDevice *device = sim_device_made(i);
        if (!device || pthread_mutex_trylock(&device->lock)) continue;
        for (SimBlock *b = sim_heap_first(device->heap); b; b = b->next)
            if (b->state == BLOCK_LIVE)
                sim_leak_note(leaks, THING_MEMORY, device->program + b->offset, b->asked, b->site);
        pthread_mutex_unlock(&device->lock);
    }
}

static SimHooks hooks = {.visit = note_live};

// The contents of fresh memory are undefined, so it holds NaNs: then a sum that does not start from
// zero shows. They are only noted (owed.h), unless the host may read the memory or they are few.
// Called with the lock held.
static void poison(SimDevice *device, SimBlock *block)
{
    char *at = device->alias + block->offset;
    if (sim_dry()) return;
    sim_owed_begin(block, at, sim_config()->poison);
    if (block->managed || block->asked < SIM_OWED_LEAST) sim_owed_pay(block, at, 0, block->asked);
}

// Called with the lock held. Memory that pools keep counts as free.
static bool has_room(const SimDevice *device, const SimWanted *wanted)
{
    size_t limit = sim_config()->memory;
    if (wanted->bytes > limit || device->live > limit - wanted->bytes) return false;
    return !wanted->pool || sim_pool_has_room(wanted->pool, wanted->bytes);
}

void *sim_keep_place(SimDevice *device, size_t bytes, const void *site)
{
    pthread_mutex_lock(&device->lock);
    SimBlock *block = NULL;
    if (bytes <= sim_config()->memory)
        block = sim_heap_take_whole(device->heap, bytes, SIM_ALIGN, site);
    if (block) sim_heap_keep(device->heap, block);
    pthread_mutex_unlock(&device->lock);
    if (!block) sim_report_full(device, "cudaMallocAsync", bytes, site);
    return block ? device->program + block->offset : NULL;
}

void sim_keep_place_no_more(const void *ptr)
{
    size_t offset;
    SimDevice *device = sim_device_of(ptr, &offset);
    if (!device) return;
    pthread_mutex_lock(&device->lock);
    SimBlock *block = sim_heap_find(device->heap, offset);
    if (block && block->kept) sim_heap_keep_no_more(device->heap, block);
    pthread_mutex_unlock(&device->lock);
}

// Takes the kept place, or a new one. Called with the lock held.
static SimBlock *take_block(SimDevice *device, const SimWanted *wanted, size_t bytes, size_t unit)
{
    size_t offset;
    if (!wanted->kept) return sim_heap_take_whole(device->heap, bytes, unit, wanted->site);
    SimBlock *block =
        sim_device_of(wanted->kept, &offset) ? sim_heap_find(device->heap, offset) : NULL;
    if (!block || block->state != BLOCK_KEPT) return NULL;
    sim_heap_take_kept(device->heap, block, wanted->site);
    return block;
}

void *sim_allocate(SimDevice *device, SimWanted wanted)
{
    // A closed page is between two managed allocations: free() would read there.
    bool pages = wanted.kind == MEMORY_MANAGED || wanted.kind == MEMORY_OF_NCCL;
    size_t unit = pages ? (size_t)sysconf(_SC_PAGESIZE) : SIM_ALIGN;
    size_t guard = wanted.kind == MEMORY_MANAGED ? unit : 0, bytes = wanted.bytes;
    pthread_mutex_lock(&device->lock);
    SimBlock *block = NULL;
    if (has_room(device, &wanted)) block = take_block(device, &wanted, bytes + guard, unit);
    size_t offset = block ? block->offset : 0;
    if (block) {
        block->asked = bytes;
        block->pool = wanted.pool;
        block->managed = wanted.kind == MEMORY_MANAGED;
        block->of_nccl = wanted.kind == MEMORY_OF_NCCL;
        device->live += bytes;
        if (wanted.pool) sim_pool_take(wanted.pool, bytes);
        sim_pools_make_room(device, sim_config()->memory - device->live);
        gpulog_allocated(device->index, bytes);
        gpulog_category_begins(device->program + offset, bytes);
        // The host may write managed memory, and simgpu does not see it.
        if (sim_config()->check == CHECK_FULL)
            block->shadow = sim_shadow_create(bytes, block->managed, &device->spare);
        if (block->managed) sim_managed_show(device, offset, block->size - guard);
        poison(device, block);
    }
    pthread_mutex_unlock(&device->lock);
    if (!block) {
        sim_report_full(device, wanted.call, bytes, wanted.site);
        return NULL;
    }
    sim_hooks_add(&hooks);
    gpulog_forget_name(device->program + offset);
    return device->program + offset;
}

// It is on no stream: when it returns, all streams may use the memory.
cudaError_t sim_malloc(const char *name, void **ptr, size_t size, SimMemoryKind kind,
                       const void *site)
{
    SIM_ENTER_UNSAFE_AS(name, site);
    if (!ptr) return sim_leave(cudaErrorInvalidValue);
    *ptr = NULL;
    if (size == 0) return cudaSuccess;
    SimDevice *device = sim_device(sim_current_device());
    if (!device) return sim_leave(cudaErrorInvalidDevice);
    void *memory = sim_allocate(device, (SimWanted){name, size, kind, NULL, site, NULL});
    if (!memory) return sim_leave(cudaErrorMemoryAllocation);
    *ptr = memory;
    GpuLogEntry entry = {.op = GPU_ALLOC,
                         .name = name,
                         .device = device->index,
                         .host_waits = true,
                         .bytes = size,
                         .site = site,
                         .n_ranges = 1};
    entry.range[0] = (GpuRange){memory, size, GPU_WRITE};
    sim_clock_log(&entry);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **devPtr, size_t size)
{
    return sim_malloc("cudaMalloc", devPtr, size, MEMORY_PLAIN, SIM_SITE);
}

// ---- Freeing ----

// Gives the whole pages of a range back to the system.
static void punch(SimDevice *device, size_t offset, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t begin = (offset + page - 1) / page * page, end = (offset + bytes) / page * page;
    if (end > begin) madvise(device->alias + begin, end - begin, MADV_REMOVE);
}

// Called with the lock held. It first releases the pages, while no other block can get the range.
static void release(SimDevice *device, SimBlock *block, bool keep_pages, const void *site)
{
    if (block->managed) sim_managed_hide(device, block->offset, block->size);
    if (!keep_pages && block->size >= PUNCH_FROM) punch(device, block->offset, block->size);
    device->live -= block->asked;
    gpulog_freed(device->index, block->asked);
    gpulog_category_ends(device->program + block->offset);
    if (sim_dry()) sim_dry_forget(device->program + block->offset, block->size);
    if (block->pool) sim_pool_give(block->pool, block->asked);
    sim_shadow_destroy(block->shadow);
    block->shadow = NULL;
    sim_owed_end(block);
    sim_heap_give(device->heap, block, site);
}

static void report_bad_free(const char *call, const void *ptr, SimDevice *device,
                            const SimPlace *place, const void *site)
{
    char where[WHERE], what[4 * WHERE];
    gpulog_where(site, where, sizeof where);
    sim_facts_call(call, site, SIM_NO_STREAM);
    if (!device) {
        bool inside, pinned = sim_pinned(ptr, 1, &inside);
        sim_report(SIMGPU_POINTER,
                   pinned ? "cudaFree of pinned host memory"
                          : "a pointer that is not device memory is freed",
                   "%s, called at %s,\nwas given %p, which cudaMalloc did not return.\n"
                   "On a GPU this is an invalid argument, and nothing is freed.\n%s",
                   call, where, ptr,
                   pinned ? "Was cudaFreeHost meant, which frees pinned memory?"
                          : "Is it host memory, for free()? Or a pointer that was never set?");
        return;
    }
    sim_place_describe(place, 1, what, sizeof what);
    if (place->kind == PLACE_FREED) sim_facts_call("cudaFree", place->freed, SIM_NO_STREAM);
    sim_facts_range(ptr, 0);
    bool twice = place->kind == PLACE_FREED && place->byte == 0;
    sim_report(
        twice ? SIMGPU_LIFETIME : SIMGPU_POINTER,
        twice ? "device memory was freed twice"
              : "a pointer that is not the start of an allocation is freed",
        "%s, called at %s,\nwas given %s.\n"
        "On a GPU this is an invalid argument; or it frees whatever has that address by now.\n%s",
        call, where, what,
        twice ? "Do two owners free it? A pointer that is set to NULL with its free is\n"
                "safe: freeing NULL does nothing."
              : "Was an offset added to the pointer that cudaMalloc returned?");
}

bool sim_release(const char *call, void *ptr, bool keep_pages, size_t *bytes, bool *pool,
                 const void *site)
{
    size_t offset;
    SimDevice *device = sim_device_of(ptr, &offset);
    SimPlace place = {PLACE_NEVER, 0, 0, NULL, NULL, NULL};
    bool good = false;
    if (device) {
        pthread_mutex_lock(&device->lock);
        SimBlock *block = sim_heap_find(device->heap, offset);
        good = block && block->state == BLOCK_LIVE && block->offset == offset;
        if (good) {
            *bytes = block->asked;
            *pool = block->pool != NULL;
            release(device, block, keep_pages, site);
        } else {
            place = sim_place(device, offset);
        }
        pthread_mutex_unlock(&device->lock);
    }
    if (!good) report_bad_free(call, ptr, device, &place, site);
    return good;
}

bool sim_is_from_pool(SimDevice *device, size_t offset)
{
    pthread_mutex_lock(&device->lock);
    const SimBlock *block = sim_heap_find(device->heap, offset);
    bool pool =
        block && block->state == BLOCK_LIVE && block->offset == offset && block->pool != NULL;
    pthread_mutex_unlock(&device->lock);
    return pool;
}

void sim_memory_reset(SimDevice *device, const void *site)
{
    pthread_mutex_lock(&device->lock);
    for (SimBlock *b = sim_heap_first(device->heap); b;) {
        if (b->state == BLOCK_LIVE) {
            release(device, b, false, site);
            b = sim_heap_first(device->heap); // blocks were joined: begin again
        } else {
            b = b->next;
        }
    }
    sim_pools_reset(device, site);
    pthread_mutex_unlock(&device->lock);
}

void sim_trim(SimDevice *device)
{
    pthread_mutex_lock(&device->lock);
    for (SimBlock *b = sim_heap_first(device->heap); b; b = b->next)
        if (b->state != BLOCK_LIVE) punch(device, b->offset, b->size);
    pthread_mutex_unlock(&device->lock);
}

// ---- Questions ----

size_t sim_allocated_at(const void *ptr)
{
    size_t offset;
    SimDevice *device = sim_device_of(ptr, &offset);
    if (!device) return 0;
    pthread_mutex_lock(&device->lock);
    const SimBlock *block = sim_heap_find(device->heap, offset);
    bool whole = block && block->state == BLOCK_LIVE && block->offset == offset;
    size_t bytes = whole ? block->asked : 0;
    pthread_mutex_unlock(&device->lock);
    return bytes;
}

size_t sim_allocation_of(const void *ptr, const void **base, SimMemoryKind *kind)
{
    size_t offset;
    SimDevice *device = sim_device_of(ptr, &offset);
    if (!device) return 0;
    pthread_mutex_lock(&device->lock);
    const SimBlock *block = sim_heap_find(device->heap, offset);
    bool inside = block && block->state == BLOCK_LIVE && offset - block->offset < block->asked;
    size_t bytes = inside ? block->asked : 0;
    if (inside) {
        *base = device->program + block->offset;
        *kind = block->of_nccl ? MEMORY_OF_NCCL : block->managed ? MEMORY_MANAGED : MEMORY_PLAIN;
    }
    pthread_mutex_unlock(&device->lock);
    return bytes;
}

bool sim_is_nccls(const char *call, const void *ptr, const void *site)
{
    char where[WHERE];
    const void *base;
    SimMemoryKind kind = MEMORY_PLAIN;
    if (!sim_allocation_of(ptr, &base, &kind) || kind != MEMORY_OF_NCCL) return false;
    gpulog_where(site, where, sizeof where);
    sim_facts_call(call, site, SIM_NO_STREAM);
    sim_facts_range(ptr, 0);
    sim_report(SIMGPU_POINTER, "a CUDA call frees memory from ncclMemAlloc",
               "%s, called at %s,\nwas given memory that ncclMemAlloc allocated.\n"
               "On a GPU this is an invalid argument, and nothing is freed.\n"
               "Was ncclMemFree meant?",
               call, where);
    return true;
}

SimShadow *sim_shadow_hold(const void *ptr, SimDevice **device, size_t *offset)
{
    size_t at;
    *device = sim_device_of(ptr, &at);
    if (!*device) return sim_pinned_shadow_hold(ptr, offset);
    pthread_mutex_lock(&(*device)->lock);
    const SimBlock *block = sim_heap_find((*device)->heap, at);
    if (!block || block->state != BLOCK_LIVE) return NULL;
    *offset = at - block->offset;
    return block->shadow;
}

void sim_shadow_release(SimDevice *device)
{
    if (device)
        pthread_mutex_unlock(&device->lock);
    else
        sim_pinned_shadow_release();
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    SIM_ENTER();
    SimDevice *device = sim_device(sim_current_device());
    if (!free_bytes || !total) return sim_leave(cudaErrorInvalidValue);
    if (!device) return sim_leave(cudaErrorInvalidDevice);
    pthread_mutex_lock(&device->lock);
    *total = sim_config()->memory;
    *free_bytes = *total - device->live - device->kept;
    pthread_mutex_unlock(&device->lock);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
    SIM_ENTER();
    if (!attributes) return sim_leave(cudaErrorInvalidValue);
    memset(attributes, 0, sizeof *attributes);
    attributes->device = sim_current_device();
    size_t offset;
    bool inside;
    SimDevice *device = sim_device_of(ptr, &offset);
    if (device) {
        bool managed = sim_managed(ptr);
        attributes->type = managed ? cudaMemoryTypeManaged : cudaMemoryTypeDevice;
        attributes->device = device->index;
        attributes->devicePointer = (void *)ptr;
        if (managed) attributes->hostPointer = (void *)ptr;
    } else if (sim_pinned(ptr, 1, &inside)) {
        attributes->type = cudaMemoryTypeHost;
        attributes->devicePointer = attributes->hostPointer = (void *)ptr;
    } else {
        attributes->type = cudaMemoryTypeUnregistered;
        attributes->device = cudaInvalidDeviceId;
        attributes->hostPointer = (void *)ptr;
    }
    return cudaSuccess;
}
