/* time/: the virtual clock (simgpu/pages/time.md is the contract).
 *
 *   engine*.c   from operations with costs and dependencies to times (engine.h)
 *   recorder*.c   from the log to operations: what a program called, in its order (recorder.h)
 *   clock.c, clock_feed.c, clock_threads.c   the clock of this process, what it is fed, and the
 *   program's threads
 *   ../nccl/board.c   when the ranks of other processes arrive
 *   resolve.c  waiting for a time, and the thread that answers others
 *
 * Times are resolved late. A call only adds to what is not resolved yet; numbers are needed by
 * cudaEventElapsedTime, by queries, by the spans below, and at the end of the process. Meanwhile
 * the engine goes on now and then as far as it can, without waiting.
 */
#ifndef SIMGPU_TIME_H
#define SIMGPU_TIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpulog.h"
#include "machine/machine.h"

// Whether there is a clock: SIMGPU_MACHINE is not "none". The machine; NULL: there is no clock.
bool sim_clock_on(void);
const SimMachine *sim_clock_machine(void);

// ---- The program's calls ----

// Writes an entry to the log, and tells the clock. All of simgpu's calls are logged through here.
void sim_clock_log(GpuLogEntry *entry);
// A call that the log does not have: cudaMallocHost and cudaFreeHost.
void sim_clock_pin(int device);
void sim_clock_forget_event(cudaEvent_t event);            // the handle will be another event's
void sim_clock_forget_stream(int device, uint32_t number); // it is destroyed
void sim_clock_set_rank(int device, int rank);             // of a communicator there
// The calling thread is about to wait really, before its call is logged: for the receivers of
// messages that come before an operation on the entry's stream, or before a call on a communicator;
// or because the host waits for what the entry stands for. So others know how far its clock is.
void sim_clock_before_operation(GpuLogEntry *entry);
void sim_clock_before_comm(uint64_t comm, int rank);
void sim_clock_before_wait(GpuLogEntry *entry);
void sim_clock_in_call(bool in);    // the calling thread begins a call of NCCL, or has ended it
void sim_clock_inside(bool inside); // it waits in simgpu for other ranks: it is not asleep
// A query, as the log would have it: whether it finds done what it asks for. waited_for: a thread
// of the process has waited for that.
bool sim_clock_query(const GpuLogEntry *entry, bool waited_for);
// False: one of the two events is not done.
bool sim_clock_elapsed(cudaEvent_t start, cudaEvent_t end, int device, bool waited_for, float *ms);

// ---- Spans: what became of the entries of the log ----

#define SIM_NO_ENTRY UINT64_MAX

// An entry of the log with its times, all in picoseconds since the process began.
typedef struct SimSpan {
    const GpuLogEntry *entry;       // with its index
    int rank;                       // of the process's device; -1: not known
    SimPs called, queued, returned; // the call: began, had made its request, returned to the host
    // The operation. What takes no time, and what only the host does, has start == end.
    SimPs ready, start, end;
    SimPs work; // how long it takes where nothing slows it; 0: it takes no time
    // Of a collective, a send or a receive of more than one rank: what it costs; else NULL. It has
    // arrived at `ready`, and transfers from `start` on. The spans of one call on its ranks have
    // the same entry->collective.comm and .call (and, of a message, the same two ranks).
    const SimCollectiveCost *cost;
    // A wait for an event, of a stream or of the host: the index of the record that it waited for;
    // SIM_NO_ENTRY: it waited for none, or is another operation.
    uint64_t record;
} SimSpan;

// Calls `hook` for every entry from here on, in the log's order, when its times are known. In the
// end, when all have been told, it is called with NULL; not so where the process is killed or a
// report ends it. The hook is called by any thread, by one at a time, with the clock's lock held:
// it may read what the span points to, and look up names and call sites; it may not call gpulog_get
// or gpulog_length, nor anything of CUDA. One hook a process, set before the first entry.
typedef void (*SimSpanHook)(const SimSpan *span, void *arg);
void sim_clock_on_span(SimSpanHook hook, void *arg);

#endif
