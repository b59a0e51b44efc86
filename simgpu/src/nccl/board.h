/* board.h: when ranks arrive at their calls, on the virtual clock. */
#ifndef SIMGPU_NCCL_BOARD_H
#define SIMGPU_NCCL_BOARD_H

#include "nccl/comm.h"

void sim_board_join(ncclComm_t comm);    // the communicator is ready
void sim_board_wait(ncclComm_t comm);    // on the clock the host waits for all its calls
void sim_board_resolve(ncclComm_t comm); // waits until its end on the clock is known, not for long
void sim_board_leave(ncclComm_t comm);   // it is about to be freed
// On how many nodes its ranks are; with peer >= 0: this rank and that one.
int sim_board_nodes(ncclComm_t comm, int peer);

#endif
