/* waits_before_it_reshards.c: All strays are waited for before the first is resharded; a backward
 * goes through its places one by one; a list grows where its memory is.
 */
// ==== prefetch.c
static Status set_list(PrefetchList *list, Module *const *modules, int n)
{
    if (n > list->n) {
        FsdpUnit **longer = realloc(list->units, (size_t)n * sizeof *longer);
        if (longer == NULL) return fail(ERR_MEMORY, "no host memory for a list of %d modules", n);
        list->units = longer;
    }
    list->n = n;
    while (n-- > 0) list->units[n] = fsdp_unit(modules[n]);
    return OK;
}

Status prefetch_clear(FsdpRoot *root)
{
    bool *stray = calloc((size_t)root->n_units, sizeof *stray);
    if (stray == NULL) return fail(ERR_MEMORY, "no host memory for %d units", root->n_units);
    Status status = OK;
    for (int i = 0; i < root->n_units && status == OK; i++) {
        stray[i] = root->units[i]->flat.state == FLAT_UNSHARDING;
        if (stray[i]) status = fsdp_wait_for_unshard(root->units[i]);
    }
    for (int i = 0; i < root->n_units && status == OK; i++)
        if (stray[i]) status = fsdp_reshard(root->units[i]);
    free(stray);
    return status == OK ? fsdp_free_all_gather(root) : status;
}

Status prefetch_pre_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    PrefetchState *state = unit->root->extensions->prefetch;
    const PrefetchList *list = &state->backward[fsdp_unit_index(unit)];
    bool fits = true;
    if (list->n > 0) return prefetch_units(list->units, list->n, 1);
    for (int ahead = 1; ahead <= state->options.backward_depth && fits; ahead++) {
        int place = unit->backward_index - ahead;
        if (place < 0) return OK;
        TRY(prefetch_unit(unit->root->post_forward_order[place], &fits));
    }
    return OK;
}
