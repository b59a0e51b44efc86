/* Lab 8, second half: which all-gathers travel together, and when.
 *
 * A call costs its latency, whatever it carries. Where units are small or ranks many, a step's
 * all-gathers are mostly latency: two in one call save one. But a call is done when all of it is
 * done, and the first unit waits for the last one's bytes; and what is gathered early is held
 * longer. So it depends on the model, the machine and the memory: no rule of thumb, but a search.
 *
 *     one by one   α AG 1 | α AG 2 | α AG 3 |        in two calls   α AG 1 | α AG 2 3  |
 *                         | 1      | 2      | 3                            | 1         | 2 | 3
 *
 * A compiler does this on its graph of a step. Here the record of a step is enough: which units run
 * in which order, and what each gathers. The plan is data. Nothing of the units knows it; a hook
 * per phase asks it which calls to queue.
 *
 * [Note: one order] An all-gather is a collective, and a plan decides in which calls it comes. So a
 * plan depends on nothing that ranks have otherwise: not on measured times, not on addresses.
 *
 * [Note: after the group] The calls of a group are queued when it ends, ncclGroupEnd, on their
 * streams. What is queued on those streams between ncclGroupStart and there comes before them: an
 * event that is recorded there says nothing of them.
 *
 * Interface:
 *   regroup_time, regroup_peak                what a plan costs
 *   regroup_place, regroup_plan               when, and which ones
 *   regroup_gather, regroup_begin             a bucket on the streams
 */
// Lab 8. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is labs/8_graph/handout.md; `make grade LAB=8` says how far you are.
#include "step_graph.h"

#include <string.h>

// ---- What a plan costs ----

static double later(double a, double b)
{
    return a > b ? a : b;
}

static double call_time(const StepCosts *costs, int64_t bytes)
{
    return costs->latency_us + (double)bytes / costs->bytes_per_us;
}

// The bytes of one bucket.
static int64_t bucket_bytes(const StepPass *pass, const RegroupBucket *bucket)
{
    int64_t bytes = 0;
    for (int p = bucket->first; p <= bucket->last; p++) bytes += pass->phase[p].gather_bytes;
    return bytes;
}

double regroup_time(const StepPass *pass, const StepCosts *costs, const RegroupPlan *plan)
{
    double there[STEP_MOST_PHASES] = {0}; // when a phase's all-gather is done
    // TODO L8.8: As step_graph.h says. Keep three times: when the wire is free, when a phase ended
    // last, and when what it reduced is done.
    // Hint: A bucket of two units: when are the first one's parameters there?
    NOT_YET("L8.8");
}

// The first phase during which the bucket's bytes are there.
static int there_from(const RegroupBucket *bucket)
{
    return bucket->at < bucket->first ? bucket->at : bucket->first - 1;
}

int64_t regroup_peak(const StepPass *pass, const RegroupPlan *plan)
{
    int64_t most = 0;
    // TODO L8.9: As step_graph.h says.
    // Hint: A bucket's phases come at once. Do they go at once?
    NOT_YET("L8.9");
}

// ---- The search ----

static const double LEAST_GAIN = 1e-9; // of the time: less is rounding

// Adds what phase q gathers to live[p] of each phase p from `from` on that it is there in.
static void add_live(const StepPass *pass, int q, int from, int64_t *live)
{
    for (int p = from; p <= pass->phase[q].last; p++) live[p] += pass->phase[q].gather_bytes;
}

// Whether live[begin … end - 1] and `more` bytes are within the limit.
static bool fits(const int64_t *live, int begin, int end, int64_t more, int64_t limit)
{
    for (int p = begin; p < end; p++)
        if (limit > 0 && live[p] + more > limit) return false;
    return true;
}

bool regroup_place(const StepPass *pass, int64_t limit_bytes, RegroupPlan *plan)
{
    int64_t live[STEP_MOST_PHASES] = {0}; // bytes during each phase, of the buckets so far
    // TODO L8.10: As step_graph.h says.
    // Hint: From which phase on is a bucket's place free to choose, and from which is it not?
    NOT_YET("L8.10");
}

// Bucket b and the one after it are one.
static void merge(RegroupPlan *plan, int b)
{
    plan->bucket[b].last = plan->bucket[b + 1].last;
    plan->n--;
    memmove(&plan->bucket[b + 1], &plan->bucket[b + 2],
            (size_t)(plan->n - b - 1) * sizeof *plan->bucket);
}

// Queues a bucket later where that saves time: what a backward reduces goes first. The plan's time.
static double put_off(const StepPass *pass, const StepCosts *costs, RegroupPlan *plan)
{
    double time = regroup_time(pass, costs, plan);
    for (int b = plan->n - 1; b >= 0; b--) {
        RegroupBucket *bucket = &plan->bucket[b];
        int earliest = bucket->at, best = bucket->at;
        int latest = b + 1 < plan->n ? plan->bucket[b + 1].at : bucket->first - 1;
        if (latest >= bucket->first) latest = bucket->first - 1;
        for (int at = earliest + 1; at <= latest; at++) {
            bucket->at = at;
            double t = regroup_time(pass, costs, plan);
            if (t >= time * (1 - LEAST_GAIN)) continue;
            time = t;
            best = at;
        }
        bucket->at = best;
    }
    return time;
}

void regroup_plan(const StepPass *pass, const StepCosts *costs, int64_t limit_bytes,
                  RegroupPlan *plan)
{
    regroup_default(pass, plan);
    // TODO L8.11: *plan is what the merges of step_graph.h lead to, or FSDP2's.
    // Hint: Each merge changes when all that comes after it is queued. What must be worked out
    // anew?
    NOT_YET("L8.11");
}

// ---- On the streams ----

Status regroup_gather(FsdpUnit *const *units, int n)
{
    // TODO L8.12: As step_graph.h says. fsdp_unshard queues a unit's all-gather; where it is the
    // shard (flat_param_is_shard) there is none.
    // Hint: fsdp_unshard records all_gather_done, too. What has been queued by then?
    NOT_YET("L8.12");
}

// The bucket's units that need an all-gather, by the record.
static Status gather_bucket(RegroupState *state, const StepPass *pass, const RegroupBucket *bucket)
{
    FsdpUnit *units[STEP_MOST_PHASES];
    int n = 0;
    for (int p = bucket->first; p <= bucket->last; p++)
        if (pass->phase[p].gather_bytes > 0) units[n++] = state->root->units[pass->phase[p].unit];
    return regroup_gather(units, n);
}

Status regroup_begin(RegroupState *state, int k, FsdpUnit *unit)
{
    const FsdpRoot *root = state->root;
    const StepPass *pass = &state->pass[k];
    const RegroupPlan *plan = &state->plan[k];
    // TODO L8.13: This is the next phase of the pass, whose first one the outermost forward or
    // backward is. Where its unit is not the record's, the rest of the pass gathers as its own
    // hooks do. Else the buckets of this phase are queued, in their order.
    // Hint: A forward failed in its middle. Where does the next one begin?
    NOT_YET("L8.13");
}
