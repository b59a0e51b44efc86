/* rendezvous.h: the page of shared memory where forked ranks pass a communicator's id. */
#ifndef SHARDLAB_RENDEZVOUS_H
#define SHARDLAB_RENDEZVOUS_H

#include <stdatomic.h>

#include "launch.h"

#define Status CHECKED_STATUS // as check.h says

#define RENDEZVOUS_IDS 64 // communicators that the ranks of one launch_ranks can make

typedef struct Rendezvous {
    atomic_int published; // ids there so far, and RENDEZVOUS_CLOSED. The futex of those who wait
    ncclUniqueId id[RENDEZVOUS_IDS];
    struct RendezvousRank {
        atomic_bool returned; // from its function, and with what
        int code;
    } rank[];
} Rendezvous;
#define RENDEZVOUS_CLOSED (1 << 16) // rank 0 has ended: no more ids will come

Rendezvous *rendezvous_open(int size);
void rendezvous_close(Rendezvous *rendezvous, int size);
// Rank 0 publishes the id of communicator number `which` < RENDEZVOUS_IDS; the others wait for it.
void rendezvous_publish(Rendezvous *rendezvous, int which, const ncclUniqueId *id);
Status rendezvous_wait(Rendezvous *rendezvous, int which, ncclUniqueId *id);
// For the parent: rank 0 has ended and will publish nothing more.
void rendezvous_abandon(Rendezvous *rendezvous);

#undef Status

#endif
