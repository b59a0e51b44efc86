/* lab_options.c: what labs 3, 4, 6, 7 and 8 add to a step, and which settings exclude each other,
 * as in train_gpt2.
 */
#include <string.h>

#include "settings.h"

static const char *const recomputes[] = {"no", "blocks", "attention"}; // as RecomputeKind has them

const char *plan_recompute_name(const PlanOptions *o)
{
    return recomputes[o->recompute];
}

// Called before batch and shards are divided among the ranks of a stage.
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
        return plan_refuse("SCHEDULE=%.40s needs a pipeline: set STAGES", value[SCHEDULE]);
    if (o->gpus % o->stages != 0)
        return plan_refuse("STAGES=%d does not divide GPUS=%d", o->stages, o->gpus);
    if (o->stages > o->model.layers)
        return plan_refuse("STAGES=%d: the model has %d blocks", o->stages, o->model.layers);
    if (o->stages > PLAN_STAGES)
        return plan_refuse("STAGES=%d: at most %d", o->stages, PLAN_STAGES);
    return OK;
}

// Settings that exclude each other, as in train_gpt2 (lab 8: graph_steps_check, examples/common).
static Status refuse_pairs(const PlanOptions *o)
{
    bool ddp = o->strategy == STRATEGY_DDP, slices = o->reshard_ranks > 0, staged = o->stages > 1,
         lab_8 = o->graph || o->regroups;
    const struct {
        bool is_asked;
        const char *why;
    } refused[] = {
        {o->recompute == RECOMPUTE_ATTENTION && o->model.attention == ATTENTION_FUSED,
         "RECOMPUTE=attention frees weights that fused attention never has in memory: "
         "ATTENTION=plain, or RECOMPUTE=blocks"},
        {o->per_parameter && slices,
         "RESHARD_RANKS keeps a slice of a flat unit: leave LAYOUT out"},
        {o->offload && ddp, "OFFLOAD=yes wants shards: STRATEGY=ddp keeps everything on the GPU"},
        {o->offload && slices,
         "OFFLOAD=yes does not go with RESHARD_RANKS, whose slices stay on the GPU"},
        {o->fp8 && !o->per_parameter,
         "GATHER=fp8 has a scale for each parameter: take LAYOUT=per_parameter"},
        {o->fp8 && ddp, "STRATEGY=ddp gathers nothing: leave GATHER out"},
        {o->fp8 && o->offload,
         "GATHER=fp8 finds its scales in shards on the GPU: leave OFFLOAD out"},
        {staged && o->dtype == DTYPE_F16,
         "STAGES does not go with DTYPE=fp16: the loss scale would look at one stage's gradients"},
        {staged && slices,
         "STAGES does not go with RESHARD_RANKS: a unit has one slice, and several "
         "micro-batches are in flight"},
        {lab_8 && o->mixed, "GRAPH and REGROUP are of a step in one type: DTYPE=tf32 or float"},
        {lab_8 && (staged || o->offload || o->fp8),
         "GRAPH and REGROUP are of FSDP's step: leave out STAGES, OFFLOAD and GATHER"},
        {o->regroups && (o->prefetches || slices || o->per_parameter),
         "REGROUP queues the all-gathers of flat units: leave out PREFETCH, RESHARD_RANKS and "
         "LAYOUT"}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (refused[i].is_asked) return plan_refuse("%s", refused[i].why);
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
    TRY(plan_number(value, RECOMPUTE_EVERY, 1, &o->recompute_every));
    if (value[RECOMPUTE_EVERY] && kind == RECOMPUTE_NONE)
        return plan_refuse("RECOMPUTE_EVERY=%d: of what? (RECOMPUTE=blocks)", o->recompute_every);
    if (o->recompute_every > o->model.layers / o->stages)
        return plan_refuse("RECOMPUTE_EVERY=%d: a stage has %d blocks", o->recompute_every,
                           o->model.layers / o->stages);
    o->prefetches = value[PREFETCH] != NULL;
    o->strategic = o->strategic || o->offload || o->prefetches || o->stages > 1;
    TRY(plan_choice(value, GRAPH, "no", "yes", &o->graph));
    o->regroups = value[REGROUP] && strcmp(value[REGROUP], "no") != 0;
    if (o->regroups) TRY(plan_number_from(value, REGROUP, 0, 0, &o->regroup));
    return refuse_pairs(o);
}
