/* Lab 8, regrouped: what a plan costs, by the test's own simulation; and the best plans, by trying
 * all.
 */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "tests.h"

// ---- Drawn passes ----

enum { PASSES = 400 };
typedef struct Drawn {
    StepPass pass;
    StepCosts costs;
    RegroupPlan plan; // some plan of it
    int64_t limit;    // 0: none
} Drawn;

// A forward, or a backward whose first phase needs no all-gather; some units run twice, some hold
// others.
static void draw_pass(Drawn *d, int n)
{
    StepPass *pass = &d->pass;
    bool backward = draw_chance(70);
    *pass = (StepPass){.n = n};
    for (int p = 0; p != pass->n; p++) {
        StepPhase *phase = &pass->phase[p];
        *phase = (StepPhase){.unit = p,
                             .gather_bytes = draw_chance(12) ? 0 : 1000 * draw(1, 40),
                             .reduce_bytes = backward ? 1000 * draw(1, 40) : 0,
                             .compute_us = draw(0, 60),
                             .last = p};
        if (p == 0 && backward) phase->gather_bytes = 0;
        if (p == 0) phase->last = pass->n - 1;
        int again = p > 1 && draw_chance(15) ? draw(1, p - 1) : 0;
        if (again > 0 && pass->phase[again].last == again) {
            while (pass->phase[again].unit != again) again = pass->phase[again].unit;
            phase->unit = again;
            phase->gather_bytes = pass->phase[again].gather_bytes;
            for (int q = 0; q < p; q++)
                if (pass->phase[q].unit == again) phase->ready = pass->phase[q].last + 1;
        } else if (p > 0 && p + 1 < pass->n && draw_chance(15)) {
            phase->last = p + 1; // the next phase is of a unit in this one
        }
    }
    d->costs = (StepCosts){draw(0, 30), draw(500, 2500), 1, 0};
}

// What a message says of a pass and its buckets, as far as there is room.
static const char *text_of(const Drawn *d, const RegroupPlan *plan)
{
    static char text[900];
    int used = snprintf(text, sizeof text, "latency %g us, %g bytes per us; phases",
                        d->costs.latency_us, d->costs.bytes_per_us);
    for (int p = 0; p < d->pass.n && used < 700; p++) {
        const StepPhase *q = &d->pass.phase[p];
        used += snprintf(text + used, sizeof text - (size_t)used,
                         " %d: gathers %lld, reduces %lld, computes %g us, ready %d, last %d%s;", p,
                         (long long)q->gather_bytes, (long long)q->reduce_bytes, q->compute_us,
                         q->ready, q->last, plan->keeps[p] ? ", keeps" : "");
    }
    for (int b = 0; b < plan->n && used < 850; b++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s %d to %d at %d",
                         b == 0 ? " buckets" : ",", plan->bucket[b].first, plan->bucket[b].last,
                         plan->bucket[b].at);
    return text;
}

int reduced_at(const StepPass *pass, const RegroupPlan *plan, int q)
{
    int at = pass->phase[q].last;
    while (plan->keeps[at] && at < pass->n - 1) at++;
    return at;
}

// What is reduced at the end of phase p.
static int64_t reduced_bytes(const StepPass *pass, const RegroupPlan *plan, int p)
{
    int64_t bytes = 0;
    for (int q = 0; q < pass->n; q++)
        bytes += reduced_at(pass, plan, q) == p ? pass->phase[q].reduce_bytes : 0;
    return bytes;
}

// Whether every gradient is reduced before its unit runs again, where another one is complete.
static bool reduced_in_time(const StepPass *pass, const RegroupPlan *plan)
{
    for (int q = 0; q < pass->n; q++) {
        int at = reduced_at(pass, plan, q), complete = 0;
        for (int other = 0; other < pass->n; other++) {
            bool is_at = pass->phase[other].last == at;
            complete += is_at && pass->phase[other].reduce_bytes > 0;
            if (other > pass->phase[q].last && other <= at &&
                pass->phase[other].unit == pass->phase[q].unit)
                return false;
        }
        if (pass->phase[q].reduce_bytes > 0 && complete == 0) return false;
    }
    return true;
}

static int64_t bytes_of(const StepPass *pass, const RegroupBucket *b)
{
    int64_t bytes = 0;
    for (int p = b->first; p <= b->last; p++) bytes += pass->phase[p].gather_bytes;
    return bytes;
}

// Of the plan that is FSDP2's, by step_graph.h's words.
static void default_by_hand(const StepPass *pass, RegroupPlan *plan)
{
    *plan = (RegroupPlan){0};
    for (int p = 1; p < pass->n; p++)
        if (pass->phase[p].gather_bytes > 0)
            plan->bucket[plan->n++] = (RegroupBucket){p, p, p - (pass->phase[p].ready < p)};
}

// ---- The test's own time and peak: one list of calls, run one after the other ----

typedef struct Call {
    double time;
    int first, last; // phases of an all-gather
    int behind;      // it begins when this phase has ended; -1: at once
    int reduces;     // the phase that it is a reduction of; -1: it is an all-gather
} Call;

static double time_by_hand(const StepPass *pass, const StepCosts *costs, const RegroupPlan *plan)
{
    Call calls[64];
    double end[32], done[64], there[32] = {0}, reduced = 0, wire = 0;
    int n = 0, next = 0, b = 0;
    const StepPhase *phase = pass->phase;
    if (phase[0].gather_bytes > 0)
        calls[n++] = (Call){costs->latency_us + (double)phase[0].gather_bytes / costs->bytes_per_us,
                            0, 0, -1, -1};
    for (int p = 0; p != pass->n; p++) {
        for (; b < plan->n && plan->bucket[b].at <= p; b++)
            calls[n++] = (Call){costs->latency_us +
                                    (double)bytes_of(pass, &plan->bucket[b]) / costs->bytes_per_us,
                                plan->bucket[b].first, plan->bucket[b].last, p - 1, -1};
        int64_t reduces = reduced_bytes(pass, plan, p);
        if (reduces > 0)
            calls[n++] =
                (Call){costs->latency_us + (double)reduces / costs->bytes_per_us, 0, -1, p, p};
    }
    for (int p = 0; p <= pass->n; p++) {
        // All calls that wait for nothing later than phase p - 1.
        for (; next < n && calls[next].behind < p; next++) {
            double begin = calls[next].behind >= 0 ? fmax(wire, end[calls[next].behind]) : wire;
            done[next] = wire = begin + calls[next].time;
            for (int q = calls[next].first; q <= calls[next].last; q++) there[q] = wire;
            if (calls[next].reduces >= 0) reduced = wire;
        }
        if (p == pass->n) break;
        double begin = fmax(p > 0 ? end[p - 1] : 0, there[p]);
        end[p] = begin + phase[p].compute_us;
        if (reduced_bytes(pass, plan, p) > 0) end[p] = fmax(end[p], reduced);
    }
    return fmax(end[pass->n - 1], n > 0 ? done[n - 1] : 0);
}

int64_t peak_by_hand(const StepPass *pass, const RegroupPlan *plan)
{
    int64_t live[32] = {0}, most = 0;
    for (int p = 0; p <= pass->phase[0].last; p++) live[p] += pass->phase[0].gather_bytes;
    for (int b = 0; b != plan->n; b++) {
        const RegroupBucket *k = &plan->bucket[b];
        int from = k->at == k->first ? k->at - 1 : k->at;
        for (int q = k->first; q <= k->last; q++)
            for (int p = from; p <= pass->phase[q].last; p++)
                live[p] += pass->phase[q].gather_bytes;
    }
    for (int q = 0; q < pass->n; q++) {
        int freed = reduced_at(pass, plan, q) + 1; // at the end of the next reduction's phase
        while (freed < pass->n - 1 && reduced_bytes(pass, plan, freed) == 0) freed++;
        for (int p = q; p < pass->n && p <= freed; p++) live[p] += pass->phase[q].reduce_bytes;
    }
    for (int p = 0; p < pass->n; p++) most = live[p] > most ? live[p] : most;
    return most;
}

// ---- All plans ----

typedef struct Best {
    const Drawn *d;
    int64_t limit;
    RegroupPlan plan; // so far
    double time;      // the least
} Best;

static void try_buckets(Best *best, int p, int earliest)
{
    const StepPass *pass = &best->d->pass;
    while (p < pass->n && pass->phase[p].gather_bytes == 0) p++;
    if (p >= pass->n) {
        if (best->limit > 0 && peak_by_hand(pass, &best->plan) > best->limit) return;
        best->time = fmin(best->time, time_by_hand(pass, &best->d->costs, &best->plan));
        return;
    }
    for (int last = p; last < pass->n; last++) {
        if (pass->phase[last].ready > earliest) earliest = pass->phase[last].ready;
        bool own = last == p && pass->phase[p].ready == p;
        for (int at = earliest; at < p + own; at++) {
            best->plan.bucket[best->plan.n++] = (RegroupBucket){p, last, at};
            try_buckets(best, last + 1, at);
            best->plan.n--;
        }
    }
}

// All reductions that may be, each with all buckets.
static void try_all(Best *best, int p)
{
    const StepPass *pass = &best->d->pass;
    best->plan.keeps[p] = false;
    if (p >= pass->n - 1) {
        if (reduced_in_time(pass, &best->plan)) try_buckets(best, 1, 0);
        return;
    }
    try_all(best, p + 1);
    best->plan.keeps[p] = false;
    if (reduced_bytes(pass, &best->plan, p) == 0) return; // there is nothing to keep
    best->plan.keeps[p] = true;
    try_all(best, p + 1);
}

// A grouping that is drawn, each bucket at a drawn phase that it may have.
static void draw_plan(const StepPass *pass, RegroupPlan *plan)
{
    int earliest = 0;
    *plan = (RegroupPlan){0};
    for (int p = 0; p < pass->n - 1; p++) {
        plan->keeps[p] = draw_chance(30);
        plan->keeps[p] = plan->keeps[p] && reduced_in_time(pass, plan);
    }
    for (int p = 1, last; p < pass->n; p = last + 1) {
        last = draw(p, pass->n - 1 < p + 2 ? pass->n - 1 : p + 2);
        int from = earliest, ready = earliest;
        for (int q = p; q <= last; q++) {
            int of_q = pass->phase[q].gather_bytes > 0 ? pass->phase[q].ready : 0;
            if (of_q > ready && q > p && of_q >= p)
                last = q - 1;
            else
                ready = of_q > ready ? of_q : ready;
        }
        RegroupBucket b = {p, last, 0};
        if (bytes_of(pass, &b) == 0) continue;
        from = ready;
        b.at = from >= p ? p : draw(from, p - 1);
        if (from >= p) b.last = last = p;
        plan->bucket[plan->n++] = b;
        earliest = b.at;
    }
}

// The handout's example.
static void check_handout(void)
{
    static const int LAYERS[] = {1, 1, 1, 1, 1, 4};
    StepPass pass = {.n = 6};
    StepCosts costs = {2, 1000, 1, 0};
    for (int p = 0; p < 6; p++)
        pass.phase[p] = (StepPhase){
            .unit = p, .gather_bytes = 1000 * LAYERS[p], .compute_us = 2 * LAYERS[p], .last = p};
    RegroupPlan usual, pairs = {.n = 3, .bucket = {{1, 2, 0}, {3, 4, 1}, {5, 5, 3}}};
    regroup_default(&pass, &usual);
    const double want[] = {29, 25};
    const RegroupPlan *plans[] = {&usual, &pairs};
    for (int i = 0; i < 2; i++) {
        double got = regroup_time(&pass, &costs, plans[i]);
        check(fabs(got - want[i]) <= 1e-9,
              "the handout's example takes %g us, regroup_time says %g", want[i], got);
    }
}

static void costs_body(const Rank *r, void *arg)
{
    check_handout();
    for (const Drawn *d = arg; d < (const Drawn *)arg + PASSES; d++) {
        double got = regroup_time(&d->pass, &d->costs, &d->plan);
        double want = time_by_hand(&d->pass, &d->costs, &d->plan);
        check(fabs(got - want) <= 1e-6 * (1 + want),
              "a plan takes %.9g us, regroup_time says %.9g: %s", want, got, text_of(d, &d->plan));
        int64_t peak = regroup_peak(&d->pass, &d->plan), by_hand = peak_by_hand(&d->pass, &d->plan);
        check(peak == by_hand, "a plan holds %lld bytes at most, regroup_peak says %lld: %s",
              (long long)by_hand, (long long)peak, text_of(d, &d->plan));
    }
    static StepPass large = {.n = 3};
    static RegroupPlan two = {.n = 1, .bucket = {{1, 2, 0}}};
    for (int p = 0; p < 3; p++)
        large.phase[p] = (StepPhase){.gather_bytes = INT64_C(3) << 30, .last = p};
    check(regroup_peak(&large, &two) == INT64_C(9) << 30,
          "regroup_peak says that three units of 3 GiB are %lld bytes: they are counted in int64_t",
          (long long)regroup_peak(&large, &two));
}

// PASSES drawn passes of at most so many phases, short ones first, as a test names the first that
// fails; the caller frees them.
static Drawn *draw_passes(int most)
{
    Drawn *d = calloc(PASSES, sizeof *d);
    assert_non_null(d);
    for (int i = 0; i < PASSES; i++) {
        draw_pass(&d[i], 1 + i * most / PASSES);
        draw_plan(&d[i].pass, &d[i].plan);
        int64_t peak = peak_by_hand(&d[i].pass, &d[i].plan);
        d[i].limit = draw_chance(30) ? 0 : peak + draw(-3, 3) * 1000 * draw(0, 9);
        if (d[i].limit < 0) d[i].limit = 1;
    }
    drawn("%d passes of %d phases at most", PASSES, most);
    return d;
}

TEST(a_plan_has_a_time_and_a_peak)
{
    Drawn *d = draw_passes(12);
    run_ranks(1, costs_body, d);
    free(d);
}

// ---- The search ----

// Whether a bucket could be at `at`, the buckets before it being where they are.
static bool may_be(const StepPass *pass, int64_t limit, const RegroupPlan *plan, int b, int at)
{
    RegroupPlan prefix = *plan;
    prefix.n = b + 1;
    prefix.bucket[b].at = at;
    const RegroupBucket *k = &prefix.bucket[b];
    if (b > 0 && at < prefix.bucket[b - 1].at) return false;
    if (at > k->first || (at == k->first && k->last > k->first)) return false;
    for (int q = k->first; q <= k->last; q++)
        if (pass->phase[q].ready > at) return false;
    return limit == 0 || peak_by_hand(pass, &prefix) <= limit;
}

static void placed_body(const Rank *r, void *arg)
{
    for (const Drawn *d = arg; d < (const Drawn *)arg + PASSES; d++) {
        RegroupPlan plan = d->plan, want = d->plan;
        bool fits = true;
        for (int b = 0; b < plan.n && fits; b++) {
            // Going down from the last place as long as each one may be.
            int first = want.bucket[b].first, at = first;
            if (!may_be(&d->pass, d->limit, &want, b, at)) at--;
            fits = may_be(&d->pass, d->limit, &want, b, at);
            while (fits && at > 0 && may_be(&d->pass, d->limit, &want, b, at - 1)) at--;
            want.bucket[b].at = at;
        }
        if (fits && d->limit > 0) fits = peak_by_hand(&d->pass, &want) <= d->limit;
        for (int b = 0; b < plan.n; b++) plan.bucket[b].at = 77; // what is there says nothing
        bool got = regroup_place(&d->pass, d->limit, &plan);
        check(got == fits, "regroup_place returns %s, must be %s: limit %lld, %s",
              got ? "true" : "false", fits ? "true" : "false", (long long)d->limit,
              text_of(d, &want));
        for (int b = 0; b < plan.n && fits; b++)
            check(
                plan.bucket[b].at == want.bucket[b].at,
                "regroup_place: bucket %d, of phases %d to %d, is queued at phase %d, must be %d: "
                "limit %lld, %s",
                b, plan.bucket[b].first, plan.bucket[b].last, plan.bucket[b].at, want.bucket[b].at,
                (long long)d->limit, text_of(d, &want));
    }
}

TEST(buckets_are_as_early_as_they_may)
{
    Drawn *d = draw_passes(12);
    run_ranks(1, placed_body, d);
    free(d);
}

static void search_body(const Rank *r, void *arg)
{
    int far = 0, better = 0, missed = 0;
    for (const Drawn *d = arg; d < (const Drawn *)arg + PASSES; d++) {
        RegroupPlan usual = {0}, plan;
        default_by_hand(&d->pass, &usual);
        int64_t limit = d->limit > 0 ? peak_by_hand(&d->pass, &usual) + d->limit / 2 : 0;
        Best best = {.d = d, .limit = limit, .time = 1e30};
        try_all(&best, 0);
        memset(&plan, 0x5A, sizeof plan);
        regroup_plan(&d->pass, &d->costs, limit, &plan);
        double took = time_by_hand(&d->pass, &d->costs, &plan);
        double before = time_by_hand(&d->pass, &d->costs, &usual);
        check(limit == 0 || plan.is_default || peak_by_hand(&d->pass, &plan) <= limit,
              "a plan holds %lld bytes, and the limit is %lld",
              (long long)peak_by_hand(&d->pass, &plan), (long long)limit);
        bool same = plan.n == usual.n;
        for (int b = 0; b < plan.n && same; b++)
            same = memcmp(&plan.bucket[b], &usual.bucket[b], sizeof plan.bucket[b]) == 0;
        for (int p = 0; p < d->pass.n; p++) same &= !plan.keeps[p];
        check(reduced_in_time(&d->pass, &plan) && !plan.keeps[d->pass.n - 1],
              "regroup_plan keeps the gradient of a unit that runs again, or the last one");
        check(!plan.is_default || same,
              "regroup_plan sets is_default, and its plan is not FSDP2's");
        check(plan.is_default || took < before,
              "a plan takes %.9g us, FSDP2's %.9g: that one is to be taken, and "
              "is_default says so",
              took, before);
        far += took > 1.02 * best.time;
        better += best.time < 0.98 * before;
        missed += plan.is_default && best.time < 0.98 * before;
    }
    check(far <= PASSES / 100 && missed <= PASSES / 20,
          "of %d drawn passes %d have a plan that is better than FSDP2's; %d times the search "
          "found none, and %d times its plan takes 2 %% more than the best",
          PASSES, better, missed, far);
}

TEST(plans_are_near_the_best)
{
    Drawn *d = draw_passes(6);
    run_ranks(1, search_body, d);
    free(d);
}
