/* state_by_broadcasts.c: The full state is gathered a parameter at a time, by one broadcast for each
 * rank's part of it.
 */
// ==== api.c
static Status gather_unit(FsdpUnit *unit, StateVisitor visit, void *arg, Status *visit_status)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    for (int i = 0; i < flat->layout.n; i++) {
        Param *param = flat->layout.params[i];
        float *before = param->data.data, *whole = NULL;
        CUDA_TRY(cudaMallocAsync((void **)&whole, (size_t)meta_numel(param) * sizeof *whole,
                                 ctx->compute_stream));
        for (int rank = 0; rank < ctx->mesh.shard.size; rank++) {
            int64_t begin, end, at;
            flat_param_range_in_shard(flat, i, rank, &begin, &end, &at);
            if (begin < end)
                NCCL_TRY(ncclBroadcast(rank == ctx->mesh.shard.rank ? flat->sharded_param.data + at : NULL, whole + begin,
                                       (size_t)(end - begin), ncclFloat, rank, ctx->mesh.shard.comm,
                                       ctx->compute_stream));
        }
        param->data.data = whole;
        if (ctx->mesh.shard.rank == 0 && *visit_status == OK) *visit_status = visit_param(param, visit, arg, ctx->compute_stream);
        param->data.data = before;
        CUDA_TRY(cudaFreeAsync(whole, ctx->compute_stream));
    }
    return OK;
}
