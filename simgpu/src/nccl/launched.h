/* launched.h: the processes of the launcher's world (SIMGPU_WORLD), and how they ended. */
#ifndef SIMGPU_NCCL_LAUNCHED_H
#define SIMGPU_NCCL_LAUNCHED_H

#include <poll.h>

#include "nccl/comm.h"

// Reads SIMGPU_WORLD, once. Called with the lock held, as the next four.
void sim_launched_open(void);
bool sim_launched_known(void);
// This process's rank in the world of its launcher, and which world that is; -1: not known.
int sim_launched_self(uint64_t *id);
// The descriptors to poll for ends, one a rank, -1 where there is nothing to ask; *look: some have
// none, or are not known. Returns how many those are.
int sim_launched_poll(struct pollfd *fds, bool *look);
bool sim_launched_news(void); // for ends and news from the launcher; true: there may be some
void sim_launched_forked(void);
// Whether a launched process has ended that was to bring a rank to the communicator (shared: NULL
// where that is not known yet); then *rank is its number.
typedef enum SimLaunchedLoss { LOSS_NONE, LOSS_POSSIBLE, LOSS_CERTAIN } SimLaunchedLoss;
SimLaunchedLoss sim_launched_lost(ncclComm_t comm, CommShared *shared, int *rank);
// How a launched rank has ended; false: it has not, or nothing is known of it.
bool sim_launched_end_of(int rank, int *pid, int *status);

#endif
