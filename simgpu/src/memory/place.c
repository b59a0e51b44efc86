/* place.c: describes an address of a device for a report. See place.h. */
#include <stdio.h>

#include "log_writer.h"
#include "memory/heap.h"
#include "memory/place.h"
#include "report/report.h"

#define WHERE 256
#define NEAR ((size_t)1 << 20) // up to here an address is taken to be meant for an allocation
#define FREE_LOOKS 16          // free() reads so many bytes before its argument

static bool is_live(const SimBlock *block)
{
    return block && block->state == BLOCK_LIVE;
}

// The offset is outside all allocations, with a live one before it, after it, or both: it is
// described by the nearer one, if that is near.
static SimPlace near_place(const SimBlock *before, const SimBlock *after, size_t offset)
{
    size_t past = is_live(before) ? offset - before->offset - before->asked : SIZE_MAX;
    size_t ahead = is_live(after) ? after->offset - offset : SIZE_MAX;
    if (past <= ahead && past < NEAR)
        return (SimPlace){PLACE_BEHIND, past + before->asked, before->asked, before->site, NULL,
                          NULL};
    if (ahead < NEAR) return (SimPlace){PLACE_AHEAD, ahead, after->asked, after->site, NULL, NULL};
    return (SimPlace){PLACE_NEVER, 0, 0, NULL, NULL, NULL};
}

// Called with the device's lock held. free() of a device pointer reads a few bytes before the
// allocation: this description is preferred to all but that of bytes of another allocation.
static SimPlace find_place(SimDevice *device, size_t offset)
{
    SimBlock *block = sim_heap_find(device->heap, offset);
    if (!block) return (SimPlace){PLACE_NEVER, 0, 0, NULL, NULL, NULL};
    if (is_live(block) && offset - block->offset < block->asked)
        return (SimPlace){PLACE_LIVE, offset - block->offset, block->asked, block->site, NULL,
                          NULL};
    if (is_live(block->next) && block->next->offset - offset <= FREE_LOOKS)
        return near_place(NULL, block->next, offset);
    const SimFreed *freed = is_live(block) ? NULL : sim_heap_freed(device->heap, offset);
    if (freed)
        return (SimPlace){PLACE_FREED, offset - freed->offset, freed->asked,
                          freed->made, freed->freed,           NULL};
    return near_place(is_live(block) ? block : block->prev, block->next, offset);
}

SimPlace sim_place(SimDevice *device, size_t offset)
{
    SimPlace place = find_place(device, offset);
    size_t to = place.byte;
    place.begin = device->program + (place.kind == PLACE_AHEAD ? offset + to : offset - to);
    return place;
}

// "byte 16", "bytes 16 to 31 (element 4 of h.0: h.0.weight[4])"
static void describe_bytes(const SimPlace *p, size_t bytes, char *text, size_t size)
{
    char elements[WHERE] = "", range[64];
    size_t last = p->byte + (bytes ? bytes - 1 : 0);
    gpulog_elements(p->begin, p->asked, p->byte, last + 1, elements, sizeof elements);
    if (last > p->byte)
        snprintf(range, sizeof range, "bytes %zu to %zu", p->byte, last);
    else
        snprintf(range, sizeof range, "byte %zu", p->byte);
    snprintf(text, size, "%s%s%s%s", range, elements[0] ? " (" : "", elements,
             elements[0] ? ")" : "");
}

// "byte 16 of flat->shard, the 4096 bytes allocated at flat_param.c:88 (flat_create)"
void sim_place_describe(const SimPlace *p, size_t bytes, char *text, size_t size)
{
    char made[WHERE], freed[WHERE], name[WHERE / 2] = "", of[2 * WHERE], range[2 * WHERE];
    gpulog_where(p->made, made, sizeof made);
    if (p->made) gpulog_name_of(p->begin, p->made, name, sizeof name);
    snprintf(of, sizeof of, "%s%sthe %zu bytes allocated at %s", name, name[0] ? ", " : "",
             p->asked, made);
    switch (p->kind) {
    case PLACE_LIVE:
        describe_bytes(p, bytes, range, sizeof range);
        snprintf(text, size, "%s of %s", range, of);
        break;
    case PLACE_BEHIND:
        snprintf(text, size, "%zu bytes past the end of %s", p->byte - p->asked, of);
        break;
    case PLACE_AHEAD:
        snprintf(text, size, "%zu byte%s before the beginning of %s", p->byte,
                 p->byte == 1 ? "" : "s", of);
        break;
    case PLACE_FREED:
        gpulog_where(p->freed, freed, sizeof freed);
        snprintf(text, size, "byte %zu of %s\nand freed at %s", p->byte, of, freed);
        break;
    case PLACE_NEVER:
        snprintf(text, size, "device memory that belongs to no known allocation, live or freed");
        break;
    }
}

bool sim_allocation(SimDevice *device, size_t offset, SimAllocation *found)
{
    if (pthread_mutex_trylock(&device->lock)) return false;
    SimBlock *block = sim_heap_find(device->heap, offset);
    bool live = block && block->state == BLOCK_LIVE && offset - block->offset <= block->asked;
    if (live) *found = (SimAllocation){block->offset, block->asked, block->site};
    const SimFreed *freed = live ? NULL : sim_heap_freed(device->heap, offset);
    if (freed) *found = (SimAllocation){freed->offset, freed->asked, freed->made};
    pthread_mutex_unlock(&device->lock);
    return live || freed;
}

// A process that is ending may hold the lock already; then there is no description.
void sim_describe_bytes(SimDevice *device, size_t offset, size_t bytes, char *text, size_t size)
{
    snprintf(text, size, "device memory");
    if (pthread_mutex_trylock(&device->lock)) return;
    SimPlace place = sim_place(device, offset);
    pthread_mutex_unlock(&device->lock);
    sim_place_describe(&place, bytes, text, size);
}

void sim_describe(SimDevice *device, size_t offset, char *text, size_t size)
{
    sim_describe_bytes(device, offset, 1, text, size);
}

void sim_facts_range(const void *ptr, size_t bytes)
{
    SimFactRange range = {ptr, bytes, NULL, 0, NULL};
    SimAllocation found;
    size_t offset;
    SimDevice *device = sim_device_of(ptr, &offset);
    if (device && sim_allocation(device, offset, &found)) {
        range.base = device->program + found.offset;
        range.allocated = found.bytes;
        range.made = found.site;
    }
    sim_facts_bytes(range);
}
