/* fit.c: the fastest of several plans that fit. They differ in strategy (and so in whether a
 * forward reshards parameters, to shards or to slices), in recomputation, in micro-batches of an
 * unchanged batch, in whether each of those reduces, and in how many units are prefetched.
 *
 * More micro-batches take less memory and more messages. So for each strategy, with and without
 * recomputation, their number is doubled until the plan fits, and once more. Reducing each time
 * takes less memory, too. If no batch is given, it is doubled while the plan fits and a token takes
 * less time; a pipeline gets more micro-batches. Prefetching more units is tried last, on the
 * fastest plan. Given settings (RECOMPUTE, PREFETCH, OFFLOAD, LAYOUT, GATHER, STAGES) stay.
 * Replicas, which reduce less and keep more, are halved from one on each node.
 */
#include <stdio.h>

#include "plan.h"

static const struct {
    const char *name;
    Strategy strategy;
    bool by_node; // a replica on each node
    bool slices;  // of a node's ranks
    bool each;    // each micro-batch may reduce
} choices[] = {
    {"zero3", STRATEGY_ZERO3, false, false, true}, {"zero3", STRATEGY_ZERO3, false, true, true},
    {"zero2", STRATEGY_ZERO2, false, false, true}, {"zero1", STRATEGY_ZERO1, false, false, false},
    {"ddp", STRATEGY_DDP, false, false, false},    {"hsdp", STRATEGY_ZERO3, true, false, true}};

// Units ahead; sequences on a GPU; micro-batches per stage of a pipeline, whose log has them all.
enum { MOST_AHEAD = 3, MOST_SEQUENCES = 1024, MOST_PARTS = 4 };

typedef struct Found {
    PlanOptions options;
    uint64_t step; // 0: nothing fits yet
} Found;

// Whether a sequence takes less time, by more than 1/part of it (0: by anything).
static bool is_faster(const Found *one, const Found *other, int part)
{
    double limit = part ? 1.0 - 1.0 / part : 1.0;
    if (one->step == 0 || other->step == 0) return one->step > 0;
    return (double)one->step / one->options.batch <
           limit * (double)other->step / other->options.batch;
}

// Makes a plan and prints what it takes. *fits: it fits. *best becomes it if it is faster.
static Status look_at(const PlanOptions *o, Found *best, bool *fits)
{
    Plan plan = {.options = o};
    Status status = plan_make(&plan);
    uint64_t memory = plan_most_memory(&plan), step = plan.times.step;
    plan_free(&plan.ranks);
    if (status != OK && status != ERR_MEMORY) return status;
    double tokens = (double)o->batch * o->seq / o->gpus;
    *fits = status == OK && plan_fits(o, memory);
    printf("  %-5s %5d %4d %6d %6s %9s %5d %5d %6.1f %9.3f", o->strategy_name, o->accumulate,
           o->micro, o->reshard_ranks, o->reduce_every_time ? "each" : "once",
           plan_recompute_name(o), o->prefetches ? o->prefetch : 1, o->replicas, plan_gib(memory),
           1e-9 * (double)step);
    if (*fits)
        printf(" %8.0f\n", tokens / (1e-12 * (double)step));
    else
        printf("   no fit\n");
    fflush(stdout);
    Found found = {*o, step};
    if (*fits && is_faster(&found, best, 0)) *best = found;
    return OK;
}

static Status try_parts(PlanOptions o, bool each, Found *best)
{
    int all = o.micro, left = 2; // plans to look at once one fits
    for (o.accumulate = 1; o.accumulate <= all && left > 0; o.accumulate *= 2) {
        bool fits, fits_each = false;
        if (all % o.accumulate != 0) break;
        o.micro = all / o.accumulate;
        o.reduce_every_time = false;
        TRY(look_at(&o, best, &fits));
        o.reduce_every_time = each && o.accumulate > 1;
        if (o.reduce_every_time) TRY(look_at(&o, best, &fits_each));
        left -= fits || fits_each;
    }
    return OK;
}

// Tries larger batches while they fit and gain one percent; each micro-batch reduces if only that
// fits.
static Status try_batches(PlanOptions o, bool each, Found *best)
{
    int *n = o.stages > 1 ? &o.accumulate : &o.micro,
        most = o.stages > 1 ? MOST_PARTS * o.stages : MOST_SEQUENCES;
    Found own = {.step = 0}, before;
    bool fits;
    *n = 1;
    do {
        before = own;
        o.batch = plan_places(&o) * *n;
        TRY(look_at(&o, &own, &fits));
        if (!fits && each && o.accumulate > 1 && !o.reduce_every_time) {
            o.reduce_every_time = true;
            TRY(look_at(&o, &own, &fits));
        }
        *n *= 2;
    } while (fits && *n <= most && is_faster(&own, &before, 100));
    if (is_faster(&own, best, 0)) *best = own;
    return OK;
}

// Tries each kind of recomputation, and none, unless one is given.
static Status try_strategy(PlanOptions o, bool each, Found *best)
{
    RecomputeKind last = o.recompute_given                      ? o.recompute
                         : o.model.attention == ATTENTION_PLAIN ? RECOMPUTE_ATTENTION
                                                                : RECOMPUTE_BLOCKS;
    o.recompute = o.recompute_given ? o.recompute : RECOMPUTE_NONE;
    for (; o.recompute <= last; o.recompute++)
        TRY(o.batch_given ? try_parts(o, each, best) : try_batches(o, each, best));
    return OK;
}

// Tries a replica on each node, then on two, on four …: a larger replica fits more, but its
// collectives have more ranks. Stops when that is slower than the one before.
static Status try_replicas(PlanOptions o, bool each, Found *best)
{
    for (Found before = {.step = 0}; o.replicas > 1; o.replicas /= 2) {
        Found own = {.step = 0};
        TRY(try_strategy(o, each, &own));
        if (is_faster(&own, best, 0)) *best = own;
        if ((before.step > 0 && !is_faster(&own, &before, 0)) || o.replicas % 2 != 0) break;
        before = own;
    }
    return OK;
}

// Whether the given settings go with the choice.
static bool goes(const PlanOptions *o, int i)
{
    int per_node = o->machine->gpus_per_node;
    bool by_node = choices[i].by_node || choices[i].slices,
         ddp = choices[i].strategy == STRATEGY_DDP;
    if (by_node && (plan_places(o) <= per_node || plan_places(o) % per_node || per_node == 1))
        return false;
    if (choices[i].slices && (o->per_parameter || o->offload || o->stages > 1)) return false;
    return !(ddp && (o->offload || o->fp8));
}

// Tries more units ahead, with the fastest plan so far.
static Status try_ahead(bool given, Found *best)
{
    PlanOptions o = best->options;
    if (best->step == 0 || given || o.strategy != STRATEGY_ZERO3 || plan_places(&o) == o.replicas)
        return OK;
    o.prefetches = true;
    for (o.prefetch = 2; o.prefetch <= MOST_AHEAD; o.prefetch++) {
        bool fits;
        TRY(look_at(&o, best, &fits));
    }
    return OK;
}

Status plan_fit(PlanOptions *options)
{
    Found best = {.step = 0};
    printf("  %-5s %5s %4s %6s %6s %9s %5s %5s %6s %9s %8s\n", "", "parts", "of", "slices",
           "reduce", "again", "ahead", "repl.", "GiB", "ms", "tokens/s");
    for (int i = 0; i < (int)(sizeof choices / sizeof choices[0]); i++) {
        PlanOptions o = *options;
        o.candidate = true;
        if (!goes(options, i)) continue;
        o.strategy = choices[i].strategy;
        o.strategic = true;
        o.replicas = choices[i].by_node ? plan_places(&o) / o.machine->gpus_per_node : 1;
        snprintf(o.strategy_name, sizeof o.strategy_name, "%s", choices[i].name);
        o.reshard_ranks = choices[i].slices ? o.machine->gpus_per_node : 0;
        TRY(choices[i].by_node ? try_replicas(o, choices[i].each, &best)
                               : try_strategy(o, choices[i].each, &best));
    }
    TRY(try_ahead(options->prefetches, &best));
    if (best.step == 0) {
        fprintf(stderr, "plan: none of these fits into %.0f GiB: more GPUs, or shorter sequences\n",
                plan_gib(options->machine->memory));
        return ERR_ARGUMENT;
    }
    *options = best.options;
    options->candidate = false;
    printf("\n");
    return OK;
}
