/* lent.h: one copy of what an all-gather gives, for all of its ranks. */
#ifndef SIMGPU_NCCL_LENT_H
#define SIMGPU_NCCL_LENT_H

#include "nccl/call.h"

// Of an all-gather: rank 0 takes a place for its bytes, before it posts. When all have posted:
// where they are lent (NULL: nowhere), and whether this rank borrows them. When all have worked: it
// does.
void sim_lent_take(Call *call);
char *sim_lent_begin(Call *call);
void sim_lent_end(Call *call);
void sim_lent_return(ncclComm_t comm); // its rank borrows nothing any more
void sim_lent_unmap(SharedMap *map);

#endif
