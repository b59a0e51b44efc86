/* stage_ties.c: the elements of a tied parameter that a rank shares with ranks of another stage.
 *
 * A pipeline finds them by an all-gather whose result it reads on the host (pipeline_create). In a
 * dry run it reads zeros and would send nothing. So a plan finds them from the layout of the other
 * stage's unit.
 */
#include <stdlib.h>

#include "fsdp.h"
#include "per_parameter.h"
#include "plan.h"

// The layout of the stage's root; *place: the parameter's index in it.
static Status lay_out(const PlanOptions *o, const Module *stage, int64_t id, int shards,
                      FlatLayout *layout, int *place)
{
    PlanParts parts = plan_parts(o, stage);
    int n = meta_params(stage, NULL, 0), taken = 0;
    Param **params = malloc((size_t)(n + 1) * sizeof *params);
    if (!params) return fail(ERR_MEMORY, "no host memory for %d parameters", n);
    meta_params(stage, params, n);
    for (int i = 0; i < n; i++)
        if (!plan_in_block(stage, parts.blocks, params[i])) params[taken++] = params[i];
    LayoutFn lay_out_unit = o->per_parameter ? per_parameter_layout : flat_layout;
    Status status = lay_out_unit(layout, stage->name, params, taken, 0, shards, false);
    free(params);
    *place = -1;
    for (int i = 0; status == OK && i < layout->n; i++)
        if (layout->params[i]->id == id) *place = i;
    if (status == OK && *place < 0)
        status = fail(ERR_ARGUMENT, "a tied parameter is not in the root of its stage");
    return status;
}

// The pieces that this rank's shard shares with shards of the other stage.
static void find_pieces(const Trainer *t, PipelineShared *shared, int own, const FlatLayout *other,
                        int place)
{
    const FlatLayout *layout = &shared->unit->flat.layout;
    int64_t begin, end, at, first, last, where;
    flat_param_range_in_shard(layout, own, layout->rank, &begin, &end, &at);
    shared->n_pieces = 0;
    for (int r = 0; r < t->places; r++) {
        if (r / layout->world != t->mesh.replicate.rank) continue; // another replica
        flat_param_range_in_shard(other, place, r % layout->world, &first, &last, &where);
        if (first < begin) first = begin;
        if (last > end) last = end;
        if (first >= last) continue;
        shared->pieces[shared->n_pieces++] =
            (PipelinePiece){shared->other * t->places + r, at + first - begin, at + last - begin};
    }
}

Status plan_ties(const PlanOptions *o, Trainer *t)
{
    Status status = OK;
    for (int i = 0; t->pipeline && i < t->pipeline->n_shared && status == OK; i++) {
        PipelineShared *shared = &t->pipeline->shared[i];
        const FlatLayout *layout = &shared->unit->flat.layout;
        FlatLayout other = {0};
        int own = 0, place = -1;
        Module *stage = plan_stage(o, shared->other);
        if (!stage) return ERR_ARGUMENT;
        while (layout->params[own] != shared->param) own++;
        status = lay_out(o, stage, shared->param->id, layout->world, &other, &place);
        if (status == OK) find_pieces(t, shared, own, &other, place);
        flat_layout_destroy(&other);
        module_destroy(stage);
    }
    return status;
}
