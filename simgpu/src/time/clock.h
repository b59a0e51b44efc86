/* time/clock.h: what clock.c and resolve.c share, and what nccl/ provides if there are other
 * processes (nccl/board.c): a program that only uses CUDA does not link that.
 */
#ifndef SIMGPU_CLOCK_H
#define SIMGPU_CLOCK_H

#include <stdatomic.h>

#include "time/recorder.h"

// All that follow are called with the lock held.
void sim_clock_lock(void);
void sim_clock_unlock(void);
bool sim_clock_is_awaited(void);  // whether a thread waits for the lock
void sim_clock_lock_again(void);  // by a thread that waits in simgpu: it does not count as a caller
bool sim_clock_is_finished(void); // without it
SimRecorder *sim_clock_recorder(void); // made when it is first used
// The same, with all logged calls recorded: for queries, and for calls that the log does not have.
SimRecorder *sim_clock_fed_recorder(void);

// The processes with which this one shares communicators.
typedef struct SimPeers {
    SimBoard board;
    _Atomic uint32_t *bell; // a futex that the others ring when there is news
    void (*look)(void);     // before a run of the engine: reads the others' news
    // Whether all of them, and this process (`stuck`), wait for each other for good.
    bool (*is_hopeless)(bool stuck);
    // Rings the bell of each that waits, if this process has published something since.
    void (*publish)(void);
    // Rings the bell of all processes for which this one waits, and asks them to reach `until`;
    // from now on they ring back with news.
    void (*ask)(SimPs until);
    void (*asked_enough)(void);
    // Whether one of them waits for more than this process has published.
    bool (*is_wanted)(void);
    // The time that they want it to reach.
    SimPs (*wanted)(void);
    void (*over)(void); // this process will publish no more
} SimPeers;
void sim_clock_meet_peers(const SimPeers *peers);
const SimPeers *sim_clock_peers(void); // NULL: there are none

// Runs the engine, publishes what it knows, and frees what it can.
void sim_clock_turn(void);
SimPs sim_clock_next(void); // after a turn: the next time of the engine; SIM_FOREVER: nothing left
void sim_clock_ring(void);  // this process's own bell
_Atomic uint32_t *sim_clock_bell(void);
// Threads of this process that wait for a time: they do the work of the resolver meanwhile.
void sim_clock_local_waiter(int change);
bool sim_clock_has_waiters(void);
bool sim_clock_other_waiters(void); // than the calling one

// ---- resolve.c ---- How long a wait goes on while nothing is resolved: at least `seconds`, and
// until this process has used `processor` seconds of the processor, but at most `most` seconds.
typedef struct SimPatience {
    double seconds, processor, most;
} SimPatience;
// Waits until done(arg); false: its patience ended. NULL: without an end.
bool sim_resolve(bool (*done)(void *arg), void *arg, const SimPatience *patience);
void sim_resolve_start(void); // starts the thread that answers other processes

// ---- clock_feed.c ----
// Records some of the logged entries; false: there is nothing to record.
bool sim_feed_some(SimRecorder *recorder);
void sim_feed_all(SimRecorder *recorder);
uint64_t sim_feed_behind(uint64_t length); // entries, of a log so long; without the lock
void sim_feed_thread_began(int thread);    // before its first call
void sim_feed_thread_ended(int thread);    // after what is logged by now
void sim_feed_forget_event(cudaEvent_t event);
void sim_feed_forget_stream(int device, uint32_t number);

// ---- clock_threads.c ----
int sim_clock_thread(void);
void sim_threads_begin(void);
void sim_threads_over(void);        // all of them: the process ends
void sim_thread_inside(int change); // the calling thread begins to wait in simgpu, or ends
// Threads that have slept for a while outside of simgpu count as asleep until `until`; true: there
// is one. SIM_FOREVER: only looks who sleeps. `again`: right after it has done so, in the same hold
// of the lock: no thread can have made a call.
bool sim_clock_release_sleepers(int but, SimPs until, bool again);

// The program makes no more calls: its real waits from now on concern no other process.
void sim_clock_last_call(void);
// At the end of the process: resolves all that others, or a hook for spans, may need.
void sim_clock_finish(int status);

#endif
