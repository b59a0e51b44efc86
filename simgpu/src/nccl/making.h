/* making.h: communicators on their way. */
#ifndef SIMGPU_NCCL_MAKING_H
#define SIMGPU_NCCL_MAKING_H

#include "nccl/comm.h"

typedef struct Making {
    Init *init;
    int n;
    ncclComm_t *comm; // of each init
} Making;

// Begins: each init has its communicator, which has joined nobody yet. Takes `init` over.
ncclResult_t sim_making_begin(Making *making, Init *init, int n);
// Goes as far as it can without waiting: ncclInProgress until all are made, which is all or none.
// Any other result ends it, as does sim_making_drop. What does not block and is nobody's child is
// at its `out` from the beginning, and stays there: its caller aborts it.
ncclResult_t sim_making_try(Making *making);
void sim_making_drop(Making *making);
// Only joins: ncclSuccess if all have.
ncclResult_t sim_making_join(Making *making);
// Waits until all are made. Takes `init` over.
ncclResult_t sim_run_inits(Init *init, int n);

#endif
