/* order.c: the order of the operations in the log. See gpulog_order.h.
 *
 * A replay of the log computes a vector clock for each operation: how much of each line of work, a
 * stream or the host, is certain to be done before it begins. Each query continues the replay.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "order.h"

// seq[l]: operations of line l that are done before; lines from n on: none.
typedef struct Clock {
    uint32_t n;
    uint64_t *seq;
} Clock;

// A line of work: the host or a stream. Its own part of `clock` counts its operations.
typedef struct Line {
    cudaStream_t stream;
    int device;
    bool blocking, legacy;
    Clock clock;
    uint32_t snapshot; // of the clock, its own part left out
    bool changed;      // since the snapshot
} Line;

typedef struct Event {
    cudaEvent_t event;
    Clock clock; // captured by the last record
} Event;

static struct Replay {
    uint64_t from, to; // operations [from, to) of the log have been replayed
    OrderPlace *place; // (to - from)
    size_t place_room;
    Line *line;
    uint32_t n_lines;
    Event *event;
    size_t n_events;
    Clock *snapshot;
    uint32_t n_snapshots;
    size_t snapshot_room;
} replay;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void gpulog_order_lock(void)
{
    pthread_mutex_lock(&lock);
}

void gpulog_order_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void *gpulog_order_grow(void *table, size_t count, size_t size)
{
    void *larger = realloc(table, count * size);

    if (larger) return larger;
    fprintf(stderr, "gpulog: no host memory to replay the log\n");
    abort(); // any answer would be a guess
}

// ---- Clocks ----

static uint64_t clock_get(const Clock *clock, uint32_t line)
{
    return line < clock->n ? clock->seq[line] : 0;
}

static void clock_reach(Clock *clock, uint32_t n)
{
    if (n <= clock->n) return;
    clock->seq = gpulog_order_grow(clock->seq, n, sizeof *clock->seq);
    memset(clock->seq + clock->n, 0, (n - clock->n) * sizeof *clock->seq);
    clock->n = n;
}

// Adds to a what b knows; returns whether b knew more.
static bool clock_join(Clock *a, const Clock *b)
{
    bool more = false;

    clock_reach(a, b->n);
    for (uint32_t i = 0; i < b->n; i++)
        if (b->seq[i] > a->seq[i]) {
            a->seq[i] = b->seq[i];
            more = true;
        }
    return more;
}

static void clock_set(Clock *a, const Clock *b)
{
    clock_reach(a, b->n);
    memset(a->seq, 0, a->n * sizeof *a->seq);
    clock_join(a, b);
}

// ---- Lines ----

static bool is_legacy(cudaStream_t stream)
{
    return stream == NULL || stream == cudaStreamLegacy;
}

static uint32_t add_line(cudaStream_t stream, int device, bool blocking, bool legacy)
{
    uint32_t l = replay.n_lines++;

    replay.line = gpulog_order_grow(replay.line, replay.n_lines, sizeof *replay.line);
    replay.line[l] = (Line){.stream = stream,
                            .device = device,
                            .blocking = blocking,
                            .legacy = legacy,
                            .changed = true};
    clock_reach(&replay.line[l].clock, l + 1);
    return l;
}

// The line of an entry's stream. The default streams of all devices have one handle, and the handle
// of a destroyed stream may come again as a stream of the other kind.
static uint32_t find_line(const GpuLogEntry *entry)
{
    bool legacy = is_legacy(entry->stream);

    for (uint32_t l = 1; l < replay.n_lines; l++) {
        const Line *line = &replay.line[l];
        bool same = legacy ? line->legacy
                           : !line->legacy && line->stream == entry->stream &&
                                 line->blocking == entry->blocking_stream;
        if (same && line->device == entry->device) return l;
    }
    return add_line(entry->stream, entry->device, legacy || entry->blocking_stream, legacy);
}

static void learn(uint32_t l, const Clock *clock)
{
    if (clock_join(&replay.line[l].clock, clock)) replay.line[l].changed = true;
}

static void learn_line(uint32_t l, uint32_t other)
{
    if (l != other) learn(l, &replay.line[other].clock);
}

// Learns all work queued on the device so far; blocking_only: on its blocking streams.
static void learn_device(uint32_t l, int device, bool blocking_only)
{
    for (uint32_t other = 1; other < replay.n_lines; other++)
        if (replay.line[other].device == device && (!blocking_only || replay.line[other].blocking))
            learn_line(l, other);
}

// Learns what the next operation on the line follows, apart from the line itself.
static void learn_before(uint32_t l)
{
    const Line *line = &replay.line[l];

    learn_line(l, ORDER_HOST);
    if (line->legacy) {
        learn_device(l, line->device, true);
        return;
    }
    for (uint32_t other = 1; line->blocking && other < replay.n_lines; other++)
        if (replay.line[other].legacy && replay.line[other].device == line->device)
            learn_line(l, other);
}

// A line keeps its snapshot until it learns something, so that a long log needs few of them.
static uint32_t take_snapshot(uint32_t l)
{
    Line *line = &replay.line[l];

    if (!line->changed) return line->snapshot;
    if (replay.n_snapshots == replay.snapshot_room) {
        replay.snapshot_room = replay.snapshot_room ? 2 * replay.snapshot_room : 256;
        replay.snapshot =
            gpulog_order_grow(replay.snapshot, replay.snapshot_room, sizeof *replay.snapshot);
    }
    Clock *copy = &replay.snapshot[replay.n_snapshots];
    *copy = (Clock){0};
    clock_set(copy, &line->clock);
    line->changed = false;
    return line->snapshot = replay.n_snapshots++;
}

// Puts the next operation of the log on a line.
static void put(uint64_t index, uint32_t l)
{
    size_t i = (size_t)(index - replay.from);

    if (i == replay.place_room) {
        replay.place_room = replay.place_room ? 2 * replay.place_room : 1024;
        replay.place = gpulog_order_grow(replay.place, replay.place_room, sizeof *replay.place);
    }
    uint32_t snapshot = take_snapshot(l);
    uint64_t seq = ++replay.line[l].clock.seq[l];
    replay.place[i] = (OrderPlace){.line = l, .snapshot = snapshot, .seq = seq};
}

// ---- Events ----

static Event *find_event(cudaEvent_t event, bool make)
{
    for (size_t i = 0; i < replay.n_events; i++)
        if (replay.event[i].event == event) return &replay.event[i];
    if (!make) return NULL;
    replay.event = gpulog_order_grow(replay.event, replay.n_events + 1, sizeof *replay.event);
    replay.event[replay.n_events] = (Event){.event = event};
    return &replay.event[replay.n_events++];
}

// ---- The replay ----

// cudaMalloc and cudaFree are on no stream: the host does them, and cudaFree waits for the device
// first.
static bool is_host_operation(const GpuLogEntry *entry)
{
    return (entry->op == GPU_ALLOC || entry->op == GPU_FREE) && !strstr(entry->name, "Async") &&
           !strstr(entry->name, "FromPool");
}

static bool is_host_wait(const GpuLogEntry *entry)
{
    return entry->op == GPU_STREAM_SYNC || entry->op == GPU_EVENT_SYNC ||
           entry->op == GPU_DEVICE_SYNC;
}

static void replay_host(const GpuLogEntry *entry)
{
    const Event *event;

    if (entry->op == GPU_STREAM_SYNC) {
        uint32_t l = find_line(entry);
        learn_before(l); // a wait for it includes what it waits for
        learn_line(ORDER_HOST, l);
    } else if (entry->op == GPU_EVENT_SYNC) {
        event = find_event(entry->event, false);
        if (event) learn(ORDER_HOST, &event->clock);
    } else if (entry->op == GPU_DEVICE_SYNC || entry->op == GPU_FREE) {
        learn_device(ORDER_HOST, entry->device, false);
    }
    put(entry->index, ORDER_HOST);
}

static void replay_stream(const GpuLogEntry *entry)
{
    uint32_t l = find_line(entry);

    learn_before(l);
    if (entry->op == GPU_STREAM_WAIT) {
        const Event *event = find_event(entry->event, false);
        if (event) learn(l, &event->clock); // an event that was never recorded orders nothing
    }
    put(entry->index, l);
    if (entry->op == GPU_EVENT_RECORD)
        clock_set(&find_event(entry->event, true)->clock, &replay.line[l].clock);
    if (entry->host_waits) learn_line(ORDER_HOST, l);
}

static void forget_replay(void)
{
    for (uint32_t i = 0; i < replay.n_lines; i++) free(replay.line[i].clock.seq);
    for (size_t i = 0; i < replay.n_events; i++) free(replay.event[i].clock.seq);
    for (uint32_t i = 0; i < replay.n_snapshots; i++) free(replay.snapshot[i].seq);
    free(replay.place);
    free(replay.line);
    free(replay.event);
    free(replay.snapshot);
    memset(&replay, 0, sizeof replay);
}

// The oldest operation that the log still has.
static uint64_t oldest_entry(uint64_t length)
{
    uint64_t low = 0, high = length; // low - 1 is not in the log, high is (or is the end)
    GpuLogEntry entry;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (gpulog_get(middle, &entry))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// Brings the replay up to the log's end. It starts again if the log has overwritten operations that
// it has not seen.
void gpulog_order_catch_up(void)
{
    uint64_t length = gpulog_length(), next = replay.n_lines ? replay.to : 0;
    GpuLogEntry entry;

    if (replay.n_lines == 0 || (next < length && !gpulog_get(next, &entry))) {
        forget_replay();
        add_line(NULL, -1, false, false); // ORDER_HOST
        replay.from = replay.to = oldest_entry(length);
    }
    for (; replay.to < length && gpulog_get(replay.to, &entry); replay.to++) {
        if (is_host_wait(&entry) || is_host_operation(&entry))
            replay_host(&entry);
        else
            replay_stream(&entry);
    }
}

uint64_t gpulog_order_first(void)
{
    return replay.from;
}

uint64_t gpulog_order_end(void)
{
    return replay.to;
}

const OrderPlace *gpulog_order_place(uint64_t index)
{
    return index >= replay.from && index < replay.to ? &replay.place[index - replay.from] : NULL;
}

bool gpulog_order_before(const OrderPlace *a, const OrderPlace *b)
{
    if (a->line == b->line) return a->seq < b->seq;
    return clock_get(&replay.snapshot[b->snapshot], a->line) >= a->seq;
}

bool gpulog_order_is_default(uint32_t line)
{
    return replay.line[line].legacy;
}

bool gpulog_has_order(uint64_t index)
{
    gpulog_order_lock();
    gpulog_order_catch_up();
    bool has = gpulog_order_place(index) != NULL;
    gpulog_order_unlock();
    return has;
}

bool gpulog_ordered(uint64_t a, uint64_t b)
{
    gpulog_order_lock();
    gpulog_order_catch_up();
    const OrderPlace *first = gpulog_order_place(a), *second = gpulog_order_place(b);
    bool ordered = first && second && gpulog_order_before(first, second);
    gpulog_order_unlock();
    return ordered;
}

// ---- Looking things up ----

int64_t gpulog_find(GpuOp op, const char *name, uint64_t from)
{
    uint64_t length = gpulog_length();
    GpuLogEntry entry;

    for (uint64_t i = from; i < length; i++)
        if (gpulog_get(i, &entry) && entry.op == op && (!name || strcmp(entry.name, name) == 0))
            return (int64_t)i;
    return -1;
}

uint64_t gpulog_count(GpuOp op, uint64_t from)
{
    uint64_t length = gpulog_length(), count = 0;
    GpuLogEntry entry;

    for (uint64_t i = from; i < length; i++)
        if (gpulog_get(i, &entry) && entry.op == op) count++;
    return count;
}
