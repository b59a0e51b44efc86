/* pinned_internal.h: pinned host memory: its rules, and what its files share.
 *
 *   pinned.c   the pieces: making, registering and freeing them
 *   pending.c  copies under way, and their delivery
 *   pages.c    closing pages to the host, and opening them
 *   touch.c    what the host and its system calls touch on closed pages
 *   freed.c    memory that was freed, which stays closed for a while
 *
 * A copy from the device into pinned memory is still under way when the call returns. Its bytes
 * wait in a buffer of their own, and the destination holds 0xFF (NaN) until the host waits for the
 * copy or for something after it: a program that reads its result without waiting reads NaN every
 * time, not only with unlucky timing.
 *
 * With SIMGPU_CHECK=full the host is watched, too: while a copy into pinned memory is under way its
 * pages have no access; while a copy from it is, they cannot be written. A touch of the copy's
 * bytes is a race and is reported (fault.c calls this room); then the program goes on. A page with
 * other bytes of the program, too, is closed while a copy into it is under way; it is opened for
 * each single instruction that touches the other bytes. System calls do not fault: syscall.c
 * announces them, and their range stays open until they return.
 *
 * Pinned memory that simgpu has allocated is then mapped twice, so that operations can use the
 * closed pages; in front is a closed page, where free() would read. Registered memory has one
 * address, and simgpu opens it for its own operations; its pages with other bytes are never closed.
 * Memory that was freed stays closed for a while, so that a use of it is found.
 *
 * All functions here but sim_pinned_watched, sim_page_bytes, sim_pinned_is_near,
 * sim_pinned_describe_byte and those of freed.c need sim_pinned_lock.
 */
#ifndef SIMGPU_PINNED_INTERNAL_H
#define SIMGPU_PINNED_INTERNAL_H

#include <pthread.h>

#include "core/tree.h"
#include "memory/pinned.h"

#define PINNED_WHERE 256 // characters of a call site in a report

// One piece of pinned memory.
typedef struct PinnedPiece {
    SimTreeNode node; // key: address
    size_t bytes;
    unsigned flags;
    bool ours; // made by cudaHostAlloc, not registered
    const void *site;
    char *alias;   // where simgpu reads and writes it: another address if it is mapped twice
    size_t mapped; // bytes of each mapping; 0: it is of malloc. A closed page is in front of it.
    struct SimShadow *shadow;
} PinnedPiece;

// A copy for which the host has not waited: rows of pinned memory that it writes, or reads.
typedef struct PinnedCopy {
    char *at; // as the program sees it
    size_t pitch, width, height;
    char *data; // what is still to be delivered, row by row; NULL: nothing
    GpuAccess access;
    SimOpPlace place;
    const char *name;
    const void *site;
    bool told;          // a touch by the host was reported
    bool shared_closed; // pages with other bytes are closed, too
    int steps;          // touches of those
} PinnedCopy;

static inline size_t copy_span(const PinnedCopy *p)
{
    return (p->height - 1) * p->pitch + p->width;
}

static inline bool copy_overlaps(const PinnedCopy *p, const void *ptr, size_t bytes)
{
    return p->at < (const char *)ptr + bytes && (const char *)ptr < p->at + copy_span(p);
}

static inline char *pinned_alias(const PinnedPiece *piece, const void *ptr)
{
    return piece->alias + ((size_t)ptr - piece->node.key);
}

// ---- pinned.c ----
extern pthread_mutex_t sim_pinned_lock;
// The piece that holds the address, and the first one that begins there or later; NULL: none.
PinnedPiece *sim_pinned_find(const void *ptr);
PinnedPiece *sim_pinned_ceiling(const void *ptr);
// The last piece that begins at the address or before it; it may end before it.
PinnedPiece *sim_pinned_floor(const void *ptr);
// Whether the address is within the bounds of all pieces that ever were.
bool sim_pinned_is_near(const void *ptr);
void sim_pinned_describe_byte(const PinnedPiece *piece, const void *ptr, char *text, size_t size);

// ---- pending.c ----
// The copies under way, in program order; NULL: there are no more.
PinnedCopy *sim_pinned_copy(size_t i);
// Ends the copies that the clock covers or, without a clock, that touch the range.
void sim_pinned_finish(const SimVectorClock *clock, const void *ptr, size_t bytes);
// Opens the pages of copies that are over, and closes those of copies that are still under way.
void sim_pinned_reopen(const char *at, size_t bytes);

// ---- pages.c ----
size_t sim_page_bytes(void);
// Whether simgpu may close and open the memory: not if something else controls its access.
bool sim_pinned_can_close(const PinnedPiece *piece);
// Whether a page may be closed that has bytes of no copy.
bool sim_pinned_may_close_shared(void);
bool sim_pinned_open(const PinnedPiece *piece, const char *at, size_t bytes);
bool sim_pinned_open_page(const void *address);
void sim_pinned_close(const PinnedPiece *piece, const PinnedCopy *p);
// A system call uses the range: its pages stay open. The number is for the end of the call.
int sim_pinned_keep_open(const void *ptr, size_t bytes);
void sim_pinned_keep_open_no_more(int number);

// ---- freed.c ----
// Releases the pages of a piece, and keeps its addresses closed until there are too many such.
void sim_pinned_keep_closed(const PinnedPiece *piece, const void *site);
// Whether the address is in memory that was freed; with the lock held.
bool sim_pinned_is_freed(const void *address);
// The host touches an address: if it is in such memory, a report ends the process.
void sim_pinned_report_freed(const void *address, const char *verb, const void *site);

#endif
