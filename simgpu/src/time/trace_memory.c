/* time/trace_memory.c: memory in virtual time, by category.
 *
 * An allocation begins and ends when its stream reaches the calls. It has one category for all of
 * its life: the one that it got last. So its category is known only at its free, and the counters
 * are written at the end.
 *
 * Allocated memory is what the program has. Reserved memory is what the process has of the device:
 * a stream's pool keeps freed memory until the host synchronises, and then releases what exceeds
 * its release threshold. Memory of cudaMalloc is both.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "log_writer.h"
#include "time/trace_memory.h"

#define OPEN 4096 // a power of two: lists of allocations that are not freed yet, by address

typedef struct Change {
    SimPs at;
    const void *ptr;
    size_t bytes;
    int32_t device;
    uint32_t next;    // of the same list, from 1; 0: none
    uint8_t category; // of a free and, when that is known, of its allocation
    bool frees, waits, pool, known;
} Change;

// Reserved as a whole, so that a process that is ending needs no malloc.
#define CHANGES ((size_t)1 << 26)
static Change *changes, *other;
static size_t n_changes;
static uint32_t list[OPEN];
static _Atomic uint64_t threshold[GPULOG_DEVICES];

void sim_trace_release_threshold(int device, uint64_t bytes)
{
    if (device >= 0 && device < GPULOG_DEVICES) atomic_store(&threshold[device], bytes);
}

static Change *reserve(void)
{
    void *memory = mmap(NULL, CHANGES * sizeof(Change), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static Change *add(Change change)
{
    if (!changes) changes = reserve();
    if (!changes || n_changes == CHANGES) return NULL;
    changes[n_changes] = change;
    return &changes[n_changes++];
}

static uint32_t *list_of(const void *ptr)
{
    return &list[((uintptr_t)ptr * 0x9e3779b97f4a7c15u) >> 52];
}

static void begins(const SimSpan *span)
{
    const GpuRange *range = &span->entry->range[0];
    Change *c = add((Change){.at = span->end,
                             .ptr = range->ptr,
                             .bytes = range->bytes,
                             .device = span->entry->device,
                             .pool = span->entry->pool});
    uint32_t *first = list_of(range->ptr);
    if (!c) return;
    c->next = *first;
    *first = (uint32_t)(c - changes) + 1;
}

static void ends(const SimSpan *span)
{
    const GpuRange *range = &span->entry->range[0];
    for (uint32_t *link = list_of(range->ptr); *link; link = &changes[*link - 1].next) {
        Change *c = &changes[*link - 1];
        if (c->ptr != range->ptr) continue;
        *link = c->next;
        c->category = (uint8_t)span->entry->category;
        c->known = true;
        // In virtual time its stream may get there before the allocation's.
        add((Change){.at = span->end > c->at ? span->end : c->at,
                     .bytes = c->bytes,
                     .device = c->device,
                     .category = c->category,
                     .frees = true,
                     .pool = c->pool});
        return;
    }
}

void sim_trace_memory_span(const SimSpan *span)
{
    const GpuLogEntry *e = span->entry;
    bool range = e->n_ranges > 0;
    if (e->op == GPU_ALLOC && range) begins(span);
    if (e->op == GPU_FREE && range) ends(span);
    if (e->op == GPU_STREAM_SYNC || e->op == GPU_EVENT_SYNC || e->op == GPU_DEVICE_SYNC)
        add((Change){.at = span->returned, .device = e->device, .waits = true});
}

// ---- In the order of time ----

static bool comes_before(const Change *a, const Change *b)
{
    if (a->device != b->device) return a->device < b->device;
    return a->at < b->at;
}

// Stably. False: no memory.
static bool sort(void)
{
    if (!other) other = reserve();
    if (!other) return false;
    for (size_t run = 1; run < n_changes; run *= 2) {
        for (size_t low = 0; low < n_changes; low += 2 * run) {
            size_t middle = low + run < n_changes ? low + run : n_changes;
            size_t high = low + 2 * run < n_changes ? low + 2 * run : n_changes;
            for (size_t i = low, j = middle, k = low; k < high; k++) {
                bool second = i == middle || (j < high && comes_before(&changes[j], &changes[i]));
                other[k] = second ? changes[j++] : changes[i++];
            }
        }
        Change *sorted = other;
        other = changes;
        changes = sorted;
    }
    return true;
}

typedef struct Sums {
    uint64_t counter[TRACE_COUNTERS], told[TRACE_COUNTERS];
    uint64_t pool_used, pool_reserved;
} Sums;

static void apply(Sums *s, const Change *c)
{
    uint64_t keeps = c->device >= 0 && c->device < GPULOG_DEVICES ? threshold[c->device] : 0;
    if (c->waits) {
        uint64_t least = s->pool_used > keeps ? s->pool_used : keeps;
        if (s->pool_reserved > least) s->pool_reserved = least;
    } else {
        uint64_t change = c->frees ? 0 - (uint64_t)c->bytes : c->bytes;
        s->counter[c->category] += change;
        s->counter[TRACE_ALLOCATED] += change;
        if (c->pool) s->pool_used += change;
        if (s->pool_used > s->pool_reserved) s->pool_reserved = s->pool_used;
    }
    // Memory of cudaMalloc is what is allocated and of no pool.
    s->counter[TRACE_RESERVED] = s->counter[TRACE_ALLOCATED] - s->pool_used + s->pool_reserved;
}

void sim_trace_memory_tell(SimTraceCount count)
{
    for (size_t i = 0; i < n_changes; i++)
        if (!changes[i].frees && !changes[i].waits && !changes[i].known)
            changes[i].category = (uint8_t)gpulog_category_of(changes[i].ptr);
    if (n_changes == 0 || !sort()) return;
    Sums sums;
    memset(&sums, 0, sizeof sums);
    for (size_t i = 0; i < n_changes; i++) {
        apply(&sums, &changes[i]);
        bool last = i + 1 == n_changes || changes[i + 1].device != changes[i].device;
        // One value for an instant.
        if (!last && changes[i + 1].at / 1000 == changes[i].at / 1000) continue;
        for (int k = 0; k < TRACE_COUNTERS; k++) {
            if (sums.counter[k] == sums.told[k]) continue;
            sums.told[k] = sums.counter[k];
            count(changes[i].device, k, changes[i].at / 1000, sums.counter[k]);
        }
        if (last) memset(&sums, 0, sizeof sums);
    }
}
