/* stream.c: streams, events, and the clocks that say what is ordered before what.
 *
 * An operation runs at its call, so a stream holds no work, only knowledge. Stream number s counts
 * its operations; a vector clock t says "the first t[s] operations of every stream s are done".
 * The clock of a stream says so for its next operation, an event's for whoever waits for it, the
 * host's for what the program knows. Operation a is ordered before b if b's clock covers a's
 * number (Fidge 1988, Mattern 1989). A wait joins clocks, element by element, by the larger.
 *
 * The default stream (NULL, cudaStreamLegacy) is ordered with every blocking stream of its device
 * both ways; streams made with cudaStreamNonBlocking are left out.
 *
 * A slot is used again after its stream is destroyed and goes on counting. So what follows in it
 * would count as ordered after what was before: therefore it is used again only when the host has
 * waited for that, unless there are very many.
 *
 * For the reports of races the last records and waits are kept in mind: they show which order the
 * program may have wanted.
 *
 * Interface: sim_stream_begin, sim_stream_place, sim_stream_ran, sim_stream_begun,
 * sim_stream_gather, sim_stream_spread, sim_stream_start, sim_stream_learn, sim_stream_merge,
 * sim_device_wait, sim_stream_reset, sim_stream_visit; sim_moment_hold, sim_moment_hold_host,
 * sim_moment_let_go, sim_stream_hint; the cudaStream* and cudaEvent* calls.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "check/check.h"
#include "memory/memory.h"
#include "report/report.h"
#include "streams/streams.h"

#define MAX_STREAMS 65536
#define MAX_EVENTS (1 << 20)
#define ENOUGH_STREAMS 1024 // from so many on, slots are used again at once
#define NOTES 512

// Handles are addresses in a reserved table, so that any wrong one is told from a right one without
// a look at what it points to.
struct CUstream_st {
    bool alive;
    bool is_default; // a device's NULL stream
    bool blocking;
    int device;
    int priority;
    unsigned flags;
    const void *site;      // who made it; NULL: simgpu itself
    const void *destroyed; // where; NULL: it is alive, or a reset did it
    int number;     // 1, 2 … of those that the program made; 0: the default or a thread's own
    uint32_t order; // of all streams and devices, as they were made
    SimVectorClock
        clock; // what is done before the stream's next operation; its own slot: its number so far
    SimVectorClock asked;           // about what a query was answered: not ready
    struct CUstream_st *next; // of the device, while alive; of the unused ones, after
};

struct CUevent_st {
    bool alive, recorded;
    int device;
    unsigned flags;
    const void *site, *destroyed;
    SimVectorClock clock;  // what is done when the event is
    uint64_t number; // tells events apart that have had the same handle
    SimStreamId recorded_on;
    const void *recorded_at; // call site
    bool asked;              // a query of this record was answered: not ready
    struct timespec when;
    struct CUevent_st *next; // of the unused ones
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *streams; // (MAX_STREAMS), by slot
static struct CUevent_st *events;   // (MAX_EVENTS)
static int n_streams, n_events;     // slots ever used
static struct {
    struct CUstream_st *first, *last;
} unused_streams;
static struct {
    struct CUevent_st *first, *last;
} unused_events;
static SimVectorClock host; // what the program has waited for
static int streams_made;
static uint64_t events_made;
static uint64_t order; // of all moments and notes
static struct {
    struct CUstream_st *streams; // alive, made by the program or by cudaStreamPerThread
    struct CUstream_st *null;    // the default stream, made when it is first used
    SimVectorClock destroyed;          // what streams that are destroyed had done
    SimVectorClock fence;              // what every stream waits for, also one that is made later
} devices[SIM_MAX_DEVICES];
static _Thread_local struct CUstream_st *per_thread[SIM_MAX_DEVICES];
SimUndone sim_undone;

// ---- Clocks ----

static void grow(SimVectorClock *clock, int n)
{
    uint64_t *t = realloc(clock->t, (size_t)n * sizeof *t);
    if (!t)
        sim_fatal(SIMGPU_SYSTEM, "the host ran out of memory", "A clock of %d streams did not fit.",
                  n);
    memset(t + clock->n, 0, (size_t)(n - clock->n) * sizeof *t);
    clock->t = t;
    clock->n = n;
}

static void join(SimVectorClock *into, const SimVectorClock *from)
{
    if (into->n < from->n) grow(into, from->n);
    for (int i = 0; i < from->n; i++)
        if (into->t[i] < from->t[i]) into->t[i] = from->t[i];
}

static void assign(SimVectorClock *into, const SimVectorClock *from)
{
    if (into->n < from->n) grow(into, from->n);
    if (from->n) memcpy(into->t, from->t, (size_t)from->n * sizeof *from->t);
    for (int i = from->n; i < into->n; i++) into->t[i] = 0;
}

static int slot_of(const struct CUstream_st *s)
{
    return (int)(s - streams);
}

// ---- Tables ----

static void *reserve(size_t bytes)
{
    void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED)
        sim_fatal(SIMGPU_SYSTEM, "simgpu could not be set up",
                  "%zu bytes for streams and events: no memory.", bytes);
    return table;
}

// Whether the host has waited for all that a stream did.
static bool is_waited_for(const struct CUstream_st *s)
{
    int slot = slot_of(s);
    return s->clock.t[slot] == 0 || (slot < host.n && host.t[slot] >= s->clock.t[slot]);
}

static struct CUstream_st *new_stream(int device, unsigned flags, int priority)
{
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
    s->is_default = false;
    s->blocking = !(flags & cudaStreamNonBlocking);
    s->device = device;
    s->flags = flags;
    s->site = s->destroyed = NULL;
    s->priority = priority;
    s->number = 0;
    if (s->asked.n) memset(s->asked.t, 0, (size_t)s->asked.n * sizeof *s->asked.t);
    s->order = sim_next_stream_number();
    s->next = NULL;
    if (s->clock.n <= slot_of(s)) grow(&s->clock, slot_of(s) + 1);
    uint64_t count = s->clock.t[slot_of(s)];
    memset(s->clock.t, 0, (size_t)s->clock.n * sizeof *s->clock.t);
    s->clock.t[slot_of(s)] = count;
    join(&s->clock, &devices[device].fence);
    return s;
}

static void link_stream(struct CUstream_st *s)
{
    s->next = devices[s->device].streams;
    devices[s->device].streams = s;
}

static struct CUstream_st *null_stream(int device)
{
    struct CUstream_st *s = devices[device].null;
    if (s) return s;
    s = new_stream(device, cudaStreamDefault, 0);
    if (!s) sim_fatal(SIMGPU_SYSTEM, "too many streams", "%d streams are alive.", MAX_STREAMS);
    s->is_default = true;
    s->order = sim_device(device)->stream_number;
    devices[device].null = s;
    return s;
}

static struct CUstream_st *thread_stream(int device)
{
    struct CUstream_st *s = per_thread[device];
    if (s && s->alive) return s;
    s = new_stream(device, cudaStreamDefault, 0);
    if (!s) sim_fatal(SIMGPU_SYSTEM, "too many streams", "%d streams are alive.", MAX_STREAMS);
    link_stream(s);
    per_thread[device] = s;
    return s;
}

// The stream of a handle, as seen from the current device; NULL: there is none.
static struct CUstream_st *find_stream(cudaStream_t handle)
{
    if (handle == NULL || handle == cudaStreamLegacy) return null_stream(sim_current_device());
    if (handle == cudaStreamPerThread) return thread_stream(sim_current_device());
    size_t distance = (size_t)((uintptr_t)handle - (uintptr_t)streams);
    if (!streams || distance >= (size_t)n_streams * sizeof *streams || distance % sizeof *streams)
        return NULL;
    return handle->alive ? handle : NULL;
}

static bool is_event(cudaEvent_t handle)
{
    size_t distance = (size_t)((uintptr_t)handle - (uintptr_t)events);
    return events && distance < (size_t)n_events * sizeof *events &&
           distance % sizeof *events == 0 && handle->alive;
}

// `destroyer` destroyed it at `destroyed`; NULL: it never was, or nobody knows.
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
               "passed over?",
               call, where, what, handle, fate);
    return sim_leave(cudaErrorInvalidResourceHandle);
}

static cudaError_t report_stream(const char *call, cudaStream_t stream, const void *site)
{
    size_t distance = (size_t)((uintptr_t)stream - (uintptr_t)streams);
    bool was = streams && distance < (size_t)n_streams * sizeof *streams &&
               distance % sizeof *streams == 0;
    return report_handle(call, "stream", stream, "cudaStreamDestroy",
                         was ? stream->destroyed : NULL, site);
}

static cudaError_t report_event(const char *call, cudaEvent_t event, const void *site)
{
    size_t distance = (size_t)((uintptr_t)event - (uintptr_t)events);
    bool was =
        events && distance < (size_t)n_events * sizeof *events && distance % sizeof *events == 0;
    return report_handle(call, "event", event, "cudaEventDestroy", was ? event->destroyed : NULL,
                         site);
}

// ---- What the program did about order ----

static SimStreamId id_of(const struct CUstream_st *s)
{
    return (SimStreamId){.slot = slot_of(s),
                         .device = s->device,
                         .number = s->number,
                         .is_default = s->is_default,
                         .blocking = s->blocking,
                         .made = s->site,
                         .name = sim_log_stream_name((cudaStream_t)s)};
}

// A record or a wait, as it was when it was called.
typedef struct Note {
    enum { NOTE_RECORD, NOTE_WAIT, NOTE_HOST_WAIT } kind;
    uint64_t order;
    uint64_t event;        // its number
    SimStreamId stream;    // that recorded, that waited, or that the host waited for
    bool recorded;         // a wait's event had been recorded:
    SimStreamId on;        // … on this stream,
    uint64_t upto;         // … after so many of its operations
    const void *site, *at; // of the call; of the record that a wait waited for
} Note;
static Note notes[NOTES];
static uint64_t n_notes;

static void take_note(Note note)
{
    if (sim_config()->check != CHECK_FULL) return;
    note.order = ++order;
    notes[n_notes++ % NOTES] = note;
}

// The note that is `back` notes old; NULL: none is so old.
static const Note *note_of(uint64_t back)
{
    return back < n_notes && back < NOTES ? &notes[(n_notes - 1 - back) % NOTES] : NULL;
}

static void note_wait(const struct CUstream_st *s, cudaEvent_t event, const void *site)
{
    int slot = event->recorded_on.slot;
    bool known = event->recorded && slot < event->clock.n;
    take_note((Note){.kind = NOTE_WAIT,
                     .event = event->number,
                     .stream = id_of(s),
                     .recorded = event->recorded,
                     .on = event->recorded_on,
                     .upto = known ? event->clock.t[slot] : 0,
                     .site = site,
                     .at = event->recorded_at});
}

// The first record after `since` that covers operation `time` of a slot.
static const Note *covering_record(int slot, uint64_t time, uint64_t since)
{
    const Note *first = NULL, *note;
    for (uint64_t back = 0; (note = note_of(back)) && note->order > since; back++)
        if (note->kind == NOTE_RECORD && note->stream.slot == slot && note->upto >= time)
            first = note;
    return first;
}

// The record of the wait's event that came next, if it covers operation `time` of a slot: the one
// that the wait may have been meant for.
static const Note *next_record(const Note *wait, int slot, uint64_t time)
{
    const Note *next = NULL, *note;
    for (uint64_t back = 0; (note = note_of(back)) && note->order > wait->order; back++)
        if (note->kind == NOTE_RECORD && note->event == wait->event) next = note;
    return next && next->stream.slot == slot && next->upto >= time ? next : NULL;
}

// What the second's stream waited for instead of the first: since then or, not `recent`, before.
static bool hint_of_waits(SimHint *hint, int slot, uint64_t time, uint64_t since, int second,
                          bool recent)
{
    const Note *w;
    for (uint64_t back = 0; (w = note_of(back)); back++) {
        if (w->kind != NOTE_WAIT || w->stream.slot != second || (w->order > since) != recent)
            continue;
        const Note *later = next_record(w, slot, time);
        *hint = (SimHint){HINT_NONE,
                          w->recorded ? w->at
                          : later     ? later->site
                                      : NULL,
                          w->site, w->on};
        if (!w->recorded && (later || recent))
            hint->kind = HINT_NEVER;
        else if (w->recorded && w->on.slot == slot && w->upto < time && (later || recent))
            hint->kind = later ? HINT_RENEWED : HINT_EARLY;
        else if (w->recorded && w->on.slot != slot && recent)
            hint->kind = HINT_ELSEWHERE;
        if (hint->kind == HINT_RENEWED) hint->record = later->site;
        if (hint->kind != HINT_NONE) return true;
    }
    return false;
}

// What became of the events that were recorded after the first.
static bool hint_of_records(SimHint *hint, int slot, uint64_t time, uint64_t since, int second)
{
    const Note *record = covering_record(slot, time, since), *w;
    if (!record) return false;
    *hint = (SimHint){.kind = HINT_NOT_WAITED, .record = record->site};
    for (uint64_t back = 0; (w = note_of(back)) && w->order > record->order; back++)
        if (w->kind == NOTE_WAIT && w->stream.slot != second && w->stream.slot != slot &&
            w->recorded && w->on.slot == slot && w->upto >= time)
            *hint = (SimHint){HINT_OTHER_WAITED, w->at, w->site, w->stream};
    return true;
}

static bool hint_of_host(SimHint *hint, uint64_t since)
{
    const Note *w;
    for (uint64_t back = 0; (w = note_of(back)) && w->order > since; back++) {
        if (w->kind != NOTE_HOST_WAIT) continue;
        *hint = (SimHint){HINT_HOST_ELSEWHERE, NULL, w->site, w->stream};
        return true;
    }
    return false;
}

SimHint sim_stream_hint(const SimStreamId *first, uint64_t time, uint64_t since,
                        const SimStreamId *second)
{
    SimHint hint = {.kind = HINT_NONE}, before;
    int slot = first->slot;
    pthread_mutex_lock(&lock);
    if (!hint_of_waits(&hint, slot, time, since, second->slot, true)) {
        bool recorded = hint_of_records(&hint, slot, time, since, second->slot);
        if ((!recorded || hint.kind == HINT_NOT_WAITED) &&
            hint_of_waits(&before, slot, time, since, second->slot, false))
            hint = before;
        else if (!recorded)
            hint_of_host(&hint, since);
    }
    pthread_mutex_unlock(&lock);
    return hint;
}

// ---- Operations ----

// Joins a clock with what is ordered before the stream's next operation.
static void join_before(const struct CUstream_st *s, SimVectorClock *clock)
{
    join(clock, &s->clock);
    join(clock, &host);
    if (s->is_default) {
        for (struct CUstream_st *o = devices[s->device].streams; o; o = o->next)
            if (o->blocking) join(clock, &o->clock);
    } else if (s->blocking && devices[s->device].null) {
        join(clock, &devices[s->device].null->clock);
    }
}

static void catch_up(struct CUstream_st *s)
{
    join_before(s, &s->clock);
}

// Waits for messages that are ordered before what the clock stands for; `tell` tells the virtual
// clock, and may be NULL. Called with the lock held, which it releases while it waits.
static void await_undone(const SimVectorClock *clock, void (*tell)(GpuLogEntry *), GpuLogEntry entry)
{
    SimVectorClock copy = {0, NULL};
    const char *call = entry.name;
    const void *site = entry.site;
    if (atomic_load(&sim_undone.n) == 0) return;
    assign(&copy, clock);
    pthread_mutex_unlock(&lock);
    if (tell) tell(&entry);
    void (*wait)(const SimVectorClock *, const char *, const void *) = atomic_load(&sim_undone.wait);
    wait(&copy, call, site);
    free(copy.t);
    pthread_mutex_lock(&lock);
}

// Whether the virtual clock finds a query too early. Called without the lock.
static bool is_unready(const SimVectorClock *clock, const GpuLogEntry *query, bool known)
{
    if (sim_clock_query(query, known)) return false;
    if (atomic_load(&sim_undone.n) > 0) {
        void (*check)(const SimVectorClock *, const char *, const void *) = atomic_load(&sim_undone.check);
        check(clock, query->name, query->site);
    }
    return true;
}

// What only hands the order on does not wait itself.
static bool only_orders(GpuOp op)
{
    return op == GPU_EVENT_RECORD || op == GPU_STREAM_WAIT || op == GPU_ALLOC || op == GPU_FREE;
}

static void host_joins(const SimVectorClock *clock)
{
    join(&host, clock);
    sim_pinned_deliver(&host);
}

// The handle as the log keeps it, by which the stream is found again: NULL for the default stream.
static void put_stream(GpuLogEntry *entry, struct CUstream_st *s)
{
    entry->device = s->device;
    entry->blocking_stream = s->blocking;
    entry->stream = s->is_default ? NULL : s;
    entry->stream_number = s->order;
}

cudaError_t sim_stream_begin(SimgpuOp *op)
{
    if (!sim_device(sim_current_device())) return sim_leave(cudaErrorInvalidDevice);
    pthread_mutex_lock(&lock);
    struct CUstream_st *s = find_stream(op->entry.stream);
    if (s) {
        put_stream(&op->entry, s);
        catch_up(s);
        if (!only_orders(op->entry.op))
            await_undone(&s->clock, sim_clock_before_operation, op->entry);
    }
    pthread_mutex_unlock(&lock);
    return s ? cudaSuccess : report_stream(op->entry.name, op->entry.stream, op->entry.site);
}

static struct CUstream_st *stream_of(const SimgpuOp *op)
{
    return op->entry.stream ? op->entry.stream : devices[op->entry.device].null;
}

void sim_stream_place(const SimgpuOp *op, int *slot, uint64_t *time)
{
    pthread_mutex_lock(&lock);
    struct CUstream_st *s = stream_of(op);
    *slot = slot_of(s);
    *time = s->clock.t[*slot] + 1;
    pthread_mutex_unlock(&lock);
}

void sim_stream_ran(SimgpuOp *op)
{
    pthread_mutex_lock(&lock);
    struct CUstream_st *s = stream_of(op);
    s->clock.t[slot_of(s)]++;
    if (op->entry.host_waits) host_joins(&s->clock);
    pthread_mutex_unlock(&lock);
}

void sim_stream_begun(const SimgpuOp *op)
{
    pthread_mutex_lock(&lock);
    host_joins(&stream_of(op)->clock);
    pthread_mutex_unlock(&lock);
}

void sim_moment_hold(const SimgpuOp *op, SimMoment *moment)
{
    pthread_mutex_lock(&lock);
    struct CUstream_st *s = stream_of(op);
    *moment = (SimMoment){id_of(s), s->clock.t[slot_of(s)] + 1, ++order, &s->clock};
}

void sim_moment_hold_host(SimMoment *moment)
{
    pthread_mutex_lock(&lock);
    *moment = (SimMoment){{.slot = SIM_HOST_SLOT}, 0, ++order, &host};
}

void sim_stream_start(const SimgpuOp *op, SimVectorClock *start, int *slot)
{
    pthread_mutex_lock(&lock);
    const struct CUstream_st *s = stream_of(op);
    *start = (SimVectorClock){0, NULL};
    assign(start, &s->clock);
    *slot = slot_of(s);
    pthread_mutex_unlock(&lock);
}

void sim_stream_learn(int slot, const SimVectorClock *clock)
{
    pthread_mutex_lock(&lock);
    join(&streams[slot].clock, clock);
    pthread_mutex_unlock(&lock);
}

static struct CUstream_st *find_stream_on(int device, cudaStream_t handle)
{
    if (handle == NULL || handle == cudaStreamLegacy) return null_stream(device);
    return handle == cudaStreamPerThread ? thread_stream(device) : find_stream(handle);
}

void sim_stream_foretell(int device, cudaStream_t handle, const char *call)
{
    if (atomic_load(&sim_undone.n) == 0) return;
    GpuLogEntry entry = {.name = call};
    pthread_mutex_lock(&lock);
    struct CUstream_st *s = find_stream_on(device, handle);
    if (s) put_stream(&entry, s);
    pthread_mutex_unlock(&lock);
    if (s) sim_clock_before_operation(&entry);
}

void sim_stream_merge(int device, cudaStream_t a, cudaStream_t b)
{
    cudaStream_t handle[2] = {a, b};
    struct CUstream_st *s[2];
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 2; i++) {
        s[i] = find_stream_on(device, handle[i]);
        if (s[i]) catch_up(s[i]);
    }
    if (s[0] && s[1]) {
        join(&s[0]->clock, &s[1]->clock);
        join(&s[1]->clock, &s[0]->clock);
    }
    pthread_mutex_unlock(&lock);
}

void sim_stream_gather(const SimgpuOp *op, int device)
{
    pthread_mutex_lock(&lock);
    SimVectorClock *clock = &stream_of(op)->clock;
    for (struct CUstream_st *s = devices[device].streams; s; s = s->next) join(clock, &s->clock);
    if (devices[device].null) join(clock, &devices[device].null->clock);
    join(clock, &devices[device].destroyed);
    await_undone(clock, NULL, op->entry);
    pthread_mutex_unlock(&lock);
}

void sim_stream_spread(const SimgpuOp *op, int device)
{
    pthread_mutex_lock(&lock);
    const SimVectorClock *clock = &stream_of(op)->clock;
    for (struct CUstream_st *s = devices[device].streams; s; s = s->next) join(&s->clock, clock);
    if (devices[device].null) join(&devices[device].null->clock, clock);
    join(&devices[device].fence, clock);
    pthread_mutex_unlock(&lock);
}

void sim_moment_let_go(void)
{
    pthread_mutex_unlock(&lock);
}

void sim_device_wait(int device, const char *call, const void *site)
{
    SimVectorClock all = {0, NULL};
    GpuLogEntry entry = {.op = GPU_DEVICE_SYNC, .name = call, .device = device, .site = site};
    pthread_mutex_lock(&lock);
    for (struct CUstream_st *s = devices[device].streams; s; s = s->next) join(&all, &s->clock);
    if (devices[device].null) join(&all, &devices[device].null->clock);
    join(&all, &devices[device].destroyed);
    await_undone(&all, sim_clock_before_wait, entry);
    host_joins(&all);
    pthread_mutex_unlock(&lock);
    free(all.t);
}

// ---- Streams ----

static cudaError_t create_stream(cudaStream_t *stream, unsigned flags, int priority,
                                 const void *site)
{
    if (!stream || (flags & ~(unsigned)cudaStreamNonBlocking))
        return sim_leave(cudaErrorInvalidValue);
    int device = sim_current_device();
    if (!sim_device(device)) return sim_leave(cudaErrorInvalidDevice);
    pthread_mutex_lock(&lock);
    struct CUstream_st *s = new_stream(device, flags, priority);
    if (s) link_stream(s);
    if (s) {
        sim_log_forget_stream(s); // a name that was given to the handle while it was nobody's
        s->site = site;
        s->number = ++streams_made;
    }
    pthread_mutex_unlock(&lock);
    if (!s) return sim_leave(cudaErrorMemoryAllocation);
    *stream = s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *pStream)
{
    SIM_ENTER();
    return create_stream(pStream, cudaStreamDefault, 0, SIM_SITE);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags)
{
    SIM_ENTER();
    return create_stream(pStream, flags, 0, SIM_SITE);
}

// As documented, a priority outside the range is brought to its nearest end.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags, int priority)
{
    SIM_ENTER();
    return create_stream(pStream, flags,
                         priority > 0    ? 0
                         : priority < -5 ? -5
                                         : priority,
                         SIM_SITE);
}

// Called with the lock held.
static void destroy(struct CUstream_st *s)
{
    struct CUstream_st **link = &devices[s->device].streams;
    while (*link && *link != s) link = &(*link)->next;
    if (*link) *link = s->next;
    if (devices[s->device].null == s) devices[s->device].null = NULL;
    join(&devices[s->device].destroyed, &s->clock);
    s->alive = false;
    s->next = NULL;
    sim_log_forget_stream(s);
    if (unused_streams.last)
        unused_streams.last->next = s;
    else
        unused_streams.first = s;
    unused_streams.last = s;
}

// What the stream still has to do is done all the same, as documented. Nobody can wait for it by
// its stream any more, but cudaDeviceSynchronize does.
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    SIM_ENTER();
    pthread_mutex_lock(&lock);
    struct CUstream_st *s = find_stream(stream);
    bool own = s && s == stream;
    int device = own ? s->device : 0;
    uint32_t number = own ? s->order : 0;
    if (own) destroy(s);
    if (own) s->destroyed = SIM_SITE;
    pthread_mutex_unlock(&lock);
    if (own) sim_clock_forget_stream(device, number);
    return own ? cudaSuccess : report_stream("cudaStreamDestroy", stream, SIM_SITE);
}

static uint64_t part_of(const SimVectorClock *clock, int slot)
{
    return slot < clock->n ? clock->t[slot] : 0;
}

// Whether the host has waited already for all that the clock covers.
static bool host_knows(const SimVectorClock *clock)
{
    for (int i = 0; i < clock->n; i++)
        if (clock->t[i] > part_of(&host, i)) return false;
    return true;
}

// Operations run at their call, so a query would find everything done. With the clock, its time
// decides (sim_clock_query). Without, the first one about what the host has not waited for says that
// it is not, as a GPU may, and orders nothing. `asked` is what that has been said about. Called with
// the lock held.
static bool is_early(const SimVectorClock *clock, const SimVectorClock *asked)
{
    if (sim_clock_on() || sim_config()->check == CHECK_OFF) return false;
    for (int i = 0; i < clock->n; i++)
        if (clock->t[i] > part_of(&host, i) && clock->t[i] > part_of(asked, i)) return true;
    return false;
}

// The stream does not catch up by it: what waits for the stream would be ordered by the question.
static bool is_stream_early(struct CUstream_st *s)
{
    SimVectorClock before = {0, NULL};
    join_before(s, &before);
    bool early = is_early(&before, &s->asked);
    if (early) join(&s->asked, &before);
    free(before.t);
    return early;
}

// Whether a query finds it too early for a stream, by the clock. False: there is no clock, or no such
// stream.
static bool is_stream_unready(GpuLogEntry entry, cudaStream_t stream)
{
    if (!sim_clock_on()) return false;
    pthread_mutex_lock(&lock);
    struct CUstream_st *s = find_stream(stream);
    SimVectorClock before = {0, NULL};
    bool known = false;
    if (s) {
        join_before(s, &before);
        known = host_knows(&before);
        put_stream(&entry, s);
    }
    pthread_mutex_unlock(&lock);
    bool unready = s && is_unready(&before, &entry, known);
    free(before.t);
    return unready;
}

// The host waits for a stream: cudaStreamSynchronize, and a query that finds it done.
static cudaError_t wait_for_stream(const char *call, cudaStream_t stream, bool query,
                                   const void *site)
{
    SIM_ENTER();
    if (!sim_device(sim_current_device())) return sim_leave(cudaErrorInvalidDevice);
    GpuLogEntry entry = {.op = GPU_STREAM_SYNC, .name = call, .host_waits = true, .site = site};
    if (query && is_stream_unready(entry, stream)) return sim_leave(cudaErrorNotReady);
    pthread_mutex_lock(&lock);
    struct CUstream_st *s = find_stream(stream);
    bool idle = false, early = false;
    if (s && query) early = is_stream_early(s);
    if (s && !early) {
        catch_up(s);
        idle = host_knows(&s->clock);
        put_stream(&entry, s);
        await_undone(&s->clock, sim_clock_before_wait, entry);
        host_joins(&s->clock);
        take_note((Note){.kind = NOTE_HOST_WAIT, .stream = id_of(s), .site = site});
    }
    pthread_mutex_unlock(&lock);
    if (!s) return report_stream(call, stream, site);
    if (early) return sim_leave(cudaErrorNotReady);
    for (const SimHooks *hooks = sim_hooks(); idle && hooks; hooks = hooks->next)
        if (hooks->idle_wait) hooks->idle_wait(call, stream, site);
    sim_clock_log(&entry);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return wait_for_stream("cudaStreamSynchronize", stream, false, SIM_SITE);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return wait_for_stream("cudaStreamQuery", stream, true, SIM_SITE);
}

// Copies what a query may tell of a stream; false: there is none.
static bool look_up(cudaStream_t handle, struct CUstream_st *seen)
{
    pthread_mutex_lock(&lock);
    struct CUstream_st *s = find_stream(handle);
    if (s) *seen = *s;
    pthread_mutex_unlock(&lock);
    return s != NULL;
}

cudaError_t cudaStreamGetFlags(cudaStream_t hStream, unsigned int *flags)
{
    SIM_ENTER();
    struct CUstream_st s;
    if (!flags) return sim_leave(cudaErrorInvalidValue);
    if (!look_up(hStream, &s)) return report_stream("cudaStreamGetFlags", hStream, SIM_SITE);
    *flags = s.flags;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t hStream, int *priority)
{
    SIM_ENTER();
    struct CUstream_st s;
    if (!priority) return sim_leave(cudaErrorInvalidValue);
    if (!look_up(hStream, &s)) return report_stream("cudaStreamGetPriority", hStream, SIM_SITE);
    *priority = s.priority;
    return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t hStream, int *device)
{
    SIM_ENTER();
    struct CUstream_st s;
    if (!device) return sim_leave(cudaErrorInvalidValue);
    if (!look_up(hStream, &s)) return report_stream("cudaStreamGetDevice", hStream, SIM_SITE);
    *device = s.device;
    return cudaSuccess;
}

// A function of the host after what its stream does. It runs now, and sees the pinned memory that
// the stream has filled before it.
static SimgpuOp begin_host_function(const char *name, cudaStream_t stream, const void *site)
{
    SimgpuOp op = sim_begin(GPU_KERNEL, name, stream, site);
    if (op.error != cudaSuccess) return op;
    pthread_mutex_lock(&lock);
    sim_pinned_deliver(&stream_of(&op)->clock);
    pthread_mutex_unlock(&lock);
    return op;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData)
{
    SIM_ENTER();
    if (!fn) return sim_leave(cudaErrorInvalidValue);
    SimgpuOp op = begin_host_function("cudaLaunchHostFunc", stream, SIM_SITE);
    if (op.error == cudaSuccess) fn(userData);
    return simgpu_end(&op);
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
                                  void *userData, unsigned int flags)
{
    SIM_ENTER();
    if (!callback || flags) return sim_leave(cudaErrorInvalidValue);
    SimgpuOp op = begin_host_function("cudaStreamAddCallback", stream, SIM_SITE);
    if (op.error == cudaSuccess) callback(stream, cudaSuccess, userData);
    return simgpu_end(&op);
}

// ---- Events ----

static cudaError_t create_event(cudaEvent_t *event, unsigned flags, const void *site)
{
    SIM_ENTER();
    unsigned known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    if (!event || (flags & ~known)) return sim_leave(cudaErrorInvalidValue);
    pthread_mutex_lock(&lock);
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
        e->number = ++events_made;
        e->device = sim_current_device();
        e->flags = flags;
        e->site = site;
        e->next = NULL;
    }
    pthread_mutex_unlock(&lock);
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

// Called with the lock held. The handle is used again as late as can be: the list is a queue.
static void destroy_event(struct CUevent_st *e)
{
    free(e->clock.t);
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

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    SIM_ENTER();
    pthread_mutex_lock(&lock);
    bool there = is_event(event);
    if (there) destroy_event(event);
    if (there) event->destroyed = SIM_SITE;
    pthread_mutex_unlock(&lock);
    return there ? cudaSuccess : report_event("cudaEventDestroy", event, SIM_SITE);
}

static cudaError_t record(const char *call, cudaEvent_t event, cudaStream_t stream,
                          const void *site)
{
    SimgpuOp op = sim_begin(GPU_EVENT_RECORD, call, stream, site);
    if (op.error != cudaSuccess) return simgpu_end(&op);
    pthread_mutex_lock(&lock);
    bool there = is_event(event);
    int device = there ? event->device : -1;
    if (device == op.entry.device) {
        assign(&event->clock, &stream_of(&op)->clock);
        event->recorded = true;
        event->asked = false;
        event->recorded_on = id_of(stream_of(&op));
        event->recorded_at = site;
        take_note((Note){.kind = NOTE_RECORD,
                         .event = event->number,
                         .stream = event->recorded_on,
                         .upto = event->clock.t[event->recorded_on.slot],
                         .site = site});
        clock_gettime(CLOCK_MONOTONIC, &event->when);
    }
    pthread_mutex_unlock(&lock);
    if (!there) return report_event(call, event, site);
    if (device != op.entry.device) {
        char where[256];
        gpulog_where(site, where, sizeof where);
        sim_facts_call(call, site, stream);
        sim_report(SIMGPU_POINTER, "an event recorded on another device's stream",
                   "%s, called at %s:\nthe event was made on device %d, the stream on device %d.\n"
                   "On a GPU this is an invalid resource handle, and nothing is recorded.\n"
                   "Was the event made while another device than the stream's was current?",
                   call, where, device, op.entry.device);
        op.error = cudaErrorInvalidResourceHandle;
    }
    op.entry.event = event;
    return simgpu_end(&op);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return record("cudaEventRecord", event, stream, SIM_SITE);
}

// The other flag, as cudaStreamWaitEvent's, is "invalid outside of stream capture" (CUDA Runtime API,
// event management), and simgpu has none.
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    if (flags != cudaEventRecordDefault) return sim_leave(cudaErrorInvalidValue);
    return record("cudaEventRecordWithFlags", event, stream, SIM_SITE);
}

// An event that was never recorded holds nobody up, as documented.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    SimgpuOp op = sim_begin(GPU_STREAM_WAIT, "cudaStreamWaitEvent", stream, SIM_SITE);
    if (op.error == cudaSuccess && flags != cudaEventWaitDefault) op.error = cudaErrorInvalidValue;
    if (op.error != cudaSuccess) return simgpu_end(&op);
    pthread_mutex_lock(&lock);
    bool there = is_event(event);
    if (there) note_wait(stream_of(&op), event, SIM_SITE);
    if (there && event->recorded) join(&stream_of(&op)->clock, &event->clock);
    pthread_mutex_unlock(&lock);
    if (!there) return report_event("cudaStreamWaitEvent", event, SIM_SITE);
    op.entry.event = event;
    return simgpu_end(&op);
}

static cudaError_t wait_for_event(const char *call, cudaEvent_t event, bool query, const void *site)
{
    SIM_ENTER();
    GpuLogEntry entry = {
        .op = GPU_EVENT_SYNC, .name = call, .event = event, .host_waits = true, .site = site};
    pthread_mutex_lock(&lock);
    bool there = is_event(event), early = false;
    if (there && query && sim_clock_on() && event->recorded) {
        SimVectorClock before = {0, NULL};
        bool known = host_knows(&event->clock);
        entry.device = event->device;
        assign(&before, &event->clock);
        pthread_mutex_unlock(&lock);
        bool unready = is_unready(&before, &entry, known);
        free(before.t);
        if (unready) return sim_leave(cudaErrorNotReady);
        pthread_mutex_lock(&lock);
        there = is_event(event);
    }
    if (there) {
        entry.device = event->device;
        early = query && event->recorded && !event->asked && is_early(&event->clock, &host);
        event->asked |= early;
        if (event->recorded && !early) await_undone(&event->clock, sim_clock_before_wait, entry);
        if (event->recorded && !early) host_joins(&event->clock);
    }
    pthread_mutex_unlock(&lock);
    if (!there) return report_event(call, event, site);
    if (early) return sim_leave(cudaErrorNotReady);
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

// Without the clock, operations run at their call: the time between two records is the time the host
// took.
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    SIM_ENTER();
    if (!ms) return sim_leave(cudaErrorInvalidValue);
    pthread_mutex_lock(&lock);
    bool right = is_event(start) && is_event(end) && start->recorded && end->recorded &&
                 !((start->flags | end->flags) & cudaEventDisableTiming) &&
                 start->device == end->device;
    if (right)
        *ms = (float)((double)(end->when.tv_sec - start->when.tv_sec) * 1e3 +
                      (double)(end->when.tv_nsec - start->when.tv_nsec) * 1e-6);
    bool known = right && host_knows(&start->clock) && host_knows(&end->clock);
    int device = right ? end->device : 0;
    pthread_mutex_unlock(&lock);
    if (right && sim_clock_on() && !sim_clock_elapsed(start, end, device, known, ms))
        return sim_leave(cudaErrorNotReady);
    return sim_leave(right ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

void sim_stream_reset(int device)
{
    pthread_mutex_lock(&lock);
    while (devices[device].streams) destroy(devices[device].streams);
    if (devices[device].null) destroy(devices[device].null);
    for (int i = 0; i < n_events; i++)
        if (events[i].alive && events[i].device == device) destroy_event(&events[i]);
    pthread_mutex_unlock(&lock);
}

void sim_stream_visit(SimLeaks *leaks)
{
    if (pthread_mutex_trylock(&lock)) return;
    for (int i = 0; i < n_streams; i++)
        if (streams[i].alive && streams[i].site)
            sim_leak_note(leaks, THING_STREAM, &streams[i], 0, streams[i].site);
    for (int i = 0; i < n_events; i++)
        if (events[i].alive) sim_leak_note(leaks, THING_EVENT, &events[i], 0, events[i].site);
    pthread_mutex_unlock(&lock);
}
