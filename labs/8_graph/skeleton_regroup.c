/* Lab 8, second half: which collectives travel together, and when.
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
 * Interface:
 *   regroup_time, regroup_peak                what a plan costs
 *   regroup_place, regroup_plan               when, and which ones
 *   regroup_gather, regroup_reduce            a bucket on the streams
 *   regroup_begin                             the plan's next ones
 */
// Lab 8. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is labs/8_graph/handout.md; `make grade LAB=8` says how far you are.
#include "step_graph.h"

#include <string.h>

#include "kernels.h"

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
    int64_t reduces[STEP_MOST_PHASES];    // by a call at a phase's end
    regroup_reductions(pass, plan, reduces);
    // TODO L8.8: As step_graph.h says. Keep three times: when the wire is free, when a phase ended
    // last, and when the last reduction is done.
    // Hint: A bucket of two units: when are the first one's parameters there?
    NOT_YET("L8.8");
}

// The first phase during which the bucket's bytes are there.
static int there_from(const RegroupBucket *bucket)
{
    return bucket->at < bucket->first ? bucket->at : bucket->first - 1;
}

// Adds what phase q gathers to live[p] of each phase p from `from` on that it is there in.
static void add_live(const StepPass *pass, int q, int from, int64_t *live)
{
    for (int p = from; p <= pass->phase[q].last; p++) live[p] += pass->phase[q].gather_bytes;
}

// live[p]: the gradients that are there during phase p, and what phase 0 gathers.
static void live_at_first(const StepPass *pass, const RegroupPlan *plan, int64_t *live)
{
    int64_t reduces[STEP_MOST_PHASES];
    regroup_reductions(pass, plan, reduces);
    int64_t written = 0, reduced = 0;
    for (int p = 0; p < pass->n; p++) {
        written += pass->phase[p].reduce_bytes;
        live[p] = written + reduced;
        if (reduces[p] == 0) continue;
        written -= reduces[p];
        reduced = reduces[p];
    }
    if (pass->n > 0) add_live(pass, 0, 0, live);
}

int64_t regroup_peak(const StepPass *pass, const RegroupPlan *plan)
{
    int64_t live[STEP_MOST_PHASES], most = 0;
    live_at_first(pass, plan, live);
    // TODO L8.9: As step_graph.h says.
    // Hint: A bucket's parameters are allocated together. Are they freed together?
    NOT_YET("L8.9");
}

// ---- The search ----

static const double LEAST_GAIN = 1e-9; // of the time: less is rounding

// Whether live[begin … end - 1] and `more` bytes are within the limit.
static bool fits(const int64_t *live, int begin, int end, int64_t more, int64_t limit)
{
    for (int p = begin; p < end; p++)
        if (limit > 0 && live[p] + more > limit) return false;
    return true;
}

bool regroup_place(const StepPass *pass, int64_t limit_bytes, RegroupPlan *plan)
{
    int64_t live[STEP_MOST_PHASES]; // bytes during each phase, of the buckets so far
    live_at_first(pass, plan, live);
    // TODO L8.10: As step_graph.h says.
    // Hint: Between which two phases may you choose a bucket's `at`?
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

// What is reduced at the end of phase p goes with the next reduction; false where it may not.
static bool keep(const StepPass *pass, RegroupPlan *plan, int p)
{
    int next = regroup_next_reduction(pass, plan, p);
    for (int q = p; q < next; q++) plan->keeps[q] = true;
    return next >= 0;
}

// The quickest plans so far, the quickest first.
typedef struct Quickest {
    int n;
    double time[REGROUP_KEPT_PLANS];
    RegroupPlan plan[REGROUP_KEPT_PLANS];
} Quickest;

static void add_plan(Quickest *quickest, const RegroupPlan *plan, double time)
{
    int at = 0;
    for (int i = 0; i < quickest->n; i++) {
        const RegroupPlan *other = &quickest->plan[i];
        if (quickest->time[i] <= time) at = i + 1;
        if (other->n == plan->n && memcmp(other->keeps, plan->keeps, sizeof plan->keeps) == 0 &&
            memcmp(other->bucket, plan->bucket, (size_t)plan->n * sizeof *plan->bucket) == 0)
            return; // by other merges
    }
    if (at == REGROUP_KEPT_PLANS) return;
    if (quickest->n < REGROUP_KEPT_PLANS) quickest->n++;
    size_t after = (size_t)(quickest->n - at - 1);
    memmove(&quickest->plan[at + 1], &quickest->plan[at], after * sizeof *plan);
    memmove(&quickest->time[at + 1], &quickest->time[at], after * sizeof time);
    quickest->plan[at] = *plan;
    quickest->time[at] = time;
}

void regroup_plan(const StepPass *pass, const StepCosts *costs, int64_t limit_bytes,
                  RegroupPlan *plan)
{
    regroup_default(pass, plan);
    // TODO L8.11: *plan is what the rounds of step_graph.h lead to, or FSDP2's.
    // Hint: After a merge, everything that follows is queued at other times. What must be worked
    // out again?
    NOT_YET("L8.11");
}

// ---- On the streams ----

Status regroup_gather(FsdpUnit *const *units, int n)
{
    // TODO L8.12: As step_graph.h says. fsdp_unshard queues a unit's all-gather; if the unsharded
    // parameter is the shard (flat_param_is_shard), there is none.
    // Hint: fsdp_unshard records all_gather_done, too. What has been queued by then?
    NOT_YET("L8.12");
}

Status regroup_reduce(FsdpUnit *const *units, int n, float divisor, void **buffers)
{
    // TODO L8.13: As step_graph.h says: each unit's sum is in place, as part 4.3 has it.
    // Hint: unit->reduce_scatter queues a sum and a kernel that reads it. What would that kernel
    // read?
    NOT_YET("L8.13");
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
    // TODO L8.14: This is the next phase of the pass; the outermost forward or backward is its
    // first. If the record has another unit here, the units' own hooks gather for the rest of the
    // pass. Else the buckets of this phase are queued, in their order.
    // Hint: A forward failed in its middle. Where does the next one begin?
    NOT_YET("L8.14");
}
