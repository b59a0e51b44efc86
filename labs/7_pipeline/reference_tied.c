/* Lab 7, third file: across all stages. Tied parameters, and a norm on which all stages agree.
 *
 * GPT-2's head is its embedding: the first and the last stage each have a copy of one parameter.
 * Both copies begin with the same values. They stay bitwise equal if every step gives both the same
 * gradient: the sum of the first stage's from the embedding and the last one's from the head.
 *
 * [Note: shards against shards] Within a stage the parameter is cut into shards. The two stages cut
 * it in different places, because they have other parameters before it. So a rank shares pieces
 * with several ranks of the other stage (pipeline->shared): it sends each of them its sum of a
 * piece, and receives theirs. That is an all-reduce between two stages, without a gather.
 *
 * [Note: which first] a + b and b + a are the same float, but (a + b) + c and a + (b + c) are not.
 * So each stage reduces its gradients before pieces are exchanged.
 *
 * Interface:
 *   pipeline_sum_ties                               the gradients of tied parameters
 *   pipeline_grad_norm, pipeline_clip_grad_norm     over all stages
 */
#include <math.h>

#include "kernels.h"
#include "offload.h"
#include "pipeline.h"

// Sends this rank's gradient of each piece to the rank that shares it, and receives that rank's
// into `others`, whose first element is the first piece's.
static Status swap_pieces(const PipelineShared *shared, const Pipeline *p, float *others)
{
    const FsdpContext *ctx = p->root->ctx;
    const float *grad = shared->unit->flat.sharded_grad.data;
    //[L7.11] The compute stream sends and receives all pieces, as one operation.
    //? Two ranks of this stage and two of the other share three pieces. Which rank waits for which
    //? if each sends its first piece before it receives?
    ncclResult_t queued = ncclSuccess;
    NCCL_TRY(ncclGroupStart());
    for (int i = 0; i < shared->n_pieces && queued == ncclSuccess; i++) {
        const PipelinePiece *piece = &shared->pieces[i];
        size_t n = (size_t)(piece->end - piece->begin);
        queued = ncclSend(grad + piece->begin, n, ncclFloat, piece->rank, p->mesh->world,
                          ctx->compute_stream);
        if (queued == ncclSuccess)
            queued = ncclRecv(others + piece->begin - shared->pieces[0].begin, n, ncclFloat,
                              piece->rank, p->mesh->world, ctx->compute_stream);
    }
    ncclResult_t ended = ncclGroupEnd();
    NCCL_TRY(queued);
    NCCL_TRY(ended);
    return OK;
    //[end L7.11]
}

Status pipeline_sum_ties(Pipeline *p)
{
    cudaStream_t stream = p->root->ctx->compute_stream;
    for (int i = 0; i < p->n_shared; i++) {
        const PipelineShared *shared = &p->shared[i];
        if (shared->n_pieces == 0) continue;
        int64_t begin = shared->pieces[0].begin, end = shared->pieces[shared->n_pieces - 1].end;
        TRY(offload_borrow_grad(shared->unit));
        float *grad = (float *)shared->unit->flat.sharded_grad.data + begin, *others = NULL;
        //[L7.12] The other stage's gradient has been added to elements [begin, end) of the sharded
        //  gradient, and nothing stays allocated, even after a failure.
        //? May the other stage's gradient arrive in the memory from which this rank's is sent?
        CUDA_TRY(cudaMallocAsync((void **)&others, (size_t)(end - begin) * sizeof *others, stream));
        Status status = swap_pieces(shared, p, others);
        cudaError_t added = cudaSuccess;
        if (status == OK)
            added =
                kernel_add_ex(DTYPE_F32, grad, DTYPE_F32, others, (size_t)(end - begin), stream);
        CUDA_TRY(cudaFreeAsync(others, stream));
        if (status != OK) return status;
        CUDA_TRY(added);
        //[end L7.12]
        TRY(offload_return_grad(shared->unit));
    }
    return OK;
}

// Whether this stage counts the parameter in the norm. A frozen one has no gradient.
static bool counts(const Pipeline *p, const Param *param)
{
    if (param->frozen) return false;
    //[L7.13] True if no earlier stage holds the parameter.
    //? Two copies, one gradient: which of the two stages counts it, and do both know?
    for (int i = 0; i < p->n_shared; i++)
        if (p->shared[i].param == param && p->shared[i].other < p->mesh->stage) return false;
    return true;
    //[end L7.13]
}

// *squares (host) = Σ of the squares of the gradient of all stages. sum: one double on the device.
static Status sum_all(const Pipeline *p, double *sum, double *squares)
{
    const FsdpContext *ctx = p->root->ctx;
    cudaStream_t stream = ctx->compute_stream;
    if (p->root->extensions->offload != NULL) return pipeline_host_squares(p, counts, sum, squares);
    CUDA_TRY(cudaMemsetAsync(sum, 0, sizeof *sum, stream));
    bool first = ctx->mesh.replicate.rank == 0; // replica; all have the same gradient
    //[L7.14] *squares is the sum over all units, ranks and stages, on every rank, and the host may
    //  read it; it arrives in *ctx->host_scalar. Ranks of all replicas but the first add nothing,
    //  but take part.
    //? Which communicator has the ranks of all stages?
    for (int u = 0; u < p->root->n_units && first; u++) {
        const FlatParam *flat = &p->root->units[u]->flat;
        for (int i = 0; i < flat->layout.n; i++) {
            int64_t begin, end, at;
            flat_param_range_in_shard(&flat->layout, i, flat->layout.rank, &begin, &end, &at);
            if (begin == end || !counts(p, flat->layout.params[i])) continue;
            CUDA_TRY(kernel_sum_squares(sum, (const float *)flat->sharded_grad.data + at,
                                        (size_t)(end - begin), stream));
        }
    }
    NCCL_TRY(ncclAllReduce(sum, sum, 1, ncclDouble, ncclSum, p->mesh->world, stream));
    CUDA_TRY(cudaMemcpyAsync(ctx->host_scalar, sum, sizeof *sum, cudaMemcpyDeviceToHost, stream));
    CUDA_TRY(cudaStreamSynchronize(stream));
    *squares = *ctx->host_scalar;
    return OK;
    //[end L7.14]
}

Status pipeline_grad_norm(Pipeline *p, float *norm)
{
    cudaStream_t stream = p->root->ctx->compute_stream;
    double *sum = NULL, squares = 0.0;
    CUDA_TRY(cudaMallocAsync((void **)&sum, sizeof *sum, stream));
    Status status = sum_all(p, sum, &squares);
    CUDA_TRY(cudaFreeAsync(sum, stream));
    *norm = (float)sqrt(squares);
    return status;
}

Status pipeline_clip_grad_norm(Pipeline *p, float max_norm, float *norm)
{
    TRY(pipeline_grad_norm(p, norm));
    if (p->root->extensions->offload != NULL)
        return *norm > max_norm ? offload_scale_grad(p->root, max_norm / *norm) : OK;
    //[L7.15] As fsdp_clip_grad_norm: if *norm is larger than max_norm, all gradients of this
    //  stage are scaled by max_norm / *norm.
    //? Both copies of a tied parameter must stay equal. Do both stages see the same norm?
    if (!(*norm > max_norm)) return OK;
    for (int u = 0; u < p->root->n_units; u++) {
        const Buffer *grad = &p->root->units[u]->flat.sharded_grad;
        CUDA_TRY(kernel_scale(grad->data, max_norm / *norm, (size_t)grad->numel,
                              p->root->ctx->compute_stream));
    }
    return OK;
    //[end L7.15]
}
