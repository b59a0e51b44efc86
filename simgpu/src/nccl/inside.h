/* inside.h: one thread at a time is inside a communicator. */
#ifndef SIMGPU_NCCL_INSIDE_H
#define SIMGPU_NCCL_INSIDE_H

#include "nccl/comm.h"

// The calling thread enters the communicator; false: it was inside already, by an open group. Ends
// the process if another thread is inside.
bool sim_comm_enter(ncclComm_t comm, const char *name, const void *site);
void sim_comm_exit(ncclComm_t comm); // unless another thread is inside
// If another thread is inside, has its call return ncclInternalError, and waits until it is out.
// `for_good`: later calls return that, too.
void sim_comm_expel(ncclComm_t comm, bool for_good);
bool sim_comm_expelled(ncclComm_t comm);
// The state of a new communicator; a child with splitShare shares its parent's.
struct Inside *sim_inside_make(ncclComm_t parent);
void sim_inside_drop(struct Inside *inside);

#endif
