/* registered.h: memory that NCCL gives, and that is registered with it. */
#ifndef SIMGPU_NCCL_REGISTERED_H
#define SIMGPU_NCCL_REGISTERED_H

#include "nccl/call.h"

void sim_window_made(const Call *call); // all ranks have registered theirs
void sim_registered_free(ncclComm_t comm);

#endif
