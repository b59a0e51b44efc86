/* reduce_out_of_place.c: The reduce-scatter receives into a buffer of its own, from the reduce
 * stream's memory, and is multiplied by 1/W there.
 */
// ==== backward.c
static Status reduce_average(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    size_t n = (size_t)flat->layout.shard_numel;
    float *sum = NULL;
    CUDA_TRY(cudaMallocAsync((void **)&sum, n * sizeof *sum, ctx->reduce_scatter_stream));
    NCCL_TRY(ncclReduceScatter(flat->unsharded_grad.data, sum, n, ncclFloat, ncclSum, ctx->mesh.shard.comm,
                               ctx->reduce_scatter_stream));
    CUDA_TRY(kernel_scale(sum, 1.0f / (float)flat->layout.world, n, ctx->reduce_scatter_stream));
    CUDA_TRY(kernel_add(flat->sharded_grad.data, sum, n, ctx->reduce_scatter_stream));
    CUDA_TRY(cudaFreeAsync(sum, ctx->reduce_scatter_stream));
    TRY(flat_zero_padding(flat, &flat->sharded_grad, ctx->reduce_scatter_stream));
    return OK;
}
