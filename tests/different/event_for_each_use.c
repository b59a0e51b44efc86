/* event_for_each_use.c: Where one stream waits for another, an event is made for it and destroyed
 * at once; a device keeps what a wait still needs.
 */
// ==== forward.c
static Status stream_wait_stream(FsdpContext *ctx, cudaStream_t waiter, cudaStream_t worker)
{
    cudaEvent_t event;
    CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUDA_TRY(cudaEventRecord(event, worker));
    CUDA_TRY(cudaStreamWaitEvent(waiter, event, 0));
    CUDA_TRY(cudaEventDestroy(event));
    return OK;
}

Status fsdp_wait_for_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    if (flat->state == FLAT_SHARDED)
        return fail(ERR_ARGUMENT, "%s: nothing to wait for: it is sharded", flat->name);
    // Behind the all-gather stands nothing on the gather stream that would take long.
    if (flat->state == FLAT_UNSHARDING && flat->layout.world > 1)
        TRY(stream_wait_stream(unit->ctx, unit->ctx->compute_stream, unit->ctx->all_gather_stream));
    flat->state = FLAT_UNSHARDED;
    return OK;
}

Status fsdp_pre_forward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpContext *ctx = unit->ctx;
    if (unit->is_root) {
        ctx->n_order = 0;
        TRY(stream_wait_stream(ctx, ctx->all_gather_stream, ctx->compute_stream));
    }
    TRY(record_post_forward(unit));
    TRY(fsdp_unshard(unit));
    TRY(fsdp_wait_for_unshard(unit)); // before the release, which makes the gather stream wait for compute
    TRY(fsdp_free_all_gather(ctx));
    return OK;
}

// ==== backward.c
Status fsdp_reduce_grad(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->unsharded_grad.data == NULL) return fail(ERR_ARGUMENT, "%s: no gradient to reduce", flat->name);
    float *whole = flat->unsharded_grad.data;
    flat_set_grad_views(flat);
    if (flat->layout.world > 1) {
        cudaEvent_t written;
        CUDA_TRY(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
        CUDA_TRY(cudaEventRecord(written, ctx->compute_stream));
        CUDA_TRY(cudaStreamWaitEvent(ctx->reduce_scatter_stream, written, 0));
        CUDA_TRY(cudaEventDestroy(written));
        TRY(fsdp_free_reduce_scatter(ctx));
        TRY(reduce_average(unit));
        CUDA_TRY(cudaEventRecord(ctx->reduce_scatter_state.event, ctx->reduce_scatter_stream));
        ctx->reduce_scatter_state.buffer = whole;
    }
    flat->unsharded_grad.data = NULL;
    return OK;
}
