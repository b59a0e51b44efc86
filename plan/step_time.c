/* step_time.c: the step in time: the ranks' logs are played on the modelled machine, and the
 * slowest rank's last step is looked at.
 *
 * Communication is hidden while something computes on the same GPU, exposed while nothing does. A
 * collective counts from when its last rank has arrived. What neither computes nor communicates is
 * idle; while the next kernel had not been queued, that is the host's.
 */
#include <stdlib.h>
#include <string.h>

#include "machine/figures.h"
#include "plan.h"
#include "time/replay.h"

PlanKind plan_kind_of(const GpuLogEntry *e)
{
    switch (e->op) {
    case GPU_BLAS: return PLAN_PRODUCT;
    case GPU_COPY: return PLAN_COPY;
    case GPU_ALL_GATHER: return PLAN_ALL_GATHER;
    case GPU_REDUCE_SCATTER: return PLAN_REDUCE_SCATTER;
    case GPU_ALL_REDUCE: return PLAN_ALL_REDUCE;
    default: break;
    }
    if (gpulog_is_collective(e->op)) return PLAN_MESSAGE;
    if (strstr(e->name, "attention")) return PLAN_ATTENTION;
    return strstr(e->name, "adamw") || strstr(e->name, "sgd") ? PLAN_OPTIMIZER : PLAN_KERNEL;
}

uint64_t plan_flops_of(const GpuLogEntry *e)
{
    const GpuProduct *p = &e->product;
    return p->batch ? 2 * p->rows * p->cols * p->inner * p->batch : e->flops;
}

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

typedef struct Moment { // of an entry
    SimPs queued, ready, start, end, work;
    SimCollectiveCost cost;
    bool has_cost;
} Moment;

typedef struct Moments {
    Moment *of[PLAN_KINDS];
} Moments;

static void note(int log, const SimSpan *span, void *arg)
{
    const Moments *all = arg;
    Moment *m = &all->of[log][span->entry->index];
    *m = (Moment){.queued = span->queued,
                  .ready = span->ready,
                  .start = span->start - (span->cost ? span->cost->latency : 0),
                  .end = span->end,
                  .work = span->work};
    if (span->cost) m->cost = *span->cost;
    m->has_cost = span->cost != NULL;
}

// ---- Intervals ----

static int by_begin(const void *a, const void *b)
{
    const Interval *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

// Sorts them, and joins those that overlap; how many are left.
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

static bool takes_time(const GpuLogEntry *e)
{
    return e->op >= GPU_COPY && e->op <= GPU_RECV;
}

static SimPs last_end(const PlanRecord *r, const Moment *m, int first, int end)
{
    SimPs last = 0;
    for (int i = first; i < end; i++)
        if (takes_time(&r->entry[i]) && m[i].end > last) last = m[i].end;
    return last;
}

// ---- One rank's step ----

static void add_share(PlanTimes *t, const GpuLogEntry *e, const Moment *m)
{
    PlanKind kind = plan_kind_of(e);
    PlanShare *s = &t->share[kind];
    SimPs latency = m->has_cost ? m->cost.latency : 0;
    s->calls++;
    s->time += m->end - m->start;
    s->work += m->work + latency;
    s->flops += plan_flops_of(e);
    s->latency += latency;
    for (int i = 0; i < e->n_ranges && kind < PLAN_ALL_GATHER; i++)
        s->bytes += e->range[i].bytes * (e->range[i].access == GPU_UPDATE ? 2 : 1);
    if (kind < PLAN_ALL_GATHER) return;
    s->bytes += e->sent;
    if (!m->has_cost) return;
    s->algorithm = m->cost.algorithm;
    s->protocol = m->cost.protocol;
    s->link = m->cost.link;
    s->ranks = e->collective.ranks;
    s->nodes = e->collective.nodes;
    t->link_messages[s->link]++;
    t->link_bytes[s->link] += e->sent;
}

// Between what computes: the time in which nothing did, and the next kernel had not been queued.
static SimPs waits_for_host(const PlanRecord *r, const Moment *m, SimPs from)
{
    SimPs busy = from, sum = 0;
    for (int i = r->first; i < r->n; i++) {
        if (r->entry[i].op < GPU_COPY || r->entry[i].op > GPU_BLAS) continue;
        if (m[i].start > busy && m[i].queued > busy)
            sum += (m[i].queued < m[i].start ? m[i].queued : m[i].start) - busy;
        if (m[i].end > busy) busy = m[i].end;
    }
    return sum;
}

static Status step_of(const PlanRecord *r, const Moment *m, PlanTimes *t)
{
    size_t room = (size_t)(r->n - r->first) + 1;
    Interval *compute = calloc(3 * room, sizeof *compute);
    if (!compute) return fail(ERR_MEMORY, "no host memory for the times of a rank");
    Interval *moved = compute + room, *both = moved + room;
    int n_compute = 0, n_moved = 0, n = 0;
    SimPs from = last_end(r, m, 0, r->first);
    *t = (PlanTimes){.rank = r->rank, .step = last_end(r, m, r->first, r->n) - from};
    for (int i = r->first; i < r->n; i++) {
        if (!takes_time(&r->entry[i]) || m[i].end <= m[i].start) continue;
        Interval part = {m[i].start, m[i].end};
        add_share(t, &r->entry[i], &m[i]);
        if (r->entry[i].op <= GPU_BLAS)
            compute[n_compute++] = part;
        else
            moved[n_moved++] = part;
        both[n++] = part;
    }
    t->compute = length_of(compute, unite(compute, n_compute));
    t->communication = length_of(moved, unite(moved, n_moved));
    SimPs busy = length_of(both, unite(both, n));
    t->exposed = busy - t->compute;
    t->idle = t->step > busy ? t->step - busy : 0;
    t->host = waits_for_host(r, m, from);
    if (t->host > t->idle) t->host = t->idle;
    free(compute);
    return OK;
}

static Status write_timeline(const PlanOptions *o, const PlanRecord *r, const Moment *m,
                             uint64_t step)
{
    SimPs from = last_end(r, m, 0, r->first);
    PlanSpan *span = calloc((size_t)r->n + 1, sizeof *span);
    if (!span) return fail(ERR_MEMORY, "no host memory for the times of a rank");
    for (int i = r->first; i < r->n; i++)
        if (takes_time(&r->entry[i]) && m[i].start >= from)
            span[i] = (PlanSpan){m[i].start - from, m[i].end - from};
    Status status = plan_write_timeline(o, r, span, step);
    free(span);
    return status;
}

// The machine with what published steps say of kernels, by the recipe that was asked for.
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
    // Products alone: what the log has as bf16 is multiplied at the peak of FP8.
    figures->fused_efficiency *= machine->peak[SIM_BF16] / machine->peak[SIM_FP8];
    machine->peak[SIM_BF16] = machine->peak[SIM_FP8];
}

static uint64_t overhead_of(const PlanOptions *o, uint64_t step)
{
    double doublings = 0;
    for (int n = o->machine->gpus_per_node; n < o->gpus; n *= 2) doublings++;
    return (uint64_t)(o->machine->figures->fitted.doubling * doublings * (double)step);
}

Status plan_times(const PlanOptions *o, const PlanRanks *all, PlanTimes *times)
{
    SimLog logs[PLAN_KINDS];
    Moments moments = {{NULL}};
    const SimSpread spread = {.slow_rank = o->slow_rank, .slow = {(uint64_t)o->slow, 100}};
    const char *wrong = NULL;
    SimMachine machine;
    SimFigures figures;
    set_fitted(o, &machine, &figures);
    for (int i = 0; i < all->n; i++) {
        logs[i] = (SimLog){all->record[i]->entry, (size_t)all->record[i]->n};
        moments.of[i] = calloc((size_t)all->record[i]->n + 1, sizeof *moments.of[i]);
        if (!moments.of[i]) wrong = "no host memory";
    }
    if (!wrong) wrong = sim_replay_some(&machine, &spread, logs, all->n, note, &moments);
    Status status = wrong ? fail(ERR_ARGUMENT, "the ranks' logs cannot be timed: %s", wrong) : OK;
    int slowest = 0;
    for (int i = 0; i < all->n && status == OK; i++) {
        PlanTimes one;
        status = step_of(all->record[i], moments.of[i], &one);
        if (i == 0 || one.step > times->step) {
            *times = one;
            slowest = i;
        }
    }
    if (status == OK && o->timeline)
        status = write_timeline(o, all->record[slowest], moments.of[slowest], times->step);
    for (int i = 0; i < all->n; i++) free(moments.of[i]);
    times->overhead = overhead_of(o, times->step);
    times->step += times->overhead;
    return status;
}
