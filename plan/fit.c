/* fit.c: the fastest of several plans that fit: strategies, which also decide whether parameters are
 * resharded after a forward, to shards or to slices; micro-batches of a batch that stays the same; and
 * whether each of those reduces.
 *
 * More micro-batches take less memory and more messages. So for each strategy their number is
 * doubled until the plan fits, and once more. Reducing each time takes less memory, too.
 *
 * Interface: plan_fit.
 */
#include <stdio.h>

#include "plan.h"

static const struct {
    const char *name;
    Strategy strategy;
    bool by_node; // a replica on each node
    bool slices;  // of a node's ranks
    bool each;    // micro-batches may reduce each
} choices[] = {
    {"zero3", STRATEGY_ZERO3, false, false, true}, {"zero3", STRATEGY_ZERO3, false, true, true},
    {"zero2", STRATEGY_ZERO2, false, false, true}, {"zero1", STRATEGY_ZERO1, false, false, false},
    {"ddp", STRATEGY_DDP, false, false, false},    {"hsdp", STRATEGY_ZERO3, true, false, true}};

typedef struct Found {
    PlanOptions options;
    uint64_t step; // 0: nothing fits yet
} Found;

// Makes a plan and says what it takes; *fits.
static Status look_at(const PlanOptions *o, Found *best, bool *fits)
{
    Plan plan = {.options = o};
    Status status = plan_make(&plan);
    uint64_t memory = plan_most_memory(&plan), step = plan.times.step;
    plan_free(&plan.ranks);
    if (status != OK) return status;
    *fits = memory <= o->machine->memory;
    printf("  %-7s %6d %8d %6d %7s %12.1f %14.3f%s\n", o->strategy_name, o->accumulate, o->micro,
           o->reshard_ranks, o->reduce_every_time ? "each" : "once",
           (double)memory / (double)(1 << 30), 1e-9 * (double)step, *fits ? "" : "   does not fit");
    fflush(stdout);
    if (*fits && (best->step == 0 || step < best->step)) *best = (Found){*o, step};
    return OK;
}

static Status try_strategy(PlanOptions o, bool each, Found *best)
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

Status plan_fit(PlanOptions *options)
{
    Found best = {.step = 0};
    int per_node = options->machine->gpus_per_node;
    printf("  %-7s %6s %8s %6s %7s %12s %14s\n", "", "parts", "of", "slices", "reduce", "GiB",
           "ms");
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        PlanOptions o = *options;
        bool by_node = choices[i].by_node || choices[i].slices;
        if (by_node && (options->gpus <= per_node || per_node == 1)) continue;
        o.strategy = choices[i].strategy;
        o.strategic = true;
        o.replicas = choices[i].by_node ? o.gpus / per_node : 1;
        snprintf(o.strategy_name, sizeof o.strategy_name, "%s", choices[i].name);
        o.reshard_ranks = choices[i].slices ? per_node : 0;
        TRY(try_strategy(o, choices[i].each, &best));
    }
    if (best.step == 0) {
        fprintf(stderr, "plan: none of these fits into %.0f GiB: more GPUs, or shorter sequences\n",
                (double)options->machine->memory / (double)(1 << 30));
        return ERR_ARGUMENT;
    }
    *options = best.options;
    printf("\n");
    return OK;
}
