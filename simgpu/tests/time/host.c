/* host.c: the threads of the simulator: who calls when, and the clocks. simgpu/pages/time.md, § 1.
 *
 * A query changes nothing but its thread's clock. So it is noted when it is its turn, and answered
 * when the program has ended.
 *
 * Interface: simulate.h.
 */
#include "simulate.h"

#include <stdlib.h>

// ---- Calls ----

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

// A call that is none of a group, or the group's first, begins when all messages before it have
// receivers; NEVER: one has none yet.
static Ps received_before(const Sim *s, const Thread *t)
{
    const Atom *first = &t->atom[t->at];
    Ps received = 0;
    if (forgotten == RECEIVERS_FIRST) return 0;
    if (t->at > 0 && t->atom[t->at - 1].step == first->step) return 0;
    for (const Atom *a = first; a < t->atom + t->n && a->step == first->step; a++) {
        Sent sent;
        sent_before(s, a, &sent);
        received = later(received, sent.received);
        for (int i = 0; i < sent.n; i++) {
            if (!s->meeting[sent.message[i]].received) return NEVER;
            received = later(received, s->meeting[sent.message[i]].received);
        }
    }
    return received;
}

// Not only asked.
static bool has_called(const Thread *t)
{
    return t->called || t->is_first;
}

static Ps request_of(const Sim *s, const Process *p, const Thread *t)
{
    const Atom *atom = &t->atom[t->at];
    const Device *d = &s->device[atom->rank];
    Kind kind = step_of(s, atom)->kind;
    Thread joined = *t;
    join_ended(p, &joined);
    Ps begin = joined.clock;
    if (forgotten != LAST_CALL) begin = later(begin, d->called);
    if (!is_query(kind)) {
        Ps received = received_before(s, t);
        if (received == NEVER) return NEVER;
        begin = later(begin, received);
    }
    bool calls = !is_query(kind) || has_called(t);
    if (calls && forgotten != LAST_CALL && forgotten != LAST_CALLER) begin = later(begin, d->left);
    return begin + call_cost(&s->program->world.machine, kind);
}

static bool is_over(const Thread *t)
{
    return t->at == t->n && !t->blocked;
}

static void be_on_device(Sim *s, Thread *t, int rank)
{
    s->device[rank].thread = t;
    s->device[rank].left = t->clock;
}

// Makes the queries whose turn it is.
static void make_due_queries(Sim *s, const Process *p, Thread *t)
{
    while (!t->blocked && t->at < t->n && is_query(step_of(s, &t->atom[t->at])->kind)) {
        const Atom *atom = &t->atom[t->at];
        t->clock = s->when[atom->step] = request_of(s, p, t);
        s->asked[atom->step] = make_call(s, atom);
        if (has_called(t)) be_on_device(s, t, atom->rank);
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
    } else {
        m->received = t->clock;
    }
    call_nccl(s, atom);
    t->meets++;
    t->blocked = t->at == t->n || t->atom[t->at].step != atom->step;
}

static void call(Sim *s, const Process *p, Thread *t)
{
    const Atom *atom = &t->atom[t->at];
    t->clock = s->device[atom->rank].called = request_of(s, p, t);
    be_on_device(s, t, atom->rank);
    t->at++;
    t->began = t->called = true;
    Span *span = span_of(s, atom->step, atom->call, atom->rank);
    span->queued = span->returned = t->clock;
    t->waiting = (Waits){0};
    if (step_of(s, atom)->kind == NCCL) {
        request_nccl(s, t, atom);
    } else {
        t->waiting = make_call(s, atom);
        t->blocked = t->waiting.n > 0;
    }
    make_due_queries(s, p, t);
}

static bool may_go_on(const Sim *s, const Thread *t)
{
    for (int i = t->at - t->meets; i < t->at; i++) {
        const Meeting *m = &s->meeting[t->atom[i].step * MAX_CALLS + t->atom[i].call];
        if (m->silent || (sends_again(s, &t->atom[i]) && !m->received)) return false;
    }
    return all_done(s, &t->waiting);
}

static void go_on(Sim *s, const Process *p, Thread *t)
{
    Ps wake = forgotten == WAKING ? 0 : s->program->world.machine.wake;
    Ps awake = t->waiting.n ? latest_end(s, &t->waiting) + wake : 0;
    for (int i = t->at - t->meets; i < t->at; i++) {
        const Meeting *m = &s->meeting[t->atom[i].step * MAX_CALLS + t->atom[i].call];
        Ps request = sends_again(s, &t->atom[i]) ? m->received : m->request;
        bool message = step_of(s, &t->atom[i])->call[t->atom[i].call].op == MESSAGE;
        if (forgotten != (message ? RECEIVERS_MEET : HOSTS_MEET)) awake = later(awake, request);
    }
    t->clock = later(t->clock, awake);
    for (int i = t->meets ? t->at - t->meets : t->at - 1; i < t->at; i++) { // a group's at its end
        const Atom *atom = &t->atom[i];
        span_of(s, atom->step, atom->call, atom->rank)->returned = t->clock;
        if (s->device[atom->rank].thread == t) s->device[atom->rank].left = t->clock;
    }
    t->blocked = false;
    t->meets = 0;
    make_due_queries(s, p, t);
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
static void end_phase(Sim *s, Process *p)
{
    for (int i = 0; i < THREADS; i++) {
        Thread *t = &p->thread[i];
        if (i > 1) p->ended = later(p->ended, t->clock);
        free(t->atom);
        t->atom = NULL;
        t->at = t->n = 0;
        if (i > 1) *t = (Thread){0};
    }
    if (forgotten != JOINING) p->thread[0].clock = later(p->thread[0].clock, p->ended);
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
    for (int i = 0; i < THREADS; i++) make_due_queries(s, p, &p->thread[i]);
    return phase != NULL;
}

static bool change_phase(Sim *s, int process)
{
    Process *p = &s->process[process];
    bool changed = false;
    while (phase_is_over(p)) {
        end_phase(s, p);
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
        be_on_device(s, first, r);
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
    for (int i = 0; i < s->program->world.n_processes; i++) end_phase(s, &s->process[i]);
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
