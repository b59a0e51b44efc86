/* calls.c: the calls of the simulator: what each queues, and what that waits for.
 * simgpu/pages/time.md, § 2.
 *
 * Interface: step_of, make_call, call_nccl (simulate.h).
 */
#include "simulate.h"

const Step *step_of(const Sim *s, const Atom *atom)
{
    return &s->program->step[atom->step];
}

// ---- What waits for what ----

// What an operation waits for that is queued now on a stream, and so does a wait for the stream.
static Waits waits_of(const Device *d, StreamName stream)
{
    Waits waits = {0};
    if (forgotten != STREAM_ORDER) add_wait(&waits, d->last[stream]);
    if (forgotten == DEFAULT_STREAM) return waits;
    if (stream == LEGACY) {
        add_wait(&waits, d->last[BLOCKING_A]);
        add_wait(&waits, d->last[BLOCKING_B]);
    }
    if (stream == BLOCKING_A || stream == BLOCKING_B) add_wait(&waits, d->last[LEGACY]);
    return waits;
}

static Waits waits_of_device(const Device *d)
{
    Waits waits = {0};
    for (int i = 0; i < STREAMS; i++) add_wait(&waits, d->last[i]);
    return waits;
}

static Waits only(int op)
{
    Waits waits = {0};
    add_wait(&waits, op);
    return waits;
}

static Operation operation(const Sim *s, const Atom *atom, StreamName stream)
{
    Operation op = {.step = atom->step, .rank = atom->rank, .engine_of = atom->rank};
    op.what = kind_names[step_of(s, atom)->kind];
    op.stream_number = s->stream_number[atom->rank][stream];
    return op;
}

// ---- Calls of one rank ----

static Operation work_of(const Sim *s, const Atom *atom)
{
    const Step *step = step_of(s, atom);
    const Machine *m = &s->program->world.machine;
    uint64_t bytes = (uint64_t)step->read;
    Operation op = operation(s, atom, step->stream);
    switch (step->kind) {
    case KERNEL:
        op.resource = COMPUTE;
        op.work = kernel_work(m, bytes + (uint64_t)step->write + 2 * (uint64_t)step->update,
                              (uint64_t)step->flops);
        break;
    case MEMSET_ASYNC:
    case MEMSET:
        op.resource = COMPUTE;
        op.work = kernel_work(m, bytes, 0);
        break;
    case COPY_ASYNC:
        op.resource = COMPUTE;
        op.work = kernel_work(m, 2 * bytes, 0);
        break;
    case TO_DEVICE_PINNED:
    case TO_DEVICE_PAGEABLE:
    case TO_DEVICE:
    case FROM_DEVICE_PINNED:
    case FROM_DEVICE_PAGEABLE:
    case FROM_DEVICE:
        op.resource =
            step->kind <= TO_DEVICE || forgotten == COPY_ENGINES ? ENGINE_TO : ENGINE_FROM;
        op.work = copy_work(m, bytes);
        op.host = true;
        break;
    case PEER_ASYNC:
        op.resource = ENGINE_FROM;
        op.engine_of = forgotten == PEER_ENGINE ? step->rank : step->from;
        op.work = peer_work(m, bytes);
        break;
    default: break; // it takes no time
    }
    return op;
}

static uint64_t next_number(Sim *s, const Atom *atom)
{
    return ++s->process[s->program->world.process[atom->rank]].works;
}

static void slow_down(const Sim *s, Operation *op, uint64_t number)
{
    const World *w = &s->program->world;
    op->work = slowed_work(w, op->work, op->rank, number, op->resource == COMPUTE);
}

static bool host_waits_for(Kind kind)
{
    return forgotten != HOST_WAITS &&
           (kind == TO_DEVICE || kind == FROM_DEVICE || kind == FROM_DEVICE_PAGEABLE);
}

// Queues the call's operation, and says what the host waits for.
static Waits queue_call(Sim *s, const Atom *atom)
{
    const Step *step = step_of(s, atom);
    Device *d = &s->device[atom->rank];
    Operation op = work_of(s, atom);
    if (op.resource != NOTHING) slow_down(s, &op, next_number(s, atom));
    op.waits = waits_of(d, step->stream);
    if (step->kind == WAIT && forgotten != EVENT_WAITS)
        add_wait(&op.waits, s->device[step->from].record[step->slot]);
    int number = queue_operation(s, &op);
    d->last[step->stream] = number;
    if (step->kind == RECORD) d->record[step->slot] = s->record[atom->step] = number;
    return host_waits_for(step->kind) ? only(number) : (Waits){0};
}

Waits make_call(Sim *s, const Atom *atom)
{
    const Step *step = step_of(s, atom);
    Device *d = &s->device[atom->rank];
    switch (step->kind) {
    case MALLOC:
    case PIN:
    case UNPIN: return (Waits){0};
    case STREAM_SYNC:
    case STREAM_QUERY: return waits_of(d, step->stream);
    case EVENT_SYNC:
    case EVENT_QUERY: return only(d->record[step->slot]);
    case FREE:
        if (forgotten == FREE_WAITS) return (Waits){0};
        return waits_of_device(d);
    case DEVICE_SYNC: return waits_of_device(d);
    default: return queue_call(s, atom);
    }
}

// ---- Calls of NCCL ----

static StreamName stream_of(const Sim *s, const Call *c, int rank)
{
    return c->stream[member_of(&s->program->world.comm[c->comm], rank)];
}

static int queue_nccl(Sim *s, const Atom *atom, int call, uint64_t number, const Waits *waits)
{
    const World *w = &s->program->world;
    const Call *c = &step_of(s, atom)->call[call];
    Operation op = operation(s, atom, stream_of(s, c, atom->rank));
    op.what = collective_names[c->op];
    op.waits = *waits;
    op.call = call;
    if (w->comm[c->comm].n == 1) {
        op.resource = COMPUTE;
        op.work = kernel_work(&w->machine, 2 * (uint64_t)c->bytes, 0);
    } else {
        op.resource = TRANSFER;
        op.link = link_of(w, c);
        op.work = collective_work(w, c);
        op.meeting = atom->step * MAX_CALLS + call;
        op.sends = c->op == MESSAGE && w->comm[c->comm].rank[c->root] == atom->rank;
    }
    slow_down(s, &op, number);
    return queue_operation(s, &op);
}

// Queues the rank's calls of the step on the communicator: they are ready together, and all that
// comes later on their streams, and on the communicator, follows all of them.
static void queue_group(Sim *s, const Atom *atom, int comm)
{
    const Step *step = step_of(s, atom);
    Device *d = &s->device[atom->rank];
    Waits waits = only(forgotten == COMM_ORDER ? -1 : d->comm[comm]);
    Operation end = {.step = -1, .rank = atom->rank};
    for (int i = 0; i < d->n_calls[comm]; i++) {
        Waits more = waits_of(d, stream_of(s, &step->call[d->call[comm][i]], atom->rank));
        if (forgotten != GROUP_STREAMS) add_waits(&waits, &more);
    }
    for (int i = 0; i < d->n_calls[comm]; i++) {
        int call = d->call[comm][i];
        StreamName stream = stream_of(s, &step->call[call], atom->rank);
        Waits before = waits_of(d, stream);
        add_waits(&before, &waits);
        int op = queue_nccl(s, atom, call, d->number[comm][i], &before);
        add_wait(&end.waits, op);
        if (forgotten == GROUP_IS_AT_ONCE) add_wait(&waits, op);
    }
    d->comm[comm] = queue_operation(s, &end);
    for (int i = 0; i < d->n_calls[comm]; i++)
        d->last[stream_of(s, &step->call[d->call[comm][i]], atom->rank)] = d->comm[comm];
    d->n_calls[comm] = 0;
}

// What is on no stream, and what only orders, awaits nobody.
void sent_before(const Sim *s, const Atom *atom, Sent *sent)
{
    const Step *step = step_of(s, atom);
    const Device *d = &s->device[atom->rank];
    Waits waits = {0};
    sent->received = 0;
    sent->n = 0;
    if (step->kind == NCCL) {
        const Call *c = &step->call[atom->call];
        waits = waits_of(d, stream_of(s, c, atom->rank));
        add_wait(&waits, d->comm[c->comm]);
    } else if (has_work(step->kind)) {
        waits = waits_of(d, step->stream);
    }
    add_sent(s, sent, &waits);
}

bool sends_again(const Sim *s, const Atom *atom)
{
    const Step *step = step_of(s, atom);
    const Call *c = &step->call[atom->call];
    if (c->op != MESSAGE || s->program->world.comm[c->comm].rank[c->root] != atom->rank)
        return false;
    for (int i = atom->call + 1; i < step->n_calls; i++) {
        const Call *other = &step->call[i];
        if (other->op == MESSAGE && other->comm == c->comm && other->root == c->root &&
            other->to == c->to)
            return true;
    }
    return false;
}

void call_nccl(Sim *s, const Atom *atom)
{
    const Step *step = step_of(s, atom);
    const Call *c = &step->call[atom->call];
    Device *d = &s->device[atom->rank];
    int comm = c->comm;
    d->number[comm][d->n_calls[comm]] = next_number(s, atom);
    d->call[comm][d->n_calls[comm]++] = atom->call;
    for (int i = atom->call + 1; i < step->n_calls; i++)
        if (step->call[i].comm == comm && calls(&s->program->world, &step->call[i], atom->rank))
            return; // the group's last one queues all of them
    queue_group(s, atom, comm);
}
