/* gather_in_place.c: The shard is copied to its place in the whole buffer, and the all-gather is in
 * place.
 */
// ==== forward.c
Status fsdp_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->state != FLAT_SHARDED) return OK;
    if (flat->layout.world == 1) {
        flat->unsharded_param.data = flat->sharded_param.data;
    } else {
        size_t n = (size_t)flat->layout.shard_numel;
        CUDA_TRY(cudaMallocAsync((void **)&flat->unsharded_param.data, n * (size_t)flat->layout.world * sizeof(float),
                                 ctx->all_gather_stream));
        float *mine = flat->unsharded_param.data + flat->layout.rank * flat->layout.shard_numel;
        CUDA_TRY(cudaMemcpyAsync(mine, flat->sharded_param.data, n * sizeof(float), cudaMemcpyDeviceToDevice,
                                 ctx->all_gather_stream));
        NCCL_TRY(ncclAllGather(mine, flat->unsharded_param.data, n, ncclFloat, ctx->mesh.shard.comm, ctx->all_gather_stream));
        CUDA_TRY(cudaEventRecord(flat->all_gather_done, ctx->all_gather_stream));
    }
    flat_set_views(flat);
    flat->state = FLAT_UNSHARDING;
    return OK;
}
