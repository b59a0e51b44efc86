/* engine.c: the event simulation. See engine.h, and simgpu/pages/time.md for what it computes.
 *
 * Time goes from instant to instant. At each, operations end, and all that becomes ready by it; then
 * operations start; then rates are set. Between the first and the second the engine may have to
 * stop: what a thread queues at this instant must be there before anything starts.
 *
 * Interface: engine.h.
 */
#include "time/engine.h"

#include <stdlib.h>
#include <string.h>
#include <stdio.h>

#include "report/report.h"
#include "time/timeline.h"

typedef enum State {
    WAITING,   // for other items
    QUEUED,    // ready, in its resource's order
    ARRIVED,   // other ranks have not, or it is not known
    SCHEDULED, // its transfer starts, or its meeting ends, at a time that is known
    RUNNING,
    ENDED,
} State;

typedef struct Item {
    SimItemSpec spec;
    State state;
    uint32_t waits_for; // so many items
    uint32_t followers; // the first edge, 0: none
    SimTimes at;
    SimPs bound;       // ARRIVED: it does not start before
    SimPs left, since; // work left when the rate was last set
    uint64_t num, den; // the rate; 0: not set
    uint32_t version;  // of its event
} Item;

typedef struct Edge {
    uint32_t next;
    SimItem to;
} Edge;

typedef struct Items {
    SimItem *item;
    int n, room;
} Items;

typedef enum Resource { COMPUTE, ENGINE_IN, ENGINE_OUT, RESOURCES } Resource;

typedef struct Device {
    SimHeap queue[RESOURCES];
    SimItem busy[RESOURCES]; // 0: idle
    Items transfers;         // under way
    bool changed;            // since rates were set
} Device;

typedef struct Thread {
    bool lives;
    SimItem clock;
} Thread;

struct SimEngine {
    const SimMachine *machine;
    SimBoard board;
    Item *items; // (room, a power of 2), by number modulo room
    SimItem first, next, oldest;
    size_t room;
    Edge *edges;
    uint32_t n_edges, edges_room, free_edge;
    SimHeap events;
    Items arrived;  // transfers and meetings whose start is not known
    Items starting; // transfers that start at this instant
    Items ready;    // to be looked at
    size_t to_come, meets_to_come; // calls that have not arrived
    bool news;      // a rank of this engine has arrived somewhere
    Device *device;
    int n_devices;
    Thread *thread;
    int n_threads;
    SimPs now, settled, promised;
};

// ---- Memory ----

#include <fcntl.h>
#include <stdio.h>
static int dbgfd(void){static int f; if(!f) f=open("/tmp/dbg.log",O_WRONLY|O_APPEND|O_CREAT,0600); return f;}
static void *grow(void *table, size_t count, size_t size)
{
    void *larger = realloc(table, count * size);
    if (!larger)
        sim_fatal(SIMGPU_SYSTEM, "the host ran out of memory", "The clock needs %zu bytes more.",
                  count * size);
    return larger;
}

static void push(Items *list, SimItem item)
{
    if (list->n == list->room) {
        list->room = list->room ? 2 * list->room : 8;
        list->item = grow(list->item, (size_t)list->room, sizeof *list->item);
    }
    list->item[list->n++] = item;
}

static void drop(Items *list, SimItem item)
{
    for (int i = 0; i < list->n; i++)
        if (list->item[i] == item) {
            list->item[i] = list->item[--list->n];
            return;
        }
}

static Item *get(const SimEngine *e, SimItem number)
{
    return &e->items[number & (e->room - 1)];
}

static Item *new_item(SimEngine *e, SimItem *number)
{
    if (e->next - e->first == e->room) {
        size_t room = e->room ? 2 * e->room : 1024;
        Item *items = grow(NULL, room, sizeof *items);
        for (SimItem i = e->first; i < e->next; i++) items[i & (room - 1)] = *get(e, i);
        free(e->items);
        e->items = items;
        e->room = room;
    }
    *number = e->next++;
    Item *item = get(e, *number);
    memset(item, 0, sizeof *item);
    return item;
}

static void add_follower(SimEngine *e, Item *item, SimItem follower)
{
    uint32_t edge = e->free_edge;
    if (edge) {
        e->free_edge = e->edges[edge].next;
    } else {
        if (e->n_edges == e->edges_room) {
            e->edges_room = e->edges_room ? 2 * e->edges_room : 1024;
            e->edges = grow(e->edges, e->edges_room, sizeof *e->edges);
            if (!e->n_edges) e->n_edges = 1; // 0 is none
        }
        edge = e->n_edges++;
    }
    e->edges[edge] = (Edge){item->followers, follower};
    item->followers = edge;
}

static Device *device_of(SimEngine *e, const Item *item)
{
    int index = item->spec.device;
    if (index >= e->n_devices) {
        e->device = grow(e->device, (size_t)index + 1, sizeof *e->device);
        memset(e->device + e->n_devices, 0, (size_t)(index + 1 - e->n_devices) * sizeof *e->device);
        e->n_devices = index + 1;
    }
    return &e->device[index];
}

// ---- Ready, started, ended ----

static void schedule(SimEngine *e, SimItem number, SimPs when)
{
    Item *item = get(e, number);
    sim_heap_push(&e->events, (SimHeapEntry){when, 0, number, ++item->version});
}

static Resource resource_of(SimItemKind kind)
{
    return kind == SIM_ITEM_COMPUTE ? COMPUTE : kind == SIM_ITEM_COPY_IN ? ENGINE_IN : ENGINE_OUT;
}

// The followers that wait for nothing else go to the list of ready ones.
static void end(SimEngine *e, SimItem number, SimPs when)
{
    Item *item = get(e, number);
    SimItemKind kind = item->spec.kind;
    item->at.end = when;
    if (item->state == RUNNING && kind != SIM_ITEM_HOST) {
        Device *device = device_of(e, item);
        device->changed = true;
        if (kind == SIM_ITEM_TRANSFER)
            drop(&device->transfers, number);
        else
            device->busy[resource_of(kind)] = 0;
    }
    item->state = ENDED;
    for (uint32_t edge = item->followers, next; edge; edge = next) {
        next = e->edges[edge].next;
        SimItem to = e->edges[edge].to;
        Item *follower = get(e, to);
        if (follower->at.ready < when) follower->at.ready = when;
        if (--follower->waits_for == 0) push(&e->ready, to);
        e->edges[edge].next = e->free_edge;
        e->free_edge = edge;
    }
    item->followers = 0;
    while (e->oldest < e->next && get(e, e->oldest)->state == ENDED) e->oldest++;
}

static void arrive(SimEngine *e, SimItem number, Item *item)
{
    e->board.arrived(e->board.arg, &item->spec.call, item->at.ready);
    e->news = true;
    e->to_come--;
    if (item->spec.kind == SIM_ITEM_MEET) e->meets_to_come--;
    item->state = ARRIVED;
    item->bound = 0;
    push(&e->arrived, number);
}

static void become_ready(SimEngine *e, SimItem number)
{
    Item *item = get(e, number);
    const SimItemSpec *spec = &item->spec;
    if (item->at.ready < spec->not_before) item->at.ready = spec->not_before;
    if (spec->kind == SIM_ITEM_HOST) { // it may lie in the past: it only hands a time on
        item->at.start = item->at.ready;
        SimPs ends = item->at.ready + spec->work;
        item->state = RUNNING;
        if (ends <= e->now)
            end(e, number, ends);
        else
            schedule(e, number, ends);
        return;
    }
    if (item->at.ready < e->now && getenv("DBG")) dprintf(dbgfd(), "DBG late %lu now %lu kind %d dev %d\n", item->at.ready, e->now, spec->kind, spec->device);
    if (item->at.ready < e->now) item->at.ready = e->now; // its threads raced for the device
    if (spec->kind >= SIM_ITEM_TRANSFER && item->at.ready < e->promised)
        item->at.ready = e->promised;
    if (spec->kind >= SIM_ITEM_TRANSFER) {
        arrive(e, number, item);
        return;
    }
    Device *device = device_of(e, item);
    item->state = QUEUED;
    device->changed = true;
    sim_heap_push(&device->queue[resource_of(spec->kind)],
                  (SimHeapEntry){item->at.ready, spec->stream, number, 0});
}

static void settle_ready(SimEngine *e)
{
    while (e->ready.n) become_ready(e, e->ready.item[--e->ready.n]);
}

// The next event that is still meant; false: there is none.
static bool next_event(SimEngine *e, SimHeapEntry *event)
{
    while (sim_heap_top(&e->events, event)) {
        bool forgotten = event->item < e->first;
        const Item *item = forgotten ? NULL : get(e, event->item);
        if (item && item->version == event->version && item->state != ENDED) return true;
        sim_heap_pop(&e->events);
    }
    return false;
}

static void end_all(SimEngine *e)
{
    SimHeapEntry event;
    settle_ready(e);
    while (next_event(e, &event) && event.time <= e->now) {
        sim_heap_pop(&e->events);
        Item *item = get(e, event.item);
        if (item->state == SCHEDULED && item->spec.kind == SIM_ITEM_TRANSFER)
            push(&e->starting, event.item);
        else
            end(e, event.item, e->now);
        settle_ready(e);
    }
}

static void start(SimEngine *e, Device *device, SimItem number)
{
    Item *item = get(e, number);
    item->state = RUNNING;
    item->at.start = e->now;
    item->left = item->spec.work;
    item->num = item->den = 0;
    device->changed = true;
    if (item->spec.kind == SIM_ITEM_TRANSFER)
        push(&device->transfers, number);
    else
        device->busy[resource_of(item->spec.kind)] = number;
}

static void start_all(SimEngine *e)
{
    SimHeapEntry entry;
    for (int i = 0; i < e->starting.n; i++) {
        SimItem number = e->starting.item[i];
        start(e, device_of(e, get(e, number)), number);
    }
    e->starting.n = 0;
    for (int d = 0; d < e->n_devices; d++) {
        Device *device = &e->device[d];
        if (!device->changed) continue;
        for (int r = 0; r < RESOURCES; r++)
            if (!device->busy[r] && sim_heap_top(&device->queue[r], &entry)) {
                sim_heap_pop(&device->queue[r]);
                start(e, device, entry.item);
            }
    }
}

// ---- Rates ----

static uint64_t common(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void set_rate(SimEngine *e, SimItem number, uint64_t num, uint64_t den)
{
    Item *item = get(e, number);
    uint64_t divisor = common(num, den);
    num /= divisor;
    den /= divisor;
    if (item->num == num && item->den == den) return;
    if (item->den) {
        unsigned __int128 done = (unsigned __int128)(e->now - item->since) * item->num / item->den;
        item->left = done < item->left ? item->left - (SimPs)done : 0;
    }
    item->since = e->now;
    item->num = num;
    item->den = den;
    unsigned __int128 takes = ((unsigned __int128)item->left * den + num - 1) / num;
    schedule(e, number, e->now + (SimPs)takes);
}

static bool is_host_copy(const SimEngine *e, SimItem number)
{
    SimItemKind kind = number ? get(e, number)->spec.kind : SIM_ITEM_HOST;
    return kind == SIM_ITEM_COPY_IN || kind == SIM_ITEM_COPY_OUT;
}

static void set_rates(SimEngine *e, Device *device)
{
    const SimMachine *m = e->machine;
    uint64_t on_link[SIM_LINKS] = {0}, copies = 0;
    for (int i = 0; i < device->transfers.n; i++)
        on_link[get(e, device->transfers.item[i])->spec.link]++;
    for (int r = ENGINE_IN; r <= ENGINE_OUT; r++) copies += is_host_copy(e, device->busy[r]);
    SimRatio one = {1, 1};
    SimRatio slow = device->busy[COMPUTE] ? m->slow_transfer : one;
    for (int i = 0; i < device->transfers.n; i++) {
        SimLink link = get(e, device->transfers.item[i])->spec.link;
        uint64_t sharing = on_link[link] + (link == SIM_PCIE ? copies : 0);
        set_rate(e, device->transfers.item[i], slow.den, slow.num * sharing);
    }
    for (int r = ENGINE_IN; r <= ENGINE_OUT; r++)
        if (device->busy[r])
            set_rate(e, device->busy[r], 1,
                     is_host_copy(e, device->busy[r]) ? 1 + on_link[SIM_PCIE] : 1);
    slow = device->transfers.n ? m->slow_compute : one;
    if (device->busy[COMPUTE]) set_rate(e, device->busy[COMPUTE], slow.den, slow.num);
    device->changed = false;
}

// ---- How far it can go ----

// Whether a thread stands here that may still queue something.
static bool thread_stands(const SimEngine *e, const Thread *thread)
{
    return thread->lives && (thread->clock < e->first || get(e, thread->clock)->state == ENDED);
}

// A time before which no thread makes a request that has not been told.
static SimPs next_request(const SimEngine *e)
{
    SimPs earliest = SIM_FOREVER;
    for (int i = 0; i < e->n_threads; i++) {
        const Thread *thread = &e->thread[i];
        if (!thread->lives) continue;
        const Item *clock = thread->clock < e->first ? NULL : get(e, thread->clock);
        SimPs when = e->settled;
        if (clock && clock->state == ENDED) when = clock->at.end;
        if (clock && clock->state == RUNNING) when = clock->at.ready + clock->spec.work;
        if (when < e->settled) when = e->settled;
        if (when < earliest) earliest = when;
    }
    return e->meets_to_come ? e->settled : earliest;
}

static bool a_thread_stands(const SimEngine *e)
{
    for (int i = 0; i < e->n_threads; i++)
        if (thread_stands(e, &e->thread[i])) return true;
    return false;
}

// The earliest time at which one of the transfers may start that are not known to; looks on the
// board for them where that is not after `least`.
static SimPs look_at_board(SimEngine *e, SimPs least)
{
    SimPs earliest = SIM_FOREVER;
    for (int i = 0; i < e->arrived.n; i++) {
        SimItem number = e->arrived.item[i];
        Item *item = get(e, number);
        if (e->news || item->bound <= least) {
            SimPs when = 0, latency = item->spec.latency;
            bool known = e->board.start(e->board.arg, &item->spec.call, &when);
            if (when < item->at.ready) when = item->at.ready;
            item->bound = when > SIM_FOREVER - latency ? SIM_FOREVER : when + latency;
            if (known) {
                item->at.start = item->bound;
                item->state = SCHEDULED;
                schedule(e, number, item->bound < e->now ? e->now : item->bound);
                e->arrived.item[i--] = e->arrived.item[--e->arrived.n];
                continue;
            }
        }
        if (item->bound < earliest) earliest = item->bound;
    }
    e->news = false;
    return earliest;
}

// Goes on to the next instant, or says how far it is settled that there is none.
static bool advance(SimEngine *e)
{
    SimHeapEntry event = {0};
    e->settled = e->now;
    if (a_thread_stands(e)) return false;
    if (look_at_board(e, e->now) <= e->now) return false;
    if (next_event(e, &event) && event.time <= e->now) return true; // the board has made one
    start_all(e);
    for (int d = 0; d < e->n_devices; d++)
        if (e->device[d].changed) set_rates(e, &e->device[d]);
    bool more = next_event(e, &event);
    SimPs bound = look_at_board(e, more ? event.time : SIM_FOREVER);
    more = next_event(e, &event);
    if (more && event.time <= bound) {
        e->now = e->settled = event.time;
        return true;
    }
    e->settled = bound;
    return false;
}

void sim_engine_run(SimEngine *e, SimPs least)
{
    SimPs before = e->settled;
    do end_all(e);
    while (advance(e));
    if (e->settled == SIM_FOREVER) e->settled = e->now > least ? e->now : least;
    if (e->settled < before) e->settled = before;
    e->promised = e->settled;
    if (e->board.until) e->board.until(e->board.arg, e->promised, next_request(e));
}

SimPs sim_engine_next(SimEngine *e)
{
    SimHeapEntry event;
    for (int d = 0; d < e->n_devices; d++)
        if (e->device[d].changed) return e->now + 1;
    return next_event(e, &event) ? event.time : SIM_FOREVER;
}

bool sim_engine_is_stuck(SimEngine *e)
{
    SimHeapEntry event;
    return e->arrived.n && !a_thread_stands(e) && !next_event(e, &event);
}

void sim_engine_give_up(SimEngine *e)
{
    SimItem oldest = 0;
    for (int i = 0; i < e->arrived.n; i++)
        if (!oldest || e->arrived.item[i] < oldest) oldest = e->arrived.item[i];
    if (!oldest) return;
    Item *item = get(e, oldest);
    drop(&e->arrived, oldest);
    item->state = SCHEDULED;
    item->at.start = e->now > item->at.ready ? e->now : item->at.ready;
    item->at.start += item->spec.latency;
    schedule(e, oldest, item->at.start);
}

// ---- What callers use ----

SimEngine *sim_engine_new(const SimMachine *machine, const SimBoard *board)
{
    SimEngine *e = grow(NULL, 1, sizeof *e);
    memset(e, 0, sizeof *e);
    e->machine = machine;
    if (board) e->board = *board;
    e->first = e->next = e->oldest = 1;
    return e;
}

void sim_engine_free(SimEngine *e)
{
    for (int d = 0; d < e->n_devices; d++) {
        for (int r = 0; r < RESOURCES; r++) free(e->device[d].queue[r].entry);
        free(e->device[d].transfers.item);
    }
    free(e->items);
    free(e->edges);
    free(e->events.entry);
    free(e->arrived.item);
    free(e->starting.item);
    free(e->ready.item);
    free(e->device);
    free(e->thread);
    free(e);
}

SimItem sim_engine_add(SimEngine *e, const SimItemSpec *spec, const SimItem *after, int n)
{
    SimItem number;
    Item *item = new_item(e, &number);
    item->spec = *spec;
    e->to_come += spec->kind >= SIM_ITEM_TRANSFER;
    e->meets_to_come += spec->kind == SIM_ITEM_MEET;
    for (int i = 0; i < n; i++) {
        if (after[i] < e->first) continue; // 0, or forgotten
        Item *before = get(e, after[i]);
        if (before->state == ENDED) {
            if (item->at.ready < before->at.end) item->at.ready = before->at.end;
        } else {
            add_follower(e, before, number);
            item->waits_for++;
        }
    }
    if (item->waits_for == 0) become_ready(e, number);
    return number;
}

static Thread *thread_of(SimEngine *e, int index)
{
    if (index >= e->n_threads) {
        e->thread = grow(e->thread, (size_t)index + 1, sizeof *e->thread);
        memset(e->thread + e->n_threads, 0, (size_t)(index + 1 - e->n_threads) * sizeof *e->thread);
        e->n_threads = index + 1;
    }
    return &e->thread[index];
}

void sim_engine_thread(SimEngine *e, int thread, SimItem clock)
{
    *thread_of(e, thread) = (Thread){true, clock};
}

void sim_engine_thread_gone(SimEngine *e, int thread)
{
    thread_of(e, thread)->lives = false;
}

bool sim_engine_waits_for(const SimEngine *e, int thread)
{
    return thread < e->n_threads && thread_stands(e, &e->thread[thread]);
}

bool sim_engine_times(const SimEngine *e, SimItem number, SimTimes *times)
{
    if (number < e->first || number >= e->next || get(e, number)->state != ENDED) return false;
    *times = get(e, number)->at;
    return true;
}

SimPs sim_engine_now(const SimEngine *e)
{
    return e->settled;
}

SimItem sim_engine_oldest(const SimEngine *e)
{
    return e->oldest;
}

void sim_engine_forget(SimEngine *e, SimItem item)
{
    if (item > e->oldest) item = e->oldest;
    if (item > e->first) e->first = item;
}

size_t sim_engine_items(const SimEngine *e)
{
    return (size_t)(e->next - e->first);
}

size_t sim_engine_calls_to_come(const SimEngine *e)
{
    return e->to_come;
}

SimItem sim_engine_first(const SimEngine *e)
{
    return e->first;
}
