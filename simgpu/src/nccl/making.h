/* making.h: makes all communicators of a group. */
#ifndef SIMGPU_NCCL_MAKING_H
#define SIMGPU_NCCL_MAKING_H

#include "nccl/comm.h"

typedef struct Making {
    Init *init;
    int n;
    ncclComm_t *comm; // of each init
} Making;

// Begins: gives each init its communicator, which has not joined yet. Takes `init` over.
ncclResult_t sim_making_begin(Making *making, Init *init, int n);
// Proceeds as far as it can without waiting: ncclInProgress until all are made; it makes all or
// none. Any other result ends it, and so does sim_making_drop. A non-blocking communicator that is
// no child is at its `out` from the beginning and stays there: the caller aborts it.
ncclResult_t sim_making_try(Making *making);
void sim_making_drop(Making *making);
// Only joins: ncclSuccess when all have.
ncclResult_t sim_making_join(Making *making);
// Waits until all are made. Takes `init` over.
ncclResult_t sim_run_inits(Init *init, int n);

#endif
