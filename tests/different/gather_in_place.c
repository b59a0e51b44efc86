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
        flat->unsharded_param = flat->sharded_param;
    } else {
        size_t n = (size_t)flat->shard_numel;
        CUDA_TRY(cudaMallocAsync((void **)&flat->unsharded_param, n * (size_t)flat->world * sizeof(float),
                                 ctx->all_gather_stream));
        float *mine = flat->unsharded_param + flat->rank * flat->shard_numel;
        CUDA_TRY(cudaMemcpyAsync(mine, flat->sharded_param, n * sizeof(float), cudaMemcpyDeviceToDevice,
                                 ctx->all_gather_stream));
        NCCL_TRY(ncclAllGather(mine, flat->unsharded_param, n, ncclFloat, ctx->comm, ctx->all_gather_stream));
        CUDA_TRY(cudaEventRecord(flat->all_gather_done, ctx->all_gather_stream));
    }
    flat_set_views(flat, flat->unsharded_param);
    flat->state = FLAT_UNSHARDING;
    return OK;
}
