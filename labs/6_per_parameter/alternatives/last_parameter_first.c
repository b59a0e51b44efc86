/* last_parameter_first.c: The copies go from the last parameter to the first, and a chunk is what
 * lies between two offsets; the event is recorded before the views are set.
 */
// ==== per_parameter.c
static Status copy_out(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    const FlatLayout *layout = &flat->layout;
    AllGatherState *last = &unit->root->extensions->copied_out;
    cudaStream_t stream = unit->ctx->compute_stream;
    Buffer from = flat->unsharded_param;
    if (layout->world < 2) return OK;
    TRY(layout_free_copied_out(unit->root));
    TRY(layout_alloc_param(unit, &flat->unsharded_param));
    last->buffer = from.data;
    int64_t end = layout->padded;
    for (int i = layout->n; i-- > 0;) {
        int64_t all = end - layout->offset[i];
        Buffer to = buffer_range(&flat->unsharded_param, layout->offset[i], all / layout->world);
        Buffer first = buffer_range(&from, layout->offset[i] / layout->world, to.numel);
        CUDA_TRY(cudaMemcpy2DAsync(to.data, buffer_bytes(&to), first.data,
                                   buffer_bytes(&from) / (size_t)layout->world, buffer_bytes(&to),
                                   (size_t)layout->world, cudaMemcpyDeviceToDevice, stream));
        end = layout->offset[i];
    }
    CUDA_TRY(cudaEventRecord(last->event, stream));
    flat_set_views(flat);
    if (unit->phase != FSDP_FORWARD) TRY(layout_free_copied_out(unit->root));
    return OK;
}

static Status copy_in(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    const FlatLayout *layout = &flat->layout;
    cudaStream_t stream = unit->ctx->compute_stream;
    Buffer from = flat->unsharded_grad;
    if (layout->world < 2 || from.data == NULL) return OK;
    TRY(fsdp_free_reduce_scatter(unit->root));
    TRY(layout_alloc_grad(unit, &flat->unsharded_grad));
    int64_t end = layout->world * layout->grad_numel;
    cudaError_t copied = cudaSuccess;
    for (int i = layout->n; i-- > 0 && copied == cudaSuccess;) {
        if (layout->offset[i] >= end) continue;
        Buffer chunk =
            buffer_range(&from, layout->offset[i], (end - layout->offset[i]) / layout->world);
        Buffer to =
            buffer_range(&flat->unsharded_grad, layout->offset[i] / layout->world, chunk.numel);
        copied = cudaMemcpy2DAsync(to.data, buffer_bytes(&from) / (size_t)layout->world, chunk.data,
                                   buffer_bytes(&chunk), buffer_bytes(&chunk),
                                   (size_t)layout->world, cudaMemcpyDeviceToDevice, stream);
        end = layout->offset[i];
    }
    CUDA_TRY(cudaFreeAsync(from.data, stream));
    CUDA_TRY(copied);
    return OK;
}
