/* reduce_out_of_place.c: The reduce-scatter receives into a buffer of its own, from the
 * reduce-scatter stream's memory, and is multiplied by 1/W there.
 */
// ==== backward.c
Status fsdp_reduce_scatter(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    cudaStream_t stream = ctx->reduce_scatter_stream;
    Buffer sum = {NULL, flat->unsharded_grad.dtype, flat->layout.shard_numel};
    size_t n = (size_t)sum.numel;
    CUDA_TRY(cudaMallocAsync(&sum.data, buffer_bytes(&sum), stream));
    NCCL_TRY(ncclReduceScatter(flat->unsharded_grad.data, sum.data, n, dtype_nccl(sum.dtype),
                               ncclSum, ctx->mesh.shard.comm, stream));
    CUDA_TRY(kernel_scale(sum.data, 1.0f / (float)flat->layout.world, n, stream));
    CUDA_TRY(kernel_add(flat->sharded_grad.data, sum.data, n, stream));
    CUDA_TRY(cudaFreeAsync(sum.data, stream));
    return OK;
}
