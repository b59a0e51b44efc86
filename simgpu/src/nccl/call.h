/* call.h: one call, from the NCCL function to the end of its work. */
#ifndef SIMGPU_NCCL_CALL_H
#define SIMGPU_NCCL_CALL_H

#include "nccl/comm.h"
#include "runtime/runtime.h"

typedef struct Call {
    ncclComm_t comm;
    CallSignature signature;
    const void *send;
    void *recv;
    cudaStream_t stream;
    const void *site;
    ncclRedOp_t handle;   // the operation as the program gave it
    ncclComm_t *new_comm; // split
    Options new_options;  // of it
    ncclWindow_t *window;
    bool entered;          // its thread entered the communicator with it (inside.c)
    bool polled;           // of a launch that is held back and polls it (launches.c)
    bool alone;            // the only call of its group
    bool may_stay;         // a send with no later call in its lane
    struct KeptSend *kept; // of a send that need not wait: the copy of its bytes (sends.c)
    enum { CALL_NEW, CALL_POSTED, CALL_WORKED, CALL_DONE } state;
    CallDesc desc;
    char *lent;              // the gathered bytes, for all ranks to read (lent.c); NULL: none
    _Atomic uint32_t *users; // counts the users of `lent`, this call among them
    bool borrows;            // its receive buffer borrows the bytes at `lent`, without a copy
    int stream_slot;         // of its stream
    int place_slot;          // of a non-blocking one: its place on its stream
    uint64_t place_time;
    SimVectorClock start; // until it is posted: what is ordered before it, for the race checker
    CommId new_id;        // split: of the new communicator; its size (0: not in one), my rank
    int new_size, new_rank;
    int mates[SIM_MAX_RANKS]; // split: the ranks of `comm` that come to it, in no order
    int *phantom_mates; // … among phantoms: by their new ranks, then the split's number; else NULL
} Call;

// A run of calls. A lane: calls that run in order, and how far they are.
typedef struct Lane {
    Call **call;
    int n, at;
} Lane;
typedef struct Run {
    Call *calls, **order, *one_call;
    int n, n_lanes;
    Lane *lane, one_lane;
} Run;

// Posts all calls and does their work; their order matters only within a lane. ncclInternalError:
// an abort of their communicator by another thread has ended it.
ncclResult_t sim_run_calls(Call *calls, int n);
// The same for non-blocking calls, whose communicators have no sends to wait for: begins, and
// proceeds as far as it can without waiting; ncclInProgress until all are done. The run must not
// move. A result other than ncclInProgress ends it, and so does sim_run_drop.
ncclResult_t sim_run_begin(Run *run, Call *calls, int n);
ncclResult_t sim_run_try(Run *run);
void sim_run_drop(Run *run);
// Lists what it waits for; returns the number.
int sim_run_refs(const Run *run, WaitRef refs[SIM_MAX_REFS]);

#endif
