/* gather_by_sends.c: Every rank sends its shard to every other, in one group, and copies its own.
 */
// ==== forward.c
Status fsdp_all_gather(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    const ProcessGroup *group = &unit->ctx->mesh.shard;
    cudaStream_t stream = unit->ctx->all_gather_stream;
    int64_t n = flat->layout.shard_numel;
    NCCL_TRY(ncclGroupStart());
    for (int peer = 0; peer < group->size; peer++) {
        if (peer == group->rank) continue;
        Buffer shard = buffer_range(&flat->unsharded_param, peer * n, n);
        NCCL_TRY(ncclSend(flat->sharded_param.data, (size_t)n, dtype_nccl(shard.dtype), peer,
                          group->comm, stream));
        NCCL_TRY(
            ncclRecv(shard.data, (size_t)n, dtype_nccl(shard.dtype), peer, group->comm, stream));
    }
    NCCL_TRY(ncclGroupEnd());
    Buffer own = buffer_range(&flat->unsharded_param, group->rank * n, n);
    CUDA_TRY(cudaMemcpyAsync(own.data, flat->sharded_param.data, buffer_bytes(&own),
                             cudaMemcpyDeviceToDevice, stream));
    return OK;
}
