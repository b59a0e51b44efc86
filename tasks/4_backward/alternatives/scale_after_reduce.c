/* scale_after_reduce.c: The sum is multiplied by 1/W where the reduce-scatter has left it, and then
 * added.
 */
// ==== backward.c
Status fsdp_reduce_scatter(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    cudaStream_t stream = ctx->reduce_scatter_stream;
    size_t n = (size_t)flat->sharded_grad.numel;
    Buffer sum = buffer_range(&flat->unsharded_grad, flat->layout.rank * flat->sharded_grad.numel,
                              flat->sharded_grad.numel);
    NCCL_TRY(ncclReduceScatter(flat->unsharded_grad.data, sum.data, n, dtype_nccl(sum.dtype),
                               ncclSum, ctx->mesh.shard.comm, stream));
    CUDA_TRY(kernel_scale(sum.data, 1.0f / (float)flat->layout.world, n, stream));
    CUDA_TRY(kernel_add(flat->sharded_grad.data, sum.data, n, stream));
    return OK;
}
