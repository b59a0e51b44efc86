/* arrive.h: the order that a collective makes between ranks of one process. */
#ifndef SIMGPU_NCCL_ARRIVE_H
#define SIMGPU_NCCL_ARRIVE_H

#include "nccl/call.h"

// A call is posted: its rank has arrived.
void sim_arrive(Call *call);
// A call has ended: what other ranks of this process did before it is ordered before what follows
// on its stream, if the call needed their data.
void sim_learn_arrivals(const Call *call);

#endif
