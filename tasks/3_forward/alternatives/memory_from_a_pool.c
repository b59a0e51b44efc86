/* memory_from_a_pool.c: Unsharded parameters and gradients come from a pool that the program asks
 * for by name (cudaMallocFromPoolAsync) instead of the current one.
 */
// ==== forward.c
static Status from_default_pool(Buffer *buffer, cudaStream_t stream)
{
    cudaMemPool_t pool;
    int device;
    CUDA_TRY(cudaGetDevice(&device));
    CUDA_TRY(cudaDeviceGetDefaultMemPool(&pool, device));
    CUDA_TRY(cudaMallocFromPoolAsync(&buffer->data, buffer_bytes(buffer), pool, stream));
    return OK;
}

Status fsdp_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->state != FLAT_SHARDED) return OK;
    if (flat_param_is_shard(flat)) {
        flat->unsharded_param.data = flat->sharded_param.data;
    } else {
        if (flat->unsharded_param.data == NULL)
            TRY(from_default_pool(&flat->unsharded_param, ctx->all_gather_stream));
        TRY(unit->all_gather(unit));
        CUDA_TRY(cudaEventRecord(flat->all_gather_done, ctx->all_gather_stream));
    }
    flat_set_views(flat);
    return flat_set_state(flat, FLAT_UNSHARDING);
}

// ==== backward.c
Status fsdp_begin_grad(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    Buffer *grad = &flat->unsharded_grad;
    if (grad->data != NULL) return fail(ERR_ARGUMENT, "%s: has a gradient already", flat->name);
    if (grad->numel == 0) return OK;
    if (mesh_size(&ctx->mesh) > 1) {
        cudaMemPool_t pool;
        int device;
        CUDA_TRY(cudaGetDevice(&device));
        CUDA_TRY(cudaDeviceGetMemPool(&pool, device));
        CUDA_TRY(
            cudaMallocFromPoolAsync(&grad->data, buffer_bytes(grad), pool, ctx->compute_stream));
        CUDA_TRY(cudaMemsetAsync(grad->data, 0, buffer_bytes(grad), ctx->compute_stream));
    } else {
        grad->data = flat->sharded_grad.data;
    }
    flat_set_grad_views(flat);
    return OK;
}
