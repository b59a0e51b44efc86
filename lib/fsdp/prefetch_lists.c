/* prefetch_lists.c: the given part of prefetching: the memory of its lists of units, and its hooks.
 */
#include "prefetch.h"

#include <stdlib.h>

Status prefetch_find(const Module *module, PrefetchState **state)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    *state = root->extensions->prefetch;
    return *state != NULL ? OK : fail(ERR_ARGUMENT, "%s has no prefetch", module->name);
}

// The state's hooks gather ahead, so the units' own must not.
static FsdpUnit *pop_post_forward(FsdpUnit *unit)
{
    extension_ops_before(unit->root, EXTENSION_PREFETCH)->pop_post_forward(unit);
    return NULL;
}

Status prefetch_append(PrefetchState *state, FsdpUnit *unit)
{
    PrefetchList *begun = &state->begun;
    if (begun->n == state->max_begun) {
        int longer = state->max_begun > 0 ? 2 * state->max_begun : 16;
        FsdpUnit **units = realloc(begun->units, (size_t)longer * sizeof *units);
        if (units == NULL)
            return fail(ERR_MEMORY, "no host memory for the order of %d forwards", longer);
        begun->units = units;
        state->max_begun = longer;
    }
    begun->units[begun->n++] = unit;
    return OK;
}

// The tables, and the hooks of all units.
static Status create(PrefetchState *state)
{
    static const HookFn AT[HOOK_POINTS] = {prefetch_pre_forward, prefetch_post_forward,
                                           prefetch_pre_backward, prefetch_post_backward};
    FsdpRoot *root = state->root;
    size_t n = (size_t)root->n_units;
    state->max_begun = root->n_units;
    state->forward = calloc(n, sizeof *state->forward);
    state->backward = calloc(n, sizeof *state->backward);
    state->order.units = calloc(n, sizeof *state->order.units);
    state->begun.units = calloc(n, sizeof *state->begun.units);
    state->hooks = calloc(n * HOOK_POINTS, sizeof *state->hooks);
    if (state->forward == NULL || state->backward == NULL || state->order.units == NULL ||
        state->begun.units == NULL || state->hooks == NULL)
        return fail(ERR_MEMORY, "no host memory for a prefetch");
    for (int i = 0; i < root->n_units; i++) state->order.units[state->order.n++] = root->units[i];
    for (int i = 0; i < root->n_units * HOOK_POINTS; i++) {
        FsdpUnit *unit = root->units[i / HOOK_POINTS];
        HookPoint point = (HookPoint)(i % HOOK_POINTS);
        state->hooks[i] = module_add_hook(unit->module, point, AT[point], unit);
        if (state->hooks[i] == NULL) return ERR_MEMORY;
    }
    return OK;
}

static void free_state(PrefetchState *state)
{
    FsdpRoot *root = state->root;
    for (int i = 0; i < root->n_units * HOOK_POINTS && state->hooks != NULL; i++)
        module_remove_hook(root->units[i / HOOK_POINTS]->module, state->hooks[i]);
    for (int i = 0; i < root->n_units; i++) {
        if (state->forward != NULL) free(state->forward[i].units);
        if (state->backward != NULL) free(state->backward[i].units);
    }
    free(state->forward);
    free(state->backward);
    free(state->order.units);
    free(state->begun.units);
    free(state->hooks);
    free(state);
}

Status prefetch_create(FsdpRoot *root, const PrefetchOptions *options)
{
    PrefetchState *state = calloc(1, sizeof *state);
    if (state == NULL) return fail(ERR_MEMORY, "no host memory for a prefetch");
    state->options = *options;
    state->root = root;
    Status status = create(state);
    if (status == OK) status = extension_push(root, EXTENSION_PREFETCH);
    if (status != OK) {
        free_state(state);
        return status;
    }
    root->extensions->prefetch = state;
    root->ops.pop_post_forward = pop_post_forward;
    return OK;
}

void prefetch_destroy(PrefetchState *state)
{
    FsdpRoot *root = state->root;
    free_state(state);
    root->extensions->prefetch = NULL;
    extension_pop(root);
}
