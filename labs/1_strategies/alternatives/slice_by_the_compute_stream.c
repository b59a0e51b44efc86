/* slice_by_the_compute_stream.c: The slice is copied on the compute stream, before the event that
 * reshard records there: the all-gather stream waits for that one before it frees the parameters,
 * which is before the backward's first all-gather.
 */
// ==== slices.c
Status strategy_post_forward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    StrategyState *state = unit->root->extensions->strategy;
    if (!state->training) return fsdp_post_forward(module, unit);
    Buffer *slice = slice_of(unit);
    int64_t n = unit->flat.layout.padded / state->slice_group.size;
    *slice = buffer_range(&unit->flat.unsharded_param, n * state->slice_group.rank, n);
    const void *from = slice->data;
    CUDA_TRY(cudaMallocAsync(&slice->data, buffer_bytes(slice), unit->ctx->compute_stream));
    CUDA_TRY(cudaMemcpyAsync(slice->data, from, buffer_bytes(slice), cudaMemcpyDeviceToDevice,
                             unit->ctx->compute_stream));
    return fsdp_post_forward(module, unit);
}
