/* redop.h: reductions of a program's own: ncclRedOpCreatePreMulSum. */
#ifndef SIMGPU_NCCL_REDOP_H
#define SIMGPU_NCCL_REDOP_H

#include "nccl/call.h"

// Refuses a call with an invalid reduction; fills in the reduction of its signature.
ncclResult_t sim_check_redop(Call *call);

#endif
