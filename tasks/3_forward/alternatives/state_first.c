/* state_first.c: An unshard changes the state, by hand, before it queues anything, and a forward is
 * recorded before its unit is resharded.
 */
// ==== forward.c
Status fsdp_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    cudaStream_t stream = unit->ctx->all_gather_stream;
    if (flat->state != FLAT_SHARDED) return OK;
    flat->state = FLAT_UNSHARDING;
    if (flat_param_is_shard(flat))
        flat->unsharded_param.data = flat->sharded_param.data;
    else
        CUDA_TRY(cudaMallocAsync(&flat->unsharded_param.data, buffer_bytes(&flat->unsharded_param),
                                 stream));
    flat_set_views(flat);
    if (flat_param_is_shard(flat)) return OK;
    TRY(unit->all_gather(unit));
    CUDA_TRY(cudaEventRecord(flat->all_gather_done, stream));
    return OK;
}

Status fsdp_post_forward_default(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;
    FsdpReshard reshard = unit->reshard_after_forward;
    TRY(fsdp_record_post_forward(unit));
    unit->phase = FSDP_IDLE;
    if (reshard == FSDP_RESHARD_AUTO)
        reshard = unit == root->units[0] ? FSDP_RESHARD_NEVER : FSDP_RESHARD_ALWAYS;
    if (reshard == FSDP_RESHARD_ALWAYS) TRY(fsdp_reshard(unit));
    if (root->iter_forward_root != unit) return OK;
    root->iter_forward_root = NULL;
    return fsdp_free_all_gather(root);
}
