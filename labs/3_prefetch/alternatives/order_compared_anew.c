/* order_compared_anew.c: Each hook compares all units that have begun with the last order, and a
 * limit is kept by adding up what is queued on the way.
 */
// ==== prefetch.c
static Status record_begin(PrefetchState *state, FsdpUnit *unit)
{
    if (unit->root->iter_forward_root == unit) state->begun.n = 0;
    TRY(prefetch_append(state, unit));
    bool same = state->begun.n <= state->order.n;
    for (int i = 0; same && i < state->begun.n; i++)
        same = state->begun.units[i] == state->order.units[i];
    state->follows = same;
    return OK;
}

static Status prefetch_units(FsdpUnit *const *units, int n, int step)
{
    int64_t flying = n > 0 ? prefetch_in_flight(units[0]->root) : 0;
    for (FsdpUnit *const *at = units; n > 0; n--, at += step) {
        int64_t limit = (*at)->root->extensions->prefetch->options.limit_bytes;
        if ((*at)->flat.state != FLAT_SHARDED) continue;
        flying += gathered_bytes(*at);
        if (limit > 0 && flying > limit) return OK;
        TRY(fsdp_unshard(*at));
    }
    return OK;
}
