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
    bool entered;          // its thread came inside by it (inside.c)
    bool polled;           // of a launch that is held back (launches.c)
    bool alone;            // the only call of its group
    bool may_stay;         // a send that nothing in its group comes after
    struct KeptSend *kept; // of a send that need not wait: its bytes, and more (sends.c)
    enum { CALL_NEW, CALL_POSTED, CALL_WORKED, CALL_DONE } state;
    CallDesc desc;
    char *lent;              // what it gathers, where all ranks may read it; NULL: nowhere
    _Atomic uint32_t *users; // of `lent`, one of which it is
    bool borrows;            // what it receives is read there, and not copied
    int stream_slot;         // of its stream
    int place_slot;          // of a non-blocking one: where it stands on its stream
    uint64_t place_time;
    SimVectorClock
        start;     // what is ordered before it, until it is posted; where races are looked for
    CommId new_id; // split: of the new communicator; its size (0: not in one), my rank
    int new_size, new_rank;
    int mates[SIM_MAX_RANKS]; // split: the ranks of `comm` that come to it, in no order
    int *phantom_mates; // … among phantoms: by their new ranks, then the split's number; else NULL
} Call;

// Calls on their way. A lane: those that happen in order, and how far they are.
typedef struct Lane {
    Call **call;
    int n, at;
} Lane;
typedef struct Run {
    Call *calls, **order, *one_call;
    int n, n_lanes;
    Lane *lane, one_lane;
} Run;

// Posts and works off all calls; the order matters only where they are of one lane. An abort of
// their communicator by another thread ends it: ncclInternalError.
ncclResult_t sim_run_calls(Call *calls, int n);
// The same for those that do not block, whose communicators have no sends to wait for: begins, and
// goes as far as it can without waiting, which is ncclInProgress until all are done. The run stays
// where it is; a result other than ncclInProgress ends it, as does sim_run_drop.
ncclResult_t sim_run_begin(Run *run, Call *calls, int n);
ncclResult_t sim_run_try(Run *run);
void sim_run_drop(Run *run);
// What it waits for; returns how many those are.
int sim_run_refs(const Run *run, WaitRef refs[SIM_MAX_REFS]);

#endif
