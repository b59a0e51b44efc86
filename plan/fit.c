/* fit.c: the fastest of several plans that fit: strategies, which also decide whether parameters are
 * resharded after a forward, and micro-batches of a batch that stays the same.
 *
 * More micro-batches take less memory and more messages. So for each strategy their number is
 * doubled until the plan fits, and once more.
 *
 * Interface: plan_fit.
 */
#include <stdio.h>

#include "plan.h"

static const struct {
    const char *name;
    Strategy strategy;
    bool by_node; // a replica on each node
} choices[] = {{"zero3", STRATEGY_ZERO3, false},
               {"zero2", STRATEGY_ZERO2, false},
               {"zero1", STRATEGY_ZERO1, false},
               {"ddp", STRATEGY_DDP, false},
               {"hsdp", STRATEGY_ZERO3, true}};

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
    printf("  %-7s %6d %8d %12.1f %14.3f%s\n", o->strategy_name, o->accumulate, o->micro,
           (double)memory / (double)(1 << 30), 1e-9 * (double)step, *fits ? "" : "   does not fit");
    fflush(stdout);
    if (*fits && (best->step == 0 || step < best->step)) *best = (Found){*o, step};
    return OK;
}

static Status try_strategy(PlanOptions o, Found *best)
{
    int all = o.micro, left = 2; // plans to look at once one fits
    for (o.accumulate = 1; o.accumulate <= all && left > 0; o.accumulate *= 2) {
        bool fits;
        if (all % o.accumulate != 0) break;
        o.micro = all / o.accumulate;
        TRY(look_at(&o, best, &fits));
        left -= fits;
    }
    return OK;
}

Status plan_fit(PlanOptions *options)
{
    Found best = {.step = 0};
    int per_node = options->machine->gpus_per_node;
    printf("  %-7s %6s %8s %12s %14s\n", "", "parts", "of", "GiB", "ms");
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        PlanOptions o = *options;
        if (choices[i].by_node && (options->gpus <= per_node || per_node == 1)) continue;
        o.strategy = choices[i].strategy;
        o.strategic = true;
        o.replicas = choices[i].by_node ? o.gpus / per_node : 1;
        snprintf(o.strategy_name, sizeof o.strategy_name, "%s", choices[i].name);
        TRY(try_strategy(o, &best));
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
