/* counts_what_is_bad.c: Gradients are divided before they are searched, which changes nothing of
 * what is not finite; the ranks add up what they found; the scale's next value is worked out first.
 */
// ==== loss_scale.c
static Status check_and_unscale(LossScaler *scaler)
{
    const FsdpRoot *root = scaler->root;
    cudaStream_t stream = root->ctx->compute_stream;
    for (int i = root->n_units - 1; i >= 0; i--) {
        const Buffer *grad = &root->units[i]->flat.sharded_grad;
        CUDA_TRY(kernel_scale(grad->data, 1.0f / scaler->scale, (size_t)grad->numel, stream));
    }
    CUDA_TRY(cudaMemsetAsync(scaler->found, 0, sizeof *scaler->found, stream));
    for (int i = 0; i < root->n_units; i++) {
        const Buffer *grad = &root->units[i]->flat.sharded_grad;
        CUDA_TRY(
            kernel_check_finite(scaler->found, DTYPE_F32, grad->data, (size_t)grad->numel, stream));
    }
    return OK;
}

Status loss_scaler_unscale(LossScaler *scaler)
{
    const FsdpContext *ctx = scaler->root->ctx;
    if (scaler->unscaled)
        return fail(ERR_ARGUMENT, "the gradients of this step are unscaled already, once");
    scaler->unscaled = true;
    TRY(check_and_unscale(scaler));
    if (ctx->mesh.shard.size != 1)
        NCCL_TRY(ncclAllReduce(scaler->found, scaler->found, 1, ncclInt32, ncclSum,
                               ctx->mesh.shard.comm, ctx->compute_stream));
    CUDA_TRY(cudaMemcpyAsync(scaler->host, scaler->found, sizeof *scaler->found,
                             cudaMemcpyDeviceToHost, ctx->compute_stream));
    CUDA_TRY(cudaStreamSynchronize(ctx->compute_stream));
    scaler->found_inf = *scaler->host > 0;
    return OK;
}

Status loss_scaler_update(LossScaler *scaler)
{
    if (!scaler->unscaled)
        return fail(ERR_ARGUMENT, "nothing was unscaled: loss_scaler_unscale comes first");
    bool grows = !scaler->found_inf && scaler->growth_tracker + 1 >= scaler->growth_interval;
    float factor = scaler->found_inf ? scaler->backoff_factor : grows ? scaler->growth_factor : 1;
    float next = scaler->scale * factor;
    scaler->growth_tracker = scaler->found_inf || grows ? 0 : scaler->growth_tracker + 1;
    scaler->scale = isfinite(next) ? next : scaler->scale;
    scaler->found_inf = scaler->unscaled = scaler->stepped = false;
    return OK;
}
