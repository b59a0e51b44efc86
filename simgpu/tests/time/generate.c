/* generate.c: random programs for the clock, from a seed.
 *
 * What makes times hard is drawn often: copies and kernels during transfers, two communicators at
 * work, a rank that comes late, threads, and figures of a machine that do not divide.
 */
#include "program.h"

#include <string.h>

typedef struct Dice {
    uint64_t state;
} Dice;

// 0 … n-1
static int below(Dice *d, int n)
{
    return (int)(draw_mix(d->state += 0x9e3779b97f4a7c15u) % (uint64_t)n);
}

static bool chance(Dice *d, int percent)
{
    return below(d, 100) < percent;
}

static void shuffle(Dice *d, int *list, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int k = below(d, i + 1), swap = list[i];
        list[i] = list[k];
        list[k] = swap;
    }
}

// ---- The machine ----

static Ps draw_time(Dice *d, bool odd, int most_us)
{
    if (odd) return (Ps)(1 + below(d, most_us * 1000000));
    return (Ps)(1 + below(d, most_us)) * 1000000;
}

// bytes/s; few enough for some KiB to take as long as a kernel does to start.
static double draw_bandwidth(Dice *d, bool odd)
{
    static const double even[] = {1e9, 2e9, 4e9, 5e9},
                        uneven[] = {0.75 * 1e9, 1.625 * 1e9, 3e9, 7e9, 3.35 * 1e9};
    return odd ? uneven[below(d, 5)] : even[below(d, 4)];
}

static void draw_ratio(Dice *d, uint64_t ratio[2])
{
    static const uint64_t some[][2] = {{1, 1}, {2, 1}, {3, 2}, {138, 100}, {13, 10}, {1003, 1000}};
    memcpy(ratio, some[below(d, 6)], sizeof some[0]);
}

static void draw_machine(Dice *d, int n_ranks, Machine *m)
{
    bool odd = chance(d, 60);
    m->gpus_per_node = chance(d, 50) ? 8 : 1 + below(d, n_ranks);
    m->launch = draw_time(d, odd, 5);
    m->collective = draw_time(d, odd, 8);
    m->enqueue = draw_time(d, odd, 2);
    m->allocate = draw_time(d, odd, 20);
    m->free = draw_time(d, odd, 20);
    m->pin = draw_time(d, odd, 20);
    m->sync = draw_time(d, odd, 2);
    m->query = draw_time(d, odd, 2);
    m->wake = draw_time(d, odd, 5);
    m->kernel = draw_time(d, odd, 4);
    m->copy = draw_time(d, odd, 4);
    m->latency = 1000 + draw_time(d, odd, 10);
    m->hbm = draw_bandwidth(d, odd);
    m->peak = (odd ? 0.0029296875 : 0.00390625) * 1e12;
    m->bandwidth[NVLINK] = chance(d, 60) ? draw_bandwidth(d, odd) : 0;
    m->bandwidth[PCIE] = draw_bandwidth(d, odd);
    m->bandwidth[NIC] = draw_bandwidth(d, odd);
    draw_ratio(d, m->slow_compute);
    draw_ratio(d, m->slow_compute_nic);
    draw_ratio(d, m->slow_transfer);
}

// ---- The world ----

static void draw_ranks(Dice *d, World *w)
{
    w->n_processes = 1 + below(d, 4);
    w->n_ranks = w->n_processes;
    for (int p = 0; p < w->n_processes; p++) w->process[p] = p;
    for (int p = 0; p < w->n_processes && w->n_ranks < MAX_RANKS; p++)
        if (chance(d, 25)) w->process[w->n_ranks++] = p;
    for (int i = 0; i < w->n_ranks * STREAMS; i++) w->made[i] = i;
    shuffle(d, w->made, w->n_ranks * STREAMS);
}

static void draw_comms(Dice *d, World *w)
{
    w->n_comms = 1 + below(d, MAX_COMMS);
    for (int i = 0; i < w->n_comms; i++) {
        Comm *c = &w->comm[i];
        c->n = i == 0 ? w->n_ranks : 1 + below(d, w->n_ranks);
        for (int r = 0; r < w->n_ranks; r++) c->rank[r] = r;
        if (i > 0) shuffle(d, c->rank, w->n_ranks);
        c->split = i > 0 && chance(d, 50);
    }
}

// Slow ranks, and jitter. Which operation is the process's n-th would be a matter of luck where two
// threads are at work.
static void draw_slowness(Dice *d, World *w)
{
    if (chance(d, 15)) w->slow_percent = 1 + below(d, 50);
    w->slow_rank = below(d, w->n_ranks);
    if (chance(d, 15)) w->jitter_percent = 1 + below(d, 20);
    w->jitter_seed = (uint64_t)below(d, 1 << 30);
}

// ---- Steps ----

typedef struct Hand {
    Dice dice;
    Program *p;
    int section;
    Phase phase[MAX_PROCESSES];
    int phases; // so far
    int rank;   // that has the next call, while it is busy
    int busy;   // calls that it has before others are drawn again
} Hand;

static bool add(Hand *h, Step *s)
{
    if (h->p->n == MAX_STEPS) return false;
    s->section = h->section;
    memcpy(s->phase, h->phase, sizeof s->phase);
    h->p->step[h->p->n++] = *s;
    if (is_valid(h->p)) return true;
    h->p->n--;
    return false;
}

static int draw_bytes(Dice *d)
{
    return 4 * (1 + below(d, chance(d, 50) ? 256 : MAX_BYTES / 4));
}

static StreamName draw_stream(Dice *d)
{
    static const StreamName some[] = {LEGACY, BLOCKING_A, BLOCKING_B, FREE_A,
                                      FREE_A, FREE_B,     FREE_B};
    return some[below(d, 7)];
}

static Kind draw_kind(Dice *d)
{
    static const Kind often[] = {KERNEL, KERNEL, KERNEL, TO_DEVICE_PINNED, FROM_DEVICE_PINNED,
                                 WAIT,   RECORD, WAIT,   STREAM_QUERY,     EVENT_QUERY};
    static const Kind frees[] = {FREE_ASYNC, FREE, UNPIN}; // often there is nothing to free
    if (chance(d, 8)) return frees[below(d, 3)];
    return chance(d, 60) ? often[below(d, 10)] : (Kind)below(d, NCCL);
}

static bool is_sync(Kind kind)
{
    return kind == STREAM_SYNC || kind == EVENT_SYNC || kind == DEVICE_SYNC || kind == FREE;
}

static int sibling_of(const World *w, int rank)
{
    for (int r = 0; r < w->n_ranks; r++)
        if (r != rank && w->process[r] == w->process[rank]) return r;
    return -1;
}

static void add_record(Hand *h, int rank, StreamName stream)
{
    Dice *d = &h->dice;
    Step s = {.kind = RECORD, .rank = rank, .stream = stream, .slot = below(d, EVENTS)};
    s.again = chance(d, 10);
    add(h, &s);
}

static void add_call(Hand *h)
{
    Dice *d = &h->dice;
    const World *w = &h->p->world;
    Step s = {.kind = draw_kind(d), .rank = h->busy ? h->rank : below(d, w->n_ranks)};
    int sibling = sibling_of(w, s.rank);
    bool alone = h->phase[w->process[s.rank]].mode == THREAD_A_DEVICE || sibling < 0;
    s.stream = draw_stream(d);
    if (s.kind == MEMSET || s.kind == TO_DEVICE || s.kind == FROM_DEVICE) s.stream = LEGACY;
    s.slot = below(d, s.kind >= ALLOC_ASYNC && s.kind <= UNPIN ? BLOCKS : EVENTS);
    s.from = s.kind == WAIT && !alone && chance(d, 30) ? sibling : s.rank;
    if (s.kind == PEER_ASYNC && alone) s.kind = COPY_ASYNC;
    if (s.kind == PEER_ASYNC && chance(d, 50)) s.from = sibling;
    if (s.kind == RECORD) s.again = chance(d, 10);
    if (s.kind < ALLOC_ASYNC) s.read = draw_bytes(d);
    if (s.kind == KERNEL) {
        s.write = chance(d, 50) ? draw_bytes(d) : 0;
        s.update = chance(d, 20) ? draw_bytes(d) : 0;
        s.flops = chance(d, 30) ? 1 + below(d, 50000) : 0;
    }
    bool added = add(h, &s);
    for (int i = 0; i < BLOCKS && !added && s.kind >= ALLOC_ASYNC && s.kind <= UNPIN; i++) {
        s.slot = i; // one that is free, or that holds something
        added = add(h, &s);
    }
    if (!added) return;
    if (h->busy) h->busy--;
    if (s.kind <= FREE_ASYNC && chance(d, 50)) add_record(h, s.rank, s.stream);
    if (is_sync(s.kind) && chance(d, 50)) add_record(h, s.rank, CLOCK_STREAM);
}

static Call draw_call(Dice *d, const World *w, int comm, bool own_stream, StreamName stream)
{
    const Comm *c = &w->comm[comm];
    Call call = {.op = (Collective)below(d, COLLECTIVES), .comm = comm, .root = below(d, c->n)};
    if (call.op == MESSAGE && c->n == 1) call.op = ALL_REDUCE;
    if (call.op == MESSAGE) call.to = (call.root + 1 + below(d, c->n - 1)) % c->n;
    int most = chance(d, 30) ? 64 : MAX_BYTES / 4 / c->n;
    call.bytes = 4 * c->n * (1 + below(d, most));
    for (int i = 0; i < c->n; i++) call.stream[i] = own_stream ? stream : draw_stream(d);
    return call;
}

// One call; or a group on one communicator; or on two, with a stream for each.
static void add_nccl(Hand *h)
{
    Dice *d = &h->dice;
    const World *w = &h->p->world;
    Step s = {.kind = NCCL, .n_calls = 1};
    int first = below(d, w->n_comms), second = below(d, w->n_comms);
    bool two = chance(d, 15) && first != second;
    if (two || chance(d, 25)) s.n_calls = 2 + below(d, MAX_CALLS - 1);
    for (int i = 0; i < s.n_calls; i++) {
        bool other = two && chance(d, 50);
        s.call[i] = draw_call(d, w, other ? second : first, two, other ? FREE_B : FREE_A);
    }
    if (!add(h, &s)) return;
    for (int r = 0; r < w->n_ranks; r++)
        for (int i = 0; i < s.n_calls; i++)
            if (calls(w, &s.call[i], r) && chance(d, 40))
                add_record(h, r, s.call[i].stream[member_of(&w->comm[s.call[i].comm], r)]);
}

static void change_threads(Hand *h)
{
    Dice *d = &h->dice;
    int process = below(d, h->p->world.n_processes);
    static const Mode often[] = {FIRST_THREAD,    FIRST_THREAD,  NEW_THREAD,   NEW_THREAD,
                                 THREAD_A_DEVICE, SECOND_THREAD, SECOND_THREAD};
    Mode mode = often[below(d, 7)];
    bool two = sibling_of(&h->p->world, process) >= 0;
    if (mode == SECOND_THREAD && two) mode = THREAD_A_DEVICE;
    if (mode == THREAD_A_DEVICE && h->p->world.jitter_percent) mode = NEW_THREAD;
    h->phase[process] = (Phase){mode, ++h->phases};
}

static void add_section(Hand *h)
{
    Dice *d = &h->dice;
    const World *w = &h->p->world;
    int until = h->p->n + 10 + below(d, 30);
    bool threads = chance(d, 40);
    while (h->p->n < until && h->p->n < MAX_STEPS - 4 * MAX_RANKS) {
        if (threads && chance(d, 10)) change_threads(h);
        if (!h->busy && chance(d, 5)) { // a rank that is late
            h->rank = below(d, w->n_ranks);
            h->busy = 3 + below(d, 10);
        }
        if (!h->busy && chance(d, 30))
            add_nccl(h);
        else
            add_call(h);
    }
    for (int r = 0; r < w->n_ranks && chance(d, 70); r++) {
        Step s = {.kind = DEVICE_SYNC, .rank = r};
        add(h, &s);
        add_record(h, r, CLOCK_STREAM);
    }
}

void generate(Program *p, uint64_t seed, int sections)
{
    Hand h = {.dice = {draw_mix(seed)}, .p = p};
    memset(p, 0, sizeof *p);
    p->seed = seed;
    draw_ranks(&h.dice, &p->world);
    draw_machine(&h.dice, p->world.n_ranks, &p->world.machine);
    draw_comms(&h.dice, &p->world);
    draw_slowness(&h.dice, &p->world);
    for (h.section = 0; h.section < sections; h.section++) add_section(&h);
}
