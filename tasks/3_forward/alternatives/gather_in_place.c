/* gather_in_place.c: The shard is copied to its place in the unsharded buffer, and the all-gather
 * is in place.
 */
// ==== forward.c
Status fsdp_all_gather(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    int64_t n = flat->layout.shard_numel;
    Buffer own = buffer_range(&flat->unsharded_param, ctx->mesh.shard.rank * n, n);
    CUDA_TRY(cudaMemcpyAsync(own.data, flat->sharded_param.data, buffer_bytes(&own),
                             cudaMemcpyDeviceToDevice, ctx->all_gather_stream));
    NCCL_TRY(ncclAllGather(own.data, flat->unsharded_param.data, (size_t)n, dtype_nccl(own.dtype),
                           ctx->mesh.shard.comm, ctx->all_gather_stream));
    return OK;
}
