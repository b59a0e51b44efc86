/* pipeline_offload.c: stages with gradients on the host (offload.h). */
#include "host_kernels.h"
#include "offload.h"
#include "pipeline.h"

Status pipeline_host_squares(const Pipeline *p,
                             bool (*counts)(const Pipeline *pipeline, const Param *param),
                             double *sum, double *squares)
{
    const FsdpContext *ctx = p->root->ctx;
    cudaStream_t stream = ctx->compute_stream;
    double own = 0.0;
    TRY(offload_wait(p->root->extensions->offload));
    for (int u = 0; u < p->root->n_units && ctx->mesh.replicate.rank == 0; u++) {
        const FlatParam *flat = &p->root->units[u]->flat;
        const float *grad = flat->sharded_grad.data;
        for (int i = 0; i < flat->layout.n; i++) {
            int64_t begin, end, at;
            flat_param_range_in_shard(&flat->layout, i, flat->layout.rank, &begin, &end, &at);
            if (begin < end && counts(p, flat->layout.params[i]))
                own += host_sum_squares(grad + at, (size_t)(end - begin));
        }
    }
    *ctx->host_scalar = own;
    CUDA_TRY(cudaMemcpyAsync(sum, ctx->host_scalar, sizeof *sum, cudaMemcpyHostToDevice, stream));
    NCCL_TRY(ncclAllReduce(sum, sum, 1, ncclDouble, ncclSum, p->mesh->world, stream));
    CUDA_TRY(cudaMemcpyAsync(ctx->host_scalar, sum, sizeof *sum, cudaMemcpyDeviceToHost, stream));
    CUDA_TRY(cudaStreamSynchronize(stream));
    *squares = *ctx->host_scalar;
    return OK;
}
