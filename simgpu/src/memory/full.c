/* full.c: the report of a device that is full: which places have its memory. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/config.h"
#include "memory/allocation.h"
#include "memory/heap.h"
#include "report/report.h"

#define WHERE 256
#define LINES 6 // places that the report names

static void sized(size_t bytes, char text[32])
{
    if (bytes < (size_t)10 << 10)
        snprintf(text, 32, "%zu bytes", bytes);
    else if (bytes < (size_t)10 << 20)
        snprintf(text, 32, "%.1f KiB", (double)bytes / 1024);
    else if (bytes < (size_t)10 << 30)
        snprintf(text, 32, "%.1f MiB", (double)bytes / 1048576);
    else
        snprintf(text, 32, "%.1f GiB", (double)bytes / 1073741824);
}

// The same, followed by the exact number if that is another text.
static void sized_exactly(size_t bytes, char text[80])
{
    char size[32], exact[32];
    sized(bytes, size);
    snprintf(exact, sizeof exact, "%zu bytes", bytes);
    bool same = strcmp(size, exact) == 0;
    snprintf(text, 80, "%s%s%s%s", size, same ? "" : " (", same ? "" : exact, same ? "" : ")");
}

typedef struct Group {
    const void *site;
    size_t bytes, count;
} Group;

static int by_bytes(const void *a, const void *b)
{
    size_t x = ((const Group *)a)->bytes, y = ((const Group *)b)->bytes;
    return x < y ? 1 : x > y ? -1 : 0;
}

// The live allocations by the call site that made them. Called with the lock held.
static size_t group_live(SimDevice *device, Group **groups)
{
    size_t n = 0, room = 0;
    *groups = NULL;
    for (SimBlock *b = sim_heap_first(device->heap); b; b = b->next) {
        if (b->state != BLOCK_LIVE) continue;
        size_t i = 0;
        while (i < n && (*groups)[i].site != b->site) i++;
        if (i == n) {
            if (n == room) {
                Group *larger = realloc(*groups, (room = room ? 2 * room : 64) * sizeof **groups);
                if (!larger) break;
                *groups = larger;
            }
            (*groups)[n++] = (Group){b->site, 0, 0};
        }
        (*groups)[i].bytes += b->asked;
        (*groups)[i].count++;
    }
    return n;
}

// Calls of one place by different callers are different call sites: the report joins them.
static size_t join_places(Group *groups, size_t n)
{
    char where[WHERE], other[WHERE];
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        size_t same = 0;
        gpulog_where(groups[i].site, where, sizeof where);
        for (; same < kept; same++) {
            gpulog_where(groups[same].site, other, sizeof other);
            if (strcmp(where, other) == 0) break;
        }
        if (same == kept) {
            groups[kept++] = groups[i];
        } else {
            groups[same].bytes += groups[i].bytes;
            groups[same].count += groups[i].count;
        }
    }
    if (kept) qsort(groups, kept, sizeof *groups, by_bytes);
    return kept;
}

// Once in a process: a program may try again in a loop.
void sim_report_full(SimDevice *device, const char *call, size_t bytes, const void *site)
{
    static atomic_bool told;
    if (atomic_exchange(&told, true)) return;
    Group *groups;
    pthread_mutex_lock(&device->lock);
    size_t n = group_live(device, &groups), live = device->live;
    pthread_mutex_unlock(&device->lock);
    n = join_places(groups, n);
    char where[WHERE], asked[80], used[80], limit[32], list[LINES * (WHERE + 80)] = "";
    size_t filled = 0;
    for (size_t i = 0; i < n && i < LINES; i++) {
        char size[32];
        sized(groups[i].bytes, size);
        gpulog_where(groups[i].site, where, sizeof where);
        filled += (size_t)snprintf(list + filled, sizeof list - filled,
                                   "  %12s in %zu allocation%s at %s\n", size, groups[i].count,
                                   groups[i].count == 1 ? "" : "s", where);
    }
    free(groups);
    gpulog_where(site, where, sizeof where);
    sized_exactly(bytes, asked);
    sized_exactly(live, used);
    sized(sim_config()->memory, limit);
    sim_facts_call(call, site, SIM_NO_STREAM);
    sim_report(SIMGPU_NO_MEMORY, "out of device memory",
               "%s of %s, called at %s,\n"
               "on device %d, where %s of %s are in use%s\n%s"
               "Must all of it be here at once, or would a shard be enough? (SIMGPU_MEMORY "
               "sets the\n"
               "size of a device.)",
               call, asked, where, device->index, used, limit, n ? ":" : ".", list);
}
