/* lent.h: one copy of the result of an all-gather, for all of its ranks. */
#ifndef SIMGPU_NCCL_LENT_H
#define SIMGPU_NCCL_LENT_H

#include "nccl/call.h"

// Called by rank 0 of an all-gather before it posts: takes a place for the bytes, if one is free.
void sim_lent_take(Call *call);
// Called when all ranks have posted. Returns the place to write to (NULL: none), and sets
// call->borrows.
char *sim_lent_begin(Call *call);
// Called when all ranks have written their parts: this rank borrows the bytes in the place, or
// copies them from it.
void sim_lent_end(Call *call);
void sim_lent_return(ncclComm_t comm); // ends all borrowing of its rank
void sim_lent_unmap(SharedMap *map);

#endif
