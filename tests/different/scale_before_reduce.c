/* scale_before_reduce.c: Every rank multiplies its whole gradient by 1/W before the reduce-scatter,
 * as DistributedDataParallel does; padding is zeroed in the whole gradient too.
 */
// ==== backward.c
static Status reduce_average(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    size_t n = (size_t)flat->shard_numel, padding = (size_t)(flat->padded - flat->numel);
    float *mine = flat->full_grad + flat->rank * flat->shard_numel;
    if (padding > 0)
        CUDA_TRY(cudaMemsetAsync(flat->full_grad + flat->numel, 0, padding * sizeof(float),
                                 ctx->reduce));
    CUDA_TRY(kernel_scale(flat->full_grad, 1.0f / (float)flat->world, (size_t)flat->numel,
                          ctx->reduce));
    NCCL_TRY(ncclReduceScatter(flat->full_grad, mine, n, ncclFloat, ncclSum, ctx->comm,
                               ctx->reduce));
    CUDA_TRY(kernel_add(flat->shard_grad, mine, n, ctx->reduce));
    return OK;
}
