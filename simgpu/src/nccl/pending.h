/* pending.h: calls that do not block. */
#ifndef SIMGPU_NCCL_PENDING_H
#define SIMGPU_NCCL_PENDING_H

#include "nccl/call.h"

// Each begins what communicators that do not block are asked for, takes the memory over, and
// returns ncclInProgress, or an error.
ncclResult_t sim_pending_calls(Call *calls, int n);
ncclResult_t sim_pending_inits(Init *init, int n);
ncclResult_t sim_pending_finalize(ncclComm_t comm);
// Goes on with all that is in progress in this process, as far as it can without waiting. Where
// something still is, the thread is woken with it from here on.
void sim_pending_poll(void);
// The same, for who asks: returns after a moment, or sooner if something happened.
void sim_pending_ask(ncclComm_t comm);
// Sleeps until something may have happened on one of the communicators, which have calls in
// progress. Ends the process where that can never be.
void sim_pending_wait(const ncclComm_t *comms, int n, uint32_t ticket, Notice *notice);
// Ends what is in progress on the communicator, and on those of the same group.
void sim_pending_cancel(ncclComm_t comm);
// Reports a use of a stream before the calls on it are over; `clock`, `name`, `site`: of the use.
void sim_pending_check(const SimVectorClock *clock, const char *name, const void *site);
void sim_pending_forked(void);

#endif
