/* gather_in_place.c: The shard is copied to its place in the whole buffer, and the all-gather is in
 * place.
 */
// ==== forward.c
Status fsdp_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->state != FLAT_SHARDED) return OK;
    if (flat->world == 1) {
        flat->full = flat->shard;
    } else {
        size_t n = (size_t)flat->shard_numel;
        CUDA_TRY(cudaMallocAsync((void **)&flat->full, n * (size_t)flat->world * sizeof(float),
                                 ctx->gather));
        float *mine = flat->full + flat->rank * flat->shard_numel;
        CUDA_TRY(cudaMemcpyAsync(mine, flat->shard, n * sizeof(float), cudaMemcpyDeviceToDevice,
                                 ctx->gather));
        NCCL_TRY(ncclAllGather(mine, flat->full, n, ncclFloat, ctx->comm, ctx->gather));
        CUDA_TRY(cudaEventRecord(flat->gathered, ctx->gather));
    }
    flat_attach(flat, flat->full);
    flat->state = FLAT_UNSHARDING;
    return OK;
}
