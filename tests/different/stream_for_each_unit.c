/* stream_for_each_unit.c: In the forward each unit is gathered on a stream of its own, which is in
 * ctx->gather's place while the unit's hook runs, and goes when its work is done.
 */
// ==== forward.c
// What the gather stream has waited for, the optimizer's writes, `own` has to wait for too.
static Status begin_stream(FsdpContext *ctx, cudaStream_t *own)
{
    CUDA_TRY(cudaStreamCreateWithFlags(own, cudaStreamNonBlocking));
    return wait_for(ctx, *own, ctx->gather);
}

Status fsdp_pre_forward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpContext *ctx = unit->ctx;
    cudaStream_t shared = ctx->gather, own;
    if (unit->is_root) {
        ctx->n_order = 0;
        TRY(wait_for(ctx, ctx->gather, ctx->compute));
    }
    TRY(note_order(unit));
    TRY(begin_stream(ctx, &own));
    ctx->gather = own;
    Status status = fsdp_unshard(unit);
    if (status == OK) status = fsdp_release_gather(ctx);
    ctx->gather = shared;
    if (status == OK) status = fsdp_wait(unit);
    CUDA_TRY(cudaStreamDestroy(own));
    return status;
}
