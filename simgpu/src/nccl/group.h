/* group.h: keeps the calls of a group until its end. */
#ifndef SIMGPU_NCCL_GROUP_H
#define SIMGPU_NCCL_GROUP_H

#include "nccl/call.h"

// Runs a call, or makes a communicator; inside a group, keeps it until the group ends.
ncclResult_t sim_submit(Call *call);
ncclResult_t sim_submit_init(const Init *init, const char *name);
ncclResult_t sim_check_uncaptured(const char *name, const void *site);
// For the windows and splits among calls that all ranks have made: does their last part, and
// returns the *n inits of the new communicators, to be freed.
ncclResult_t sim_finish_setups(Call *calls, int n_calls, Init **init, int *n);
// Returns the result of a refused call, and has the end of the open group return it, too.
ncclResult_t sim_grouped_error(ncclResult_t result);
void sim_open_group(const void *site); // as ncclGroupStart, called there
ncclResult_t sim_close_group(void);    // … and ncclGroupEnd
void sim_group_hooks(void);            // this room's, once the program uses it
bool sim_group_holds(ncclComm_t comm); // whether the open group has a call on it

#endif
