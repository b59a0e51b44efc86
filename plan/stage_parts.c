/* stage_parts.c: the model of a stage, and the sizes of its units.
 *
 * A unit is one range of elements, padded at its end, or is cut parameter by parameter, each padded
 * by rows.
 */
#include <stdlib.h>
#include <string.h>

#include "fsdp.h"
#include "plan.h"

Module *plan_stage(const PlanOptions *o, int stage)
{
    const PipelineMesh mesh = {.stage = stage, .stages = o->stages};
    PipelineTies ties;
    Module *model = model_create(&o->model, &o->llama);
    if (!model || o->stages == 1 || pipeline_cut(model, &mesh, &ties) == OK) return model;
    module_destroy(model);
    return NULL;
}

static bool is_block(const Module *m)
{
    return strncmp(m->name, "h.", 2) == 0;
}

bool plan_in_block(const Module *stage, int blocks, const Param *param)
{
    for (int i = 0; i < stage->n_children && blocks > 0; i++) {
        if (!is_block(stage->children[i])) continue;
        blocks--;
        if (module_holds(stage->children[i], param)) return true;
    }
    return false;
}

// The size of m's parameters that are in none of the first `blocks` blocks; blocks 0: of all.
static PlanUnitSize size_of(const PlanOptions *o, const Module *m, int blocks, int shards)
{
    PlanUnitSize size = {0};
    int n = meta_params(m, NULL, 0);
    Param **params = calloc((size_t)n + 1, sizeof *params);
    if (!params) abort(); // a few kilobytes
    meta_params(m, params, n);
    for (int i = 0; i < n; i++) {
        if (plan_in_block(m, blocks, params[i])) continue;
        int64_t numel = meta_numel(params[i]), rows = params[i]->shape[0];
        size.params++;
        size.numel += numel;
        int64_t own = (rows + shards - 1) / shards * (numel / rows);
        size.shard += own;
        if (params[i]->ndim < 2) continue;
        size.matrices++;
        size.codes += own;
    }
    if (!o->per_parameter) size.shard = (size.numel + shards - 1) / shards;
    free(params);
    return size;
}

PlanParts plan_parts(const PlanOptions *o, const Module *stage)
{
    PlanParts parts = {.blocks = 0};
    bool ddp = o->strategic && o->strategy == STRATEGY_DDP;
    int shards = ddp ? 1 : plan_places(o) / o->replicas, others = 0;
    const Module *block = NULL;
    for (int i = 0; i < stage->n_children; i++) {
        const Module *child = stage->children[i];
        parts.blocks += is_block(child);
        others += !is_block(child) && meta_count(child) > 0;
        if (is_block(child)) block = child; // they are alike
    }
    if (others == 0) parts.blocks--; // the last one is the root's (pipeline_fully_shard)
    if (ddp) parts.blocks = 0;
    if (parts.blocks > 0) parts.block = size_of(o, block, 0, shards);
    parts.root = size_of(o, stage, parts.blocks, shards);
    return parts;
}
