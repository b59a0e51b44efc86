/* average_by_nccl.c: The reduce-scatter averages (ncclAvg) and its result is added, in place of a
 * sum that is divided afterwards.
 */
// ==== backward.c
static Status reduce_average(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    size_t n = (size_t)flat->shard_numel;
    float *mine = flat->full_grad + flat->rank * flat->shard_numel;
    NCCL_TRY(ncclReduceScatter(flat->full_grad, mine, n, ncclFloat, ncclAvg, ctx->comm,
                               ctx->reduce));
    CUDA_TRY(kernel_add(flat->shard_grad, mine, n, ctx->reduce));
    TRY(flat_zero_padding(flat, flat->shard_grad, ctx->reduce));
    return OK;
}
