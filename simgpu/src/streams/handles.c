/* handles.c: the tables of streams and events, and their handles. See handles.h.
 *
 * A slot is reused after its stream is destroyed, and continues to count. So operations of the new
 * stream would count as ordered after those of the old one. Therefore a slot is reused only when
 * the host has waited for the old stream, unless there are very many streams.
 */
#define _GNU_SOURCE
#include "streams/handles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/error.h"
#include "core/leak.h"
#include "memory/device.h"
#include "report/hooks.h"
#include "report/report.h"
#include "time/time.h"

#define MAX_STREAMS 65536
#define MAX_EVENTS (1 << 20)
#define ENOUGH_STREAMS 1024 // from this number on, slots are reused at once

pthread_mutex_t sim_streams_lock = PTHREAD_MUTEX_INITIALIZER;
SimVectorClock sim_host_clock;
SimDeviceStreams sim_device_streams[SIM_MAX_DEVICES];
static struct CUstream_st *streams; // (MAX_STREAMS), by slot
static struct CUevent_st *events;   // (MAX_EVENTS)
static int n_streams, n_events;     // slots ever used
static struct {
    struct CUstream_st *first, *last;
} unused_streams;
static struct {
    struct CUevent_st *first, *last;
} unused_events;
static uint64_t events_made;
static _Thread_local struct CUstream_st *per_thread[SIM_MAX_DEVICES];

static void note_alive(SimLeaks *leaks)
{
    if (pthread_mutex_trylock(&sim_streams_lock)) return;
    for (int i = 0; i < n_streams; i++)
        if (streams[i].alive && streams[i].site)
            sim_leak_note(leaks, THING_STREAM, &streams[i], 0, streams[i].site);
    for (int i = 0; i < n_events; i++)
        if (events[i].alive && events[i].site)
            sim_leak_note(leaks, THING_EVENT, &events[i], 0, events[i].site);
    pthread_mutex_unlock(&sim_streams_lock);
}

static SimHooks hooks = {.visit = note_alive};

// ---- Streams ----

int sim_stream_slot(const struct CUstream_st *s)
{
    return (int)(s - streams);
}

static void *reserve(size_t bytes)
{
    void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED)
        sim_fatal(SIMGPU_SYSTEM, "simgpu could not be set up",
                  "%zu bytes for streams and events: no memory.", bytes);
    return table;
}

// Whether the host has waited for all operations of a stream.
static bool is_waited_for(const struct CUstream_st *s)
{
    int slot = sim_stream_slot(s);
    return sim_vector_clock_part(&sim_host_clock, slot) >= s->clock.t[slot];
}

struct CUstream_st *sim_stream_make(int device, unsigned flags, int priority)
{
    sim_hooks_add(&hooks);
    if (!streams) streams = reserve(MAX_STREAMS * sizeof *streams);
    struct CUstream_st *s = unused_streams.first;
    if (s && n_streams < ENOUGH_STREAMS && !is_waited_for(s)) s = NULL;
    if (s) {
        unused_streams.first = s->next;
        if (!s->next) unused_streams.last = NULL;
    } else if (n_streams < MAX_STREAMS) {
        s = &streams[n_streams++];
    } else {
        return NULL;
    }
    s->alive = true;
    s->is_default = s->branch = false;
    s->blocking = !(flags & cudaStreamNonBlocking);
    s->device = device;
    s->flags = flags;
    s->site = s->destroyed = NULL;
    s->priority = priority;
    s->number = 0;
    s->capture = NULL;
    if (s->asked.n) memset(s->asked.t, 0, (size_t)s->asked.n * sizeof *s->asked.t);
    s->order = sim_next_stream_number();
    s->next = NULL;
    if (s->clock.n <= sim_stream_slot(s)) sim_vector_clock_grow(&s->clock, sim_stream_slot(s) + 1);
    uint64_t count = s->clock.t[sim_stream_slot(s)];
    memset(s->clock.t, 0, (size_t)s->clock.n * sizeof *s->clock.t);
    s->clock.t[sim_stream_slot(s)] = count;
    sim_vector_clock_join(&s->clock, &sim_device_streams[device].fence);
    return s;
}

void sim_stream_link(struct CUstream_st *s)
{
    s->next = sim_device_streams[s->device].streams;
    sim_device_streams[s->device].streams = s;
}

static struct CUstream_st *null_stream(int device)
{
    struct CUstream_st *s = sim_device_streams[device].null;
    if (s) return s;
    s = sim_stream_make(device, cudaStreamDefault, 0);
    if (!s) sim_fatal(SIMGPU_SYSTEM, "too many streams", "%d streams are alive.", MAX_STREAMS);
    s->is_default = true;
    s->order = sim_device(device)->stream_number;
    sim_device_streams[device].null = s;
    return s;
}

static struct CUstream_st *thread_stream(int device)
{
    struct CUstream_st *s = per_thread[device];
    if (s && s->alive) return s;
    s = sim_stream_make(device, cudaStreamDefault, 0);
    if (!s) sim_fatal(SIMGPU_SYSTEM, "too many streams", "%d streams are alive.", MAX_STREAMS);
    sim_stream_link(s);
    per_thread[device] = s;
    return s;
}

struct CUstream_st *sim_stream_of_handle(cudaStream_t handle)
{
    if (handle == NULL || handle == cudaStreamLegacy) return null_stream(sim_current_device());
    if (handle == cudaStreamPerThread) return thread_stream(sim_current_device());
    size_t distance = (size_t)((uintptr_t)handle - (uintptr_t)streams);
    if (!streams || distance >= (size_t)n_streams * sizeof *streams || distance % sizeof *streams)
        return NULL;
    return handle->alive ? handle : NULL;
}

struct CUstream_st *sim_stream_on(int device, cudaStream_t handle)
{
    if (handle == NULL || handle == cudaStreamLegacy) return null_stream(device);
    return handle == cudaStreamPerThread ? thread_stream(device) : sim_stream_of_handle(handle);
}

struct CUstream_st *sim_stream_of_op(const SimgpuOp *op)
{
    return op->entry.stream ? op->entry.stream : sim_device_streams[op->entry.device].null;
}

struct CUstream_st *sim_stream_in_slot(int slot)
{
    return &streams[slot];
}

SimStreamId sim_stream_id(const struct CUstream_st *s)
{
    return (SimStreamId){.slot = sim_stream_slot(s),
                         .device = s->device,
                         .number = s->number,
                         .is_default = s->is_default,
                         .branch = s->branch,
                         .blocking = s->blocking,
                         .made = s->site,
                         .name = gpulog_name_of_stream((cudaStream_t)s)};
}

void sim_stream_end(struct CUstream_st *s)
{
    struct CUstream_st **link = &sim_device_streams[s->device].streams;
    while (*link && *link != s) link = &(*link)->next;
    if (*link) *link = s->next;
    if (sim_device_streams[s->device].null == s) sim_device_streams[s->device].null = NULL;
    sim_vector_clock_join(&sim_device_streams[s->device].destroyed, &s->clock);
    s->alive = false;
    s->next = NULL;
    gpulog_forget_stream(s);
    if (unused_streams.last)
        unused_streams.last->next = s;
    else
        unused_streams.first = s;
    unused_streams.last = s;
}

// ---- Events ----

bool sim_is_event(cudaEvent_t handle)
{
    size_t distance = (size_t)((uintptr_t)handle - (uintptr_t)events);
    return events && distance < (size_t)n_events * sizeof *events &&
           distance % sizeof *events == 0 && handle->alive;
}

struct CUevent_st *sim_event_make(unsigned flags, const void *site)
{
    sim_hooks_add(&hooks);
    if (!events) events = reserve(MAX_EVENTS * sizeof *events);
    struct CUevent_st *e = unused_events.first;
    if (e) {
        unused_events.first = e->next;
        if (!e->next) unused_events.last = NULL;
    } else if (n_events < MAX_EVENTS) {
        e = &events[n_events++];
    }
    if (e) {
        e->alive = true;
        e->recorded = false;
        e->captured = 0;
        e->number = ++events_made;
        e->device = sim_current_device();
        e->flags = flags;
        e->site = site;
        e->next = NULL;
    }
    return e;
}

// A handle is reused as late as possible: the list is a queue.
void sim_event_end(struct CUevent_st *e)
{
    free(e->clock.t);
    free(e->nodes.node);
    e->nodes = (SimNodes){NULL, 0, 0};
    e->clock = (SimVectorClock){0, NULL};
    e->alive = false;
    sim_clock_forget_event(e);
    e->destroyed = NULL;
    e->next = NULL;
    if (unused_events.last)
        unused_events.last->next = e;
    else
        unused_events.first = e;
    unused_events.last = e;
}

void sim_stream_reset(int device)
{
    pthread_mutex_lock(&sim_streams_lock);
    while (sim_device_streams[device].streams) sim_stream_end(sim_device_streams[device].streams);
    if (sim_device_streams[device].null) sim_stream_end(sim_device_streams[device].null);
    for (int i = 0; i < n_events; i++)
        if (events[i].alive && events[i].device == device) sim_event_end(&events[i]);
    pthread_mutex_unlock(&sim_streams_lock);
}

// ---- Invalid handles ----

// `destroyer` destroyed it at `destroyed`; NULL: it never existed, or that is not known.
static cudaError_t report_handle(const char *call, const char *what, const void *handle,
                                 const char *destroyer, const void *destroyed, const void *site)
{
    char where[256], end[256], fate[300] = "was never made or is destroyed", title[64];
    gpulog_where(site, where, sizeof where);
    gpulog_where(destroyed, end, sizeof end);
    if (destroyed) snprintf(fate, sizeof fate, "%s destroyed at\n%s", destroyer, end);
    snprintf(title, sizeof title, "there is no such %s", what);
    sim_facts_call(call, site, SIM_NO_STREAM);
    if (destroyed) sim_facts_call(destroyer, destroyed, SIM_NO_STREAM);
    sim_report(SIMGPU_LIFETIME, title,
               "%s, called at %s,\nwas given the %s %p, which %s.\n"
               "On a GPU this is an invalid resource handle, or a crash inside the driver.\n"
               "Is it destroyed before its last use, or was its creation skipped, or its error\n"
               "ignored?",
               call, where, what, handle, fate);
    return sim_leave(cudaErrorInvalidResourceHandle);
}

cudaError_t sim_report_stream(const char *call, cudaStream_t stream, const void *site)
{
    size_t distance = (size_t)((uintptr_t)stream - (uintptr_t)streams);
    bool was = streams && distance < (size_t)n_streams * sizeof *streams &&
               distance % sizeof *streams == 0;
    return report_handle(call, "stream", stream, "cudaStreamDestroy",
                         was ? stream->destroyed : NULL, site);
}

cudaError_t sim_report_event(const char *call, cudaEvent_t event, const void *site)
{
    size_t distance = (size_t)((uintptr_t)event - (uintptr_t)events);
    bool was =
        events && distance < (size_t)n_events * sizeof *events && distance % sizeof *events == 0;
    return report_handle(call, "event", event, "cudaEventDestroy", was ? event->destroyed : NULL,
                         site);
}
