/* What the operation log says about order. A replay of the log computes, for every operation, a
 * vector clock: how much of each stream's work is certain to be done before it begins. Order comes
 * from
 *
 *   - a stream: its operations follow each other;
 *   - an event: what a wait follows is what the event had captured when the wait was queued, so a
 *     later record moves no earlier wait;
 *   - the legacy default stream: its operations follow everything queued on the device's blocking
 *     streams, and everything queued on those later follows them;
 *   - the host: what it has waited for is before everything that it queues afterwards.
 *
 * Two operations race when they touch the same bytes of the same allocation, one of them writes,
 * and neither is before the other. An allocation and its release write its bytes. The same address
 * after a release and a new allocation is another allocation: whoever hands out memory again ensures
 * that order.
 *
 * Interface: log_ordered, log_race, log_find, log_count (harness.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define HOST 0 // line 0 of every clock: what the host does itself and waits for

// seq[l]: operations of line l that are done before; lines behind n: none.
typedef struct Clock {
    uint32_t n;
    uint64_t *seq;
} Clock;

// A line of work: the host or a stream. Its own part of `clock` is how many operations it has had.
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
    Clock clock; // captured when it was recorded last
} Event;

// Where an operation stands: number `seq` of its line, behind what the snapshot says.
typedef struct Place {
    uint32_t line, snapshot;
    uint64_t seq;
} Place;

static struct Replay {
    uint64_t from, to; // operations [from, to) of the log have been replayed
    Place *place;      // (to - from)
    size_t place_room;
    Line *line;
    uint32_t n_lines;
    Event *event;
    size_t n_events;
    Clock *snapshot;
    uint32_t n_snapshots;
    size_t snapshot_room;
} replay;

// Memory for a growing table; a test that runs out of it cannot say anything true.
static void *grow(void *table, size_t count, size_t size)
{
    void *larger = realloc(table, count * size);

    if (!larger) rank_fails(__FILE__, __LINE__, "no host memory to replay the log");
    return larger;
}

// ---- Clocks ----

static uint64_t clock_get(const Clock *clock, uint32_t line)
{
    return line < clock->n ? clock->seq[line] : 0;
}

static void clock_reach(Clock *clock, uint32_t n)
{
    if (n <= clock->n) return;
    clock->seq = grow(clock->seq, n, sizeof *clock->seq);
    memset(clock->seq + clock->n, 0, (n - clock->n) * sizeof *clock->seq);
    clock->n = n;
}

// a becomes everything that a or b knows; returns whether b knew more.
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

    replay.line = grow(replay.line, replay.n_lines, sizeof *replay.line);
    replay.line[l] = (Line){.stream = stream,
                            .device = device,
                            .blocking = blocking,
                            .legacy = legacy,
                            .changed = true};
    clock_reach(&replay.line[l].clock, l + 1);
    return l;
}

// The line of an entry's stream. The default streams have one handle on every device, and the handle
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

// Everything queued on the device so far; blocking_only: on its blocking streams.
static void learn_device(uint32_t l, int device, bool blocking_only)
{
    for (uint32_t other = 1; other < replay.n_lines; other++)
        if (replay.line[other].device == device && (!blocking_only || replay.line[other].blocking))
            learn_line(l, other);
}

// What an operation about to be queued on the line follows, apart from the line itself.
static void learn_before(uint32_t l)
{
    const Line *line = &replay.line[l];

    learn_line(l, HOST);
    if (line->legacy) {
        learn_device(l, line->device, true);
        return;
    }
    for (uint32_t other = 1; line->blocking && other < replay.n_lines; other++)
        if (replay.line[other].legacy && replay.line[other].device == line->device)
            learn_line(l, other);
}

// Lines share a snapshot for as long as they learn nothing: a long log needs few of them.
static uint32_t take_snapshot(uint32_t l)
{
    Line *line = &replay.line[l];

    if (!line->changed) return line->snapshot;
    if (replay.n_snapshots == replay.snapshot_room) {
        replay.snapshot_room = replay.snapshot_room ? 2 * replay.snapshot_room : 256;
        replay.snapshot = grow(replay.snapshot, replay.snapshot_room, sizeof *replay.snapshot);
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
        replay.place = grow(replay.place, replay.place_room, sizeof *replay.place);
    }
    uint32_t snapshot = take_snapshot(l);
    uint64_t seq = ++replay.line[l].clock.seq[l];
    replay.place[i] = (Place){.line = l, .snapshot = snapshot, .seq = seq};
}

// ---- Events ----

static Event *find_event(cudaEvent_t event, bool make)
{
    for (size_t i = 0; i < replay.n_events; i++)
        if (replay.event[i].event == event) return &replay.event[i];
    if (!make) return NULL;
    replay.event = grow(replay.event, replay.n_events + 1, sizeof *replay.event);
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
        learn_before(l); // to wait for it is to wait for what it waits for
        learn_line(HOST, l);
    } else if (entry->op == GPU_EVENT_SYNC) {
        event = find_event(entry->event, false);
        if (event) learn(HOST, &event->clock);
    } else if (entry->op == GPU_DEVICE_SYNC || entry->op == GPU_FREE) {
        learn_device(HOST, entry->device, false);
    }
    put(entry->index, HOST);
}

static void replay_stream(const GpuLogEntry *entry)
{
    uint32_t l = find_line(entry);

    learn_before(l);
    if (entry->op == GPU_STREAM_WAIT) {
        const Event *event = find_event(entry->event, false);
        if (event) learn(l, &event->clock); // one never recorded is no wait
    }
    put(entry->index, l);
    if (entry->op == GPU_EVENT_RECORD)
        clock_set(&find_event(entry->event, true)->clock, &replay.line[l].clock);
    if (entry->host_waits) learn_line(HOST, l);
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
    uint64_t low = 0, high = length; // low - 1 is not there, high is (or is the end)
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

// Brings the replay up to the log's end. It goes on from where it was, unless the log has let
// operations go in between that it has not seen.
static void catch_up(void)
{
    uint64_t length = gpulog_length(), next = replay.n_lines ? replay.to : 0;
    GpuLogEntry entry;

    if (replay.n_lines == 0 || (next < length && !gpulog_get(next, &entry))) {
        forget_replay();
        add_line(NULL, -1, false, false); // HOST
        replay.from = replay.to = oldest_entry(length);
    }
    for (; replay.to < length && gpulog_get(replay.to, &entry); replay.to++) {
        if (is_host_wait(&entry) || is_host_operation(&entry))
            replay_host(&entry);
        else
            replay_stream(&entry);
    }
}

static const Place *place_of(uint64_t index)
{
    if (index < replay.from || index >= replay.to)
        rank_fails(__FILE__, __LINE__, "operation %llu is not in the log, which has %llu to %llu",
                   (unsigned long long)index, (unsigned long long)replay.from,
                   (unsigned long long)replay.to);
    return &replay.place[index - replay.from];
}

static bool place_before(const Place *a, const Place *b)
{
    if (a->line == b->line) return a->seq < b->seq;
    return clock_get(&replay.snapshot[b->snapshot], a->line) >= a->seq;
}

bool log_ordered(uint64_t a, uint64_t b)
{
    catch_up();
    return place_before(place_of(a), place_of(b));
}

// ---- Races ----

// One way in which a line has touched a piece of an allocation, the last time it did.
typedef struct Touch {
    uint64_t index; // of the operation
    bool writes;
} Touch;

// Bytes [begin, end) that have been touched alike.
typedef struct Piece {
    const char *begin, *end;
    Touch *touch; // at most one read and one write a line
    size_t n;
} Piece;

// An allocation, from its GPU_ALLOC to the next that takes its place.
typedef struct Region {
    const char *begin, *end;
    Piece *piece; // sorted, without gaps: together they are the region
    size_t n;
} Region;

typedef struct Races {
    Region *region; // sorted by address, no two overlap
    size_t n;
} Races;

static void free_region(Region *region)
{
    for (size_t i = 0; i < region->n; i++) free(region->piece[i].touch);
    free(region->piece);
}

// The first region that ends behind ptr.
static size_t region_at(const Races *races, const char *ptr)
{
    size_t low = 0, high = races->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (races->region[middle].end > ptr)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// A new allocation takes the place of all older ones it overlaps.
static void add_region(Races *races, const char *begin, const char *end)
{
    size_t at = region_at(races, begin), behind = at;

    while (behind < races->n && races->region[behind].begin < end)
        free_region(&races->region[behind++]);
    size_t tail = races->n - behind;
    races->region = grow(races->region, races->n + 1, sizeof *races->region);
    memmove(&races->region[at + 1], &races->region[behind], tail * sizeof *races->region);
    Region *region = &races->region[at];
    *region = (Region){.begin = begin, .end = end, .n = 1};
    region->piece = grow(NULL, 1, sizeof *region->piece);
    region->piece[0] = (Piece){.begin = begin, .end = end};
    races->n = at + 1 + tail;
}

// Makes `at` the border of two pieces.
static void split(Region *region, const char *at)
{
    size_t i = 0, high = region->n;

    while (i < high) { // the first piece that ends behind `at`
        size_t middle = i + (high - i) / 2;
        if (region->piece[middle].end > at)
            high = middle;
        else
            i = middle + 1;
    }
    if (i == region->n || region->piece[i].begin >= at) return;
    region->piece = grow(region->piece, region->n + 1, sizeof *region->piece);
    memmove(&region->piece[i + 1], &region->piece[i], (region->n - i) * sizeof *region->piece);
    region->n++;
    Piece *left = &region->piece[i], *right = left + 1;
    left->end = right->begin = at;
    if (left->n) {
        right->touch = grow(NULL, left->n, sizeof *right->touch);
        memcpy(right->touch, left->touch, left->n * sizeof *right->touch);
    }
}

// Looks for an earlier touch of the piece that the operation races with, -1: none, and notes the
// new one. Only the last touch of each kind on each line matters: an earlier one is before it.
static int64_t touch_piece(Piece *piece, uint64_t index, bool writes)
{
    const Place *place = place_of(index);
    int64_t rival = -1;
    Touch *same = NULL;

    for (size_t i = 0; i < piece->n; i++) {
        Touch *touch = &piece->touch[i];
        const Place *other = place_of(touch->index);
        if (other->line == place->line) {
            if (touch->writes == writes) same = touch;
        } else if (rival < 0 && (touch->writes || writes) && !place_before(other, place)) {
            rival = (int64_t)touch->index;
        }
    }
    if (!same) {
        piece->touch = grow(piece->touch, piece->n + 1, sizeof *piece->touch);
        same = &piece->touch[piece->n++];
    }
    *same = (Touch){.index = index, .writes = writes};
    return rival;
}

// What the operation `index` does to [begin, end) of the region; as touch_piece.
static int64_t touch_region(Region *region, const char *begin, const char *end, uint64_t index,
                            bool writes)
{
    int64_t rival = -1;

    if (begin < region->begin) begin = region->begin;
    if (end > region->end) end = region->end;
    split(region, begin);
    split(region, end);
    for (size_t i = 0; i < region->n && rival < 0; i++)
        if (region->piece[i].begin >= begin && region->piece[i].end <= end)
            rival = touch_piece(&region->piece[i], index, writes);
    return rival;
}

// Device memory whose allocation the log no longer has is one region of its own; host memory is not
// looked at, as its addresses come and go without a trace in the log.
static bool is_unknown_device_memory(const void *ptr)
{
    struct cudaPointerAttributes about;

    if (replay.from == 0) return false;
    if (cudaPointerGetAttributes(&about, ptr) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    return about.type == cudaMemoryTypeDevice;
}

static int64_t touch_range(Races *races, const GpuLogEntry *entry, const GpuRange *range)
{
    const char *begin = range->ptr, *end = begin + range->bytes;
    bool writes = range->access & GPU_WRITE;
    int64_t rival = -1;

    size_t at = region_at(races, begin);
    bool known = at < races->n && races->region[at].begin < end;
    if (!known && is_unknown_device_memory(begin)) {
        add_region(races, begin, end);
        known = true;
    }
    for (; known && rival < 0 && at < races->n && races->region[at].begin < end; at++)
        rival = touch_region(&races->region[at], begin, end, entry->index, writes);
    return rival;
}

// ---- The sentence ----

static const char *verb(const GpuLogEntry *entry, const GpuRange *range)
{
    if (entry->op == GPU_ALLOC) return "allocates";
    if (entry->op == GPU_FREE) return "frees";
    return range->access == GPU_READ ? "reads" : range->access == GPU_WRITE ? "writes" : "updates";
}

static void describe(const GpuLogEntry *entry, char *text, size_t size)
{
    char where[200];
    uint32_t l = place_of(entry->index)->line;

    gpulog_where(entry->site, where, sizeof where);
    if (l == HOST)
        snprintf(text, size, "%s at %s", entry->name, where);
    else if (replay.line[l].legacy)
        snprintf(text, size, "%s at %s on the default stream", entry->name, where);
    else if (l <= 26)
        snprintf(text, size, "%s at %s on stream %c", entry->name, where, (int)('A' + l - 1));
    else
        snprintf(text, size, "%s at %s on stream %u", entry->name, where, l);
}

static size_t shared_bytes(const GpuRange *a, const GpuRange *b)
{
    const char *a_begin = a->ptr, *b_begin = b->ptr;
    const char *begin = a_begin > b_begin ? a_begin : b_begin;
    const char *a_end = a_begin + a->bytes, *b_end = b_begin + b->bytes;
    const char *end = a_end < b_end ? a_end : b_end;

    return end > begin ? (size_t)(end - begin) : 0;
}

static void describe_race(const GpuLogEntry *entry, const GpuRange *range, uint64_t rival,
                          char *text, size_t size)
{
    char first[320], second[320];
    GpuLogEntry other;

    if (!gpulog_get(rival, &other)) return;
    describe(entry, first, sizeof first);
    describe(&other, second, sizeof second);
    for (int i = 0; i < other.n_ranges; i++) {
        const GpuRange *o = &other.range[i];
        if (!shared_bytes(range, o) || !((range->access | o->access) & GPU_WRITE)) continue;
        snprintf(text, size, "%s %s %zu bytes that %s %s: nothing orders the two", first,
                 verb(entry, range), shared_bytes(range, o), second, verb(&other, o));
        return;
    }
}

bool log_race(uint64_t first, char *text, size_t size)
{
    Races races = {0};
    int64_t rival = -1;
    GpuLogEntry entry;

    catch_up();
    if (size) text[0] = '\0';
    for (uint64_t i = replay.from; i < replay.to && rival < 0; i++) {
        if (!gpulog_get(i, &entry)) continue;
        if (entry.op == GPU_ALLOC && entry.n_ranges > 0 && entry.range[0].bytes > 0)
            add_region(&races, entry.range[0].ptr,
                       (const char *)entry.range[0].ptr + entry.range[0].bytes);
        for (int r = 0; i >= first && r < entry.n_ranges && rival < 0; r++) {
            if (entry.range[r].bytes == 0) continue;
            rival = touch_range(&races, &entry, &entry.range[r]);
            if (rival >= 0) describe_race(&entry, &entry.range[r], (uint64_t)rival, text, size);
        }
    }
    for (size_t i = 0; i < races.n; i++) free_region(&races.region[i]);
    free(races.region);
    return rival >= 0;
}

// ---- Looking things up ----

int64_t log_find(GpuOp op, const char *name, uint64_t from)
{
    uint64_t length = gpulog_length();
    GpuLogEntry entry;

    for (uint64_t i = from; i < length; i++)
        if (gpulog_get(i, &entry) && entry.op == op && (!name || strcmp(entry.name, name) == 0))
            return (int64_t)i;
    return -1;
}

uint64_t log_count(GpuOp op, uint64_t from)
{
    uint64_t length = gpulog_length(), count = 0;
    GpuLogEntry entry;

    for (uint64_t i = from; i < length; i++)
        if (gpulog_get(i, &entry) && entry.op == op) count++;
    return count;
}
