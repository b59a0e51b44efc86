/* time/engine.h: from operations with costs and dependencies to times: the event simulation of
 * simgpu/pages/time.md, §§ 1-5, for the devices of one process.
 *
 * It does not depend on CUDA, simgpu or the log: the recorder (recorder.c) adds items as a program
 * makes its calls, and asks for times. It needs the times at which ranks of other processes arrive
 * at a collective, and gets them from SimBoard; likewise of other engines in one process, in a test
 * or a planner.
 *
 * The engine proceeds as far as nothing can change any more: not past the clock of a thread that
 * may still queue something there, nor past the start of a transfer whose ranks have not all
 * arrived. That start is at least `latency` after the time before which those ranks will not
 * arrive.
 *
 * An item has a number, from 1 on; 0 is "nothing", done at time 0. The engine has no thread and no
 * lock: the caller has both.
 */
#ifndef SIMGPU_ENGINE_H
#define SIMGPU_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "machine/machine.h"

typedef uint64_t SimItem;
#define SIM_FOREVER UINT64_MAX

typedef enum SimItemKind {
    SIM_ITEM_HOST, // takes `work` from when it is ready, on no resource
    SIM_ITEM_COMPUTE,
    SIM_ITEM_COPY_IN,   // host to device
    SIM_ITEM_COPY_OUT,  // device to host
    SIM_ITEM_COPY_PEER, // device to another device
    SIM_ITEM_TRANSFER,  // a collective, a send, a receive
    SIM_ITEM_MEET,      // hosts that wait for each other: ends `latency` after the last has arrived
} SimItemKind;

// Identifies an NCCL call: the same on all its ranks, except `rank` and `sends`.
typedef struct SimCall {
    uint64_t comm, number;
    int from, to; // of a message; -1: a collective
    int rank;     // this one
    bool sends;   // a message's: this is the send
    bool meeting; // of the hosts
} SimCall;

typedef struct SimItemSpec {
    SimItemKind kind;
    int device;       // of the process
    uint64_t stream;  // for ties: the stream's number
    SimPs work;       // 0 only for HOST
    SimPs not_before; // it is not ready before that
    // TRANSFER, MEET:
    SimCall call;
    SimPs latency;
    SimLink link;
} SimItemSpec;

// How ranks publish when they arrive. All times only grow. A board gets each arrival once, and
// `until` repeatedly: before `when`, the ranks of this engine make no arrival that it has not
// published; before `request`, no host makes a request that it has not published.
typedef struct SimBoard {
    void (*arrived)(void *arg, const SimCall *call, SimPs when);
    // The latest arrival of the call's ranks where all have arrived (true); else a time before
    // which the last of them will not arrive (false). Ranks of this engine that have not arrived
    // yet do not bound it.
    bool (*start)(void *arg, const SimCall *call, SimPs *when);
    void (*until)(void *arg, SimPs when, SimPs request);
    // A time before which no missing rank of another engine arrives; SIM_FOREVER: none is missing.
    // NULL, if sim_engine_held is not used.
    SimPs (*missing)(void *arg, const SimCall *call);
    void *arg;
} SimBoard;

typedef struct SimEngine SimEngine;
// board: NULL, if no item has a call.
SimEngine *sim_engine_new(const SimMachine *machine, const SimBoard *board);
void sim_engine_free(SimEngine *engine);

// Adds an item that waits for `n` others, all of them added before.
SimItem sim_engine_add(SimEngine *engine, const SimItemSpec *spec, const SimItem *after, int n);
// Sets the thread's clock: no later item of the thread becomes ready before item `clock` has ended.
// The caller numbers threads from 0; a thread that has ended, or counts as ended, has no clock.
void sim_engine_thread(SimEngine *engine, int thread, SimItem clock);
void sim_engine_thread_gone(SimEngine *engine, int thread);
// Whether the engine is at any thread's clock, or no thread has one: calls may be missing.
bool sim_engine_wants_calls(const SimEngine *engine);
// Whether the engine is at the thread's clock, and must not pass it.
bool sim_engine_waits_for(const SimEngine *engine, int thread);

// Proceeds as far as it can, and publishes on the board. If nothing holds the engine back, it ends
// at its last instant, or at `least` if that is later.
void sim_engine_run(SimEngine *engine, SimPs least);
// After a run: the next time at which something happens here, if nothing holds the engine back;
// SIM_FOREVER: never.
SimPs sim_engine_next(SimEngine *engine);
// After a run: whether missing ranks hold the engine back, whatever its threads do. BEHIND: ranks
// that are behind this engine in time. AS_FAR: ranks that are not, and may in turn wait for it.
typedef enum SimHeld { SIM_NOT_HELD, SIM_HELD_BY_RANKS_AS_FAR, SIM_HELD_BY_RANKS_BEHIND } SimHeld;
SimHeld sim_engine_held(SimEngine *engine);
// After a run in which nothing can happen until other ranks arrive, which in turn wait for this
// one: lets the call that has waited longest start without them.
bool sim_engine_is_stuck(SimEngine *engine);
void sim_engine_give_up(SimEngine *engine);
// The times when an item became ready, started (a transfer: began to transfer) and ended; false:
// not known yet.
typedef struct SimTimes {
    SimPs ready, start, end;
} SimTimes;
bool sim_engine_times(const SimEngine *engine, SimItem item, SimTimes *times);
// The time before which all is settled.
SimPs sim_engine_now(const SimEngine *engine);
// The oldest item that has not ended; if all have, the next number. Older items that are not needed
// any more may be forgotten: a wait for one then counts as a wait for "nothing".
SimItem sim_engine_oldest(const SimEngine *engine);
SimItem sim_engine_first(const SimEngine *engine);       // that is not forgotten
void sim_engine_forget(SimEngine *engine, SimItem item); // all below
size_t sim_engine_items(const SimEngine *engine);        // that it remembers
// Calls that are not published yet.
size_t sim_engine_calls_to_come(const SimEngine *engine);

#endif
