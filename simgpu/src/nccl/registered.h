/* registered.h: memory that NCCL allocates, and memory that is registered with it. */
#ifndef SIMGPU_NCCL_REGISTERED_H
#define SIMGPU_NCCL_REGISTERED_H

#include "nccl/call.h"

void sim_window_made(const Call *call); // all ranks have registered their memory
void sim_registered_free(ncclComm_t comm);

#endif
