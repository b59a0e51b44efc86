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
    if (flat->world == 1) {
        flat->full = flat->shard;
    } else {
        TRY(from_pool(&flat->full, (size_t)flat->padded * sizeof(float), ctx->gather));
        NCCL_TRY(ncclAllGather(flat->shard, flat->full, (size_t)flat->shard_numel, ncclFloat,
                               ctx->comm, ctx->gather));
        CUDA_TRY(cudaEventRecord(flat->gathered, ctx->gather));
    }
    flat_attach(flat, flat->full);
    flat->state = FLAT_UNSHARDING;
    return OK;
}

// ==== backward.c
Status fsdp_begin_grad(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->full_grad != NULL)
        return fail(ERR_ARGUMENT, "%s: has a gradient already", flat->name);
    flat->full_grad = flat->shard_grad;
    if (flat->world > 1) {
        cudaMemPool_t pool;
        int device;
        CUDA_TRY(cudaGetDevice(&device));
        CUDA_TRY(cudaDeviceGetMemPool(&pool, device));
        CUDA_TRY(cudaMallocFromPoolAsync((void **)&flat->full_grad,
                                         (size_t)flat->padded * sizeof(float), pool,
                                         ctx->compute));
        CUDA_TRY(kernel_fill(flat->full_grad, 0.0f, (size_t)flat->padded, ctx->compute));
    }
    flat_attach_grad(flat, flat->full_grad);
    return OK;
}
