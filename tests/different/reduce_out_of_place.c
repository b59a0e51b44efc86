/* reduce_out_of_place.c: The reduce-scatter receives into a buffer of its own, from the reduce
 * stream's memory, and is multiplied by 1/W there.
 */
// ==== backward.c
static Status reduce_average(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    size_t n = (size_t)flat->shard_numel;
    float *sum = NULL;
    CUDA_TRY(cudaMallocAsync((void **)&sum, n * sizeof *sum, ctx->reduce));
    NCCL_TRY(ncclReduceScatter(flat->full_grad, sum, n, ncclFloat, ncclSum, ctx->comm,
                               ctx->reduce));
    CUDA_TRY(kernel_scale(sum, 1.0f / (float)flat->world, n, ctx->reduce));
    CUDA_TRY(kernel_add(flat->shard_grad, sum, n, ctx->reduce));
    CUDA_TRY(cudaFreeAsync(sum, ctx->reduce));
    TRY(flat_zero_padding(flat, flat->shard_grad, ctx->reduce));
    return OK;
}
