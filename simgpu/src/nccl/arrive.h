/* arrive.h: the order that a collective makes between ranks of one process. */
#ifndef SIMGPU_NCCL_ARRIVE_H
#define SIMGPU_NCCL_ARRIVE_H

#include "nccl/call.h"

// A call is posted: its rank has arrived. A call has ended: what other ranks of this process did
// before it, as far as it needed their data, is ordered before what follows.
void sim_arrive(Call *call);
void sim_learn_arrivals(const Call *call);

#endif
