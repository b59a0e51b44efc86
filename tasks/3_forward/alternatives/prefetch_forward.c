/* prefetch_forward.c: In the forward, a unit's hook also queues the all-gather of the unit that
 * comes next, before the unit's own layers run.
 */
// ==== forward.c
// The unit that comes after this one in a walk, which is the order in which forwards begin; NULL
// where there is none, or where not the root runs but a part of it.
static FsdpUnit *unit_after(const FsdpUnit *unit)
{
    const FsdpRoot *root = unit->root;
    if (root->iter_forward_root != root->units[0]) return NULL;
    for (int i = 0; i + 1 < root->n_units; i++)
        if (root->units[i] == unit) return root->units[i + 1];
    return NULL;
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
    TRY(fsdp_unshard(unit)); // queued already, apart from the root's
    TRY(fsdp_free_all_gather(root));
    TRY(fsdp_wait_for_unshard(unit));
    FsdpUnit *next = unit_after(unit);
    return next == NULL ? OK : fsdp_unshard(next);
}
