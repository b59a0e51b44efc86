/* tokens.c: the weight of a token's loss if ranks and micro-batches have unequal numbers of tokens.
 */
#include "strategy.h"

// Sums *count over all ranks of the mesh, in double: whole numbers are exact below 2^53.
static Status sum_over_ranks(FsdpContext *ctx, double *count)
{
    const ProcessGroup *groups[] = {&ctx->mesh.shard, &ctx->mesh.replicate};
    cudaStream_t stream = ctx->compute_stream;
    double *device = NULL;
    Status status = OK;
    *ctx->host_scalar = *count;
    CUDA_TRY(cudaMallocAsync((void **)&device, sizeof *device, stream));
    CUDA_TRY(
        cudaMemcpyAsync(device, ctx->host_scalar, sizeof *device, cudaMemcpyHostToDevice, stream));
    for (int i = 0; i < 2 && status == OK; i++)
        if (groups[i]->size > 1 && ncclAllReduce(device, device, 1, ncclDouble, ncclSum,
                                                 groups[i]->comm, stream) != ncclSuccess)
            status = fail(ERR_NCCL, "the number of tokens cannot be summed over the ranks");
    CUDA_TRY(
        cudaMemcpyAsync(ctx->host_scalar, device, sizeof *device, cudaMemcpyDeviceToHost, stream));
    CUDA_TRY(cudaFreeAsync(device, stream));
    CUDA_TRY(cudaStreamSynchronize(stream));
    *count = *ctx->host_scalar;
    return status;
}

Status fsdp_token_scale(Module *module, int64_t tokens, int64_t *total, float *scale)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    double sum = (double)tokens, factor = mesh_size(&root->ctx->mesh);
    const StrategyState *strategy = root->extensions->strategy;
    if (strategy != NULL) factor = (double)strategy->options.divide_factor;
    if (mesh_size(&root->ctx->mesh) > 1) TRY(sum_over_ranks(root->ctx, &sum));
    *total = (int64_t)sum;
    if (sum < 1.0) return fail(ERR_ARGUMENT, "no rank has a token in this step");
    *scale = (float)(factor / sum);
    return OK;
}
