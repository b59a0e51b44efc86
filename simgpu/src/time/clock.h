/* time/clock.h: what clock.c and resolve.c share, and what nccl/ brings in where there are other
 * processes (nccl/board.c): a program that only uses CUDA links none of that.
 */
#ifndef SIMGPU_CLOCK_H
#define SIMGPU_CLOCK_H

#include <stdatomic.h>

#include "time/recorder.h"

// All that follow are called with the lock held.
void sim_clock_lock(void);
void sim_clock_unlock(void);
SimRecorder *sim_clock_recorder(void); // made when it is first used

// The processes with which this one shares communicators.
typedef struct SimPeers {
    SimBoard board;
    _Atomic uint32_t *bell; // a futex that the others ring when there is news
    void (*look)(void);     // before a run of the engine: what it is about to see
    // Whether all of them, and this process (`stuck`), wait for each other for good.
    bool (*is_hopeless)(bool stuck);
    // Rings the bell of each that waits, if this process has told something since.
    void (*publish)(void);
    // Rings the bell of all that this process waits for; from here on it is told of news.
    void (*ask)(void);
    void (*asked_enough)(void);
    // Whether one of them waits for more than this process has told.
    bool (*is_wanted)(void);
    // How far they want it to be: more than that, so that it need not be asked too often.
    SimPs (*wanted)(void);
    void (*over)(void); // this process tells no more
} SimPeers;
void sim_clock_meet_peers(const SimPeers *peers);
const SimPeers *sim_clock_peers(void); // NULL: there are none

// Runs the engine, tells what it knows, frees what it can.
void sim_clock_turn(void);
void sim_clock_ring(void); // this process's own bell
_Atomic uint32_t *sim_clock_bell(void);
// Threads of this process that wait for a time: they do what the resolver does otherwise.
void sim_clock_local_waiter(int change);
bool sim_clock_has_waiters(void);

// ---- resolve.c ----
// Waits until done(arg); false: it was given up, after `patience` seconds without it, or because
// nothing can come any more.
bool sim_resolve(bool (*done)(void *arg), void *arg, double patience);
void sim_resolve_start(void); // the thread that answers others
void sim_resolve_forked(void);

// ---- clock.c: threads of the program ----
int sim_clock_thread(void);
// Gives up the threads that have slept for a second at their clock, while others need it; true: one.
bool sim_clock_give_up_sleepers(int but);

// At the end of the process: everything is resolved that others, or a hook for spans, may need.
void sim_clock_finish(int status);

#endif
