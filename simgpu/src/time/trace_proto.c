/* time/trace_proto.c: a trace as Perfetto's protobuf packets.
 *
 * A file is a message Trace, a sequence of packets, so that files of several processes can simply
 * be concatenated. The numbers are those of Perfetto's trace_packet.proto, track_descriptor.proto
 * and track_event.proto. A message within a message has its length before it. That has room for
 * five bytes, which protobuf allows even if fewer are needed.
 */
#include <string.h>

#include "time/trace_format.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2 }; // wire types

enum {
    TRACE_PACKET = 1,
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE_ID = 10,
    PACKET_TRACK_EVENT = 11,
    PACKET_TRACK_DESCRIPTOR = 60,
    DESCRIPTOR_UUID = 1,
    DESCRIPTOR_NAME = 2,
    DESCRIPTOR_PROCESS = 3,
    DESCRIPTOR_THREAD = 4,
    DESCRIPTOR_PARENT = 5,
    DESCRIPTOR_COUNTER = 8,
    PROCESS_PID = 1,
    PROCESS_NAME = 6,
    THREAD_PID = 1,
    THREAD_TID = 2,
    THREAD_NAME = 5,
    COUNTER_UNIT = 3,
    EVENT_NOTES = 4,
    EVENT_TYPE = 9,
    EVENT_TRACK = 11,
    EVENT_CATEGORY = 22,
    EVENT_NAME = 23,
    EVENT_COUNTER = 30,
    EVENT_FLOW = 47,
    EVENT_FLOW_ENDS = 48,
    NOTE_COUNT = 3,
    NOTE_REAL = 5,
    NOTE_TEXT = 6,
    NOTE_NAME = 10,
};
enum { SLICE_BEGIN = 1, SLICE_END = 2, INSTANT = 3, COUNTER = 4 }; // types of an event
enum { UNIT_SIZE_BYTES = 3 };
enum { LENGTH = 5 };

void sim_trace_bytes(TraceBuffer *b, const void *bytes, size_t n)
{
    if (n > sizeof b->bytes - b->used) b->full = true;
    if (b->full) return;
    memcpy(b->bytes + b->used, bytes, n);
    b->used += n;
}

static void put_varint(TraceBuffer *b, uint64_t value)
{
    unsigned char bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) bytes[n++] = (unsigned char)(value | 0x80);
    bytes[n++] = (unsigned char)value;
    sim_trace_bytes(b, bytes, n);
}

static void put_number(TraceBuffer *b, unsigned field, uint64_t value)
{
    put_varint(b, field << 3 | VARINT);
    put_varint(b, value);
}

static void put_fixed(TraceBuffer *b, unsigned field, uint64_t value)
{
    unsigned char bytes[8];
    put_varint(b, field << 3 | FIXED64);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(value >> (8 * i));
    sim_trace_bytes(b, bytes, sizeof bytes);
}

static void put_text(TraceBuffer *b, unsigned field, const char *text)
{
    put_varint(b, field << 3 | BYTES);
    put_varint(b, strlen(text));
    sim_trace_bytes(b, text, strlen(text));
}

// Begins a message of the field; returns the place of its length.
static size_t open_message(TraceBuffer *b, unsigned field)
{
    static const unsigned char room[LENGTH];
    put_varint(b, field << 3 | BYTES);
    size_t at = b->used;
    sim_trace_bytes(b, room, LENGTH);
    return at;
}

static void close_message(TraceBuffer *b, size_t at)
{
    if (b->full) return;
    size_t length = b->used - at - LENGTH;
    for (int i = 0; i < LENGTH; i++, length >>= 7)
        b->bytes[at + (size_t)i] = (unsigned char)((length & 0x7f) | (i < LENGTH - 1 ? 0x80 : 0));
}

static void put_track(TraceBuffer *b, const TraceTrack *t)
{
    size_t packet = open_message(b, TRACE_PACKET);
    put_number(b, PACKET_SEQUENCE_ID, t->pid);
    size_t descriptor = open_message(b, PACKET_TRACK_DESCRIPTOR), part;
    put_number(b, DESCRIPTOR_UUID, t->uuid);
    switch (t->kind) {
    case TRACE_PROCESS:
        part = open_message(b, DESCRIPTOR_PROCESS);
        put_number(b, PROCESS_PID, t->pid);
        put_text(b, PROCESS_NAME, t->name);
        close_message(b, part);
        break;
    case TRACE_THREAD:
        put_number(b, DESCRIPTOR_PARENT, t->parent);
        part = open_message(b, DESCRIPTOR_THREAD);
        put_number(b, THREAD_PID, t->pid);
        put_number(b, THREAD_TID, t->tid);
        put_text(b, THREAD_NAME, t->name);
        close_message(b, part);
        break;
    case TRACE_COUNTER:
        put_text(b, DESCRIPTOR_NAME, t->name);
        put_number(b, DESCRIPTOR_PARENT, t->parent);
        part = open_message(b, DESCRIPTOR_COUNTER);
        put_number(b, COUNTER_UNIT, UNIT_SIZE_BYTES);
        close_message(b, part);
        break;
    }
    close_message(b, descriptor);
    close_message(b, packet);
}

static void put_note(TraceBuffer *b, const TraceNote *note)
{
    uint64_t bits;
    size_t at = open_message(b, EVENT_NOTES);
    put_text(b, NOTE_NAME, note->name);
    if (note->kind == TRACE_TEXT) put_text(b, NOTE_TEXT, note->text);
    if (note->kind == TRACE_COUNT) put_number(b, NOTE_COUNT, note->count);
    memcpy(&bits, &note->real, sizeof bits);
    if (note->kind == TRACE_REAL) put_fixed(b, NOTE_REAL, bits);
    close_message(b, at);
}

// Begins a packet with an event of a track, and leaves it open: the places of its lengths.
static void open_event(TraceBuffer *b, const TraceTrack *track, uint64_t ns, unsigned type,
                       size_t at[2])
{
    at[0] = open_message(b, TRACE_PACKET);
    put_number(b, PACKET_TIMESTAMP, ns);
    put_number(b, PACKET_SEQUENCE_ID, track->pid);
    at[1] = open_message(b, PACKET_TRACK_EVENT);
    put_number(b, EVENT_TYPE, type);
    put_number(b, EVENT_TRACK, track->uuid);
}

static void close_event(TraceBuffer *b, const size_t at[2])
{
    close_message(b, at[1]);
    close_message(b, at[0]);
}

static void put_event(TraceBuffer *b, const TraceEvent *e, unsigned type)
{
    size_t at[2];
    open_event(b, e->track, e->ns, type, at);
    put_text(b, EVENT_CATEGORY, e->category);
    put_text(b, EVENT_NAME, e->name);
    if (e->flow != TRACE_NO_FLOW)
        put_fixed(b, e->flow == TRACE_FLOW_ENDS ? EVENT_FLOW_ENDS : EVENT_FLOW, e->flow_id);
    for (int i = 0; i < e->n_notes; i++) put_note(b, &e->note[i]);
    close_event(b, at);
}

static void put_begin(TraceBuffer *b, const TraceEvent *e)
{
    put_event(b, e, SLICE_BEGIN);
}

static void put_point(TraceBuffer *b, const TraceEvent *e)
{
    put_event(b, e, INSTANT);
}

static void put_end(TraceBuffer *b, const TraceEvent *e)
{
    size_t at[2];
    open_event(b, e->track, e->ns, SLICE_END, at);
    close_event(b, at);
}

static void put_counter(TraceBuffer *b, const TraceTrack *track, uint64_t ns, uint64_t value)
{
    size_t at[2];
    open_event(b, track, ns, COUNTER, at);
    put_number(b, EVENT_COUNTER, value);
    close_event(b, at);
}

const TraceFormat sim_trace_proto = {"",        "",      "",        put_track,
                                     put_begin, put_end, put_point, put_counter};
