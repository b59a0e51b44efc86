/* memory_from_a_pool.c: Whole parameters and whole gradients come from a pool that the program asks
 * for by name (cudaMallocFromPoolAsync) instead of the current one.
 */
// ==== forward.c
static Status from_pool(float **buffer, size_t bytes, cudaStream_t stream)
{
    cudaMemPool_t pool;
    int device;
    CUDA_TRY(cudaGetDevice(&device));
    CUDA_TRY(cudaDeviceGetDefaultMemPool(&pool, device));
    CUDA_TRY(cudaMallocFromPoolAsync((void **)buffer, bytes, pool, stream));
    return OK;
}

Status fsdp_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->state != FLAT_SHARDED) return OK;
    if (flat->layout.world == 1) {
        flat->unsharded_param.data = flat->sharded_param.data;
    } else {
        TRY(from_pool(&flat->unsharded_param.data, (size_t)flat->layout.padded * sizeof(float), ctx->all_gather_stream));
        NCCL_TRY(ncclAllGather(flat->sharded_param.data, flat->unsharded_param.data, (size_t)flat->layout.shard_numel, ncclFloat,
                               ctx->mesh.shard.comm, ctx->all_gather_stream));
        CUDA_TRY(cudaEventRecord(flat->all_gather_done, ctx->all_gather_stream));
    }
    flat_set_views(flat);
    flat->state = FLAT_UNSHARDING;
    return OK;
}

// ==== backward.c
Status fsdp_begin_grad(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->unsharded_grad.data != NULL)
        return fail(ERR_ARGUMENT, "%s: has a gradient already", flat->name);
    flat->unsharded_grad.data = flat->sharded_grad.data;
    if (flat->layout.world > 1) {
        cudaMemPool_t pool;
        int device;
        CUDA_TRY(cudaGetDevice(&device));
        CUDA_TRY(cudaDeviceGetMemPool(&pool, device));
        CUDA_TRY(cudaMallocFromPoolAsync((void **)&flat->unsharded_grad.data,
                                         (size_t)flat->layout.padded * sizeof(float), pool,
                                         ctx->compute_stream));
        CUDA_TRY(kernel_fill(flat->unsharded_grad.data, 0.0f, (size_t)flat->layout.padded, ctx->compute_stream));
    }
    flat_set_grad_views(flat);
    return OK;
}
