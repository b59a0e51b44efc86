/* ties_piece_by_piece.c: Each piece of a tied gradient is swapped and added by itself, in the order
 * of ranks; the norm is reduced to one rank and sent to all; clipping scales what is valid.
 */
// ==== tied.c
static Status swap_pieces(const PipelineShared *shared, const Pipeline *p, float *others)
{
    cudaStream_t stream = p->root->ctx->compute_stream;
    float *grad = shared->unit->flat.sharded_grad.data;
    int64_t done = 0;
    ncclResult_t first = ncclSuccess, said; // what failed first is told
    NCCL_TRY(ncclGroupStart());
    for (int i = shared->n_pieces - 1; i >= 0; i--) {
        said = ncclRecv(others + shared->pieces[i].begin - shared->pieces[0].begin,
                        (size_t)(shared->pieces[i].end - shared->pieces[i].begin), ncclFloat,
                        shared->pieces[i].rank, p->mesh->world, stream);
        if (first == ncclSuccess) first = said;
    }
    for (int i = 0; i < shared->n_pieces; i++) {
        int64_t numel = shared->pieces[i].end - shared->pieces[i].begin;
        said = ncclSend(grad + shared->pieces[0].begin + done, (size_t)numel, ncclFloat,
                        shared->pieces[i].rank, p->mesh->world, stream);
        if (first == ncclSuccess) first = said;
        done += numel;
    }
    said = ncclGroupEnd();
    NCCL_TRY(first);
    NCCL_TRY(said);
    return OK;
}

Status pipeline_sum_ties(Pipeline *p)
{
    cudaStream_t stream = p->root->ctx->compute_stream;
    for (int i = 0; i < p->n_shared; i++) {
        const PipelineShared *shared = &p->shared[i];
        Buffer others = {NULL, DTYPE_F32, 0};
        for (int k = 0; k < shared->n_pieces; k++)
            others.numel += shared->pieces[k].end - shared->pieces[k].begin;
        if (others.numel == 0) continue;
        CUDA_TRY(cudaMallocAsync(&others.data, buffer_bytes(&others), stream));
        Status status = swap_pieces(shared, p, others.data);
        const float *from = others.data;
        for (int k = 0; k < shared->n_pieces && status == OK; k++) {
            const PipelinePiece *piece = &shared->pieces[k];
            size_t numel = (size_t)(piece->end - piece->begin);
            float *to = (float *)shared->unit->flat.sharded_grad.data + piece->begin;
            CUDA_TRY(kernel_add_ex(DTYPE_F32, to, DTYPE_F32, from, numel, stream));
            from += numel;
        }
        CUDA_TRY(cudaFreeAsync(others.data, stream));
        if (status != OK) return status;
    }
    return OK;
}

static Status sum_all(const Pipeline *p, double *sum, double *squares)
{
    const FsdpContext *ctx = p->root->ctx;
    cudaStream_t stream = ctx->compute_stream;
    CUDA_TRY(cudaMemsetAsync(sum, 0, sizeof *sum, stream));
    for (int u = p->root->n_units - 1; u >= 0 && ctx->mesh.replicate.rank == 0; u--) {
        const FlatParam *flat = &p->root->units[u]->flat;
        for (int i = flat->layout.n - 1; i >= 0; i--) {
            int64_t begin, end, at;
            if (!counts(p, flat->layout.params[i])) continue;
            flat_param_range_in_shard(&flat->layout, i, flat->layout.rank, &begin, &end, &at);
            Buffer part = buffer_range(&flat->sharded_grad, at, end - begin);
            if (end > begin)
                CUDA_TRY(kernel_sum_squares(sum, part.data, (size_t)part.numel, stream));
        }
    }
    NCCL_TRY(ncclReduce(sum, sum, 1, ncclDouble, ncclSum, 0, p->mesh->world, stream));
    NCCL_TRY(ncclBroadcast(sum, sum, 1, ncclDouble, 0, p->mesh->world, stream));
    CUDA_TRY(cudaMemcpyAsync(ctx->host_scalar, sum, sizeof *sum, cudaMemcpyDeviceToHost, stream));
    CUDA_TRY(cudaStreamSynchronize(stream));
    *squares = *ctx->host_scalar;
    return OK;
}

Status pipeline_clip_grad_norm(Pipeline *p, float max_norm, float *norm)
{
    TRY(pipeline_grad_norm(p, norm));
    if (!(*norm > max_norm)) return OK;
    for (int u = 0; u < p->root->n_units; u++) {
        const FlatParam *flat = &p->root->units[u]->flat;
        size_t valid = (size_t)flat_valid_numel(&flat->layout, flat->layout.rank);
        if (valid > 0)
            CUDA_TRY(kernel_scale(flat->sharded_grad.data, max_norm / *norm, valid,
                                  p->root->ctx->compute_stream));
    }
    return OK;
}
