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
    //[L8.8] As step_graph.h says. Keep three times: when the wire is free, when a phase ended last,
    //  and when the last reduction is done.
    //? A bucket of two units: when are the first one's parameters there?
    double wire = 0, end = 0, reduced = 0;
    if (pass->n > 0 && pass->phase[0].gather_bytes > 0)
        there[0] = wire = call_time(costs, pass->phase[0].gather_bytes);
    for (int p = 0, b = 0; p < pass->n; p++) {
        for (; b < plan->n && plan->bucket[b].at == p; b++) {
            const RegroupBucket *bucket = &plan->bucket[b];
            wire = later(wire, end) + call_time(costs, bucket_bytes(pass, bucket));
            for (int q = bucket->first; q <= bucket->last; q++) there[q] = wire;
        }
        end = later(end, there[p]) + pass->phase[p].compute_us;
        if (reduces[p] == 0) continue;
        end = later(end, reduced);
        reduced = wire = later(wire, end) + call_time(costs, reduces[p]);
    }
    return later(end, wire);
    //[end L8.8]
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
    //[[L8.9a] As the comment says.
    //? One gradient is reduced, and the next one is written. When is the first one's memory free?
    int64_t written = 0, reduced = 0;
    for (int p = 0; p < pass->n; p++) {
        written += pass->phase[p].reduce_bytes;
        live[p] = written + reduced;
        if (reduces[p] == 0) continue;
        written -= reduces[p];
        reduced = reduces[p];
    }
    if (pass->n > 0) add_live(pass, 0, 0, live);
    //[end L8.9a]
}

int64_t regroup_peak(const StepPass *pass, const RegroupPlan *plan)
{
    int64_t live[STEP_MOST_PHASES], most = 0;
    live_at_first(pass, plan, live);
    //[L8.9] As step_graph.h says.
    //? A bucket's parameters are allocated together. Are they freed together?
    for (int b = 0; b < plan->n; b++)
        for (int q = plan->bucket[b].first; q <= plan->bucket[b].last; q++)
            add_live(pass, q, there_from(&plan->bucket[b]), live);
    for (int p = 0; p < pass->n; p++)
        if (live[p] > most) most = live[p];
    return most;
    //[end L8.9]
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
    //[L8.10] As step_graph.h says.
    //? Between which two phases may you choose a bucket's `at`?
    int earliest = 0;
    if (!fits(live, 0, pass->n, 0, limit_bytes)) return false;
    for (int b = 0; b < plan->n; b++) {
        RegroupBucket *bucket = &plan->bucket[b];
        int64_t bytes = bucket_bytes(pass, bucket);
        for (int q = bucket->first; q <= bucket->last; q++) {
            if (pass->phase[q].ready > earliest) earliest = pass->phase[q].ready;
            add_live(pass, q, bucket->first, live);
        }
        int latest = bucket->first - 1;
        if (!fits(live, bucket->first, pass->n, 0, limit_bytes) ||
            !fits(live, latest, latest + 1, bytes, limit_bytes))
            return false;
        if (earliest > bucket->first - (bucket->last > bucket->first)) return false;
        bucket->at = earliest > latest ? earliest : latest;
        while (bucket->at > earliest && fits(live, bucket->at - 1, bucket->at, bytes, limit_bytes))
            bucket->at--;
        for (int p = there_from(bucket); p < bucket->first; p++) live[p] += bytes;
        earliest = bucket->at;
    }
    return true;
    //[end L8.10]
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
    //[L8.11] *plan is what the rounds of step_graph.h lead to, or FSDP2's.
    //? After a merge, everything that follows is queued at other times. What must be worked
    //  out again?
    double usual = regroup_time(pass, costs, plan), time;
    RegroupPlan best = *plan;
    Quickest rounds[2] = {{0}};
    if (!regroup_place(pass, limit_bytes, &best)) return;
    add_plan(&rounds[0], &best, regroup_time(pass, costs, &best));
    for (int round = 1;; round++) {
        const Quickest *from = &rounds[(round - 1) % 2];
        Quickest *merged = &rounds[round % 2];
        best = from->plan[0];
        time = from->time[0];
        merged->n = 0;
        for (const RegroupPlan *of = from->plan; of < from->plan + from->n; of++)
            for (int i = 0; i < of->n - 1 + pass->n; i++) { // pairs of buckets, then of reductions
                RegroupPlan tried = *of;
                if (i < of->n - 1)
                    merge(&tried, i);
                else if (!keep(pass, &tried, i - (of->n - 1)))
                    continue;
                if (!regroup_place(pass, limit_bytes, &tried)) continue;
                add_plan(merged, &tried, regroup_time(pass, costs, &tried));
            }
        if (merged->n == 0 || merged->time[0] >= time * (1 - LEAST_GAIN)) break;
    }
    if (time >= usual * (1 - LEAST_GAIN)) return;
    *plan = best;
    plan->is_default = false;
    //[end L8.11]
}

// ---- On the streams ----

Status regroup_gather(FsdpUnit *const *units, int n)
{
    //[L8.12] As step_graph.h says. fsdp_unshard queues a unit's all-gather; if the unsharded
    //  parameter is the shard (flat_param_is_shard), there is none.
    //? fsdp_unshard records all_gather_done, too. What has been queued by then?
    Status status = OK;
    bool gathers[STEP_MOST_PHASES];
    NCCL_TRY(ncclGroupStart());
    for (int i = 0; i < n && status == OK; i++) {
        gathers[i] = units[i]->flat.state == FLAT_SHARDED && !flat_param_is_shard(&units[i]->flat);
        status = fsdp_unshard(units[i]);
    }
    ncclResult_t ended = ncclGroupEnd();
    if (status != OK) return status;
    NCCL_TRY(ended);
    for (int i = 0; i < n; i++)
        if (gathers[i])
            CUDA_TRY(
                cudaEventRecord(units[i]->flat.all_gather_done, units[i]->ctx->all_gather_stream));
    return OK;
    //[end L8.12]
}

Status regroup_reduce(FsdpUnit *const *units, int n, float divisor, void **buffers)
{
    //[L8.13] As step_graph.h says: each unit's sum is in place, as part 4.3 has it.
    //? unit->reduce_scatter queues a sum and a kernel that reads it. What would that kernel read?
    FsdpContext *ctx = units[0]->ctx;
    cudaStream_t stream = ctx->reduce_scatter_stream;
    TRY(stream_run_after(stream, ctx->compute_stream, ctx->compute_done));
    Buffer sum[STEP_MOST_PHASES];
    ncclResult_t queued = ncclSuccess;
    NCCL_TRY(ncclGroupStart());
    for (int i = 0; i < n && queued == ncclSuccess; i++) {
        const FlatParam *flat = &units[i]->flat;
        int64_t numel = flat->sharded_grad.numel;
        sum[i] = buffer_range(&flat->unsharded_grad, flat->layout.rank * numel, numel);
        queued = ncclReduceScatter(flat->unsharded_grad.data, sum[i].data, (size_t)numel,
                                   dtype_nccl(sum[i].dtype), ncclSum, ctx->mesh.shard.comm, stream);
    }
    ncclResult_t ended = ncclGroupEnd();
    NCCL_TRY(queued);
    NCCL_TRY(ended);
    for (int i = 0; i < n; i++) {
        FlatParam *flat = &units[i]->flat;
        CUDA_TRY(kernel_add_divided(flat->sharded_grad.data, sum[i].data, divisor,
                                    (size_t)sum[i].numel, stream));
        TRY(flat_zero_padding(flat, &flat->sharded_grad, stream));
    }
    CUDA_TRY(cudaEventRecord(units[0]->root->reduce_scatter_state.event, stream));
    for (int i = 0; i < n; i++) {
        buffers[i] = units[i]->flat.unsharded_grad.data;
        units[i]->flat.unsharded_grad.data = NULL;
        flat_set_grad_views(&units[i]->flat);
    }
    return OK;
    //[end L8.13]
}

// The bucket's units that need an all-gather, by the record.
static Status gather_bucket(RegroupState *state, const StepPass *pass, const RegroupBucket *bucket)
{
    //[[L8.14a] As the comment says: one call of regroup_gather.
    FsdpUnit *units[STEP_MOST_PHASES];
    int n = 0;
    for (int p = bucket->first; p <= bucket->last; p++)
        if (pass->phase[p].gather_bytes > 0) units[n++] = state->root->units[pass->phase[p].unit];
    return regroup_gather(units, n);
    //[end L8.14a]
}

Status regroup_begin(RegroupState *state, int k, FsdpUnit *unit)
{
    const FsdpRoot *root = state->root;
    const StepPass *pass = &state->pass[k];
    const RegroupPlan *plan = &state->plan[k];
    //[L8.14] This is the next phase of the pass; the outermost forward or backward is its
    //  first. If the record has another unit here, the units' own hooks gather for the rest of the
    //  pass. Else the buckets of this phase are queued, in their order.
    //? A forward failed in its middle. Where does the next one begin?
    if ((k == 0 ? root->iter_forward_root : root->iter_backward_root) == unit) {
        state->phase[k] = 0;
        state->follows[k] = true;
    }
    int p = state->phase[k]++;
    if (p >= pass->n || root->units[pass->phase[p].unit] != unit) state->follows[k] = false;
    for (int b = 0; b < plan->n && state->follows[k]; b++)
        if (plan->bucket[b].at == p && plan->bucket[b].first > p)
            TRY(gather_bucket(state, pass, &plan->bucket[b]));
    return OK;
    //[end L8.14]
}
