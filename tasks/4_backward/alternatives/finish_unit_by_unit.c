/* finish_unit_by_unit.c: A backward ends by going through the registry from its end: each unit is
 * waited for and resharded by itself, after the compute stream has waited for all reduce-scatters.
 */
// ==== backward.c
Status fsdp_finish_backward(FsdpRoot *root)
{
    FsdpContext *ctx = root->ctx;
    CUDA_TRY(cudaEventRecord(ctx->compute_done, ctx->reduce_scatter_stream));
    CUDA_TRY(cudaStreamWaitEvent(ctx->compute_stream, ctx->compute_done, 0));
    TRY(fsdp_free_reduce_scatter(root));
    for (int i = root->n_units; i-- > 0;) {
        FsdpUnit *unit = root->units[i];
        if (unit->flat.state != FLAT_SHARDED) {
            TRY(fsdp_wait_for_unshard(unit)); // nothing where it is unsharded
            TRY(fsdp_reshard(unit));
            TRY(fsdp_free_all_gather(root));
        }
        unit->n_indices = 0;
        unit->phase = FSDP_IDLE;
    }
    root->n_post_forward = 0;
    root->iter_backward_root = NULL;
    return fsdp_free_all_gather(root);
}
