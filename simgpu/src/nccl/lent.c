/* lent.c: one copy of the result of an all-gather, for all of its ranks.
 *
 * All ranks of an all-gather receive the same bytes, and most programs only multiply by them before
 * they free the buffer. So if there are many bytes, the ranks do not copy them W times: each writes
 * its part to a *place* that all of them share, and its receive buffer borrows the bytes there.
 * Before anything but a product uses the buffer, the bytes in question are copied into it
 * (memory/owed.h), so that the program sees no difference.
 *
 * The places are after CommShared in the same memory, and a process maps them when it uses the
 * first one. Rank 0 takes a place in its call: the first that is large enough and has no users.
 * From then on each rank is a user, until it ends its own use. A rank copies if no place is free,
 * if the host may read its buffer (managed memory), or if its call is one of several in a group,
 * since the others may use the buffer before the group's end.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "memory/shared_memory.h"
#include "nccl/collective.h"
#include "nccl/lent.h"
#include "report/report.h"
#include "runtime/runtime.h"

// Fewer bytes are copied: the bookkeeping would cost as much.
#define LEAST ((size_t)256 << 10)
#define ALIGNMENT ((size_t)4 << 10) // of places

// Takes a place for `bytes` bytes; -1: none. Only rank 0 calls it, one call at a time.
static int take_place(CommShared *shared, size_t bytes, int users)
{
    int unused = -1;
    uint64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < SIM_LENT_PLACES; i++) {
            const LentPlace *place = &shared->lent[i];
            if (atomic_load(&place->users) == 0) {
                unused = i;
            } else if (at < place->offset + place->bytes && place->offset < at + bytes) {
                at = (place->offset + place->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
                moved = true;
            }
        }
    }
    if (unused < 0 || bytes > SIM_LENT_BYTES || at > SIM_LENT_BYTES - bytes) return -1;
    shared->lent[unused].offset = at;
    shared->lent[unused].bytes = bytes;
    atomic_store(&shared->lent[unused].users, (uint32_t)users);
    return unused;
}

void sim_lent_take(Call *call)
{
    ncclComm_t comm = call->comm;
    call->desc.place = -1;
    if (call->signature.kind != GPU_ALL_GATHER || comm->rank != 0 || comm->size == 1) return;
    size_t bytes = sim_recv_bytes(call);
    if (!call->alone || bytes < LEAST || sim_dry()) return;
    call->desc.place = take_place(comm->shared, bytes, comm->size);
}

static char *map_places(SharedMap *map)
{
    sim_lock();
    if (!map->lent) {
        void *at = sim_shared_map(map->fd, NULL, SIM_LENT_AT, SIM_LENT_BYTES);
        if (at != MAP_FAILED) madvise(at, SIM_LENT_BYTES, MADV_DONTDUMP);
        if (at != MAP_FAILED) map->lent = at;
    }
    sim_unlock();
    if (map->lent) return map->lent;
    sim_fatal(SIMGPU_SYSTEM, "NCCL: no shared memory",
              "mmap of %zu bytes failed: %s.\nIs there a limit on address space (ulimit -v)?",
              SIM_LENT_BYTES, strerror(errno));
}

char *sim_lent_begin(Call *call)
{
    ncclComm_t comm = call->comm;
    int place = comm->shared->slot[0].desc.place;
    if (place < 0) return NULL;
    LentPlace *lent = &comm->shared->lent[place];
    call->users = &lent->users;
    call->lent = map_places(comm->map) + lent->offset;
    call->borrows = call->alone;
    return call->lent;
}

void sim_lent_end(Call *call)
{
    if (!call->lent) return;
    size_t bytes = sim_recv_bytes(call);
    if (call->borrows && sim_borrow(call->recv, bytes, call->lent, call->users)) return;
    if (call->borrows)
        memcpy(call->comm->arena[call->comm->rank] + call->desc.recv, call->lent, bytes);
    atomic_fetch_sub(call->users, 1);
}

void sim_lent_return(ncclComm_t comm)
{
    if (comm->map->lent) sim_borrow_no_more(sim_device(comm->device));
}

void sim_lent_unmap(SharedMap *map)
{
    if (map->lent) munmap(map->lent, SIM_LENT_BYTES);
}
