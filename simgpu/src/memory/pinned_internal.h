/* pinned_internal.h: what the files about pinned host memory share.
 *
 *   pinned.c   the pieces: making, registering and freeing them
 *   pending.c  copies under way, and their delivery
 *   pages.c    closing pages to the host, and opening them
 *   touch.c    what the host and its system calls touch on closed pages
 *   freed.c    memory that was given back, which stays closed
 *
 * A copy from the device into pinned memory is under way when the call returns. Here its bytes
 * wait in a buffer of their own, and the destination holds 0xFF (NaN) until the host waits for the
 * copy or for something after it: a program that reads its result without waiting reads NaN every
 * time, and not only with unlucky timing.
 *
 * With SIMGPU_CHECK=full the host is watched, too: while a copy into pinned memory is under way its
 * pages have no access, while one from it is, they cannot be written. A touch of the copy's bytes
 * is a race, and is reported (fault.c brings it here); then it is let through, and the program goes
 * on. A page on which the program has other bytes too is closed while a copy into it is under way;
 * for a touch of the other bytes it is opened for that one instruction. System calls do not fault:
 * syscall.c brings them here, and their range stays open until they return.
 *
 * Pinned memory of simgpu's own is mapped twice then, so that operations go around the closed
 * pages, with a closed page in front, where free() would look. Registered memory has one address
 * only, and simgpu opens it for its own operations; its pages that hold other bytes too are never
 * closed. Memory that was given back stays closed for a while, so that a use of it is found.
 *
 * All that is declared here but sim_pinned_watched, sim_page_bytes, sim_pinned_is_near,
 * sim_pinned_describe_byte and what freed.c says is called with sim_pinned_lock held.
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
    char *alias;   // where simgpu reads and writes it: elsewhere, where it is mapped twice
    size_t mapped; // bytes of each mapping; 0: it is malloc's. A closed page is in front of it.
    struct SimShadow *shadow;
} PinnedPiece;

// A copy that nobody has waited for: rows of pinned memory that it writes, or reads.
typedef struct PinnedCopy {
    char *at; // as the program sees it
    size_t pitch, width, height;
    char *data; // what is still to be delivered, row by row; NULL: nothing
    GpuAccess access;
    SimOpPlace place;
    const char *name;
    const void *site;
    bool told;          // a touch by the host was reported
    bool shared_closed; // pages on which there are other bytes are closed too
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
// The last piece that begins at the address or before it, also where it ends before it.
PinnedPiece *sim_pinned_floor(const void *ptr);
// Whether the address lies between the first and the last piece that there ever were.
bool sim_pinned_is_near(const void *ptr);
void sim_pinned_describe_byte(const PinnedPiece *piece, const void *ptr, char *text, size_t size);

// ---- pending.c ----
// The copies under way, in program order; NULL: there are no more.
PinnedCopy *sim_pinned_copy(size_t i);
// Ends the copies that the clock covers or, without a clock, that touch the range.
void sim_pinned_finish(const SimVectorClock *clock, const void *ptr, size_t bytes);
// Opens the pages of what is no longer under way, and closes them again for what else is.
void sim_pinned_reopen(const char *at, size_t bytes);

// ---- pages.c ----
size_t sim_page_bytes(void);
// Whether memory can be closed and opened again: not what somebody else decides about.
bool sim_pinned_can_close(const PinnedPiece *piece);
// Whether a page may be closed on which there are bytes that no copy is about.
bool sim_pinned_may_close_shared(void);
bool sim_pinned_open(const PinnedPiece *piece, const char *at, size_t bytes);
bool sim_pinned_open_page(const void *address);
void sim_pinned_close(const PinnedPiece *piece, const PinnedCopy *p);
// A system call uses the range: its pages stay open. The number is for the end of the call.
int sim_pinned_keep_open(const void *ptr, size_t bytes);
void sim_pinned_keep_open_no_more(int number);

// ---- freed.c ----
// Gives the pages of a piece back, and keeps its addresses closed until there are too many such.
void sim_pinned_keep_closed(const PinnedPiece *piece, const void *site);
// Whether memory that was given back holds the address; with the lock held.
bool sim_pinned_is_freed(const void *address);
// The host touches such memory: the report of it ends the process. It returns where it is none.
void sim_pinned_report_freed(const void *address, const char *verb, const void *site);

#endif
