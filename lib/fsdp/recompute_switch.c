/* recompute_switch.c: the given code that puts recomputation on a model and takes it off.
 *
 * It replaces a module's function pointers, forward and backward; the module's own hooks run around
 * them as before.
 */
#include "recompute.h"

#include <stdlib.h>

RecomputeModule *recompute_of(const Module *module)
{
    return module->around;
}

static Status check_root(const FsdpRoot *root, RecomputeKind kind, int n)
{
    const char *name = root->units[0]->flat.name;
    if (root->extensions->recompute != NULL)
        return fail(ERR_ARGUMENT, "%s recomputes already", name);
    if (kind != RECOMPUTE_BLOCKS && kind != RECOMPUTE_ATTENTION)
        return fail(ERR_ARGUMENT, "%d is not a kind of recomputation: blocks or attention",
                    (int)kind);
    if (root->units[0]->module->out != NULL)
        return fail(ERR_ARGUMENT,
                    "%s is in the middle of a pass: recomputation is put on and taken off between "
                    "passes",
                    name);
    if (n == 0 && kind == RECOMPUTE_BLOCKS)
        return fail(ERR_ARGUMENT, "%s has no blocks, children with children, to recompute", name);
    if (n == 0)
        return fail(ERR_ARGUMENT,
                    "%s has no attention that keeps its weights: fused attention computes them "
                    "again anyway",
                    name);
    return OK;
}

// Does not record a forward that runs again, because its backward is already running.
static Status record_post_forward(FsdpUnit *unit)
{
    const FsdpRoot *root = unit->root;
    if (root->extensions->recomputes) return OK;
    return extension_ops_before(root, EXTENSION_RECOMPUTE)->record_post_forward(unit);
}

static void put_around(RecomputeModule *own, FsdpRoot *root, Module *module, RecomputeKind kind)
{
    bool blocks = kind == RECOMPUTE_BLOCKS;
    *own = (RecomputeModule){module, root, module->forward, module->backward};
    module->around = own;
    module->forward = blocks ? recompute_block_forward : recompute_attention_forward;
    module->backward = blocks ? recompute_block_backward : recompute_attention_backward;
}

Status recompute_apply(Module *model, RecomputeKind kind)
{
    return recompute_apply_every(model, kind, 1);
}

Status recompute_apply_every(Module *model, RecomputeKind kind, int every)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(model, &root));
    int all = recompute_modules(model, kind, NULL, 0), n = every < 1 ? 0 : all / every;
    TRY(check_root(root, kind, all));
    if (n == 0)
        return fail(ERR_ARGUMENT, "one in %d recomputes, of %d modules: want 1 to %d", every, all,
                    all);
    RecomputeState *state = calloc(1, sizeof *state);
    RecomputeModule *modules = calloc((size_t)n, sizeof *modules);
    Module **found = calloc((size_t)all, sizeof *found);
    Status status = OK;
    if (state == NULL || modules == NULL || found == NULL)
        status = fail(ERR_MEMORY, "no host memory for recomputation in %d modules", n);
    if (status == OK) status = extension_push(root, EXTENSION_RECOMPUTE);
    if (status != OK) {
        free(state);
        free(modules);
        free(found);
        return status;
    }
    recompute_modules(model, kind, found, all);
    for (int i = 0; i < n; i++) put_around(&modules[i], root, found[(i + 1) * every - 1], kind);
    *state = (RecomputeState){kind, n, modules};
    root->extensions->recompute = state;
    root->ops.record_post_forward = record_post_forward;
    free(found);
    return OK;
}

Status recompute_remove(Module *model)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(model, &root));
    TRY(extension_check_last(root, EXTENSION_RECOMPUTE));
    RecomputeState *state = root->extensions->recompute;
    if (model->out != NULL)
        return fail(ERR_ARGUMENT,
                    "%s is in the middle of a pass: recomputation is put on and taken off between "
                    "passes",
                    model->name);
    for (int i = 0; i < state->n; i++) {
        RecomputeModule *own = &state->modules[i];
        own->module->forward = own->forward;
        own->module->backward = own->backward;
        own->module->around = NULL;
    }
    root->extensions->recompute = NULL;
    extension_pop(root);
    free(state->modules);
    free(state);
    return OK;
}
