/* connect.h: connects a rank that has joined a communicator to its peers. */
#ifndef SIMGPU_NCCL_CONNECT_H
#define SIMGPU_NCCL_CONNECT_H

#include "nccl/comm.h"

// Connects the n communicators that one thread makes together to the ranks that have come.
// ncclSuccess: all ranks are connected to all. ncclRemoteError, if they do not block: a rank will
// never arrive.
ncclResult_t sim_comm_try_connect(ncclComm_t *comms, int n);
// Sleeps until something may have happened; says now and then who is missing.
void sim_comm_await(ncclComm_t *comms, int n, uint32_t ticket, Notice *notice);
// Does the rest of the work when all are connected.
ncclResult_t sim_comm_connected(ncclComm_t *comms, int n);
// For a split that cannot go on: perhaps one of its ranks has just ended. Ends this process as soon
// as that is known; returns after a second without such news.
void sim_comm_await_end(ncclComm_t comm);
// NCCL_MULTI_RANK_GPU_ENABLE=1: ranks may share a device.
bool sim_may_share(void);

#endif
