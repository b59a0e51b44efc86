/* comm_id.h: how the ranks of a communicator find the memory that they share, by its id. */
#ifndef SIMGPU_NCCL_COMM_ID_H
#define SIMGPU_NCCL_COMM_ID_H

#include "nccl/comm.h"

ncclResult_t sim_comm_id_offer(CommId *id);
// Finds the shared memory of an id for comm, whose rank and size are set: fills in its map and
// server. ncclInProgress: rank 0 is not there, or another communicator is using the place.
ncclResult_t sim_comm_id_find(const CommId *id, ncclComm_t comm);
// Waits until all ranks have fetched the handle; with `stop` it does not wait.
void sim_comm_id_served(struct IdServer *server, bool stop);
// Ends a use of shared memory, and unmaps it after the last; `offered`: ends this process's offer
// of it, too, if there was one.
void sim_shared_release(SharedMap *map, bool offered);
void sim_comm_id_withdraw(const CommId *id);

#endif
