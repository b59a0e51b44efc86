/* time/trace.c: draws the spans of the clock.
 *
 * A process of the trace is a device of this process: a rank. It has a track for each host thread
 * that made calls, with NVTX's ranges around them, one for each stream, and counters of memory. A
 * stream's track has its operations; of a collective, its wait for the other ranks and its
 * transfer; and its waits for events. Arrows lead from the record of an event to what waited for
 * it, and between the ranks of a collective. Operations of a stream that overlap (messages of a
 * group) get one more track, because the slices of a track must nest.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/config.h"
#include "log_writer.h"
#include "machine/figures.h"
#include "report/hooks.h"
#include "report/report.h"
#include "time/ranges.h"
#include "time/trace_file.h"
#include "time/trace_memory.h"

#define TRACKS 2048
#define RECORDS 65536 // records of events that a later wait may need
#define STREAM_TID 1000

typedef struct Lane {
    bool host;
    int device, number; // of the thread or the stream
    int lane;
    SimPs last;            // the end of its last slice
    const SimScope *scope; // of a host thread: the range that is drawn, and not ended yet
    TraceTrack track;
} Lane;

typedef struct EventRecord {
    uint64_t index; // plus 1: 0 is none
    const Lane *lane;
    SimPs at;
    const void *site;
} EventRecord;

static struct {
    const SimMachine *machine;
    const TraceFormat *format;
    pthread_mutex_t lock; // for a process that ends meanwhile
    bool on;
    int rank[GPULOG_DEVICES];  // plus 1
    bool seen[GPULOG_DEVICES]; // it has a track
    bool named[GPULOG_DEVICES];
    int n_lanes;
    Lane lane[TRACKS];
    EventRecord record[RECORDS];
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_drawn(int device)
{
    return device >= 0 && device < GPULOG_DEVICES;
}

// ---- Tracks ----

static uint32_t pid_of(int device)
{
    return (uint32_t)getpid() | (uint32_t)device << 22;
}

static uint64_t uuid_of(int device, uint32_t tid)
{
    return (uint64_t)pid_of(device) << 32 | tid;
}

static void put(uint64_t ns, int device, const TraceBuffer *b)
{
    sim_trace_file_put(ns, (unsigned)trace.rank[device], b);
}

static void declare(int device, const TraceTrack *track)
{
    TraceBuffer b;
    b.used = 0;
    b.full = false;
    trace.format->track(&b, track);
    sim_trace_file_put(0, 0, &b);
}

// Names the process; before its rank is known only with `now`.
static void name_process(int device, bool now)
{
    TraceTrack track = {.kind = TRACE_PROCESS, .uuid = uuid_of(device, 0), .pid = pid_of(device)};
    if (trace.named[device] || (!trace.rank[device] && !now)) return;
    trace.named[device] = true;
    if (trace.rank[device])
        snprintf(track.name, sizeof track.name, "rank %d", trace.rank[device] - 1);
    else
        snprintf(track.name, sizeof track.name, "device %d", device);
    declare(device, &track);
}

static void name_lane(Lane *l, const GpuLogEntry *e)
{
    char name[64];
    const char *given = l->host ? NULL : gpulog_name_of_entrys_stream(e);
    if (l->host && l->number == 0)
        snprintf(name, sizeof name, "host");
    else if (l->host)
        snprintf(name, sizeof name, "host, thread %d", l->number);
    else if (given)
        snprintf(name, sizeof name, "%.60s", given);
    else if (!e->stream || e->stream == cudaStreamLegacy)
        snprintf(name, sizeof name, "default stream");
    else
        snprintf(name, sizeof name, "stream %d", l->number);
    if (l->lane > 0)
        snprintf(l->track.name, sizeof l->track.name, "%s (%d)", name, l->lane + 1);
    else
        snprintf(l->track.name, sizeof l->track.name, "%s", name);
}

static Lane *new_lane(const GpuLogEntry *e, bool host, int number, int lane)
{
    if (trace.n_lanes == TRACKS) return NULL;
    Lane *l = &trace.lane[trace.n_lanes++];
    *l = (Lane){.host = host, .device = e->device, .number = number, .lane = lane};
    l->track.kind = TRACE_THREAD;
    l->track.pid = pid_of(e->device);
    l->track.tid = host ? 1 + (uint32_t)number : STREAM_TID + (uint32_t)(number * 16 + lane);
    l->track.uuid = uuid_of(e->device, l->track.tid);
    l->track.parent = uuid_of(e->device, 0);
    name_lane(l, e);
    declare(e->device, &l->track);
    trace.seen[e->device] = true;
    return l;
}

// The first track of the thread or stream without a slice at `from`. *last: the end of the last
// slice on any of its tracks.
static Lane *lane_of(const GpuLogEntry *e, bool host, SimPs from, SimPs *last)
{
    int number = host ? e->thread : (int)e->stream_number, lanes = 0;
    Lane *free = NULL;
    *last = 0;
    for (int i = 0; i < trace.n_lanes; i++) {
        Lane *l = &trace.lane[i];
        if (l->host != host || l->device != e->device || l->number != number) continue;
        lanes++;
        if (!free && l->last <= from) free = l;
        if (l->last > *last) *last = l->last;
    }
    return free ? free : new_lane(e, host, number, lanes);
}

// ---- Events ----

static void emit(void (*format)(TraceBuffer *, const TraceEvent *), const TraceEvent *event,
                 int device)
{
    TraceBuffer b;
    b.used = 0;
    b.full = false;
    format(&b, event);
    put(event->ns, device, &b);
}

static void note_text(TraceEvent *e, const char *name, const char *text)
{
    if (e->n_notes < TRACE_NOTES)
        e->note[e->n_notes++] = (TraceNote){.name = name, .kind = TRACE_TEXT, .text = text};
}
static void note_count(TraceEvent *e, const char *name, uint64_t count)
{
    if (e->n_notes < TRACE_NOTES)
        e->note[e->n_notes++] = (TraceNote){.name = name, .kind = TRACE_COUNT, .count = count};
}
static void note_real(TraceEvent *e, const char *name, double real)
{
    if (e->n_notes < TRACE_NOTES)
        e->note[e->n_notes++] = (TraceNote){.name = name, .kind = TRACE_REAL, .real = real};
}

static void begin(const Lane *l, TraceEvent *e, SimPs at)
{
    e->track = &l->track;
    e->ns = at / 1000;
    emit(trace.format->begin, e, l->device);
}

static void end(Lane *l, SimPs at)
{
    TraceEvent e = {.track = &l->track, .ns = at / 1000};
    emit(trace.format->end, &e, l->device);
    if (at > l->last) l->last = at;
}

static void point(const Lane *l, const char *name, SimPs at, TraceFlow flow, uint64_t flow_id,
                  const char *where)
{
    TraceEvent e = {.track = &l->track,
                    .ns = at / 1000,
                    .name = name,
                    .category = "event",
                    .flow = flow,
                    .flow_id = flow_id};
    if (where) note_text(&e, "call site", where);
    emit(trace.format->point, &e, l->device);
}

// ---- Arrows ----

static uint64_t mixed(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

// An id that all ranks of a call have, and no other call.
static uint64_t collective_flow(const GpuLogEntry *e)
{
    const GpuCollective *c = &e->collective;
    uint64_t hash = mixed(mixed(1, c->comm), c->call);
    if (c->peer >= 0) {
        bool sends = e->op == GPU_SEND;
        hash = mixed(mixed(hash, 1 + (uint64_t)(sends ? c->rank : c->peer)),
                     1 + (uint64_t)(sends ? c->peer : c->rank));
    }
    return hash | 1;
}

static TraceFlow collective_role(const GpuLogEntry *e)
{
    const GpuCollective *c = &e->collective;
    if (e->op == GPU_SEND) return TRACE_FLOW_STARTS;
    if (e->op == GPU_RECV) return TRACE_FLOW_ENDS;
    return c->rank == 0              ? TRACE_FLOW_STARTS
           : c->rank == c->ranks - 1 ? TRACE_FLOW_ENDS
                                     : TRACE_FLOW_GOES_ON;
}

// The record of a wait, with the beginning of its arrow drawn; NULL: not known.
static const EventRecord *arrow_from(const SimSpan *span, uint64_t *id)
{
    if (span->record == SIM_NO_ENTRY) return NULL;
    const EventRecord *r = &trace.record[span->record % RECORDS];
    char where[256];
    if (r->index != span->record + 1) return NULL;
    *id = mixed(mixed(mixed(2, (uint64_t)getpid()), span->record), span->entry->index) << 1;
    if (!*id) return NULL;
    gpulog_where(r->site, where, sizeof where);
    point(r->lane, "event record", r->at, TRACE_FLOW_STARTS, *id, where);
    return r;
}

// ---- Operations ----

static void note_rates(TraceEvent *e, const SimSpan *span)
{
    const GpuLogEntry *entry = span->entry;
    double seconds = (double)(span->end - span->start) / 1e12, flops = (double)entry->flops;
    const SimFigures *f = trace.machine->figures;
    uint64_t bytes = 0;
    for (int i = 0; i < entry->n_ranges; i++)
        bytes += entry->range[i].bytes * (entry->range[i].access == GPU_UPDATE ? 2 : 1);
    const GpuProduct *p = &entry->product;
    if (p->batch)
        flops = 2.0 * (double)p->rows * (double)p->cols * (double)p->inner * (double)p->batch;
    bool copies = entry->op == GPU_COPY && entry->to != entry->from;
    if (copies) bytes = entry->bytes;
    note_count(e, "bytes", bytes);
    if (seconds <= 0) return;
    SimLink link =
        entry->to >= 0 && entry->from >= 0 && f->link[SIM_NVLINK] > 0 ? SIM_NVLINK : SIM_PCIE;
    note_real(e, "achieved GB/s", (double)bytes / seconds / 1e9);
    note_real(e, "ideal GB/s", (copies ? f->link[link] : f->hbm) / 1e9);
    if (flops <= 0) return;
    note_real(e, "achieved TFLOP/s", flops / seconds / 1e12);
    note_real(e, "ideal TFLOP/s", trace.machine->peak[entry->type] / 1e12);
}

// Of a node: the number of the launch that made it.
static void note_launch(TraceEvent *e, const SimSpan *span)
{
    if (span->entry->launch) note_count(e, "graph launch", span->entry->launch);
}

static void draw_operation(const SimSpan *span, const char *where)
{
    SimPs last;
    Lane *l = lane_of(span->entry, false, span->start, &last);
    TraceEvent e = {.name = span->entry->name, .category = gpulog_op_name(span->entry->op)};
    if (!l) return;
    note_text(&e, "call site", where);
    note_launch(&e, span);
    note_rates(&e, span);
    begin(l, &e, span->start);
    end(l, span->end);
}

// Bus bandwidth as in nccl-tests, from the arrival of the last rank on.
static void draw_collective(const SimSpan *span, const char *where)
{
    const GpuLogEntry *entry = span->entry;
    SimPs last, all_there = span->start - span->cost->latency;
    char algorithm[64];
    Lane *l = lane_of(entry, false, span->ready, &last);
    TraceEvent e = {.name = entry->name, .category = gpulog_op_name(entry->op)};
    if (!l) return;
    snprintf(algorithm, sizeof algorithm, "%s%s%s", span->cost->algorithm,
             *span->cost->protocol ? ", " : "", span->cost->protocol);
    size_t moved = entry->op == GPU_RECV ? entry->bytes : entry->sent;
    note_text(&e, "call site", where);
    note_launch(&e, span);
    note_count(&e, "bytes", entry->bytes);
    note_text(&e, "algorithm", algorithm);
    note_real(&e, "achieved GB/s", (double)moved * 1e3 / (double)(span->end - all_there));
    note_real(&e, "ideal GB/s", span->cost->ideal / 1e9);
    begin(l, &e, span->ready);
    if (all_there > span->ready) {
        TraceEvent waits = {.name = "waits for other ranks", .category = "wait"};
        begin(l, &waits, span->ready);
        end(l, all_there);
    }
    TraceEvent transfer = {.name = "transfer",
                           .category = "transfer",
                           .flow = collective_role(entry),
                           .flow_id = collective_flow(entry)};
    begin(l, &transfer, span->start);
    end(l, span->end);
    end(l, span->end);
}

static void draw_record(const SimSpan *span)
{
    SimPs last;
    Lane *l = lane_of(span->entry, false, span->end, &last);
    uint64_t index = span->entry->index;
    if (l)
        trace.record[index % RECORDS] = (EventRecord){index + 1, l, span->end, span->entry->site};
}

// Draws a wait of a stream: as long as nothing else delays it, and for what.
static void draw_stream_wait(const SimSpan *span, const char *where)
{
    SimPs last, from;
    uint64_t id;
    lane_of(span->entry, false, span->end, &last);
    from = last > span->queued ? last : span->queued;
    if (from > span->end) from = span->end;
    Lane *l = lane_of(span->entry, false, from, &last);
    TraceEvent e = {.name = "wait for event", .category = "wait"};
    if (!l) return;
    bool slice = span->end / 1000 > from / 1000, arrow = arrow_from(span, &id) != NULL;
    note_text(&e, "call site", where);
    if (slice) begin(l, &e, from);
    if (arrow) point(l, "event", span->end, TRACE_FLOW_ENDS, id, where);
    if (slice) end(l, span->end);
}

// Ends NVTX's open ranges of a thread, except those in which the call at `from` is, too.
static void end_scopes(Lane *l, const SimScope *until)
{
    while (l->scope && (!until || l->scope != until)) {
        const SimScope *in = until;
        while (in && in->depth > l->scope->depth) in = in->outer;
        if (in == l->scope) return;
        end(l, l->last);
        l->scope = l->scope->outer;
    }
}

// Begins ranges from the outermost on, with the first call in them.
static void begin_scopes(Lane *l, const SimScope *scope, SimPs from)
{
    TraceEvent e = {.name = scope ? scope->name : "", .category = "nvtx"};
    if (!scope || scope == l->scope) return;
    begin_scopes(l, scope->outer, from);
    begin(l, &e, from);
    l->scope = scope;
}

static void draw_call(const SimSpan *span, const char *where)
{
    SimPs last;
    uint64_t id;
    Lane *l = lane_of(span->entry, true, span->called, &last);
    TraceEvent e = {.name = span->entry->name, .category = "host"};
    if (!l) return;
    end_scopes(l, span->entry->scope);
    begin_scopes(l, span->entry->scope, span->called);
    note_text(&e, "call site", where);
    begin(l, &e, span->called);
    if (span->entry->op == GPU_EVENT_SYNC) {
        const EventRecord *r = arrow_from(span, &id);
        SimPs at = r && r->at > span->called ? r->at : span->called;
        if (r)
            point(l, "event", at < span->returned ? at : span->returned, TRACE_FLOW_ENDS, id,
                  where);
    }
    end(l, span->returned);
}

static void draw(const SimSpan *span)
{
    const GpuLogEntry *e = span->entry;
    char where[256];
    if (!is_drawn(e->device)) return;
    if (span->rank >= 0) trace.rank[e->device] = span->rank + 1;
    name_process(e->device, false);
    gpulog_where(e->site, where, sizeof where);
    if (!e->launch || e->op == GPU_GRAPH_LAUNCH) draw_call(span, where);
    switch (e->op) {
    case GPU_ALLOC:
    case GPU_FREE:
    case GPU_STREAM_SYNC:
    case GPU_EVENT_SYNC:
    case GPU_DEVICE_SYNC: sim_trace_memory_span(span); break;
    case GPU_GRAPH_LAUNCH: break; // its nodes are drawn
    case GPU_EVENT_RECORD: draw_record(span); break;
    case GPU_STREAM_WAIT: draw_stream_wait(span, where); break;
    default:
        if (span->cost)
            draw_collective(span, where);
        else
            draw_operation(span, where);
    }
}

// ---- The file ----

static void count(int device, int counter, uint64_t ns, uint64_t bytes)
{
    if (!is_drawn(device)) return;
    TraceTrack track = {.kind = TRACE_COUNTER, .pid = pid_of(device)};
    TraceBuffer b;
    b.used = 0;
    b.full = false;
    track.uuid = uuid_of(device, 0x80000000u | (uint32_t)counter);
    track.parent = uuid_of(device, 0);
    snprintf(track.name, sizeof track.name, "memory: %s",
             counter == TRACE_ALLOCATED  ? "allocated"
             : counter == TRACE_RESERVED ? "reserved"
                                         : gpulog_category_name((GpuCategory)counter));
    static uint32_t declared[GPULOG_DEVICES];
    if (!(declared[device] & 1u << counter)) declare(device, &track);
    declared[device] |= 1u << counter;
    trace.format->counter(&b, &track, ns, bytes);
    put(ns, device, &b);
    trace.seen[device] = true;
}

static void finish(void)
{
    char error[400];
    for (int i = 0; i < trace.n_lanes; i++) end_scopes(&trace.lane[i], NULL);
    trace.on = false;
    sim_trace_memory_tell(count);
    for (int d = 0; d < GPULOG_DEVICES; d++)
        if (trace.seen[d]) name_process(d, true);
    if (!sim_trace_file_close(error, sizeof error)) sim_report(SIMGPU_SYSTEM, error, "%s", "");
}

// A report ends the process: writes what is known, unless it is being written already.
static void finish_dying(void)
{
    if (pthread_mutex_trylock(&trace.lock) != 0) return;
    if (trace.on) finish();
}
static SimHooks hooks = {.fatal = finish_dying};

void sim_trace_span(const SimSpan *span, void *arg)
{
    pthread_mutex_lock(&trace.lock);
    if (trace.on && span) draw(span);
    if (trace.on && !span) finish();
    pthread_mutex_unlock(&trace.lock);
}

bool sim_trace_begin(const SimMachine *machine)
{
    const char *path = getenv("SIMGPU_TRACE");
    char error[400];
    if (!path || !*path) return false;
    if (!machine)
        sim_fatal(SIMGPU_SYSTEM, "SIMGPU_TRACE is set, but SIMGPU_MACHINE=none turns the clock off",
                  "%s", "");
    size_t n = strlen(path);
    trace.machine = machine;
    trace.format = n > 5 && strcmp(path + n - 5, ".json") == 0 ? &sim_trace_json : &sim_trace_proto;
    if (!sim_trace_file_open(path, trace.format, error, sizeof error))
        sim_fatal(SIMGPU_SYSTEM, error, "%s", "");
    trace.on = true;
    sim_hooks_add(&hooks);
    return true;
}
