/* state_by_parameter.c: The full state is gathered a parameter at a time: every rank that has a
 * part of it sends that part to rank 0. No unit is unsharded for it, and one that is whole stays so.
 */
// ==== api.c
// The parameter's parts from all ranks, into whole[] on rank 0.
static Status send_parts(const FlatParam *flat, int i, FsdpContext *ctx, float *whole)
{
    int64_t begin, end, at;
    flat_param_range_in_shard(flat, i, ctx->mesh.shard.rank, &begin, &end, &at);
    NCCL_TRY(ncclGroupStart());
    if (ctx->mesh.shard.rank != 0 && begin < end)
        NCCL_TRY(ncclSend(flat->sharded_param.data + at, (size_t)(end - begin), ncclFloat, 0, ctx->mesh.shard.comm,
                          ctx->compute_stream));
    for (int rank = 1; rank < ctx->mesh.shard.size && ctx->mesh.shard.rank == 0; rank++) {
        flat_param_range_in_shard(flat, i, rank, &begin, &end, &at);
        if (begin < end)
            NCCL_TRY(ncclRecv(whole + begin, (size_t)(end - begin), ncclFloat, rank, ctx->mesh.shard.comm,
                              ctx->compute_stream));
    }
    NCCL_TRY(ncclGroupEnd());
    flat_param_range_in_shard(flat, i, 0, &begin, &end, &at);
    if (ctx->mesh.shard.rank == 0 && begin < end)
        CUDA_TRY(cudaMemcpyAsync(whole + begin, flat->sharded_param.data + at,
                                 (size_t)(end - begin) * sizeof(float), cudaMemcpyDeviceToDevice,
                                 ctx->compute_stream));
    return OK;
}

static Status gather_unit(FsdpUnit *unit, StateVisitor visit, void *arg, Status *visit_status)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    for (int i = 0; i < flat->layout.n; i++) {
        Param copy = *flat->layout.params[i];
        size_t bytes = (size_t)meta_numel(&copy) * sizeof(float);
        float *whole = NULL, *host = NULL;
        if (ctx->mesh.shard.rank == 0)
            CUDA_TRY(cudaMallocAsync((void **)&whole, bytes, ctx->compute_stream));
        TRY(send_parts(flat, i, ctx, whole));
        if (ctx->mesh.shard.rank != 0) continue;
        host = malloc(bytes);
        if (host == NULL) return fail(ERR_MEMORY, "%s: no host memory for it", copy.name);
        CUDA_TRY(cudaMemcpyAsync(host, whole, bytes, cudaMemcpyDeviceToHost, ctx->compute_stream));
        CUDA_TRY(cudaFreeAsync(whole, ctx->compute_stream));
        CUDA_TRY(cudaStreamSynchronize(ctx->compute_stream));
        if (*visit_status == OK) *visit_status = visit(flat->layout.params[i], host, arg);
        free(host);
    }
    return OK;
}
