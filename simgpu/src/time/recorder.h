/* time/recorder.h: from the log to the engine: what a program called, in the order of its log,
 * becomes items with costs and dependencies (simgpu/pages/time.md, §§ 1-2, 6-7).
 *
 * A recorder is one process's. It needs nothing but the entries, so it works in the process that
 * makes the calls and on a log that was read from a file. In the process it is also told what the
 * log does not have: queries, pinned memory, threads that end, events that are destroyed.
 */
#ifndef SIMGPU_RECORDER_H
#define SIMGPU_RECORDER_H

#include "time/engine.h"
#include "time/time.h"

typedef struct SimRecorder SimRecorder;
// board: NULL, where all communicators have one rank. rank: the launcher's; -1: not known.
SimRecorder *sim_recorder_new(const SimMachine *machine, const SimSpread *spread,
                              const SimBoard *board, int rank);
void sim_recorder_free(SimRecorder *recorder);
SimEngine *sim_recorder_engine(SimRecorder *recorder);

void sim_record_entry(SimRecorder *recorder, const GpuLogEntry *entry);

// ---- What the log does not have ----

// A call of that cost on a device, which queues nothing and waits for nothing.
void sim_record_call(SimRecorder *recorder, int thread, int device, SimPs cost);
// A thread has ended; where it has called, others may have joined it.
void sim_record_thread_ended(SimRecorder *recorder, int thread);
// A thread sleeps outside, and others need not wait for it up to then: so its next call begins no
// earlier.
void sim_record_release(SimRecorder *recorder, int thread, SimPs until);
// The calling thread is about to wait, and the log has not got its call yet: what is to be queued
// on the entry's stream, or to be called on a communicator, awaits the receivers of messages before
// it; or the host waits for what the entry waits for.
void sim_record_before_operation(SimRecorder *recorder, const GpuLogEntry *on);
void sim_record_before_comm(SimRecorder *recorder, int thread, uint64_t comm, int rank);
void sim_record_before_wait(SimRecorder *recorder, const GpuLogEntry *on);
void sim_record_forget_event(SimRecorder *recorder, cudaEvent_t event);
// The stream is destroyed. The default stream waits for it no more; the device does.
void sim_record_forget_stream(SimRecorder *recorder, int device, uint32_t number);
void sim_record_set_rank(SimRecorder *recorder, int device, int rank);

uint64_t sim_mix(uint64_t x); // a step of SplitMix64

// ---- Questions ---- They are answered by items, whose times the engine knows sooner or later.

// A query of the thread: the item ends when the host asks.
SimItem sim_record_query(SimRecorder *recorder, int thread, int device);
// What an operation that is queued now on the entry's stream waits for; what an event waits for.
SimItem sim_record_stream_end(SimRecorder *recorder, const GpuLogEntry *on);
SimItem sim_record_event_end(SimRecorder *recorder, cudaEvent_t event);
// All calls on a communicator, so far. The thread waits for them; the item of their end.
SimItem sim_record_comm_end(SimRecorder *recorder, uint64_t comm);
SimItem sim_record_comm_wait(SimRecorder *recorder, int thread, uint64_t comm);
// The item at which a thread's clock stands; the thread's clock becomes no less than `item`.
SimItem sim_record_clock(SimRecorder *recorder, int thread);
void sim_record_join(SimRecorder *recorder, int thread, SimItem item);
// Whether the engine stands at the thread's clock; which item that is.
bool sim_record_stands(const SimRecorder *recorder, int thread);
SimItem sim_record_at(const SimRecorder *recorder, int thread);
// Whether the thread has made a call, not only asked.
bool sim_record_has_called(const SimRecorder *recorder, int thread);

// ---- Spans ----

void sim_record_on_span(SimRecorder *recorder, SimSpanHook hook, void *arg);
// Makes entry i of a log that somebody keeps: so the recorder has no copies for their spans.
typedef void (*SimReadEntry)(const void *from, size_t i, GpuLogEntry *entry);
void sim_record_reads(SimRecorder *recorder, SimReadEntry read, const void *from);
bool sim_record_all_told(const SimRecorder *recorder);
void sim_record_tell(SimRecorder *recorder); // the spans that are known
// Frees what nobody can ask for. Not while a question's items are asked about.
void sim_record_tidy(SimRecorder *recorder);

#endif
