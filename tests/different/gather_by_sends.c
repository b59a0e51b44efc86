/* gather_by_sends.c: Every rank sends its shard to every other, in one group, and copies its own.
 */
// ==== forward.c
static Status exchange_shards(const FlatParam *flat, const FsdpContext *ctx)
{
    size_t n = (size_t)flat->shard_numel;
    NCCL_TRY(ncclGroupStart());
    for (int peer = 0; peer < flat->world; peer++) {
        if (peer == flat->rank) continue;
        NCCL_TRY(ncclSend(flat->shard, n, ncclFloat, peer, ctx->comm, ctx->gather));
        NCCL_TRY(ncclRecv(flat->full + peer * flat->shard_numel, n, ncclFloat, peer, ctx->comm,
                          ctx->gather));
    }
    NCCL_TRY(ncclGroupEnd());
    CUDA_TRY(cudaMemcpyAsync(flat->full + flat->rank * flat->shard_numel, flat->shard,
                             n * sizeof(float), cudaMemcpyDeviceToDevice, ctx->gather));
    return OK;
}

Status fsdp_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->state != FLAT_SHARDED) return OK;
    flat->full = flat->shard;
    if (flat->world > 1) {
        size_t bytes = (size_t)flat->padded * sizeof(float);
        CUDA_TRY(cudaMallocAsync((void **)&flat->full, bytes, ctx->gather));
        TRY(exchange_shards(flat, ctx));
        CUDA_TRY(cudaEventRecord(flat->gathered, ctx->gather));
    }
    flat_attach(flat, flat->full);
    flat->state = FLAT_UNSHARDING;
    return OK;
}
