/* adds_to_zeros.c: The buffer of the reduction begins as zeros, to which every backward adds; a
 * shard is cast in two pieces; the number that fp16 is divided by is found by remainders.
 */
// ==== mixed_precision.c
Status precision_all_gather(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    cudaStream_t stream = unit->ctx->all_gather_stream;
    int64_t n = flat->layout.shard_numel, piece = n / 2;
    Buffer own = buffer_range(&flat->unsharded_param, flat->layout.rank * n, n);
    for (int64_t at = 0; at<n; at += piece> 0 ? piece : n) {
        int64_t now = piece > 0 && n - at > piece ? piece : n - at;
        Buffer to = buffer_range(&own, at, now), from = buffer_range(&flat->sharded_param, at, now);
        CUDA_TRY(kernel_cast(to.dtype, to.data, from.dtype, from.data, (size_t)now, stream));
    }
    if (flat->layout.world == 1) return OK;
    NCCL_TRY(ncclAllGather(own.data, flat->unsharded_param.data, (size_t)n, dtype_nccl(own.dtype),
                           unit->ctx->mesh.shard.comm, stream));
    return OK;
}

float precision_divide_before(DType reduce_dtype, float factor)
{
    float before = 1.0f;
    if (reduce_dtype != DTYPE_F16) return before;
    while (before * before < factor && factor / before == (float)(int)(factor / before))
        before += before;
    return before;
}

Status precision_reduce_input(FsdpUnit *unit, int64_t begin, Buffer *input)
{
    const StrategyState *strategy = unit->root->extensions->strategy;
    PrecisionUnit *own = precision_of(unit);
    Buffer *written = &unit->flat.unsharded_grad;
    cudaStream_t stream = unit->ctx->compute_stream;
    int64_t n = own->left - begin;
    if (n > 0) {
        Buffer part = buffer_range(written, begin, n);
        if (written->dtype != unit->root->extensions->precision->reduce_dtype) {
            if (own->reduce.data == NULL) {
                TRY(precision_alloc_grad(unit, unit->root->extensions->precision->reduce_dtype,
                                         &own->reduce));
                CUDA_TRY(cudaMemsetAsync(own->reduce.data, 0, buffer_bytes(&own->reduce), stream));
            }
            part = buffer_range(&own->reduce, begin, n);
            Buffer from = buffer_range(written, begin, n);
            CUDA_TRY(
                kernel_add_ex(part.dtype, part.data, from.dtype, from.data, (size_t)n, stream));
        }
        float factor = strategy->requires_gradient_sync ? 1.0f / strategy->divided_before : 1.0f;
        CUDA_TRY(kernel_scale_ex(part.dtype, part.data, factor, (size_t)n, stream));
        own->left = begin;
    }
    *input = own->reduce.data != NULL ? own->reduce : *written;
    return OK;
}
