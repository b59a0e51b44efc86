/* event_for_each_use.c: Where one stream waits for another, an event is made for it and destroyed
 * at once; a device keeps what a wait still needs.
 */
// ==== forward.c
static Status wait_for(FsdpContext *ctx, cudaStream_t waiter, cudaStream_t worker)
{
    cudaEvent_t event;
    CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUDA_TRY(cudaEventRecord(event, worker));
    CUDA_TRY(cudaStreamWaitEvent(waiter, event, 0));
    CUDA_TRY(cudaEventDestroy(event));
    return OK;
}

Status fsdp_wait(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    if (flat->state == FLAT_SHARDED)
        return fail(ERR_ARGUMENT, "%s: nothing to wait for: it is sharded", flat->name);
    // Behind the all-gather stands nothing on the gather stream that would take long.
    if (flat->state == FLAT_UNSHARDING && flat->world > 1)
        TRY(wait_for(unit->ctx, unit->ctx->compute, unit->ctx->gather));
    flat->state = FLAT_UNSHARDED;
    return OK;
}

Status fsdp_pre_forward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpContext *ctx = unit->ctx;
    if (unit->is_root) {
        ctx->n_order = 0;
        TRY(wait_for(ctx, ctx->gather, ctx->compute));
    }
    TRY(note_order(unit));
    TRY(fsdp_unshard(unit));
    TRY(fsdp_wait(unit)); // before the release, which makes the gather stream wait for compute
    TRY(fsdp_release_gather(ctx));
    return OK;
}

// ==== backward.c
Status fsdp_reduce_grad(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->full_grad == NULL) return fail(ERR_ARGUMENT, "%s: no gradient to reduce", flat->name);
    float *whole = flat->full_grad;
    flat_attach_grad(flat, NULL);
    if (flat->world > 1) {
        cudaEvent_t written;
        CUDA_TRY(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
        CUDA_TRY(cudaEventRecord(written, ctx->compute));
        CUDA_TRY(cudaStreamWaitEvent(ctx->reduce, written, 0));
        CUDA_TRY(cudaEventDestroy(written));
        TRY(fsdp_release_reduce(ctx));
        TRY(reduce_average(unit));
        CUDA_TRY(cudaEventRecord(ctx->old_reduce.event, ctx->reduce));
        ctx->old_reduce.buffer = whole;
    }
    flat->full_grad = NULL;
    return OK;
}
