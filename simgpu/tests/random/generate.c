/* generate.c: a random program from a seed.
 *
 * Drawn at random alone, nearly every program would race, and for crude reasons. So a part of them
 * is repaired: while the oracle finds a race, one of the ways that programmers have to order two
 * operations is put between them. What comes out is right and has no wait too many. Of a part of
 * those, one ordering step is taken away again, or one span is moved by a little: the mistakes that
 * are hardest to see.
 */
#include "program.h"

#include <string.h>

typedef struct Dice {
    uint64_t state;
} Dice;

static uint64_t bits(Dice *d)
{
    return draw_mix(d->state += 0x9e3779b97f4a7c15u);
}

// 0 … n-1
static int below(Dice *d, int n)
{
    return (int)(bits(d) % (uint64_t)n);
}

static bool one_in(Dice *d, int n)
{
    return below(d, n) == 0;
}

// What a program prefers: a few streams and a few buffers, or its steps would never meet.
typedef struct Taste {
    int stream[N_STREAMS], n_streams;
    int longest;         // units that a span may have
    int comm[N_DEVICES]; // the streams of its collectives
    bool wide;           // uses all buffers
    int n_threads;       // that make its calls
} Taste;

static void draw_streams(Dice *d, Taste *t)
{
    int first[N_STREAMS];
    bool two_devices = one_in(d, 3);
    int n = two_devices ? N_STREAMS : 6, want = 2 + below(d, 4);
    for (int i = 0; i < n; i++) first[i] = i;
    for (int i = 0; i < want; i++) {
        int j = i + below(d, n - i), swap = first[i];
        first[i] = first[j];
        first[j] = swap;
        t->stream[i] = first[i];
    }
    t->n_streams = want;
    t->comm[0] = below(d, 6);
    t->comm[1] = 6 + below(d, 3);
    for (int i = 0; i < want; i++) t->comm[t->stream[i] >= 6] = t->stream[i];
}

static int draw_stream(Dice *d, const Taste *t)
{
    return t->stream[below(d, t->n_streams)];
}

// A buffer of the device that is there; -1: there is none.
static int draw_buffer(Dice *d, const Taste *t, const Program *p, int device, bool freed_too)
{
    int found[ALL_BUFFERS], n = 0;
    for (int b = 0; b < ALL_BUFFERS; b++) {
        bool there = b < N_BUFFERS, made = there;
        for (int i = 0; i < p->n; i++) {
            const Step *s = &p->step[i];
            if (s->span[0].buffer != b) continue;
            if (s->kind == ALLOC_ASYNC) made = there = true;
            if (s->kind == FREE || s->kind == FREE_ASYNC) there = false;
        }
        bool liked = t->wide || b == 0 || b == 4 || b >= N_BUFFERS;
        if (buffer_device[b] == device && liked && (there || (made && freed_too))) found[n++] = b;
    }
    return n ? found[below(d, n)] : -1;
}

static Span whole(int buffer)
{
    return (Span){buffer, 0, BUFFER_BYTES, 1, BUFFER_BYTES};
}

static Span draw_span(Dice *d, const Taste *t, int buffer, int unit)
{
    int bytes = 4 * (1 + below(d, t->longest));
    int begin = 4 * below(d, (BUFFER_BYTES - bytes) / 4 + 1);
    if (unit == 1 && one_in(d, 3)) { // a byte too far, or too short of it
        bytes -= below(d, 2);
        begin += below(d, 3) - 1;
        if (begin < 0) begin = 0;
        if (begin + bytes > BUFFER_BYTES) begin = BUFFER_BYTES - bytes;
    }
    return (Span){buffer, begin, bytes, 1, bytes};
}

// Columns of a matrix of 8 or 16 bytes a row.
static Span draw_columns(Dice *d, int buffer, int rows, int bytes)
{
    int pitch = bytes >= 8 || one_in(d, 2) ? 16 : 8;
    if (pitch * rows > BUFFER_BYTES) pitch = 8;
    if (bytes > pitch) bytes = pitch;
    int height = BUFFER_BYTES / pitch;
    int begin = pitch * below(d, height - rows + 1) + below(d, pitch - bytes + 1);
    return (Span){buffer, begin, bytes, rows, pitch};
}

// One call must not write what it reads, but in place.
static bool overlaps_itself(const Step *s)
{
    for (int i = 1; i < kind_facts[s->kind].spans; i++)
        if (spans_meet(&s->span[0], &s->span[i])) return true;
    return false;
}

static bool draw_kernel(Dice *d, const Taste *t, const Program *p, Step *s)
{
    int device = stream_facts[s->stream].device;
    for (int i = 0; i < kind_facts[s->kind].spans; i++) {
        int buffer = draw_buffer(d, t, p, device, false);
        if (buffer < 0) return false;
        s->span[i] = draw_span(d, t, buffer, 4);
        s->span[i].bytes = s->span[0].bytes;
        if (s->span[i].begin + s->span[0].bytes > BUFFER_BYTES)
            s->span[i].begin = BUFFER_BYTES - s->span[0].bytes;
    }
    return !overlaps_itself(s);
}

static bool draw_copy(Dice *d, const Taste *t, const Program *p, Step *s)
{
    int device = stream_facts[s->stream].device;
    bool freed_too = one_in(d, 12);
    bool peer = s->kind == PEER_ASYNC || s->kind == PEER;
    bool across = s->kind == PEER || ((peer || s->kind == COPY_ASYNC) && one_in(d, 3));
    int pinned = s->kind == SEND_PINNED || s->kind == SEND_PINNED_ASYNC     ? 1
                 : s->kind == FETCH_PINNED || s->kind == FETCH_PINNED_ASYNC ? 0
                                                                            : -1;
    bool columns = s->kind == MEMSET_2D_ASYNC || s->kind == COPY_2D || s->kind == COPY_2D_ASYNC;
    int rows = 2 + below(d, 3), bytes = 1 + below(d, 8), flip = below(d, 2);
    for (int i = 0; i < kind_facts[s->kind].spans; i++) {
        int where = across && i == flip ? 1 - device : device;
        int buffer = i == pinned ? PINNED : draw_buffer(d, t, p, where, freed_too);
        if (buffer < 0) return false;
        s->span[i] = columns ? draw_columns(d, buffer, rows, bytes) : draw_span(d, t, buffer, 1);
        if (i == 0) continue;
        if (columns && s->span[i].bytes != s->span[0].bytes) return false;
        s->span[i].bytes = s->span[0].bytes;
        if (!columns && s->span[i].begin + s->span[i].bytes > BUFFER_BYTES)
            s->span[i].begin = BUFFER_BYTES - s->span[i].bytes;
    }
    return !overlaps_itself(s);
}

static bool draw_collective(Dice *d, const Taste *t, const Program *p, Step *s)
{
    int unit = 4 * (1 + below(d, 3));
    s->stream = t->comm[0];
    s->other_stream = t->comm[1];
    s->in_place = one_in(d, 3);
    for (int r = 0; r < N_DEVICES; r++) {
        int send = s->kind == REDUCE_SCATTER ? N_DEVICES * unit : unit;
        int recv = s->kind == ALL_GATHER ? N_DEVICES * unit : unit;
        int from = draw_buffer(d, t, p, r, false), to = draw_buffer(d, t, p, r, false);
        if (from < 0 || to < 0) return false;
        int larger = send > recv ? send : recv;
        int a = 4 * below(d, (BUFFER_BYTES - larger) / 4 + 1);
        int b = 4 * below(d, (BUFFER_BYTES - larger) / 4 + 1);
        if (s->in_place) {
            to = from;
            b = a;
            if (s->kind == ALL_GATHER) a += r * unit;
            if (s->kind == REDUCE_SCATTER) b += r * unit;
        }
        s->span[2 * r] = (Span){from, a, send, 1, send};
        s->span[2 * r + 1] = (Span){to, b, recv, 1, recv};
        if (!s->in_place && spans_meet(&s->span[2 * r], &s->span[2 * r + 1])) return false;
    }
    return true;
}

// Sends a little before the end of the program, and receives at its end.
static bool draw_message(Dice *d, const Taste *t, Program *p, Step *send)
{
    int from = draw_buffer(d, t, p, 0, false), to = draw_buffer(d, t, p, 1, false);
    Step recv = {.kind = MESSAGE_RECV, .stream = t->comm[1]};
    // What the program allocates is not filled yet where the message may come to stand.
    if (from < 0 || from >= N_BUFFERS || to < 0) return false;
    send->stream = t->comm[0];
    send->span[0] = draw_span(d, t, from, 4);
    recv.span[0] = draw_span(d, t, to, 4);
    recv.span[0].bytes = recv.span[0].pitch = send->span[0].bytes;
    if (recv.span[0].begin + recv.span[0].bytes > BUFFER_BYTES)
        recv.span[0].begin = BUFFER_BYTES - recv.span[0].bytes;
    recv.thread = below(d, t->n_threads);
    int most = p->n < 5 ? p->n : 5;
    return insert_message(p, p->n - below(d, most + 1), send, &recv);
}

static bool draw_memory_step(Dice *d, const Taste *t, const Program *p, Step *s)
{
    int device = stream_facts[s->stream].device;
    int buffer =
        s->kind == ALLOC_ASYNC ? (device == 0 ? 6 : 7) : draw_buffer(d, t, p, device, false);
    if (buffer < 0) return false;
    s->span[0] = whole(buffer);
    return true;
}

static bool draw_order(Dice *d, const Taste *t, Step *s)
{
    s->event = below(d, N_EVENTS);
    s->device = stream_facts[s->stream].device;
    StreamKind kind = stream_facts[s->stream].kind;
    if (s->kind == RECORD) s->event = s->device == 0 ? below(d, 2) : 2;
    return s->kind != DESTROY || kind == BLOCKING || kind == NON_BLOCKING;
}

static Kind draw_kind(Dice *d)
{
    int sum = 0, at;
    for (int k = 0; k < KINDS; k++) sum += kind_facts[k].weight;
    at = below(d, sum);
    for (int k = 0;; k++) {
        at -= kind_facts[k].weight;
        if (at < 0) return (Kind)k;
    }
}

static bool draw_step(Dice *d, const Taste *t, const Program *p, Step *s)
{
    memset(s, 0, sizeof *s);
    s->kind = draw_kind(d);
    s->thread = below(d, t->n_threads);
    s->stream = draw_stream(d, t);
    if (kind_facts[s->kind].legacy_only) s->stream = legacy_stream(stream_facts[s->stream].device);
    if (kind_facts[s->kind].orders) return draw_order(d, t, s);
    if (s->kind == MESSAGE_SEND) return true; // and more in draw_message
    if (is_collective(s->kind)) return draw_collective(d, t, p, s);
    if (s->kind == ALLOC_ASYNC || s->kind == FREE_ASYNC || s->kind == FREE)
        return draw_memory_step(d, t, p, s);
    return s->kind <= SUM2 ? draw_kernel(d, t, p, s) : draw_copy(d, t, p, s);
}

static void draw_steps(Dice *d, const Taste *t, Program *p, int n)
{
    for (int tries = 0; p->n < n && tries < 200; tries++) {
        Step s;
        if (!draw_step(d, t, p, &s)) continue;
        if (s.kind == MESSAGE_SEND ? !draw_message(d, t, p, &s) : !insert_step(p, p->n, &s))
            continue;
        if (s.kind == ALLOC_ASYNC) { // so that nothing reads it uninitialised
            Step fill = {.kind = MEMSET_ASYNC, .stream = s.stream, .span = {s.span[0]}};
            insert_step(p, p->n, &fill);
        }
    }
}

// ---- Repairs and damages ----

static int event_of(Dice *d, int stream)
{
    return stream_facts[stream].device == 0 ? below(d, 2) : 2;
}

// The host waits for a stream or an event at a place: by a wait, by asking until it is done, or by
// asking twice, of which the second answer is that it is.
static bool insert_wait(Dice *d, Program *p, int at, bool event, int which)
{
    static const Kind kinds[2][3] = {{STREAM_SYNC, STREAM_QUERY, STREAM_ASK},
                                     {EVENT_SYNC, EVENT_QUERY, EVENT_ASK}};
    int way = one_in(d, 2) ? 0 : 1 + below(d, 2);
    Step wait = {
        .kind = kinds[event][way], .stream = event ? 0 : which, .event = event ? which : 0};
    return insert_step(p, at, &wait) && (way < 2 || insert_step(p, at, &wait));
}

// Puts some order between the steps a and b, a < b.
static void repair(Dice *d, Program *p, int a, int b)
{
    Step first = p->step[a], second = p->step[b];
    int from = first.stream, to = second.stream, between = a + 1 + below(d, b - a);
    if (is_collective(first.kind) && stream_facts[to].device == 1) from = first.other_stream;
    if (is_collective(second.kind) && stream_facts[from].device == 1) to = second.other_stream;
    Step record = {.kind = RECORD, .stream = from, .event = event_of(d, from)};
    Step wait = {.kind = WAIT, .stream = to, .event = record.event};
    switch (below(d, 8)) {
    case 0: insert_wait(d, p, between, false, from); break;
    case 1:
        wait = (Step){.kind = DEVICE_SYNC, .device = stream_facts[from].device};
        insert_step(p, between, &wait);
        break;
    case 2:
        if (second.kind == FREE || kind_facts[second.kind].legacy_only ||
            is_collective(second.kind) ||
            stream_facts[from].device != stream_facts[second.stream].device)
            break;
        p->step[b].stream = from;
        if (!is_valid(p)) p->step[b] = second;
        break;
    case 3:
        if (insert_wait(d, p, one_in(d, 2) ? b : between, true, record.event))
            insert_step(p, a + 1, &record);
        break;
    default: // as late as it works, or as early: a record between may take the event away
        if (insert_step(p, one_in(d, 2) ? b : between, &wait)) insert_step(p, a + 1, &record);
    }
}

// A wait becomes a query whose answer is ignored.
static bool ignore_answer(Dice *d, Program *p)
{
    Step *s = &p->step[below(d, p->n)], before = *s;
    if (s->kind == STREAM_SYNC || s->kind == STREAM_QUERY) s->kind = STREAM_ASK;
    if (s->kind == EVENT_SYNC || s->kind == EVENT_QUERY) s->kind = EVENT_ASK;
    if (s->kind != before.kind && is_valid(p)) return true;
    *s = before;
    return false;
}

static void damage(Dice *d, Program *p)
{
    if (p->n == 0) return;
    if (one_in(d, 3))
        for (int tries = 0; tries < 10; tries++)
            if (ignore_answer(d, p)) return;
    if (one_in(d, 2)) {
        for (int tries = 0; tries < 10; tries++) {
            int at = below(d, p->n);
            if (kind_facts[p->step[at].kind].orders && remove_step(p, at)) return;
        }
    }
    for (int tries = 0; tries < 10; tries++) { // one span a unit further on
        Step *s = &p->step[below(d, p->n)];
        const KindFact *fact = &kind_facts[s->kind];
        if (!fact->spans || is_collective(s->kind) || s->kind >= ALLOC_ASYNC) continue;
        Step before = *s;
        Span *span = &s->span[below(d, fact->spans)];
        span->begin += (one_in(d, 2) ? 1 : -1) * fact->unit;
        int end = span->begin + (span->rows - 1) * span->pitch + span->bytes;
        if (span->begin >= 0 && end <= BUFFER_BYTES && !overlaps_itself(s)) return;
        *s = before;
    }
}

void generate(Program *p, uint64_t seed)
{
    Dice d = {draw_mix(seed)};
    Taste t = {.longest = 1 + below(&d, 14), .wide = one_in(&d, 3)};
    Verdict v;
    memset(p, 0, sizeof *p);
    p->seed = seed;
    p->rank = ALL_RANKS;
    draw_streams(&d, &t);
    t.n_threads = one_in(&d, 3) ? N_THREADS : 1;
    draw_steps(&d, &t, p, 3 + below(&d, 9));
    if (below(&d, 5) < 3) return;
    for (int tries = 0; tries < 12; tries++) {
        judge(p, FORGET_NOTHING, &v);
        if (v.too_large || v.n == 0) break;
        const Pair *pair = &v.pair[below(&d, v.n)];
        repair(&d, p, pair->a, pair->b);
    }
    for (int n = below(&d, 4); n > 0; n--) damage(&d, p);
}
