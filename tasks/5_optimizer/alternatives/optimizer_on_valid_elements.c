/* optimizer_on_valid_elements.c: A step goes over the valid elements alone, from the last unit to
 * the first, so that padding never moves; gradients are zeroed by a kernel.
 */
// ==== optimizer.c
static int64_t valid_gradients(const FlatParam *flat)
{
    int64_t valid = flat_valid_numel(&flat->layout, flat->layout.rank);
    return valid < flat->sharded_grad.numel ? valid : flat->sharded_grad.numel;
}

Status fsdp_adamw_step_default(FsdpAdamW *opt)
{
    const AdamWConfig *c = &opt->config;
    cudaStream_t stream = opt->ctx->compute_stream;
    TRY(check_sharded(opt->root));
    int t = ++opt->t;
    for (int i = opt->n; i-- > 0;) {
        FlatParam *flat = &opt->root->units[i]->flat;
        size_t valid = (size_t)valid_gradients(flat);
        TRY(flat_zero_padding(flat, &flat->sharded_param, stream));
        if (valid == 0) continue;
        CUDA_TRY(kernel_adamw(flat->sharded_param.data, flat->sharded_grad.data, opt->m[i],
                              opt->v[i], valid, c->lr, c->beta1, c->beta2, c->eps, c->weight_decay,
                              t, stream));
    }
    return OK;
}

Status fsdp_sgd_step_default(Module *module, FsdpContext *ctx, float lr, float weight_decay)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(check_sharded(root));
    for (int i = root->n_units; i-- > 0;) {
        FlatParam *flat = &root->units[i]->flat;
        size_t valid = (size_t)valid_gradients(flat);
        TRY(flat_zero_padding(flat, &flat->sharded_param, ctx->compute_stream));
        if (valid == 0) continue;
        CUDA_TRY(kernel_sgd(flat->sharded_param.data, flat->sharded_grad.data, NULL, valid, lr,
                            0.0f, weight_decay, ctx->compute_stream));
    }
    return OK;
}

Status fsdp_zero_grad_default(Module *module, FsdpContext *ctx)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    for (int i = root->n_units; i-- > 0;) {
        const Buffer *grad = &root->units[i]->flat.sharded_grad;
        CUDA_TRY(kernel_fill(grad->data, 0.0f, (size_t)grad->numel, ctx->compute_stream));
    }
    return OK;
}
