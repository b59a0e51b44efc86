/* moments_in_one_block.c: All moments lie in one allocation of the compute stream. */
// ==== optimizer.c
static Status create_moments(FsdpAdamW *opt)
{
    int64_t all = 0;
    float *block = NULL;
    opt->m = calloc((size_t)opt->n, sizeof *opt->m);
    opt->v = calloc((size_t)opt->n, sizeof *opt->v);
    if (opt->m == NULL || opt->v == NULL)
        return fail(ERR_MEMORY, "no host memory for the moments of %d units", opt->n);
    for (int i = 0; i < opt->n; i++) all += 2 * opt->root->units[i]->flat.sharded_grad.numel;
    size_t bytes = (size_t)all * sizeof *block;
    CUDA_TRY(cudaMallocAsync((void **)&block, bytes, opt->ctx->compute_stream));
    opt->m[0] = block; // what is to be freed, whatever comes next
    CUDA_TRY(cudaMemsetAsync(block, 0, bytes, opt->ctx->compute_stream));
    for (int i = 0; i < opt->n; i++) {
        int64_t shard_numel = opt->root->units[i]->flat.sharded_grad.numel;
        opt->m[i] = block;
        opt->v[i] = block + shard_numel;
        block += 2 * shard_numel;
    }
    return OK;
}

void fsdp_adamw_destroy_default(FsdpAdamW *opt)
{
    if (opt->m != NULL && opt->m[0] != NULL) cudaFreeAsync(opt->m[0], opt->ctx->compute_stream);
    free(opt->m);
    free(opt->v);
    memset(opt, 0, sizeof *opt);
}
