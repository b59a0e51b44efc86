/* arrive.c: the order that a collective makes between ranks of one process.
 *
 * A rank's part of a collective ends only when every rank whose data it needs has arrived. So what
 * that rank did before on its stream comes before all that waits for this part. Ranks of different
 * processes have separate memory. But of two ranks in one process, one may use the other's memory
 * after a collective, and that is not a race. Only the race checker uses this.
 *
 * A rank that posts a call leaves the clock of its stream here. The ranks that need its data merge
 * it into their own when their part has ended, and the last one frees it.
 */
#include <stdlib.h>

#include "nccl/arrive.h"
#include "nccl/kind.h"

typedef struct Arrival {
    struct Arrival *next;
    uint64_t nonce, seq;
    int rank, to; // who arrived; of a message, for whom; else -1
    int readers;  // that still need it
    SimVectorClock start;
} Arrival;

static Arrival *arrivals;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_local(ncclComm_t comm, int rank)
{
    return comm->shared->slot[rank].pid == comm->self->pid;
}

// Whether `rank` needs data of `other` to end its part of the call.
static bool needs(const Call *call, int rank, int other)
{
    const GpuLogKind *kind = sim_kind(call->signature.kind);
    if (rank == other || kind->recv == EXTENT_NONE) return false;
    switch (kind->root) {
    case ROOT_NONE: return true;
    case ROOT_RECEIVES: return rank == call->signature.root;
    case ROOT_SENDS:
    case ROOT_IS_PEER: return other == call->signature.root;
    }
    return false;
}

static int readers_of(const Call *call)
{
    ncclComm_t comm = call->comm;
    if (call->signature.kind == GPU_SEND)
        return call->signature.root != comm->rank && is_local(comm, call->signature.root);
    int n = 0;
    for (int r = 0; r < comm->size && call->signature.kind != GPU_RECV; r++)
        n += needs(call, r, comm->rank) && is_local(comm, r);
    return n;
}

void sim_arrive(Call *call)
{
    int readers = call->start.n ? readers_of(call) : 0;
    Arrival *arrival = readers ? malloc(sizeof *arrival) : NULL;
    if (!arrival) {
        free(call->start.t);
        call->start = (SimVectorClock){0, NULL};
        return;
    }
    pthread_mutex_lock(&lock);
    *arrival = (Arrival){.next = arrivals,
                         .nonce = call->comm->shared->nonce,
                         .seq = call->desc.seq,
                         .rank = call->comm->rank,
                         .to = call->signature.kind == GPU_SEND ? call->signature.root : -1,
                         .readers = readers,
                         .start = call->start};
    arrivals = arrival;
    pthread_mutex_unlock(&lock);
    call->start = (SimVectorClock){0, NULL};
}

// Merges the clock of one rank's arrival, if the rank is in this process. The lock is held.
static void learn(const Call *call, int rank)
{
    int to = call->signature.kind == GPU_RECV ? call->comm->rank : -1;
    for (Arrival **link = &arrivals; *link; link = &(*link)->next) {
        Arrival *a = *link;
        if (a->nonce != call->comm->shared->nonce || a->seq != call->desc.seq || a->rank != rank ||
            a->to != to)
            continue;
        sim_stream_learn(call->stream_slot, &a->start);
        if (--a->readers == 0) {
            *link = a->next;
            free(a->start.t);
            free(a);
        }
        return;
    }
}

void sim_learn_arrivals(const Call *call)
{
    if (sim_config()->check != CHECK_FULL || sim_is_setup(call->signature.kind)) return;
    pthread_mutex_lock(&lock);
    for (int r = 0; r < call->comm->size && arrivals; r++)
        if (needs(call, call->comm->rank, r)) learn(call, r);
    pthread_mutex_unlock(&lock);
}
