/* scale_before_reduce.c: Every rank multiplies its unsharded gradient by 1/W before the
 * reduce-scatter, as DistributedDataParallel does; padding is zeroed in the unsharded gradient too.
 */
// ==== backward.c
Status fsdp_reduce_scatter(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    const FlatLayout *layout = &flat->layout;
    cudaStream_t stream = ctx->reduce_scatter_stream;
    size_t n = (size_t)layout->shard_numel;
    float *all = flat->unsharded_grad.data, *own = all + layout->rank * layout->shard_numel;
    Buffer padding =
        buffer_range(&flat->unsharded_grad, layout->numel, layout->padded - layout->numel);
    if (padding.numel > 0)
        CUDA_TRY(cudaMemsetAsync(padding.data, 0, buffer_bytes(&padding), stream));
    CUDA_TRY(kernel_scale(all, 1.0f / (float)layout->world, (size_t)layout->numel, stream));
    NCCL_TRY(ncclReduceScatter(all, own, n, ncclFloat, ncclSum, ctx->mesh.shard.comm, stream));
    CUDA_TRY(kernel_add(flat->sharded_grad.data, own, n, stream));
    return OK;
}
