/* fp8_tables.c: the given part of an FP8 all-gather: its tables and memory. See fp8_gather.h.
 */
#include "fp8_gather.h"

#include <stdlib.h>

Fp8Unit *fp8_of(const FsdpUnit *unit)
{
    return &unit->root->extensions->fp8->units[fsdp_unit_index(unit)];
}

static bool is_matrix(const Param *param)
{
    return param->ndim > 1;
}

static void free_state(Fp8State *state, int n_units)
{
    for (int u = 0; u < n_units && state != NULL && state->units != NULL; u++) {
        free(state->units[u].slot);
        free(state->units[u].at);
    }
    if (state != NULL) cudaFree(state->amax);
    if (state != NULL) free(state->units);
    free(state);
}

// Numbers the chosen parameters.
static Status choose(Fp8State *state, const FsdpUnit *unit, Fp8Unit *own, const Fp8Options *options)
{
    const FlatLayout *layout = &unit->flat.layout;
    bool (*chosen)(const Param *) =
        options != NULL && options->chosen != NULL ? options->chosen : is_matrix;
    own->slot = calloc((size_t)layout->n, sizeof *own->slot);
    own->at = calloc((size_t)layout->n, sizeof *own->at);
    if (own->slot == NULL || own->at == NULL)
        return fail(ERR_MEMORY, "%s: no host memory for FP8", unit->flat.name);
    for (int i = 0; i < layout->n; i++) own->slot[i] = chosen(layout->params[i]) ? state->n++ : -1;
    own->wide = unit->flat.unsharded_param;
    own->shard_bytes = fp8_place(layout, own->slot, dtype_bytes(own->wide.dtype), own->at);
    return OK;
}

static void shards_written(FsdpRoot *root)
{
    root->extensions->fp8->stale = true;
    extension_ops_before(root, EXTENSION_FP8)->shards_written(root);
}

Status fp8_create(FsdpRoot *root, const Fp8Options *options)
{
    Fp8State *state = calloc(1, sizeof *state);
    if (state != NULL) state->units = calloc((size_t)root->n_units, sizeof *state->units);
    Status status = OK;
    if (state == NULL || state->units == NULL) status = fail(ERR_MEMORY, "no host memory for FP8");
    for (int u = 0; u < root->n_units && status == OK; u++)
        status = choose(state, root->units[u], &state->units[u], options);
    if (status == OK && state->n == 0)
        status =
            fail(ERR_ARGUMENT, "%s: no parameter is chosen for FP8", root->units[0]->flat.name);
    if (status == OK && cudaMalloc((void **)&state->amax, (size_t)state->n * 4) != cudaSuccess)
        status =
            fail(ERR_MEMORY, "%s: no memory for %d scales", root->units[0]->flat.name, state->n);
    if (status == OK) status = extension_push(root, EXTENSION_FP8);
    if (status != OK) {
        free_state(state, root->n_units);
        return status;
    }
    state->root = root;
    state->stale = true;
    root->extensions->fp8 = state;
    root->ops.shards_written = shards_written;
    return OK;
}

void fp8_destroy(FsdpRoot *root)
{
    free_state(root->extensions->fp8, root->n_units);
    root->extensions->fp8 = NULL;
    extension_pop(root);
}
