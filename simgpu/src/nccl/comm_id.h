/* comm_id.h: how the ranks of a communicator find the memory that they share, by its id. */
#ifndef SIMGPU_NCCL_COMM_ID_H
#define SIMGPU_NCCL_COMM_ID_H

#include "nccl/comm.h"

ncclResult_t sim_comm_id_offer(CommId *id);
// Finds the shared memory of an id for comm, whose rank and size are set: fills in its map and
// server. ncclInProgress: rank 0 is not there, or another communicator is where this one meets.
ncclResult_t sim_comm_id_find(const CommId *id, ncclComm_t comm);
// Waits until all ranks have come for it, or not: `stop`.
void sim_comm_id_served(struct IdServer *server, bool stop);
// Unmaps shared memory with its last user; `offered`: takes back the offer of it, if this process
// made one.
void sim_shared_release(SharedMap *map, bool offered);
void sim_comm_id_withdraw(const CommId *id);

#endif
