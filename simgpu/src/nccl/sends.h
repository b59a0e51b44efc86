/* sends.h: messages that are sent and not received yet. */
#ifndef SIMGPU_NCCL_SENDS_H
#define SIMGPU_NCCL_SENDS_H

#include "nccl/call.h"

typedef struct KeptSend KeptSend;
// Copies the n bytes of a send, which is `op`, into the outbox of its device; *offset: their place,
// counted from the beginning of the arena. NULL: they do not fit.
KeptSend *sim_send_keep(const Call *call, const SimgpuOp *op, const void *bytes, size_t n,
                        int64_t *offset);
void sim_send_posted(KeptSend *send, uint64_t seq);
void sim_send_drop(KeptSend *send); // it will not be posted
// Waits, in a call, until the sends of a communicator (at the program's end: all sends) are
// received. Ends the process if one never will be.
void sim_sends_wait_comm(ncclComm_t comm, const char *call, const void *site);
void sim_sends_wait_all(void);
void sim_sends_forget(ncclComm_t comm); // it is aborted
bool sim_sends_open(ncclComm_t comm);   // whether one is not received yet
// Adds n to the number of calls that are on streams and not over (pending.c).
void sim_sends_note_undone(int n);
void sim_sends_forked(void);

#endif
