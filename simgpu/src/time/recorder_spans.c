/* recorder_spans.c: passes finished spans to the hook, and forgets items. */
#include <string.h>

#include "time/recorder_internal.h"

#define ENOUGH 256 // items before a cleanup is worth it; few, so that they stay in the cache

static bool times_of(const SimRecorder *r, Mark mark, SimTimes *times)
{
    *times = (SimTimes){mark.end, mark.end, mark.end};
    return !mark.item || sim_engine_times(r->engine, mark.item, times);
}

static bool tell_pending(SimRecorder *r, size_t i)
{
    const Pending *p = &r->pending[i];
    SimTimes request, done, returned;
    if (p->open || !times_of(r, p->request, &request) || !times_of(r, p->returned, &returned) ||
        !times_of(r, p->done, &done))
        return false;
    bool operation = p->done.item != 0;
    SimPs queued = request.end;
    GpuLogEntry room;
    const GpuLogEntry *entry = r->read ? &room : &r->pending_entry[i];
    if (r->read) r->read(r->read_from, r->n_told + i, &room);
    SimSpan span = {.entry = entry,
                    .rank = sim_record_device(r, entry->device)->rank,
                    .called = request.start,
                    .queued = queued,
                    .returned = returned.end,
                    .ready = operation ? done.ready : queued,
                    .start = operation ? done.start : queued,
                    .end = operation ? done.end : queued,
                    .work = p->work,
                    .cost = p->has_cost ? &p->cost : NULL,
                    .record = p->record};
    r->hook(&span, r->hook_arg);
    return true;
}

static void tell_spans(SimRecorder *r)
{
    size_t told = 0;
    while (told < r->n_pending && tell_pending(r, told)) told++;
    if (!told) return;
    r->n_pending -= told;
    r->n_told += told;
    memmove(r->pending, r->pending + told, r->n_pending * sizeof *r->pending);
    if (!r->read)
        memmove(r->pending_entry, r->pending_entry + told, r->n_pending * sizeof *r->pending_entry);
}

void sim_record_reads(SimRecorder *r, SimReadEntry read, const void *from)
{
    r->read = read;
    r->read_from = from;
}

void sim_record_on_span(SimRecorder *r, SimSpanHook hook, void *arg)
{
    r->hook = hook;
    r->hook_arg = arg;
}

bool sim_record_all_told(const SimRecorder *r)
{
    return r->n_pending == 0;
}

// ---- Forgetting ----

static void seal(const SimRecorder *r, Mark *mark)
{
    SimTimes times;
    if (!mark->item || !sim_engine_times(r->engine, mark->item, &times)) return;
    *mark = (Mark){0, times.end};
}

static void seal_received(const SimRecorder *r, Mark *mark)
{
    SimTimes times;
    if (mark->item && sim_engine_times(r->engine, mark->item, &times)) *mark = (Mark){0, 0};
}

// The time before which an end delays nothing, not even a host that wakes up.
static bool is_past(const SimRecorder *r, const Mark *mark)
{
    return !mark->item && mark->end + r->machine->host.wake < sim_engine_now(r->engine);
}

static void seal_device(const SimRecorder *r, DeviceState *d)
{
    seal(r, &d->called);
    seal(r, &d->left);
    for (int i = 0; i < d->n_streams; i++) {
        seal(r, &d->stream[i].last);
        seal_received(r, &d->stream[i].received);
        if (is_past(r, &d->stream[i].last) && !d->stream[i].received.item)
            d->stream[i--] = d->stream[--d->n_streams];
    }
}

static SimItem earlier(SimItem item, const Mark *mark)
{
    return mark->item && mark->item < item ? mark->item : item;
}

// The oldest item that has not ended, or that a span needs which is not passed on yet.
static SimItem oldest_needed(const SimRecorder *r)
{
    SimItem oldest = sim_engine_oldest(r->engine);
    for (size_t i = 0; i < r->n_pending; i++) {
        const Pending *p = &r->pending[i];
        oldest = earlier(earlier(earlier(oldest, &p->request), &p->done), &p->returned);
    }
    return oldest;
}

void sim_record_tell(SimRecorder *r)
{
    if (r->n_pending) tell_spans(r);
}

void sim_record_tidy(SimRecorder *r)
{
    if (sim_engine_items(r->engine) < 2 * r->kept + ENOUGH) return;
    for (int i = 0; i < r->n_threads; i++)
        if (r->thread[i].n_group) return;
    for (int d = 0; d < r->n_devices; d++) seal_device(r, &r->device[d]);
    for (size_t i = 0; i < r->events_room; i++) {
        seal(r, &r->event[i].done);
        seal_received(r, &r->event[i].received);
    }
    for (int i = 0; i < r->n_threads; i++) {
        seal(r, &r->thread[i].clock);
        seal(r, &r->thread[i].before);
        seal(r, &r->thread[i].asked);
    }
    for (int i = 0; i < r->n_comms; i++) {
        seal(r, &r->comm[i].last);
        seal_received(r, &r->comm[i].received);
        if (is_past(r, &r->comm[i].last) && !r->comm[i].received.item)
            r->comm[i--] = r->comm[--r->n_comms];
    }
    seal(r, &r->ended);
    sim_engine_forget(r->engine, oldest_needed(r));
    r->kept = sim_engine_items(r->engine);
}
