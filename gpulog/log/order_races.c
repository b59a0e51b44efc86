/* order_races.c: finds two operations of the log that touch the same bytes without an order. See
 * gpulog_order.h.
 *
 * It reads the log once and keeps, for each part of an allocation, the last read and the last write
 * of each line of work: earlier ones are ordered before those.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "order.h"

// ---- Allocations and who has touched them ----

// The last read or the last write of a piece of an allocation by a line.
typedef struct Touch {
    uint64_t index; // of the operation
    bool writes;
} Touch;

// Bytes [begin, end) with the same touches.
typedef struct Piece {
    const char *begin, *end;
    Touch *touch; // at most one read and one write per line
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

// The first region that ends after ptr.
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

// A new allocation replaces all older ones that it overlaps.
static void add_region(Races *races, const char *begin, const char *end)
{
    size_t at = region_at(races, begin), behind = at;

    while (behind < races->n && races->region[behind].begin < end)
        free_region(&races->region[behind++]);
    size_t tail = races->n - behind;
    races->region = gpulog_order_grow(races->region, races->n + 1, sizeof *races->region);
    memmove(&races->region[at + 1], &races->region[behind], tail * sizeof *races->region);
    Region *region = &races->region[at];
    *region = (Region){.begin = begin, .end = end, .n = 1};
    region->piece = gpulog_order_grow(NULL, 1, sizeof *region->piece);
    region->piece[0] = (Piece){.begin = begin, .end = end};
    races->n = at + 1 + tail;
}

// Makes `at` the border of two pieces.
static void split(Region *region, const char *at)
{
    size_t i = 0, high = region->n;

    while (i < high) { // the first piece that ends after `at`
        size_t middle = i + (high - i) / 2;
        if (region->piece[middle].end > at)
            high = middle;
        else
            i = middle + 1;
    }
    if (i == region->n || region->piece[i].begin >= at) return;
    region->piece = gpulog_order_grow(region->piece, region->n + 1, sizeof *region->piece);
    memmove(&region->piece[i + 1], &region->piece[i], (region->n - i) * sizeof *region->piece);
    region->n++;
    Piece *left = &region->piece[i], *right = left + 1;
    left->end = right->begin = at;
    if (left->n) {
        right->touch = gpulog_order_grow(NULL, left->n, sizeof *right->touch);
        memcpy(right->touch, left->touch, left->n * sizeof *right->touch);
    }
}

// Notes the operation's touch of the piece. Returns an earlier touch that it races with; -1: none.
// Only the last touch of each kind on each line matters: earlier ones are before it.
static int64_t touch_piece(Piece *piece, uint64_t index, bool writes)
{
    const OrderPlace *place = gpulog_order_place(index);
    int64_t rival = -1;
    Touch *same = NULL;

    for (size_t i = 0; i < piece->n; i++) {
        Touch *touch = &piece->touch[i];
        const OrderPlace *other = gpulog_order_place(touch->index);
        if (other->line == place->line) {
            if (touch->writes == writes) same = touch;
        } else if (rival < 0 && (touch->writes || writes) && !gpulog_order_before(other, place)) {
            rival = (int64_t)touch->index;
        }
    }
    if (!same) {
        piece->touch = gpulog_order_grow(piece->touch, piece->n + 1, sizeof *piece->touch);
        same = &piece->touch[piece->n++];
    }
    *same = (Touch){.index = index, .writes = writes};
    return rival;
}

// touch_piece for each piece in [begin, end) of the region.
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

// Device memory whose allocation the log no longer has is one region of its own. Host memory is not
// checked (gpulog_order.h).
static bool is_unknown_device_memory(const void *ptr)
{
    struct cudaPointerAttributes about;

    if (gpulog_order_first() == 0) return false;
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
    uint32_t l = gpulog_order_place(entry->index)->line;

    gpulog_where(entry->site, where, sizeof where);
    if (l == ORDER_HOST)
        snprintf(text, size, "%s at %s", entry->name, where);
    else if (gpulog_order_is_default(l))
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

bool gpulog_race(uint64_t first, char *text, size_t size)
{
    Races races = {0};
    int64_t rival = -1;
    GpuLogEntry entry;

    gpulog_order_lock();
    gpulog_order_catch_up();
    if (size) text[0] = '\0';
    for (uint64_t i = gpulog_order_first(); i < gpulog_order_end() && rival < 0; i++) {
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
    gpulog_order_unlock();
    return rival >= 0;
}
