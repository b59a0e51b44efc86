/* host.c: the threads of the simulator: their calls, their clocks, and what each call queues.
 * simgpu/pages/time.md, §§ 1 and 2.
 *
 * A query changes nothing but its thread's clock. So it is noted when it is its turn, and answered
 * when the program has ended.
 *
 * Interface: simulate.h.
 */
#include "simulate.h"

#include <stdlib.h>

static const Step *step_of(const Sim *s, const Atom *atom)
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
        op.work = kernel_work(m, bytes + (uint64_t)step->write + 2 * (uint64_t)step->update);
        break;
    case MEMSET_ASYNC:
    case MEMSET:
        op.resource = COMPUTE;
        op.work = kernel_work(m, bytes);
        break;
    case COPY_ASYNC:
        op.resource = COMPUTE;
        op.work = kernel_work(m, 2 * bytes);
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

static Waits make_call(Sim *s, const Atom *atom)
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

// The rank's call after `call` on the same communicator in the step, or before it; -1: none.
static int next_call(const Sim *s, const Atom *atom, int way)
{
    const Step *step = step_of(s, atom);
    int comm = step->call[atom->call].comm;
    for (int i = atom->call + way; i >= 0 && i < step->n_calls; i += way)
        if (step->call[i].comm == comm && calls(&s->program->world, &step->call[i], atom->rank))
            return i;
    return -1;
}

static int queue_nccl(Sim *s, const Atom *atom, int call, uint64_t number, const Waits *waits)
{
    const World *w = &s->program->world;
    const Call *c = &step_of(s, atom)->call[call];
    Operation op = operation(s, atom, stream_of(s, c, atom->rank));
    op.what = collective_names[c->op];
    op.waits = *waits;
    if (w->comm[c->comm].n == 1) {
        op.resource = COMPUTE;
        op.work = kernel_work(&w->machine, 2 * (uint64_t)c->bytes);
    } else {
        op.resource = TRANSFER;
        op.link = link_of(w, c);
        op.work = collective_work(w, c);
        op.meeting = atom->step * MAX_CALLS + call;
    }
    slow_down(s, &op, number);
    return queue_operation(s, &op);
}

static void begin_group(Sim *s, const Atom *atom, int comm)
{
    const Step *step = step_of(s, atom);
    Device *d = &s->device[atom->rank];
    d->before[comm] = only(forgotten == COMM_ORDER ? -1 : d->comm[comm]);
    d->group[comm] = (Waits){0};
    d->n_messages[comm] = 0;
    for (int i = 0; i < step->n_calls; i++) {
        const Call *c = &step->call[i];
        if (c->comm != comm || !calls(&s->program->world, c, atom->rank)) continue;
        if (forgotten == GROUP_STREAMS) continue;
        Waits waits = waits_of(d, stream_of(s, c, atom->rank));
        add_waits(&d->before[comm], &waits);
    }
}

// All that comes later on the group's streams, and on the communicator, follows all of it.
static void end_group(Sim *s, const Atom *atom, int comm)
{
    const Step *step = step_of(s, atom);
    Device *d = &s->device[atom->rank];
    Operation end = {.step = -1, .rank = atom->rank, .waits = d->group[comm]};
    d->comm[comm] = queue_operation(s, &end);
    for (int i = 0; i < step->n_calls; i++) {
        const Call *c = &step->call[i];
        if (c->comm == comm && calls(&s->program->world, c, atom->rank))
            d->last[stream_of(s, c, atom->rank)] = d->comm[comm];
    }
}

// Queues the calls of d->messages: one collective, or messages that are ready together.
static void queue_run(Sim *s, const Atom *atom, int comm)
{
    Device *d = &s->device[atom->rank];
    const Step *step = step_of(s, atom);
    Waits waits = d->before[comm], queued = {0};
    for (int i = 0; i < d->n_messages[comm]; i++) {
        StreamName stream = stream_of(s, &step->call[d->messages[comm][i]], atom->rank);
        Waits more = waits_of(d, stream);
        add_waits(&waits, &more);
    }
    for (int i = 0; i < d->n_messages[comm]; i++) {
        int call = d->messages[comm][i];
        int op = queue_nccl(s, atom, call, d->number[comm][i], &waits);
        add_wait(&queued, op);
        d->last[stream_of(s, &step->call[call], atom->rank)] = op;
    }
    d->n_messages[comm] = 0;
    if (forgotten != COMM_ORDER)
        add_waits(&d->before[comm], &queued); // for what comes next on the communicator
    add_waits(&d->group[comm], &queued);
}

// The messages that follow each other in the group are queued, for the simulator, with the last of
// them.
static void call_nccl(Sim *s, const Atom *atom)
{
    const Step *step = step_of(s, atom);
    const Call *c = &step->call[atom->call];
    Device *d = &s->device[atom->rank];
    int comm = c->comm, after = next_call(s, atom, 1);
    if (next_call(s, atom, -1) < 0) begin_group(s, atom, comm);
    d->number[comm][d->n_messages[comm]] = next_number(s, atom);
    d->messages[comm][d->n_messages[comm]++] = atom->call;
    bool alone = c->op != MESSAGE || forgotten == MESSAGES_AT_ONCE;
    if (alone || after < 0 || step->call[after].op != MESSAGE) queue_run(s, atom, comm);
    if (after < 0) end_group(s, atom, comm);
}

// ---- Threads ----

static Ps later(Ps a, Ps b)
{
    return a > b ? a : b;
}

static void join_ended(const Process *p, Thread *t)
{
    if (t->is_first && forgotten != JOINING) t->clock = later(t->clock, p->ended);
    if (!t->began && forgotten != NEW_THREADS)
        t->clock = later(t->clock, later(p->ended, p->thread[0].clock));
}

static Ps request_of(const Sim *s, const Process *p, const Thread *t)
{
    const Atom *atom = &t->atom[t->at];
    Thread joined = *t;
    join_ended(p, &joined);
    Ps called = forgotten == LAST_CALL ? 0 : s->device[atom->rank].called;
    return later(joined.clock, called) +
           call_cost(&s->program->world.machine, step_of(s, atom)->kind);
}

static bool is_over(const Thread *t)
{
    return t->at == t->n && !t->blocked;
}

// Makes the queries whose turn it is.
static void ask(Sim *s, const Process *p, Thread *t)
{
    while (!t->blocked && t->at < t->n && is_query(step_of(s, &t->atom[t->at])->kind)) {
        const Atom *atom = &t->atom[t->at];
        t->clock = s->when[atom->step] = request_of(s, p, t);
        s->asked[atom->step] = make_call(s, atom);
        t->began = true;
        t->at++;
    }
}

// A request of a call of NCCL. The hosts wait for the others' requests at the end of its group; a
// receive's for the send's, a send's for nobody's.
static void request_nccl(Sim *s, Thread *t, const Atom *atom)
{
    const Call *c = &step_of(s, atom)->call[atom->call];
    Meeting *m = &s->meeting[atom->step * MAX_CALLS + atom->call];
    bool receives = c->op == MESSAGE && s->program->world.comm[c->comm].rank[c->root] != atom->rank;
    if (!receives) {
        m->silent--;
        m->request = t->clock; // instants come in their order
    }
    call_nccl(s, atom);
    t->meets++;
    t->blocked = t->at == t->n || t->atom[t->at].step != atom->step;
}

static void call(Sim *s, const Process *p, Thread *t)
{
    const Atom *atom = &t->atom[t->at];
    t->clock = s->device[atom->rank].called = request_of(s, p, t);
    t->at++;
    t->began = t->called = true;
    t->waiting = (Waits){0};
    if (step_of(s, atom)->kind == NCCL) {
        request_nccl(s, t, atom);
    } else {
        t->waiting = make_call(s, atom);
        t->blocked = t->waiting.n > 0;
    }
    ask(s, p, t);
}

static bool may_go_on(const Sim *s, const Thread *t)
{
    for (int i = t->at - t->meets; i < t->at; i++)
        if (s->meeting[t->atom[i].step * MAX_CALLS + t->atom[i].call].silent) return false;
    return all_done(s, &t->waiting);
}

static void go_on(Sim *s, const Process *p, Thread *t)
{
    Ps wake = forgotten == WAKING ? 0 : s->program->world.machine.wake;
    Ps awake = t->waiting.n ? latest_end(s, &t->waiting) + wake : 0;
    for (int i = t->at - t->meets; i < t->at; i++) {
        Ps request = s->meeting[t->atom[i].step * MAX_CALLS + t->atom[i].call].request;
        bool message = step_of(s, &t->atom[i])->call[t->atom[i].call].op == MESSAGE;
        if (forgotten != (message ? RECEIVERS_MEET : HOSTS_MEET)) awake = later(awake, request);
    }
    t->blocked = false;
    t->meets = 0;
    t->clock = later(t->clock, awake);
    ask(s, p, t);
}

// ---- Phases ----

// The calls that a thread makes in a step: those of all the process's ranks, or of one.
static void add_atoms(const Sim *s, Thread *t, int process, int only_rank, int step)
{
    const Program *p = s->program;
    const Step *st = &p->step[step];
    int n_calls = st->kind == NCCL ? st->n_calls : 1;
    for (int c = 0; c < n_calls; c++)
        for (int r = 0; r < p->world.n_ranks; r++) {
            if (p->world.process[r] != process || (only_rank >= 0 && r != only_rank)) continue;
            if (st->kind == NCCL ? !calls(&p->world, &st->call[c], r) : st->rank != r) continue;
            t->atom = realloc(t->atom, (size_t)(t->n + 1) * sizeof *t->atom);
            if (!t->atom) abort();
            t->atom[t->n++] = (Atom){step, r, c};
        }
}

static bool phase_is_over(const Process *p)
{
    for (int i = 0; i < THREADS; i++)
        if (!is_over(&p->thread[i])) return false;
    return true;
}

// The threads of the phase before end, but the first one and the second one.
static void end_phase(Process *p)
{
    for (int i = 0; i < THREADS; i++) {
        Thread *t = &p->thread[i];
        bool counts = t->called || forgotten == ASKING;
        if (i > 1 && counts) p->ended = later(p->ended, t->clock);
        free(t->atom);
        t->atom = NULL;
        t->at = t->n = 0;
        if (i > 1) *t = (Thread){0};
    }
}

// Gives the threads of the next phase their calls; false: there is none.
static bool begin_phase(Sim *s, int process)
{
    const Program *program = s->program;
    Process *p = &s->process[process];
    const Phase *phase = NULL;
    for (; p->next < program->n; p->next++) {
        const Step *step = &program->step[p->next];
        if (!process_takes_part(program, step, process)) continue;
        if (phase && phase->number != step->phase[process].number) break;
        phase = &step->phase[process];
        for (int r = 0; r < program->world.n_ranks && phase->mode == THREAD_A_DEVICE; r++)
            add_atoms(s, &p->thread[2 + r], process, r, p->next);
        int thread = phase->mode == FIRST_THREAD ? 0 : phase->mode == SECOND_THREAD ? 1 : 2;
        if (phase->mode != THREAD_A_DEVICE) add_atoms(s, &p->thread[thread], process, -1, p->next);
    }
    for (int i = 0; i < THREADS; i++) ask(s, p, &p->thread[i]);
    return phase != NULL;
}

static bool change_phase(Sim *s, int process)
{
    Process *p = &s->process[process];
    bool changed = false;
    while (phase_is_over(p)) {
        end_phase(p);
        if (!begin_phase(s, process)) break;
        changed = true;
    }
    return changed;
}

// The buffers that are made first.
static void make_buffers(Sim *s)
{
    const World *w = &s->program->world;
    for (int r = 0; r < w->n_ranks; r++) {
        Thread *first = &s->process[w->process[r]].thread[0];
        first->clock += call_cost(&w->machine, MALLOC) + call_cost(&w->machine, PIN);
        s->device[r].called = first->clock;
    }
}

void begin_processes(Sim *s)
{
    make_buffers(s);
    for (int i = 0; i < s->program->world.n_processes; i++) {
        s->process[i].thread[0].is_first = s->process[i].thread[0].began = true;
        change_phase(s, i);
    }
}

void free_processes(Sim *s)
{
    for (int i = 0; i < s->program->world.n_processes; i++) end_phase(&s->process[i]);
}

Ps next_request(const Sim *s)
{
    Ps next = NEVER;
    for (int i = 0; i < s->program->world.n_processes; i++)
        for (int k = 0; k < THREADS; k++) {
            const Thread *t = &s->process[i].thread[k];
            Ps request = t->blocked || t->at == t->n ? NEVER : request_of(s, &s->process[i], t);
            if (request < next) next = request;
        }
    return next;
}

bool settle_threads(Sim *s, Ps t)
{
    bool changed = false;
    for (int i = 0; i < s->program->world.n_processes; i++) {
        Process *p = &s->process[i];
        for (int k = 0; k < THREADS; k++) {
            Thread *thread = &p->thread[k];
            if (thread->blocked && may_go_on(s, thread)) {
                go_on(s, p, thread);
                changed = true;
            }
            while (!thread->blocked && thread->at < thread->n && request_of(s, p, thread) == t) {
                call(s, p, thread);
                changed = true;
            }
        }
        changed |= change_phase(s, i);
    }
    return changed;
}

bool all_ended(const Sim *s)
{
    for (int i = 0; i < s->program->world.n_processes; i++)
        if (!phase_is_over(&s->process[i]) || s->process[i].next < s->program->n) return false;
    return s->n_live == 0;
}
