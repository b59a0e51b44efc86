/* event.c: events. CUDA does not tell an event's device, so it is noted when the event is made.
 *
 * Interface: event_reset; the wrapped cudaEvent*, cudaStreamWaitEvent.
 */
#include "interpose.h"

WRAPPED(cudaEventCreate);
WRAPPED(cudaEventCreateWithFlags);
WRAPPED(cudaEventRecord);
WRAPPED(cudaEventRecordWithFlags);
WRAPPED(cudaEventSynchronize);
WRAPPED(cudaEventQuery);
WRAPPED(cudaEventDestroy);
WRAPPED(cudaStreamWaitEvent);

static Table events = EMPTY_TABLE;

static cudaError_t note_event(cudaError_t made, const cudaEvent_t *event)
{
    if (made == cudaSuccess) table_put(&events, (Known){.key = *event, .device = current_device()});
    return made;
}

cudaError_t __wrap_cudaEventCreate(cudaEvent_t *event)
{
    return note_event(__real_cudaEventCreate(event), event);
}

cudaError_t __wrap_cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    return note_event(__real_cudaEventCreateWithFlags(event, flags), event);
}

// Forgets the event first: once it is destroyed, another thread may get the same handle.
cudaError_t __wrap_cudaEventDestroy(cudaEvent_t event)
{
    Known known;
    bool ours = table_take(&events, event, &known);
    cudaError_t error = __real_cudaEventDestroy(event);
    if (ours && error != cudaSuccess) table_put(&events, known);
    return error;
}

void event_reset(int device)
{
    Known known;
    while (table_take_device(&events, device, &known)) continue;
}

static cudaError_t on_stream(cudaError_t error, GpuOp op, const char *name, cudaEvent_t event,
                             cudaStream_t stream, const void *site)
{
    if (error != cudaSuccess) return error;
    GpuLogEntry entry = entry_on(op, name, stream, site);
    entry.event = event;
    write_entry(&entry);
    return cudaSuccess;
}

cudaError_t __wrap_cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return on_stream(__real_cudaEventRecord(event, stream), GPU_EVENT_RECORD, "cudaEventRecord",
                     event, stream, SITE);
}

cudaError_t __wrap_cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                            unsigned int flags)
{
    return on_stream(__real_cudaEventRecordWithFlags(event, stream, flags), GPU_EVENT_RECORD,
                     "cudaEventRecordWithFlags", event, stream, SITE);
}

cudaError_t __wrap_cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    return on_stream(__real_cudaStreamWaitEvent(stream, event, flags), GPU_STREAM_WAIT,
                     "cudaStreamWaitEvent", event, stream, SITE);
}

static cudaError_t waited(cudaError_t error, const char *name, cudaEvent_t event, const void *site)
{
    if (error != cudaSuccess) return error;
    Known known = {.device = 0};
    if (!table_find(&events, event, &known)) known.device = current_device();
    GpuLogEntry entry = {.op = GPU_EVENT_SYNC,
                         .name = name,
                         .device = known.device,
                         .event = event,
                         .host_waits = true,
                         .site = site};
    write_entry(&entry);
    return cudaSuccess;
}

cudaError_t __wrap_cudaEventSynchronize(cudaEvent_t event)
{
    const char *name = "cudaEventSynchronize";
    return waited(WAITING(name, SITE, __real_cudaEventSynchronize(event)), name, event, SITE);
}

// A query that finds the event done is a wait that took no time.
cudaError_t __wrap_cudaEventQuery(cudaEvent_t event)
{
    return waited(__real_cudaEventQuery(event), "cudaEventQuery", event, SITE);
}
