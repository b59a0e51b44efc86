/* recorder_state.c: the recorder's devices, streams and events, and what is waited for.
 *
 * A wait is for a Mark: an item or, when that is long past and forgotten, the time of its end.
 */
#include <string.h>

#include "time/recorder_internal.h"
#include "time/tables.h"

// ---- What to wait for ----

void sim_after(After *after, Mark mark)
{
    if (after->not_before < mark.end) after->not_before = mark.end;
    if (!mark.item) return;
    for (int i = 0; i < after->n; i++)
        if (after->item[i] == mark.item) return;
    if (after->n == after->room) {
        after->room = after->room ? 2 * after->room : 16;
        after->item = sim_table_grow(after->item, (size_t)after->room, sizeof *after->item);
    }
    after->item[after->n++] = mark.item;
}

Mark sim_add(SimRecorder *r, SimItemSpec spec, const After *after)
{
    spec.not_before = after->not_before;
    return (Mark){sim_engine_add(r->engine, &spec, after->item, after->n), 0};
}

Mark sim_add_host(SimRecorder *r, SimPs work, const After *after)
{
    return sim_add(r, (SimItemSpec){.kind = SIM_ITEM_HOST, .work = work}, after);
}

// An empty After; there are a few, which are reused.
After *sim_after_none(SimRecorder *r, int which)
{
    After *after = &r->after[which];
    after->n = 0;
    after->not_before = 0;
    return after;
}

// ---- Devices, streams ----

DeviceState *sim_record_device(SimRecorder *r, int index)
{
    if (index < 0) index = 0;
    if (index >= r->n_devices) {
        r->device = sim_table_grow(r->device, (size_t)index + 1, sizeof *r->device);
        for (int i = r->n_devices; i <= index; i++)
            r->device[i] = (DeviceState){.rank = r->rank, .thread = -1};
        r->n_devices = index + 1;
    }
    return &r->device[index];
}

// The handle of a destroyed stream may be reused for a stream of the other kind, or for a new one,
// which has a number of its own.
StreamState *sim_record_stream(SimRecorder *r, const GpuLogEntry *entry)
{
    DeviceState *d = sim_record_device(r, entry->device);
    bool legacy = entry->stream == NULL || entry->stream == cudaStreamLegacy;
    bool blocking = legacy || entry->blocking_stream;
    for (int i = 0; i < d->n_streams; i++) {
        StreamState *s = &d->stream[i];
        if (legacy ? s->legacy
                   : !s->legacy && s->handle == entry->stream && s->blocking == blocking &&
                         s->number == entry->stream_number)
            return s;
    }
    if (d->n_streams == d->streams_room) {
        d->streams_room = d->streams_room ? 2 * d->streams_room : 8;
        d->stream = sim_table_grow(d->stream, (size_t)d->streams_room, sizeof *d->stream);
    }
    d->stream[d->n_streams] = (StreamState){.handle = entry->stream,
                                            .number = entry->stream_number,
                                            .legacy = legacy,
                                            .blocking = blocking};
    return &d->stream[d->n_streams++];
}

// What a new operation on the stream will wait for.
void sim_after_stream(SimRecorder *r, After *after, int device, const StreamState *s)
{
    const DeviceState *d = sim_record_device(r, device);
    sim_after(after, s->last);
    for (int i = 0; i < d->n_streams; i++) {
        const StreamState *other = &d->stream[i];
        if (other != s && (s->legacy ? other->blocking : s->blocking && other->legacy))
            sim_after(after, other->last);
    }
}

void sim_after_device(SimRecorder *r, After *after, int device)
{
    const DeviceState *d = sim_record_device(r, device);
    for (int i = 0; i < d->n_streams; i++) sim_after(after, d->stream[i].last);
}

// ---- Messages that are before it ----

// An ended item delays no call any more: none begins before the engine's time.
void sim_after_received_mark(const SimRecorder *r, After *after, Mark received)
{
    SimTimes times;
    if (received.item && !sim_engine_times(r->engine, received.item, &times) &&
        received.item >= sim_engine_first(r->engine))
        sim_after(after, received);
}

void sim_after_received(SimRecorder *r, After *after, int device, const StreamState *s)
{
    const DeviceState *d = sim_record_device(r, device);
    sim_after_received_mark(r, after, s->received);
    for (int i = 0; i < d->n_streams; i++) {
        const StreamState *other = &d->stream[i];
        if (other != s && (s->legacy ? other->blocking : s->blocking && other->legacy))
            sim_after_received_mark(r, after, other->received);
    }
}

Mark sim_all_received(SimRecorder *r, const After *received)
{
    if (received->n == 0) return (Mark){0, 0};
    if (received->n == 1) return (Mark){received->item[0], 0};
    return sim_add_host(r, 0, received);
}

// ---- Events ----

EventState *sim_record_event(SimRecorder *r, cudaEvent_t handle, bool make)
{
    size_t mask = r->events_room - 1;
    if (r->events_room) {
        size_t at = (size_t)(((uintptr_t)handle >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & mask;
        for (; r->event[at].handle; at = (at + 1) & mask)
            if (r->event[at].handle == handle) return &r->event[at];
        if (make && 2 * (r->n_events + 1) <= r->events_room) {
            r->n_events++;
            r->event[at] = (EventState){.handle = handle, .entry = SIM_NO_ENTRY};
            return &r->event[at];
        }
    }
    if (!make) return NULL;
    EventState *old = r->event;
    size_t room = r->events_room;
    r->events_room = room ? 2 * room : 64;
    r->event = sim_table_grow(NULL, r->events_room, sizeof *r->event);
    memset(r->event, 0, r->events_room * sizeof *r->event);
    r->n_events = 0;
    for (size_t i = 0; i < room; i++)
        if (old[i].handle) *sim_record_event(r, old[i].handle, true) = old[i];
    sim_table_free(old);
    return sim_record_event(r, handle, true);
}
