/* engine.c: the event simulation. See engine.h, and simgpu/pages/time.md for what it computes.
 *
 * Time goes from instant to instant. At each, operations end, and others become ready by that; then
 * operations start; then rates are set. Between the first and the second step the engine may have
 * to stop: what a thread queues at this instant must be known before anything starts.
 */
#include <string.h>

#include "time/engine_internal.h"
#include "time/tables.h"

// ---- Ready, started, ended ----

// Puts followers that wait for nothing else on the list of ready items.
static void end(SimEngine *e, SimItem number, SimPs when)
{
    Item *item = sim_item(e, number);
    SimItemKind kind = item->kind;
    item->at.end = when;
    if (item->state == RUNNING && kind != SIM_ITEM_HOST) {
        Device *device = sim_item_device(e, item);
        device->changed = true;
        if (kind == SIM_ITEM_TRANSFER)
            sim_items_drop(&device->transfers, number);
        else
            device->busy[sim_resource_of(kind)] = 0;
    }
    item->state = ENDED;
    for (uint32_t edge = item->followers, next; edge; edge = next) {
        next = e->edges[edge].next;
        SimItem to = e->edges[edge].to;
        Item *follower = sim_item(e, to);
        if (follower->at.ready < when) follower->at.ready = when;
        if (--follower->waits_for == 0) sim_items_push(&e->ready, to);
        e->edges[edge].next = e->free_edge;
        e->free_edge = edge;
    }
    item->followers = 0;
    while (e->oldest < e->next && sim_item(e, e->oldest)->state == ENDED) e->oldest++;
}

static void arrive(SimEngine *e, SimItem number, Item *item)
{
    e->board.arrived(e->board.arg, &item->call, item->at.ready);
    e->news = true;
    e->to_come--;
    if (item->kind == SIM_ITEM_MEET) e->meets_to_come--;
    item->state = ARRIVED;
    item->bound = 0;
    sim_items_push(&e->arrived, number);
}

static void become_ready(SimEngine *e, SimItem number)
{
    Item *item = sim_item(e, number);
    if (item->at.ready < item->not_before) item->at.ready = item->not_before;
    if (item->kind == SIM_ITEM_HOST) { // it may be in the past: it only passes a time on
        item->at.start = item->at.ready;
        SimPs ends = item->at.ready + item->work;
        item->state = RUNNING;
        if (ends <= e->now)
            end(e, number, ends);
        else
            sim_item_schedule(e, number, ends);
        return;
    }
    if (item->at.ready < e->now) item->at.ready = e->now; // threads raced for the device
    if (item->kind >= SIM_ITEM_TRANSFER && item->at.ready < e->promised)
        item->at.ready = e->promised;
    if (item->kind >= SIM_ITEM_TRANSFER) {
        arrive(e, number, item);
        return;
    }
    Device *device = sim_item_device(e, item);
    item->state = QUEUED;
    device->changed = true;
    sim_heap_push(&device->queue[sim_resource_of(item->kind)],
                  (SimHeapEntry){item->at.ready, item->stream, number, 0});
}

static void settle_ready(SimEngine *e)
{
    while (e->ready.n) become_ready(e, e->ready.item[--e->ready.n]);
}

// The next event that is still valid; false: there is none.
static bool next_event(SimEngine *e, SimHeapEntry *event)
{
    while (sim_heap_top(&e->events, event)) {
        bool forgotten = event->item < e->first;
        const Item *item = forgotten ? NULL : sim_item(e, event->item);
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
        Item *item = sim_item(e, event.item);
        if (item->state == SCHEDULED && item->kind == SIM_ITEM_TRANSFER)
            sim_items_push(&e->starting, event.item);
        else
            end(e, event.item, e->now);
        settle_ready(e);
    }
}

// ---- How far it can go ----

// Whether a thread's clock is here, so that it may still queue something.
static bool thread_stands(const SimEngine *e, const Thread *thread)
{
    return thread->lives &&
           (thread->clock < e->first || sim_item(e, thread->clock)->state == ENDED);
}

// A time before which no thread makes a request that is not published.
static SimPs next_request(const SimEngine *e)
{
    SimPs earliest = SIM_FOREVER;
    for (int i = 0; i < e->n_threads; i++) {
        const Thread *thread = &e->thread[i];
        if (!thread->lives) continue;
        const Item *clock = thread->clock < e->first ? NULL : sim_item(e, thread->clock);
        SimPs when = e->settled;
        if (clock && clock->state == ENDED) when = clock->at.end;
        if (clock && clock->state == RUNNING) when = clock->at.ready + clock->work;
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

// The start of the transfer, if all its ranks have arrived (true); else a time before which it does
// not start.
static bool starts_at(SimEngine *e, const Item *item, SimPs *start)
{
    SimPs when = 0;
    bool known = e->board.start(e->board.arg, &item->call, &when);
    if (when < item->at.ready) when = item->at.ready;
    *start = when > SIM_FOREVER - item->latency ? SIM_FOREVER : when + item->latency;
    return known;
}

// The earliest time at which a transfer whose start is unknown may start; reads the board for those
// that may start by `least`.
static SimPs look_at_board(SimEngine *e, SimPs least)
{
    SimPs earliest = SIM_FOREVER;
    for (int i = 0; i < e->arrived.n; i++) {
        SimItem number = e->arrived.item[i];
        Item *item = sim_item(e, number);
        if (e->news || item->bound <= least) {
            if (starts_at(e, item, &item->bound)) {
                item->at.start = item->bound;
                item->state = SCHEDULED;
                sim_item_schedule(e, number, item->bound < e->now ? e->now : item->bound);
                e->arrived.item[i--] = e->arrived.item[--e->arrived.n];
                continue;
            }
        }
        if (item->bound < earliest) earliest = item->bound;
    }
    e->news = false;
    return earliest;
}

// Proceeds to the next instant, or says until when it is certain that there is none.
static bool advance(SimEngine *e)
{
    SimHeapEntry event = {0};
    e->settled = e->now;
    SimPs bound = look_at_board(e, e->now);
    if (next_event(e, &event) && event.time <= e->now) return true; // the board made it known
    if (a_thread_stands(e) || bound <= e->now) return false;
    sim_engine_start_all(e);
    for (int d = 0; d < e->n_devices; d++)
        if (e->device[d].changed) sim_engine_set_rates(e, &e->device[d]);
    bool more = next_event(e, &event);
    bound = look_at_board(e, more ? event.time : SIM_FOREVER);
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

// Whether something will start at this instant, once it is known what else starts. That is no
// event.
static bool starts_now(const SimEngine *e)
{
    bool starts = e->starting.n > 0;
    for (int d = 0; d < e->n_devices; d++) starts |= e->device[d].changed;
    return starts;
}

SimPs sim_engine_next(SimEngine *e)
{
    SimHeapEntry event;
    if (starts_now(e)) return e->now + 1;
    SimPs next = next_event(e, &event) ? event.time : SIM_FOREVER;
    for (int i = 0; i < e->arrived.n; i++) {
        SimPs bound = sim_item(e, e->arrived.item[i])->bound;
        if (bound <= e->settled) bound = e->settled + 1; // others must proceed first
        if (bound < next) next = bound;
    }
    return next;
}

// A run that a thread or another transfer holds back has not checked each of them.
SimHeld sim_engine_held(SimEngine *e)
{
    SimHeld held = SIM_NOT_HELD;
    for (int i = 0; i < e->arrived.n; i++) {
        const Item *item = sim_item(e, e->arrived.item[i]);
        SimPs start;
        bool known = starts_at(e, item, &start); // its ranks may have published it after the run
        if (start > e->settled) continue;
        if (known || e->board.missing(e->board.arg, &item->call) < e->settled)
            return SIM_HELD_BY_RANKS_BEHIND;
        held = SIM_HELD_BY_RANKS_AS_FAR;
    }
    return held;
}

// Whether all ranks of a transfer have arrived.
static bool have_all_arrived_at_one(SimEngine *e)
{
    bool any = false;
    for (int i = 0; i < e->arrived.n; i++) {
        SimPs start;
        any |= starts_at(e, sim_item(e, e->arrived.item[i]), &start);
    }
    return any;
}

bool sim_engine_is_stuck(SimEngine *e)
{
    SimHeapEntry event;
    return e->arrived.n && !a_thread_stands(e) && !starts_now(e) && !next_event(e, &event) &&
           !have_all_arrived_at_one(e);
}

void sim_engine_give_up(SimEngine *e)
{
    SimItem oldest = 0;
    for (int i = 0; i < e->arrived.n; i++)
        if (!oldest || e->arrived.item[i] < oldest) oldest = e->arrived.item[i];
    if (!oldest) return;
    Item *item = sim_item(e, oldest);
    sim_items_drop(&e->arrived, oldest);
    item->state = SCHEDULED;
    item->at.start = e->now > item->at.ready ? e->now : item->at.ready;
    item->at.start += item->latency;
    sim_item_schedule(e, oldest, item->at.start);
}

// ---- The interface ----

SimEngine *sim_engine_new(const SimMachine *machine, const SimBoard *board)
{
    SimEngine *e = sim_table_grow(NULL, 1, sizeof *e);
    memset(e, 0, sizeof *e);
    e->machine = machine;
    if (board) e->board = *board;
    e->first = e->next = e->oldest = 1;
    return e;
}

void sim_engine_free(SimEngine *e)
{
    for (int d = 0; d < e->n_devices; d++) {
        for (int r = 0; r < RESOURCES; r++) sim_table_free(e->device[d].queue[r].entry);
        sim_table_free(e->device[d].transfers.item);
    }
    sim_table_free(e->items);
    sim_table_free(e->edges);
    sim_table_free(e->events.entry);
    sim_table_free(e->arrived.item);
    sim_table_free(e->starting.item);
    sim_table_free(e->ready.item);
    sim_table_free(e->device);
    sim_table_free(e->thread);
    sim_table_free(e);
}

static void fill(Item *item, const SimItemSpec *spec)
{
    item->kind = spec->kind;
    item->state = WAITING;
    item->waits_for = item->followers = item->version = 0;
    item->device = spec->device;
    item->at = (SimTimes){0, 0, 0};
    item->work = spec->work;
    item->not_before = spec->not_before;
    if (spec->kind == SIM_ITEM_HOST) return;
    item->stream = spec->stream;
    item->left = item->since = item->num = item->den = 0;
    if (spec->kind < SIM_ITEM_TRANSFER) return;
    item->latency = spec->latency;
    item->link = spec->link;
    item->call = spec->call;
    item->bound = 0;
}

SimItem sim_engine_add(SimEngine *e, const SimItemSpec *spec, const SimItem *after, int n)
{
    SimItem number;
    Item *item = sim_item_new(e, &number);
    fill(item, spec);
    e->to_come += spec->kind >= SIM_ITEM_TRANSFER;
    e->meets_to_come += spec->kind == SIM_ITEM_MEET;
    for (int i = 0; i < n; i++) {
        if (after[i] < e->first) continue; // 0, or forgotten
        Item *before = sim_item(e, after[i]);
        if (before->state == ENDED) {
            if (item->at.ready < before->at.end) item->at.ready = before->at.end;
        } else {
            sim_item_add_follower(e, before, number);
            item->waits_for++;
        }
    }
    if (item->waits_for == 0) become_ready(e, number);
    return number;
}

static Thread *thread_of(SimEngine *e, int index)
{
    if (index >= e->n_threads) {
        e->thread = sim_table_grow(e->thread, (size_t)index + 1, sizeof *e->thread);
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

bool sim_engine_wants_calls(const SimEngine *e)
{
    bool lives = false;
    for (int i = 0; i < e->n_threads; i++) lives |= e->thread[i].lives;
    return !lives || a_thread_stands(e);
}

bool sim_engine_waits_for(const SimEngine *e, int thread)
{
    return thread < e->n_threads && thread_stands(e, &e->thread[thread]);
}

bool sim_engine_times(const SimEngine *e, SimItem number, SimTimes *times)
{
    if (number < e->first || number >= e->next || sim_item(e, number)->state != ENDED) return false;
    *times = sim_item(e, number)->at;
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
