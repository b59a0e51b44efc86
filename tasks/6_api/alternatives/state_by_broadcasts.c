/* state_by_broadcasts.c: The full state is gathered a parameter at a time, by one broadcast for
 * each rank's part of it.
 */
// ==== api.c
// The parameter's parts from all ranks, into unsharded[] on every rank.
static Status broadcast_parts(FsdpUnit *unit, int i, float *unsharded)
{
    const FlatLayout *layout = &unit->flat.layout;
    cudaStream_t stream = unit->ctx->compute_stream;
    float *shard = unit->flat.sharded_param.data;
    for (int rank = 0; rank < layout->world; rank++) {
        int64_t begin, end, at;
        flat_param_range_in_shard(layout, i, rank, &begin, &end, &at);
        size_t n = (size_t)(end - begin);
        if (n == 0) continue;
        if (layout->world == 1) // a group of one may have no communicator
            CUDA_TRY(cudaMemcpyAsync(unsharded + begin, shard + at, n * sizeof *shard,
                                     cudaMemcpyDeviceToDevice, stream));
        else
            NCCL_TRY(ncclBroadcast(rank == layout->rank ? shard + at : NULL, unsharded + begin, n,
                                   ncclFloat, rank, unit->ctx->mesh.shard.comm, stream));
    }
    return OK;
}

static Status gather_unit(FsdpUnit *unit, StateVisitor visit, void *arg, Status *visit_status)
{
    const FlatLayout *layout = &unit->flat.layout;
    FsdpContext *ctx = unit->ctx;
    bool visits = layout->rank == 0 && ctx->mesh.replicate.rank == 0;
    for (int i = 0; i < layout->n; i++) {
        Param *param = layout->params[i];
        Buffer before = param->data;
        param->data = (Buffer){NULL, param->dtype, meta_numel(param)};
        CUDA_TRY(
            cudaMallocAsync(&param->data.data, buffer_bytes(&param->data), ctx->compute_stream));
        TRY(broadcast_parts(unit, i, param->data.data));
        if (visits && *visit_status == OK)
            *visit_status = visit_param(param, visit, arg, ctx->compute_stream);
        CUDA_TRY(cudaFreeAsync(param->data.data, ctx->compute_stream));
        param->data = before;
    }
    return OK;
}
