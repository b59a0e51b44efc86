/* time/engine.h: from operations with costs and dependencies to times: the event simulation of
 * simgpu/pages/time.md, §§ 1-5, for the devices of one process.
 *
 * It knows nothing of CUDA, of simgpu or of the log: the recorder (recorder.c) adds items as a
 * program makes its calls, and asks for times. What it needs of other processes is when their ranks
 * arrived at a collective: that comes in through SimBoard, and so do other engines in one process,
 * as a test or a planner has them.
 *
 * The engine goes on as far as nothing can change any more: not past the clock of a thread that may
 * still queue something there, nor past the start of a transfer whose ranks have not all arrived.
 * That start is at least `latency` after the time until which those ranks will not arrive.
 *
 * An item is known by its number, from 1 on; 0 is "nothing", done at time 0. The engine keeps no
 * thread and no lock of its own: both are the caller's.
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

// Names a call of NCCL: the same on all its ranks, but for `rank` and `sends`.
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

// How ranks tell each other when they arrived. All times only grow; a board is told a rank's
// arrival once, and `until` from time to time: before `when`, the ranks of this engine will arrive
// at nothing that it has not told; before `request`, no host makes a request that it has not told.
typedef struct SimBoard {
    void (*arrived)(void *arg, const SimCall *call, SimPs when);
    // The latest arrival of the call's ranks where all have arrived (true); else a time before
    // which the last of them will not arrive (false). Ranks of this engine that have not arrived
    // yet are no bound.
    bool (*start)(void *arg, const SimCall *call, SimPs *when);
    void (*until)(void *arg, SimPs when, SimPs request);
    // A time before which none of other engines' ranks that have not arrived will; SIM_FOREVER: all
    // of them have. NULL, where nobody calls sim_engine_held.
    SimPs (*missing)(void *arg, const SimCall *call);
    void *arg;
} SimBoard;

typedef struct SimEngine SimEngine;
// board: NULL, where no item has a call.
SimEngine *sim_engine_new(const SimMachine *machine, const SimBoard *board);
void sim_engine_free(SimEngine *engine);

// Adds an item that waits for `n` others, all of them added before.
SimItem sim_engine_add(SimEngine *engine, const SimItemSpec *spec, const SimItem *after, int n);
// No item of the thread that is added from here on becomes ready before the item `clock` has ended.
// Threads are numbered from 0 by the caller; one that is gone, or counts as if it were, has no
// clock.
void sim_engine_thread(SimEngine *engine, int thread, SimItem clock);
void sim_engine_thread_gone(SimEngine *engine, int thread);
// Whether the engine stands at any thread's clock, or no thread has one: calls may be missing.
bool sim_engine_wants_calls(const SimEngine *engine);
// Whether the engine stands at the thread's clock, and may not pass it.
bool sim_engine_waits_for(const SimEngine *engine, int thread);

// Goes on as far as it can; what the board is to know, it is told. Where nothing holds the engine
// back, it stands at its last instant, or at `least` if that is later.
void sim_engine_run(SimEngine *engine, SimPs least);
// After a run: when something happens next here if nothing holds the engine back; SIM_FOREVER:
// never.
SimPs sim_engine_next(SimEngine *engine);
// After a run: whether ranks that have not arrived hold the engine back where it stands, whatever
// its threads do: those that are not as far yet, or those that are, and may wait for it in their
// turn.
typedef enum SimHeld { SIM_NOT_HELD, SIM_HELD_BY_RANKS_AS_FAR, SIM_HELD_BY_RANKS_BEHIND } SimHeld;
SimHeld sim_engine_held(SimEngine *engine);
// After a run: nothing can happen here until other ranks arrive. Lets the call that has waited
// longest start without them, where they wait for this rank in their turn.
bool sim_engine_is_stuck(SimEngine *engine);
void sim_engine_give_up(SimEngine *engine);
// When an item became ready, started (a transfer: began to transfer) and ended; false: not known
// yet.
typedef struct SimTimes {
    SimPs ready, start, end;
} SimTimes;
bool sim_engine_times(const SimEngine *engine, SimItem item, SimTimes *times);
// All before this is settled.
SimPs sim_engine_now(const SimEngine *engine);
// The oldest item that has not ended; where all have, the next number. What is older, and nobody
// will ask for again, may be forgotten: as an item to wait for it then counts as "nothing".
SimItem sim_engine_oldest(const SimEngine *engine);
SimItem sim_engine_first(const SimEngine *engine);       // of those that are not forgotten
void sim_engine_forget(SimEngine *engine, SimItem item); // all below
size_t sim_engine_items(const SimEngine *engine);        // that it remembers
// Calls of which the board has not been told.
size_t sim_engine_calls_to_come(const SimEngine *engine);

#endif
