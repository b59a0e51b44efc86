/* lab_options.c: what labs 3, 4, 6, 7 and 8 add to a step, and what that does not go with, as
 * train_gpt2 has it.
 */
#include <string.h>

#include "settings.h"

static const char *const recomputes[] = {"no", "blocks", "attention"}; // as RecomputeKind has them

const char *plan_recompute_name(const PlanOptions *o)
{
    return recomputes[o->recompute];
}

// Before what is shared out over the ranks of a stage: batch and shards.
Status plan_read_stages(const PlanValues value, PlanOptions *o)
{
    bool is_1f1b;
    TRY(plan_number(value, STAGES, 1, &o->stages));
    if (o->stages > 1 && o->llama.tied)
        return plan_refuse("CONFIG: tie_word_embeddings is true: a Llama's stages share no "
                           "embedding: leave STAGES out");
    TRY(plan_choice(value, SCHEDULE, "gpipe", "1f1b", &is_1f1b));
    o->schedule = is_1f1b ? PIPELINE_1F1B : PIPELINE_GPIPE;
    if (value[SCHEDULE] && o->stages == 1)
        return plan_refuse("SCHEDULE=%.40s is that of a pipeline: STAGES", value[SCHEDULE]);
    if (o->gpus % o->stages != 0)
        return plan_refuse("STAGES=%d does not divide GPUS=%d", o->stages, o->gpus);
    if (o->stages > o->model.layers)
        return plan_refuse("STAGES=%d: the model has %d blocks", o->stages, o->model.layers);
    if (o->stages > PLAN_STAGES)
        return plan_refuse("STAGES=%d: at most %d", o->stages, PLAN_STAGES);
    return OK;
}

// One that a pipeline does not go with; NULL: none.
static Status check_stages(const PlanOptions *o)
{
    if (o->stages == 1) return OK;
    if (o->dtype == DTYPE_F16)
        return plan_refuse("STAGES does not go with DTYPE=fp16: the loss scale would look at one "
                           "stage's gradients");
    if (o->reshard_ranks > 0)
        return plan_refuse("STAGES does not go with RESHARD_RANKS: a unit has one slice, and "
                           "several micro-batches are in flight");
    return OK;
}

static Status check_offload(const PlanOptions *o)
{
    if (!o->offload) return OK;
    if (o->strategy == STRATEGY_DDP)
        return plan_refuse("OFFLOAD=yes wants shards: STRATEGY=ddp keeps everything on the GPU");
    if (o->reshard_ranks > 0)
        return plan_refuse("OFFLOAD=yes does not go with RESHARD_RANKS, whose slices stay on the "
                           "GPU");
    return OK;
}

static Status check_gather(const PlanOptions *o)
{
    if (!o->fp8) return OK;
    if (!o->per_parameter)
        return plan_refuse("GATHER=fp8 has a scale for each parameter: take LAYOUT=per_parameter");
    if (o->strategy == STRATEGY_DDP)
        return plan_refuse("STRATEGY=ddp gathers nothing: leave GATHER out");
    if (o->offload)
        return plan_refuse("GATHER=fp8 finds its scales in shards on the GPU: leave OFFLOAD out");
    return OK;
}

// A graph's step, and all-gathers by a plan: as graph_steps_check has it (examples/common).
static Status read_graph(const PlanValues value, PlanOptions *o)
{
    TRY(plan_choice(value, GRAPH, "no", "yes", &o->graph));
    o->regroups = value[REGROUP] && strcmp(value[REGROUP], "no") != 0;
    if (o->regroups) TRY(plan_number_from(value, REGROUP, 0, 0, &o->regroup));
    if (!o->graph && !o->regroups) return OK;
    const char *name = o->graph ? "GRAPH=yes" : "REGROUP";
    if (o->mixed) return plan_refuse("%s is of a step in one type: DTYPE=tf32 or float", name);
    if (o->stages > 1 || o->offload || o->fp8)
        return plan_refuse("%s is of FSDP's step: leave out STAGES, OFFLOAD and GATHER", name);
    if (o->regroups && (o->prefetches || o->reshard_ranks > 0 || o->per_parameter))
        return plan_refuse("REGROUP queues the all-gathers of flat units: leave out PREFETCH, "
                           "RESHARD_RANKS and LAYOUT");
    return OK;
}

Status plan_read_labs(const PlanValues value, PlanOptions *o)
{
    int kind;
    if (value[RECOMPUTE] && strcmp(value[RECOMPUTE], "none") == 0)
        kind = RECOMPUTE_NONE;
    else
        TRY(plan_word(value, RECOMPUTE, recomputes, 3, &kind));
    TRY(plan_choice(value, OFFLOAD, "no", "yes", &o->offload));
    TRY(plan_choice(value, LAYOUT, "flat", "per_parameter", &o->per_parameter));
    TRY(plan_choice(value, GATHER, "usual", "fp8", &o->fp8));
    TRY(plan_number_from(value, PREFETCH, 0, 0, &o->prefetch));
    o->recompute = (RecomputeKind)kind;
    o->recompute_given = value[RECOMPUTE] != NULL;
    o->prefetches = value[PREFETCH] != NULL;
    o->strategic = o->strategic || o->offload || o->prefetches || o->stages > 1;
    if (o->recompute == RECOMPUTE_ATTENTION && o->model.attention == ATTENTION_FUSED)
        return plan_refuse("RECOMPUTE=attention frees weights that fused attention never has in "
                           "memory: ATTENTION=plain, or RECOMPUTE=blocks");
    if (o->per_parameter && o->reshard_ranks > 0)
        return plan_refuse("RESHARD_RANKS keeps a slice of a flat unit: leave LAYOUT out");
    TRY(check_offload(o));
    TRY(check_gather(o));
    TRY(read_graph(value, o));
    return check_stages(o);
}
