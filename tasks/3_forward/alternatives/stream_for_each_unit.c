/* stream_for_each_unit.c: In the forward each unit is gathered on a stream of its own, which is in
 * ctx->all_gather_stream's place while the unit's hook runs, and is destroyed after it.
 */
// ==== forward.c
// What the all-gather stream has waited for, the optimizer's writes, `own` has to wait for too.
static Status begin_stream(FsdpContext *ctx, cudaStream_t *own)
{
    CUDA_TRY(cudaStreamCreateWithFlags(own, cudaStreamNonBlocking));
    return stream_wait_stream(ctx, *own, ctx->all_gather_stream);
}

Status fsdp_pre_forward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;
    FsdpContext *ctx = unit->ctx;
    cudaStream_t shared = ctx->all_gather_stream, own;
    unit->phase = FSDP_FORWARD;
    if (root->iter_forward_root == NULL) {
        fsdp_begin_forward(unit);
        TRY(stream_wait_stream(ctx, shared, ctx->compute_stream));
    }
    TRY(begin_stream(ctx, &own));
    ctx->all_gather_stream = own;
    Status status = fsdp_unshard(unit);
    if (status == OK) status = fsdp_free_all_gather(root);
    ctx->all_gather_stream = shared;
    if (status == OK) status = fsdp_wait_for_unshard(unit);
    CUDA_TRY(cudaStreamDestroy(own));
    return status;
}
