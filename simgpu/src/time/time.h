/* time/: the virtual clock (simgpu/pages/time.md is the contract).
 *
 *   engine*.c   from operations with costs and dependencies to times (engine.h)
 *   recorder*.c   from the log to operations with costs and dependencies (recorder.h)
 *   clock.c, clock_feed.c, clock_threads.c   the clock of this process, the calls that it gets, and
 *   the program's threads
 *   ../nccl/board.c   when the ranks of other processes arrive
 *   resolve.c  waits for a time, and the thread that answers other processes
 *
 * Times are resolved late. A call only adds unresolved items; cudaEventElapsedTime, queries, the
 * spans below and the end of the process need times. Meanwhile the engine runs sometimes, as far as
 * it can without waiting.
 */
#ifndef SIMGPU_TIME_H
#define SIMGPU_TIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpulog.h"
#include "machine/machine.h"

// Whether there is a clock (SIMGPU_MACHINE is not "none"), and its machine (NULL: there is none).
bool sim_clock_on(void);
const SimMachine *sim_clock_machine(void);

// ---- The program's calls ----

// Writes an entry to the log, and notifies the clock. All of simgpu's calls are logged by it.
void sim_clock_log(GpuLogEntry *entry);
// A call that the log does not have: cudaMallocHost and cudaFreeHost.
void sim_clock_pin(int device);
void sim_clock_forget_event(cudaEvent_t event);            // the handle will be reused
void sim_clock_forget_stream(int device, uint32_t number); // it is destroyed
void sim_clock_set_rank(int device, int rank);             // of a communicator there
// The calling thread is about to wait in real time, and its call is not logged yet. These tell the
// clock what it waits for, so that others know its time: the receivers of messages, before an
// operation on the entry's stream or a call on a communicator; or what the host waits for in the
// entry.
void sim_clock_before_operation(GpuLogEntry *entry);
void sim_clock_before_comm(uint64_t comm, int rank);
void sim_clock_before_wait(GpuLogEntry *entry);
void sim_clock_in_call(bool in);    // the calling thread begins an NCCL call, or ends it
void sim_clock_inside(bool inside); // it waits in simgpu for other ranks: it is not asleep
// A query, as an entry of the log: whether its operations are done. waited_for: a thread of the
// process has waited for them.
bool sim_clock_query(const GpuLogEntry *entry, bool waited_for);
// False: one of the two events is not done.
bool sim_clock_elapsed(cudaEvent_t start, cudaEvent_t end, int device, bool waited_for, float *ms);

// ---- Spans: entries of the log with their times ----

#define SIM_NO_ENTRY UINT64_MAX

// An entry of the log with its times, all in picoseconds since the process began.
typedef struct SimSpan {
    const GpuLogEntry *entry;       // with its index
    int rank;                       // of the process's device; -1: not known
    SimPs called, queued, returned; // the call: began, had made its request, returned to the host
    // The operation. One that takes no time, or is only of the host, has start == end.
    SimPs ready, start, end;
    SimPs work; // how long it takes if nothing slows it; 0: it takes no time
    // Of a collective, a send or a receive of several ranks: its cost; else NULL. It has arrived at
    // `ready`, and transfers from `start` on. The spans of one call on its ranks have the same
    // entry->collective.comm and .call (and, of a message, the same two ranks).
    const SimCollectiveCost *cost;
    // A wait for an event, of a stream or of the host: the index of the record that it waited for;
    // SIM_NO_ENTRY: it waited for none, or is another operation.
    uint64_t record;
} SimSpan;

// From now on calls `hook` for every entry, in the order of the log, when its times are known.
// After the last one it is called with NULL, unless the process is killed or a report ends it. Any
// thread may call the hook, one at a time, with the clock's lock held. The hook may read what the
// span points to, and look up names and call sites; it must not call gpulog_get, gpulog_length, or
// CUDA. One hook in a process, set before the first entry.
typedef void (*SimSpanHook)(const SimSpan *span, void *arg);
void sim_clock_on_span(SimSpanHook hook, void *arg);

#endif
