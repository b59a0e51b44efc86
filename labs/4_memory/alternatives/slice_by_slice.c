/* slice_by_slice.c: The copy before this one is freed when the all-gather is queued already; AdamW
 * and the norm go through a shard in slices, the last unit first; what is zero is put there before
 * it is known whether the host has anything.
 */
// ==== offload.c
Status offload_all_gather(FsdpUnit *unit)
{
    OffloadState *state = unit->root->extensions->offload;
    FlatParam *flat = &unit->flat;
    OffloadUnit *own = offload_of(unit);
    void *copy;
    TRY(offload_alloc(unit, false, &copy, state->to_device));
    flat->sharded_param.data = copy;
    CUDA_TRY(cudaMemcpyAsync(copy, own->param, buffer_bytes(&flat->sharded_param),
                             cudaMemcpyHostToDevice, state->to_device));
    CUDA_TRY(cudaEventRecord(state->copied, state->to_device));
    CUDA_TRY(cudaStreamWaitEvent(unit->ctx->all_gather_stream, state->copied, 0));
    TRY(gather(unit));
    TRY(free_param(state));
    flat->sharded_param.data = own->param;
    state->param.buffer = copy;
    CUDA_TRY(cudaEventRecord(state->param.event, unit->ctx->all_gather_stream));
    return OK;
}

Status offload_adamw_step(FsdpAdamW *opt)
{
    enum { SLICE = 100 };
    const AdamWConfig *c = &opt->config;
    opt->t = opt->t + 1;
    for (int i = opt->n - 1; i >= 0; i--) {
        const FlatParam *flat = &opt->root->units[i]->flat;
        float *p = flat->sharded_param.data, *g = flat->sharded_grad.data;
        int64_t n = flat_valid_numel(&flat->layout, flat->layout.rank);
        for (int64_t at = 0; at < n; at += SLICE) {
            size_t now = (size_t)(n - at < SLICE ? n - at : SLICE);
            host_adamw(p + at, g + at, opt->m[i] + at, opt->v[i] + at, now, c->lr, c->beta1,
                       c->beta2, c->eps, c->weight_decay, opt->t);
        }
    }
    return OK;
}

Status offload_begin_grad(FsdpUnit *unit)
{
    OffloadUnit *own = offload_of(unit);
    size_t bytes = buffer_bytes(&unit->flat.sharded_grad);
    cudaStream_t stream = offload_grad_stream(unit);
    void *place;
    TRY(offload_alloc(unit, true, &place, stream));
    unit->flat.sharded_grad.data = place;
    CUDA_TRY(cudaMemsetAsync(place, 0, bytes, stream));
    if (!own->has_grad) return OK;
    CUDA_TRY(cudaStreamWaitEvent(stream, unit->root->extensions->offload->arrived, 0));
    CUDA_TRY(cudaMemcpyAsync(place, own->grad, bytes, cudaMemcpyHostToDevice, stream));
    return OK;
}
