/* state_first.c: An unshard changes the state, by hand, before it queues anything, and takes it
 * back where that fails; a forward is recorded before its unit is resharded.
 */
// ==== forward.c
static Status queue_gather(FsdpUnit *unit, cudaStream_t stream)
{
    Buffer *param = &unit->flat.unsharded_param;
    if (param->data == NULL) CUDA_TRY(cudaMallocAsync(&param->data, buffer_bytes(param), stream));
    TRY(unit->all_gather(unit));
    CUDA_TRY(cudaEventRecord(unit->flat.all_gather_done, stream));
    return OK;
}

Status fsdp_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    Status status = OK;
    if (flat->state != FLAT_SHARDED) return OK;
    flat->state = FLAT_UNSHARDING;
    if (flat_param_is_shard(flat))
        flat->unsharded_param.data = flat->sharded_param.data;
    else
        status = queue_gather(unit, unit->ctx->all_gather_stream);
    if (status == OK)
        flat_set_views(flat);
    else
        flat->state = FLAT_SHARDED;
    return status;
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
