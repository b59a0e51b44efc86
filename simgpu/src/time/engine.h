/* time/engine.h: from operations with costs and dependencies to times: the event simulation of
 * simgpu/pages/time.md, §§ 1-5, for the devices of one process.
 *
 * It knows nothing of CUDA, of simgpu or of the log: the recorder (record.c) adds items as a program
 * makes its calls, and asks for times. What it needs of other processes is when their ranks arrived
 * at a collective: that comes in through SimBoard, and so do other engines in one process, as a
 * test or a planner has them.
 *
 * An item is known by its number, from 1 on; 0 is "nothing", done at time 0. The engine keeps no
 * thread and no lock of its own: the caller sees to that.
 */
#ifndef SIMGPU_ENGINE_H
#define SIMGPU_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "time/machine.h"

typedef uint64_t SimItem;

typedef enum SimItemKind {
    SIM_ITEM_HOST,     // takes `work` from when it is ready, on no resource
    SIM_ITEM_COMPUTE,
    SIM_ITEM_COPY_IN,  // host to device
    SIM_ITEM_COPY_OUT, // device to host, or to another device
    SIM_ITEM_TRANSFER, // a collective, a send, a receive
} SimItemKind;

typedef struct SimItemSpec {
    SimItemKind kind;
    int device;      // of the process
    uint64_t stream; // for ties: the stream's number
    SimPs work;      // 0 only for HOST
    // A transfer's:
    uint64_t call; // names it on the board: the same on all its ranks
    int ranks;
    SimPs latency;
    SimLink link;
} SimItemSpec;

// How ranks tell each other when they arrived. All times only grow; a board is told a rank's arrival
// once, and `until` from time to time: the rank will arrive at nothing that it has not told before
// that time.
typedef struct SimBoard {
    void (*arrived)(void *arg, const SimItemSpec *transfer, SimPs when);
    // The latest arrival of the transfer's ranks where all have arrived (true); else a time before
    // which the last of them will not arrive (false).
    bool (*start)(void *arg, const SimItemSpec *transfer, SimPs *when);
    void (*until)(void *arg, SimPs when);
    void *arg;
} SimBoard;

typedef struct SimEngine SimEngine;
SimEngine *sim_engine_new(const SimMachine *machine, const SimBoard *board);
void sim_engine_free(SimEngine *engine);

// Adds an item that waits for `n` others, all of them added before.
SimItem sim_engine_add(SimEngine *engine, const SimItemSpec *spec, const SimItem *after, int n);
// No item that is added from here on becomes ready before the item `host` has ended; SIZE_MAX in
// place of a thread's number: the thread is gone. Threads are numbered from 0 by the caller.
void sim_engine_thread(SimEngine *engine, int thread, SimItem host);
void sim_engine_thread_gone(SimEngine *engine, int thread);

// Goes on as far as it can, at most to `limit`; true: it reached the limit, or all items have ended.
bool sim_engine_run(SimEngine *engine, SimPs limit);
// When an item became ready, started (a transfer: began to transfer) and ended; false: not known yet.
typedef struct SimTimes {
    SimPs ready, start, end;
} SimTimes;
bool sim_engine_times(const SimEngine *engine, SimItem item, SimTimes *times);
// All before this is settled.
SimPs sim_engine_now(const SimEngine *engine);
// What has ended and nobody will ask for again may be forgotten: all items below `item`.
void sim_engine_forget(SimEngine *engine, SimItem item);

#endif
