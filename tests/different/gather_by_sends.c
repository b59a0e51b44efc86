/* gather_by_sends.c: Every rank sends its shard to every other, in one group, and copies its own.
 */
// ==== forward.c
static Status exchange_shards(const FlatParam *flat, const FsdpContext *ctx)
{
    size_t n = (size_t)flat->shard_numel;
    NCCL_TRY(ncclGroupStart());
    for (int peer = 0; peer < flat->world; peer++) {
        if (peer == flat->rank) continue;
        NCCL_TRY(ncclSend(flat->sharded_param, n, ncclFloat, peer, ctx->comm, ctx->all_gather_stream));
        NCCL_TRY(ncclRecv(flat->unsharded_param + peer * flat->shard_numel, n, ncclFloat, peer, ctx->comm,
                          ctx->all_gather_stream));
    }
    NCCL_TRY(ncclGroupEnd());
    CUDA_TRY(cudaMemcpyAsync(flat->unsharded_param + flat->rank * flat->shard_numel, flat->sharded_param,
                             n * sizeof(float), cudaMemcpyDeviceToDevice, ctx->all_gather_stream));
    return OK;
}

Status fsdp_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->state != FLAT_SHARDED) return OK;
    flat->unsharded_param = flat->sharded_param;
    if (flat->world > 1) {
        size_t bytes = (size_t)flat->padded * sizeof(float);
        CUDA_TRY(cudaMallocAsync((void **)&flat->unsharded_param, bytes, ctx->all_gather_stream));
        TRY(exchange_shards(flat, ctx));
        CUDA_TRY(cudaEventRecord(flat->all_gather_done, ctx->all_gather_stream));
    }
    flat_set_views(flat, flat->unsharded_param);
    flat->state = FLAT_UNSHARDING;
    return OK;
}
