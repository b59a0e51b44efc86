/* oracle.c: which steps of a small program race, by looking at every order in which a real machine
 * may run it.
 *
 * The program is cut into moments. The host has a moment for every call, one after the other, and
 * one more where it waits. A piece of work of a stream has one moment; a rank's part of a
 * collective has two, its arrival and its end, and is under way from the one to the other. A moment
 * can come when the moments it needs have come, and what it needs is read off the documentation,
 * rule by rule:
 *
 *   - work is done after the call that queued it, and after the work queued before it on its
 *     stream;
 *   - the legacy default stream: an action of it waits for what blocking streams of the device
 *     have been given before; what they are given afterwards waits for it ("Stream
 *     synchronization behavior" in NVIDIA's documentation). A destroyed stream is none of them;
 *   - cudaStreamWaitEvent waits for the record that was the event's last one at the call, and for
 *     nothing where there was none;
 *   - the host's waits wait for what had been queued when they were called. A query that found
 *     everything done is one of them. The first query about what the host does not know to be done
 *     (a record; what a stream has been given, and waits for) finds that it is not, and orders
 *     nothing; the second finds it done;
 *   - copies ("API synchronization behavior"): cudaMemcpy from pageable memory lets the host wait
 *     for the default stream before, and not after it; from pinned memory and to the host, after;
 *     between places on devices, not at all. The Async forms do not wait, but into pageable memory;
 *   - cudaMemcpyPeer is "serialized" with all work of the devices it is about: as if it were queued
 *     on each of their streams;
 *   - cudaFree waits for the device, but not for memory that cudaMallocAsync made (programming
 *     guide, "Stream-Ordered Memory Allocator");
 *   - a rank's part of a collective ends only when every rank has arrived whose data it needs; a
 *     receive, when its message has been sent. A send waits for nobody.
 *
 * A state is the set of moments that have come. From the empty one, every state is visited that can
 * be reached. Two steps race when they touch the same byte, one of them writes, and in some state
 * both are under way or could begin. A step errs by lifetime when, in some order, it is under way
 * before its memory's allocation has ended or after the memory's release has begun.
 *
 * Nothing here knows of clocks: what the checker concludes from vectors, this file finds by trying.
 *
 * Interface: judge, waits_in_vain (program.h).
 */
#include "program.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_MOMENTS = 64,
    MAX_WORKS = 2 * MAX_STEPS,
    MAX_STATES = 1 << 17,
    TABLE = 2 * MAX_STATES,
};

typedef uint64_t Set; // of moments, or of works

// Something that touches memory while it is under way.
typedef struct Work {
    int step, begin, end; // moments
    int n;
    Span span[MAX_SPANS];
    bool writes[MAX_SPANS], reads[MAX_SPANS];
    bool allocates, frees;
} Work;

typedef struct Model {
    const Program *program;
    unsigned forget;
    int n_moments, n_works;
    bool full; // there were more moments than fit
    Set needs[MAX_MOMENTS];
    int step_of[MAX_MOMENTS]; // whose work it is; -1: the host's
    Work work[MAX_WORKS];
    int host;                      // the host's last moment; -1: none yet
    Set on_stream[N_STREAMS];      // all that a stream has been given
    int last_on_stream[N_STREAMS]; // -1: nothing
    bool destroyed[N_STREAMS];
    int recorded[N_EVENTS];                             // the last record's moment; -1: none
    Set event_asked[N_EVENTS], stream_asked[N_STREAMS]; // what a query has found not to be done
    int sent;                 // the moment of the message that is under way; -1: none
    int first[MAX_STEPS + 1]; // moment of each step
    Set barrier[N_DEVICES];   // what all later work of a device waits for
    // What was found:
    Set together[MAX_WORKS]; // works that can be under way at the same time
    Set behind[MAX_WORKS];   // works that can have ended before it begins
} Model;

static Set one(int i)
{
    return (Set)1 << i;
}

// ---- From steps to moments ----

static int add_moment(Model *m, int step, Set needs)
{
    if (m->n_moments == MAX_MOMENTS) {
        m->full = true;
        return MAX_MOMENTS - 1;
    }
    m->needs[m->n_moments] = needs;
    m->step_of[m->n_moments] = step;
    return m->n_moments++;
}

// The host goes on when it has done all before, and the set has come.
static int host_moment(Model *m, Set waits)
{
    if (m->host >= 0) waits |= one(m->host);
    return m->host = add_moment(m, -1, waits);
}

static bool is_blocking(const Model *m, int stream)
{
    StreamKind kind = stream_facts[stream].kind;
    return (kind == BLOCKING || kind == PER_THREAD) && !m->destroyed[stream];
}

// What an action in the stream waits for, besides the stream's own work.
static Set waits_of_stream(const Model *m, int stream)
{
    int device = stream_facts[stream].device;
    Set set = 0;
    if (m->forget & FORGET_LEGACY) return 0;
    if (stream_facts[stream].kind == LEGACY) {
        for (int s = 0; s < N_STREAMS; s++)
            if (stream_facts[s].device == device && is_blocking(m, s)) set |= m->on_stream[s];
    } else if (is_blocking(m, stream)) {
        set = m->on_stream[legacy_stream(device)];
    }
    return set;
}

static Set all_of_device(const Model *m, int device)
{
    Set set = 0;
    for (int s = 0; s < N_STREAMS; s++)
        if (stream_facts[s].device == device) set |= m->on_stream[s];
    return set;
}

// Queues a moment on a stream.
static int queue(Model *m, int step, int stream, Set waits)
{
    waits |= one(m->host) | waits_of_stream(m, stream) | m->barrier[stream_facts[stream].device];
    if (m->last_on_stream[stream] >= 0) waits |= one(m->last_on_stream[stream]);
    int moment = add_moment(m, step, waits);
    m->on_stream[stream] |= one(moment);
    m->last_on_stream[stream] = moment;
    return moment;
}

static Work *add_work(Model *m, int step, int begin, int end)
{
    Work *w = &m->work[m->n_works++];
    *w = (Work){.step = step, .begin = begin, .end = end};
    return w;
}

static void touch(const Model *m, Work *w, const Step *s, int span)
{
    Span touched = s->span[span];
    if ((m->forget & FORGET_PINNED) && touched.buffer == PINNED) return;
    if ((m->forget & FORGET_ROWS) && touched.rows > 1) {
        touched.bytes += (touched.rows - 1) * touched.pitch;
        touched.rows = 1;
    }
    if ((m->forget & FORGET_LAST_BYTE) && touched.bytes > 1) touched.bytes--;
    w->writes[w->n] = kind_facts[s->kind].writes >> span & 1;
    w->reads[w->n] = kind_facts[s->kind].reads >> span & 1;
    w->span[w->n++] = touched;
}

static void add_collective(Model *m, int step)
{
    const Step *s = &m->program->step[step];
    int stream[N_DEVICES] = {s->stream, s->other_stream};
    int arrival[N_DEVICES];
    int rank = m->program->rank, first = rank == ALL_RANKS ? 0 : rank;
    int behind = rank == ALL_RANKS ? N_DEVICES : rank + 1;
    host_moment(m, 0);
    for (int r = first; r < behind; r++) arrival[r] = queue(m, step, stream[r], 0);
    for (int r = first; r < behind; r++) {
        // Of a broadcast, the root needs nobody's data.
        bool needs_other = s->kind != BROADCAST || r != 0;
        if (m->forget & FORGET_COLLECTIVE) needs_other = false;
        if (rank != ALL_RANKS) needs_other = false; // another process: it comes when it comes
        int end = queue(m, step, stream[r], needs_other ? one(arrival[1 - r]) : 0);
        Work *w = add_work(m, step, arrival[r], end);
        if (s->kind != BROADCAST || r == 0) touch(m, w, s, 2 * r); // only the root sends
        touch(m, w, s, 2 * r + 1);
    }
}

static void add_message(Model *m, int step)
{
    const Step *s = &m->program->step[step];
    host_moment(m, 0);
    int begin = queue(m, step, s->stream, 0), end = begin;
    if (s->kind == MESSAGE_SEND) {
        m->sent = begin;
    } else {
        bool needs_send = m->program->rank == ALL_RANKS && !(m->forget & FORGET_COLLECTIVE);
        end = queue(m, step, s->stream, needs_send && m->sent >= 0 ? one(m->sent) : 0);
    }
    touch(m, add_work(m, step, begin, end), s, 0);
}

// The moment stands on every stream: all later work waits for it, and so does who waits for a
// stream.
static void join_all_streams(Model *m, int moment)
{
    for (int d = 0; d < N_DEVICES; d++) m->barrier[d] |= one(moment);
    for (int s = 0; s < N_STREAMS; s++) m->on_stream[s] |= one(moment);
}

static bool waits_after(Kind kind)
{
    return kind == SEND_PINNED || kind == FETCH || kind == FETCH_PINNED || kind == FETCH_ASYNC;
}

static void add_stream_work(Model *m, int step)
{
    const Step *s = &m->program->step[step];
    if (s->kind == SEND) host_moment(m, m->on_stream[s->stream] | waits_of_stream(m, s->stream));
    host_moment(m, 0);
    Set waits = 0;
    bool serial = s->kind == PEER && !(m->forget & FORGET_SERIAL);
    if (serial) waits = all_of_device(m, 0) | all_of_device(m, 1); // current, source, destination
    if (s->kind == WAIT && m->recorded[s->event] >= 0) waits = one(m->recorded[s->event]);
    int moment = queue(m, step, s->stream, waits);
    if (s->kind == RECORD && !(m->forget & FORGET_RERECORD && m->recorded[s->event] >= 0))
        m->recorded[s->event] = moment;
    if (serial) join_all_streams(m, moment);
    if (kind_facts[s->kind].spans) {
        Work *w = add_work(m, step, moment, moment);
        for (int i = 0; i < kind_facts[s->kind].spans; i++) touch(m, w, s, i);
        w->allocates = s->kind == ALLOC_ASYNC;
        w->frees = s->kind == FREE_ASYNC;
        if (w->frees && (m->forget & FORGET_FREE)) w->n = 0;
    }
    bool waits_now = waits_after(s->kind) || (s->kind == SEND && m->forget & FORGET_PAGEABLE);
    if (waits_now) host_moment(m, one(moment));
}

static void add_host_free(Model *m, int step)
{
    int buffer = m->program->step[step].span[0].buffer;
    bool from_pool = buffer >= N_BUFFERS && !(m->forget & FORGET_POOL);
    Set waits = from_pool ? 0 : all_of_device(m, buffer_device[buffer]);
    int moment = host_moment(m, waits);
    Work *w = add_work(m, step, moment, moment);
    if (!(m->forget & FORGET_HOST_FREE)) touch(m, w, &m->program->step[step], 0);
    w->frees = true;
}

// All that a moment needs, and what that needs.
static Set all_needs(const Model *m, int moment)
{
    Set set = m->needs[moment], before = 0;
    while (set != before) {
        before = set;
        for (Set rest = set; rest; rest &= rest - 1) set |= m->needs[__builtin_ctzll(rest)];
    }
    return set;
}

// Whether a query finds that something of the set is not done, so that it orders nothing.
static bool finds_undone(const Model *m, Set set, Set *asked)
{
    Set known = m->host >= 0 ? one(m->host) | all_needs(m, m->host) : 0;
    if (m->forget & FORGET_IGNORED) return false;
    if (!(m->forget & FORGET_SECOND)) known |= *asked;
    if ((set & ~known) == 0) return false;
    *asked |= set;
    return true;
}

// The host's business with a stream, or with an event.
static void add_host_wait(Model *m, int step)
{
    const Step *s = &m->program->step[step];
    bool event = is_about_event(s->kind), waits = s->kind == STREAM_SYNC || s->kind == EVENT_SYNC;
    bool asks_once = s->kind == STREAM_ASK || s->kind == EVENT_ASK;
    int record = m->recorded[s->event];
    Set set = event ? (record >= 0 ? one(record) : 0) : m->on_stream[s->stream];
    Set *asked = event ? &m->event_asked[s->event] : &m->stream_asked[s->stream];
    if (!event && (stream_facts[s->stream].kind == LEGACY || !(m->forget & FORGET_SYNC)))
        set |= waits_of_stream(m, s->stream);
    bool undone = m->program->timed ? m->program->not_ready >> step & 1
                                    : !waits && finds_undone(m, set, asked);
    host_moment(m, asks_once && undone ? 0 : set);
}

static void add_step(Model *m, int step)
{
    const Step *s = &m->program->step[step];
    if (is_about_stream(s->kind) || is_about_event(s->kind)) {
        add_host_wait(m, step);
        return;
    }
    switch (s->kind) {
    case DEVICE_SYNC: host_moment(m, all_of_device(m, s->device)); break;
    case DESTROY: m->destroyed[s->stream] = !(m->forget & FORGET_DESTROY); break;
    case FREE: add_host_free(m, step); break;
    default:
        if (is_collective(s->kind))
            add_collective(m, step);
        else if (is_message(s->kind))
            add_message(m, step);
        else
            add_stream_work(m, step);
    }
}

static void build(Model *m, const Program *p, unsigned forget)
{
    memset(m, 0, sizeof *m);
    m->program = p;
    m->forget = forget;
    m->host = m->sent = -1;
    for (int s = 0; s < N_STREAMS; s++) m->last_on_stream[s] = -1;
    for (int e = 0; e < N_EVENTS; e++) m->recorded[e] = -1;
    for (int i = 0; i < p->n; i++) {
        m->first[i] = m->n_moments;
        add_step(m, i);
    }
    m->first[p->n] = m->n_moments;
}

// These only hand the order on, to whatever waits for them.
static bool lets_host_go(Kind kind)
{
    return kind == RECORD || kind == WAIT || kind == ALLOC_ASYNC || kind == FREE_ASYNC;
}

bool waits_in_vain(const Program *p)
{
    Model m;
    int sent = -1;
    build(&m, p, FORGET_NOTHING);
    if (m.full) return true;
    for (int i = 0; i < p->n; i++) {
        Kind kind = p->step[i].kind;
        int end = m.first[i + 1] - (kind == MESSAGE_RECV); // which by its end has it
        for (int k = m.first[i]; k < end && sent >= 0 && !lets_host_go(kind); k++)
            if (all_needs(&m, k) & one(sent)) return true;
        if (kind == MESSAGE_SEND) sent = m.first[i] + 1; // behind the host's moment
        if (kind == MESSAGE_RECV) sent = -1;
    }
    return false;
}

// ---- All states ----

// The states that have been reached, with how each was; the table finds one again.
typedef struct States {
    int n;
    Set state[MAX_STATES];
    int from[MAX_STATES];    // the state before it
    int8_t came[MAX_STATES]; // the moment that made the difference
    int table[TABLE];        // a state's number + 1; 0: free
} States;
static States *states;

static void reset_states(void)
{
    if (!states) states = calloc(1, sizeof *states);
    if (!states) abort();
    for (int i = 0; i < states->n; i++) { // cheaper than to clear a large table
        uint64_t at = draw_mix(states->state[i]) % TABLE;
        while (states->table[at]) {
            states->table[at] = 0;
            at = (at + 1) % TABLE;
        }
    }
    states->n = 0;
}

// False: there is no room.
static bool reach(Set state, int from, int moment)
{
    uint64_t at = draw_mix(state) % TABLE;
    for (; states->table[at]; at = (at + 1) % TABLE)
        if (states->state[states->table[at] - 1] == state) return true;
    if (states->n == MAX_STATES) return false;
    states->state[states->n] = state;
    states->from[states->n] = from;
    states->came[states->n] = (int8_t)moment;
    states->table[at] = ++states->n;
    return true;
}

static Set enabled_in(const Model *m, Set state)
{
    Set set = 0;
    for (int i = 0; i < m->n_moments; i++)
        if (!(state & one(i)) && (m->needs[i] & ~state) == 0) set |= one(i);
    return set;
}

// Works that are under way in the state or may begin in it.
static Set under_way(const Model *m, Set state, Set enabled)
{
    Set set = 0;
    for (int w = 0; w < m->n_works; w++) {
        const Work *work = &m->work[w];
        bool begun = state & one(work->begin), ended = state & one(work->end);
        if (begun ? !ended : (enabled & one(work->begin)) != 0) set |= one(w);
    }
    return set;
}

static void note_state(Model *m, Set state, Set enabled)
{
    Set now = under_way(m, state, enabled), ended = 0;
    for (int w = 0; w < m->n_works; w++)
        if (state & one(m->work[w].end)) ended |= one(w);
    for (int w = 0; w < m->n_works; w++) {
        if (now & one(w)) m->together[w] |= now & ~one(w);
        if (enabled & one(m->work[w].begin)) m->behind[w] |= ended;
    }
}

// False: there were too many.
static bool visit_all(Model *m)
{
    reset_states();
    reach(0, -1, -1);
    for (int i = 0; i < states->n; i++) {
        Set state = states->state[i], enabled = enabled_in(m, state);
        note_state(m, state, enabled);
        for (Set rest = enabled; rest; rest &= rest - 1) {
            int moment = __builtin_ctzll(rest);
            if (!reach(state | one(moment), i, moment)) return false;
        }
    }
    return true;
}

// ---- The verdict ----

static bool conflict(const Work *a, const Work *b)
{
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++)
            if ((a->writes[i] || b->writes[j]) && spans_meet(&a->span[i], &b->span[j])) return true;
    return false;
}

// `early` must have ended before `late` begins; whether that can fail.
static bool can_swap(const Model *m, int early, int late)
{
    return (m->together[early] & one(late)) || (m->behind[early] & one(late));
}

static bool works_race(const Model *m, int a, int b)
{
    const Work *x = &m->work[a], *y = &m->work[b];
    if (x->allocates) return can_swap(m, a, b);
    if (y->allocates) return can_swap(m, b, a);
    if (x->frees) return can_swap(m, b, a); // whoever uses it must have ended before
    if (y->frees) return can_swap(m, a, b);
    bool both_ways = (m->behind[a] & one(b)) && (m->behind[b] & one(a));
    return both_ways || (m->together[a] & one(b));
}

static bool has_pair(const Verdict *v, int a, int b)
{
    for (int i = 0; i < v->n; i++)
        if (v->pair[i].a == a && v->pair[i].b == b) return true;
    return false;
}

// An order that leads to where both can be under way, or where the second has ended and the first
// can begin.
static void find_witness(const Model *m, int a, int b, Verdict *v)
{
    int found = -1;
    for (int i = 0; i < states->n && found < 0; i++) {
        Set state = states->state[i], enabled = enabled_in(m, state);
        Set now = under_way(m, state, enabled);
        if ((now & one(a)) && (now & one(b))) found = i;
        bool a_ended = state & one(m->work[a].end), b_ended = state & one(m->work[b].end);
        bool lifetime =
            m->work[a].frees || m->work[b].frees || m->work[a].allocates || m->work[b].allocates;
        if (lifetime && ((a_ended && (now & one(b))) || (b_ended && (now & one(a))))) found = i;
    }
    int reversed[MAX_MOMENTS], n = 0;
    for (int i = found; i > 0; i = states->from[i])
        if (m->step_of[states->came[i]] >= 0) reversed[n++] = m->step_of[states->came[i]];
    v->n_order = 0;
    while (n > 0 && v->n_order < 2 * MAX_STEPS) v->order[v->n_order++] = reversed[--n];
}

static void add_pair(const Model *m, int a, int b, Verdict *v)
{
    int x = m->work[a].step, y = m->work[b].step;
    if (x == y) return; // ranks of one collective; the generator keeps their memory apart
    if (x > y) {
        int z = x;
        x = y;
        y = z;
    }
    if (has_pair(v, x, y)) return;
    const Work *first = m->work[a].step == x ? &m->work[a] : &m->work[b];
    bool lifetime =
        m->work[a].allocates || m->work[a].frees || m->work[b].allocates || m->work[b].frees;
    if (first->frees) v->use_after_free = true;
    if (v->n == 0) find_witness(m, a, b, v);
    v->pair[v->n++] = (Pair){x, y, lifetime};
}

void judge(const Program *p, unsigned forget, Verdict *v)
{
    Model m;
    build(&m, p, forget);
    v->n = v->n_order = 0;
    v->use_after_free = false;
    v->too_large = m.full || !visit_all(&m);
    v->states = m.full ? 0 : (size_t)states->n;
    if (v->too_large) return;
    for (int a = 0; a < m.n_works; a++)
        for (int b = a + 1; b < m.n_works; b++)
            if (conflict(&m.work[a], &m.work[b]) && works_race(&m, a, b)) add_pair(&m, a, b, v);
}
