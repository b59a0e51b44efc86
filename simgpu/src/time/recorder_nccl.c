/* recorder_nccl.c: NCCL calls as items: the meeting of the hosts, and the transfer.
 *
 * The calls of a group are kept until the last one: the first may have to wait for streams that
 * later ones use. A call outside of a group is a group of one.
 *
 * Interface: sim_record_nccl, sim_record_end_group.
 */
#include <string.h>

#include "collectives.h"
#include "time/recorder_internal.h"
#include "time/tables.h"

static bool is_message(const GpuLogEntry *e)
{
    return gpulog_kind(e->op)->root == ROOT_IS_PEER;
}

static CommState *comm_of(SimRecorder *r, uint64_t comm, int rank)
{
    for (int i = 0; i < r->n_comms; i++)
        if (r->comm[i].comm == comm && r->comm[i].rank == rank) return &r->comm[i];
    if (r->n_comms == r->comms_room) {
        r->comms_room = r->comms_room ? 2 * r->comms_room : 8;
        r->comm = sim_table_grow(r->comm, (size_t)r->comms_room, sizeof *r->comm);
    }
    r->comm[r->n_comms] = (CommState){.comm = comm, .rank = rank};
    return &r->comm[r->n_comms++];
}

static SimCall call_of(const GpuLogEntry *e, bool meeting)
{
    const GpuCollective *c = &e->collective;
    bool sends = e->op == GPU_SEND;
    return (SimCall){.comm = c->comm,
                     .number = c->call,
                     .from = !is_message(e) ? -1
                             : sends        ? c->rank
                                            : c->peer,
                     .to = !is_message(e) ? -1
                           : sends        ? c->peer
                                          : c->rank,
                     .rank = c->rank,
                     .sends = sends,
                     .meeting = meeting};
}

static SimItemSpec operation_of(SimRecorder *r, const GpuLogEntry *e, Pending *p)
{
    const GpuCollective *c = &e->collective;
    SimItemSpec spec = {.device = e->device, .stream = e->stream_number};
    if (c->ranks < 2) {
        spec.kind = SIM_ITEM_COMPUTE;
        spec.work = sim_cost_kernel(r->machine, sim_record_touched(e), 0, SIM_F32);
    } else {
        int per_node = r->machine->gpus_per_node, ranks = is_message(e) ? 2 : c->ranks;
        int nodes = c->nodes ? c->nodes : (c->ranks + per_node - 1) / per_node;
        p->cost = sim_cost_collective(r->machine, e->op, ranks, nodes, e->bytes);
        p->has_cost = true;
        spec.kind = SIM_ITEM_TRANSFER;
        spec.call = call_of(e, false);
        spec.work = p->cost.work;
        spec.latency = p->cost.latency;
        spec.link = p->cost.link;
    }
    spec.work = sim_record_spread(r, e->device, spec.kind, spec.work);
    p->work = spec.work;
    return spec;
}

// Whether the group sends to the same rank again: only one message at a time moves.
static bool sends_again(const ThreadState *t, int i)
{
    const GpuLogEntry *e = &t->group[i].entry;
    for (int k = i + 1; k < t->n_group; k++) {
        const GpuLogEntry *other = &t->group[k].entry;
        if (other->op == GPU_SEND && other->collective.comm == e->collective.comm &&
            other->collective.rank == e->collective.rank &&
            other->collective.peer == e->collective.peer)
            return true;
    }
    return false;
}

// The hosts meet when the last has begun its call: a request takes the same time on all. A sender
// does not wait for that, but what comes after the message does. Nor does a non-blocking call wait:
// the others only meet it.
static void meet(SimRecorder *r, ThreadState *t, int i, After *meets)
{
    GroupCall *call = &t->group[i];
    const GpuLogEntry *e = &call->entry;
    if (e->collective.ranks < 2) return;
    SimItemSpec spec = {.kind = SIM_ITEM_MEET,
                        .device = e->device,
                        .call = call_of(e, true),
                        .latency = r->machine->host.collective};
    Mark meeting = sim_add(r, spec, sim_after_call(r, t, e->device));
    if (e->op == GPU_SEND) call->received = meeting;
    if (e->collective.in_progress) return;
    if (e->op != GPU_SEND || sends_again(t, i)) sim_after(meets, meeting);
}

// ---- A group ----

static void after_stream_of(SimRecorder *r, After *after, const GpuLogEntry *e)
{
    sim_after_stream(r, after, e->device, sim_record_stream(r, e));
}

static Pending *pending_of(SimRecorder *r, const GroupCall *call)
{
    return r->hook ? &r->pending[call->pending - r->n_told] : NULL;
}

// The next call after `i` of the rank and communicator of call `first`; -1: none.
static int next_of(const ThreadState *t, int first, int i)
{
    const GpuCollective *c = &t->group[first].entry.collective;
    for (i++; i < t->n_group; i++) {
        const GpuCollective *other = &t->group[i].entry.collective;
        if (other->comm == c->comm && other->rank == c->rank) return i;
    }
    return -1;
}

// Queues the calls of a rank on a communicator, from `first` on: they are one kernel, so they are
// ready together, and later operations on their streams wait for all of them.
static void queue_part(SimRecorder *r, ThreadState *t, int first)
{
    const GpuCollective *c = &t->group[first].entry.collective;
    CommState *comm = comm_of(r, c->comm, c->rank);
    After *after = sim_after_none(r, AFTER_RUN), *received = sim_after_none(r, AFTER_RECEIVED);
    sim_after(after, comm->last);
    sim_after_received_mark(r, received, comm->received);
    for (int i = first; i >= 0; i = next_of(t, first, i)) {
        const GpuLogEntry *e = &t->group[i].entry;
        after_stream_of(r, after, e);
        sim_after(after, t->group[i].request);
        sim_after_received(r, received, e->device, sim_record_stream(r, e));
        sim_after_received_mark(r, received, t->group[i].received);
    }
    bool several = next_of(t, first, first) >= 0;
    if (several) { // one time for all
        Mark together = sim_add_host(r, 0, after);
        sim_after(after = sim_after_none(r, AFTER_RUN), together);
    }
    After *all = sim_after_none(r, AFTER_OPS);
    for (int i = first; i >= 0; i = next_of(t, first, i)) {
        Mark done = sim_add(r, t->group[i].spec, after);
        sim_after(all, comm->last = done);
        Pending *p = pending_of(r, &t->group[i]);
        if (p) p->done = done;
    }
    if (several) comm->last = sim_add_host(r, 0, all);
    comm->received = sim_all_received(r, received);
    for (int i = first; i >= 0; i = next_of(t, first, i)) {
        StreamState *s = sim_record_stream(r, &t->group[i].entry);
        s->last = comm->last;
        s->received = comm->received;
        t->group[i].done = true;
    }
}

// The part of the host: it begins when all messages before it have receivers; then it makes the
// requests, one after the other.
static void request_all(SimRecorder *r, ThreadState *t, After *meets)
{
    After *received = sim_after_none(r, AFTER_RECEIVED);
    for (int i = 0; i < t->n_group; i++) {
        const GpuLogEntry *e = &t->group[i].entry;
        sim_after_received(r, received, e->device, sim_record_stream(r, e));
        sim_after_received_mark(r, received,
                                comm_of(r, e->collective.comm, e->collective.rank)->received);
    }
    sim_record_await_receivers(r, t, received);
    for (int i = 0; i < t->n_group; i++) {
        GroupCall *call = &t->group[i];
        meet(r, t, i, meets);
        call->request =
            sim_record_request(r, t, call->entry.device, sim_record_cost(r, &call->entry));
        t->in_group = true; // from the second one on
        Pending *p = pending_of(r, call);
        if (p) p->request = call->request;
    }
}

static void end_group(SimRecorder *r, ThreadState *t)
{
    After *meets = sim_after_none(r, AFTER_MEETS);
    t->before = t->clock;
    t->met = t->group[0].entry.index + 1;
    request_all(r, t, meets);
    for (int i = 0; i < t->n_group; i++)
        if (!t->group[i].done) queue_part(r, t, i);
    sim_record_meet(r, t, meets);
    t->in_group = false;
    for (int i = 0; i < t->n_group; i++) {
        Pending *p = pending_of(r, &t->group[i]);
        if (!p) continue;
        p->returned = t->clock;
        p->open = false;
    }
    t->n_group = 0;
}

void sim_record_nccl(SimRecorder *r, ThreadState *t, const GpuLogEntry *e)
{
    sim_record_end_group(r, t, e->collective.group);
    if (t->n_group == t->group_room) {
        t->group_room = t->group_room ? 2 * t->group_room : 4;
        t->group = sim_table_grow(t->group, (size_t)t->group_room, sizeof *t->group);
    }
    sim_record_set_rank(r, e->device, e->collective.rank);
    Pending *p = sim_record_pend(r, e);
    p->open = true;
    GroupCall *call = &t->group[t->n_group++];
    memset(call, 0, sizeof *call);
    memcpy(&call->entry, e, offsetof(GpuLogEntry, range));
    call->entry.n_ranges = 0;
    call->pending = r->n_told + r->n_pending - 1;
    call->spec = operation_of(r, e, p);
    if (!e->collective.group || !e->collective.group_left) end_group(r, t);
}

// A group whose last calls failed ends when its thread makes another call.
void sim_record_end_group(SimRecorder *r, ThreadState *t, uint64_t but)
{
    if (t->n_group && (!but || t->group[0].entry.collective.group != but)) end_group(r, t);
}
