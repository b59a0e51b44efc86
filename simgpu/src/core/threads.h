/* core/threads.h: the processors of the machine, and the threads of this process. */
#ifndef SIMGPU_THREADS_H
#define SIMGPU_THREADS_H

#include <stdbool.h>
#include <stddef.h>

// ---- processors.c ----

size_t sim_processors(void); // of the machine
// How many processors one of so many ranks on this host has, at least 1. `bound`: its launcher may
// have bound each rank to processors of its own; else all ranks may run on the same ones.
size_t sim_share(size_t ranks, bool bound);
// How many processors the control groups of a process grant, rounded up; 0: no limit. Takes a file
// such as /proc/self/cgroup and the folder in which cgroups are mounted.
size_t sim_quota(const char *groups, const char *root);

// ---- threads.c ----

#define SIM_TIDS 512
typedef struct SimTids {
    int n, tid[SIM_TIDS];
} SimTids;
void sim_tids(SimTids *tids);         // of all threads of this process
void sim_program_tids(SimTids *tids); // of as many threads as the program has, among all of them
void sim_worker_here(void);           // the calling thread is one of simgpu's workers
void sim_workers(SimTids *tids);      // of the workers and the bystanders
// Finds the bystanders; `callers` have called NCCL.
void sim_look_for_bystanders(const SimTids *callers);
void sim_workers_drop(void); // the calling thread is the program's
int sim_helpers(void);       // how many threads simgpu has started
// How many threads wait for the end of that one (pthread_join), directly or through others.
int sim_joiners(int tid);

// ---- bystanders.c ----

void sim_find_bystanders(const SimTids *among, SimTids *found);

#endif
