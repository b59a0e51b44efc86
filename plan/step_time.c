/* step_time.c: the step in time: plays the ranks' logs on the modelled machine and reports the last
 * step of the slowest rank.
 *
 * Communication, with the copies from and to the host, is hidden while something computes on the
 * same GPU, otherwise exposed. A collective counts from the arrival of its last rank. Time without
 * computation and communication is idle; the host is the cause while the next kernel had not been
 * queued.
 */
#include <stdlib.h>
#include <string.h>

#include "machine/figures.h"
#include "plan.h"
#include "time/replay.h"

const char *plan_kind_name(PlanKind kind)
{
    static const char *const names[] = {"products",       "attention",  "optimizer",
                                        "other kernels",  "copies",     "all-gather",
                                        "reduce-scatter", "all-reduce", "other messages"};
    return names[kind];
}

typedef struct Interval {
    SimPs begin, end;
} Interval;

typedef struct Rank {
    const PlanRecord *record;
    SimPs from;     // end of the step before: the measured step begins
    PlanTimes sums; // the sums over its operations
    PlanSpan *of;   // (n - first)
} Rank;

// Copies within a GPU are its own work; those from and to the host are not.
static bool is_moved(const GpuLogEntry *e)
{
    return e->op > GPU_BLAS ||
           (e->op == GPU_COPY && (e->to == GPULOG_HOST) != (e->from == GPULOG_HOST));
}

static bool takes_time(const GpuLogEntry *e)
{
    return e->op >= GPU_COPY && e->op <= GPU_RECV;
}

static void add_share(PlanTimes *t, const SimSpan *span, SimPs latency)
{
    const GpuLogEntry *e = span->entry;
    const SimCollectiveCost *cost = span->cost;
    PlanKind kind = plan_kind_of(e);
    PlanShare *s = &t->share[kind];
    s->calls++;
    s->time += span->end - span->start + latency;
    s->work += span->work + latency;
    s->flops += plan_flops_of(e);
    s->latency += latency;
    s->bytes += kind < PLAN_ALL_GATHER ? e->range[0].bytes : e->sent;
    if (!cost || kind < PLAN_ALL_GATHER) return;
    s->algorithm = cost->algorithm;
    s->protocol = cost->protocol;
    s->link = cost->link;
    s->ranks = e->collective.ranks;
    s->nodes = e->collective.nodes;
    t->link_messages[s->link]++;
    t->link_bytes[s->link] += e->sent;
}

static void note_span(int log, const SimSpan *span, void *arg)
{
    Rank *rank = (Rank *)arg + log;
    SimPs latency = span->cost ? span->cost->latency : 0;
    int i = (int)span->entry->index - rank->record->first;
    if (!takes_time(span->entry)) return;
    if (i < 0 && span->end > rank->from) rank->from = span->end;
    if (i < 0) return;
    rank->of[i] = (PlanSpan){span->queued, span->start - latency, span->end};
    if (span->end > span->start - latency) add_share(&rank->sums, span, latency);
}

// ---- Intervals ----

static int by_begin(const void *a, const void *b)
{
    const Interval *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

// Sorts them and joins those that overlap; returns how many are left.
static int unite(Interval *part, int n)
{
    int kept = 0;
    qsort(part, (size_t)n, sizeof *part, by_begin);
    for (int i = 0; i < n; i++) {
        if (kept == 0 || part[i].begin > part[kept - 1].end)
            part[kept++] = part[i];
        else if (part[i].end > part[kept - 1].end)
            part[kept - 1].end = part[i].end;
    }
    return kept;
}

static SimPs length_of(const Interval *part, int n)
{
    SimPs sum = 0;
    for (int i = 0; i < n; i++) sum += part[i].end - part[i].begin;
    return sum;
}

// ---- One rank's step ----

// The time between computations during which the next kernel had not been queued.
static SimPs waits_for_host(const Rank *rank)
{
    const PlanRecord *r = rank->record;
    SimPs busy = rank->from, sum = 0;
    for (int i = r->first; i < r->n; i++) {
        const PlanSpan *m = &rank->of[i - r->first];
        GpuOp op = plan_entry(r, i)->op;
        if (op < GPU_COPY || op > GPU_BLAS) continue;
        if (m->start > busy && m->queued > busy)
            sum += (m->queued < m->start ? m->queued : m->start) - busy;
        if (m->end > busy) busy = m->end;
    }
    return sum;
}

static Status step_of(const Rank *rank, PlanTimes *t)
{
    const PlanRecord *r = rank->record;
    size_t room = (size_t)(r->n - r->first) + 1;
    Interval *compute = calloc(3 * room, sizeof *compute);
    if (!compute) return fail(ERR_MEMORY, "no host memory for the times of a rank");
    Interval *moved = compute + room, *both = moved + room;
    int n_compute = 0, n_moved = 0, n = 0;
    SimPs last = rank->from;
    *t = rank->sums;
    t->rank = r->rank;
    for (int i = r->first; i < r->n; i++) {
        Interval part = {rank->of[i - r->first].start, rank->of[i - r->first].end};
        if (part.end <= part.begin) continue;
        if (part.end > last) last = part.end;
        if (is_moved(plan_entry(r, i)))
            moved[n_moved++] = part;
        else
            compute[n_compute++] = part;
        both[n++] = part;
    }
    t->step = last - rank->from;
    t->compute = length_of(compute, unite(compute, n_compute));
    t->communication = length_of(moved, unite(moved, n_moved));
    SimPs busy = length_of(both, unite(both, n));
    t->exposed = busy - t->compute;
    t->idle = t->step > busy ? t->step - busy : 0;
    t->host = waits_for_host(rank);
    if (t->host > t->idle) t->host = t->idle;
    free(compute);
    return OK;
}

// The machine, with kernels fitted to published steps of the given recipe.
static void set_fitted(const PlanOptions *o, SimMachine *machine, SimFigures *figures)
{
    const SimFitted *fitted = &o->machine->figures->fitted;
    *machine = *o->machine;
    *figures = *machine->figures;
    machine->figures = figures;
    figures->kernel_efficiency = o->efficiency ? 0.01 * o->efficiency
                                 : o->compiled ? fitted->compiled
                                               : fitted->eager;
    if (o->flash1 && fitted->flash1 > 0) figures->fused_efficiency = fitted->flash1;
    if (!o->fp8_products) return;
    // Only products: the log has them as bf16; they take the peak of FP8.
    figures->fused_efficiency *= machine->peak[SIM_BF16] / machine->peak[SIM_FP8];
    machine->peak[SIM_BF16] = machine->peak[SIM_FP8];
}

static uint64_t overhead_of(const PlanOptions *o, uint64_t step)
{
    double doublings = 0;
    for (int n = o->machine->gpus_per_node; n < o->gpus; n *= 2) doublings++;
    return (uint64_t)(o->machine->figures->fitted.doubling * doublings * (double)step);
}

static void read_entry(const void *from, size_t i, GpuLogEntry *entry)
{
    const PlanRecord *r = from;
    const PlanEntry *own = &r->entry[i];
    *entry = *plan_entry(r, (int)i);
    entry->index = i;
    entry->event = own->event;
    entry->launch = own->launch;
    entry->collective.call = own->call;
    entry->collective.group = own->group;
}

Status plan_times(const PlanOptions *o, const PlanRanks *all, PlanTimes *times)
{
    SimLog logs[PLAN_KINDS];
    Rank *ranks = calloc((size_t)all->n, sizeof *ranks);
    const SimSpread spread = {.slow_rank = o->slow_rank, .slow = {(uint64_t)o->slow, 100}};
    const char *wrong = ranks ? NULL : "no host memory";
    SimMachine machine;
    SimFigures figures;
    set_fitted(o, &machine, &figures);
    for (int i = 0; i < all->n && ranks; i++) {
        const PlanRecord *r = all->record[i];
        logs[i] = (SimLog){.n = (size_t)r->n, .read = read_entry, .from = r};
        ranks[i].record = r;
        ranks[i].of = calloc((size_t)(r->n - r->first) + 1, sizeof *ranks[i].of);
        if (!ranks[i].of) wrong = "no host memory";
    }
    if (!wrong) wrong = sim_replay_some(&machine, &spread, logs, all->n, note_span, ranks);
    Status status = wrong ? fail(ERR_ARGUMENT, "the ranks' logs cannot be timed: %s", wrong) : OK;
    int slowest = 0;
    for (int i = 0; i < all->n && status == OK; i++) {
        PlanTimes one;
        status = step_of(&ranks[i], &one);
        if (i == 0 || one.step > times->step) {
            *times = one;
            slowest = i;
        }
    }
    if (status == OK && o->timeline)
        status = plan_write_timeline(o, ranks[slowest].record, ranks[slowest].of,
                                     ranks[slowest].from, times->step);
    for (int i = 0; i < all->n && ranks; i++) free(ranks[i].of);
    free(ranks);
    times->overhead = overhead_of(o, times->step);
    times->step += times->overhead;
    return status;
}
