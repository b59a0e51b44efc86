/* peak_by_changes.c: The peak from what comes and goes with each phase, and the time with one loop
 * for the buckets of a phase.
 */
// ==== regroup.c
int64_t regroup_peak(const StepPass *pass, const RegroupPlan *plan)
{
    int64_t change[STEP_MOST_PHASES + 1] = {0}, bytes = 0, most = 0;
    int64_t reduces[STEP_MOST_PHASES], reduced = 0;
    regroup_reductions(pass, plan, reduces);
    for (int p = 0; p < pass->n; p++) {
        change[p] += pass->phase[p].reduce_bytes;
        if (reduces[p] == 0) continue;
        change[p + 1] -= reduced;
        reduced = reduces[p];
    }
    change[0] += pass->n > 0 ? pass->phase[0].gather_bytes : 0;
    if (pass->n > 0) change[pass->phase[0].last + 1] -= pass->phase[0].gather_bytes;
    for (int b = 0; b < plan->n; b++) {
        const RegroupBucket *k = &plan->bucket[b];
        for (int q = k->first; q <= k->last; q++) {
            change[k->at == k->first ? k->at - 1 : k->at] += pass->phase[q].gather_bytes;
            change[pass->phase[q].last + 1] -= pass->phase[q].gather_bytes;
        }
    }
    for (int p = 0; p < pass->n; p++) {
        bytes += change[p];
        if (bytes > most) most = bytes;
    }
    return most;
}

double regroup_time(const StepPass *pass, const StepCosts *costs, const RegroupPlan *plan)
{
    double wire = 0, end = 0, reduced = 0, there[STEP_MOST_PHASES] = {0};
    int64_t reduces[STEP_MOST_PHASES];
    int b = 0;
    regroup_reductions(pass, plan, reduces);
    if (pass->n > 0 && pass->phase[0].gather_bytes > 0)
        wire = there[0] = call_time(costs, pass->phase[0].gather_bytes);
    for (int p = 0; p < pass->n; p++) {
        while (b < plan->n && plan->bucket[b].at == p) {
            int64_t bytes = 0;
            for (int q = plan->bucket[b].first; q <= plan->bucket[b].last; q++)
                bytes += pass->phase[q].gather_bytes;
            if (wire < end) wire = end;
            wire += costs->latency_us + (double)bytes / costs->bytes_per_us;
            for (int q = plan->bucket[b].first; q <= plan->bucket[b].last; q++) there[q] = wire;
            b++;
        }
        if (end < there[p]) end = there[p];
        end += pass->phase[p].compute_us;
        if (reduces[p] == 0) continue;
        if (end < reduced) end = reduced;
        if (wire < end) wire = end;
        wire += call_time(costs, reduces[p]);
        reduced = wire;
    }
    return wire > end ? wire : end;
}

Status regroup_begin(RegroupState *state, int k, FsdpUnit *unit)
{
    const FsdpRoot *root = state->root;
    const FsdpUnit *outermost = k == 0 ? root->iter_forward_root : root->iter_backward_root;
    const StepPass *pass = &state->pass[k];
    RegroupPlan *plan = &state->plan[k];
    if (outermost == unit) {
        state->follows[k] = true;
        state->phase[k] = 0;
    }
    int p = state->phase[k];
    state->phase[k] = p + 1;
    state->follows[k] = state->follows[k] && p < pass->n && pass->phase[p].unit >= 0 &&
                        root->units[pass->phase[p].unit] == unit;
    if (!state->follows[k]) return OK;
    for (int b = 0; b < plan->n && plan->bucket[b].at <= p; b++)
        if (plan->bucket[b].at == p && plan->bucket[b].first > p)
            TRY(gather_bucket(state, pass, &plan->bucket[b]));
    return OK;
}
