/* launched.h: the processes of the launcher's world (SIMGPU_WORLD), and how they ended. */
#ifndef SIMGPU_NCCL_LAUNCHED_H
#define SIMGPU_NCCL_LAUNCHED_H

#include <poll.h>

#include "nccl/comm.h"

// Reads SIMGPU_WORLD, once. Called with the lock held, as the next four.
void sim_launched_open(void);
bool sim_launched_known(void);
// This process's rank in its launcher's world, and the id of that world; -1: not known.
int sim_launched_self(uint64_t *id);
// The descriptors to poll for ends, one for each rank, or -1; *look: some have none, or are not
// known. Returns their number.
int sim_launched_poll(struct pollfd *fds, bool *look);
bool sim_launched_news(void); // checks for ends and new lines of the launcher; true: perhaps some
void sim_launched_forked(void);
// Whether a launched process that was to join the communicator has ended (shared: NULL if the
// memory is not known yet); then *rank is its number.
typedef enum SimLaunchedLoss { LOSS_NONE, LOSS_POSSIBLE, LOSS_CERTAIN } SimLaunchedLoss;
SimLaunchedLoss sim_launched_lost(ncclComm_t comm, CommShared *shared, int *rank);
// How a launched rank has ended; false: it has not, or nothing is known of it.
bool sim_launched_end_of(int rank, int *pid, int *status);

#endif
