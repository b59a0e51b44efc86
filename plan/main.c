/* plan: what a training step of a model would take on many GPUs (plan.h).
 *
 *   plan MODEL=gpt2-xl GPUS=1024 MACHINE=h100x8 BATCH=1024 SEQ=1024 STRATEGY=zero3 …
 *
 * handouts/plan.md explains the settings. Exit status 2: they are invalid; 1: a rank failed.
 */
#include "plan.h"

static Status run(PlanOptions *options, Plan *plan)
{
    if (options->fit) TRY(plan_fit(options));
    TRY(plan_make(plan));
    bool each = !options->fit && !options->reduce_given && options->accumulate > 1 &&
                options->strategic && options->strategy == STRATEGY_ZERO3;
    if (each && !plan_fits(options, plan_most_memory(plan))) {
        plan_free(&plan->ranks);
        options->reduce_every_time = true;
        TRY(plan_make(plan));
    }
    plan_print(plan);
    return plan_write_json(plan);
}

int main(int argc, char **argv)
{
    PlanOptions options;
    Plan plan = {.options = &options};
    if (plan_options(argc, argv, &options) != OK) return 2;
    Status status = run(&options, &plan);
    plan_free(&plan.ranks);
    return status == OK ? 0 : 1;
}
