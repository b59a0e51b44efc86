/* Task 5, optimizer: each rank steps its shard, padding stays zero, and the norm is everybody's.
 */
#include "bytes.h"
#include "fsdp.h"
#include "harness.h"
#include "training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FLAT = 16 };

// A gradient for every flat parameter of the model: element i of the whole buffer is whole(i) times
// a scale, the same on every rank; the padding gets `padding`.
static float whole(int64_t i)
{
    return (float)(i % 11 - 5) / 4.0f;
}

static void set_scaled_gradients(Sharded *s, float scale, float padding)
{
    FlatParam *flat[MAX_FLAT];
    int n = fsdp_flat_params(s->model, flat, MAX_FLAT);
    for (int k = 0; k < n; k++) {
        float *host = malloc((size_t)flat[k]->shard_numel * sizeof *host);
        for (int64_t i = 0; i < flat[k]->shard_numel; i++) {
            int64_t place = flat[k]->rank * flat[k]->shard_numel + i;
            host[i] = place < flat[k]->numel ? scale * whole(place) : padding;
        }
        need_cuda(cudaDeviceSynchronize());
        send_to(flat[k]->shard_grad, host, (size_t)flat[k]->shard_numel);
        free(host);
    }
}

static void set_gradients(Sharded *s, float padding)
{
    set_scaled_gradients(s, 1.0f, padding);
}

static float *fetch_shard(const Sharded *s, const FlatParam *flat)
{
    need_cuda(cudaStreamSynchronize(s->ctx.compute));
    return fetch(flat->shard, (size_t)flat->shard_numel);
}

// ---- AdamW ----

// The gradient of step t is this times whole(i). It must change from step to step: with equal
// gradients both moments, corrected, are the same for any two betas.
static float scale_of(int t)
{
    return (float)(t * t % 7 - 3) / 2.0f;
}

// The ways to get it wrong of which the values alone tell.
typedef enum Wrong {
    RIGHT, NO_CORRECTION, NO_DECAY, COUPLED, SWAPPED, COUNT_FROM_ZERO, COUNT_FASTER, NO_STEP, WRONGS
} Wrong;
static const char *const WHY[WRONGS] = {
    [NO_CORRECTION] = "these are the values of AdamW without bias correction: is opt->t, the number "
                      "of this step, given to the kernel?",
    [NO_DECAY] = "these are the values without weight decay: is config.weight_decay given to the "
                 "kernel?",
    [COUPLED] = "these are the values of Adam, where decay goes through the gradient: in AdamW it "
                "is taken from the parameter itself. Is anything added to the gradient?",
    [SWAPPED] = "these are the values with beta1 and beta2 in each other's place: in which order "
                "does the kernel take them?",
    [COUNT_FROM_ZERO] = "these are the values of steps that are counted from 0: does opt->t go up "
                        "before the kernels are queued?",
    [COUNT_FASTER] = "these are the values of a step count that goes up with every unit: does "
                     "opt->t go up once a step, outside of the loop?",
    [NO_STEP] = "this unit's shard is what it was before the first step: does the loop reach every "
                "flat parameter, on every rank?",
};

// Element by element in double (Loshchilov & Hutter 2019, algorithm 2): parameter and moments after
// so many steps, the gradient of step t scale_of(t) · g. k: the unit's place in the list of n.
static void follow_formula(const AdamWConfig *c, Wrong wrong, int steps, int k, int n, double start,
                           double g, double out[3])
{
    double beta1 = wrong == SWAPPED ? (double)c->beta2 : (double)c->beta1;
    double beta2 = wrong == SWAPPED ? (double)c->beta1 : (double)c->beta2;
    double p = start, m = 0.0, v = 0.0, decay = (double)c->weight_decay;
    for (int step = 1; step <= steps && wrong != NO_STEP; step++) {
        int t = wrong == COUNT_FROM_ZERO ? step - 1 : step;
        if (wrong == COUNT_FASTER) t = (step - 1) * n + k + 1;
        double gradient = (double)scale_of(step) * g;
        if (wrong == COUPLED)
            gradient += decay * p;
        else if (wrong != NO_DECAY)
            p -= (double)c->lr * decay * p;
        m = beta1 * m + (1.0 - beta1) * gradient;
        v = beta2 * v + (1.0 - beta2) * gradient * gradient;
        bool corrected = wrong != NO_CORRECTION;
        double m_hat = corrected ? m / (1.0 - pow(beta1, t)) : m;
        double v_hat = corrected ? v / (1.0 - pow(beta2, t)) : v;
        p -= (double)c->lr * m_hat / (sqrt(v_hat) + (double)c->eps);
    }
    out[0] = p;
    out[1] = m;
    out[2] = v;
}

// The cause of a shard that is not what the formula gives.
static const char *formula_cause(const Sharded *s, const AdamWConfig *c, int steps, int k, int n,
                                 const FlatParam *flat, const float *start, const float *got)
{
    size_t numel = (size_t)flat->shard_numel;
    float *values = malloc(WRONGS * numel * sizeof *values);
    Clues clues = {.trained = true, .slack = 4e-6 * (double)c->lr};
    if (values == NULL) return "";
    for (int wrong = RIGHT; wrong < WRONGS; wrong++) {
        float *of = values + (size_t)wrong * numel;
        for (size_t i = 0; i < numel; i++) {
            int64_t place = flat->rank * flat->shard_numel + (int64_t)i;
            double g = place < flat->numel ? (double)whole(place) : 0.0, out[3];
            follow_formula(c, (Wrong)wrong, steps, k, n, (double)start[i], g, out);
            of[i] = (float)out[0];
        }
        if (wrong != RIGHT) clues.clue[clues.n++] = (Clue){of, WHY[wrong]};
    }
    const char *cause = cause_of(&clues, got, values, numel);
    free(values);
    return cause;
}

static void formula_body(const Rank *r, void *arg)
{
    enum { STEPS = 5 };
    Spec spec = spec_mlp(3);
    Sharded s;
    FlatParam *flat[MAX_FLAT];
    AdamWConfig c = {
        .lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.5f};
    sharded_create(&s, &spec, &TEST_OPTIONS, &c, r);
    int n = fsdp_flat_params(s.model, flat, MAX_FLAT);
    float *start[MAX_FLAT];
    for (int k = 0; k < n; k++) start[k] = fetch_shard(&s, flat[k]);
    for (int t = 1; t <= STEPS; t++) {
        set_scaled_gradients(&s, scale_of(t), 0.0f);
        need(fsdp_adamw_step(&s.adamw));
    }
    check(s.adamw.t == STEPS, "after %d steps the count t is %d%s", STEPS, s.adamw.t,
          s.adamw.t == STEPS * n ? LIKELY "it went up for every unit: is opt->t++ inside of the loop?"
                                 : "");

    for (int k = 0; k < n; k++) {
        size_t numel = (size_t)flat[k]->shard_numel;
        float *got = fetch_shard(&s, flat[k]);
        float *got_m = fetch(s.adamw.m[k], numel), *got_v = fetch(s.adamw.v[k], numel);
        for (int64_t i = 0; i < flat[k]->shard_numel; i++) {
            int64_t place = flat[k]->rank * flat[k]->shard_numel + i;
            double g = place < flat[k]->numel ? (double)whole(place) : 0.0, out[3];
            follow_formula(&c, RIGHT, STEPS, k, n, (double)start[k][i], g, out);
            double p = out[0], m = out[1], v = out[2];
            char where[300];
            Layout layout;
            unit_layout(&layout, &s, flat[k], false);
            layout_say(&layout, numel, (size_t)i, where, sizeof where);
            // Five steps of rounding in float: a few units in the last place of the parameter and
            // the step.
            check(fabs(got[i] - p) <= 2e-6 * (fabs(p) + (double)c.lr),
                  "unit %s, %s: after %d steps %.9g, the formula gives %.9g%s", flat[k]->name,
                  where, STEPS, (double)got[i], p,
                  formula_cause(&s, &c, STEPS, k, n, flat[k], start[k], got));
            // No gradient is larger than 2, so rounding moves no moment by more than this.
            check(fabs(got_m[i] - m) <= 4e-6 && fabs(got_v[i] - v) <= 4e-6,
                  "unit %s, %s: after %d steps the moments in opt->m and "
                  "opt->v are %.9g and %.9g, the formula gives %.9g and %.9g",
                  flat[k]->name, where, STEPS, (double)got_m[i], (double)got_v[i], m, v);
        }
        free(got);
        free(got_m);
        free(got_v);
        free(start[k]);
    }
    sharded_destroy(&s);
}

static void adamw_follows_the_formula(void **state)
{
    run_ranks(1, formula_body, NULL);
    run_ranks(3, formula_body, NULL);
}

static void moments_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(4);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    size_t live = gpulog_live_bytes(r->device);
    size_t want = 8 * (size_t)sharded_padded(&s) / (size_t)r->world;
    need(fsdp_adamw_create(&s.adamw, s.model, &s.ctx, &TEST_ADAMW));
    check(gpulog_live_bytes(r->device) - live == want,
          "AdamW's state takes %zu bytes on this rank, want 8 bytes for each element of its "
          "shards: %zu%s",
          gpulog_live_bytes(r->device) - live, want,
          arrays_cause(gpulog_live_bytes(r->device) - live, 2, want / 2,
                       want / 2 * (size_t)r->world));
    set_gradients(&s, 0.0f);
    need(fsdp_adamw_step(&s.adamw));
    check(gpulog_live_bytes(r->device) - live == want, "a step left %zu bytes behind",
          gpulog_live_bytes(r->device) - live - want);
    fsdp_adamw_destroy(&s.adamw);
    check(gpulog_live_bytes(r->device) == live, "fsdp_adamw_destroy left %zu bytes behind",
          gpulog_live_bytes(r->device) - live);
    sharded_destroy(&s);
}

static void moments_are_shard_sized(void **state)
{
    run_ranks(1, moments_body, NULL);
    run_ranks(4, moments_body, NULL);
    run_ranks(7, moments_body, NULL);
}

// Padding that was zero, and moved as a parameter does whose gradient is the dirt of padding_body:
// AdamW's first step is lr, whatever the gradient; SGD's is lr times it.
static const char *padding_cause(float value, bool sgd)
{
    float moved = sgd ? -0.5f * 3.0f : -TEST_ADAMW.lr;
    if (fabsf(value - moved) > 1e-5f * fabsf(moved)) return "";
    return LIKELY "the step moved the padding by the dirt in its gradient: is flat_zero_padding "
                  "called for the shard behind the kernel?";
}

static void padding_body(const Rank *r, void *arg)
{
    for (int align = 0; align <= 1; align++) {
        Spec spec = spec_mlp(3);
        Sharded s;
        FsdpOptions options = TEST_OPTIONS;
        options.align_shards = align;
        sharded_create(&s, &spec, &options, &TEST_ADAMW, r);
        FlatParam *flat[MAX_FLAT];
        int n = fsdp_flat_params(s.model, flat, MAX_FLAT);
        for (int step = 0; step < 3; step++) {
            // Dirt where no gradient should be: the step must not let it into the parameters. They
            // were zero there until now: each step is looked at.
            set_gradients(&s, 3.0f);
            if (step == 2)
                need(fsdp_sgd_step(s.model, &s.ctx, 0.5f, 0.25f));
            else
                need(fsdp_adamw_step(&s.adamw));
            for (int k = 0; k < n; k++) {
                float *shard = fetch_shard(&s, flat[k]);
                for (int64_t i = 0; i < flat[k]->shard_numel; i++) {
                    bool padding = flat[k]->rank * flat[k]->shard_numel + i >= flat[k]->numel;
                    check(!padding || shard[i] == 0.0f,
                          "after step %d (%s) padding element %lld of unit %s is %g, not zero%s",
                          step, step == 2 ? "SGD" : "AdamW", (long long)i, flat[k]->name,
                          (double)shard[i], padding_cause(shard[i], step == 2));
                }
                free(shard);
            }
        }
        sharded_destroy(&s);
    }
}

static void padding_stays_zero(void **state)
{
    for (int world = 2; world <= 8; world++) run_ranks(world, padding_body, NULL);
}

// ---- Gradients ----

static void zero_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    FlatParam *flat[MAX_FLAT];
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    int n = fsdp_flat_params(s.model, flat, MAX_FLAT);
    float *before[MAX_FLAT];
    set_gradients(&s, 3.0f);
    for (int k = 0; k < n; k++)
        before[k] = fetch(flat[k]->shard_grad, (size_t)flat[k]->shard_numel);
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    need(fsdp_zero_grad(s.model, &s.ctx));
    check_on_stream(log, s.ctx.compute, "zeroing the gradients", "ctx->compute");
    need_cuda(cudaStreamSynchronize(s.ctx.compute));
    for (int k = 0; k < n; k++) {
        size_t numel = (size_t)flat[k]->shard_numel;
        float *got = fetch(flat[k]->shard_grad, numel), *zero = calloc(numel, sizeof *zero);
        Layout layout;
        char what[100];
        unit_layout(&layout, &s, flat[k], false);
        snprintf(what, sizeof what, "unit %s, the gradient shard after zero_grad", flat[k]->name);
        check_equal_in(&((Clues){.layout = &layout, .before = before[k]}), what, got, zero, numel);
        free(got);
        free(zero);
        free(before[k]);
    }
    sharded_destroy(&s);
}

static void zero_grad_zeroes(void **state)
{
    run_ranks(1, zero_body, NULL);
    run_ranks(3, zero_body, NULL);
}

// Σ of the squares of the whole gradient that set_gradients makes, exact in double.
static double squares_of(const Sharded *s)
{
    FlatParam *flat[MAX_FLAT];
    int n = fsdp_flat_params(s->model, flat, MAX_FLAT);
    double sum = 0.0;
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < flat[k]->numel; i++) sum += (double)whole(i) * (double)whole(i);
    return sum;
}

// Σ of the squares of `rank`'s shards, exact in double.
static double squares_of_rank(const Sharded *s, int rank)
{
    FlatParam *flat[MAX_FLAT];
    int n = fsdp_flat_params(s->model, flat, MAX_FLAT);
    double sum = 0.0;
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < flat[k]->shard_numel; i++) {
            int64_t place = rank * flat[k]->shard_numel + i;
            if (place < flat[k]->numel) sum += (double)whole(place) * (double)whole(place);
        }
    return sum;
}

// Why a norm is what it is.
static const char *norm_cause(const Sharded *s, float norm)
{
    double squares = squares_of(s), own = squares_of_rank(s, s->rank), roots = 0.0, largest = own;
    for (int rank = 0; rank < s->world; rank++) {
        roots += sqrt(squares_of_rank(s, rank));
        if (squares_of_rank(s, rank) > largest) largest = squares_of_rank(s, rank);
    }
    NumberClue clues[] = {
        {sqrt(own), "this is the norm of this rank's own shards: are the squares summed over the "
                    "ranks (ncclAllReduce of one ncclDouble, ncclSum)?"},
        {squares, "this is the square of the norm: where is the root?"},
        {own, "this is the sum of the squares of this rank's own shards: are they summed over the "
              "ranks, and where is the root?"},
        {roots, "this is the sum of the ranks' own norms: is the root taken before the sum over "
                "the ranks, not behind it?"},
        {sqrt(largest), "this is the largest of the ranks' own norms: is the reduction ncclSum?"},
        {sqrt(squares / s->world), "this is the root of the average over the ranks: a norm is "
                                   "summed, and divided by nothing. Is the reduction ncclSum?"},
        {sqrt(squares * s->world), "this is the root of W times the sum of the squares: is it "
                                   "summed over the ranks twice?"},
    };
    int n = sizeof clues / sizeof clues[0];
    if (s->world == 1) n = 2; // the others are the same
    if (largest == own) clues[4].value = -1.0;
    return number_cause((double)norm, sqrt(squares), clues, n);
}

static void norm_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(4);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    size_t live = gpulog_live_bytes(r->device);
    set_gradients(&s, 0.0f);
    float norm = -1.0f, want = (float)sqrt(squares_of(&s));
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    need(fsdp_grad_norm(s.model, &s.ctx, &norm));
    check_no_race(log);
    // Squares of sixteenths add up exactly in double, in any order: the norm has one right value.
    check(norm == want, "the gradient norm on this rank is %.9g, want %.9g%s", (double)norm,
          (double)want, norm_cause(&s, norm));
    check(gpulog_live_bytes(r->device) == live, "fsdp_grad_norm left memory behind");
    sharded_destroy(&s);
}

static void norm_is_over_all_ranks(void **state)
{
    for (int world = 1; world <= 8; world++) run_ranks(world, norm_body, NULL);
}

// Why a gradient shard is not what clipping at `limit` makes of it: another factor for all.
static const char *clip_cause(const Sharded *s, const FlatParam *flat, const float *got, double norm,
                              double limit)
{
    const struct {
        double factor;
        const char *cause;
    } wrong[] = {
        {limit < norm ? limit / norm : 1.0, NULL}, // right
        {1.0, "every gradient is what it was: is it compared the right way round, and is every "
              "flat parameter scaled?"},
        {limit / norm, "the gradients are scaled up to max_norm: what must happen to a norm that is "
                       "smaller than max_norm?"},
        {norm / limit, "the factor is norm / max_norm: which way round must it be?"},
        {limit, "the factor is max_norm alone: where is the division by the norm?"},
        {1.0 / norm, "the factor is 1 / norm: where is max_norm?"},
        {limit / sqrt(squares_of_rank(s, s->rank)),
         "the factor is max_norm divided by the norm of this rank's own shards: is it not the same "
         "on every rank?"},
    };
    enum { N = sizeof wrong / sizeof wrong[0] };
    size_t numel = (size_t)flat->shard_numel;
    float *values = malloc(N * numel * sizeof *values);
    Clues clues = {.slack = 1e-6 * fabs(wrong[0].factor)};
    if (values == NULL) return "";
    for (size_t k = 0; k < N; k++) {
        for (size_t i = 0; i < numel; i++) {
            int64_t place = flat->rank * flat->shard_numel + (int64_t)i;
            double g = place < flat->numel ? (double)whole(place) : 0.0;
            values[k * numel + i] = (float)(g * wrong[k].factor);
        }
        if (k > 0) clues.clue[clues.n++] = (Clue){values + k * numel, wrong[k].cause};
    }
    const char *cause = cause_of(&clues, got, values, numel);
    free(values);
    return cause;
}

static void clip_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    FlatParam *flat[MAX_FLAT];
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    int n = fsdp_flat_params(s.model, flat, MAX_FLAT);
    float want = (float)sqrt(squares_of(&s)), norm;
    const float limits[] = {2.0f * want, want, want / 4.0f};
    for (int c = 0; c < 3; c++) {
        set_gradients(&s, 0.0f);
        norm = -1.0f;
        need(fsdp_clip_grad_norm(s.model, &s.ctx, limits[c], &norm));
        check(norm == want, "clip returns the norm %.9g, want that before clipping, %.9g%s",
              (double)norm, (double)want, norm_cause(&s, norm));
        need_cuda(cudaStreamSynchronize(s.ctx.compute));
        for (int k = 0; k < n; k++) {
            float *got = fetch(flat[k]->shard_grad, (size_t)flat[k]->shard_numel);
            for (int64_t i = 0; i < flat[k]->shard_numel; i++) {
                int64_t place = flat[k]->rank * flat[k]->shard_numel + i;
                double g = place < flat[k]->numel ? whole(place) : 0.0;
                if (c == 2) g *= (double)limits[c] / (double)want;
                check(fabs(got[i] - g) <= (c == 2 ? 1e-6 * fabs(g) : 0.0),
                      "norm %g, limit %g (%s): unit %s element %lld is %.9g, want %.9g%s",
                      (double)want, (double)limits[c],
                      c == 2 ? "every gradient times limit / norm" : "nothing may change",
                      flat[k]->name, (long long)i, (double)got[i], g,
                      clip_cause(&s, flat[k], got, (double)want, (double)limits[c]));
            }
            free(got);
        }
    }
    sharded_destroy(&s);
}

static void clip_scales_only_above(void **state)
{
    run_ranks(1, clip_body, NULL);
    run_ranks(3, clip_body, NULL);
}

// ---- SGD, and who steps what ----

// Why a shard is not what SGD makes of parameters place % 7 and gradients whole(place).
static const char *sgd_cause(const FlatParam *flat, const float *got, float lr, float decay)
{
    static const char *const cause[] = {
        NULL,
        "these are the values without weight decay: is weight_decay given to the kernel?",
        "the gradient is added: has the rate the right sign?",
        "every element is what it was: does any kernel run over this shard?",
        "the decay is not multiplied by the rate: p - lr·g - decay·p?",
    };
    enum { N = sizeof cause / sizeof cause[0] };
    size_t numel = (size_t)flat->shard_numel;
    float *values = malloc(N * numel * sizeof *values);
    Clues clues = {.n = 0};
    if (values == NULL) return "";
    for (size_t i = 0; i < numel; i++) {
        int64_t place = flat->rank * flat->shard_numel + (int64_t)i;
        float p = place < flat->numel ? (float)(place % 7) : 0.0f;
        float g = place < flat->numel ? whole(place) : 0.0f;
        values[i] = p - lr * (g + decay * p);
        values[numel + i] = p - lr * g;
        values[2 * numel + i] = p + lr * (g + decay * p);
        values[3 * numel + i] = p;
        values[4 * numel + i] = p - lr * g - decay * p;
    }
    for (size_t k = 1; k < N; k++)
        clues.clue[clues.n++] = (Clue){values + k * numel, cause[k]};
    const char *text = cause_of(&clues, got, values, numel);
    free(values);
    return text;
}

static void sgd_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    FlatParam *flat[MAX_FLAT];
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    int n = fsdp_flat_params(s.model, flat, MAX_FLAT);
    // Whole numbers as parameters and powers of two as rates: every value below is exact.
    for (int k = 0; k < n; k++) {
        float *host = malloc((size_t)flat[k]->shard_numel * sizeof *host);
        for (int64_t i = 0; i < flat[k]->shard_numel; i++) {
            int64_t place = flat[k]->rank * flat[k]->shard_numel + i;
            host[i] = place < flat[k]->numel ? (float)(place % 7) : 0.0f;
        }
        need_cuda(cudaDeviceSynchronize());
        send_to(flat[k]->shard, host, (size_t)flat[k]->shard_numel);
        free(host);
    }
    set_gradients(&s, 0.0f);
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    need(fsdp_sgd_step(s.model, &s.ctx, 0.5f, 0.25f));
    check_on_stream(log, s.ctx.compute, "an SGD step", "ctx->compute");
    for (int k = 0; k < n; k++) {
        float *got = fetch_shard(&s, flat[k]);
        for (int64_t i = 0; i < flat[k]->shard_numel; i++) {
            int64_t place = flat[k]->rank * flat[k]->shard_numel + i;
            float p = place < flat[k]->numel ? (float)(place % 7) : 0.0f;
            float g = place < flat[k]->numel ? whole(place) : 0.0f;
            float want = p - 0.5f * (g + 0.25f * p);
            check(got[i] == want, "unit %s element %lld: got %g, want p - lr·(g + decay·p) = %g%s",
                  flat[k]->name, (long long)i, (double)got[i], (double)want,
                  sgd_cause(flat[k], got, 0.5f, 0.25f));
        }
        free(got);
    }
    sharded_destroy(&s);
}

static void sgd_step_with_decay(void **state)
{
    run_ranks(1, sgd_body, NULL);
    run_ranks(4, sgd_body, NULL);
}

// Whether anything of the shard moved, where something should.
static const char *still_cause(const float *before, const float *after, int64_t numel, int k, int n)
{
    for (int64_t i = 0; i < numel; i++)
        if (before[i] != after[i]) return "";
    if (numel < 4) return "";
    if (k == 0)
        return LIKELY "nothing of the first unit's shard moved: does every rank step, or one alone?";
    return k == n - 1 ? LIKELY "nothing of the last unit's shard moved, and the units before it did: "
                               "does the loop over the flat parameters end one early?"
                      : LIKELY "nothing of this unit's shard moved, and the units before it did: "
                               "does the loop over the flat parameters reach it?";
}

static void every_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(4);
    Sharded s;
    FlatParam *flat[MAX_FLAT];
    sharded_create(&s, &spec, &TEST_OPTIONS, &TEST_ADAMW, r);
    int n = fsdp_flat_params(s.model, flat, MAX_FLAT);
    float *before[MAX_FLAT];
    set_gradients(&s, 0.0f);
    for (int k = 0; k < n; k++) before[k] = fetch_shard(&s, flat[k]);
    gpulog_reset_traffic();
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    need(fsdp_adamw_step(&s.adamw));
    check_no_host_wait(log, "in an optimizer step");
    check_on_stream(log, s.ctx.compute, "an AdamW step", "ctx->compute");
    check_no_race(log);
    for (int op = GPU_ALL_GATHER; op <= GPU_RECV; op++)
        check(gpulog_traffic((GpuOp)op).calls == 0, "a step needs no communication, but made an %s",
              gpulog_op_name((GpuOp)op));
    for (int k = 0; k < n; k++) {
        float *after = fetch_shard(&s, flat[k]);
        float *gradient = fetch(flat[k]->shard_grad, (size_t)flat[k]->shard_numel);
        for (int64_t i = 0; i < flat[k]->shard_numel; i++) {
            int64_t place = flat[k]->rank * flat[k]->shard_numel + i;
            check(place >= flat[k]->numel || gradient[i] == whole(place),
                  "unit %s: a step changed element %lld of the gradient; only fsdp_zero_grad does",
                  flat[k]->name, (long long)i);
            bool moves = place < flat[k]->numel && whole(place) != 0.0f;
            check(!moves || after[i] != before[k][i],
                  "unit %s: element %lld of this rank's shard has a gradient and did not move%s",
                  flat[k]->name, (long long)i,
                  still_cause(before[k], after, flat[k]->shard_numel, k, n));
        }
        free(after);
        free(gradient);
        free(before[k]);
    }
    sharded_destroy(&s);
}

static void every_rank_steps_its_shard(void **state)
{
    for (int world = 1; world <= 8; world++) run_ranks(world, every_body, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(adamw_follows_the_formula), cmocka_unit_test(moments_are_shard_sized),
    cmocka_unit_test(padding_stays_zero),        cmocka_unit_test(zero_grad_zeroes),
    cmocka_unit_test(norm_is_over_all_ranks),    cmocka_unit_test(clip_scales_only_above),
    cmocka_unit_test(sgd_step_with_decay),       cmocka_unit_test(every_rank_steps_its_shard),
};
SUITE_MAIN("optimizer", tests)
