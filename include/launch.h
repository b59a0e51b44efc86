/* launch.h: a rank's place in the world, and how ranks start. Given code.
 *
 * A program started by torchrun --no-python, mpirun or srun, or by the kit's own launcher
 * (build/bin/launch -n 4 PROGRAM …), finds its place in the environment. Tests fork their ranks in
 * the process instead, each test with a time limit.
 *
 * Interface: world_from_env, world_connect for programs; launch_ranks for tests.
 */
#ifndef SHARDLAB_LAUNCH_H
#define SHARDLAB_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "check.h"

typedef struct World {
    int rank;       // 0 … size-1
    int size;       // W
    int local_rank; // on this host: the device to use
    int local_size; // ranks on this host
    void *meeting;  // launch_ranks: the page where forked ranks pass the id; else NULL
} World;

// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE (torchrun, build/bin/launch), or
// OMPI_COMM_WORLD_* (Open MPI), or SLURM_* (srun); none of them: rank 0 of 1. A size of 0, a rank
// outside the world or something that is no number is ERR_ARGUMENT with one line.
Status world_from_env(World *world);

// Takes device local_rank and makes the communicator of all ranks. The id comes from NCCL_COMM_ID
// (host:port, rank 0's), else from MASTER_ADDR and MASTER_PORT + 1; forked ranks pass it by memory.
// More local ranks than devices is ERR_ARGUMENT with one line.
Status world_connect(const World *world, ncclComm_t *comm);

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
// they can say where they are) and after one more second SIGKILL. No process is left behind. OK
// when every rank returned 0; ERR_IO where a fork failed.
typedef int (*RankFn)(const World *world, void *arg);
Status launch_ranks(int size, double limit, RankFn fn, void *arg, RankEnd *ends);

#endif
