/* time/recorder.h: from the log to the engine: makes items with costs and dependencies of a
 * program's calls, in the order of its log (simgpu/pages/time.md, §§ 1-2, 6-7).
 *
 * A recorder is for one process. It needs only the entries, so it works in the process that makes
 * the calls and on a log that was read from a file. In the process it also gets what the log does
 * not have: queries, pinned memory, threads that end, events that are destroyed.
 */
#ifndef SIMGPU_RECORDER_H
#define SIMGPU_RECORDER_H

#include "time/engine.h"
#include "time/time.h"

typedef struct SimRecorder SimRecorder;
// board: NULL, if all communicators have one rank. rank: the launcher's; -1: not known.
SimRecorder *sim_recorder_new(const SimMachine *machine, const SimSpread *spread,
                              const SimBoard *board, int rank);
void sim_recorder_free(SimRecorder *recorder);
SimEngine *sim_recorder_engine(SimRecorder *recorder);

void sim_record_entry(SimRecorder *recorder, const GpuLogEntry *entry);

// ---- What the log does not have ----

// A call of that cost on a device, which queues nothing and waits for nothing.
void sim_record_call(SimRecorder *recorder, int thread, int device, SimPs cost);
// A thread is about to make its first call, and the first thread is in an NCCL call, whose entry is
// `in` or a later one.
void sim_record_thread_began(SimRecorder *recorder, int thread, uint64_t in);
// A thread has ended; if it has made calls, others may have joined it.
void sim_record_thread_ended(SimRecorder *recorder, int thread);
// A thread sleeps outside of simgpu. Up to `until` the others do not wait for it, so its next call
// begins no earlier.
void sim_record_release(SimRecorder *recorder, int thread, SimPs until);
// The calling thread is about to wait, and its call is not logged yet. An operation on the entry's
// stream, or a call on a communicator, waits for the receivers of the messages before it; or the
// host waits for what the entry waits for.
void sim_record_before_operation(SimRecorder *recorder, const GpuLogEntry *on);
void sim_record_before_comm(SimRecorder *recorder, int thread, uint64_t comm, int rank);
void sim_record_before_wait(SimRecorder *recorder, const GpuLogEntry *on);
void sim_record_forget_event(SimRecorder *recorder, cudaEvent_t event);
// The stream is destroyed. The default stream no longer waits for it; the device does.
void sim_record_forget_stream(SimRecorder *recorder, int device, uint32_t number);
void sim_record_set_rank(SimRecorder *recorder, int device, int rank);

uint64_t sim_mix(uint64_t x); // a step of SplitMix64

// ---- Queries ---- The answers are items, whose times the engine knows sooner or later.

// A query of the thread: the item ends when the host queries.
SimItem sim_record_query(SimRecorder *recorder, int thread, int device);
// What an operation on the entry's stream would wait for now; what an event waits for.
SimItem sim_record_stream_end(SimRecorder *recorder, const GpuLogEntry *on);
SimItem sim_record_event_end(SimRecorder *recorder, cudaEvent_t event);
// The thread waits for all calls on a communicator so far; returns the item of their end.
SimItem sim_record_comm_end(SimRecorder *recorder, uint64_t comm);
SimItem sim_record_comm_wait(SimRecorder *recorder, int thread, uint64_t comm);
// The item of a thread's clock; moves the thread's clock to `item`, if that is later.
SimItem sim_record_clock(SimRecorder *recorder, int thread);
void sim_record_join(SimRecorder *recorder, int thread, SimItem item);
// Whether the engine is at the thread's clock; which item that is.
bool sim_record_stands(const SimRecorder *recorder, int thread);
SimItem sim_record_at(const SimRecorder *recorder, int thread);
// Whether the thread has made a call other than queries.
bool sim_record_has_called(const SimRecorder *recorder, int thread);

// ---- Spans ----

void sim_record_on_span(SimRecorder *recorder, SimSpanHook hook, void *arg);
// Makes entry i of a log that the caller keeps. With it the recorder needs no copies of entries for
// their spans.
typedef void (*SimReadEntry)(const void *from, size_t i, GpuLogEntry *entry);
void sim_record_reads(SimRecorder *recorder, SimReadEntry read, const void *from);
bool sim_record_all_told(const SimRecorder *recorder);
void sim_record_tell(SimRecorder *recorder); // passes the known spans to the hook
// Frees what no query can need. Not during a query.
void sim_record_tidy(SimRecorder *recorder);

#endif
