/* streams/: streams and events: the order of operations.
 *
 *   capture*.c, graph*.c  the capture of streams, and graphs (capture.h, graph.h)
 *   happens_before.c  which operations are ordered before another one
 *   stream.c          the cudaStream* calls
 *   event.c           the cudaEvent* calls
 *   notes.c           the last records and waits, for the reports of races
 *   handles.c         the tables of streams and events, and their handles (handles.h)
 *
 * An operation runs at its call, so a stream has no queue, only a vector clock
 * (core/vector_clock.h).
 */
#ifndef SIMGPU_STREAMS_H
#define SIMGPU_STREAMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/vector_clock.h"
#include "simgpu.h"

// ---- happens_before.c ----

// Finds the operation's stream, fills in device and blocking_stream, and adds what is ordered
// before the operation to the stream's clock. cudaErrorInvalidResourceHandle, with a report: there
// is no such stream.
cudaError_t sim_stream_begin(SimgpuOp *op);
// The operation's place: its stream's slot, and its number on that stream.
void sim_stream_place(const SimgpuOp *op, int *slot, uint64_t *time);
SimOpPlace sim_op_place(const SimgpuOp *op); // the same, with the stream's name
// An operation between its begin and its end: its identity, and what is ordered before it.
typedef struct SimMoment {
    SimStreamId stream;
    uint64_t time;  // its number on the stream
    uint64_t order; // grows from moment to moment
    const SimVectorClock *clock;
} SimMoment;
// No clock moves until the moment is over.
void sim_moment_hold(const SimgpuOp *op, SimMoment *moment);
// The same for an operation of the host itself, on no stream: its slot is SIM_HOST_SLOT.
void sim_moment_hold_host(SimMoment *moment);
void sim_moment_release(void);
// Notes that the host has waited for all that is ordered before the operation, but not for the
// operation.
void sim_stream_begun(const SimgpuOp *op);
// The operation waits for all that is queued on the device so far; and what is queued there later
// waits for the operation.
void sim_stream_after_device(const SimgpuOp *op, int device);
void sim_stream_before_device(const SimgpuOp *op, int device);
// Copies what is ordered before the operation, and sets *slot to that of its stream.
void sim_stream_start(const SimgpuOp *op, SimVectorClock *start, int *slot);
// A stream has waited for what the clock covers, otherwise than by an event.
void sim_stream_learn(int slot, const SimVectorClock *clock);
// Tells the virtual clock that a call will wait for the messages that are queued on the stream. A
// group does this for all its calls before the first one waits, because they wait together.
void sim_stream_will_wait(int device, cudaStream_t stream, const char *call);
// Delivers the copies into pinned memory that are ordered before the operation: a host function
// will read them.
void sim_stream_deliver(const SimgpuOp *op);
// Each of two streams of a device waits for what is queued on the other.
void sim_stream_merge(int device, cudaStream_t a, cudaStream_t b);
// The host waits for all that is queued on a device, in a call.
void sim_device_wait(int device, const char *call, const void *site);
// Ends the operation on its stream: the clocks move on. Called by simgpu_end.
void sim_stream_ran(SimgpuOp *op);

// Operations are done at their call, except `n` messages that are not received yet. What is ordered
// after a message waits for it: `wait` waits for all messages that a clock covers. A query calls
// `check`, which ends the process if one of them will never be received. `call` and `site` are the
// call that waits or queries.
typedef struct SimUndone {
    atomic_int n;
    void (*_Atomic wait)(const SimVectorClock *clock, const char *call, const void *site);
    void (*_Atomic check)(const SimVectorClock *clock, const char *call, const void *site);
} SimUndone;
extern SimUndone sim_undone;

// ---- notes.c ----

// What the program did to order two operations that are not ordered, as far as it is known.
typedef struct SimHint {
    enum {
        HINT_NONE,
        HINT_NODES,          // both are nodes that graphs launched
        HINT_EARLY,          // the second's stream waited for an event recorded before the first
        HINT_RENEWED,        // … and the event was recorded again after the first, after the wait
        HINT_NEVER,          // … for an event that had not been recorded yet
        HINT_ELSEWHERE,      // … for an event recorded on `other`
        HINT_OTHER_WAITED,   // an event was recorded after the first, and `other` waited for it
        HINT_NOT_WAITED,     // … and no stream waited for it
        HINT_HOST_ELSEWHERE, // the host waited for `other`
    } kind;
    const void *record, *wait; // call sites
    SimStreamId other;
} SimHint;
SimHint sim_stream_hint(const SimStreamId *first, uint64_t time, uint64_t order,
                        const SimStreamId *second);

// ---- event.c ----

// Records the event: it gets the clock of the operation's stream. Waits for it: the stream's clock
// also covers what the event's does. cudaErrorInvalidResourceHandle, with a report: there is no
// such event.
cudaError_t sim_event_record(SimgpuOp *op, cudaEvent_t event);
cudaError_t sim_event_wait(SimgpuOp *op, cudaEvent_t event);

// ---- handles.c ----

// Destroys a device's streams and events: cudaDeviceReset.
void sim_stream_reset(int device);

#endif
