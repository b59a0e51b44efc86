/* advice.c: the one thing that would help most, chosen by what the step waits for, and its effect
 * in a dry run.
 */
#include <stdio.h>

#include "plan.h"

// Prints the figures of another plan, as part of a line; nothing if it cannot be made.
static void try_it(const Plan *plan, const PlanOptions *with, const char *name)
{
    PlanOptions alone = *with; // the file is for the plan's own step
    alone.timeline = NULL;
    alone.candidate = true;
    Plan other = {.options = &alone};
    bool made = plan_make(&other) == OK;
    uint64_t memory = plan_most_memory(&other), step = other.times.step;
    bool fits = plan_fits(with, memory);
    plan_free(&other.ranks);
    if (made)
        plan_say("    %s: %.1f GiB at the peak, %s; a step takes %s, %.2f times this one.\n", name,
                 plan_gib(memory), fits ? "fits" : "does not fit", plan_step_time(with, step).is,
                 (double)step / (double)plan->times.step);
}

// Advises a replica on each node, against the latency of collectives.
static void advise_replicas(const Plan *plan)
{
    PlanOptions with = *plan->options;
    int nodes = with.gpus / with.machine->gpus_per_node;
    plan_say("HSDP (STRATEGY=hsdp): latency grows with the ranks of a collective; this could save "
             "up to %s.\n",
             plan_time(plan->times.exposed).is);
    with.replicas = nodes;
    with.strategic = true;
    if (with.advice && with.reshard_ranks == 0) try_it(plan, &with, "STRATEGY=hsdp");
}

// Advises more compute, or fewer bytes, against exposed communication.
static void advise_batch(const Plan *plan, bool slices)
{
    PlanOptions larger = *plan->options, with = larger;
    char batch[40];
    plan_say("more tokens per GPU (BATCH): more compute hides the same bytes%s; this could save "
             "up to %s.\n",
             slices ? "; or slices of a node's ranks (RESHARD_RANKS)" : "",
             plan_time(plan->times.exposed).is);
    if (!larger.advice) return;
    larger.batch *= 2;
    larger.micro *= 2;
    snprintf(batch, sizeof batch, "BATCH=%d", larger.batch);
    try_it(plan, &larger, batch);
    with.reshard_ranks = with.machine->gpus_per_node;
    with.strategic = true;
    snprintf(batch, sizeof batch, "RESHARD_RANKS=%d", with.reshard_ranks);
    if (slices) try_it(plan, &with, batch);
}

void plan_advise(const Plan *plan)
{
    const PlanOptions *o = plan->options;
    const PlanTimes *t = &plan->times;
    const PlanShare *gather = &t->share[PLAN_ALL_GATHER];
    bool several = o->gpus > o->machine->gpus_per_node && o->machine->gpus_per_node > 1,
         plain = o->replicas == 1 && o->stages == 1 && o->strategy != STRATEGY_DDP;
    plan_say("  What would help most: ");
    if (!plan_fits(o, plan_most_memory(plan)))
        plan_advise_memory(plan);
    else if (o->slow > 0)
        plan_say("a rank %d as fast as the others, which wait for it.\n", o->slow_rank);
    else if (plan_percent(t->exposed, t->step) < 5 && plan_percent(t->host, t->step) < 5 &&
             (o->stages == 1 || plan_percent(t->idle, t->step) < 5))
        plan_say("faster kernels%s: %.0f %% of the step is compute.\n",
                 o->dtype == DTYPE_F32 ? " or a faster type" : "",
                 plan_percent(t->compute, t->step));
    else if (o->stages > 1 && t->idle + t->exposed > t->host)
        plan_say("more micro-batches (ACCUMULATE): nothing computes for %.0f %% of the step; with "
                 "%d stages and %d micro-batches the bubble is %.0f %%.\n",
                 plan_percent(t->idle + t->exposed, t->step), o->stages, o->accumulate,
                 100.0 * (o->stages - 1) / (o->accumulate + o->stages - 1));
    else if (t->host > t->exposed)
        plan_say("larger kernels (a larger batch, or units of more layers): this could save up to "
                 "%s.\n",
                 plan_time(t->host).is);
    else if (several && plain && plan_percent(gather->latency, gather->work) > 40)
        advise_replicas(plan);
    else
        advise_batch(plan, several && plain && o->reshard_ranks == 0 && !o->per_parameter &&
                               !o->offload && !o->regroups && o->strategy == STRATEGY_ZERO3);
}
