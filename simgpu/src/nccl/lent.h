/* lent.h: one copy of the result of an all-gather, for all of its ranks. */
#ifndef SIMGPU_NCCL_LENT_H
#define SIMGPU_NCCL_LENT_H

#include "nccl/call.h"

// Of an all-gather: rank 0 takes a place for its bytes, before it posts. When all have posted:
// where they are lent (NULL: nowhere), and whether this rank borrows them. When all have worked:
// this rank borrows them from now on.
void sim_lent_take(Call *call);
char *sim_lent_begin(Call *call);
void sim_lent_end(Call *call);
void sim_lent_return(ncclComm_t comm); // ends all borrowing of its rank
void sim_lent_unmap(SharedMap *map);

#endif
