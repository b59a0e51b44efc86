/* history.h: the call sites of the last collectives of each rank. */
#ifndef SIMGPU_NCCL_HISTORY_H
#define SIMGPU_NCCL_HISTORY_H

#include "nccl/call.h"

// Notes the call site of this rank's collective, before it is posted.
void sim_remember_call(const Call *call);
// The first call before number `before` that rank 0 and another one, *rank, made from different
// places; false: there is none, or it is not known.
bool sim_find_parting(const CommShared *shared, int size, uint64_t before, uint64_t *seq,
                      int *rank);

#endif
