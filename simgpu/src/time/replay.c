/* replay.c: computes the times of a whole world from its logs. See replay.h.
 *
 * Every process has a recorder and an engine, as in its own run. In place of boards in shared
 * memory there is a table. The engines take turns until none can proceed.
 */
#include <limits.h>
#include <string.h>

#include "time/recorder_internal.h"
#include "time/replay.h"
#include "time/tables.h"

#define MOST_DEVICES 1024
#define MOST_THREADS 4096
#define PIECE 1024 // entries that are recorded before the engines proceed

// A call of NCCL, or its hosts' meeting, as far as its ranks have arrived.
typedef struct Meeting {
    SimCall call; // of any of its ranks
    int to_come;  // ranks that have not arrived
    SimPs latest; // arrival
    int n;
    const struct Member **missing; // (n) ranks that have logs and have not arrived
} Meeting;

// A rank of a communicator, and its process.
typedef struct Member {
    uint64_t comm;
    int ranks, rank, log;
} Member;

typedef struct Replay {
    const SimLog *logs;
    int n_logs;
    struct Seat {
        struct Replay *replay;
        int log;
        SimRecorder *recorder;
        SimPs until;
        size_t recorded, told;
        int threads;
    } * seat;       // (n_logs)
    Member *member; // (n_members) by communicator and rank
    int n_members, members_room;
    Meeting *meeting;                 // open addressing, by key
    size_t n_meetings, meetings_room; // room: a power of two
    SimReplayHook hook;
    void *arg;
    bool changed;
    bool some; // ranks without a log are phantoms
} Replay;

// ---- Processes and ranks ----

// Where the rank of the communicator is, or would be.
static int place_of(const Replay *w, uint64_t comm, int rank)
{
    int low = 0, high = w->n_members;
    while (low < high) {
        int middle = (low + high) / 2;
        const Member *m = &w->member[middle];
        if (m->comm < comm || (m->comm == comm && m->rank < rank))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// False: two processes claim the same rank.
static bool add_member(Replay *w, const GpuCollective *c, int log)
{
    int place = place_of(w, c->comm, c->rank);
    const Member *at = w->member + place;
    if (place < w->n_members && at->comm == c->comm && at->rank == c->rank)
        return at->log == log && at->ranks == c->ranks;
    if (w->n_members == w->members_room) {
        w->members_room = w->members_room ? 2 * w->members_room : 16;
        w->member = sim_table_grow(w->member, (size_t)w->members_room, sizeof *w->member);
    }
    memmove(w->member + place + 1, w->member + place,
            (size_t)(w->n_members++ - place) * sizeof *w->member);
    w->member[place] = (Member){c->comm, c->ranks, c->rank, log};
    return true;
}

static const GpuLogEntry *entry_of(const SimLog *log, size_t i, GpuLogEntry *room)
{
    if (!log->read) return &log->entry[i];
    log->read(log->from, i, room);
    return room;
}

// Reads the logs once, before it makes items of them.
static const char *find_members(Replay *w)
{
    GpuLogEntry room;
    for (int log = 0; log < w->n_logs; log++)
        for (size_t i = 0; i < w->logs[log].n; i++) {
            const GpuLogEntry *e = entry_of(&w->logs[log], i, &room);
            const GpuCollective *c = &e->collective;
            if (e->device < 0 || e->device >= MOST_DEVICES) return "there is no such device";
            if (e->thread < 0 || e->thread >= MOST_THREADS) return "there are too many threads";
            if (w->seat[log].threads <= e->thread) w->seat[log].threads = e->thread + 1;
            if (c->comm && (c->ranks < 1 || c->rank < 0 || c->rank >= c->ranks))
                return "a communicator's rank is outside its ranks";
            if (c->comm && !add_member(w, c, log))
                return "two processes are the same rank of a communicator, or differ in its size";
        }
    return NULL;
}

// ---- The board ----

static bool is_same(const SimCall *a, const SimCall *b)
{
    return a->comm == b->comm && a->number == b->number && a->from == b->from && a->to == b->to &&
           a->meeting == b->meeting;
}

static uint64_t key_of(const SimCall *call)
{
    uint64_t key = call->comm;
    const uint64_t part[] = {call->number, (uint64_t)(int64_t)call->from,
                             (uint64_t)(int64_t)call->to, call->meeting};
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
        key = (key ^ part[i]) * UINT64_C(0x9e3779b97f4a7c15) ^ key >> 29;
    return key ^ key >> 32;
}

static Meeting *slot_of(Meeting *table, size_t room, const SimCall *call)
{
    size_t at = (size_t)key_of(call) & (room - 1);
    while (table[at].missing && !is_same(&table[at].call, call)) at = (at + 1) & (room - 1);
    return &table[at];
}

static void widen(Replay *w)
{
    size_t room = w->meetings_room ? 2 * w->meetings_room : 256;
    Meeting *table = sim_table_grow(NULL, room, sizeof *table);
    memset(table, 0, room * sizeof *table);
    for (size_t i = 0; i < w->meetings_room; i++)
        if (w->meeting[i].missing) *slot_of(table, room, &w->meeting[i].call) = w->meeting[i];
    sim_table_free(w->meeting);
    w->meeting = table;
    w->meetings_room = room;
}

// How many of the call's ranks the member is: of a message to itself both.
static int part_of(const Member *m, const SimCall *call)
{
    return call->from < 0 ? 1 : (m->rank == call->from) + (m->rank == call->to);
}

static Meeting make_meeting(const Replay *w, const SimCall *call)
{
    Meeting made = {.call = *call};
    const Member *first = w->member + place_of(w, call->comm, 0),
                 *end = w->member + place_of(w, call->comm, INT_MAX);
    made.missing = sim_table_grow(NULL, (size_t)(end - first) + 1, sizeof *made.missing);
    for (const Member *m = first; m < end; m++)
        for (int i = part_of(m, call); i > 0; i--) made.missing[made.n++] = m;
    made.to_come = w->some ? made.n : call->from < 0 ? first->ranks : 2;
    return made;
}

static Meeting *meeting_of(Replay *w, const SimCall *call)
{
    if (2 * (w->n_meetings + 1) > w->meetings_room) widen(w);
    Meeting *meeting = slot_of(w->meeting, w->meetings_room, call);
    if (!meeting->missing) {
        *meeting = make_meeting(w, call);
        w->n_meetings++;
    }
    return meeting;
}

static void arrived(void *arg, const SimCall *call, SimPs when)
{
    struct Seat *seat = arg;
    Meeting *meeting = meeting_of(seat->replay, call);
    int i = 0;
    while (i < meeting->n && meeting->missing[i]->rank != call->rank) i++;
    if (i < meeting->n) meeting->missing[i] = meeting->missing[--meeting->n];
    meeting->to_come--;
    if (meeting->latest < when) meeting->latest = when;
    seat->replay->changed = true;
}

static bool start(void *arg, const SimCall *call, SimPs *when)
{
    const struct Seat *seat = arg;
    const Meeting *meeting = meeting_of(seat->replay, call);
    *when = meeting->latest;
    for (int i = 0; i < meeting->n; i++) {
        const struct Seat *its = &seat->replay->seat[meeting->missing[i]->log];
        if (its != seat && *when < its->until) *when = its->until; // it does not arrive before
    }
    return meeting->to_come == 0;
}

static void until(void *arg, SimPs when, SimPs request)
{
    struct Seat *seat = arg;
    if (seat->until == when) return;
    seat->until = when;
    seat->replay->changed = true;
}

// ---- The whole world ----

static void on_span(const SimSpan *span, void *arg)
{
    struct Seat *seat = arg;
    if (!span) return;
    seat->told++;
    seat->replay->hook(seat->log, span, seat->replay->arg);
}

// Some more of the log; of several threads all of it, as one may begin late. False: there is none.
static bool record_more(struct Seat *seat)
{
    const SimLog *log = &seat->replay->logs[seat->log];
    SimEngine *engine = sim_recorder_engine(seat->recorder);
    size_t end = seat->recorded + PIECE;
    GpuLogEntry room;
    if (seat->recorded > log->n) return false;
    for (; seat->recorded < log->n && (seat->recorded < end || seat->threads > 1); seat->recorded++)
        sim_record_entry(seat->recorder, entry_of(log, seat->recorded, &room));
    if (seat->recorded < log->n) return true;
    seat->recorded++; // no more than once
    for (int i = 0; i < seat->threads || i < 1; i++) sim_engine_thread_gone(engine, i);
    return true;
}

static const char *run(Replay *w)
{
    bool more;
    do {
        more = false;
        for (int i = 0; i < w->n_logs; i++) more |= record_more(&w->seat[i]);
        do {
            w->changed = false;
            for (int i = 0; i < w->n_logs; i++)
                sim_engine_run(sim_recorder_engine(w->seat[i].recorder), 0);
        } while (w->changed);
        for (int i = 0; i < w->n_logs; i++) {
            sim_record_tell(w->seat[i].recorder);
            sim_record_tidy(w->seat[i].recorder);
        }
    } while (more);
    for (int i = 0; i < w->n_logs; i++)
        if (w->seat[i].told < w->logs[i].n)
            return "a collective or a message is not in the logs of all its ranks";
    return NULL;
}

static void release(Replay *w)
{
    for (int i = 0; i < w->n_logs; i++)
        if (w->seat[i].recorder) sim_recorder_free(w->seat[i].recorder);
    for (size_t i = 0; i < w->meetings_room; i++) sim_table_free(w->meeting[i].missing);
    sim_table_free(w->meeting);
    sim_table_free(w->member);
    sim_table_free(w->seat);
}

static const char *replay(const SimMachine *machine, const SimSpread *spread, Replay w)
{
    static const SimSpread plain = {.slow_rank = -1};
    int n_logs = w.n_logs;
    w.seat = sim_table_grow(NULL, (size_t)n_logs, sizeof *w.seat);
    for (int i = 0; i < n_logs; i++) w.seat[i] = (struct Seat){.replay = &w, .log = i};
    const char *wrong = find_members(&w);
    for (int i = 0; i < n_logs && !wrong; i++) {
        SimBoard board = {arrived, start, until, NULL, &w.seat[i]};
        w.seat[i].recorder = sim_recorder_new(machine, spread ? spread : &plain, &board, -1);
        sim_record_on_span(w.seat[i].recorder, on_span, &w.seat[i]);
        sim_record_reads(w.seat[i].recorder, w.logs[i].read, w.logs[i].from);
    }
    if (!wrong) wrong = run(&w);
    release(&w);
    return wrong;
}

const char *sim_replay_logs(const SimMachine *machine, const SimSpread *spread, const SimLog *logs,
                            int n_logs, SimReplayHook hook, void *arg)
{
    return replay(machine, spread,
                  (Replay){.logs = logs, .n_logs = n_logs, .hook = hook, .arg = arg});
}

const char *sim_replay_some(const SimMachine *machine, const SimSpread *spread, const SimLog *logs,
                            int n_logs, SimReplayHook hook, void *arg)
{
    return replay(machine, spread,
                  (Replay){.logs = logs, .n_logs = n_logs, .hook = hook, .arg = arg, .some = true});
}
