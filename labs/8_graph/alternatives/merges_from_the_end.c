/* merges_from_the_end.c: The search goes on down to one bucket, and looks for the best plan among
 * all that it has kept; and a bucket is placed by trying phases from the first on.
 */
// ==== regroup.c
bool regroup_place(const StepPass *pass, int64_t limit_bytes, RegroupPlan *plan)
{
    RegroupPlan so_far = *plan;
    so_far.n = 0;
    if (limit_bytes > 0 && regroup_peak(pass, &so_far) > limit_bytes) return false;
    int earliest = 0;
    for (int b = 0; b < plan->n; b++) {
        RegroupBucket k = plan->bucket[b];
        for (int q = k.first; q <= k.last; q++)
            if (pass->phase[q].ready > earliest) earliest = pass->phase[q].ready;
        bool placed = false;
        int latest = k.last > k.first || earliest < k.first ? k.first - 1 : k.first;
        so_far.n = b + 1;
        for (k.at = earliest; k.at <= latest && !placed; k.at++) {
            so_far.bucket[b] = k;
            placed = limit_bytes == 0 || regroup_peak(pass, &so_far) <= limit_bytes;
        }
        if (!placed) return false;
        earliest = so_far.bucket[b].at;
    }
    for (int b = 0; b < plan->n; b++) plan->bucket[b].at = so_far.bucket[b].at;
    return true;
}

void regroup_plan(const StepPass *pass, const StepCosts *costs, int64_t limit_bytes,
                  RegroupPlan *plan)
{
    regroup_default(pass, plan);
    double usual = regroup_time(pass, costs, plan), least = usual;
    RegroupPlan best = *plan, tried = *plan;
    Quickest from = {0}, next;
    if (regroup_place(pass, limit_bytes, &tried))
        add_plan(&from, &tried, regroup_time(pass, costs, &tried));
    for (; from.n > 0; from = next) {
        if (from.time[0] < least * (1 - LEAST_GAIN)) {
            least = from.time[0];
            best = from.plan[0];
        }
        next = (Quickest){0};
        for (int k = from.n - 1; k >= 0; k--) {
            for (int p = pass->n - 2; p >= 0; p--) {
                tried = from.plan[k];
                if (keep(pass, &tried, p) && regroup_place(pass, limit_bytes, &tried))
                    add_plan(&next, &tried, regroup_time(pass, costs, &tried));
            }
            for (int b = from.plan[k].n - 2; b >= 0; b--) {
                tried = from.plan[k];
                merge(&tried, b);
                if (regroup_place(pass, limit_bytes, &tried))
                    add_plan(&next, &tried, regroup_time(pass, costs, &tried));
            }
        }
    }
    if (least == usual) return;
    *plan = best;
    plan->is_default = false;
}
