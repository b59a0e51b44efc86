/* inside.h: one thread at a time is inside a communicator. */
#ifndef SIMGPU_NCCL_INSIDE_H
#define SIMGPU_NCCL_INSIDE_H

#include "nccl/comm.h"

// The calling thread makes a call on the communicator; false: it was inside already, by an open
// group. Ends the process where another thread is.
bool sim_comm_enter(ncclComm_t comm, const char *name, const void *site);
void sim_comm_exit(ncclComm_t comm); // unless another thread is inside
// Has the thread that is inside, if another one is, come out of what it waits in, and waits for
// that: its call returns ncclInternalError. `for_good`: later ones do, too.
void sim_comm_expel(ncclComm_t comm, bool for_good);
bool sim_comm_expelled(ncclComm_t comm);
// What a new communicator has; a child with splitShare has its parent's.
struct Inside *sim_inside_make(ncclComm_t parent);
void sim_inside_drop(struct Inside *inside);

#endif
