/* program.c: the tables of random programs, and whether a program makes sense.
 *
 * Interface: stream_facts, event_device, buffer_device, legacy_stream, kind_facts, is_collective,
 * is_message, is_about_stream, is_about_event, is_of_first_thread, insert_message,
 * device_of, take_part, spans_meet, is_valid, insert_step, remove_step (program.h).
 */
#include "program.h"

#include <string.h>

const StreamFact stream_facts[N_STREAMS] = {
    {"NULL", LEGACY, 0},         {"cudaStreamPerThread", PER_THREAD, 0},
    {"blocking_a", BLOCKING, 0}, {"blocking_b", BLOCKING, 0},
    {"free_c", NON_BLOCKING, 0}, {"free_d", NON_BLOCKING, 0},
    {"NULL", LEGACY, 1},         {"blocking_e", BLOCKING, 1},
    {"free_f", NON_BLOCKING, 1},
};
const int event_device[N_EVENTS] = {0, 0, 1};
const int buffer_device[ALL_BUFFERS] = {0, 0, 0, 0, 1, 1, 0, 1, -1};

int legacy_stream(int device)
{
    return device == 0 ? 0 : 6;
}

// Spans: what is written comes first, as in the calls; but a collective's send comes first.
const KindFact kind_facts[KINDS] = {
    [FILL] = {"kernel_fill", 1, 1, 0, 4, .on_stream = true, .weight = 10},
    [SCALE] = {"kernel_scale", 1, 1, 1, 4, .on_stream = true, .weight = 8},
    [ADD] = {"kernel_add", 2, 1, 3, 4, .on_stream = true, .weight = 10},
    [SUM2] = {"kernel_add_out", 3, 1, 6, 4, .on_stream = true, .weight = 8},
    [MEMSET_ASYNC] = {"cudaMemsetAsync", 1, 1, 0, 1, .on_stream = true, .weight = 10},
    [MEMSET_2D_ASYNC] = {"cudaMemset2DAsync", 1, 1, 0, 1, .on_stream = true, .weight = 4},
    [MEMSET] = {"cudaMemset", 1, 1, 0, 1, .on_stream = true, .legacy_only = true, .weight = 3},
    [COPY_ASYNC] = {"cudaMemcpyAsync", 2, 1, 2, 1, .on_stream = true, .weight = 10},
    [COPY_2D_ASYNC] = {"cudaMemcpy2DAsync", 2, 1, 2, 1, .on_stream = true, .weight = 6},
    [SEND_ASYNC] = {"cudaMemcpyAsync", 1, 1, 0, 1, .on_stream = true, .weight = 5},
    [SEND_PINNED_ASYNC] = {"cudaMemcpyAsync", 2, 1, 2, 1, .on_stream = true, .weight = 6},
    [FETCH_ASYNC] = {"cudaMemcpyAsync", 1, 0, 1, 1, .on_stream = true, .weight = 2},
    [FETCH_PINNED_ASYNC] = {"cudaMemcpyAsync", 2, 1, 2, 1, .on_stream = true, .weight = 7},
    [COPY] = {"cudaMemcpy", 2, 1, 2, 1, .on_stream = true, .legacy_only = true, .weight = 3},
    [COPY_2D] = {"cudaMemcpy2D", 2, 1, 2, 1, .on_stream = true, .legacy_only = true, .weight = 2},
    [SEND] = {"cudaMemcpy", 1, 1, 0, 1, .on_stream = true, .legacy_only = true, .weight = 3},
    [SEND_PINNED] = {"cudaMemcpy", 2, 1, 2, 1, .on_stream = true, .legacy_only = true, .weight = 1},
    [FETCH] = {"cudaMemcpy", 1, 0, 1, 1, .on_stream = true, .legacy_only = true, .weight = 1},
    [FETCH_PINNED] = {"cudaMemcpy", 2, 1, 2, 1, .on_stream = true, .legacy_only = true,
                      .weight = 1},
    [PEER_ASYNC] = {"cudaMemcpyPeerAsync", 2, 1, 2, 1, .on_stream = true, .weight = 4},
    [PEER] = {"cudaMemcpyPeer", 2, 1, 2, 1, .on_stream = true, .legacy_only = true, .weight = 2},
    [ALLOC_ASYNC] = {"cudaMallocAsync", 1, 1, 0, 1, .on_stream = true, .weight = 4},
    [FREE_ASYNC] = {"cudaFreeAsync", 1, 1, 0, 1, .on_stream = true, .weight = 4},
    [FREE] = {"cudaFree", 1, 1, 0, 1, .weight = 2},
    [ALL_REDUCE] = {"ncclAllReduce", 4, 10, 5, 4, .on_stream = true, .weight = 3},
    [ALL_GATHER] = {"ncclAllGather", 4, 10, 5, 4, .on_stream = true, .weight = 2},
    [REDUCE_SCATTER] = {"ncclReduceScatter", 4, 10, 5, 4, .on_stream = true, .weight = 2},
    [BROADCAST] = {"ncclBroadcast", 4, 10, 5, 4, .on_stream = true, .weight = 1},
    [MESSAGE_SEND] = {"ncclSend", 1, 0, 1, 4, .on_stream = true, .weight = 5},
    [MESSAGE_RECV] = {"ncclRecv", 1, 1, 0, 4, .on_stream = true, .weight = 0}, // drawn with it
    [RECORD] = {"cudaEventRecord", .on_stream = true, .orders = true, .weight = 9},
    [WAIT] = {"cudaStreamWaitEvent", .on_stream = true, .orders = true, .weight = 9},
    [STREAM_SYNC] = {"cudaStreamSynchronize", .orders = true, .weight = 3},
    [STREAM_QUERY] = {"cudaStreamQuery", .orders = true, .weight = 1},
    [STREAM_ASK] = {"cudaStreamQuery", .orders = true, .weight = 2},
    [EVENT_SYNC] = {"cudaEventSynchronize", .orders = true, .weight = 2},
    [EVENT_QUERY] = {"cudaEventQuery", .orders = true, .weight = 1},
    [EVENT_ASK] = {"cudaEventQuery", .orders = true, .weight = 2},
    [DEVICE_SYNC] = {"cudaDeviceSynchronize", .orders = true, .weight = 1},
    [DESTROY] = {"cudaStreamDestroy", .orders = true, .weight = 2},
};

bool is_collective(Kind kind)
{
    return kind >= ALL_REDUCE && kind <= BROADCAST;
}

bool is_message(Kind kind)
{
    return kind == MESSAGE_SEND || kind == MESSAGE_RECV;
}

bool is_about_stream(Kind kind)
{
    return kind == STREAM_SYNC || kind == STREAM_QUERY || kind == STREAM_ASK;
}

bool is_about_event(Kind kind)
{
    return kind == EVENT_SYNC || kind == EVENT_QUERY || kind == EVENT_ASK;
}

bool is_of_first_thread(const Step *s)
{
    bool on_stream = kind_facts[s->kind].on_stream || is_about_stream(s->kind);
    return (on_stream && stream_facts[s->stream].kind == PER_THREAD) ||
           (is_collective(s->kind) && stream_facts[s->other_stream].kind == PER_THREAD);
}

int device_of(const Step *s)
{
    if (s->kind == DEVICE_SYNC) return s->device;
    if (is_about_event(s->kind)) return event_device[s->event];
    if (s->kind == FREE) return buffer_device[s->span[0].buffer];
    return stream_facts[s->stream].device;
}

static bool is_of(const Step *s, int rank)
{
    if (is_collective(s->kind)) return true;
    for (int i = 0; i < kind_facts[s->kind].spans; i++) {
        int device = buffer_device[s->span[i].buffer];
        if (device >= 0 && device != rank) return false;
    }
    return device_of(s) == rank;
}

void take_part(const Program *whole, int rank, Program *part)
{
    part->seed = whole->seed;
    part->rank = rank;
    part->n = 0;
    for (int i = 0; i < whole->n; i++)
        if (is_of(&whole->step[i], rank)) part->step[part->n++] = whole->step[i];
}

bool spans_meet(const Span *a, const Span *b)
{
    if (a->buffer != b->buffer) return false;
    for (int i = 0; i < a->rows; i++)
        for (int j = 0; j < b->rows; j++) {
            int x = a->begin + i * a->pitch, y = b->begin + j * b->pitch;
            if (x < y + b->bytes && y < x + a->bytes) return true;
        }
    return false;
}

// Whether a call that is given freed memory refuses it. A kernel would fault, and the device would
// be lost to all later programs.
static bool refuses_freed(Kind kind)
{
    return kind >= MEMSET_ASYNC && kind <= PEER;
}

// Every message is received before the communicator is used again.
static bool messages_fit(const Program *p)
{
    int sent = -1;
    bool any = false;
    if (p->rank != ALL_RANKS) return true;
    for (int i = 0; i < p->n; i++) {
        const Step *s = &p->step[i];
        if (s->kind == MESSAGE_RECV ? sent < 0 : sent >= 0 && is_collective(s->kind)) return false;
        if (s->kind == MESSAGE_SEND && sent >= 0) return false;
        if (s->kind == MESSAGE_RECV && s->span[0].bytes != p->step[sent].span[0].bytes)
            return false;
        if (is_message(s->kind)) sent = s->kind == MESSAGE_SEND ? i : -1;
        any |= is_message(s->kind);
    }
    return sent < 0 && !(any && waits_in_vain(p));
}

bool is_valid(const Program *p)
{
    bool there[ALL_BUFFERS], made[ALL_BUFFERS], gone[N_STREAMS] = {false};
    for (int b = 0; b < ALL_BUFFERS; b++) there[b] = made[b] = b < N_BUFFERS || b == PINNED;
    for (int i = 0; i < p->n; i++) {
        const Step *s = &p->step[i];
        const KindFact *fact = &kind_facts[s->kind];
        bool uses = fact->on_stream || is_about_stream(s->kind) || s->kind == DESTROY;
        if (uses && gone[s->stream]) return false;
        if (is_collective(s->kind) && gone[s->other_stream]) return false;
        if (s->kind == DESTROY) gone[s->stream] = true;
        if (s->kind == ALLOC_ASYNC) {
            if (made[s->span[0].buffer]) return false;
            there[s->span[0].buffer] = made[s->span[0].buffer] = true;
        }
        bool frees = s->kind == FREE || s->kind == FREE_ASYNC;
        for (int k = 0; k < fact->spans; k++) {
            int b = s->span[k].buffer;
            if (!made[b] || (!there[b] && !refuses_freed(s->kind))) return false;
            if (frees) there[b] = false;
        }
    }
    return messages_fit(p);
}

bool insert_step(Program *p, int at, const Step *step)
{
    Program longer = *p;
    if (p->n == MAX_STEPS) return false;
    memmove(&longer.step[at + 1], &longer.step[at], (size_t)(p->n - at) * sizeof *step);
    longer.step[at] = *step;
    longer.n++;
    if (!is_valid(&longer)) return false;
    *p = longer;
    return true;
}

bool insert_message(Program *p, int at, const Step *send, const Step *recv)
{
    Program longer = *p;
    if (p->n + 2 > MAX_STEPS) return false;
    memmove(&longer.step[at + 1], &longer.step[at], (size_t)(p->n - at) * sizeof *send);
    longer.step[at] = *send;
    longer.step[p->n + 1] = *recv;
    longer.n += 2;
    if (!is_valid(&longer)) return false;
    *p = longer;
    return true;
}

// The other half of a message.
static int partner_of(const Program *p, int at)
{
    bool sent = p->step[at].kind == MESSAGE_SEND;
    int i = at;
    do i += sent ? 1 : -1;
    while (!is_message(p->step[i].kind));
    return i;
}

static void drop(Program *p, int at)
{
    p->n--;
    memmove(&p->step[at], &p->step[at + 1], (size_t)(p->n - at) * sizeof(Step));
}

bool remove_step(Program *p, int at)
{
    Program shorter = *p;
    if (at >= p->n) return false;
    int other = is_message(p->step[at].kind) ? partner_of(p, at) : -1;
    drop(&shorter, at > other ? at : other);
    if (other >= 0) drop(&shorter, at < other ? at : other);
    if (!is_valid(&shorter)) return false;
    *p = shorter;
    return true;
}
