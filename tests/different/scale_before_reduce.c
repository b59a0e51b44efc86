/* scale_before_reduce.c: Every rank multiplies its whole gradient by 1/W before the reduce-scatter,
 * as DistributedDataParallel does; padding is zeroed in the whole gradient too.
 */
// ==== backward.c
static Status reduce_average(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    size_t n = (size_t)flat->layout.shard_numel, padding = (size_t)(flat->layout.padded - flat->layout.numel);
    float *mine = flat->unsharded_grad.data + flat->layout.rank * flat->layout.shard_numel;
    if (padding > 0)
        CUDA_TRY(cudaMemsetAsync(flat->unsharded_grad.data + flat->layout.numel, 0, padding * sizeof(float),
                                 ctx->reduce_scatter_stream));
    CUDA_TRY(kernel_scale(flat->unsharded_grad.data, 1.0f / (float)flat->layout.world, (size_t)flat->layout.numel,
                          ctx->reduce_scatter_stream));
    NCCL_TRY(ncclReduceScatter(flat->unsharded_grad.data, mine, n, ncclFloat, ncclSum, ctx->mesh.shard.comm,
                               ctx->reduce_scatter_stream));
    CUDA_TRY(kernel_add(flat->sharded_grad.data, mine, n, ctx->reduce_scatter_stream));
    return OK;
}
