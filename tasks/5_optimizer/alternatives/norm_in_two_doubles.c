/* norm_in_two_doubles.c: What the ranks' squares add up to has memory of its own, which is
 * allocated in stream order, and so are the squares of this rank.
 */
// ==== optimizer.c
static Status sum_all(FsdpRoot *root, FsdpContext *ctx, double *sum, double *squares)
{
    const ProcessGroup *group = &ctx->mesh.shard;
    cudaStream_t stream = ctx->compute_stream;
    ncclResult_t sent = ncclSuccess;
    double *own = NULL;
    CUDA_TRY(cudaMallocAsync((void **)&own, sizeof *own, stream));
    CUDA_TRY(cudaMemsetAsync(own, 0, sizeof *own, stream));
    for (int i = 0; i < root->n_units; i++) {
        const Buffer *grad = &root->units[i]->flat.sharded_grad;
        CUDA_TRY(kernel_sum_squares(own, grad->data, (size_t)grad->numel, stream));
    }
    CUDA_TRY(cudaMemcpyAsync(sum, own, sizeof *sum, cudaMemcpyDeviceToDevice, stream));
    if (group->size > 1)
        sent = ncclAllReduce(own, sum, 1, ncclDouble, ncclSum, group->comm, stream);
    CUDA_TRY(cudaFreeAsync(own, stream));
    NCCL_TRY(sent);
    CUDA_TRY(cudaMemcpyAsync(ctx->host_scalar, sum, sizeof *sum, cudaMemcpyDeviceToHost, stream));
    CUDA_TRY(cudaStreamSynchronize(stream));
    *squares = *ctx->host_scalar;
    return OK;
}
