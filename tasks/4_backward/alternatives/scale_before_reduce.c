/* scale_before_reduce.c: Every rank multiplies its unsharded gradient by 1/W before the
 * reduce-scatter, as DistributedDataParallel does; padding is zeroed in the unsharded gradient too.
 */
// ==== backward.c
Status fsdp_reduce_scatter(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    const Buffer *grad = &flat->unsharded_grad;
    cudaStream_t stream = ctx->reduce_scatter_stream;
    size_t n = (size_t)flat->sharded_grad.numel;
    int64_t valid = flat->layout.numel < grad->numel ? flat->layout.numel : grad->numel;
    float *all = grad->data, *own = all + flat->layout.rank * flat->sharded_grad.numel;
    Buffer padding = buffer_range(grad, valid, grad->numel - valid);
    if (padding.numel > 0)
        CUDA_TRY(cudaMemsetAsync(padding.data, 0, buffer_bytes(&padding), stream));
    CUDA_TRY(kernel_scale(all, 1.0f / (float)flat->layout.world, (size_t)valid, stream));
    NCCL_TRY(ncclReduceScatter(all, own, n, ncclFloat, ncclSum, ctx->mesh.shard.comm, stream));
    CUDA_TRY(kernel_add(flat->sharded_grad.data, own, n, stream));
    return OK;
}
