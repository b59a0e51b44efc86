/* arguments.h: checks the arguments of a call, and the messages of a group. */
#ifndef SIMGPU_NCCL_ARGUMENTS_H
#define SIMGPU_NCCL_ARGUMENTS_H

#include "nccl/call.h"

// Refuses a call that is wrong; fills in the reduction of its signature.
ncclResult_t sim_check_call(Call *call);
// Reports two messages of a group whose buffers overlap. Refuses one to oneself that has no other
// side in its group.
ncclResult_t sim_check_messages(const Call *call, int n);

#endif
