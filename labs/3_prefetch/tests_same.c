/* Lab 3, prefetch: what a prefetch leaves as it was: operations, results, bytes and messages.
 */
#include <stdlib.h>

#include "harness.h"
#include "schedule.h"
#include "strategies.h"

// ---- What is as it was ----

typedef struct Work {
    GpuOp op;
    size_t bytes;
} Work;
enum { MOST_WORK = 2048 };

// What a stream got since `first`.
static int work_of(cudaStream_t stream, uint64_t first, Work *work)
{
    int n = 0;
    for (uint64_t i = first; i < gpulog_length() && n < MOST_WORK; i++) {
        GpuLogEntry entry;
        if (!gpulog_get(i, &entry) || entry.stream != stream) continue;
        work[n++] = (Work){entry.op, entry.n_ranges > 0 ? entry.range[0].bytes : 0};
    }
    return n;
}

// A step's work on the two streams.
static void record_step(const Case *c, const Rank *r, Work *work[2], int n[2])
{
    Wrapped w;
    case_wrap(&w, c, r);
    case_train(&w, c, r, 0);
    need(fsdp_adamw_step(&w.adamw));
    need_cuda(cudaDeviceSynchronize());
    uint64_t first = gpulog_length();
    case_train(&w, c, r, 1);
    n[0] = work_of(w.ctx.all_gather_stream, first, work[0]);
    n[1] = work_of(w.ctx.compute_stream, first, work[1]);
    case_unwrap(&w, r);
}

static void default_body(const Rank *r, void *arg)
{
    static const PrefetchOptions SAME[] = {{0, 1, 0}, {1, 1, 0}};
    static const char *const NAME[] = {"all-gather", "compute"};
    Case c = *(const Case *)arg;
    Work *work[2][2];
    int n[2][2];
    for (int i = 0; i < 4; i++) work[i / 2][i % 2] = calloc(MOST_WORK, sizeof(Work));
    record_step(&c, r, work[0], n[0]);
    for (int i = 0; i < 2; i++) {
        c.prefetch = &SAME[i];
        record_step(&c, r, work[1], n[1]);
        for (int s = 0; s < 2; s++) {
            int at = 0;
            while (at < n[0][s] && at < n[1][s] && work[0][s][at].op == work[1][s][at].op &&
                   work[0][s][at].bytes == work[1][s][at].bytes)
                at++;
            check(at == n[0][s] && n[0][s] == n[1][s],
                  "forward_depth %d and backward_depth 1 must be what happens without a prefetch: "
                  "on the %s stream operation %d of %d is %s of %zu bytes, must be %s of %zu",
                  SAME[i].forward_depth, NAME[s], at, n[0][s], gpulog_op_name(work[1][s][at].op),
                  work[1][s][at].bytes, gpulog_op_name(work[0][s][at].op), work[0][s][at].bytes);
        }
    }
    for (int i = 0; i < 4; i++) free(work[i / 2][i % 2]);
}

TEST(one_ahead_is_what_it_was)
{
    Case c = case_of(spec_gpt2(4), STRATEGY_ZERO3, 2, 1, 1);
    run_ranks(2, default_body, &c);
    c = case_of(spec_mlp(4), STRATEGY_ZERO2, 4, 2, 2);
    run_ranks(4, default_body, &c);
}

// So that none at all is not one that trains the same.
static void is_made_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    bool fits = false;
    case_wrap(&w, c, r);
    need(prefetch_unit(w.root->units[1], &fits));
    check(fits && w.root->units[1]->flat.state == FLAT_UNSHARDING,
          "prefetch_unit must queue the all-gather of a unit that is sharded and fits");
    need(prefetch_clear(w.root));
    case_unwrap(&w, r);
}

TEST(any_prefetch_trains_the_same)
{
    static const PrefetchOptions OPTIONS[] = {{2, 2, 0},    {0, 3, 0}, {4, 0, 0},
                                              {3, 3, 1500}, {2, 1, 1}, {9, 9, 0}};
    static const MixedPrecisionPolicy narrow = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    for (int world = 1; world <= 8; world++) {
        Strategy strategy = world % 3 == 1 ? (Strategy)(1 + world % 2) : STRATEGY_ZERO3;
        Case c = case_of(spec_mlp(5), strategy, world, 1, 1 + world % 2);
        c.prefetch = &OPTIONS[world % 6];
        c.policy = world % 3 == 0 ? &narrow : NULL;
        run_case(world, &c);
    }
    Case c = case_of(spec_gpt2(3), STRATEGY_ZERO3, 4, 2, 2);
    c.prefetch = &OPTIONS[0];
    run_ranks(4, is_made_body, &c);
    c.options.reduce_every_time = true;
    run_case(4, &c);
    c = case_of(spec_mlp(5), STRATEGY_ZERO3, 4, 1, 2);
    c.prefetch = &OPTIONS[3];
    c.options.reshard_ranks = 2;
    run_case(4, &c);
    c = case_of(spec_mlp(3), STRATEGY_DDP, 2, 1, 1);
    c.prefetch = &OPTIONS[0];
    run_case(2, &c);
}

// ---- Memory and traffic ----

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// The handout's formulas, of blocks of one size.
static void costs_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    const PrefetchOptions *o = c->prefetch;
    Wrapped w;
    size_t before = gpulog_live_bytes(r->device);
    case_wrap(&w, c, r);
    size_t bytes = dtype_bytes(c->policy != NULL ? c->policy->param_dtype : DTYPE_F32);
    int64_t root = (int64_t)bytes * w.root->units[0]->flat.layout.padded;
    int64_t u = (int64_t)bytes * w.root->units[1]->flat.layout.padded;
    int64_t blocks = w.root->n_units - 1, n = c->rounds, s = r->world;
    int64_t fits = o->limit_bytes > 0 ? least(o->limit_bytes / u, blocks - 1) : blocks - 1;
    int64_t forward = least(o->forward_depth, fits), backward = least(o->backward_depth, fits);
    if (forward == 0) forward = 1; // the one before is freed later
    int64_t most = root + u * (1 + (forward > backward ? forward : backward));
    bool again = c->options.strategy == STRATEGY_ZERO3;
    if (!again) most = root + blocks * u;
    size_t held = gpulog_live_bytes(r->device) - before;
    size_t shards = (size_t)((root + blocks * u) / (int64_t)bytes * 16 / s);
    check(held == shards, "a training holds %zu bytes, want %zu: a prefetch keeps nothing", held,
          shards);
    uint64_t first = gpulog_length(), gathers = 0, sent = 0;
    case_train(&w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry;
        if (!gpulog_get(i, &entry) || entry.op != GPU_ALL_GATHER) continue;
        gathers++;
        sent += entry.sent;
    }
    uint64_t calls = (uint64_t)(n * (1 + blocks * (again ? 2 : 1)));
    uint64_t all = (uint64_t)(n * (s - 1) * (root + blocks * u * (again ? 2 : 1)) / s);
    check(gathers == calls && sent == all,
          "a step of %d micro-batches made %llu all-gathers of %llu bytes, want %llu of %llu: a "
          "prefetch makes the same, earlier",
          c->rounds, (unsigned long long)gathers, (unsigned long long)sent,
          (unsigned long long)calls, (unsigned long long)all);
    size_t peak = case_peak(first, GPU_UNSHARDED_PARAM);
    check(peak == (size_t)most,
          "with forward_depth %d, backward_depth %d and a limit of %lld bytes at most %zu bytes of "
          "parameters are unsharded at a time, want %lld",
          o->forward_depth, o->backward_depth, (long long)o->limit_bytes, peak, (long long)most);
    check(gpulog_live_bytes(r->device) - before == held, "after the step more is held than before");
    case_unwrap(&w, r);
}

TEST(costs_are_those_of_the_tables)
{
    static const MixedPrecisionPolicy narrow = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    for (int world = 2; world < 6; world++) {
        PrefetchOptions o[3];
        Case all[4] = {{0}};
        for (int k = 0; k < 3; k++) {
            int i = world - 2 + 4 * k;
            o[k] = (PrefetchOptions){i % 4, (i + i / 4) % 4, i < 6 ? 0 : (i - 5) * 14000};
            all[k] =
                case_of(spec_gpt2(5), i == 7 ? STRATEGY_ZERO2 : STRATEGY_ZERO3, 2, 1, 1 + i % 2);
            all[k].prefetch = &o[k];
            all[k].policy = i % 5 == 4 ? &narrow : NULL;
        }
        run_each(world, costs_body, all);
    }
}
