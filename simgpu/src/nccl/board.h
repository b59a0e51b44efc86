/* board.h: when ranks arrive at their calls, on the virtual clock. */
#ifndef SIMGPU_NCCL_BOARD_H
#define SIMGPU_NCCL_BOARD_H

#include "nccl/comm.h"

// A communicator is ready; the host waits for all its calls, on the clock; it is about to be freed.
void sim_board_join(ncclComm_t comm);
void sim_board_wait(ncclComm_t comm);
void sim_board_resolve(ncclComm_t comm); // what it waited for, if that is soon
void sim_board_leave(ncclComm_t comm);
// On how many nodes its ranks are; peer >= 0: those two ranks.
int sim_board_nodes(ncclComm_t comm, int peer);

#endif
