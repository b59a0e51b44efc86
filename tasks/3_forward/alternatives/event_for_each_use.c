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

Status fsdp_pre_forward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;
    FsdpContext *ctx = unit->ctx;
    unit->phase = FSDP_FORWARD;
    if (root->iter_forward_root == NULL) {
        fsdp_begin_forward(unit);
        TRY(stream_wait_stream(ctx, ctx->all_gather_stream, ctx->compute_stream));
    }
    TRY(fsdp_unshard(unit));
    TRY(fsdp_wait_for_unshard(unit)); // before the free, for which the all-gather stream waits
    TRY(fsdp_free_all_gather(root));
    return OK;
}

// ==== backward.c
Status fsdp_reduce_grad_default(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    ReduceScatterState *state = &unit->root->reduce_scatter_state;
    if (flat->unsharded_grad.numel == 0) return OK;
    void *buffer = flat->unsharded_grad.data;
    if (buffer == NULL) return fail(ERR_ARGUMENT, "%s: no gradient to reduce", flat->name);
    if (mesh_size(&ctx->mesh) > 1) {
        cudaEvent_t written;
        CUDA_TRY(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
        CUDA_TRY(cudaEventRecord(written, ctx->compute_stream));
        CUDA_TRY(cudaStreamWaitEvent(ctx->reduce_scatter_stream, written, 0));
        CUDA_TRY(cudaEventDestroy(written));
        TRY(fsdp_free_reduce_scatter(unit->root));
        TRY(unit->reduce_scatter(unit));
        TRY(flat_zero_padding(flat, &flat->sharded_grad, ctx->reduce_scatter_stream));
        CUDA_TRY(cudaEventRecord(state->event, ctx->reduce_scatter_stream));
        state->buffer = buffer;
    }
    flat->unsharded_grad.data = NULL;
    flat_set_grad_views(flat);
    return OK;
}
