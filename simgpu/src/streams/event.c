/* event.c: the cudaEvent* calls, except those that queue something (runtime/stream_calls.c).
 *
 * Interface: sim_event_record, sim_event_wait (streams.h); cudaEventCreate,
 * cudaEventCreateWithFlags, cudaEventDestroy, cudaEventSynchronize, cudaEventQuery,
 * cudaEventElapsedTime.
 */
#include <stdlib.h>

#include "core/error.h"
#include "log_writer.h"
#include "memory/allocation.h"
#include "report/report.h"
#include "streams/handles.h"
#include "time/time.h"

static cudaError_t create_event(cudaEvent_t *event, unsigned flags, const void *site)
{
    SIM_ENTER_AS("cudaEventCreate", site);
    unsigned known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    if (!event || (flags & ~known)) return sim_leave(cudaErrorInvalidValue);
    pthread_mutex_lock(&sim_streams_lock);
    struct CUevent_st *e = sim_event_make(flags, site);
    pthread_mutex_unlock(&sim_streams_lock);
    if (!e) return sim_leave(cudaErrorMemoryAllocation);
    *event = e;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    return create_event(event, flags, SIM_SITE);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return create_event(event, cudaEventDefault, SIM_SITE);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    SIM_ENTER();
    pthread_mutex_lock(&sim_streams_lock);
    bool there = sim_is_event(event);
    if (there) sim_event_end(event);
    if (there) event->destroyed = SIM_SITE;
    pthread_mutex_unlock(&sim_streams_lock);
    return there ? cudaSuccess : sim_report_event("cudaEventDestroy", event, SIM_SITE);
}

cudaError_t sim_event_record(SimgpuOp *op, cudaEvent_t event)
{
    const char *call = op->entry.name;
    const void *site = op->entry.site;
    pthread_mutex_lock(&sim_streams_lock);
    bool there = sim_is_event(event);
    int device = there ? event->device : -1;
    if (device == op->entry.device && op->captured) {
        SimCaptureFault fault = sim_capture_record(sim_stream_of_op(op), event);
        op->error = fault.error;
    } else if (device == op->entry.device) {
        event->captured = 0;
        sim_vector_clock_assign(&event->clock, &sim_stream_of_op(op)->clock);
        event->recorded = true;
        event->asked = false;
        event->recorded_on = sim_stream_id(sim_stream_of_op(op));
        event->recorded_at = site;
        sim_note((SimNote){.kind = NOTE_RECORD,
                           .event = event->number,
                           .stream = event->recorded_on,
                           .upto = event->clock.t[event->recorded_on.slot],
                           .site = site});
        clock_gettime(CLOCK_MONOTONIC, &event->when);
    }
    pthread_mutex_unlock(&sim_streams_lock);
    if (!there) return sim_report_event(call, event, site);
    if (device != op->entry.device) {
        char where[256];
        gpulog_where(site, where, sizeof where);
        sim_facts_call(call, site, op->entry.stream);
        sim_report(SIMGPU_POINTER, "an event recorded on another device's stream",
                   "%s, called at %s:\nthe event was made on device %d, the stream on device %d.\n"
                   "On a GPU this is an invalid resource handle, and nothing is recorded.\n"
                   "Was the event made while another device than the stream's was current?",
                   call, where, device, op->entry.device);
        op->error = cudaErrorInvalidResourceHandle;
    }
    op->entry.event = event;
    return cudaSuccess;
}

cudaError_t sim_event_wait(SimgpuOp *op, cudaEvent_t event)
{
    pthread_mutex_lock(&sim_streams_lock);
    bool there = sim_is_event(event);
    SimCaptureFault fault = {.error = cudaSuccess};
    if (there) fault = sim_capture_wait(sim_stream_of_op(op), event);
    op->captured |= there && event->captured;
    bool eager = there && !op->captured && fault.error == cudaSuccess;
    if (eager) sim_note_wait(sim_stream_of_op(op), event, op->entry.site);
    if (eager && event->recorded)
        sim_vector_clock_join(&sim_stream_of_op(op)->clock, &event->clock);
    pthread_mutex_unlock(&sim_streams_lock);
    if (!there) return sim_report_event(op->entry.name, event, op->entry.site);
    if (fault.error != cudaSuccess)
        return sim_report_capture(&fault, op->entry.name, op->entry.site);
    op->entry.event = event;
    return cudaSuccess;
}

static cudaError_t wait_for_event(const char *call, cudaEvent_t event, bool query, const void *site)
{
    SIM_ENTER_AS(call, site);
    GpuLogEntry entry = {
        .op = GPU_EVENT_SYNC, .name = call, .event = event, .host_waits = true, .site = site};
    SimCaptureFault fault = {.error = cudaSuccess};
    pthread_mutex_lock(&sim_streams_lock);
    bool there = sim_is_event(event), early = false;
    if (there) fault = sim_capture_wait_event(event);
    if (fault.error != cudaSuccess || (simgpu_captures && there)) {
        pthread_mutex_unlock(&sim_streams_lock);
        if (fault.error != cudaSuccess) return sim_report_capture(&fault, call, site);
        if (sim_unsafe_hook(call, site) != cudaSuccess) return cudaPeekAtLastError();
        pthread_mutex_lock(&sim_streams_lock);
        there = sim_is_event(event);
    }
    if (there && query && sim_clock_on() && event->recorded) {
        SimVectorClock before = {0, NULL};
        bool known = sim_host_knows(&event->clock);
        entry.device = event->device;
        sim_vector_clock_assign(&before, &event->clock);
        pthread_mutex_unlock(&sim_streams_lock);
        bool unready = sim_is_unready(&before, &entry, known);
        free(before.t);
        if (unready) return sim_leave(cudaErrorNotReady);
        pthread_mutex_lock(&sim_streams_lock);
        there = sim_is_event(event);
    }
    if (there) {
        entry.device = event->device;
        early = query && event->recorded && !event->asked &&
                sim_is_early(&event->clock, &sim_host_clock);
        event->asked |= early;
        if (event->recorded && !early)
            sim_await_undone(&event->clock, sim_clock_before_wait, entry);
        if (event->recorded && !early) sim_host_joins(&event->clock);
    }
    pthread_mutex_unlock(&sim_streams_lock);
    if (!there) return sim_report_event(call, event, site);
    if (early) return sim_leave(cudaErrorNotReady);
    if (!query) sim_pools_after_wait(entry.device);
    sim_clock_log(&entry);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return wait_for_event("cudaEventSynchronize", event, false, SIM_SITE);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return wait_for_event("cudaEventQuery", event, true, SIM_SITE);
}

// Without the clock, operations run at their call: the time between two records is that of the
// host.
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    SIM_ENTER();
    if (!ms) return sim_leave(cudaErrorInvalidValue);
    pthread_mutex_lock(&sim_streams_lock);
    bool right = sim_is_event(start) && sim_is_event(end) && start->recorded && end->recorded &&
                 !((start->flags | end->flags) & cudaEventDisableTiming) &&
                 start->device == end->device;
    if (right)
        *ms = (float)((double)(end->when.tv_sec - start->when.tv_sec) * 1e3 +
                      (double)(end->when.tv_nsec - start->when.tv_nsec) * 1e-6);
    bool known = right && sim_host_knows(&start->clock) && sim_host_knows(&end->clock);
    int device = right ? end->device : 0;
    pthread_mutex_unlock(&sim_streams_lock);
    if (right && sim_clock_on() && !sim_clock_elapsed(start, end, device, known, ms))
        return sim_leave(cudaErrorNotReady);
    return sim_leave(right ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
