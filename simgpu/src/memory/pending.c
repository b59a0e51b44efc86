/* pending.c: copies from and into pinned memory that the host has not waited for (pinned.h).
 *
 * The bytes of a copy into pinned memory are delivered when a synchronisation covers it, in program
 * order if copies overlap. A copy from pinned memory is only noted as under way.
 */
#include <stdlib.h>
#include <string.h>

#include "core/config.h"
#include "memory/pinned_internal.h"

#define MOST_WATCHED 4096 // copies; the oldest are watched no longer

static PinnedCopy *pending; // in program order
static size_t n_pending, max_pending;

PinnedCopy *sim_pinned_copy(size_t i)
{
    return i < n_pending ? &pending[i] : NULL;
}

void sim_pinned_reopen(const char *at, size_t bytes)
{
    const PinnedPiece *piece = sim_pinned_find(at);
    if (!piece || !sim_pinned_open(piece, at, bytes)) return;
    size_t page = sim_page_bytes();
    const char *from = (const char *)((size_t)at & -page);
    bytes += (size_t)(at - from) + page;
    for (int writes = 0; writes < 2; writes++) // copies that write close more: they come last
        for (size_t i = 0; i < n_pending; i++)
            if ((pending[i].access != GPU_READ) == writes &&
                copy_overlaps(&pending[i], from, bytes))
                sim_pinned_close(piece, &pending[i]);
}

static void move_rows(char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width,
                      size_t height)
{
    for (size_t row = 0; row < height; row++)
        memcpy(to + row * to_pitch, from + row * from_pitch, width);
}

static void forget(size_t i)
{
    PinnedCopy p = pending[i];
    free(p.data);
    memmove(&pending[i], &pending[i + 1], (--n_pending - i) * sizeof *pending);
    sim_pinned_reopen(p.at, copy_span(&p));
}

// Room for one more, NULL: there is none.
static PinnedCopy *new_pending(const SimgpuOp *op, SimOpPlace place, const void *ptr, size_t pitch,
                               size_t width, size_t height, GpuAccess access)
{
    if (n_pending == max_pending) {
        size_t larger = max_pending ? 2 * max_pending : 16;
        PinnedCopy *moved = realloc(pending, larger * sizeof *moved);
        if (!moved) return NULL;
        pending = moved;
        max_pending = larger;
    }
    PinnedCopy *p = &pending[n_pending];
    *p = (PinnedCopy){.at = (char *)ptr,
                      .pitch = pitch,
                      .width = width,
                      .height = height,
                      .access = access,
                      .place = place,
                      .name = op->entry.name,
                      .site = op->entry.site};
    p->shared_closed = access != GPU_READ && sim_pinned_may_close_shared();
    return p;
}

void sim_pinned_defer(const SimgpuOp *op, SimOpPlace place, void *dst, size_t dpitch,
                      const void *src, size_t spitch, size_t width, size_t height)
{
    pthread_mutex_lock(&sim_pinned_lock);
    const PinnedPiece *piece = sim_pinned_find(dst);
    char *to = piece ? pinned_alias(piece, dst) : dst;
    PinnedCopy *p = new_pending(op, place, dst, dpitch, width, height, GPU_WRITE);
    char *data = p ? malloc(width * height) : NULL;
    if (data) {
        move_rows(data, width, src, spitch, width, height);
        for (size_t row = 0; row < height && sim_config()->poison; row++)
            memset(to + row * dpitch, 0xff, width);
        p->data = data;
        n_pending++;
        if (piece) sim_pinned_close(piece, p);
    } else {
        move_rows(to, dpitch, src, spitch, width, height); // at once: no memory to keep them
    }
    pthread_mutex_unlock(&sim_pinned_lock);
}

// Stops watching the same copy of an earlier round that was never waited for, or the oldest copy if
// there are too many.
static void make_place(const PinnedCopy *p)
{
    for (size_t i = 0; i < n_pending; i++) {
        const PinnedCopy *old = &pending[i];
        bool same = old->at == p->at && old->pitch == p->pitch && old->width == p->width &&
                    old->height == p->height && old->access == p->access &&
                    old->place.stream.slot == p->place.stream.slot;
        if (!old->data && (same || n_pending >= MOST_WATCHED)) {
            forget(i);
            return;
        }
    }
}

void sim_pinned_watch(const SimgpuOp *op, SimOpPlace place, const void *ptr, size_t pitch,
                      size_t width, size_t height, GpuAccess access)
{
    if (!sim_pinned_watched()) return;
    pthread_mutex_lock(&sim_pinned_lock);
    const PinnedPiece *piece = sim_pinned_find(ptr);
    PinnedCopy *p = piece ? new_pending(op, place, ptr, pitch, width, height, access) : NULL;
    if (p) {
        PinnedCopy added = *p;
        make_place(&added);
        pending[n_pending++] = added;
        sim_pinned_reopen(added.at,
                          copy_span(&added)); // a copy that writes may have closed these pages
    }
    pthread_mutex_unlock(&sim_pinned_lock);
}

// Called with the lock held, like all that follows.
static void deliver_one(PinnedCopy *p)
{
    if (!p->data) return;
    const PinnedPiece *piece = sim_pinned_find(p->at);
    if (piece && !piece->mapped) sim_pinned_open(piece, p->at, copy_span(p));
    move_rows(piece ? pinned_alias(piece, p->at) : p->at, p->pitch, p->data, p->width, p->width,
              p->height);
    free(p->data);
    p->data = NULL;
}

// Of two copies to one place the later one wins: the bytes under a copy are delivered before it.
static void deliver_up_to(size_t last)
{
    for (size_t i = 0; i < last; i++)
        if (pending[i].data &&
            copy_overlaps(&pending[i], pending[last].at, copy_span(&pending[last])))
            deliver_up_to(i);
    deliver_one(&pending[last]);
}

void sim_pinned_finish(const SimVectorClock *clock, const void *ptr, size_t bytes)
{
    for (size_t i = 0; i < n_pending;) {
        const PinnedCopy *p = &pending[i];
        bool over = clock ? sim_vector_clock_part(clock, p->place.stream.slot) >= p->place.time
                          : copy_overlaps(p, ptr, bytes);
        if (over) {
            deliver_up_to(i);
            forget(i);
        } else {
            i++;
        }
    }
}

void sim_pinned_deliver(const SimVectorClock *clock)
{
    pthread_mutex_lock(&sim_pinned_lock);
    sim_pinned_finish(clock, NULL, 0);
    pthread_mutex_unlock(&sim_pinned_lock);
}

// A copy whose bytes an operation has read is still under way for the host.
void *sim_pinned_use(const void *ptr, size_t bytes)
{
    pthread_mutex_lock(&sim_pinned_lock);
    if (!sim_pinned_watched()) sim_pinned_finish(NULL, ptr, bytes);
    for (size_t i = 0; i < n_pending; i++)
        if (pending[i].data && copy_overlaps(&pending[i], ptr, bytes)) deliver_up_to(i);
    const PinnedPiece *piece = sim_pinned_find(ptr);
    if (piece && !piece->mapped) sim_pinned_open(piece, ptr, bytes);
    void *usable = piece ? pinned_alias(piece, ptr) : (void *)ptr;
    pthread_mutex_unlock(&sim_pinned_lock);
    return usable;
}
