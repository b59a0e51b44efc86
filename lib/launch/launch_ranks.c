/* launch_ranks.c: runs ranks as forked processes, for tests. The parent waits for all of them, but
 * no longer than the limit, and leaves no process behind. A rank that crashes or never ends is a
 * value in ends[], not a hang.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous.h"
#include "roster.h"
#include "watch.h"

// Defined with simgpu alone: a rank does not run the exit handlers of its parent.
void simgpu_quick_end(void) __attribute__((weak));

// The exit status of a process that returns the code.
static int exit_status(int code)
{
    return code & 0xff ? code & 0xff : code != 0;
}

typedef struct Start {
    int size, roster;
    Rendezvous *rendezvous;
    RankFn fn;
    void *arg;
} Start;

static void be_rank(int rank, void *arg)
{
    const Start *start = arg;
    struct RendezvousRank *own = &start->rendezvous->rank[rank];
    World world = {rank, start->size, rank, start->size, start->rendezvous};

    if (simgpu_quick_end) simgpu_quick_end();
    roster_join(start->roster, rank, false);
    check_set_rank(rank);
    own->code = start->fn(&world, start->arg);
    atomic_store(&own->returned, true);
    exit(exit_status(own->code));
}

// A rank whose function returned has set its flag; one that called exit(0) has not. The rank can
// write the flag itself, so its exit status must agree.
static bool ended_badly(int rank, RankEnd *end, void *arg)
{
    Rendezvous *rendezvous = arg;

    if (rank == 0) rendezvous_abandon(rendezvous);
    int code = rendezvous->rank[rank].code;
    if (end->how == RANK_EXITED && atomic_load(&rendezvous->rank[rank].returned) &&
        end->code == exit_status(code)) {
        end->how = RANK_RETURNED;
        end->code = code;
    }
    return end->how != RANK_RETURNED || end->code != 0;
}

Status launch_ranks(int size, double limit, RankFn fn, void *arg, RankEnd *ends)
{
    if (size < 1 || size > MAX_RANKS)
        return fail(ERR_ARGUMENT, "a world of %d ranks: must be 1 to %d", size, MAX_RANKS);
    if (!fn || !ends) return fail(ERR_ARGUMENT, "launch_ranks without a function or without ends");

    Rendezvous *rendezvous = rendezvous_open(size);
    if (!rendezvous)
        return fail(ERR_MEMORY, "no shared memory for %d ranks: %s", size, strerror(errno));

    int roster = roster_open(size);
    Start start = {size, roster, rendezvous, fn, arg};
    Status status = OK;
    int started = watch_fork(size, roster, ends, be_rank, &start);
    if (started < size) {
        status =
            fail(ERR_IO, "cannot start rank %d of %d: fork: %s", started, size, strerror(errno));
    } else {
        Watch watch = {.size = size,
                       .ends = ends,
                       .limit = limit,
                       .roster = roster,
                       .signals = -1,
                       .ended = ended_badly,
                       .arg = rendezvous};
        status = watch_ranks(&watch);
    }
    roster_close(roster);
    rendezvous_close(rendezvous, size);
    if (status != OK) {
        memset(ends, 0, (size_t)size * sizeof *ends);
        return status;
    }
    for (int i = 0; i < size; i++)
        if (ends[i].how != RANK_RETURNED || ends[i].code != 0) return ERR_IO;
    return OK;
}
