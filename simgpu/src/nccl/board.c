/* board.c: the virtual clock's board among processes: when ranks arrive at their calls.
 *
 * Each rank writes its arrivals into the memory that its communicator shares, by the number of the
 * call. Each process writes into its wait table a time before which it will arrive at no further
 * call. Processes need to know no more of each other's time. A process that waits for more rings
 * the bells of those for which it waits (time/resolve.c).
 *
 * Times are resolved late, perhaps after the communicator was destroyed. So its shared memory is
 * mapped here a second time, until all its calls are over.
 *
 * A rank whose process has ended without telling when it arrived counts as if it had arrived before
 * all others.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory/shared_memory.h"
#include "nccl/board.h"
#include "nccl/phantom.h"
#include "runtime/runtime.h"
#include "time/clock.h"
#include "time/recorder.h"
#include "time/time.h"

static const SimPatience PATIENCE = {.seconds = 0.2, .most = 0.2};
#define FEW 16 // communicators that are left and not over, before others are asked to go on

// Another process. It lives as long as a communicator with it is on the board.
typedef struct Other {
    struct Other *next;
    Peer *peer;
    ProcessWaitTable *table;
    int refs;
    bool waited_for; // this process needs its arrivals
    SimPs seen;      // its `until` when that was found out
    uint64_t told;   // clock_told when it was last added up
} Other;

typedef struct Entry {
    struct Entry *next;
    uint64_t nonce;
    CommShared *shared;
    int size;
    Other *other[SIM_MAX_RANKS]; // NULL: a rank of this process
    bool local[SIM_MAX_RANKS];
    int users;    // communicators of this process
    SimItem over; // when all have left it and this item has ended, it is over; 0: it lives
} Entry;

// All under the clock's lock.
static Entry *entries;
static Other *others;
static ProcessWaitTable *own;
static bool told; // something, since it was last published

// ---- Times ----

static void write_time(ClockTime *times, size_t room, uint64_t number, SimPs when)
{
    ClockTime *t = &times[number % room];
    atomic_store(&t->number, 0);
    atomic_store(&t->when, when);
    atomic_store(&t->number, number);
}

// The time of a call. One that is overwritten is so old that nothing needs it.
static bool read_time(const ClockTime *times, size_t room, uint64_t number, SimPs *when)
{
    const ClockTime *t = &times[number % room];
    uint64_t before, after = atomic_load(&t->number);
    do {
        before = after;
        *when = before == number ? atomic_load(&t->when) : 0;
        after = atomic_load(&t->number);
    } while (before != after);
    return before >= number;
}

static Entry *find_entry(uint64_t nonce)
{
    Entry *e = entries;
    while (e && e->nonce != nonce) e = e->next;
    return e;
}

static ClockTime *times_of(Channel *channel, bool meeting, bool sends)
{
    if (meeting) return sends ? channel->clock_met_sent : channel->clock_met_received;
    return sends ? channel->clock_sent : channel->clock_received;
}

static void tell_arrived(void *arg, const SimCall *call, SimPs when)
{
    Entry *e = find_entry(call->comm);
    if (!e) return;
    told = true;
    if (call->from < 0) {
        RankSlot *slot = &e->shared->slot[call->rank];
        if (call->meeting)
            write_time(slot->clock_met, SIM_CLOCK_MEETINGS, call->number, when);
        else
            write_time(slot->clock_arrived, SIM_CLOCK_CALLS, call->number, when);
        atomic_fetch_add(&own->clock_told, 1); // when it can be seen
        return;
    }
    Channel *channel = &e->shared->channel[call->from][call->to];
    write_time(times_of(channel, call->meeting, call->sends), SIM_CLOCK_MESSAGES, call->number,
               when);
    atomic_fetch_add(&own->clock_told, 1);
}

static bool arrival_of(const Entry *e, const SimCall *call, bool meeting, int rank, bool sends,
                       SimPs *when)
{
    if (call->from < 0) {
        const RankSlot *slot = &e->shared->slot[rank];
        return meeting ? read_time(slot->clock_met, SIM_CLOCK_MEETINGS, call->number, when)
                       : read_time(slot->clock_arrived, SIM_CLOCK_CALLS, call->number, when);
    }
    Channel *channel = &e->shared->channel[call->from][call->to];
    return read_time(times_of(channel, meeting, sends), SIM_CLOCK_MESSAGES, call->number, when);
}

static bool has_ended(const Entry *e, int rank)
{
    const Other *other = e->other[rank];
    uint32_t gone = atomic_load(&e->shared->slot[rank].gone);
    return atomic_load(&other->table->clock_until) == SIM_FOREVER || gone == GONE_DIED ||
           gone == GONE_FATAL || other->peer->ended;
}

// A time before which a rank of another process does not arrive at a call: the time of its request,
// once it has made that.
static SimPs bound_of(const Entry *e, const SimCall *call, int rank, bool sends)
{
    const ProcessWaitTable *table = e->other[rank]->table;
    SimPs request = atomic_load(&table->clock_request), until = atomic_load(&table->clock_until);
    SimPs met;
    bool asked = arrival_of(e, call, true, rank, sends, &met);
    if (call->meeting) return request > until ? request : until;
    return asked || request < until ? until : request;
}

// Moves *when to the arrival of one rank, or to a time before which it will not arrive. Reads first
// the time before which it arrives at nothing, then whether it has arrived.
static bool add_rank(Entry *e, const SimCall *call, int rank, bool sends, SimPs *when)
{
    Other *other = e->other[rank];
    bool is_other = !e->local[rank] && other;
    SimPs bound = is_other ? bound_of(e, call, rank, sends) : SIM_FOREVER;
    bool ended = other && has_ended(e, rank);
    SimPs at;
    bool there = arrival_of(e, call, call->meeting, rank, sends, &at);
    if (!there && ended) return true;
    if (!there) at = bound;
    if (!there && other) {
        other->waited_for = true;
        other->seen = atomic_load(&other->table->clock_until);
    }
    if (*when < at) *when = at;
    return there;
}

static bool find_start(void *arg, const SimCall *call, SimPs *when)
{
    Entry *e = find_entry(call->comm);
    bool all = true;
    *when = 0;
    if (!e) return true;
    if (call->from >= 0) {
        all = add_rank(e, call, call->from, true, when);
        all &= add_rank(e, call, call->to, false, when);
        return all;
    }
    for (int r = 0; r < e->size; r++) all &= add_rank(e, call, r, false, when);
    return all;
}

static SimPs find_missing(void *arg, const SimCall *call)
{
    Entry *e = find_entry(call->comm);
    SimPs least = SIM_FOREVER;
    for (int r = 0; e && r < e->size; r++) {
        bool sends = r == call->from, takes_part = call->from < 0 || sends || r == call->to;
        if (!takes_part || e->local[r] || !e->other[r] || has_ended(e, r)) continue;
        SimPs bound = bound_of(e, call, r, sends), at;
        if (!arrival_of(e, call, call->meeting, r, sends, &at) && bound < least) least = bound;
    }
    return least;
}

// The request is written after the time: a process that sees the request sees the time.
static void tell_until(void *arg, SimPs when, SimPs request)
{
    if (request == SIM_FOREVER) request--;
    if (request > atomic_load(&own->clock_request)) {
        atomic_store(&own->clock_request, request);
        told = true;
    }
    if (when <= atomic_load(&own->clock_until)) return;
    atomic_store(&own->clock_until, when == SIM_FOREVER ? SIM_FOREVER - 1 : when);
    told = true;
}

// ---- Bells ----

static void ring_bell(ProcessWaitTable *table)
{
    atomic_fetch_add(&table->clock_bell, 1);
    syscall(SYS_futex, &table->clock_bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void release_quiet(void);
static bool is_over(void *item);

static void publish(void)
{
    release_quiet();
    if (!told) return;
    told = false;
    for (Other *o = others; o; o = o->next)
        if (atomic_load(&o->table->clock_waits)) ring_bell(o->table);
}

static uint64_t seen_told; // by the others, before this run

static uint64_t told_by_others(void)
{
    uint64_t sum = 0;
    for (Other *o = others; o; o = o->next) sum += o->told = atomic_load(&o->table->clock_told);
    return sum;
}

static void count_told(void)
{
    atomic_store(&own->clock_stuck, 0);
    seen_told = told_by_others();
}

static bool is_done(const Other *o)
{
    return o->peer->ended || atomic_load(&o->table->clock_until) == SIM_FOREVER;
}

// Whether all processes wait for each other: each has seen all arrivals that the others have
// published, and none can go on. (A process may have peers that this one does not know. Then the
// counts differ, and the answer is no.)
static bool is_hopeless(bool stuck)
{
    if (stuck) atomic_store(&own->clock_stuck, seen_told + 1);
    if (!stuck || !others) return false;
    // Usually one of them is running, and the first look shows it.
    for (const Other *o = others; o; o = o->next)
        if (!is_done(o) && atomic_load(&o->table->clock_stuck) == 0) return false;
    if (seen_told != told_by_others()) return false;
    uint64_t all = seen_told + atomic_load(&own->clock_told);
    for (const Other *o = others; o; o = o->next)
        if (!is_done(o) && atomic_load(&o->table->clock_stuck) != all - o->told + 1) return false;
    return seen_told == told_by_others(); // no process has published more meanwhile
}

static void raise_wanted(ProcessWaitTable *table, SimPs wanted)
{
    uint64_t now = atomic_load(&table->clock_wanted);
    while (now < wanted && !atomic_compare_exchange_weak(&table->clock_wanted, &now, wanted))
        continue;
}

// The last turn of the engine has set `waited_for` of the processes that it found missing.
static void ring_awaited(SimPs want)
{
    atomic_store(&own->clock_waits, 1);
    for (Other *o = others; o; o = o->next) {
        if (!o->waited_for) continue;
        o->waited_for = false;
        raise_wanted(o->table, want == SIM_FOREVER || want <= o->seen ? o->seen + 1 : want);
        ring_bell(o->table);
    }
}

static void asked_enough(void)
{
    atomic_store(&own->clock_waits, 0);
}

static bool is_wanted(void)
{
    return atomic_load(&own->clock_wanted) > atomic_load(&own->clock_until);
}

static SimPs wanted(void)
{
    return atomic_load(&own->clock_wanted);
}

static void tell_over(void)
{
    atomic_store(&own->clock_until, SIM_FOREVER);
    atomic_fetch_add(&own->clock_told, 1); // its end is news, too
    for (Other *o = others; o; o = o->next) ring_bell(o->table);
}

// ---- Communicators ----

static Other *use_other(Peer *peer)
{
    Other *o = others;
    while (o && o->peer != peer) o = o->next;
    if (!o) {
        o = calloc(1, sizeof *o);
        if (!o) return NULL;
        peer->refs++; // under sim_lock
        *o = (Other){.next = others, .peer = peer, .table = peer->wait_table};
        others = o;
    }
    o->refs++;
    return o;
}

static void drop_other(Other *other)
{
    if (!other || --other->refs) return;
    Other **link = &others;
    while (*link != other) link = &(*link)->next;
    *link = other->next;
    sim_lock();
    sim_peer_drop(other->peer);
    sim_unlock();
    free(other);
}

static void remove_entry(Entry **link)
{
    Entry *e = *link;
    *link = e->next;
    for (int r = 0; r < e->size; r++) drop_other(e->other[r]);
    munmap(e->shared, sizeof(CommShared));
    free(e);
}

static void release_quiet(void)
{
    for (Entry **link = &entries; *link;) {
        Entry *e = *link;
        if (e->over && !e->users && is_over(&e->over))
            remove_entry(link);
        else
            link = &e->next;
    }
}

static void meet_peers(void)
{
    static const SimPeers those = {{tell_arrived, find_start, tell_until, find_missing, NULL},
                                   NULL,
                                   count_told,
                                   is_hopeless,
                                   publish,
                                   ring_awaited,
                                   asked_enough,
                                   is_wanted,
                                   wanted,
                                   tell_over};
    static SimPeers peers;
    if (own) return;
    own = sim_wait_table(NULL);
    peers = those;
    peers.bell = &own->clock_bell;
    sim_clock_meet_peers(&peers);
    sim_resolve_start();
}

static Entry *add_entry(ncclComm_t comm)
{
    void *at = sim_shared_map(comm->map->fd, NULL, 0, sizeof(CommShared));
    Entry *e = at == MAP_FAILED ? NULL : calloc(1, sizeof *e);
    if (!e) return NULL;
    *e = (Entry){.next = entries, .nonce = comm->shared->nonce, .shared = at, .size = comm->size};
    entries = e;
    sim_lock();
    for (int r = 0; r < comm->size; r++) {
        e->local[r] = comm->shared->slot[r].pid == getpid();
        if (comm->peer[r]) e->other[r] = use_other(comm->peer[r]);
    }
    sim_unlock();
    return e;
}

void sim_board_join(ncclComm_t comm)
{
    if (!sim_clock_on()) return;
    sim_clock_set_rank(comm->device, comm->rank);
    if (comm->size < 2) return;
    sim_clock_lock();
    meet_peers();
    Entry *e = find_entry(comm->shared->nonce);
    if (!e) e = add_entry(comm);
    if (e) e->users++;
    sim_clock_unlock();
}

static bool is_over(void *item)
{
    SimTimes times;
    const SimEngine *engine = sim_recorder_engine(sim_clock_recorder());
    return *(SimItem *)item < sim_engine_first(engine) ||
           sim_engine_times(engine, *(SimItem *)item, &times);
}

void sim_board_wait(ncclComm_t comm)
{
    if (!sim_clock_on() || sim_is_forked()) return;
    sim_clock_lock();
    sim_record_comm_wait(sim_clock_fed_recorder(), sim_clock_thread(), comm->shared->nonce);
    sim_clock_turn();
    sim_clock_unlock();
}

// Usually all that the host has waited for on the clock can be resolved now: then nothing is left
// of the communicator.
void sim_board_resolve(ncclComm_t comm)
{
    if (!sim_clock_on() || sim_is_forked() || comm->size < 2) return;
    sim_clock_lock();
    SimItem end = sim_record_comm_end(sim_clock_fed_recorder(), comm->shared->nonce);
    sim_resolve(is_over, &end, &PATIENCE);
    sim_clock_unlock();
}

void sim_board_leave(ncclComm_t comm)
{
    if (!sim_clock_on() || comm->size < 2) return;
    int left = 0;
    sim_clock_lock();
    Entry *e = find_entry(comm->shared->nonce);
    if (e && --e->users == 0) e->over = sim_record_comm_end(sim_clock_fed_recorder(), e->nonce);
    release_quiet();
    for (Entry *other = entries; other; other = other->next) left += other->over != 0;
    if (left > FEW) {
        sim_clock_turn();
        ring_awaited(SIM_FOREVER);
    }
    sim_clock_unlock();
}

int sim_board_nodes(ncclComm_t comm, int peer)
{
    uint64_t seen[SIM_MAX_RANKS][2];
    int n = 0;
    if (!sim_clock_on()) return 0;
    if (comm->phantoms) return sim_phantom_nodes(comm, peer, sim_clock_machine()->gpus_per_node);
    for (int r = 0; r < comm->size; r++) {
        const RankSlot *slot = &comm->shared->slot[r];
        if (peer >= 0 && r != peer && r != comm->rank) continue;
        uint64_t node = (uint64_t)(slot->gpu / sim_clock_machine()->gpus_per_node);
        int i = 0;
        while (i < n && (seen[i][0] != slot->host || seen[i][1] != node)) i++;
        if (i < n) continue;
        seen[n][0] = slot->host;
        seen[n++][1] = node;
    }
    return n;
}
