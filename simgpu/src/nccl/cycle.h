/* cycle.h: threads that wait for each other. */
#ifndef SIMGPU_NCCL_CYCLE_H
#define SIMGPU_NCCL_CYCLE_H

#include "nccl/wait.h"

// The thread with that wait slot sleeps. sim_cycle_check ends the process if nothing can wake the
// thread. sim_cycle_notice prints who waits for whom if perhaps nothing can.
void sim_cycle_check(int thread);
void sim_cycle_notice(int thread, const Notice *notice);
// The same notice, for non-blocking calls, in which no thread sleeps.
void sim_say_waits(const WaitRef *refs, int n_refs, const Notice *notice);
// The ranks for which ref waits; -1: it does not wait any more.
int sim_missing(const CommShared *shared, const WaitRef *ref, int *ranks);

#endif
