/* pending.h: non-blocking calls. */
#ifndef SIMGPU_NCCL_PENDING_H
#define SIMGPU_NCCL_PENDING_H

#include "nccl/call.h"

// Each begins calls of non-blocking communicators, takes the memory over, and returns
// ncclInProgress, or an error.
ncclResult_t sim_pending_calls(Call *calls, int n);
ncclResult_t sim_pending_inits(Init *init, int n);
ncclResult_t sim_pending_finalize(ncclComm_t comm);
// Proceeds with all that is in progress in this process, as far as it can without waiting. If
// something remains, the thread will be woken when that can proceed.
void sim_pending_poll(void);
// The same, for a query: returns after a moment, or sooner if something happens.
void sim_pending_ask(ncclComm_t comm);
// Sleeps until something may have happened on one of the communicators, which have calls in
// progress. Ends the process if nothing ever can.
void sim_pending_wait(const ncclComm_t *comms, int n, uint32_t ticket, Notice *notice);
// Ends what is in progress on the communicator, and on those of the same group.
void sim_pending_cancel(ncclComm_t comm);
// Reports the use of a stream before its calls are over; `clock`, `name`, `site`: of that use.
void sim_pending_check(const SimVectorClock *clock, const char *name, const void *site);
void sim_pending_forked(void);

#endif
