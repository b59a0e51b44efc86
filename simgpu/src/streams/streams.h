/* streams/: streams and events: what is ordered before what.
 *
 *   capture*.c, graph*.c  the capture of streams, and graphs (capture.h, graph.h)
 *   happens_before.c  what is ordered before an operation, and what waits for it
 *   stream.c          the cudaStream* calls
 *   event.c           the cudaEvent* calls
 *   notes.c           the last records and waits, for the reports of races
 *   handles.c         the tables of streams and events, and their handles (handles.h)
 *
 * An operation runs at its call, so a stream holds no work, only knowledge: a vector clock
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

// Finds the operation's stream, fills in device and blocking_stream, and joins its clock with what
// is ordered before the operation. cudaErrorInvalidResourceHandle, reported: there is no such
// stream.
cudaError_t sim_stream_begin(SimgpuOp *op);
// The operation's own place: the stream's slot, and its number on it.
void sim_stream_place(const SimgpuOp *op, int *slot, uint64_t *time);
SimOpPlace sim_op_place(const SimgpuOp *op); // the same, with the stream's name
// An operation between its begin and its end: who it is, what is ordered before it.
typedef struct SimMoment {
    SimStreamId stream;
    uint64_t time;  // its number on the stream
    uint64_t order; // grows from moment to moment
    const SimVectorClock *clock;
} SimMoment;
// No clock moves until the moment is over.
void sim_moment_hold(const SimgpuOp *op, SimMoment *moment);
// The same for something that the host itself does, on no stream: its slot is SIM_HOST_SLOT.
void sim_moment_hold_host(SimMoment *moment);
void sim_moment_let_go(void);
// The call has waited for all that is ordered before its operation.
void sim_stream_begun(const SimgpuOp *op);
// The operation waits for all that is queued on a device; what is queued there later waits for it,
// once it has ended.
void sim_stream_gather(const SimgpuOp *op, int device);
void sim_stream_spread(const SimgpuOp *op, int device);
// A copy of what is ordered before the operation; its stream's slot. Something that a stream has
// waited for otherwise than by an event.
void sim_stream_start(const SimgpuOp *op, SimVectorClock *start, int *slot);
void sim_stream_learn(int slot, const SimVectorClock *clock);
// The virtual clock is told that the next calls wait, before the first of them does, for the
// messages that are queued on the stream: the calls of a group wait together.
void sim_stream_foretell(int device, cudaStream_t stream, const char *call);
// What is ordered before the operation has brought its bytes to pinned memory: a function of the
// host is to see them.
void sim_stream_deliver(const SimgpuOp *op);
// Each of two streams of a device waits for what is queued on the other.
void sim_stream_merge(int device, cudaStream_t a, cudaStream_t b);
// The host waits for all that is queued on a device, in a call.
void sim_device_wait(int device, const char *call, const void *site);
// Ends the operation on its stream: the clocks move on. Called by simgpu_end.
void sim_stream_ran(SimgpuOp *op);

// What has been queued and is not done, as everything else is: messages that nobody has received.
// Whatever is ordered after one waits for it: `wait`, for all that a clock covers, while there are
// any. What only asks whether it is done calls `check`, which ends the process where nobody will
// ever receive one of them. `call` and `site` are the call that waits or asks.
typedef struct SimUndone {
    atomic_int n;
    void (*_Atomic wait)(const SimVectorClock *clock, const char *call, const void *site);
    void (*_Atomic check)(const SimVectorClock *clock, const char *call, const void *site);
} SimUndone;
extern SimUndone sim_undone;

// ---- notes.c ----

// What the program did about two operations that are not ordered, as far as it is remembered.
typedef struct SimHint {
    enum {
        HINT_NONE,
        HINT_NODES,          // both are nodes that graphs launched
        HINT_EARLY,          // the second's stream waited for an event recorded before the first
        HINT_RENEWED,        // … and the event was recorded again after the first, after the wait
        HINT_NEVER,          // … for an event that had not been recorded yet
        HINT_ELSEWHERE,      // … for an event recorded on `other`
        HINT_OTHER_WAITED,   // an event was recorded after the first, and `other` waited for it
        HINT_NOT_WAITED,     // … and nobody did
        HINT_HOST_ELSEWHERE, // the host waited for `other`
    } kind;
    const void *record, *wait; // call sites
    SimStreamId other;
} SimHint;
SimHint sim_stream_hint(const SimStreamId *first, uint64_t time, uint64_t order,
                        const SimStreamId *second);

// ---- event.c ----

// What the operation's stream knows goes to the event, or what the event knows to the stream.
// cudaErrorInvalidResourceHandle, reported: there is no such event.
cudaError_t sim_event_record(SimgpuOp *op, cudaEvent_t event);
cudaError_t sim_event_wait(SimgpuOp *op, cudaEvent_t event);

// ---- handles.c ----

// Destroys a device's streams and events: cudaDeviceReset.
void sim_stream_reset(int device);

#endif
