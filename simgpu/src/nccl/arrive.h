/* arrive.h: what a collective orders, for ranks of one process. */
#ifndef SIMGPU_NCCL_ARRIVE_H
#define SIMGPU_NCCL_ARRIVE_H

#include "nccl/call.h"

// A call is posted: its rank has arrived. A call has ended: what it needed of
// other ranks of this process is ordered before what follows.
void sim_arrive(Call *call);
void sim_learn_arrivals(const Call *call);

#endif
