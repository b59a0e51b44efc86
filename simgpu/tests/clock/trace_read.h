/* trace_read.h: reads a trace of Perfetto's protobuf, and says what must hold of any: every slice
 * has an end within its track's open ones, time does not go back on a track, every arrow has both
 * ends, every track has a name, and the counters of memory add up.
 *
 * It shares nothing with what writes traces: the numbers of the fields are from Perfetto's .proto
 * files.
 */
#ifndef TESTS_TRACE_READ_H
#define TESTS_TRACE_READ_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

typedef struct Event {
    uint64_t ns, track, flow, value, sequence;
    int type; // 1 begin, 2 end, 3 point, 4 counter; 0: a track's description
    bool flow_ends;
    char name[96], text[160]; // text: "call site" and "algorithm", one after the other
    uint64_t parent, bytes;
    double achieved, ideal;
    long pid, tid;
} Event;

typedef struct TraceRead {
    size_t n;
    Event *event;
} TraceRead;

typedef struct Bytes {
    const unsigned char *at, *end;
} Bytes;

typedef struct Field {
    unsigned number, wire;
    uint64_t value;
    Bytes bytes;
} Field;

static uint64_t read_varint(Bytes *b)
{
    uint64_t value = 0;
    for (int shift = 0; b->at < b->end && shift < 70; shift += 7) {
        unsigned char c = *b->at++;
        value |= (uint64_t)(c & 0x7f) << (shift < 64 ? shift : 0);
        if (!(c & 0x80)) return value;
    }
    fail_msg("a number is not whole");
    return 0;
}

// False: the message is over.
static bool next_field(Bytes *b, Field *field)
{
    if (b->at == b->end) return false;
    uint64_t key = read_varint(b), size = 0;
    field->number = (unsigned)(key >> 3);
    field->wire = (unsigned)(key & 7);
    field->value = 0;
    switch (field->wire) {
    case 0: field->value = read_varint(b); return true;
    case 1: size = 8; break;
    case 2: size = read_varint(b); break;
    default: fail_msg("a field of wire type %u", field->wire);
    }
    if (size > (uint64_t)(b->end - b->at)) fail_msg("field %u is not whole", field->number);
    field->bytes = (Bytes){b->at, b->at + size};
    b->at += size;
    if (field->wire == 1) memcpy(&field->value, field->bytes.at, 8);
    return true;
}

static void read_text(const Field *f, char *text, size_t size)
{
    size_t n = (size_t)(f->bytes.end - f->bytes.at), used = strlen(text);
    snprintf(text + used, size - used, "%.*s", (int)n, (const char *)f->bytes.at);
}

static void read_inner(const Field *of, Event *e)
{
    Bytes b = of->bytes;
    for (Field f; next_field(&b, &f);) {
        if (f.number == 1) e->pid = (long)f.value;
        if (f.number == 2) e->tid = (long)f.value;
        if (f.wire == 2 && (f.number == 5 || f.number == 6)) read_text(&f, e->name, sizeof e->name);
    }
}

static void read_description(Bytes b, Event *e)
{
    for (Field f; next_field(&b, &f);) {
        if (f.number == 1) e->track = f.value;
        if (f.number == 2) read_text(&f, e->name, sizeof e->name);
        if (f.number == 3 || f.number == 4) read_inner(&f, e);
        if (f.number == 5) e->parent = f.value;
    }
}

static void read_note(Bytes b, Event *e)
{
    char name[64] = "";
    Field value = {0};
    for (Field f; next_field(&b, &f);) {
        if (f.number == 10)
            read_text(&f, name, sizeof name);
        else
            value = f;
    }
    double real;
    memcpy(&real, &value.value, sizeof real);
    if (value.number == 6) read_text(&value, e->text, sizeof e->text);
    if (strcmp(name, "bytes") == 0) e->bytes = value.value;
    if (strcmp(name, "achieved GB/s") == 0) e->achieved = real;
    if (strcmp(name, "ideal GB/s") == 0) e->ideal = real;
}

static void read_event(Bytes b, Event *e)
{
    for (Field f; next_field(&b, &f);) switch (f.number) {
        case 4: read_note(f.bytes, e); break;
        case 9: e->type = (int)f.value; break;
        case 11: e->track = f.value; break;
        case 23: read_text(&f, e->name, sizeof e->name); break;
        case 30: e->value = f.value; break;
        case 47:
        case 48:
            e->flow = f.value;
            e->flow_ends = f.number == 48;
            break;
        }
}

static TraceRead read_packets(Bytes b)
{
    TraceRead trace = {0, NULL};
    size_t room = 0;
    for (Field packet; next_field(&b, &packet);) {
        if (packet.number != 1) fail_msg("field %u of a trace", packet.number);
        if (trace.n == room) {
            room = room ? 2 * room : 1024;
            trace.event = realloc(trace.event, room * sizeof *trace.event);
            assert_non_null(trace.event);
        }
        Event *e = &trace.event[trace.n++];
        memset(e, 0, sizeof *e);
        for (Field f; next_field(&packet.bytes, &f);) {
            if (f.number == 8) e->ns = f.value;
            if (f.number == 10) e->sequence = f.value;
            if (f.number == 11) read_event(f.bytes, e);
            if (f.number == 60) read_description(f.bytes, e);
        }
    }
    return trace;
}

// The whole file; the events live until trace_free.
static TraceRead trace_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("there is no trace %s", path);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    unsigned char *bytes = malloc(size + 1);
    assert_non_null(bytes);
    rewind(file);
    assert_true(fread(bytes, 1, size, file) == size);
    fclose(file);
    TraceRead trace = read_packets((Bytes){bytes, bytes + size});
    free(bytes);
    return trace;
}

static void trace_free(TraceRead *trace)
{
    free(trace->event);
    trace->event = NULL;
}

static const Event *trace_track(const TraceRead *trace, uint64_t uuid)
{
    for (size_t i = 0; i < trace->n; i++)
        if (trace->event[i].type == 0 && trace->event[i].track == uuid) return &trace->event[i];
    return NULL;
}

static int by_track(const void *a, const void *b)
{
    const Event *x = *(const Event *const *)a, *y = *(const Event *const *)b;
    if (x->track != y->track) return x->track < y->track ? -1 : 1;
    return x < y ? -1 : 1; // as in the file
}

static int by_flow(const void *a, const void *b)
{
    const Event *x = *(const Event *const *)a, *y = *(const Event *const *)b;
    return x->flow < y->flow ? -1 : x->flow > y->flow;
}

static void check_tracks(const TraceRead *trace, const Event **sorted, bool whole)
{
    qsort(sorted, trace->n, sizeof *sorted, by_track);
    uint64_t last = 0;
    int depth = 0;
    for (size_t i = 0; i < trace->n; i++) {
        const Event *e = sorted[i];
        bool first = i == 0 || sorted[i - 1]->track != e->track;
        if (first) {
            const Event *track = trace_track(trace, e->track);
            if (!track || !track->name[0]) fail_msg("a track without a name has \"%s\"", e->name);
            bool parent = !track->parent || trace_track(trace, track->parent);
            if (!parent && whole) fail_msg("the process of track %s has no name", track->name);
            last = 0;
            depth = 0;
        }
        if (e->type == 0) continue;
        if (e->ns < last)
            fail_msg("\"%s\" at %llu comes after %llu on its track", e->name,
                     (unsigned long long)e->ns, (unsigned long long)last);
        last = e->ns;
        depth += e->type == 1 ? 1 : e->type == 2 ? -1 : 0;
        if (depth < 0) fail_msg("a slice ends that never began, at %llu", (unsigned long long)last);
        bool ends = i + 1 == trace->n || sorted[i + 1]->track != e->track;
        if (ends && depth != 0 && whole) fail_msg("%d slices of a track never end", depth);
    }
}

static void check_flows(const TraceRead *trace, const Event **sorted)
{
    qsort(sorted, trace->n, sizeof *sorted, by_flow);
    for (size_t i = 0; i < trace->n;) {
        size_t n = 1, ends = sorted[i]->flow_ends;
        for (; i + n < trace->n && sorted[i + n]->flow == sorted[i]->flow; n++)
            ends += sorted[i + n]->flow_ends;
        if (sorted[i]->flow && (n < 2 || ends != 1))
            fail_msg("the arrow of \"%s\" has %zu places, %zu of them its end", sorted[i]->name, n,
                     ends);
        i += n;
    }
}

// The categories of a process add up to what is allocated, and no less is reserved.
static void check_counters(const TraceRead *trace)
{
    struct {
        uint64_t process, sum, allocated, reserved;
    } of[64];
    struct {
        uint64_t track, value;
    } counter[1024];
    size_t n = 0, counters = 0;
    for (size_t i = 0; i < trace->n; i++) {
        const Event *e = &trace->event[i];
        if (e->type != 4) continue;
        const Event *track = trace_track(trace, e->track);
        size_t p = 0, c = 0;
        while (p < n && of[p].process != track->parent) p++;
        while (c < counters && counter[c].track != e->track) c++;
        assert_true(p < 64 && c < 1024);
        if (p == n) memset(&of[n++], 0, sizeof of[0]);
        if (c == counters) counter[counters++].value = 0;
        of[p].process = track->parent;
        counter[c].track = e->track;
        if (strcmp(track->name, "memory: allocated") == 0)
            of[p].allocated = e->value;
        else if (strcmp(track->name, "memory: reserved") == 0)
            of[p].reserved = e->value;
        else
            of[p].sum += e->value - counter[c].value;
        counter[c].value = e->value;
        // The values of one instant come one after the other.
        bool goes_on = false;
        for (size_t j = i + 1; j < trace->n && trace->event[j].ns == e->ns; j++)
            goes_on |= trace->event[j].type == 4 && trace->event[j].sequence == e->sequence;
        if (goes_on) continue;
        if (of[p].sum != of[p].allocated)
            fail_msg("at %llu ns the categories have %llu bytes, %llu are allocated",
                     (unsigned long long)e->ns, (unsigned long long)of[p].sum,
                     (unsigned long long)of[p].allocated);
        if (of[p].reserved < of[p].allocated) fail_msg("more is allocated than reserved");
    }
}

// What must hold of any trace; whole: no rank has died.
static void trace_check(const TraceRead *trace, bool whole)
{
    const Event **sorted = malloc((trace->n + 1) * sizeof *sorted);
    assert_non_null(sorted);
    for (size_t i = 0; i < trace->n; i++) sorted[i] = &trace->event[i];
    check_tracks(trace, sorted, whole);
    if (whole) check_flows(trace, sorted);
    check_counters(trace);
    free(sorted);
}

#endif
