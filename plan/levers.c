/* levers.c: settings that make a step fit: reductions of each micro-batch, recomputation, more
 * micro-batches, fewer replicas, stages, offload, and combinations of these, with the same batch.
 *
 * Formulas give each combination a least and a most memory, and about a time. Combinations that may
 * fit run dry, the fastest first, until three fit. Offload comes last: a plan's time does not
 * include the host's optimizer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/figures.h"
#include "plan.h"

enum { MOST = 4096, WANTED = 3, MOST_RUNS = 6, FEW_RUNS = 2, MOST_PASSES = 32 };

#define MOST_HOST 512e9 // bytes of a node, for the ranks on it: nodes have 0.5 to 2 TB

typedef struct Candidate {
    PlanOptions options;
    double time;           // by formulas, seconds; offload after all others
    double least;          // bytes
    bool likely;           // likely to fit: all that it has unsharded at most may live at one time
    uint64_t memory, step; // of its dry run; 0: there was none
} Candidate;

typedef struct Candidates {
    Candidate *of;
    int n;
    const PlanOptions *from;
    Module *stage[2]; // the first and the last
    int stages;       // the number of stages that they are of
} Candidates;

static double most_memory(const PlanFormulas *f)
{
    return (double)(f->params + f->grads + f->state + f->most_params + f->most_grads +
                    f->activations);
}

static double least_memory(const PlanFormulas *f)
{
    uint64_t most = f->most_params > f->most_grads ? f->most_params : f->most_grads;
    if (f->activations > most) most = f->activations;
    return (double)(f->params + f->grads + f->state + most);
}

// Roughly: compute or sending, whichever is longer, a part of the other, and the bubble.
static double about(const PlanOptions *o, const PlanFormulas *f)
{
    const SimFigures *figures = o->machine->figures;
    const SimGraph *ring = &figures->ring;
    int shards = o->strategy == STRATEGY_DDP ? 1 : plan_places(o) / o->replicas;
    bool within = shards <= o->machine->gpus_per_node && o->stages == 1;
    // A ring over nodes uses all NICs of a node: each rank's bytes pass all its channels.
    double link = (double)ring->channels * (within ? ring->intra : ring->inter);
    if (link <= 0) link = figures->link[SIM_PCIE];
    double compute = ((double)f->products / 0.65 + (double)f->attention / 0.35) / plan_peak(o);
    double sent = (double)(f->gather_sent + f->scatter_sent + f->reduce_sent) / link +
                  40e-6 * (double)(f->gather_calls + f->scatter_calls);
    if (o->offload)
        sent += 4.0 * (double)(f->parameters / (uint64_t)shards) * (2 * o->accumulate + 1) /
                figures->link[SIM_PCIE];
    double longer = compute > sent ? compute : sent;
    return (longer + 0.1 * (compute + sent - longer)) *
           (1 + (double)(o->stages - 1) / o->accumulate);
}

static void add(Candidates *all, const PlanOptions *o)
{
    const PlanOptions *from = all->from;
    int passes = from->stages * from->accumulate; // a pipeline's dry run takes longer with more
    if (passes < MOST_PASSES) passes = MOST_PASSES;
    if (all->n == MOST || (o->stages > 1 && o->stages * o->accumulate > passes)) return;
    if (o->recompute_every > o->model.layers / o->stages) return;
    if (all->stages != o->stages) {
        for (int i = 0; i < 2; i++) {
            if (all->stage[i]) module_destroy(all->stage[i]);
            all->stage[i] = plan_stage(o, i ? o->stages - 1 : 0);
        }
        all->stages = o->stages;
    }
    double memory = 0, most = 0, time = o->offload ? 1e9 : 0;
    for (int i = 0; i < 2; i++) {
        if (!all->stage[i]) return;
        PlanFormulas f = plan_formulas(o, all->stage[i], i ? o->stages - 1 : 0);
        if (least_memory(&f) > memory) memory = least_memory(&f);
        if (most_memory(&f) > most) most = most_memory(&f);
        if (i == 0) time += about(o, &f);
        // A rank's masters, gradients and moments: 16 bytes per element, in the host's memory.
        int per_node = o->machine->gpus_per_node, ranks = o->gpus < per_node ? o->gpus : per_node;
        double shard = (double)f.parameters / (plan_places(o) / o->replicas);
        if (o->offload && 16 * shard * ranks > MOST_HOST) return;
    }
    if (plan_fits(o, (uint64_t)memory))
        all->of[all->n++] = (Candidate){*o, time, memory, plan_fits(o, (uint64_t)most), 0, 0};
}

static bool is_lab_8(const PlanOptions *o) // which goes with neither stages nor offload
{
    return o->graph || o->regroups;
}

// Adds recomputation, reductions of each micro-batch, and offload.
static void add_kinds(Candidates *all, PlanOptions o)
{
    const PlanOptions *from = all->from;
    bool zero3 = o.strategy == STRATEGY_ZERO3;
    for (int kind = 0; kind < 12; kind++) {
        PlanOptions with = o;
        RecomputeKind again = (RecomputeKind)(kind / 4);
        if (kind & 1) with.reduce_every_time = true;
        if (kind & 2) with.offload = true;
        if (again != RECOMPUTE_NONE) {
            with.recompute = again;
            with.recompute_every = 1;
        }
        if ((kind & 1) && (from->reduce_every_time || o.accumulate == 1 || o.gpus == 1)) continue;
        if ((kind & 1) && o.strategy == STRATEGY_ZERO1) continue;
        if (again != RECOMPUTE_NONE && from->recompute == again && from->recompute_every == 1)
            continue;
        if (again == RECOMPUTE_ATTENTION &&
            (from->recompute == RECOMPUTE_BLOCKS || o.model.attention != ATTENTION_PLAIN))
            continue;
        if ((kind & 2) && (from->offload || !zero3 || o.reshard_ranks > 0 || o.fp8 || is_lab_8(&o)))
            continue;
        with.strategic = with.candidate = true;
        with.timeline = NULL;
        add(all, &with);
    }
}

static void add_parts(Candidates *all, PlanOptions o)
{
    int sequences = o.batch / plan_places(&o);
    for (; o.accumulate <= sequences; o.accumulate *= 2) {
        if (sequences % o.accumulate != 0) break;
        o.micro = sequences / o.accumulate;
        add_kinds(all, o);
    }
}

// Adds fewer replicas, each of more GPUs; without a strategy: ZeRO-3.
static void add_shards(Candidates *all, PlanOptions o)
{
    const PlanOptions *from = all->from;
    for (; o.replicas >= 1; o.replicas /= 2) {
        int places = plan_places(&o);
        if (places % o.replicas == 0 && (o.replicas < places || places == 1)) {
            add_parts(all, o);
            if (from->strategy != STRATEGY_ZERO3) {
                PlanOptions zero3 = o;
                zero3.strategy = STRATEGY_ZERO3;
                snprintf(zero3.strategy_name, sizeof zero3.strategy_name, "zero3");
                add_parts(all, zero3);
            }
        }
        if (o.reshard_ranks > 0) break;
    }
}

static void add_stages(Candidates *all, PlanOptions o)
{
    bool one = o.dtype == DTYPE_F16 || o.reshard_ranks > 0 || o.llama.tied || is_lab_8(&o);
    int most = one ? o.stages : PLAN_STAGES;
    for (; o.stages <= most && o.stages <= o.model.layers; o.stages *= 2) {
        if (o.stages >= o.gpus && o.stages > 1) break;
        if (o.gpus % o.stages == 0 && o.batch % plan_places(&o) == 0) add_shards(all, o);
    }
}

static int by_time(const void *a, const void *b)
{
    double x = ((const Candidate *)a)->time, y = ((const Candidate *)b)->time;
    return (x > y) - (x < y);
}

// Writes the settings that differ, as a user gives them.
static void name_of(const PlanOptions *o, const PlanOptions *from, char *text, size_t size)
{
    size_t n = 0;
    bool none = strcmp(o->strategy_name, "hsdp") == 0 && o->replicas == 1;
    text[0] = 0;
#define NAME(differs, ...)                                                                         \
    if ((differs) && n < size) n += (size_t)snprintf(text + n, size - n, " " __VA_ARGS__)
    NAME(o->strategy != from->strategy || none, "STRATEGY=zero3");
    NAME(o->replicas != from->replicas && !none, "REPLICAS=%d", o->replicas);
    NAME(o->stages != from->stages, "STAGES=%d", o->stages);
    NAME(o->accumulate != from->accumulate, "ACCUMULATE=%d", o->accumulate);
    NAME(o->reduce_every_time != from->reduce_every_time, "REDUCE=each");
    NAME(o->recompute != from->recompute, "RECOMPUTE=%s", plan_recompute_name(o));
    NAME(o->recompute_every != from->recompute_every, "RECOMPUTE_EVERY=1");
    NAME(o->offload != from->offload, "OFFLOAD=yes");
#undef NAME
}

static int by_step(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    if (x->options.offload != y->options.offload) return x->options.offload ? 1 : -1;
    return (x->step > y->step) - (x->step < y->step);
}

// Whether it cannot fit: scales its least memory as that of one before it in its dry run, with the
// same strategy, recomputation and stages. Allows for a twentieth less.
static bool is_too_large(const Candidates *all, const Candidate *c)
{
    const PlanOptions *o = &c->options;
    for (const Candidate *ran = all->of; ran < c; ran++) {
        const PlanOptions *other = &ran->options;
        double memory = 0.95 * c->least * (double)ran->memory / ran->least;
        if (o->strategy == other->strategy && o->recompute == other->recompute &&
            o->recompute_every == other->recompute_every && o->stages == other->stages &&
            o->replicas == other->replicas && o->reduce_every_time == other->reduce_every_time &&
            o->offload == other->offload && !plan_fits(o, (uint64_t)memory))
            return true;
    }
    return false;
}

// Runs the candidates in order; returns how many fit. After a number of misses, it runs only the
// likely ones.
static int run_candidates(const Candidates *all, Candidate found[WANTED])
{
    const PlanOptions *from = all->from;
    int n = 0, misses = 0,
        runs = from->stages * from->accumulate > MOST_PASSES ? FEW_RUNS : MOST_RUNS;
    for (Candidate *c = all->of; c < all->of + all->n && misses < 2 * runs && n < WANTED; c++) {
        if ((misses >= runs && !c->likely) || is_too_large(all, c)) continue;
        Plan plan = {.options = &c->options};
        Status status = plan_make(&plan);
        c->memory = plan_most_memory(&plan);
        c->step = plan.times.step;
        plan_free(&plan.ranks);
        if (status == OK && plan_fits(from, c->memory))
            found[n++] = *c;
        else
            misses++;
    }
    qsort(found, (size_t)n, sizeof *found, by_step);
    return n;
}

void plan_advise_memory(const Plan *plan)
{
    const PlanOptions *o = plan->options;
    Candidates all = {.of = calloc(MOST, sizeof *all.of), .from = o};
    Candidate found[WANTED];
    char name[200];
    if (!all.of) return;
    add_stages(&all, *o);
    qsort(all.of, (size_t)all.n, sizeof *all.of, by_time);
    int n = 0;
    if (all.n == 0)
        plan_say("more GPUs, or shorter sequences: it does not fit, with no setting.\n");
    else if (!o->advice)
        plan_say("it does not fit; ADVICE=yes says what would.\n");
    else if ((n = run_candidates(&all, found)) == 0)
        plan_say("more GPUs, or shorter sequences: it does not fit, and no setting that was tried "
                 "makes it.\n");
    else
        plan_say("it does not fit; these settings do, the fastest first:\n");
    for (int i = 0; i < n; i++) {
        name_of(&found[i].options, o, name, sizeof name);
        plan_say("   %s: %.1f GiB at the peak; a step takes %s%s\n", name,
                 plan_gib(found[i].memory), plan_step_time(o, found[i].step).is,
                 found[i].options.offload ? ", and the host's optimizer" : "");
    }
    for (int i = 0; i < 2; i++)
        if (all.stage[i]) module_destroy(all.stage[i]);
    free(all.of);
}
