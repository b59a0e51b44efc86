/* pages.c: which pages of pinned memory the host may touch (pinned.h).
 *
 * The pages of a copy that is under way are closed, if nothing else controls their access and no
 * system call is using them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/config.h"
#include "memory/fault.h"
#include "memory/pinned_internal.h"

#define MOST_KEPT_OPEN 64
#define MOST_STEPS 256 // after these, a page with other bytes is no longer closed for a copy

static struct {
    const char *at; // NULL: nobody's
    size_t bytes;
} kept_open[MOST_KEPT_OPEN]; // ranges of system calls under way: their pages stay open

bool sim_pinned_watched(void)
{
    return sim_config()->check == CHECK_FULL;
}

size_t sim_page_bytes(void)
{
    static size_t bytes;
    if (!bytes) bytes = (size_t)sysconf(_SC_PAGESIZE);
    return bytes;
}

// The pages of [at, at+bytes) that have bytes of the piece alone; false: there are none.
static bool pages_of(const PinnedPiece *piece, const char *at, size_t bytes, char **first,
                     size_t *length)
{
    size_t page = sim_page_bytes(), begin = (size_t)at & -page;
    size_t end = ((size_t)at + bytes + page - 1) & -page;
    size_t least = (piece->node.key + page - 1) & -page;
    size_t most =
        piece->mapped ? piece->node.key + piece->mapped : (piece->node.key + piece->bytes) & -page;
    if (begin < least) begin = least;
    if (end > most) end = most;
    *first = (char *)begin;
    *length = end > begin ? end - begin : 0;
    return end > begin;
}

bool sim_pinned_can_close(const PinnedPiece *piece)
{
    unsigned foreign = cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
    return sim_pinned_watched() && (piece->ours ? piece->mapped > 0 : !(piece->flags & foreign));
}

bool sim_pinned_open(const PinnedPiece *piece, const char *at, size_t bytes)
{
    char *first;
    size_t length;
    return sim_pinned_can_close(piece) && pages_of(piece, at, bytes, &first, &length) &&
           mprotect(first, length, PROT_READ | PROT_WRITE) == 0;
}

// A debugger would stop at every fault, also of a right program.
static bool is_traced(void)
{
    static int traced = -1;
    char line[128];
    if (traced >= 0) return traced;
    traced = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "TracerPid:", 10) == 0) traced = atoi(line + 10) != 0;
    if (status) fclose(status);
    return traced;
}

// A right program may touch other bytes of a page, so its fault must come here. It does not if the
// signal is blocked, as in a handler of it.
bool sim_pinned_may_close_shared(void)
{
    return sim_pinned_watched() && !is_traced() && sim_fault_catches();
}

// Whether pages that also have other bytes are closed for the copy.
static bool closes_shared(const PinnedPiece *piece, const PinnedCopy *p)
{
    return piece->mapped && p->shared_closed && p->access != GPU_READ && p->steps < MOST_STEPS;
}

// The copy's pages on which all bytes of the piece are the copy's; false: there are none.
static bool whole_pages(const PinnedPiece *piece, const PinnedCopy *p, char **first, size_t *length)
{
    if (closes_shared(piece, p)) return pages_of(piece, p->at, copy_span(p), first, length);
    if (p->height > 1 && p->pitch > p->width) return false; // there are bytes between its rows
    if (!pages_of(piece, p->at, copy_span(p), first, length)) return false;
    const char *begin = (const char *)piece->node.key, *end = begin + piece->bytes;
    if (*first > begin) begin = *first;                 // where the piece begins on the first page,
    if (*first + *length < end) end = *first + *length; // and ends on the last one
    if (p->at > begin) {
        *first += sim_page_bytes();
        *length -= sim_page_bytes();
    }
    if (*length > 0 && p->at + copy_span(p) < end) *length -= sim_page_bytes();
    return *length > 0;
}

void sim_pinned_close(const PinnedPiece *piece, const PinnedCopy *p)
{
    char *first;
    size_t length;
    if (p->told || !sim_pinned_can_close(piece) || !whole_pages(piece, p, &first, &length)) return;
    for (int i = 0; i < MOST_KEPT_OPEN; i++)
        if (kept_open[i].at && kept_open[i].at < first + length &&
            first < kept_open[i].at + kept_open[i].bytes)
            return;
    mprotect(first, length, p->access == GPU_READ ? PROT_READ : PROT_NONE);
}

bool sim_pinned_open_page(const void *address)
{
    void *page = (void *)((size_t)address & -sim_page_bytes());
    return mprotect(page, sim_page_bytes(), PROT_READ | PROT_WRITE) == 0;
}

int sim_pinned_keep_open(const void *ptr, size_t bytes)
{
    int number = 0;
    while (number < MOST_KEPT_OPEN && kept_open[number].at) number++;
    if (number == MOST_KEPT_OPEN) return number;
    kept_open[number].at = ptr;
    kept_open[number].bytes = bytes;
    return number;
}

void sim_pinned_keep_open_no_more(int number)
{
    if (number < MOST_KEPT_OPEN) kept_open[number].at = NULL;
}
