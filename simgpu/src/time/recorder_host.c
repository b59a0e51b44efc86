/* recorder_host.c: the host's part of a program: threads, their clocks, and which of them may still
 * call (simgpu/pages/time.md, § 1).
 *
 * The engine stops at the clock of any thread that has made a call. A device remembers the clock of
 * the thread that used it last, at the time when that left it.
 */
#include "time/recorder_internal.h"
#include "time/tables.h"

static ThreadState *find_thread(const SimRecorder *r, int number)
{
    for (int i = 0; i < r->n_threads; i++)
        if (r->thread[i].alive && r->thread[i].number == number) return &r->thread[i];
    return NULL;
}

static int index_of(const SimRecorder *r, const ThreadState *t)
{
    return (int)(t - r->thread);
}

// A new thread begins at the clock of the first thread, and of threads that have ended. If the
// first thread is in an NCCL call (entry `in` or later), its clock before that call counts: the
// call may wait for this thread's call.
static ThreadState *new_thread(SimRecorder *r, int number, uint64_t in)
{
    int i = 0;
    while (i < r->n_threads && r->thread[i].alive) i++;
    if (i == r->n_threads) {
        r->thread = sim_table_grow(r->thread, (size_t)r->n_threads + 1, sizeof *r->thread);
        r->thread[r->n_threads++] = (ThreadState){.alive = false};
    }
    ThreadState *t = &r->thread[i];
    GroupCall *group = t->group; // of one that has ended
    *t =
        (ThreadState){.number = number, .alive = true, .group = group, .group_room = t->group_room};
    if (number == 0) return t;
    ThreadState *first = find_thread(r, 0);
    After *after = sim_after_none(r, AFTER_THREAD);
    bool in_call = first && in != SIM_NO_ENTRY && first->met && first->met > in;
    if (first) sim_after(after, in_call ? first->before : first->clock);
    sim_after(after, r->ended);
    t->clock = sim_add_host(r, 0, after);
    return t;
}

ThreadState *sim_record_thread(SimRecorder *r, int number)
{
    ThreadState *t = find_thread(r, number);
    return t ? t : new_thread(r, number, SIM_NO_ENTRY);
}

void sim_record_thread_began(SimRecorder *r, int thread, uint64_t in)
{
    if (!find_thread(r, thread)) new_thread(r, thread, in);
}

// ---- Who may still call ----

// The engine stops at the thread's clock, if it has made a call.
static void move_clock(SimRecorder *r, ThreadState *t, Mark clock)
{
    t->clock = clock;
    if (t->called) sim_engine_thread(r->engine, index_of(r, t), clock.item);
}

// In a call.
static void set_clock(SimRecorder *r, ThreadState *t, Mark clock)
{
    move_clock(r, t, clock);
    for (int d = 0; d < r->n_devices; d++)
        if (r->device[d].is_there && r->device[d].thread == t->number) r->device[d].left = clock;
}

// The thread leaves the devices where it was, unless they are of one group.
static void go_to_device(SimRecorder *r, ThreadState *t, int device)
{
    for (int d = 0; d < r->n_devices && !t->in_group; d++)
        if (r->device[d].thread == t->number) r->device[d].is_there = false;
    DeviceState *to = sim_record_device(r, device);
    to->thread = t->number;
    to->is_there = true;
}

void sim_record_set_rank(SimRecorder *r, int device, int rank)
{
    DeviceState *d = sim_record_device(r, device);
    if (d->rank < 0) d->rank = rank;
}

// ---- Calls ----

// Moves the clock of a thread to the times in `after`, if they are later.
static void join_clock(SimRecorder *r, ThreadState *t, After *after)
{
    sim_after(after, t->clock);
    set_clock(r, t, sim_add_host(r, 0, after));
}

void sim_record_await_receivers(SimRecorder *r, ThreadState *t, After *received)
{
    if (received->n || received->not_before) join_clock(r, t, received);
}

After *sim_after_call(SimRecorder *r, ThreadState *t, int device)
{
    const DeviceState *d = sim_record_device(r, device);
    After *after = sim_after_none(r, AFTER_CALL);
    sim_after(after, t->clock);
    sim_after(after, d->called);
    if (d->thread != t->number) sim_after(after, d->left);
    return after;
}

Mark sim_record_request(SimRecorder *r, ThreadState *t, int device, SimPs cost)
{
    Mark request = sim_add_host(r, cost, sim_after_call(r, t, device));
    t->called = true;
    sim_record_device(r, device)->called = request;
    go_to_device(r, t, device);
    set_clock(r, t, request);
    return request;
}

void sim_record_wait(SimRecorder *r, ThreadState *t, const After *for_)
{
    if (!for_->n && !for_->not_before) return;
    After *after = sim_after_none(r, AFTER_WAKE);
    sim_after(after, sim_add_host(r, r->machine->host.wake, for_));
    join_clock(r, t, after);
}

void sim_record_meet(SimRecorder *r, ThreadState *t, After *with)
{
    if (with->n) join_clock(r, t, with);
}

void sim_record_call(SimRecorder *r, int thread, int device, SimPs cost)
{
    sim_record_request(r, sim_record_thread(r, thread), device, cost);
}

// ---- The program really waits ----

// A thread is in its first call. From now on the engine stops at its clock, and not only when the
// call is logged: until then other calls may let the engine proceed.
static ThreadState *calling_thread(SimRecorder *r, int number)
{
    ThreadState *t = sim_record_thread(r, number);
    if (!t->called) {
        t->called = true;
        move_clock(r, t, t->clock);
    }
    return t;
}

void sim_record_before_operation(SimRecorder *r, const GpuLogEntry *on)
{
    ThreadState *t = calling_thread(r, on->thread);
    After *received = sim_after_none(r, AFTER_STREAM);
    sim_after_received(r, received, on->device, sim_record_stream(r, on));
    sim_record_await_receivers(r, t, received);
}

void sim_record_before_comm(SimRecorder *r, int thread, uint64_t comm, int rank)
{
    ThreadState *t = calling_thread(r, thread);
    After *received = sim_after_none(r, AFTER_STREAM);
    for (int i = 0; i < r->n_comms; i++)
        if (r->comm[i].comm == comm && r->comm[i].rank == rank)
            sim_after_received_mark(r, received, r->comm[i].received);
    sim_record_await_receivers(r, t, received);
}

// Its clock stays for its next call; but the engine may proceed.
void sim_record_before_wait(SimRecorder *r, const GpuLogEntry *on)
{
    ThreadState *t =
        sim_record_is_query(on) ? sim_record_thread(r, on->thread) : calling_thread(r, on->thread);
    After *after = sim_after_none(r, AFTER_STREAM);
    sim_after_wait(r, after, on);
    sim_after(after, t->clock);
    Mark until = sim_add_host(r, 0, after);
    if (t->called) sim_engine_thread(r->engine, index_of(r, t), until.item);
}

// ---- Threads end, or sleep ----

void sim_record_thread_ended(SimRecorder *r, int thread)
{
    ThreadState *t = find_thread(r, thread), *first = find_thread(r, 0);
    if (!t) return;
    sim_record_end_group(r, t, 0);
    After *after = sim_after_none(r, AFTER_THREAD);
    sim_after(after, r->ended);
    sim_after(after, t->clock);
    r->ended = sim_add_host(r, 0, after);
    sim_engine_thread_gone(r->engine, index_of(r, t));
    for (int d = 0; d < r->n_devices; d++)
        if (r->device[d].thread == thread) {
            r->device[d].is_there = false;
            r->device[d].thread = -1; // the number will be reused
        }
    if (t == first) return;
    t->alive = false;
    sim_after(after = sim_after_none(r, AFTER_THREAD), r->ended);
    sim_after(after, first->clock); // we assume that it has joined it
    move_clock(r, first, sim_add_host(r, 0, after));
}

void sim_record_release(SimRecorder *r, int thread, SimPs until)
{
    ThreadState *t = find_thread(r, thread);
    if (!t) return;
    After *after = sim_after_none(r, AFTER_THREAD);
    after->not_before = until;
    sim_after(after, t->clock);
    move_clock(r, t, sim_add_host(r, 0, after));
}

bool sim_record_stands(const SimRecorder *r, int thread)
{
    const ThreadState *t = find_thread(r, thread);
    return t && sim_engine_waits_for(r->engine, index_of(r, t));
}

// ---- Queries ----

SimItem sim_record_query(SimRecorder *r, int thread, int device)
{
    ThreadState *t = sim_record_thread(r, thread);
    After *after;
    if (t->called) {
        after = sim_after_call(r, t, device);
    } else {
        sim_after(after = sim_after_none(r, AFTER_CALL), t->clock);
        sim_after(after, sim_record_device(r, device)->called);
    }
    Mark asked = sim_add_host(r, r->machine->host.query, after);
    t->asked = asked;
    t->has_asked = true;
    if (t->called) go_to_device(r, t, device);
    set_clock(r, t, asked);
    return asked.item;
}

SimItem sim_record_stream_end(SimRecorder *r, const GpuLogEntry *on)
{
    After *after = sim_after_none(r, AFTER_STREAM);
    sim_after_stream(r, after, on->device, sim_record_stream(r, on));
    return sim_add_host(r, 0, after).item;
}

SimItem sim_record_event_end(SimRecorder *r, cudaEvent_t handle)
{
    const EventState *event = sim_record_event(r, handle, false);
    After *after = sim_after_none(r, AFTER_STREAM);
    if (event) sim_after(after, event->done);
    return sim_add_host(r, 0, after).item;
}

static After *after_comm(SimRecorder *r, uint64_t comm)
{
    After *after = sim_after_none(r, AFTER_STREAM);
    for (int i = 0; i < r->n_comms; i++)
        if (r->comm[i].comm == comm) sim_after(after, r->comm[i].last);
    return after;
}

SimItem sim_record_comm_end(SimRecorder *r, uint64_t comm)
{
    return sim_add_host(r, 0, after_comm(r, comm)).item;
}

SimItem sim_record_comm_wait(SimRecorder *r, int thread, uint64_t comm)
{
    SimItem end = sim_record_comm_end(r, comm);
    sim_record_wait(r, sim_record_thread(r, thread), after_comm(r, comm));
    return end;
}

SimItem sim_record_clock(SimRecorder *r, int thread)
{
    After *after = sim_after_none(r, AFTER_STREAM);
    sim_after(after, sim_record_thread(r, thread)->clock);
    return sim_add_host(r, 0, after).item;
}

void sim_record_join(SimRecorder *r, int thread, SimItem item)
{
    After *after = sim_after_none(r, AFTER_STREAM);
    sim_after(after, (Mark){item, 0});
    join_clock(r, sim_record_thread(r, thread), after);
}

bool sim_record_has_called(const SimRecorder *r, int thread)
{
    const ThreadState *t = find_thread(r, thread);
    return thread == 0 || (t && t->called);
}

SimItem sim_record_at(const SimRecorder *r, int thread)
{
    const ThreadState *t = find_thread(r, thread);
    return t ? t->clock.item : 0;
}
