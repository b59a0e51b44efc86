/* merges_from_the_end.c: The search keeps the quickest plan of all merges down to one bucket, and
 * places a bucket by trying phases from the first on.
 */
// ==== regroup.c
bool regroup_place(const StepPass *pass, int64_t limit_bytes, RegroupPlan *plan)
{
    RegroupPlan so_far = {0};
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
    return limit_bytes == 0 || regroup_peak(pass, plan) <= limit_bytes;
}

void regroup_plan(const StepPass *pass, const StepCosts *costs, int64_t limit_bytes,
                  RegroupPlan *plan)
{
    regroup_default(pass, plan);
    double usual = regroup_time(pass, costs, plan), least = usual;
    RegroupPlan from = *plan, best = *plan;
    bool more = regroup_place(pass, limit_bytes, &from);
    if (more) put_off(pass, costs, &from);
    while (more) {
        double time = regroup_time(pass, costs, &from), quickest = 0;
        if (time < least * (1 - LEAST_GAIN)) {
            least = time;
            best = from;
        }
        RegroupPlan next = from;
        more = false;
        for (int b = from.n - 2; b >= 0; b--) {
            RegroupPlan tried = from;
            merge(&tried, b);
            if (!regroup_place(pass, limit_bytes, &tried)) continue;
            double t = put_off(pass, costs, &tried);
            if (more && t >= quickest) continue;
            quickest = t;
            next = tried;
            more = true;
        }
        from = next;
    }
    if (least == usual) return;
    *plan = best;
    plan->is_default = false;
}
