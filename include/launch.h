/* launch.h: a rank's place in the world, and how ranks start. Given code.
 *
 * A program started by torchrun --no-python, mpirun or srun, or by the kit's own launcher
 * (build/bin/launch -n 4 PROGRAM …), finds its place in the environment. Tests fork their ranks in
 * the process instead, each test with a time limit.
 *
 * How to start ranks on one host and on many, and what each message means:
 * handouts/running_ranks.md.
 */
#ifndef SHARDLAB_LAUNCH_H
#define SHARDLAB_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "check.h"

#define Status CHECKED_STATUS // as check.h says

typedef struct World {
    int rank;         // 0 … size-1
    int size;         // W
    int local_rank;   // on this host: the device to use
    int local_size;   // ranks on this host
    void *rendezvous; // launch_ranks: the page where forked ranks pass the id; else NULL
} World;

// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE (torchrun, build/bin/launch), or
// OMPI_COMM_WORLD_* (Open MPI), or SLURM_* (srun); none of them: rank 0 of 1. A size of 0, a rank
// outside the world or a value that is not a number is ERR_ARGUMENT with one line.
Status world_from_env(World *world);

// Takes device local_rank and makes the communicator of all ranks. The id comes from NCCL_COMM_ID
// (host:port, rank 0's), else from MASTER_ADDR and MASTER_PORT + 1, else from the job's own number
// where Slurm or (on one host) Open MPI started the ranks; forked ranks pass it by memory.
//
// More local ranks than devices is ERR_ARGUMENT with one line, unless SHARE_GPU=1 is in the
// environment: then rank r takes device local_rank % devices, NCCL is set to allow it, and the
// process ends after SHARE_GPU_LIMIT seconds (600). For checking correctness; slow by nature.
//
// From here to world_disconnect the communicator is watched: when NCCL reports an error on it, such
// as a peer on another host that died, the process says so in one line and ends with
// WORLD_LOST_EXIT instead of waiting forever. lib/launch/cuda/comm_watch.c says what NCCL finds and
// what it does not.
Status world_connect(const World *world, ncclComm_t *comm);

// Ends the watch of a communicator that world_connect made, and destroys it.
Status world_disconnect(ncclComm_t comm);

// The exit status of a process that the watch ended.
#define WORLD_LOST_EXIT 88

// Ends only the watch, and returns comm. Destroy a watched communicator with world_disconnect, or
// the watch would use one that is gone. For programs that call NCCL's own functions for that, the
// macros below end the watch first.
ncclComm_t world_unwatch(ncclComm_t comm);
#define ncclCommDestroy(comm) ncclCommDestroy(world_unwatch(comm))
#define ncclCommAbort(comm) ncclCommAbort(world_unwatch(comm))

// Sets a function that gets the line of the watch, or of SHARE_GPU's time limit, before the process
// ends; NULL: none. It runs on its own thread.
void world_on_lost(void (*hook)(const char *text));

// How a rank ended.
typedef struct RankEnd {
    pid_t pid;
    enum {
        RANK_RETURNED,  // from its function
        RANK_EXITED,    // by exit() or _exit()
        RANK_SIGNALLED, // killed by a signal
        RANK_TIMED_OUT, // ended because the limit was over
        RANK_STOPPED,   // ended because another rank had ended badly
    } how;
    int code; // what the function returned, the exit status, or the signal
} RankEnd;

// Runs fn(world, arg) in `size` forked processes and waits for all; fills ends[size]. After `limit`
// seconds, or 2 seconds after some rank ended badly, the ranks still there get SIGTERM (so that
// they can say where they are) and after one more second SIGKILL. No process is left. OK
// when every rank returned 0; ERR_IO if a fork failed.
typedef int (*RankFn)(const World *world, void *arg);
Status launch_ranks(int size, double limit, RankFn fn, void *arg, RankEnd *ends);

#undef Status

#endif
