/* group.h: calls of a group wait for its end. */
#ifndef SIMGPU_NCCL_GROUP_H
#define SIMGPU_NCCL_GROUP_H

#include "nccl/call.h"

// Runs a call, or keeps it until the thread's group ends; a communicator that is to be made,
// likewise.
ncclResult_t sim_submit(Call *call);
ncclResult_t sim_submit_init(const Init *init);
// Makes communicators at once, all or none.
ncclResult_t sim_run_inits(const Init *init, int n);
// The result of a call that was refused: the group's end, if there is one, gives it too.
ncclResult_t sim_grouped_error(ncclResult_t result);
void sim_open_group(const void *site); // as ncclGroupStart, called there
bool sim_group_holds(ncclComm_t comm); // a call on it

#endif
