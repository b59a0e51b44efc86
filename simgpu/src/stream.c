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
 * A slot is used again after its stream is destroyed and goes on counting, so what follows in it
 * counts as later than what was before.
 *
 * Interface: sim_stream_begin, sim_stream_place, sim_stream_ran, sim_device_wait,
 * sim_stream_reset; the cudaStream* and cudaEvent* calls.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "internal.h"

#define MAX_STREAMS 65536
#define MAX_EVENTS (1 << 20)

// Handles are addresses in a reserved table, so that any wrong one is told from a right one without
// a look at what it points to.
struct CUstream_st {
    bool alive;
    bool is_default; // a device's NULL stream
    bool blocking;
    int device;
    int priority;
    unsigned flags;
    SimClock
        clock; // what is done before the stream's next operation; its own slot: its number so far
    struct CUstream_st *next; // of the device, while alive; of the unused ones, after
};

struct CUevent_st {
    bool alive, recorded;
    int device;
    unsigned flags;
    SimClock clock; // what is done when the event is
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
static SimClock host; // what the program has waited for
static struct {
    struct CUstream_st *streams; // alive, made by the program or by cudaStreamPerThread
    struct CUstream_st *null;    // the default stream, made when it is first used
    SimClock destroyed;          // what streams that are destroyed had done
} devices[SIM_MAX_DEVICES];
static _Thread_local struct CUstream_st *per_thread[SIM_MAX_DEVICES];

// ---- Clocks ----

static void grow(SimClock *clock, int n)
{
    uint64_t *t = realloc(clock->t, (size_t)n * sizeof *t);
    if (!t)
        sim_fatal(SIMGPU_SYSTEM, "the host ran out of memory", "A clock of %d streams did not fit.",
                  n);
    memset(t + clock->n, 0, (size_t)(n - clock->n) * sizeof *t);
    clock->t = t;
    clock->n = n;
}

static void join(SimClock *into, const SimClock *from)
{
    if (into->n < from->n) grow(into, from->n);
    for (int i = 0; i < from->n; i++)
        if (into->t[i] < from->t[i]) into->t[i] = from->t[i];
}

static void assign(SimClock *into, const SimClock *from)
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

static struct CUstream_st *new_stream(int device, unsigned flags, int priority)
{
    if (!streams) streams = reserve(MAX_STREAMS * sizeof *streams);
    struct CUstream_st *s = unused_streams.first;
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
    s->priority = priority;
    s->next = NULL;
    if (s->clock.n <= slot_of(s)) grow(&s->clock, slot_of(s) + 1);
    uint64_t count = s->clock.t[slot_of(s)];
    memset(s->clock.t, 0, (size_t)s->clock.n * sizeof *s->clock.t);
    s->clock.t[slot_of(s)] = count;
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

static cudaError_t report_stream(const char *call, cudaStream_t stream, const void *site)
{
    char where[256];
    gpulog_where(site, where, sizeof where);
    sim_report(SIMGPU_LIFETIME, "there is no such stream",
               "%s, called at %s,\nwas given the stream %p, which was never made or is destroyed.",
               call, where, (void *)stream);
    return sim_leave(cudaErrorInvalidResourceHandle);
}

static cudaError_t report_event(const char *call, cudaEvent_t event, const void *site)
{
    char where[256];
    gpulog_where(site, where, sizeof where);
    sim_report(SIMGPU_LIFETIME, "there is no such event",
               "%s, called at %s,\nwas given the event %p, which was never made or is destroyed.",
               call, where, (void *)event);
    return sim_leave(cudaErrorInvalidResourceHandle);
}

// ---- Operations ----

// Brings the stream's clock up to what is ordered before its next operation.
static void catch_up(struct CUstream_st *s)
{
    join(&s->clock, &host);
    if (s->is_default) {
        for (struct CUstream_st *o = devices[s->device].streams; o; o = o->next)
            if (o->blocking) join(&s->clock, &o->clock);
    } else if (s->blocking && devices[s->device].null) {
        join(&s->clock, &devices[s->device].null->clock);
    }
}

static void host_joins(const SimClock *clock)
{
    join(&host, clock);
    sim_pinned_deliver(&host);
}

// The handle as the log keeps it, by which the stream is found again: NULL for the default stream.
cudaError_t sim_stream_begin(SimgpuOp *op)
{
    if (!sim_device(sim_current_device())) return sim_leave(cudaErrorInvalidDevice);
    pthread_mutex_lock(&lock);
    struct CUstream_st *s = find_stream(op->entry.stream);
    if (s) {
        op->entry.device = s->device;
        op->entry.blocking_stream = s->blocking;
        op->entry.stream = s->is_default ? NULL : s;
        catch_up(s);
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

void sim_device_wait(int device)
{
    pthread_mutex_lock(&lock);
    for (struct CUstream_st *s = devices[device].streams; s; s = s->next) join(&host, &s->clock);
    if (devices[device].null) join(&host, &devices[device].null->clock);
    join(&host, &devices[device].destroyed);
    sim_pinned_deliver(&host);
    pthread_mutex_unlock(&lock);
}

// ---- Streams ----

static cudaError_t create_stream(cudaStream_t *stream, unsigned flags, int priority)
{
    if (!stream || (flags & ~(unsigned)cudaStreamNonBlocking))
        return sim_leave(cudaErrorInvalidValue);
    int device = sim_current_device();
    if (!sim_device(device)) return sim_leave(cudaErrorInvalidDevice);
    pthread_mutex_lock(&lock);
    struct CUstream_st *s = new_stream(device, flags, priority);
    if (s) link_stream(s);
    pthread_mutex_unlock(&lock);
    if (!s) return sim_leave(cudaErrorMemoryAllocation);
    *stream = s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *pStream)
{
    SIM_ENTER();
    return create_stream(pStream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags)
{
    SIM_ENTER();
    return create_stream(pStream, flags, 0);
}

// As documented, a priority outside the range is brought to its nearest end.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags, int priority)
{
    SIM_ENTER();
    return create_stream(pStream, flags, priority > 0 ? 0 : priority < -5 ? -5 : priority);
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
    if (own) destroy(s);
    pthread_mutex_unlock(&lock);
    return own ? cudaSuccess : report_stream("cudaStreamDestroy", stream, SIM_SITE);
}

// The host waits for a stream: cudaStreamSynchronize, and a query that finds it done.
static cudaError_t wait_for_stream(const char *call, cudaStream_t stream, const void *site)
{
    SIM_ENTER();
    if (!sim_device(sim_current_device())) return sim_leave(cudaErrorInvalidDevice);
    pthread_mutex_lock(&lock);
    struct CUstream_st *s = find_stream(stream);
    GpuLogEntry entry = {.op = GPU_STREAM_SYNC, .name = call, .host_waits = true, .site = site};
    if (s) {
        catch_up(s);
        host_joins(&s->clock);
        entry.device = s->device;
        entry.stream = s->is_default ? NULL : s;
        entry.blocking_stream = s->blocking;
    }
    pthread_mutex_unlock(&lock);
    if (!s) return report_stream(call, stream, site);
    books_write(&entry);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return wait_for_stream("cudaStreamSynchronize", stream, SIM_SITE);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return wait_for_stream("cudaStreamQuery", stream, SIM_SITE);
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

// Runs fn now; it sees the pinned memory that the stream has filled before it.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData)
{
    SIM_ENTER();
    if (!fn) return sim_leave(cudaErrorInvalidValue);
    SimgpuOp op = sim_begin(GPU_KERNEL, "cudaLaunchHostFunc", stream, SIM_SITE);
    if (op.error != cudaSuccess) return simgpu_end(&op);
    pthread_mutex_lock(&lock);
    sim_pinned_deliver(&stream_of(&op)->clock);
    pthread_mutex_unlock(&lock);
    fn(userData);
    return simgpu_end(&op);
}

// ---- Events ----

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
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
        e->device = sim_current_device();
        e->flags = flags;
        e->next = NULL;
    }
    pthread_mutex_unlock(&lock);
    if (!e) return sim_leave(cudaErrorMemoryAllocation);
    *event = e;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

// Called with the lock held. The handle is used again as late as can be: the list is a queue.
static void destroy_event(struct CUevent_st *e)
{
    free(e->clock.t);
    e->clock = (SimClock){0, NULL};
    e->alive = false;
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
        clock_gettime(CLOCK_MONOTONIC, &event->when);
    }
    pthread_mutex_unlock(&lock);
    if (!there) return report_event(call, event, site);
    if (device != op.entry.device) {
        char where[256];
        gpulog_where(site, where, sizeof where);
        sim_report(SIMGPU_POINTER, "an event recorded on another device's stream",
                   "%s at %s: the event was made on device %d, the stream on device %d.\n"
                   "Make the event while the stream's device is current.",
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

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    if (flags & ~(unsigned)cudaEventRecordExternal) return sim_leave(cudaErrorInvalidValue);
    return record("cudaEventRecordWithFlags", event, stream, SIM_SITE);
}

// An event that was never recorded holds nobody up, as documented.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    SimgpuOp op = sim_begin(GPU_STREAM_WAIT, "cudaStreamWaitEvent", stream, SIM_SITE);
    if (op.error == cudaSuccess && (flags & ~(unsigned)cudaEventWaitExternal))
        op.error = cudaErrorInvalidValue;
    if (op.error != cudaSuccess) return simgpu_end(&op);
    pthread_mutex_lock(&lock);
    bool there = is_event(event);
    if (there && event->recorded) join(&stream_of(&op)->clock, &event->clock);
    pthread_mutex_unlock(&lock);
    if (!there) return report_event("cudaStreamWaitEvent", event, SIM_SITE);
    op.entry.event = event;
    return simgpu_end(&op);
}

static cudaError_t wait_for_event(const char *call, cudaEvent_t event, const void *site)
{
    SIM_ENTER();
    GpuLogEntry entry = {
        .op = GPU_EVENT_SYNC, .name = call, .event = event, .host_waits = true, .site = site};
    pthread_mutex_lock(&lock);
    bool there = is_event(event);
    if (there) {
        entry.device = event->device;
        if (event->recorded) host_joins(&event->clock);
    }
    pthread_mutex_unlock(&lock);
    if (!there) return report_event(call, event, site);
    books_write(&entry);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return wait_for_event("cudaEventSynchronize", event, SIM_SITE);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return wait_for_event("cudaEventQuery", event, SIM_SITE);
}

// Operations run at their call, so the time between two records is the time the host took.
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
    pthread_mutex_unlock(&lock);
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
