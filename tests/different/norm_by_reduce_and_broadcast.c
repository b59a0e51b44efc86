/* norm_by_reduce_and_broadcast.c: The squares are summed on rank 0 and sent back, read through
 * pinned memory behind an event; clipping multiplies by min(1, max_norm / norm), whichever it is.
 */
// ==== optimizer.c
static Status sum_all(Module *root, FsdpContext *ctx, double *sum, double *squares)
{
    double *pinned = NULL;
    cudaEvent_t there;
    CUDA_TRY(cudaMemsetAsync(sum, 0, sizeof *sum, ctx->compute_stream));
    TRY(for_each_flat(root, ctx, sum_one, sum));
    NCCL_TRY(ncclReduce(sum, sum, 1, ncclDouble, ncclSum, 0, ctx->mesh.shard.comm, ctx->compute_stream));
    NCCL_TRY(ncclBroadcast(sum, sum, 1, ncclDouble, 0, ctx->mesh.shard.comm, ctx->compute_stream));
    CUDA_TRY(cudaMallocHost((void **)&pinned, sizeof *pinned));
    CUDA_TRY(cudaEventCreateWithFlags(&there, cudaEventDisableTiming));
    CUDA_TRY(cudaMemcpyAsync(pinned, sum, sizeof *sum, cudaMemcpyDeviceToHost, ctx->compute_stream));
    CUDA_TRY(cudaEventRecord(there, ctx->compute_stream));
    CUDA_TRY(cudaEventSynchronize(there));
    *squares = *pinned;
    CUDA_TRY(cudaEventDestroy(there));
    CUDA_TRY(cudaFreeHost(pinned));
    return OK;
}

Status fsdp_clip_grad_norm(Module *root, FsdpContext *ctx, float max_norm, float *norm)
{
    TRY(fsdp_grad_norm(root, ctx, norm));
    float factor = *norm > 0.0f ? fminf(1.0f, max_norm / *norm) : 1.0f;
    return for_each_flat(root, ctx, scale_one, &factor);
}
