/* Lab 8, trained under a plan: steps whose collectives travel together, and what one call of them
 * leaves.
 */
#include "harness.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "failing.h"
#include "strategies.h"
#include "tests.h"

// ---- A training under a plan ----

typedef struct Regrouped {
    Case c;
    StepCosts costs;
    int64_t limit;
    bool by_hand;      // buckets of the test's, others in each pass
    bool reduces;      // the reductions are the test's plan, the buckets FSDP2's
    unsigned int kept; // bit p: keeps[p] of the test's plan
} Regrouped;

// The passes of this training, by a step of one micro-batch.
static void record(Wrapped *w, const Case *c, const Rank *r, const StepCosts *costs, StepPass *pass)
{
    StepTrace trace;
    Case one = *c;
    one.rounds = 1;
    need(step_trace_begin(&trace, w->root));
    case_train(w, &one, r, 0);
    need(step_trace_end(&trace, NULL));
    need(step_passes(&trace, costs, pass));
    step_trace_free(&trace);
    need(fsdp_zero_grad(w->model, &w->ctx));
    need_cuda(cudaDeviceSynchronize());
}

// The calls of this collective since `first` are groups of so many units, in this order.
static void check_calls(GpuOp op, const char *who, const int *want, int n, uint64_t first)
{
    const char *what = op == GPU_ALL_GATHER ? "all-gather" : "reduce-scatter";
    int at = 0, left = 0;
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry e;
        if (!gpulog_get(i, &e) || e.op != op) continue;
        if (left == 0) {
            left = e.collective.group != 0 ? e.collective.group_left + 1 : 1;
            check(at < n && left == want[at], "%s: %s call %d is of %d units, must be of %d", who,
                  what, at, left, at < n ? want[at] : 0);
            at++;
        }
        left--;
    }
    check(at == n, "%s: a step makes %d calls of %ss, and the plan has %d", who, at, what, n);
}

static void check_groups(const RegroupState *state, uint64_t first)
{
    int want[64], n = 0;
    for (int k = 0; k < 2; k++) {
        if (state->pass[k].phase[0].gather_bytes > 0) want[n++] = 1;
        for (int b = 0; b < state->plan[k].n; b++) {
            const RegroupBucket *bucket = &state->plan[k].bucket[b];
            want[n] = 0;
            for (int p = bucket->first; p <= bucket->last; p++)
                want[n] += state->pass[k].phase[p].gather_bytes > 0;
            n++;
        }
    }
    check_calls(GPU_ALL_GATHER, "regroup_begin", want, n, first);
    const StepPass *pass = &state->pass[1];
    bool alone = pass->reduces_alone || state->plan[1].is_default;
    n = 0;
    for (int p = 0; p != pass->n; p++) {
        want[n] = 0;
        for (int q = 0; q < pass->n; q++)
            want[n] += pass->phase[q].reduce_bytes > 0 && reduced_at(pass, &state->plan[1], q) == p;
        if (want[n] == 0) continue;
        int calls = alone ? want[n] : 1;
        for (int more = calls; more > 0; more--) want[n + more - 1] = alone ? 1 : want[n];
        n += calls;
    }
    check_calls(GPU_REDUCE_SCATTER, "regroup_begin", want, n, first);
}

// The most bytes that a plan's parameters take at a time, or its gradients.
static int64_t peak_of(const RegroupState *state, int k, bool grads)
{
    static StepPass pass;
    pass = state->pass[k];
    for (int p = 0; p < pass.n; p++)
        *(grads ? &pass.phase[p].gather_bytes : &pass.phase[p].reduce_bytes) = 0;
    return peak_by_hand(&pass, &state->plan[k]);
}

static void check_peak(uint64_t first, GpuCategory category, const char *what, int64_t most)
{
    int64_t peak = (int64_t)case_peak(first, category);
    check(peak <= most, "a step holds %lld bytes of unsharded %s at a time, and its plan %lld",
          (long long)peak, what, (long long)most);
}

// The state's plans are the test's.
static void set_plans(RegroupState *state, const Regrouped *k)
{
    int last = state->pass[0].n - 1;
    if (k->by_hand) {
        state->plan[0] = (RegroupPlan){.n = 3, .bucket = {{1, 2, 0}, {3, 3, 2}, {4, last, 2}}};
        state->plan[1] = (RegroupPlan){.n = 2, .bucket = {{1, last - 1, 0}, {last, last, 1}}};
    }
    for (int i = 0; i < 2 && k->reduces; i++) regroup_default(&state->pass[i], &state->plan[i]);
    state->plan[1].is_default = k->kept == 0;
    for (int p = 0; p <= last; p++) state->plan[1].keeps[p] = k->kept >> p & 1;
}

static bool gathers_again(const RegroupState *state, int unit)
{
    bool again = false;
    for (int p = 0; p < state->pass[1].n; p++)
        again |= state->pass[1].phase[p].unit == unit && state->pass[1].phase[p].gather_bytes > 0;
    return again;
}

static void regrouped_body(Wrapped *w, const Case *c, const Rank *r)
{
    static StepPass pass[2];
    const Regrouped *k = (const Regrouped *)c; // its first member
    size_t n;
    need(fsdp_zero_grad(w->model, &w->ctx));
    record(w, c, r, &k->costs, pass);
    case_train(w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    float *want = case_gradients(w, &n);
    need(regroup_apply(w->model, pass, &k->costs, k->limit));
    RegroupState *state = w->root->extensions->regroup;
    set_plans(state, k);
    for (int step = 0; step < 2; step++) {
        need(fsdp_zero_grad(w->model, &w->ctx));
        need_cuda(cudaDeviceSynchronize());
        uint64_t first = gpulog_length();
        case_train(w, c, r, 0);
        need_cuda(cudaDeviceSynchronize());
        check_no_race(first);
        if (c->rounds == 1) check_groups(state, first);
        int64_t most = peak_of(state, 0, false), other = peak_of(state, 1, false);
        // In the backward what the forward has left is there, too.
        for (int p = 0; p < state->pass[0].n; p++)
            if (!gathers_again(state, state->pass[0].phase[p].unit))
                other += state->pass[0].phase[p].gather_bytes;
        if (other > most) most = other;
        check_peak(first, GPU_UNSHARDED_PARAM, "parameters", most);
        if (c->rounds == 1 && !state->pass[1].reduces_alone) // else gradients accumulate
            check_peak(first, GPU_UNSHARDED_GRAD, "gradients", peak_of(state, 1, true));
        float *got = case_gradients(w, &n);
        check_equal("the gradients of a regrouped step", got, want, n);
        free(got);
    }
    for (int i = 0; i < w->root->n_units; i++)
        check(w->root->units[i]->flat.state == FLAT_SHARDED, "after a step unit %d is unsharded",
              i);
    free(want);
    need(regroup_remove(w->model));
}

static Regrouped regrouped(Spec spec, Strategy strategy, int world, int replicas, int rounds)
{
    // The network is slow to start: all is merged that may be.
    return (Regrouped){case_of(spec, strategy, world, replicas, rounds), .costs = {50, 100, 20, 0}};
}

// A forward that runs other units than the record's, and one that fails: they gather as ever.
static void strays_body(Wrapped *w, const Case *c, const Rank *r)
{
    static StepPass pass[2];
    const Regrouped *k = (const Regrouped *)c;
    size_t n;
    float *out;
    record(w, c, r, &k->costs, pass);
    case_train(w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    float *want = case_gradients(w, &n);
    pass[0].phase[2].unit = 1; // never runs there
    need(regroup_apply(w->model, pass, &k->costs, 0));
    RegroupState *state = w->root->extensions->regroup;
    state->plan[0] = (RegroupPlan){.n = 1, .bucket = {{2, 3, 0}}};
    state->plan[0].bucket[1] = (RegroupBucket){3, 3, 2}; // nobody comes to it
    state->plan[0].n = 2;
    regroup_default(&state->pass[1], &state->plan[1]);
    for (int time = 0; time < 2; time++) {
        need(fsdp_zero_grad(w->model, &w->ctx));
        case_train(w, c, r, 0);
        need_cuda(cudaDeviceSynchronize());
        float *got = case_gradients(w, &n);
        check_equal("the gradients where a pass is not the record's", got, want, n);
        check(!state->follows[0], "regroup_begin: a forward ran other units than the record's, "
                                  "and `follows` is true");
        free(got);
        if (time == 1) break;
        FsdpUnit *last = w->root->units[w->root->n_units - 1];
        Batch batch = case_batch(c, 0, r->rank, 0);
        last->all_gather = failing_collective;
        failing_status = ERR_NCCL;
        need_failure(module_forward(w->model, &w->run, batch.in, &out), ERR_NCCL, "");
        last->all_gather = fsdp_all_gather;
        need(module_discard(w->model, &w->run));
        need(fsdp_reshard_all(w->model));
        batch_destroy(&batch);
    }
    free(want);
    need(regroup_remove(w->model));
}

// strategy, ranks, replicas, rounds
static const int SHAPES[][4] = {{STRATEGY_ZERO3, 2, 1, 1},
                                {STRATEGY_ZERO3, 3, 1, 2},
                                {STRATEGY_ZERO3, 4, 2, 1},
                                {STRATEGY_ZERO2, 2, 1, 1},
                                {STRATEGY_ZERO3, 1, 1, 1}};

// After a failure a collective that is queued runs at once, or it is in a group that is open.
static void check_no_group(const Sharded *s, const char *who)
{
    uint64_t first = gpulog_length();
    double *sum = NULL;
    need_cuda(cudaMalloc((void **)&sum, sizeof *sum));
    need_cuda(cudaMemsetAsync(sum, 0, sizeof *sum, s->ctx.all_gather_stream));
    need_nccl(ncclAllReduce(sum, sum, 1, ncclDouble, ncclSum, s->ctx.mesh.shard.comm,
                            s->ctx.all_gather_stream));
    check(gpulog_find(GPU_ALL_REDUCE, NULL, first) >= 0, "%s: %s fails, and a group is still open",
          who, failing_call());
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaFree(sum));
}

// A unit that is there already takes no part in a bucket. Each call of another bucket fails once.
static void gather_body(Sharded *s, const Rank *r, void *arg)
{
    FsdpUnit *there = s->root->units[1];
    need(fsdp_unshard(there));
    uint64_t first = gpulog_length();
    need(regroup_gather(s->root->units, s->root->n_units));
    check_calls(GPU_ALL_GATHER, "regroup_gather", (const int[]){s->root->n_units - 1}, 1, first);
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry e;
        check(!gpulog_get(i, &e) || e.op != GPU_EVENT_RECORD ||
                  e.event != there->flat.all_gather_done,
              "regroup_gather records all_gather_done of unit 1, which was not sharded");
    }
    need(fsdp_reshard_all(s->model));
    Status status = OK;
    for (int k = 1;; k++) {
        FAILS_AT(k, status = regroup_gather(s->root->units, s->root->n_units));
        if (failing_call() == NULL) break;
        check(status != OK, "%s fails, and regroup_gather returns OK", failing_call());
        check_no_group(s, "regroup_gather");
        need(fsdp_reshard_all(s->model));
    }
    need(status);
    need(fsdp_reshard_all(s->model));
}

TEST(buckets_are_one_call)
{
    run_steps(spec_mlp(3), gather_body, NULL, 2);
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        const int *s = SHAPES[i];
        Regrouped k = regrouped(spec_mlp(6), (Strategy)s[0], s[1], s[2], s[3]);
        run_wrapped(s[1], regrouped_body, &k.c);
        k.costs.latency_us = 0; // nothing to save by a merge
        if (s[1] == 2) run_wrapped(s[1], regrouped_body, &k.c);
    }
    Regrouped k = regrouped(spec_mlp(6), STRATEGY_ZERO3, 2, 1, 1);
    k.by_hand = true;
    run_wrapped(2, regrouped_body, &k.c);
    k = regrouped(spec_gpt2(4), STRATEGY_ZERO3, 2, 1, 1);
    k.limit = 4 * 24 * 24 * 12 * 3;
    run_wrapped(2, regrouped_body, &k.c);
    k = regrouped(spec_mlp(4), STRATEGY_ZERO3, 2, 1, 1);
    run_wrapped(2, strays_body, &k.c);
}

// ---- Reductions ----

// Gradients of the test's on every unit, padding and all: small numbers, so that sums are exact.
static float grad_of(int unit, int64_t i, int rank)
{
    return (float)((i * 5 + unit * 3 + rank * 7) % 32);
}

static void begin_grads(const Sharded *s, void **buffers)
{
    for (int u = 0; u < s->root->n_units; u++) {
        FlatParam *flat = &s->root->units[u]->flat;
        need(fsdp_begin_grad(s->root->units[u]));
        need_cuda(cudaDeviceSynchronize());
        int64_t numel = flat->unsharded_grad.numel;
        float *host = calloc((size_t)numel, sizeof *host);
        for (int64_t i = 0; i < numel; i++) host[i] = grad_of(u, i, s->rank);
        send_to(flat->unsharded_grad.data, host, (size_t)numel);
        for (int64_t i = 0; i < numel; i++) host[i] = 1.0f;
        send_to(flat->sharded_grad.data, host, (size_t)flat->sharded_grad.numel);
        free(host);
        buffers[u] = flat->unsharded_grad.data;
    }
    need_cuda(cudaDeviceSynchronize());
}

static void check_reduced(const Sharded *s, int u)
{
    const FlatParam *flat = &s->root->units[u]->flat;
    int64_t numel = flat->sharded_grad.numel, valid = flat_valid_numel(&flat->layout, s->rank);
    float *shard = fetch(flat->sharded_grad.data, (size_t)numel);
    for (int64_t i = 0; i < numel; i++) {
        float want = i < valid ? 1.0f : 0.0f;
        for (int k = 0; k < s->world && i < valid; k++)
            want += grad_of(u, s->rank * numel + i, k) / 4.0f;
        if (shard[i] != want)
            check(false,
                  "regroup_reduce by 4: element %lld of unit %d's shard, %s, is %g, must be %g",
                  (long long)i, u, i < valid ? "a gradient" : "padding", (double)shard[i],
                  (double)want);
    }
    free(shard);
}

static void reduce_body(Sharded *s, const Rank *r, void *arg)
{
    void *was[16], *got[16];
    int n = s->root->n_units;
    Status status = OK;
    // First no call fails, then each one up to the first kernel: of those all ranks make the same
    // ones; not all zero a padding.
    for (int k = 0, sums = 0; sums == 0; k++) {
        begin_grads(s, was);
        uint64_t first = gpulog_length();
        FAILS_AT(k > 0 ? k : INT_MAX, status = regroup_reduce(s->root->units, n, 4.0f, got));
        bool failed = failing_call() != NULL;
        if (failed) {
            check(status != OK, "%s fails, and regroup_reduce returns OK", failing_call());
            check_no_group(s, "regroup_reduce");
            sums = strncmp(failing_call(), "kernel_", 7) == 0;
        } else {
            need(status);
            check_calls(GPU_REDUCE_SCATTER, "regroup_reduce", &n, 1, first);
            sums = k > 0; // on this backend none fails
        }
        for (int u = 0; u < n; u++) {
            FlatParam *flat = &s->root->units[u]->flat;
            check(flat->unsharded_grad.data == (failed ? was[u] : NULL),
                  "regroup_reduce%s leaves unit %d %s gradient", failed ? " fails, and" : "", u,
                  failed ? "without its" : "its unsharded");
            check(failed || got[u] == was[u],
                  "regroup_reduce: buffer %d is not the unsharded gradient of that unit", u);
            for (int i = 0; i < flat->layout.n; i++)
                check(failed || flat->layout.params[i]->grad.data == NULL,
                      "regroup_reduce leaves parameter %d of unit %d its view of the gradient", i,
                      u);
            need_cuda(cudaDeviceSynchronize());
            if (!failed) check_reduced(s, u);
            need_cuda(cudaFree(was[u]));
            flat->unsharded_grad.data = NULL;
        }
    }
}

TEST(reductions_are_one_call)
{
    run_steps(spec_mlp(3), reduce_body, NULL, 2, 3);
    static const unsigned int KEPT[] = {0x7E, 0x1A, 0};
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        const int *s = SHAPES[i];
        Regrouped k = regrouped(spec_mlp(6), (Strategy)s[0], s[1], s[2], s[3]);
        k.reduces = true;
        for (size_t m = 0; m < sizeof KEPT / sizeof KEPT[0]; m++) {
            k.kept = KEPT[m];
            if (m == 0 || i == 0) run_wrapped(s[1], regrouped_body, &k.c);
        }
    }
}
