/* buckets_by_scan.c: Whether a bucket is complete is found by looking at its parameters each time,
 * and the buckets are cut parameter by parameter.
 */
// ==== ddp.c
int ddp_buckets(const FlatLayout *layout, int64_t first_bytes, int64_t bytes, Bucket *out, int max)
{
    int n = 0;
    Bucket now = {layout->n, layout->n, layout->numel, layout->numel, 0};
    for (int i = layout->n - 1; i >= 0; i--) {
        now.first = i;
        now.begin = layout->offset[i];
        now.missing++;
        bool full = 4 * (now.end - now.begin) >= (n == 0 ? first_bytes : bytes);
        if (!full && i > 0) continue;
        if (n++ < max) out[n - 1] = now;
        now = (Bucket){i, i, now.begin, now.begin, 0};
    }
    return n;
}

static bool is_complete(const Ddp *ddp, const Bucket *bucket)
{
    for (int i = bucket->first; i < bucket->last; i++)
        if (ddp->done[i] < ddp->uses[i]) return false;
    return true;
}

Status ddp_post_backward(Module *module, void *arg)
{
    StrategyState *state = arg;
    Ddp *ddp = &state->ddp;
    if (mesh_size(&state->root->ctx->mesh) == 1) return OK;
    for (int i = 0; i < module->n_params; i++)
        ddp->done[place_of(&state->root->units[0]->flat.layout, module->params[i])]++;
    if (!state->requires_gradient_sync) return OK;
    for (; ddp->next < ddp->n_buckets && is_complete(ddp, &ddp->buckets[ddp->next]);)
        TRY(send_bucket(state));
    return OK;
}
