/* one_stream.c: Everything runs on the compute stream: nothing overlaps, and nothing has to wait.
 */
// ==== api.c
Status fsdp_context_create(FsdpContext *ctx, ncclComm_t comm, cudaStream_t compute)
{
    memset(ctx, 0, sizeof *ctx);
    ctx->comm = comm;
    ctx->compute = ctx->gather = ctx->reduce = compute;
    NCCL_TRY(ncclCommUserRank(comm, &ctx->rank));
    NCCL_TRY(ncclCommCount(comm, &ctx->world));
    CUDA_TRY(cudaEventCreateWithFlags(&ctx->computed, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&ctx->old_gather.event, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&ctx->old_reduce.event, cudaEventDisableTiming));
    return OK;
}

Status fsdp_context_destroy(FsdpContext *ctx)
{
    TRY(fsdp_release_gather(ctx));
    TRY(fsdp_release_reduce(ctx));
    CUDA_TRY(cudaStreamSynchronize(ctx->compute));
    CUDA_TRY(cudaEventDestroy(ctx->computed));
    CUDA_TRY(cudaEventDestroy(ctx->old_gather.event));
    CUDA_TRY(cudaEventDestroy(ctx->old_reduce.event));
    free(ctx->order);
    memset(ctx, 0, sizeof *ctx);
    return OK;
}
