/* gather_by_broadcasts.c: The all-gather is a group of W broadcasts, one from each rank.
 */
// ==== forward.c
// Every rank's shard into its place of `full`.
static Status broadcast_shards(const FlatParam *flat, const FsdpContext *ctx)
{
    size_t n = (size_t)flat->layout.shard_numel;
    NCCL_TRY(ncclGroupStart());
    for (int root = 0; root < flat->layout.world; root++)
        NCCL_TRY(ncclBroadcast(flat->sharded_param.data, flat->unsharded_param.data + root * flat->layout.shard_numel, n, ncclFloat,
                               root, ctx->mesh.shard.comm, ctx->all_gather_stream));
    NCCL_TRY(ncclGroupEnd());
    return OK;
}

Status fsdp_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->state != FLAT_SHARDED) return OK;
    flat->unsharded_param.data = flat->sharded_param.data;
    if (flat->layout.world > 1) {
        size_t bytes = (size_t)flat->layout.padded * sizeof(float);
        CUDA_TRY(cudaMallocAsync((void **)&flat->unsharded_param.data, bytes, ctx->all_gather_stream));
        TRY(broadcast_shards(flat, ctx));
        CUDA_TRY(cudaEventRecord(flat->all_gather_done, ctx->all_gather_stream));
    }
    flat_set_views(flat);
    flat->state = FLAT_UNSHARDING;
    return OK;
}
