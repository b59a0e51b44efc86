/* norm_by_reduce_and_broadcast.c: The squares are summed on rank 0 and sent back, and the host
 * waits for an event recorded after their copy; clipping multiplies by min(1, max_norm / norm),
 * whichever it is.
 */
// ==== optimizer.c
static Status sum_all(FsdpRoot *root, FsdpContext *ctx, double *sum, double *squares)
{
    const ProcessGroup *group = &ctx->mesh.shard;
    cudaStream_t stream = ctx->compute_stream;
    cudaEvent_t there;
    CUDA_TRY(cudaMemsetAsync(sum, 0, sizeof *sum, stream));
    for (int i = root->n_units; i-- > 0;) {
        const Buffer *grad = &root->units[i]->flat.sharded_grad;
        CUDA_TRY(kernel_sum_squares(sum, grad->data, (size_t)grad->numel, stream));
    }
    if (group->size > 1) {
        NCCL_TRY(ncclReduce(sum, sum, 1, ncclDouble, ncclSum, 0, group->comm, stream));
        NCCL_TRY(ncclBroadcast(sum, sum, 1, ncclDouble, 0, group->comm, stream));
    }
    CUDA_TRY(cudaEventCreateWithFlags(&there, cudaEventDisableTiming));
    CUDA_TRY(cudaMemcpyAsync(ctx->host_scalar, sum, sizeof *sum, cudaMemcpyDeviceToHost, stream));
    CUDA_TRY(cudaEventRecord(there, stream));
    CUDA_TRY(cudaEventSynchronize(there));
    *squares = *ctx->host_scalar;
    CUDA_TRY(cudaEventDestroy(there));
    return OK;
}

Status fsdp_clip_grad_norm_default(Module *module, FsdpContext *ctx, float max_norm, float *norm)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(fsdp_grad_norm(module, ctx, norm));
    return scale_all(root, ctx, *norm > 0.0f ? fminf(1.0f, max_norm / *norm) : 1.0f);
}
