/* average_by_nccl.c: The reduce-scatter averages (ncclAvg) and its result is added, in place of a
 * sum that is divided afterwards.
 */
// ==== backward.c
static Status reduce_average(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    size_t n = (size_t)flat->layout.shard_numel;
    float *mine = flat->unsharded_grad.data + flat->layout.rank * flat->layout.shard_numel;
    NCCL_TRY(ncclReduceScatter(flat->unsharded_grad.data, mine, n, ncclFloat, ncclAvg, ctx->mesh.shard.comm,
                               ctx->reduce_scatter_stream));
    CUDA_TRY(kernel_add(flat->sharded_grad.data, mine, n, ctx->reduce_scatter_stream));
    TRY(flat_zero_padding(flat, &flat->sharded_grad, ctx->reduce_scatter_stream));
    return OK;
}
