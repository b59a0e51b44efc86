/* gather_by_sends.c: Every rank sends its shard to every other, in one group, and copies its own.
 */
// ==== forward.c
static Status exchange_shards(const FlatParam *flat, const FsdpContext *ctx)
{
    size_t n = (size_t)flat->layout.shard_numel;
    NCCL_TRY(ncclGroupStart());
    for (int peer = 0; peer < flat->layout.world; peer++) {
        if (peer == flat->layout.rank) continue;
        NCCL_TRY(ncclSend(flat->sharded_param.data, n, ncclFloat, peer, ctx->mesh.shard.comm, ctx->all_gather_stream));
        NCCL_TRY(ncclRecv(flat->unsharded_param.data + peer * flat->layout.shard_numel, n, ncclFloat, peer, ctx->mesh.shard.comm,
                          ctx->all_gather_stream));
    }
    NCCL_TRY(ncclGroupEnd());
    CUDA_TRY(cudaMemcpyAsync(flat->unsharded_param.data + flat->layout.rank * flat->layout.shard_numel, flat->sharded_param.data,
                             n * sizeof(float), cudaMemcpyDeviceToDevice, ctx->all_gather_stream));
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
        TRY(exchange_shards(flat, ctx));
        CUDA_TRY(cudaEventRecord(flat->all_gather_done, ctx->all_gather_stream));
    }
    flat_set_views(flat);
    flat->state = FLAT_UNSHARDING;
    return OK;
}
