/* device.c: operations of the simulator: when they are ready, start, share what they use, and end.
 * simgpu/pages/time.md, §§ 2 to 5.
 *
 * Interface: simulate.h.
 */
#include "simulate.h"

#include <stdlib.h>

void add_wait(Waits *waits, int op)
{
    for (int i = 0; i < waits->n; i++)
        if (waits->op[i] == op) return;
    if (op < 0) return;
    if (waits->n == MOST_WAITS) abort();
    waits->op[waits->n++] = op;
}

void add_waits(Waits *waits, const Waits *more)
{
    for (int i = 0; i < more->n; i++) add_wait(waits, more->op[i]);
}

bool all_done(const Sim *s, const Waits *waits)
{
    for (int i = 0; i < waits->n; i++)
        if (s->op[waits->op[i]].state != DONE) return false;
    return true;
}

Ps latest_end(const Sim *s, const Waits *waits)
{
    Ps end = 0;
    for (int i = 0; i < waits->n; i++)
        if (s->op[waits->op[i]].end > end) end = s->op[waits->op[i]].end;
    return end;
}

static void add_message(const Sim *s, Sent *sent, int message)
{
    Ps received = s->meeting[message].received;
    if (received > sent->received) sent->received = received;
    for (int i = 0; i < sent->n; i++)
        if (sent->message[i] == message) return;
    if (received) return;
    if (sent->n == MOST_SENT) abort();
    sent->message[sent->n++] = message;
}

void add_sent(const Sim *s, Sent *sent, const Waits *waits)
{
    for (int i = 0; i < waits->n; i++) {
        const Sent *more = &s->sent[waits->op[i]];
        if (more->received > sent->received) sent->received = more->received;
        for (int k = 0; k < more->n; k++) add_message(s, sent, more->message[k]);
    }
}

int queue_operation(Sim *s, const Operation *op)
{
    if (s->n_ops == s->max_ops) {
        s->max_ops = s->max_ops ? 2 * s->max_ops : 1024;
        s->op = realloc(s->op, (size_t)s->max_ops * sizeof *s->op);
        s->live = realloc(s->live, (size_t)s->max_ops * sizeof *s->live);
        s->sent = realloc(s->sent, (size_t)s->max_ops * sizeof *s->sent);
        if (!s->op || !s->live || !s->sent) abort();
    }
    Sent *sent = &s->sent[s->n_ops];
    sent->received = 0;
    sent->n = 0;
    add_sent(s, sent, &op->waits);
    if (op->sends) add_message(s, sent, op->meeting);
    s->op[s->n_ops] = *op;
    s->op[s->n_ops].state = QUEUED;
    s->live[s->n_live++] = s->n_ops;
    return s->n_ops++;
}

// ---- Ready, and the end ----

static void finish(Sim *s, Operation *op, Ps t)
{
    op->state = DONE;
    op->end = t;
    if (op->resource == NOTHING) op->start = t;
    if (!s->details || op->step < 0) return;
    fprintf(s->details, "step %d, rank %d, %s: ready %llu, from %llu to %llu\n", op->step, op->rank,
            op->what, (unsigned long long)op->ready, (unsigned long long)op->start,
            (unsigned long long)t);
}

static void arrive(Sim *s, const Operation *op, Ps t)
{
    Meeting *m = &s->meeting[op->meeting];
    m->missing--;
    // Instants come in their order.
    if (m->latest == 0 || forgotten != LATEST_ARRIVAL) m->latest = t;
    if (m->missing > 0) return;
    m->start = m->latest + s->program->world.machine.latency;
    if (m->start < t) m->start = t;
}

static void make_ready(Sim *s, Operation *op, Ps t)
{
    op->state = READY;
    op->ready = t;
    if (op->resource == NOTHING) finish(s, op, t);
    if (op->resource == TRANSFER) arrive(s, op, t);
}

bool settle_operations(Sim *s, Ps t)
{
    bool changed = false;
    int kept = 0;
    for (int i = 0; i < s->n_live; i++) {
        Operation *op = &s->op[s->live[i]];
        State before = op->state;
        if (op->state == RUNNING && op->end == t) finish(s, op, t);
        if (op->state == QUEUED && all_done(s, &op->waits)) make_ready(s, op, t);
        changed |= op->state != before;
        if (op->state != DONE) s->live[kept++] = s->live[i];
    }
    s->n_live = kept;
    return changed;
}

// ---- Start ----

static void start(Operation *op, Ps t)
{
    op->state = RUNNING;
    op->start = op->set = t;
    op->left = op->work;
    op->rate[0] = 0; // none yet
    op->rate[1] = 1;
    op->end = NEVER;
}

// § 3: the order on compute and on an engine.
static bool comes_before(const Operation *a, const Operation *b)
{
    if (a->ready != b->ready && forgotten != FIRST_READY) return a->ready < b->ready;
    if (a->stream_number != b->stream_number && forgotten != TIES)
        return a->stream_number < b->stream_number;
    return a < b; // they are kept as they were queued
}

static void start_first(Sim *s, Resource resource, int rank, Ps t)
{
    Operation *first = NULL;
    for (int i = 0; i < s->n_live; i++) {
        Operation *op = &s->op[s->live[i]];
        if (op->resource != resource || op->engine_of != rank) continue;
        if (op->state == RUNNING) return;
        if (op->state == READY && (!first || comes_before(op, first))) first = op;
    }
    if (first) start(first, t);
}

void start_operations(Sim *s, Ps t)
{
    for (int r = 0; r < s->program->world.n_ranks; r++) {
        start_first(s, COMPUTE, r, t);
        start_first(s, ENGINE_TO, r, t);
        start_first(s, ENGINE_FROM, r, t);
    }
    for (int i = 0; i < s->n_live; i++) {
        Operation *op = &s->op[s->live[i]];
        if (op->resource == TRANSFER && op->state == READY && !s->meeting[op->meeting].missing &&
            s->meeting[op->meeting].start == t)
            start(op, t);
    }
}

// ---- Rates: § 5 ----

// What runs on a rank's device.
typedef struct Load {
    int transfers[LINKS], copies; // with the host
    bool computes;
} Load;

static Load load_of(const Sim *s, int rank)
{
    Load load = {{0}, 0, false};
    for (int i = 0; i < s->n_live; i++) {
        const Operation *op = &s->op[s->live[i]];
        if (op->state != RUNNING || op->engine_of != rank) continue;
        if (op->resource == TRANSFER) load.transfers[op->link]++;
        if (op->resource == COMPUTE) load.computes = true;
        if (op->host) load.copies++;
    }
    return load;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// Its rate in lowest terms, with this load on its device.
static void find_rate(const Machine *m, const Operation *op, const Load *load, uint64_t rate[2])
{
    uint64_t a = 1, b = 1;
    if (op->resource == TRANSFER) {
        b = (uint64_t)load->transfers[op->link];
        if (forgotten == OWN_LINKS)
            b = (uint64_t)(load->transfers[NVLINK] + load->transfers[PCIE] + load->transfers[NIC]);
        if (forgotten == SHARING) b = 1;
        if (op->link == PCIE && forgotten != COPIES_COUNT) b += (uint64_t)load->copies;
        if (load->computes && forgotten != SLOW_TRANSFER)
            a = m->slow_transfer[1], b *= m->slow_transfer[0];
    } else if (op->resource == COMPUTE) {
        bool within = load->transfers[NVLINK] || load->transfers[PCIE];
        const uint64_t *slow =
            within || forgotten == SLOW_BY_LINK ? m->slow_compute : m->slow_compute_nic;
        if ((within || load->transfers[NIC]) && forgotten != SLOW_COMPUTE) a = slow[1], b = slow[0];
    } else if (op->host && forgotten != COPIES_SLOWED) {
        b = 1 + (uint64_t)load->transfers[PCIE];
    }
    uint64_t divisor = common_divisor(a, b);
    rate[0] = a / divisor;
    rate[1] = b / divisor;
}

static void set_rate(Operation *op, const uint64_t rate[2], Ps t)
{
    if (op->rate[0] == rate[0] && op->rate[1] == rate[1]) return;
    uint64_t up = forgotten == ROUNDED_DOWN ? op->rate[1] - 1 : 0;
    Ps done = (Ps)(((unsigned __int128)(t - op->set) * op->rate[0] + up) / op->rate[1]);
    op->left = done < op->left ? op->left - done : 0;
    op->set = t;
    op->rate[0] = rate[0];
    op->rate[1] = rate[1];
    up = forgotten == ROUNDED_UP ? 0 : rate[0] - 1;
    op->end = t + (Ps)(((unsigned __int128)op->left * rate[1] + up) / rate[0]);
}

void set_rates(Sim *s, Ps t)
{
    for (int r = 0; r < s->program->world.n_ranks; r++) {
        Load load = load_of(s, r);
        for (int i = 0; i < s->n_live; i++) {
            Operation *op = &s->op[s->live[i]];
            uint64_t rate[2];
            if (op->state != RUNNING || op->engine_of != r) continue;
            find_rate(&s->program->world.machine, op, &load, rate);
            set_rate(op, rate, t);
        }
    }
}

Ps next_instant(const Sim *s)
{
    Ps next = NEVER;
    for (int i = 0; i < s->n_live; i++) {
        const Operation *op = &s->op[s->live[i]];
        Ps t = NEVER;
        if (op->state == RUNNING) t = op->end;
        if (op->state == READY && op->resource == TRANSFER && !s->meeting[op->meeting].missing)
            t = s->meeting[op->meeting].start;
        if (t < next) next = t;
    }
    return next;
}
