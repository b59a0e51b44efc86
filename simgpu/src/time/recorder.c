/* recorder.c: from the log to items of the engine. See recorder.h.
 *
 * A call is a HOST item, its request; what it queues, if anything, is another item; where the host
 * waits, one more. What is to be waited for is remembered as a Mark: an item, or, when that is
 * long over and forgotten, its end.
 *
 * Interface: recorder.h. Calls of NCCL are recorder_nccl.c's.
 */
#include <stdlib.h>
#include <string.h>

#include "report/report.h"
#include "time/recorder_internal.h"

_Static_assert((int)GPU_F64 == (int)SIM_F64 && (int)GPU_F32 == (int)SIM_F32 &&
                   (int)GPU_TF32 == (int)SIM_TF32 && (int)GPU_BF16 == (int)SIM_BF16 &&
                   (int)GPU_FP8 == (int)SIM_FP8,
               "gpulog.h and machine.h name the same types");

void *sim_record_grow(void *table, size_t count, size_t size)
{
    void *larger = realloc(table, count * size);
    if (!larger)
        sim_fatal(SIMGPU_SYSTEM, "the host ran out of memory", "The clock needs %zu bytes more.",
                  count * size);
    return larger;
}

// ---- What to wait for ----

void sim_after(After *after, Mark mark)
{
    if (after->not_before < mark.end) after->not_before = mark.end;
    if (!mark.item) return;
    for (int i = 0; i < after->n; i++)
        if (after->item[i] == mark.item) return;
    if (after->n == after->room) {
        after->room = after->room ? 2 * after->room : 16;
        after->item = sim_record_grow(after->item, (size_t)after->room, sizeof *after->item);
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

// An After to be filled; there are a few, which are used again.
After *sim_after_none(SimRecorder *r, int which)
{
    After *after = &r->after[which];
    after->n = 0;
    after->not_before = 0;
    return after;
}

// ---- Devices, streams, events, threads ----

DeviceState *sim_record_device(SimRecorder *r, int index)
{
    if (index < 0) index = 0;
    if (index >= r->n_devices) {
        r->device = sim_record_grow(r->device, (size_t)index + 1, sizeof *r->device);
        for (int i = r->n_devices; i <= index; i++) r->device[i] = (DeviceState){.rank = r->rank};
        r->n_devices = index + 1;
    }
    return &r->device[index];
}

// The handle of a destroyed stream may come again as a stream of the other kind, or as a new one,
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
        d->stream = sim_record_grow(d->stream, (size_t)d->streams_room, sizeof *d->stream);
    }
    d->stream[d->n_streams] = (StreamState){.handle = entry->stream,
                                            .number = entry->stream_number,
                                            .legacy = legacy,
                                            .blocking = blocking};
    return &d->stream[d->n_streams++];
}

// What an operation that is queued on the stream now follows.
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

static void after_device(SimRecorder *r, After *after, int device)
{
    const DeviceState *d = sim_record_device(r, device);
    for (int i = 0; i < d->n_streams; i++) sim_after(after, d->stream[i].last);
}

static EventState *find_event(SimRecorder *r, cudaEvent_t handle, bool make)
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
    r->event = sim_record_grow(NULL, r->events_room, sizeof *r->event);
    memset(r->event, 0, r->events_room * sizeof *r->event);
    r->n_events = 0;
    for (size_t i = 0; i < room; i++)
        if (old[i].handle) *find_event(r, old[i].handle, true) = old[i];
    free(old);
    return find_event(r, handle, true);
}

static ThreadState *find_thread(const SimRecorder *r, int number)
{
    for (int i = 0; i < r->n_threads; i++)
        if (r->thread[i].alive && r->thread[i].number == number) return &r->thread[i];
    return NULL;
}

static int index_of(const SimRecorder *r, const ThreadState *t)
{
    return (int)(t - r->thread);
}

// A thread that has not called before begins where the first one is, and those that have ended.
ThreadState *sim_record_thread(SimRecorder *r, int number)
{
    ThreadState *t = find_thread(r, number);
    if (t) return t;
    int i = 0;
    while (i < r->n_threads && r->thread[i].alive) i++;
    if (i == r->n_threads) {
        r->thread = sim_record_grow(r->thread, (size_t)r->n_threads + 1, sizeof *r->thread);
        r->n_threads++;
    }
    t = &r->thread[i];
    *t = (ThreadState){.number = number, .alive = true};
    if (number == 0) return t;
    ThreadState *first = find_thread(r, 0);
    After *after = sim_after_none(r, AFTER_THREAD);
    if (first) sim_after(after, first->clock);
    sim_after(after, r->ended);
    t->clock = sim_add_host(r, 0, after);
    return t;
}

// ---- Work ----

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

// What SIMGPU_SLOW and SIMGPU_JITTER make of the work of the next operation.
SimPs sim_record_spread(SimRecorder *r, int device, SimItemKind kind, SimPs work)
{
    const SimSpread *s = &r->spread;
    int rank = sim_record_device(r, device)->rank;
    if (rank < 0) rank = 0;
    r->n_operations++;
    if (s->slow.num && rank == s->slow_rank && kind == SIM_ITEM_COMPUTE)
        work += (SimPs)(((unsigned __int128)work * s->slow.num + s->slow.den - 1) / s->slow.den);
    if (!s->jitter.num) return work;
    uint64_t u = mix(mix(mix(s->seed) + (uint64_t)rank) + r->n_operations) >> 32;
    return work + (SimPs)(((unsigned __int128)work * s->jitter.num * u / s->jitter.den) >> 32);
}

uint64_t sim_record_touched(const GpuLogEntry *entry)
{
    uint64_t bytes = 0;
    for (int i = 0; i < entry->n_ranges; i++) {
        const GpuRange *range = &entry->range[i];
        bytes += (range->access == GPU_UPDATE ? 2 : 1) * (uint64_t)range->bytes;
    }
    return bytes;
}

static SimItemSpec copy_of(const SimRecorder *r, const GpuLogEntry *e)
{
    SimItemSpec spec = {.device = e->to >= 0 ? e->to : e->from >= 0 ? e->from : e->device};
    if (e->to >= 0 && e->to == e->from) {
        spec.kind = SIM_ITEM_COMPUTE;
        spec.work = sim_cost_kernel(r->machine, 2 * (uint64_t)e->bytes, 0, SIM_F32);
    } else if (e->to >= 0 && e->from >= 0) {
        spec.kind = SIM_ITEM_COPY_PEER;
        spec.device = e->from;
        spec.work = sim_cost_copy(r->machine, SIM_COPY_PEER, e->bytes);
    } else if (e->from >= 0) {
        spec.kind = SIM_ITEM_COPY_OUT;
        spec.work = sim_cost_copy(r->machine, SIM_COPY_FROM_DEVICE, e->bytes);
    } else {
        spec.kind = SIM_ITEM_COPY_IN;
        spec.work = sim_cost_copy(r->machine, SIM_COPY_TO_DEVICE, e->bytes);
    }
    return spec;
}

// The operation of a call that is none of NCCL's; HOST, of no work: it takes no time.
static SimItemSpec operation_of(SimRecorder *r, const GpuLogEntry *e)
{
    SimItemSpec spec = {.kind = SIM_ITEM_COMPUTE, .device = e->device};
    SimType type = (SimType)e->type;
    switch (e->op) {
    case GPU_COPY: spec = copy_of(r, e); break;
    case GPU_MEMSET: spec.work = sim_cost_kernel(r->machine, e->bytes, 0, SIM_F32); break;
    case GPU_KERNEL:
    case GPU_BLAS:
        if (e->product.batch)
            spec.work = sim_cost_gemm(r->machine, e->product.rows, e->product.cols,
                                      e->product.inner, e->product.batch, type);
        else
            spec.work = sim_cost_kernel(r->machine, sim_record_touched(e), e->flops, type);
        break;
    default: return (SimItemSpec){.kind = SIM_ITEM_HOST};
    }
    spec.work = sim_record_spread(r, spec.device, spec.kind, spec.work);
    return spec;
}

// ---- The host's part ----

static bool is_plain(const GpuLogEntry *e) // on no stream
{
    return (e->op == GPU_ALLOC || e->op == GPU_FREE) && !strstr(e->name, "Async");
}

static SimPs cost_of(const SimRecorder *r, const GpuLogEntry *e)
{
    const SimHostCosts *host = &r->machine->host;
    switch (e->op) {
    case GPU_ALLOC: return is_plain(e) ? host->allocate : host->enqueue;
    case GPU_FREE: return is_plain(e) ? host->free : host->enqueue;
    case GPU_EVENT_RECORD:
    case GPU_STREAM_WAIT: return host->enqueue;
    case GPU_STREAM_SYNC:
    case GPU_EVENT_SYNC:
    case GPU_DEVICE_SYNC: return host->sync;
    default: return e->collective.comm ? host->collective : host->launch;
    }
}

// What the host's call begins after.
After *sim_after_call(SimRecorder *r, ThreadState *t, int device)
{
    After *after = sim_after_none(r, AFTER_CALL);
    sim_after(after, t->clock);
    sim_after(after, sim_record_device(r, device)->called);
    if (t->number == 0) sim_after(after, r->ended);
    if (t->given_up && after->not_before < sim_engine_now(r->engine))
        after->not_before = sim_engine_now(r->engine);
    return after;
}

void sim_record_stand(SimRecorder *r, ThreadState *t, Mark clock)
{
    t->clock = clock;
    if (t->called) sim_engine_thread(r->engine, index_of(r, t), clock.item);
}

// The request of a call.
// The engine goes no further than to `clock`, where the thread has been already.
void sim_record_hold(SimRecorder *r, ThreadState *t, Mark clock)
{
    sim_engine_thread(r->engine, index_of(r, t), clock.item);
}

Mark sim_record_request(SimRecorder *r, ThreadState *t, int device, SimPs cost)
{
    Mark request = sim_add_host(r, cost, sim_after_call(r, t, device));
    t->called = true;
    t->given_up = false;
    sim_record_device(r, device)->called = request;
    sim_record_stand(r, t, request);
    return request;
}

// The host goes on when `for_` is done, and it is awake.
static void wait_for(SimRecorder *r, ThreadState *t, const After *for_)
{
    if (!for_->n && !for_->not_before) return;
    After *after = sim_after_none(r, AFTER_WAKE);
    Mark awake = sim_add_host(r, r->machine->host.wake, for_);
    sim_after(after, awake);
    sim_after(after, t->clock);
    sim_record_stand(r, t, sim_add_host(r, 0, after));
}

// ---- Entries ----

Pending *sim_record_pend(SimRecorder *r, const GpuLogEntry *entry)
{
    static Pending nobody_reads;
    if (!r->hook) return &nobody_reads;
    if (r->n_pending == r->pending_room) {
        r->pending_room = r->pending_room ? 2 * r->pending_room : 256;
        r->pending = sim_record_grow(r->pending, r->pending_room, sizeof *r->pending);
    }
    Pending *p = &r->pending[r->n_pending++];
    *p = (Pending){.entry = *entry, .record = SIM_NO_ENTRY};
    return p;
}

static void note_event(SimRecorder *r, const GpuLogEntry *e, Mark done)
{
    EventState *event = find_event(r, e->event, true);
    event->done = done;
    event->entry = e->index;
}

static Mark queue(SimRecorder *r, const GpuLogEntry *e, Mark request, Pending *p)
{
    StreamState *s = sim_record_stream(r, e);
    After *after = sim_after_none(r, AFTER_STREAM);
    sim_after(after, request);
    sim_after_stream(r, after, e->device, s);
    if (e->op == GPU_STREAM_WAIT) {
        const EventState *event = find_event(r, e->event, false);
        if (event) sim_after(after, event->done);
        if (event) p->record = event->entry;
    }
    SimItemSpec spec = operation_of(r, e);
    spec.stream = s->number;
    Mark done = sim_add(r, spec, after);
    s->last = done;
    p->work = spec.work;
    if (e->op == GPU_EVENT_RECORD) note_event(r, e, done);
    return done;
}

static bool is_query(const GpuLogEntry *e)
{
    return strstr(e->name, "Query") != NULL;
}

// What a call that only waits waits for.
static void after_what(SimRecorder *r, After *after, const GpuLogEntry *e, Pending *p)
{
    const EventState *event;
    switch (e->op) {
    case GPU_STREAM_SYNC: sim_after_stream(r, after, e->device, sim_record_stream(r, e)); break;
    case GPU_EVENT_SYNC:
        event = find_event(r, e->event, false);
        if (event) sim_after(after, event->done);
        if (event) p->record = event->entry;
        break;
    case GPU_FREE:
        if (!e->pool) after_device(r, after, e->device);
        break;
    case GPU_DEVICE_SYNC: after_device(r, after, e->device); break;
    default: break;
    }
}

void sim_record_entry(SimRecorder *r, const GpuLogEntry *e)
{
    ThreadState *t = sim_record_thread(r, e->thread);
    if (is_query(e)) { // it was told, where that could be done
        Pending *p = sim_record_pend(r, e);
        if (!t->has_asked) sim_record_query(r, e->thread, e->device);
        p->request = t->asked;
        p->returned = t->clock;
        t->has_asked = false;
        return;
    }
    if (e->collective.comm) {
        sim_record_nccl(r, t, e);
        return;
    }
    Pending *p = sim_record_pend(r, e);
    p->request = sim_record_request(r, t, e->device, cost_of(r, e));
    bool only_host = is_plain(e) || e->op == GPU_STREAM_SYNC || e->op == GPU_EVENT_SYNC ||
                     e->op == GPU_DEVICE_SYNC;
    After *after = NULL;
    if (only_host) {
        after = sim_after_none(r, AFTER_STREAM);
        after_what(r, after, e, p);
    } else {
        p->done = queue(r, e, p->request, p);
        if (e->host_waits) sim_after(after = sim_after_none(r, AFTER_STREAM), p->done);
    }
    if (after) wait_for(r, t, after);
    p->returned = t->clock;
}

// ---- What the log does not have ----

void sim_record_call(SimRecorder *r, int thread, int device, SimPs cost)
{
    sim_record_request(r, sim_record_thread(r, thread), device, cost);
}

void sim_record_thread_ended(SimRecorder *r, int thread)
{
    ThreadState *t = find_thread(r, thread);
    if (!t) return;
    if (t->called) {
        After *after = sim_after_none(r, AFTER_THREAD);
        sim_after(after, r->ended);
        sim_after(after, t->clock);
        r->ended = sim_add_host(r, 0, after);
        sim_engine_thread_gone(r->engine, index_of(r, t));
    }
    if (thread != 0) t->alive = false;
}

void sim_record_give_up(SimRecorder *r, int thread)
{
    ThreadState *t = find_thread(r, thread);
    if (!t) return;
    t->given_up = true;
    sim_engine_thread_gone(r->engine, index_of(r, t));
}

void sim_record_forget_event(SimRecorder *r, cudaEvent_t handle)
{
    EventState *event = find_event(r, handle, false);
    if (!event) return;
    event->done = (Mark){0, 0};
    event->entry = SIM_NO_ENTRY;
}

void sim_record_set_rank(SimRecorder *r, int device, int rank)
{
    DeviceState *d = sim_record_device(r, device);
    if (d->rank < 0) d->rank = rank;
}

// ---- Questions ----

SimItem sim_record_query(SimRecorder *r, int thread, int device)
{
    ThreadState *t = sim_record_thread(r, thread);
    Mark asked = sim_add_host(r, r->machine->host.query, sim_after_call(r, t, device));
    if (t->called) t->given_up = false;
    t->asked = asked;
    t->has_asked = true;
    sim_record_stand(r, t, asked);
    return asked.item;
}

SimItem sim_record_stream_end(SimRecorder *r, const GpuLogEntry *on)
{
    After *after = sim_after_none(r, AFTER_STREAM);
    sim_after_stream(r, after, on->device, sim_record_stream(r, on));
    return sim_add_host(r, 0, after).item;
}

SimItem sim_record_event_end(SimRecorder *r, cudaEvent_t handle)
{
    const EventState *event = find_event(r, handle, false);
    After *after = sim_after_none(r, AFTER_STREAM);
    if (event) sim_after(after, event->done);
    return sim_add_host(r, 0, after).item;
}

SimItem sim_record_comm_end(SimRecorder *r, uint64_t comm)
{
    After *after = sim_after_none(r, AFTER_STREAM);
    for (int i = 0; i < r->n_comms; i++)
        if (r->comm[i].comm == comm) sim_after(after, r->comm[i].last);
    return sim_add_host(r, 0, after).item;
}

SimItem sim_record_comm_wait(SimRecorder *r, int thread, uint64_t comm)
{
    SimItem end = sim_record_comm_end(r, comm);
    ThreadState *t = sim_record_thread(r, thread);
    After *after = sim_after_none(r, AFTER_STREAM);
    for (int i = 0; i < r->n_comms; i++)
        if (r->comm[i].comm == comm) sim_after(after, r->comm[i].last);
    wait_for(r, t, after);
    return end;
}

SimItem sim_record_clock(SimRecorder *r, int thread)
{
    After *after = sim_after_none(r, AFTER_STREAM);
    sim_after(after, sim_record_thread(r, thread)->clock);
    return sim_add_host(r, 0, after).item;
}

void sim_record_join(SimRecorder *r, int thread, SimItem item)
{
    ThreadState *t = sim_record_thread(r, thread);
    After *after = sim_after_none(r, AFTER_STREAM);
    sim_after(after, t->clock);
    sim_after(after, (Mark){item, 0});
    sim_record_stand(r, t, sim_add_host(r, 0, after));
}

bool sim_record_has_called(const SimRecorder *r, int thread)
{
    const ThreadState *t = find_thread(r, thread);
    return thread == 0 || (t && t->called);
}

bool sim_record_stands(const SimRecorder *r, int thread)
{
    const ThreadState *t = find_thread(r, thread);
    return t && sim_engine_waits_for(r->engine, index_of(r, t));
}

SimItem sim_record_at(const SimRecorder *r, int thread)
{
    const ThreadState *t = find_thread(r, thread);
    return t ? t->clock.item : 0;
}

// ---- New and free ----

// The first thread may call from time 0 on.
SimRecorder *sim_recorder_new(const SimMachine *machine, const SimSpread *spread,
                              const SimBoard *board, int rank)
{
    SimRecorder *r = sim_record_grow(NULL, 1, sizeof *r);
    memset(r, 0, sizeof *r);
    r->machine = machine;
    if (spread) r->spread = *spread;
    r->rank = rank;
    r->engine = sim_engine_new(machine, board);
    sim_record_thread(r, 0)->called = true;
    sim_engine_thread(r->engine, 0, 0);
    return r;
}

void sim_recorder_free(SimRecorder *r)
{
    for (int i = 0; i < AFTERS; i++) free(r->after[i].item);
    for (int d = 0; d < r->n_devices; d++) free(r->device[d].stream);
    for (int i = 0; i < r->n_threads; i++) free(r->thread[i].group);
    sim_engine_free(r->engine);
    free(r->device);
    free(r->event);
    free(r->thread);
    free(r->comm);
    free(r->pending);
    free(r);
}

SimEngine *sim_recorder_engine(SimRecorder *r)
{
    return r->engine;
}

const SimMachine *sim_recorder_machine(const SimRecorder *r)
{
    return r->machine;
}
