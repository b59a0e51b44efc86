/* child_by_child.c: A block frees itself and each child, one after the other; what the root said
 * before a forward ran again is put back afterwards; the attention's weights are made after a look
 * at whether the module has any.
 */
// ==== memory.c
Status recompute_block_forward(Module *self, NnRun *run, const void *in, void *out)
{
    Status status = recompute_of(self)->forward(self, run, in, out);
    for (int i = self->n_children - 1; i >= 0 && status == OK; i--)
        status = module_discard(self->children[i], run);
    if (status == OK && self->free_saved != NULL) status = self->free_saved(self, run);
    return status;
}

static Status run_again(const RecomputeModule *own, NnRun *run)
{
    FsdpUnit *before = own->root->iter_forward_root;
    own->root->iter_forward_root = fsdp_unit(own->root->units[0]->module);
    own->root->extensions->recomputes = !own->root->extensions->recomputes;
    Status status = own->forward(own->module, run, own->module->in, own->module->out);
    own->root->extensions->recomputes = !own->root->extensions->recomputes;
    own->root->iter_forward_root = before;
    return status;
}

Status recompute_attention_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    Status status = self->compute_part != NULL ? self->compute_part(self, run) : OK;
    return status == OK ? recompute_of(self)->backward(self, run, dout, din) : status;
}
