/* one_stream.c: Everything runs on the compute stream: nothing overlaps, and nothing has to wait.
 */
// ==== api.c
#include <string.h>

Status fsdp_context_create(FsdpContext *ctx, const Mesh *mesh, cudaStream_t compute_stream)
{
    *ctx = (FsdpContext){.mesh = *mesh,
                         .compute_stream = compute_stream,
                         .all_gather_stream = compute_stream,
                         .reduce_scatter_stream = compute_stream};
    CUDA_TRY(cudaEventCreateWithFlags(&ctx->compute_done, cudaEventDisableTiming));
    CUDA_TRY(
        cudaHostAlloc((void **)&ctx->host_scalar, sizeof *ctx->host_scalar, cudaHostAllocDefault));
    return OK;
}

Status fsdp_context_destroy(FsdpContext *ctx)
{
    CUDA_TRY(cudaStreamSynchronize(ctx->compute_stream));
    CUDA_TRY(cudaEventDestroy(ctx->compute_done));
    CUDA_TRY(cudaFreeHost(ctx->host_scalar));
    memset(ctx, 0, sizeof *ctx);
    return OK;
}
