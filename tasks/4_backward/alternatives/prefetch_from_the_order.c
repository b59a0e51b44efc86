/* prefetch_from_the_order.c: The pre-backward hook looks up what to prefetch in the root's order
 * itself, queues it before its own unit's wait, and begins the gradient first of all.
 */
// ==== backward.c
// The unit whose forward ended just before the latest one of this unit; NULL where there is none.
static FsdpUnit *ended_before(FsdpUnit *unit)
{
    if (unit->n_indices == 0) return NULL;
    unit->n_indices--;
    int index = unit->post_forward_indices[unit->n_indices];
    return index == 0 ? NULL : unit->root->post_forward_order[index - 1];
}

Status fsdp_pre_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;
    unit->phase = FSDP_PRE_BACKWARD;
    if (root->iter_backward_root == NULL) root->iter_backward_root = unit;

    TRY(fsdp_begin_grad(unit));
    TRY(fsdp_free_all_gather(root));
    TRY(fsdp_unshard(unit));
    FsdpUnit *next = ended_before(unit);
    if (next != NULL) TRY(fsdp_unshard(next));
    return fsdp_wait_for_unshard(unit);
}
