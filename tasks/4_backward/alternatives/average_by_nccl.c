/* average_by_nccl.c: The reduce-scatter averages (ncclAvg) and its result is added, in place of a
 * sum that is divided afterwards.
 */
// ==== backward.c
Status fsdp_reduce_scatter(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    int64_t n = flat->sharded_grad.numel;
    Buffer average = buffer_range(&flat->unsharded_grad, flat->layout.rank * n, n);
    NCCL_TRY(ncclReduceScatter(flat->unsharded_grad.data, average.data, (size_t)n, ncclFloat,
                               ncclAvg, ctx->mesh.shard.comm, ctx->reduce_scatter_stream));
    CUDA_TRY(
        kernel_add(flat->sharded_grad.data, average.data, (size_t)n, ctx->reduce_scatter_stream));
    return OK;
}
