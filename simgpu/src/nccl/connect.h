/* connect.h: a rank that has joined a communicator connects to its peers. */
#ifndef SIMGPU_NCCL_CONNECT_H
#define SIMGPU_NCCL_CONNECT_H

#include "nccl/comm.h"

// Waits until all ranks of the communicators have connected to all; it takes all that one thread
// joins at a time.
ncclResult_t sim_comm_connect(ncclComm_t *comms, int n);
// Where a split cannot go on: one of the ranks that should come may just have ended. Ends this
// process, too, as soon as that is known; returns after a second without such news.
void sim_comm_await_end(ncclComm_t comm);
// NCCL_MULTI_RANK_GPU_ENABLE=1: ranks may share a device.
bool sim_may_share(void);

#endif
