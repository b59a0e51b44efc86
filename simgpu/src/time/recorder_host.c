/* recorder_host.c: the host's part of a program: threads, their clocks, and which of them may still
 * call on a device (simgpu/pages/time.md, § 1).
 *
 * The thread that called last on a device *holds* it, or one that has called and asked there since:
 * nobody's next call there begins before the clock with which it left. So the engine goes no further than to the clocks of the holders. Before the first
 * thread has called at all, it holds what nobody else does.
 *
 * Interface: recorder.h; sim_record_thread, sim_record_request, sim_record_wait,
 * sim_record_await_receivers (recorder_internal.h).
 */
#include <stdlib.h>

#include "time/recorder_internal.h"

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

// A thread that has not called before begins where the first one is, and those that have ended.
ThreadState *sim_record_thread(SimRecorder *r, int number)
{
    ThreadState *t = find_thread(r, number);
    if (t) return t;
    int i = 0;
    while (i < r->n_threads && r->thread[i].alive) i++;
    if (i == r->n_threads) {
        r->thread = sim_record_grow(r->thread, (size_t)r->n_threads + 1, sizeof *r->thread);
        r->n_threads++;
    }
    t = &r->thread[i];
    *t = (ThreadState){.number = number, .alive = true};
    if (number == 0) return t;
    ThreadState *first = find_thread(r, 0);
    After *after = sim_after_none(r, AFTER_THREAD);
    if (first) sim_after(after, first->clock);
    sim_after(after, r->ended);
    t->clock = sim_add_host(r, 0, after);
    return t;
}

// ---- Who may still call ----

// The engine stops at the thread's clock, while it holds something.
static void stand(SimRecorder *r, ThreadState *t)
{
    if (t->holds)
        sim_engine_thread(r->engine, index_of(r, t), t->clock.item);
    else
        sim_engine_thread_gone(r->engine, index_of(r, t));
}

static void set_clock(SimRecorder *r, ThreadState *t, Mark clock)
{
    t->clock = clock;
    for (int d = 0; d < r->n_devices; d++)
        if (r->device[d].is_there && r->device[d].holder == t->number) r->device[d].left = clock;
    if (t->holds) stand(r, t);
}

static void change_holds(SimRecorder *r, int number, int change)
{
    ThreadState *t = find_thread(r, number);
    if (!t) return;
    t->holds += change;
    stand(r, t);
}

// A device where nobody has called: the first thread may, or who called last somewhere.
static void know_device(SimRecorder *r, DeviceState *d)
{
    if (d->holder >= 0) return;
    d->holder = r->first_has_called ? r->last_caller : 0;
    change_holds(r, d->holder, 1);
}

// A thread leaves the devices where it was, unless they are of one group.
static void take_device(SimRecorder *r, ThreadState *t, DeviceState *d)
{
    for (int i = 0; i < r->n_devices && !t->in_group; i++)
        if (r->device[i].holder == t->number) r->device[i].is_there = false;
    d->is_there = true;
    d->left = t->clock;
    know_device(r, d);
    if (t->number == 0 && !r->first_has_called) {
        r->first_has_called = true;
        t->holds--; // of what nobody has called
    }
    r->last_caller = t->number;
    if (d->holder == t->number) return;
    t->holds++;
    int before = d->holder;
    d->holder = t->number;
    change_holds(r, before, -1);
}

void sim_record_set_rank(SimRecorder *r, int device, int rank)
{
    DeviceState *d = sim_record_device(r, device);
    if (d->rank < 0) d->rank = rank;
    know_device(r, d);
}

// ---- Calls ----

// The clock of a thread is no earlier than what is in `after`.
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
    DeviceState *d = sim_record_device(r, device);
    know_device(r, d);
    After *after = sim_after_none(r, AFTER_CALL);
    sim_after(after, t->clock);
    sim_after(after, d->called);
    if (d->holder != t->number) sim_after(after, d->left);
    return after;
}

Mark sim_record_request(SimRecorder *r, ThreadState *t, int device, SimPs cost)
{
    Mark request = sim_add_host(r, cost, sim_after_call(r, t, device));
    t->called = true;
    sim_record_device(r, device)->called = request;
    t->clock = request;
    take_device(r, t, sim_record_device(r, device));
    stand(r, t);
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

void sim_record_before_operation(SimRecorder *r, const GpuLogEntry *on)
{
    After *received = sim_after_none(r, AFTER_STREAM);
    sim_after_received(r, received, on->device, sim_record_stream(r, on));
    sim_record_await_receivers(r, sim_record_thread(r, on->thread), received);
}

void sim_record_before_comm(SimRecorder *r, int thread, uint64_t comm, int rank)
{
    After *received = sim_after_none(r, AFTER_STREAM);
    for (int i = 0; i < r->n_comms; i++)
        if (r->comm[i].comm == comm && r->comm[i].rank == rank)
            sim_after_received_mark(r, received, r->comm[i].received);
    sim_record_await_receivers(r, sim_record_thread(r, thread), received);
}

// Its clock stays where it is for the call that follows; but the engine may go on.
void sim_record_before_wait(SimRecorder *r, const GpuLogEntry *on)
{
    ThreadState *t = sim_record_thread(r, on->thread);
    After *after = sim_after_none(r, AFTER_STREAM);
    sim_after_wait(r, after, on);
    sim_after(after, t->clock);
    Mark until = sim_add_host(r, 0, after);
    if (t->holds) sim_engine_thread(r->engine, index_of(r, t), until.item);
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
    if (t == first) { // the process ends
        t->holds = 0;
        stand(r, t);
        return;
    }
    for (int d = 0; d < r->n_devices; d++)
        if (r->device[d].holder == thread) {
            r->device[d].holder = 0;
            r->device[d].is_there = false;
            first->holds++;
        }
    if (r->last_caller == thread) r->last_caller = 0;
    t->holds = 0;
    stand(r, t);
    sim_after(after = sim_after_none(r, AFTER_THREAD), r->ended);
    join_clock(r, first, after); // it is taken to have joined it
    t->alive = false;
}

void sim_record_release(SimRecorder *r, int thread, SimPs until)
{
    ThreadState *t = find_thread(r, thread);
    if (!t) return;
    After *after = sim_after_none(r, AFTER_THREAD);
    after->not_before = until;
    join_clock(r, t, after);
}

bool sim_record_stands(const SimRecorder *r, int thread)
{
    const ThreadState *t = find_thread(r, thread);
    return t && sim_engine_waits_for(r->engine, index_of(r, t));
}

// ---- Questions ----

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
    t->clock = asked;
    if (t->called) take_device(r, t, sim_record_device(r, device));
    stand(r, t);
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
