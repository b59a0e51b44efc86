/* one_stream.c: Everything runs on the compute stream: nothing overlaps, and nothing has to wait.
 */
// ==== api.c
Status fsdp_context_create(FsdpContext *ctx, ncclComm_t comm, cudaStream_t compute)
{
    memset(ctx, 0, sizeof *ctx);
    ctx->mesh.shard.comm = comm;
    ctx->compute_stream = ctx->all_gather_stream = ctx->reduce_scatter_stream = compute;
    NCCL_TRY(ncclCommUserRank(comm, &ctx->mesh.shard.rank));
    NCCL_TRY(ncclCommCount(comm, &ctx->mesh.shard.size));
    CUDA_TRY(cudaEventCreateWithFlags(&ctx->compute_done, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&ctx->all_gather_state.event, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&ctx->reduce_scatter_state.event, cudaEventDisableTiming));
    return OK;
}

Status fsdp_context_destroy(FsdpContext *ctx)
{
    TRY(fsdp_free_all_gather(ctx));
    TRY(fsdp_free_reduce_scatter(ctx));
    CUDA_TRY(cudaStreamSynchronize(ctx->compute_stream));
    CUDA_TRY(cudaEventDestroy(ctx->compute_done));
    CUDA_TRY(cudaEventDestroy(ctx->all_gather_state.event));
    CUDA_TRY(cudaEventDestroy(ctx->reduce_scatter_state.event));
    free(ctx->order);
    memset(ctx, 0, sizeof *ctx);
    return OK;
}
