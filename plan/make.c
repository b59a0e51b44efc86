/* make.c: one plan: its formulas, its ranks' logs, and the times of those. */
#include "fsdp.h"
#include "plan.h"

static Status count_formulas(Plan *plan)
{
    const PlanOptions *o = plan->options;
    Module *model = model_create(&o->model, &o->llama);
    if (!model) return ERR_ARGUMENT;
    plan->parameters = (uint64_t)meta_count(model);
    plan->useful = plan_useful(o, plan->parameters, false);
    module_destroy(model);
    for (int s = 0; s < o->stages; s++) {
        Module *stage = plan_stage(o, s);
        if (!stage) return ERR_ARGUMENT;
        plan->formulas[s] = plan_formulas(o, stage, s);
        module_destroy(stage);
    }
    return OK;
}

Status plan_make(Plan *plan)
{
    int ranks[PLAN_KINDS], n = plan_kinds(plan->options, ranks);
    if (n == 0) return ERR_ARGUMENT;
    TRY(count_formulas(plan));
    Status status = plan_run(plan->options, ranks, n, &plan->ranks);
    if (status != OK) return status; // already reported, except for a candidate
    return plan_times(plan->options, &plan->ranks, &plan->times);
}

// PyTorch's allocator frees its cache before it fails, so near the limit it holds little more than
// live memory: published runs fitted whose plans' live bytes are 95.8 % of the GPU's memory
// (fsdp_runs.csv). CUDA's context (534 MiB on an H100: meta-pytorch/torchcomms #777) and NCCL's
// buffers (544 to 688 MB for a communicator of A100s: NVIDIA/nccl #964) get a hundredth of the
// memory, less than both together: otherwise those runs would not have fitted. A GPU has 98.5 to
// 99.1 % of the memory in its name (39.4 GiB of an A100's 40, 79.1 to 79.3 of 80).
uint64_t plan_reserved(const PlanOptions *o, uint64_t live)
{
    return live + live / 100 + o->machine->memory / 100;
}

uint64_t plan_offered(const PlanOptions *o)
{
    return o->machine->memory / 1000 * 985;
}

bool plan_fits(const PlanOptions *o, uint64_t live)
{
    return plan_reserved(o, live) <= plan_offered(o);
}

uint64_t plan_most_memory(const Plan *plan)
{
    uint64_t most = 0;
    for (int i = 0; i < plan->ranks.n; i++)
        if (plan->ranks.record[i]->peak > most) most = plan->ranks.record[i]->peak;
    return most;
}
