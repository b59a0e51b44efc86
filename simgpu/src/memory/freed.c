/* freed.c: pinned memory that was freed (pinned.h).
 *
 * Memory that was mapped twice stays closed for a while, so that a use of it is found and reported.
 * Its pages go back to the system at once.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

#include "gpulog.h"
#include "memory/pinned_internal.h"
#include "memory/place.h"
#include "report/report.h"

#define MOST_FREED 256
#define FREED_BYTES ((size_t)16 << 30)
#define WHERE PINNED_WHERE

// A piece that was freed.
typedef struct Freed {
    const char *at; // NULL: nothing
    size_t bytes, mapped;
    const void *made, *freed; // call sites
} Freed;

static Freed freed_pieces[MOST_FREED];
static uint64_t n_freed;
static size_t freed_bytes;

// The freed piece that has the address, also in the page in front of it; NULL: none.
static const Freed *find_freed(const void *address)
{
    for (uint64_t back = 1; back <= n_freed && back <= MOST_FREED; back++) {
        const Freed *g = &freed_pieces[(n_freed - back) % MOST_FREED];
        if (g->at && (size_t)address - (size_t)g->at < g->mapped) return g;
    }
    return NULL;
}

// `fatal`: the program cannot go on after the use.
static void report_freed(const Freed *g, const char *call, const void *ptr, size_t bytes,
                         const char *verb, const void *site, bool fatal)
{
    static const char title[] = "use of freed pinned memory";
    char where[WHERE], made[WHERE], freed[WHERE], body[5 * WHERE];
    gpulog_where(site, where, sizeof where);
    gpulog_where(g->made, made, sizeof made);
    gpulog_where(g->freed, freed, sizeof freed);
    snprintf(body, sizeof body,
             "%s%s%s,\n"
             "%s byte %zu of the %zu bytes of pinned memory allocated at %s\n"
             "and freed at %s.\n"
             "On a machine with a GPU this is a segmentation fault, or another allocation's data.\n"
             "Is it freed before its last use, or is this an old pointer that should have been\n"
             "renewed?",
             call ? call : "", call ? ", called at " : "", where, verb, (size_t)ptr - (size_t)g->at,
             g->bytes, made, freed);
    sim_facts_call(call ? call : "host code", site, SIM_NO_STREAM);
    sim_facts_call("cudaFreeHost", g->freed, SIM_NO_STREAM);
    sim_facts_range(ptr, bytes);
    if (fatal) sim_fatal(SIMGPU_LIFETIME, title, "%s", body);
    sim_report(SIMGPU_LIFETIME, title, "%s", body);
}

// A copy of the record, while it exists.
static bool look_up(const void *ptr, Freed *g)
{
    if (!sim_pinned_is_near(ptr)) return false;
    pthread_mutex_lock(&sim_pinned_lock);
    const Freed *found = find_freed(ptr);
    if (found) *g = *found;
    pthread_mutex_unlock(&sim_pinned_lock);
    return found != NULL;
}

bool sim_pinned_check_gone(const char *call, const void *ptr, size_t bytes, const char *verb,
                           const void *site)
{
    Freed g;
    if (!look_up(ptr, &g)) return true;
    report_freed(&g, call, ptr, bytes, verb, site, false);
    return false;
}

static void forget(Freed *g)
{
    if (!g->at) return;
    munmap((char *)(uintptr_t)g->at - sim_page_bytes(), sim_page_bytes() + g->mapped);
    freed_bytes -= g->mapped;
    g->at = NULL;
}

void sim_pinned_keep_closed(const PinnedPiece *piece, const void *site)
{
    void *at = (void *)piece->node.key;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    pthread_mutex_lock(&sim_pinned_lock);
    bool kept = mmap(at, piece->mapped, PROT_NONE, flags, -1, 0) != MAP_FAILED;
    Freed *slot = &freed_pieces[n_freed % MOST_FREED];
    forget(slot);
    n_freed += kept;
    if (kept) *slot = (Freed){at, piece->bytes, piece->mapped, piece->site, site};
    if (kept) freed_bytes += piece->mapped;
    for (uint64_t i = n_freed; freed_bytes > FREED_BYTES && i < n_freed + MOST_FREED; i++)
        forget(&freed_pieces[i % MOST_FREED]); // the oldest first
    pthread_mutex_unlock(&sim_pinned_lock);
    if (!kept) munmap((char *)at - sim_page_bytes(), sim_page_bytes() + piece->mapped);
}

bool sim_pinned_is_freed(const void *address)
{
    return find_freed(address) != NULL;
}

void sim_pinned_report_freed(const void *address, const char *verb, const void *site)
{
    Freed g;
    if (look_up(address, &g)) report_freed(&g, NULL, address, 1, verb, site, true);
}
