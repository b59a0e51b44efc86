/* gradient_before_prefetch.c: The backward's gradient is begun before the next unit is gathered,
 * and the flags of a micro-batch are set by cases.
 */
// ==== strategies.c
Status strategy_micro_batch(Module *root, int i, int n)
{
    StrategyState *state;
    TRY(strategy_find(root, &state));
    if (n < 1 || i < 0 || i >= n) return fail(ERR_ARGUMENT, "micro-batch %d of %d", i, n);
    state->requires_gradient_sync = state->requires_all_reduce = true;
    state->is_last_backward = state->reshard_after_backward = true;
    if (i + 1 == n) return OK;
    state->is_last_backward = false;
    if (!state->options.reduce_every_time) state->requires_gradient_sync = false;
    if (state->options.strategy == STRATEGY_ZERO1) state->reshard_after_backward = false;
    return OK;
}

Status strategy_pre_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;
    unit->phase = FSDP_PRE_BACKWARD;
    if (root->iter_backward_root == NULL) {
        root->iter_backward_root = unit;
        TRY(fsdp_free_reduce_scatter(root));
        ddp_begin_backward(root->extensions->strategy);
    }
    bool kept = unit->flat.unsharded_grad.data != NULL;
    if (!kept) TRY(fsdp_begin_grad(unit));
    TRY(fsdp_free_all_gather(root));
    TRY(fsdp_unshard(unit));
    TRY(fsdp_wait_for_unshard(unit));
    FsdpUnit *before = fsdp_pop_post_forward(unit);
    return before == NULL ? OK : fsdp_unshard(before);
}
