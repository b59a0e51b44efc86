/* recorder.c: from the log to items of the engine. See recorder.h.
 *
 * A call is a HOST item, its request. What it queues, if anything, is a second item; if the host
 * waits, that is a third one.
 *
 * recorder_state.c has the devices and streams, recorder_host.c the threads, and recorder_nccl.c
 * the NCCL calls.
 */
#include <string.h>

#include "time/recorder_internal.h"
#include "time/tables.h"

_Static_assert((int)GPU_F64 == (int)SIM_F64 && (int)GPU_F32 == (int)SIM_F32 &&
                   (int)GPU_TF32 == (int)SIM_TF32 && (int)GPU_BF16 == (int)SIM_BF16 &&
                   (int)GPU_FP8 == (int)SIM_FP8,
               "gpulog.h and machine.h name the same types");

// ---- Work ----

uint64_t sim_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

// Applies SIMGPU_SLOW and SIMGPU_JITTER to the work of the next operation.
SimPs sim_record_spread(SimRecorder *r, int device, SimItemKind kind, SimPs work)
{
    const SimSpread *s = &r->spread;
    int rank = sim_record_device(r, device)->rank;
    if (rank < 0) rank = 0;
    r->n_operations++;
    if (s->slow.num && rank == s->slow_rank && kind == SIM_ITEM_COMPUTE)
        work += (SimPs)(((unsigned __int128)work * s->slow.num + s->slow.den - 1) / s->slow.den);
    if (!s->jitter.num) return work;
    uint64_t u = sim_mix(sim_mix(sim_mix(s->seed) + (uint64_t)rank) + r->n_operations) >> 32;
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

// The operation of a call other than NCCL's; HOST, of no work: it takes no time.
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
        else if (e->op == GPU_KERNEL && type >= SIM_TF32)
            spec.work = sim_cost_fused(r->machine, sim_record_touched(e), e->flops, type);
        else
            spec.work = sim_cost_kernel(r->machine, sim_record_touched(e), e->flops, type);
        break;
    default: return (SimItemSpec){.kind = SIM_ITEM_HOST};
    }
    spec.work = sim_record_spread(r, e->device, spec.kind, spec.work);
    return spec;
}

// ---- The host's part ----

static bool is_plain(const GpuLogEntry *e) // on no stream
{
    return (e->op == GPU_ALLOC || e->op == GPU_FREE) && !strstr(e->name, "Async");
}

SimPs sim_record_cost(const SimRecorder *r, const GpuLogEntry *e)
{
    const SimHostCosts *host = &r->machine->host;
    if (e->op == GPU_GRAPH_LAUNCH) return host->graph_launch ? host->graph_launch : host->launch;
    if (e->launch)
        return e->op == GPU_EVENT_RECORD || e->op == GPU_STREAM_WAIT ? 0 : host->graph_node;
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

// ---- Entries ----

Pending *sim_record_pend(SimRecorder *r, const GpuLogEntry *entry)
{
    static Pending nobody_reads;
    if (!r->hook) return &nobody_reads;
    if (r->n_pending == r->pending_room) {
        r->pending_room = r->pending_room ? 2 * r->pending_room : 256;
        r->pending = sim_table_grow(r->pending, r->pending_room, sizeof *r->pending);
        if (!r->read)
            r->pending_entry =
                sim_table_grow(r->pending_entry, r->pending_room, sizeof *r->pending_entry);
    }
    if (!r->read) r->pending_entry[r->n_pending] = *entry;
    Pending *p = &r->pending[r->n_pending++];
    *p = (Pending){.record = SIM_NO_ENTRY};
    return p;
}

// An operation after a message on its stream is also after the receiver's request.
static void pass_on_received(SimRecorder *r, const GpuLogEntry *e, StreamState *s)
{
    After *received = sim_after_none(r, AFTER_RECEIVED);
    sim_after_received(r, received, e->device, s);
    const EventState *event = sim_record_event(r, e->event, false);
    if (e->op == GPU_STREAM_WAIT && event) sim_after_received_mark(r, received, event->received);
    s->received = sim_all_received(r, received);
}

static void note_event(SimRecorder *r, const GpuLogEntry *e, Mark done, Mark received)
{
    EventState *event = sim_record_event(r, e->event, true);
    event->done = done;
    event->received = received;
    event->entry = e->index;
}

static Mark queue(SimRecorder *r, const GpuLogEntry *e, Mark request, Pending *p)
{
    StreamState *s = sim_record_stream(r, e);
    After *after = sim_after_none(r, AFTER_STREAM);
    sim_after(after, request);
    sim_after_stream(r, after, e->device, s);
    if (e->op == GPU_STREAM_WAIT) {
        const EventState *event = sim_record_event(r, e->event, false);
        if (event) sim_after(after, event->done);
        if (event) p->record = event->entry;
    }
    SimItemSpec spec = operation_of(r, e);
    spec.stream = s->number;
    pass_on_received(r, e, s);
    Mark done = sim_add(r, spec, after);
    s->last = done;
    p->work = spec.work;
    if (e->op == GPU_EVENT_RECORD) note_event(r, e, done, s->received);
    return done;
}

bool sim_record_is_query(const GpuLogEntry *e)
{
    return (e->op == GPU_STREAM_SYNC || e->op == GPU_EVENT_SYNC) && strstr(e->name, "Query");
}

void sim_after_wait(SimRecorder *r, After *after, const GpuLogEntry *e)
{
    const EventState *event;
    switch (e->op) {
    case GPU_STREAM_SYNC: sim_after_stream(r, after, e->device, sim_record_stream(r, e)); break;
    case GPU_EVENT_SYNC:
        event = sim_record_event(r, e->event, false);
        if (event) sim_after(after, event->done);
        break;
    case GPU_FREE:
        if (!e->pool) sim_after_device(r, after, e->device);
        break;
    case GPU_DEVICE_SYNC: sim_after_device(r, after, e->device); break;
    default: break;
    }
}

static uint64_t awaited_record(SimRecorder *r, const GpuLogEntry *e)
{
    const EventState *event = e->op == GPU_EVENT_SYNC ? sim_record_event(r, e->event, false) : NULL;
    return event ? event->entry : SIM_NO_ENTRY;
}

// A call that only orders others does not wait for receivers, nor does one on no stream.
static bool awaits_receivers(const GpuLogEntry *e)
{
    return e->op == GPU_KERNEL || e->op == GPU_BLAS || e->op == GPU_COPY || e->op == GPU_MEMSET;
}

void sim_record_entry(SimRecorder *r, const GpuLogEntry *e)
{
    ThreadState *t = sim_record_thread(r, e->thread);
    if (sim_record_is_query(e)) { // it has been answered, if that was possible
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
    sim_record_end_group(r, t, 0);
    Pending *p = sim_record_pend(r, e);
    if (awaits_receivers(e)) sim_record_before_operation(r, e);
    p->request = sim_record_request(r, t, e->device, sim_record_cost(r, e));
    bool only_host = is_plain(e) || e->op == GPU_STREAM_SYNC || e->op == GPU_EVENT_SYNC ||
                     e->op == GPU_DEVICE_SYNC;
    After *after = NULL;
    if (only_host) {
        after = sim_after_none(r, AFTER_STREAM);
        sim_after_wait(r, after, e);
        p->record = awaited_record(r, e);
    } else {
        p->done = queue(r, e, p->request, p);
        if (e->host_waits) sim_after(after = sim_after_none(r, AFTER_STREAM), p->done);
    }
    if (after) sim_record_wait(r, t, after);
    p->returned = t->clock;
}

void sim_record_forget_event(SimRecorder *r, cudaEvent_t handle)
{
    EventState *event = sim_record_event(r, handle, false);
    if (event) *event = (EventState){.handle = handle, .entry = SIM_NO_ENTRY};
}

void sim_record_forget_stream(SimRecorder *r, int device, uint32_t number)
{
    DeviceState *d = sim_record_device(r, device);
    for (int i = 0; i < d->n_streams; i++)
        if (!d->stream[i].legacy && d->stream[i].number == number) d->stream[i].blocking = false;
}

// ---- New and free ----

// The first thread may call from time 0 on.
SimRecorder *sim_recorder_new(const SimMachine *machine, const SimSpread *spread,
                              const SimBoard *board, int rank)
{
    SimRecorder *r = sim_table_grow(NULL, 1, sizeof *r);
    memset(r, 0, sizeof *r);
    r->machine = machine;
    if (spread) r->spread = *spread;
    r->rank = rank;
    r->engine = sim_engine_new(machine, board);
    ThreadState *first = sim_record_thread(r, 0);
    first->called = true;
    sim_engine_thread(r->engine, 0, 0);
    return r;
}

void sim_recorder_free(SimRecorder *r)
{
    for (int i = 0; i < AFTERS; i++) sim_table_free(r->after[i].item);
    for (int d = 0; d < r->n_devices; d++) sim_table_free(r->device[d].stream);
    for (int i = 0; i < r->n_threads; i++) sim_table_free(r->thread[i].group);
    sim_engine_free(r->engine);
    sim_table_free(r->device);
    sim_table_free(r->event);
    sim_table_free(r->thread);
    sim_table_free(r->comm);
    sim_table_free(r->pending);
    sim_table_free(r->pending_entry);
    sim_table_free(r);
}

SimEngine *sim_recorder_engine(SimRecorder *r)
{
    return r->engine;
}
