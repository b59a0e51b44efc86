/* diagnose.h: reports: disagreement, missing ranks, deadlock. */
#ifndef SIMGPU_NCCL_DIAGNOSE_H
#define SIMGPU_NCCL_DIAGNOSE_H

#include "nccl/comm.h"

// Whether the calls of two ranks disagree; then the communicator is broken.
bool sim_signatures_differ(const CallSignature *a, const CallSignature *b);
_Noreturn void sim_diagnose_disagreement(ncclComm_t comm, uint64_t seq);
_Noreturn void sim_diagnose_message(ncclComm_t comm, int from, int to);
// Ends the process if rank `missing`, for which `waiter` waits, will never arrive; else returns.
// `in`: as in sim_wait.
void sim_diagnose_missing(ncclComm_t comm, int missing, const WaitRef *waiter, const void *site,
                          const HostCall *in);
// The same for ranks that have not joined; `shared` is NULL if their memory is not known yet. True:
// one may be lost, and the caller must look again, since nothing wakes it when that changes.
bool sim_diagnose_never_joined(ncclComm_t comm, CommShared *shared);
// Ends the process: the thread waits for ranks that only it could bring.
_Noreturn void sim_diagnose_alone(ncclComm_t comm);
_Noreturn void sim_diagnose_size(CommShared *shared, int rank, int size, const void *site);
_Noreturn void sim_diagnose_shrink(ncclComm_t comm, int other, const void *site);
// A thread in a cycle of waiting threads: the call in which it waits, and for whom.
typedef struct CycleStep {
    const CommShared *shared;
    WaitRef ref;
    int waits_for;
    HostCall in; // as in sim_wait
} CycleStep;
_Noreturn void sim_diagnose_cycle(const CycleStep *step, int n);
// The same as a notice: they may wait for each other.
void sim_say_cycle(const CycleStep *step, int n, const Notice *notice);
// A notice on ranks that others wait for and that do not wait in NCCL; n 0: nothing.
void sim_say_absent_ranks(const CycleStep *step, int n, const Notice *notice);

#endif
