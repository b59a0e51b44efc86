/* group.h: calls of a group wait for its end. */
#ifndef SIMGPU_NCCL_GROUP_H
#define SIMGPU_NCCL_GROUP_H

#include "nccl/call.h"

// Runs a call, or keeps it until the thread's group ends; a communicator that is to be made,
// likewise.
ncclResult_t sim_submit(Call *call);
ncclResult_t sim_submit_init(const Init *init, const char *name);
ncclResult_t sim_check_uncaptured(const char *name, const void *site);
// What is left to do of the windows and splits among calls that all ranks have made: *n inits, to
// be freed, of the new communicators.
ncclResult_t sim_finish_setups(Call *calls, int n_calls, Init **init, int *n);
// The result of a call that was refused: the group's end, if there is one, gives it too.
ncclResult_t sim_grouped_error(ncclResult_t result);
void sim_open_group(const void *site); // as ncclGroupStart, called there
ncclResult_t sim_close_group(void);    // … and ncclGroupEnd
void sim_group_hooks(void);            // this room's, once the program uses it
bool sim_group_holds(ncclComm_t comm); // a call on it

#endif
