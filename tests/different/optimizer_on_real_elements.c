/* optimizer_on_real_elements.c: A step goes over the real elements alone, from the last unit to the
 * first, so that padding never moves; gradients are zeroed by a kernel.
 */
// ==== optimizer.c
Status fsdp_adamw_step(FsdpAdamW *opt)
{
    const AdamWConfig *c = &opt->config;
    cudaStream_t stream = opt->ctx->compute_stream;
    int t = ++opt->t;
    for (int i = opt->n; i-- > 0;) {
        FlatParam *flat = opt->flat[i];
        size_t real = (size_t)flat_valid_numel(flat, flat->layout.rank);
        TRY(flat_zero_padding(flat, &flat->sharded_param, stream));
        if (real == 0) continue;
        CUDA_TRY(kernel_adamw(flat->sharded_param.data, flat->sharded_grad.data, opt->m[i], opt->v[i], real, c->lr,
                              c->beta1, c->beta2, c->eps, c->weight_decay, t, stream));
    }
    return OK;
}

static Status sgd_one(FlatParam *flat, FsdpContext *ctx, void *arg)
{
    const SgdConfig *c = arg;
    size_t real = (size_t)flat_valid_numel(flat, flat->layout.rank);
    TRY(flat_zero_padding(flat, &flat->sharded_param, ctx->compute_stream));
    if (real > 0)
        CUDA_TRY(kernel_sgd(flat->sharded_param.data, flat->sharded_grad.data, NULL, real, c->lr, 0.0f,
                            c->weight_decay, ctx->compute_stream));
    return OK;
}

static Status zero_one(FlatParam *flat, FsdpContext *ctx, void *arg)
{
    CUDA_TRY(kernel_fill(flat->sharded_grad.data, 0.0f, (size_t)flat->layout.shard_numel, ctx->compute_stream));
    return OK;
}
