/* Ranks as forked processes, for tests. The parent waits for all of them, never longer than the
 * limit, and leaves no process behind; a rank that crashes or never ends is a value in ends[], not
 * a hang.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous.h"
#include "roster.h"
#include "watch.h"

// The others get this many seconds when one rank has ended badly: simgpu tells them at once that
// they wait in vain, and what they then say is worth having.
#define GRACE 2.0

// There with simgpu alone. The parent's handlers of exit are not a rank's.
void simgpu_quick_end(void) __attribute__((weak));

// What a process that returns the code ends with.
static int exit_status(int code)
{
    return code & 0xff ? code & 0xff : code != 0;
}

// The child: never returns.
static _Noreturn void be_rank(const World *world, int roster, RankFn fn, void *arg, pid_t parent)
{
    Rendezvous *rendezvous = world->rendezvous;

    if (simgpu_quick_end) simgpu_quick_end();
    watch_join(parent);
    roster_join(roster, world->rank, false);
    check_set_rank(world->rank);
    int code = fn(world, arg);

    rendezvous->rank[world->rank].code = code;
    atomic_store(&rendezvous->rank[world->rank].returned, true);
    exit(exit_status(code));
}

// A rank that ended by returning is known by the flag it left; exit(0) from the inside leaves none.
// The flag is in memory that the rank may write: the status that it ended with must be the same.
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

static Status fork_ranks(int size, Rendezvous *shared, int roster, RankFn fn, void *arg,
                         RankEnd *ends)
{
    pid_t parent = getpid();

    fflush(NULL); // or every rank would print what is still in the buffers once more
    for (int i = 0; i < size; i++) {
        World world = {
            .rank = i, .size = size, .local_rank = i, .local_size = size, .rendezvous = shared};
        pid_t pid = fork();
        if (pid == 0) be_rank(&world, roster, fn, arg, parent);
        if (pid < 0) {
            int error = errno;
            watch_abandon(ends, i);
            return fail(ERR_IO, "cannot start rank %d of %d: fork: %s", i, size, strerror(error));
        }
        roster_started(roster, i, pid);
        setpgid(pid, pid); // here too: the child may not have come to it when it must be killed
        ends[i] = (RankEnd){.pid = pid};
    }
    return OK;
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
    Status status = fork_ranks(size, rendezvous, roster, fn, arg, ends);
    if (status == OK) {
        Watch watch = {.size = size,
                       .ends = ends,
                       .limit = limit,
                       .grace = GRACE,
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
