/* plan: what a training step of a model would take on many GPUs (plan.h).
 *
 *   plan MODEL=gpt2-xl GPUS=1024 MACHINE=h100x8 BATCH=1024 SEQ=1024 STRATEGY=zero3 …
 *
 * handouts/plan.md says what the settings are. Exit status 2: they make no sense; 1: a rank failed.
 */
#include <stdlib.h>

#include "fsdp.h"
#include "plan.h"

Status plan_make(Plan *plan)
{
    const PlanOptions *o = plan->options;
    int ranks[PLAN_KINDS];
    Module *model = model_create(&o->model, &o->llama);
    if (!model) return ERR_ARGUMENT;
    int n = plan_kinds(o, ranks);
    plan->formulas = plan_formulas(o, model);
    module_destroy(model);
    TRY(plan_run(o, ranks, n, &plan->ranks));
    return plan_times(o, &plan->ranks, &plan->times);
}

uint64_t plan_most_memory(const Plan *plan)
{
    uint64_t most = 0;
    for (int i = 0; i < plan->ranks.n; i++)
        if (plan->ranks.record[i]->peak > most) most = plan->ranks.record[i]->peak;
    return most;
}

static Status run(PlanOptions *options, Plan *plan)
{
    if (options->fit) TRY(plan_fit(options));
    TRY(plan_make(plan));
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
