/* pipeline_cut.c: cuts a model into stages of blocks.
 *
 * Every rank makes the model without storage, notes which parameters two stages share, and keeps
 * its own stage. Parameters keep the model's numbers and names, and so their initial values.
 */
#include <string.h>

#include "pipeline.h"
#include "precision.h"

// Whether a child is a block: one of several, with a number.
static bool is_block(const Module *child)
{
    const char *dot = strrchr(child->name, '.');
    return dot != NULL && dot[1] >= '0' && dot[1] <= '9';
}

// The stage's children [*first, *last).
static Status range_of(const Module *model, int stages, int stage, int *first, int *last)
{
    int blocks = 0, before = 0;
    while (before < model->n_children && !is_block(model->children[before])) before++;
    while (before + blocks < model->n_children && is_block(model->children[before + blocks]))
        blocks++;
    TRY(pipeline_blocks(blocks, stages, stage, first, last));
    *first += before;
    *last += before;
    if (stage == 0) *first = 0;
    if (stage == stages - 1) *last = model->n_children;
    return OK;
}

// Notes which parameters of m, a module of this rank's stage, stage `other` (children [first, last)
// of the model) holds, too.
static Status find_ties(const Module *model, const Module *m, int other, int first, int last,
                        PipelineTies *ties)
{
    for (int i = 0; i < m->n_params; i++) {
        bool shared = false;
        if (m->params[i]->frozen) continue; // no gradient: the copies stay equal by themselves
        for (int k = first; k < last && !shared; k++)
            shared = module_holds(model->children[k], m->params[i]);
        for (int k = 0; k < ties->n && shared; k++) {
            if (ties->tie[k].param != m->params[i]) continue;
            shared = false;
            if (ties->tie[k].other != other)
                return fail(ERR_ARGUMENT, "%s is on stages %d, %d and this one: two can share it",
                            m->params[i]->name, ties->tie[k].other, other);
        }
        if (!shared) continue;
        if (ties->n == PIPELINE_MOST_TIES)
            return fail(ERR_ARGUMENT, "a stage shares more than %d parameters with others",
                        PIPELINE_MOST_TIES);
        int at = ties->n++; // ordered by number, as on the other stage
        for (; at > 0 && ties->tie[at - 1].other == other &&
               ties->tie[at - 1].param->id > m->params[i]->id;
             at--)
            ties->tie[at] = ties->tie[at - 1];
        ties->tie[at] = (PipelineTie){m->params[i], other};
    }
    for (int i = 0; i < m->n_children; i++)
        TRY(find_ties(model, m->children[i], other, first, last, ties));
    return OK;
}

Status pipeline_cut(Module *model, const PipelineMesh *mesh, PipelineTies *ties)
{
    int first, last, begin, end;
    *ties = (PipelineTies){0};
    TRY(range_of(model, mesh->stages, mesh->stage, &first, &last));
    for (int other = 0; other < mesh->stages; other++) {
        if (other == mesh->stage) continue;
        TRY(range_of(model, mesh->stages, other, &begin, &end));
        for (int i = first; i < last; i++)
            TRY(find_ties(model, model->children[i], other, begin, end, ties));
    }
    return sequence_keep(model, first, last);
}

static bool has_params(const Module *m)
{
    bool any = m->n_params > 0;
    for (int i = 0; i < m->n_children && !any; i++) any = has_params(m->children[i]);
    return any;
}

Status pipeline_fully_shard(Module *stage, FsdpContext *ctx, const FsdpOptions *options)
{
    int blocks = 0;
    bool others = false;
    for (int i = 0; i < stage->n_children; i++) {
        blocks += is_block(stage->children[i]);
        others |= !is_block(stage->children[i]) && has_params(stage->children[i]);
    }
    for (int i = 0; i < stage->n_children; i++) {
        if (!is_block(stage->children[i]) || (--blocks == 0 && !others)) continue;
        TRY(fully_shard(stage->children[i], ctx, options));
    }
    return fully_shard(stage, ctx, options);
}

void pipeline_policy(const PipelineMesh *mesh, MixedPrecisionPolicy *policy)
{
    if (mesh->stage > 0) policy->cast_forward_inputs = false;
    if (mesh->stage < mesh->stages - 1) policy->output_dtype = policy->param_dtype;
}
