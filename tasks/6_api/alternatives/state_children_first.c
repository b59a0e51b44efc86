/* state_children_first.c: The full state has the units below a module before the module's own: in
 * which order units come the contract does not say, if it is the same on every rank.
 */
// ==== api.c
static Status gather_below(Module *module, StateVisitor visit, void *arg, Status *visit_status)
{
    FsdpUnit *unit = fsdp_unit(module);
    for (int i = module->n_children; i-- > 0;)
        TRY(gather_below(module->children[i], visit, arg, visit_status));
    if (unit == NULL) return OK;
    CUDA_TRY(cudaEventRecord(unit->ctx->compute_done, unit->ctx->compute_stream));
    CUDA_TRY(cudaStreamWaitEvent(unit->ctx->all_gather_stream, unit->ctx->compute_done, 0));
    TRY(gather_unit(unit, visit, arg, visit_status));
    return fsdp_free_all_gather(unit->root);
}
