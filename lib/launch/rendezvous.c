/* rendezvous.c: where forked ranks meet. With NCCL, rank 0 makes the id of a communicator and hands
 * it to the others. Ranks with one parent share a page of memory, and rank 0 puts the id there. The
 * others wait by a futex on the number of ids.
 */
#include "rendezvous.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static size_t rendezvous_bytes(int size)
{
    return sizeof(Rendezvous) + (size_t)size * sizeof(struct RendezvousRank);
}

Rendezvous *rendezvous_open(int size)
{
    size_t bytes = rendezvous_bytes(size);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return page == MAP_FAILED ? NULL : page;
}

void rendezvous_close(Rendezvous *rendezvous, int size)
{
    munmap(rendezvous, rendezvous_bytes(size));
}

static void wake_all(Rendezvous *rendezvous)
{
    syscall(SYS_futex, &rendezvous->published, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void rendezvous_publish(Rendezvous *rendezvous, int which, const ncclUniqueId *id)
{
    rendezvous->id[which] = *id;
    atomic_fetch_add(&rendezvous->published, 1);
    wake_all(rendezvous);
}

Status rendezvous_wait(Rendezvous *rendezvous, int which, ncclUniqueId *id)
{
    int published;

    while (((published = atomic_load(&rendezvous->published)) & ~RENDEZVOUS_CLOSED) <= which) {
        if (published & RENDEZVOUS_CLOSED)
            return fail(ERR_NCCL, "rank 0 ended before it made the communicator's id");
        syscall(SYS_futex, &rendezvous->published, FUTEX_WAIT, published, NULL, NULL, 0);
    }
    *id = rendezvous->id[which];
    return OK;
}

void rendezvous_abandon(Rendezvous *rendezvous)
{
    atomic_fetch_or(&rendezvous->published, RENDEZVOUS_CLOSED);
    wake_all(rendezvous);
}
