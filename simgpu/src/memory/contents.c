/* contents.c: how an operation uses the contents of device memory. See contents.h. */
#include <stdatomic.h>

#include "core/config.h"
#include "log_writer.h"
#include "memory/contents.h"
#include "memory/heap.h"
#include "memory/owed.h"
#include "memory/place.h"
#include "report/report.h"

#define WHERE 256

static const char *verb(GpuAccess access)
{
    return access == GPU_READ ? "reads" : access == GPU_WRITE ? "writes" : "reads and writes";
}

static void report_bad_range(SimDevice *device, size_t offset, size_t bytes, const SimPlace *place,
                             GpuAccess access, const char *name, const void *site)
{
    char where[WHERE], what[4 * WHERE];
    gpulog_where(site, where, sizeof where);
    sim_place_describe(place, 1, what, sizeof what);
    sim_facts_call(name, site, SIM_NO_STREAM);
    if (place->kind == PLACE_FREED) sim_facts_call("cudaFree", place->freed, SIM_NO_STREAM);
    sim_facts_range(device->program + offset, bytes);
    if (place->kind == PLACE_LIVE) {
        sim_report(SIMGPU_POINTER, "an operation runs past the end of an allocation",
                   "%s, called at %s,\n%s %zu bytes from %s:\n"
                   "that is %zu bytes too many.\n"
                   "On a GPU this is an illegal memory access, or wrong data without an error.\n"
                   "Are the count (elements, not bytes?) and the offset right?",
                   name, where, verb(access), bytes, what, place->byte + bytes - place->asked);
        return;
    }
    const char *title = place->kind == PLACE_FREED ? "use of freed device memory"
                                                   : "an operation outside any allocation";
    const char *advice = place->kind == PLACE_FREED
                             ? "Is it freed before its last use, or is this an old pointer that "
                               "should have been\nrenewed?"
                         : place->kind == PLACE_AHEAD
                             ? "Is an index or an offset negative, or too much subtracted from the "
                               "pointer?"
                         : place->kind == PLACE_BEHIND && place->byte == place->asked
                             ? "Should the count be 0 there? Or is the pointer or the offset added "
                               "to it wrong?"
                             : "Is the pointer or the offset added to it right?";
    sim_report(place->kind == PLACE_FREED ? SIMGPU_LIFETIME : SIMGPU_POINTER, title,
               "%s, called at %s,\n%s %zu bytes at %p on device %d:\n%s.\n"
               "On a GPU this is an illegal memory access, or wrong data without an error.\n%s",
               name, where, verb(access), bytes, (void *)(device->program + offset), device->index,
               what, advice);
}

void *sim_use_bytes(const void *ptr, size_t bytes, GpuAccess access, SimUse use, const char *name,
                    const void *site)
{
    size_t offset;
    SimDevice *device = sim_device_of(ptr, &offset);
    if (!device) return NULL;
    pthread_mutex_lock(&device->lock);
    SimBlock *block = sim_heap_find(device->heap, offset);
    bool good = block && block->state == BLOCK_LIVE && offset - block->offset <= block->asked &&
                bytes <= block->asked - (offset - block->offset);
    SimPlace place = {PLACE_LIVE, 0, 0, NULL, NULL, NULL};
    if (!good) place = sim_place(device, offset);
    const char *borrowed = NULL;
    size_t from = good ? offset - block->offset : 0;
    if (good && use == USE_READ) borrowed = sim_owed_borrowed(block, from, from + bytes);
    if (good && (access & GPU_WRITE || block->n_owed))
        sim_machine_memory_touched(device->alias + offset, bytes, name, site);
    if (good && use != USE_OVERWRITE && !borrowed)
        sim_owed_pay(block, device->alias + block->offset, from, from + bytes);
    pthread_mutex_unlock(&device->lock);
    if (borrowed) return (char *)borrowed;
    if (good) return device->alias + offset;
    report_bad_range(device, offset, bytes, &place, access, name, site);
    return NULL;
}

// ---- What is not written yet ----

// Finds the live allocation that has the range and locks its device; NULL: none, and no lock.
static SimBlock *hold_block(const void *ptr, size_t bytes, SimDevice **device, size_t *from)
{
    size_t offset;
    *device = bytes && !sim_dry() ? sim_device_of(ptr, &offset) : NULL;
    if (!*device) return NULL;
    pthread_mutex_lock(&(*device)->lock);
    SimBlock *block = sim_heap_find((*device)->heap, offset);
    if (block && block->state == BLOCK_LIVE && offset - block->offset + bytes <= block->asked) {
        *from = offset - block->offset;
        return block;
    }
    pthread_mutex_unlock(&(*device)->lock);
    return NULL;
}

// Ends what a range owes, by sim_owed_cancel or sim_owed_mark.
typedef void (*Settle)(SimBlock *block, char *at, size_t from, size_t to);

static void settle(const void *ptr, size_t bytes, Settle what)
{
    size_t from;
    SimDevice *device;
    SimBlock *block = hold_block(ptr, bytes, &device, &from);
    if (!block) return;
    what(block, device->alias + block->offset, from, from + bytes);
    pthread_mutex_unlock(&device->lock);
}

void sim_overwritten(const void *ptr, size_t bytes)
{
    settle(ptr, bytes, sim_owed_cancel);
}

void sim_promised(const void *ptr, size_t bytes)
{
    settle(ptr, bytes, sim_owed_mark);
}

bool sim_zeros_overwritten(const void *ptr, size_t bytes)
{
    size_t from;
    SimDevice *device;
    SimBlock *block = hold_block(ptr, bytes, &device, &from);
    if (!block) return false;
    bool zeros = sim_owed_are(block, from, from + bytes, 0);
    char *at = device->alias + block->offset;
    if (zeros)
        sim_owed_cancel(block, at, from, from + bytes);
    else
        sim_owed_pay(block, at, from, from + bytes);
    pthread_mutex_unlock(&device->lock);
    return zeros;
}

bool sim_fill_later(const void *ptr, size_t bytes, int value)
{
    size_t from;
    SimDevice *device;
    SimBlock *block = hold_block(ptr, bytes, &device, &from);
    if (!block) return false;
    bool later = sim_owed_fill(block, device->alias + block->offset, from, from + bytes,
                               (unsigned char)value);
    pthread_mutex_unlock(&device->lock);
    return later;
}

bool sim_borrow(const void *ptr, size_t bytes, const char *lender, _Atomic uint32_t *users)
{
    size_t from;
    SimDevice *device;
    SimBlock *block = hold_block(ptr, bytes, &device, &from);
    if (!block) return false;
    bool borrows = !block->managed;
    char *at = device->alias + block->offset;
    if (borrows) sim_owed_borrow(block, at, from, from + bytes, lender, users);
    pthread_mutex_unlock(&device->lock);
    return borrows;
}

void sim_borrow_no_more(SimDevice *device)
{
    pthread_mutex_lock(&device->lock);
    for (SimBlock *b = sim_heap_first(device->heap); b; b = b->next)
        if (b->state == BLOCK_LIVE) sim_owed_return(b, device->alias + b->offset);
    pthread_mutex_unlock(&device->lock);
}
