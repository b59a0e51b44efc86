/* gather_by_broadcasts.c: The all-gather is a group of W broadcasts, one from each rank. */
// ==== forward.c
Status fsdp_all_gather(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    int64_t n = flat->layout.shard_numel;
    NCCL_TRY(ncclGroupStart());
    for (int rank = 0; rank < flat->layout.world; rank++) {
        Buffer shard = buffer_range(&flat->unsharded_param, rank * n, n);
        NCCL_TRY(ncclBroadcast(flat->sharded_param.data, shard.data, (size_t)n,
                               dtype_nccl(shard.dtype), rank, ctx->mesh.shard.comm,
                               ctx->all_gather_stream));
    }
    NCCL_TRY(ncclGroupEnd());
    return OK;
}
