/* counts_then_writes.c: Modules are found by a walk of the whole tree that knows how deep it is; a
 * block's inside is freed in front of its output's reader, by a check of the kind.
 */
// ==== memory.c
static void find_parts(const Module *module, Module **out, int max, int *n)
{
    for (int i = 0; i < module->n_children; i++) {
        bool found = module->children[i]->free_part != NULL;
        if (found && *n < max) out[*n] = module->children[i];
        *n += found;
        find_parts(module->children[i], out, max, n);
    }
}

int recompute_modules(const Module *model, RecomputeKind kind, Module **out, int max)
{
    int n = 0;
    if (kind == RECOMPUTE_NONE) return 0;
    if (kind == RECOMPUTE_ATTENTION) {
        find_parts(model, out, max, &n);
        return n;
    }
    for (int i = 0; i < model->n_children; i++) {
        Module *child = model->children[i];
        if (child->children == NULL) continue;
        if (n < max) out[n] = child;
        n++;
    }
    return n;
}

Status recompute_block_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    Status status = run_again(recompute_of(self), run);
    if (status != OK) return status;
    return recompute_of(self)->backward(self, run, dout, din);
}
