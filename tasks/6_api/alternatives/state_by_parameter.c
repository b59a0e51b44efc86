/* state_by_parameter.c: The full state is gathered a parameter at a time: every rank that has a
 * part of it sends that part to rank 0. No unit is unsharded for it, and one that is stays so.
 */
// ==== api.c
// The parameter's parts from all ranks, into unsharded[] on rank 0.
static Status send_parts(const FlatParam *flat, int i, const ProcessGroup *group, float *unsharded,
                         cudaStream_t stream)
{
    const FlatLayout *layout = &flat->layout;
    const float *shard = flat->sharded_param.data;
    int64_t begin, end, at;
    flat_param_range_in_shard(layout, i, group->rank, &begin, &end, &at);
    NCCL_TRY(ncclGroupStart());
    if (group->rank != 0 && begin < end)
        NCCL_TRY(ncclSend(shard + at, (size_t)(end - begin), ncclFloat, 0, group->comm, stream));
    for (int rank = 1; rank < group->size && group->rank == 0; rank++) {
        flat_param_range_in_shard(layout, i, rank, &begin, &end, &at);
        if (begin < end)
            NCCL_TRY(ncclRecv(unsharded + begin, (size_t)(end - begin), ncclFloat, rank,
                              group->comm, stream));
    }
    NCCL_TRY(ncclGroupEnd());
    flat_param_range_in_shard(layout, i, 0, &begin, &end, &at);
    if (group->rank == 0 && begin < end)
        CUDA_TRY(cudaMemcpyAsync(unsharded + begin, shard + at,
                                 (size_t)(end - begin) * sizeof *shard, cudaMemcpyDeviceToDevice,
                                 stream));
    return OK;
}

static Status gather_unit(FsdpUnit *unit, StateVisitor visit, void *arg, Status *visit_status)
{
    const FlatParam *flat = &unit->flat;
    const Mesh *mesh = &unit->ctx->mesh;
    cudaStream_t stream = unit->ctx->compute_stream;
    for (int i = 0; i < flat->layout.n; i++) {
        Param copy = *flat->layout.params[i]; // the parameter itself stays as it is
        copy.data = (Buffer){NULL, copy.dtype, meta_numel(&copy)};
        if (mesh->shard.rank == 0)
            CUDA_TRY(cudaMallocAsync(&copy.data.data, buffer_bytes(&copy.data), stream));
        TRY(send_parts(flat, i, &mesh->shard, copy.data.data, stream));
        if (mesh->shard.rank != 0) continue;
        float *values = malloc(buffer_bytes(&copy.data));
        if (values == NULL) return fail(ERR_MEMORY, "%s: no host memory for it", copy.name);
        CUDA_TRY(cudaMemcpyAsync(values, copy.data.data, buffer_bytes(&copy.data),
                                 cudaMemcpyDeviceToHost, stream));
        CUDA_TRY(cudaFreeAsync(copy.data.data, stream));
        CUDA_TRY(cudaStreamSynchronize(stream));
        if (mesh->replicate.rank == 0 && *visit_status == OK)
            *visit_status = visit(flat->layout.params[i], values, arg);
        free(values);
    }
    return OK;
}
