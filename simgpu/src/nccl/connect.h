/* connect.h: connects a rank that has joined a communicator to its peers. */
#ifndef SIMGPU_NCCL_CONNECT_H
#define SIMGPU_NCCL_CONNECT_H

#include "nccl/comm.h"

// Connects to the ranks that have come. ncclSuccess: all ranks of the communicators have connected
// to all; it takes all that one thread makes at a time. ncclRemoteError, where they do not block:
// one will never arrive.
ncclResult_t sim_comm_try_connect(ncclComm_t *comms, int n);
// Sleeps until something may have happened; says now and then who is missing.
void sim_comm_await(ncclComm_t *comms, int n, uint32_t ticket, Notice *notice);
// The rest of the work when all are connected.
ncclResult_t sim_comm_connected(ncclComm_t *comms, int n);
// Where a split cannot go on: one of the ranks that should come may just have ended. Ends this
// process, too, as soon as that is known; returns after a second without such news.
void sim_comm_await_end(ncclComm_t comm);
// NCCL_MULTI_RANK_GPU_ENABLE=1: ranks may share a device.
bool sim_may_share(void);

#endif
