/* streams/handles.h: what the files of streams/ share: streams and events, and their handles.
 *
 * The default stream (NULL, cudaStreamLegacy) is ordered with every blocking stream of its device,
 * both ways, but not with streams made with cudaStreamNonBlocking.
 *
 * All functions here need sim_streams_lock, except reports and sim_is_unready, which are called
 * without it.
 */
#ifndef SIMGPU_HANDLES_H
#define SIMGPU_HANDLES_H

#include <pthread.h>
#include <time.h>

#include "core/config.h"
#include "streams/capture.h"
#include "streams/streams.h"

// Handles are addresses in a reserved table: a wrong one is recognised without a read of the memory
// at its address.
struct CUstream_st {
    bool alive;
    bool is_default; // a device's NULL stream
    bool branch;     // runs a branch of a graph's launches
    bool blocking;
    int device;
    int priority;
    unsigned flags;
    const void *site;      // the call that made it; NULL: simgpu itself
    const void *destroyed; // where; NULL: it is alive, or a reset did it
    int number;     // 1, 2 … of those that the program made; 0: the default or a thread's own
    uint32_t order; // among the streams of all devices, as they were made
    // What is done before the stream's next operation; its own slot counts its operations so far.
    SimVectorClock clock;
    SimCapture *capture;      // that it is part of; NULL: none
    SimNodes last;            // … the dependencies of its next node
    SimVectorClock asked;     // operations of which a query said that they are not ready
    struct CUstream_st *next; // the device's next stream; if not alive, the next unused one
};

struct CUevent_st {
    bool alive, recorded;
    int device;
    unsigned flags;
    const void *site, *destroyed;
    SimVectorClock clock; // what is done when the event is reached
    uint64_t captured;    // the capture in which it was last recorded; 0: in none
    SimNodes nodes;       // … the nodes that it stands for there
    uint64_t number;      // distinguishes events that have had the same handle
    SimStreamId recorded_on;
    const void *recorded_at; // call site
    bool asked;              // a query of this record has said: not ready
    struct timespec when;
    struct CUevent_st *next; // the next unused one
};

typedef struct SimDeviceStreams {
    struct CUstream_st *streams; // alive, made by the program or by cudaStreamPerThread
    struct CUstream_st *null;    // the default stream, made when it is first used
    SimVectorClock destroyed;    // the operations of destroyed streams
    SimVectorClock fence;        // every stream waits for it, also one that is made later
} SimDeviceStreams;

extern pthread_mutex_t sim_streams_lock;
extern SimDeviceStreams sim_device_streams[SIM_MAX_DEVICES];
extern SimVectorClock sim_host_clock; // what the program has waited for

// ---- handles.c ----

// NULL: there are too many.
struct CUstream_st *sim_stream_make(int device, unsigned flags, int priority);
void sim_stream_link(struct CUstream_st *s); // adds it to its device's list
void sim_stream_end(struct CUstream_st *s);
struct CUevent_st *sim_event_make(unsigned flags, const void *site);
void sim_event_end(struct CUevent_st *e);
// The stream of a handle, for the current device or for another one; NULL: there is none.
struct CUstream_st *sim_stream_of_handle(cudaStream_t handle);
struct CUstream_st *sim_stream_on(int device, cudaStream_t handle);
struct CUstream_st *sim_stream_of_op(const SimgpuOp *op);
struct CUstream_st *sim_stream_in_slot(int slot);
int sim_stream_slot(const struct CUstream_st *s);
SimStreamId sim_stream_id(const struct CUstream_st *s);
bool sim_is_event(cudaEvent_t handle);
// Reports an invalid handle: cudaErrorInvalidResourceHandle.
cudaError_t sim_report_stream(const char *call, cudaStream_t stream, const void *site);
cudaError_t sim_report_event(const char *call, cudaEvent_t event, const void *site);

// ---- happens_before.c ----

// Joins a clock with what is ordered before the stream's next operation.
void sim_join_before(const struct CUstream_st *s, SimVectorClock *clock);
void sim_catch_up(struct CUstream_st *s); // the same with its own clock
// Waits for messages that are ordered before what the clock stands for; `tell` notifies the virtual
// clock, and may be NULL. Releases the lock while it waits.
void sim_await_undone(const SimVectorClock *clock, void (*tell)(GpuLogEntry *), GpuLogEntry entry);
void sim_host_joins(const SimVectorClock *clock); // the host has waited for what it covers
bool sim_host_knows(const SimVectorClock *clock); // whether it has already
// Whether a query is too early by the virtual clock. `known`: the host has waited for it already.
bool sim_is_unready(const SimVectorClock *clock, const GpuLogEntry *query, bool known);
// The same without a virtual clock: the first query of operations for which the host has not waited
// says that they are not done, as a GPU may, and orders nothing. `asked`: those already queried.
bool sim_is_early(const SimVectorClock *clock, const SimVectorClock *asked);
// Puts the stream into an entry of the log: by its handle, NULL for the default stream, it is found
// again.
void sim_put_stream(GpuLogEntry *entry, struct CUstream_st *s);

// ---- notes.c ----

// A record or a wait, at the time of its call.
typedef struct SimNote {
    enum { NOTE_RECORD, NOTE_WAIT, NOTE_HOST_WAIT } kind;
    uint64_t order;
    uint64_t event;        // its number
    SimStreamId stream;    // that recorded, or waited, or that the host waited for
    bool recorded;         // a wait's event had been recorded:
    SimStreamId on;        // … on this stream,
    uint64_t upto;         // … after that many of its operations
    const void *site, *at; // of the call; of the record that a wait waited for
} SimNote;
void sim_note(SimNote note);
void sim_note_wait(const struct CUstream_st *s, cudaEvent_t event, const void *site);
uint64_t sim_next_order(void); // of all moments and notes

#endif
