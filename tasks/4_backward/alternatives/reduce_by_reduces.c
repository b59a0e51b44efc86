/* reduce_by_reduces.c: The reduce-scatter is a group of reduces, one for each rank's shard, to the
 * rank that owns it: the same bytes on every rank.
 */
// ==== backward.c
Status fsdp_reduce_scatter(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    int64_t n = flat->sharded_grad.numel;
    Buffer sum = buffer_range(&flat->unsharded_grad, flat->layout.rank * n, n);
    NCCL_TRY(ncclGroupStart());
    for (int rank = 0; rank < flat->layout.world; rank++) {
        Buffer part = buffer_range(&flat->unsharded_grad, rank * n, n);
        NCCL_TRY(ncclReduce(part.data, part.data, (size_t)n, dtype_nccl(part.dtype), ncclSum, rank,
                            ctx->mesh.shard.comm, ctx->reduce_scatter_stream));
    }
    NCCL_TRY(ncclGroupEnd());
    CUDA_TRY(kernel_add_divided(flat->sharded_grad.data, sum.data, (float)flat->layout.world,
                                (size_t)n, ctx->reduce_scatter_stream));
    return OK;
}
