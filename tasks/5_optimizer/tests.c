/* Task 5, optimizer: each rank steps its shard, padding stays zero, and the norm is everybody's. */
#include "bytes.h"
#include "draw_model.h"
#include "figures.h"
#include "fsdp.h"
#include "harness.h"
#include "rules.h"
#include "steps.h"
#include "training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// A model, how its shards are cut, and what an optimizer is told.
typedef struct Case {
    Shape shape;
    AdamWConfig adamw;
    int steps;
    float limit;       // of the gradient's norm, as a part of what it is
    float rate, decay; // of SGD
} Case;

// With the known gradients.
static Case known_case(int layers)
{
    known_given();
    return (Case){
        .shape = {spec_mlp(layers), TEST_OPTIONS},
        .adamw = {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.5f},
        .steps = 5,
        .limit = 0.25f,
        .rate = 0.5f,
        .decay = 0.25f,
    };
}

// The decay rates of the moments stay where rounding in float keeps the bounds below: both further
// from 1 than in the known case, or as far. SGD's rates are powers of two, so that nothing is
// rounded.
static Case draw_case(void)
{
    Case c = known_case(5);
    draw_given();
    c.shape.spec = draw_mlp(5);
    c.shape.options.align_shards = draw_chance(50);
    c.shape.options.seed = draw_word();
    c.adamw = (AdamWConfig){
        .lr = (float)draw(1, 20) * 0.001f,
        .beta1 = (float)draw(50, 90) * 0.01f,
        .beta2 = (float)draw(60, 95) * 0.01f,
        .eps = draw_chance(50) ? 1e-8f : 1e-5f,
        .weight_decay = (float)draw(0, 10) * 0.05f,
    };
    c.steps = draw(2, 5);
    c.limit = (float)draw(1, 15) / 16.0f;
    c.rate = 1.0f / (float)(1 << draw(0, 4));
    c.decay = 1.0f / (float)(1 << draw(0, 4));
    return c;
}

// So many ranks, from `low` to 8; says with the case what was drawn.
static int drawn_case(const Case *c, int low)
{
    const Spec *spec = &c->shape.spec;
    int world = draw(low, 8);
    drawn("%d layers, %d > %d > %d, %d ranks, aligned: %s; AdamW lr %g, betas %g and %g, eps %g, "
          "decay %g, %d steps; SGD %g, decay %g; norm to %g of itself",
          spec->layers, spec->in_dim, spec->dim, spec->vocab, world,
          c->shape.options.align_shards ? "yes" : "no", (double)c->adamw.lr, (double)c->adamw.beta1,
          (double)c->adamw.beta2, (double)c->adamw.eps, (double)c->adamw.weight_decay, c->steps,
          (double)c->rate, (double)c->decay, (double)c->limit);
    return world;
}

// On a case that is drawn, with gradients that are drawn.
static void run_drawn(ShardedBody body)
{
    Case in = draw_case();
    run_shape(in.shape, body, &in, drawn_case(&in, 1));
}

// A gradient for every flat parameter of the model: element i of the whole buffer is
// given_gradient(i) times a scale, the same on every rank; the padding gets `padding`.
static void set_scaled_gradients(Sharded *s, float scale, float padding)
{
    FlatParam *flat[MAX_FLAT];
    int n = flat_params(s->model, flat, MAX_FLAT);
    for (int k = 0; k < n; k++) {
        float *host = malloc((size_t)flat[k]->layout.shard_numel * sizeof *host);
        for (int64_t i = 0; i < flat[k]->layout.shard_numel; i++) {
            int64_t place = flat[k]->layout.rank * flat[k]->layout.shard_numel + i;
            host[i] = place < flat[k]->layout.numel ? scale * given_gradient(place) : padding;
        }
        need_cuda(cudaDeviceSynchronize());
        send_to(flat[k]->sharded_grad.data, host, (size_t)flat[k]->layout.shard_numel);
        free(host);
    }
}

static void set_gradients(Sharded *s, float padding)
{
    set_scaled_gradients(s, 1.0f, padding);
}

static float *fetch_shard(const Sharded *s, const FlatParam *flat)
{
    need_cuda(cudaStreamSynchronize(s->ctx.compute_stream));
    return fetch(flat->sharded_param.data, (size_t)flat->layout.shard_numel);
}

// `function` only reads what set_gradients has written.
static void check_gradient_kept(const FlatParam *flat, const char *function)
{
    const FlatLayout *layout = &flat->layout;
    float *got = fetch(flat->sharded_grad.data, (size_t)layout->shard_numel);
    for (int64_t i = 0; i < layout->shard_numel; i++) {
        int64_t place = layout->rank * layout->shard_numel + i;
        check(place >= layout->numel || got[i] == given_gradient(place),
              "unit %s: %s changed element %lld of the gradient, which it only reads", flat->name,
              function, (long long)i);
    }
    free(got);
}

// ---- AdamW ----

static void formula_body(Sharded *s, const Rank *r, void *arg)
{
    const Case *in = arg;
    FlatParam *flat[MAX_FLAT];
    const AdamWConfig c = in->adamw;
    need(fsdp_adamw_create(&s->adamw, s->model, &s->ctx, &in->adamw));
    int n = flat_params(s->model, flat, MAX_FLAT);
    float *start[MAX_FLAT];
    for (int k = 0; k < n; k++) {
        start[k] = fetch_shard(s, flat[k]);
        check(s->adamw.m[k] != NULL && s->adamw.v[k] != NULL,
              "create_moments must give opt->m[%d] and opt->v[%d] memory, and one of %d units has "
              "none: opt->%c[%d]",
              k, k, n, s->adamw.m[k] == NULL ? 'm' : 'v', k);
        check(s->adamw.m[k] != s->adamw.v[k],
              "create_moments must give opt->m[%d] and opt->v[%d] memory of their own: both are "
              "the same",
              k, k);
    }
    for (int t = 1; t <= in->steps; t++) {
        set_scaled_gradients(s, given_scale(t), 0.0f);
        need(fsdp_adamw_step(&s->adamw));
        check_figures();
    }
    check(s->adamw.t == in->steps, "after %d steps of fsdp_adamw_step the count t is %d%s",
          in->steps, s->adamw.t,
          s->adamw.t == in->steps * n ? LIKELY
              "it went up for every unit: is opt->t++ inside the loop?"
                                      : "");

    for (int k = 0; k < n; k++) {
        size_t numel = (size_t)flat[k]->layout.shard_numel;
        float *got = fetch_shard(s, flat[k]);
        float *got_m = fetch(s->adamw.m[k], numel), *got_v = fetch(s->adamw.v[k], numel);
        for (int64_t i = 0; i < flat[k]->layout.shard_numel; i++) {
            int64_t place = flat[k]->layout.rank * flat[k]->layout.shard_numel + i;
            double g = place < flat[k]->layout.numel ? (double)given_gradient(place) : 0.0, out[3];
            follow_formula(&c, RIGHT, in->steps, k, n, (double)start[k][i], g, out);
            double p = out[0], m = out[1], v = out[2];
            char where[300];
            Layout layout;
            unit_layout(&layout, s, flat[k], false);
            layout_say(&layout, numel, (size_t)i, where, sizeof where);
            // Five steps of rounding in float: a few units in the last place of the parameter and
            // the step.
            check(fabs(got[i] - p) <= 2e-6 * (fabs(p) + (double)c.lr),
                  "unit %s, %s: after %d steps of fsdp_adamw_step %.9g, the formula gives %.9g%s",
                  flat[k]->name, where, in->steps, (double)got[i], p,
                  formula_cause(s, &c, in->steps, k, n, flat[k], start[k], got));
            // No gradient is larger than 2, so rounding moves no moment by more than this.
            check(fabs(got_m[i] - m) <= 4e-6 && fabs(got_v[i] - v) <= 4e-6,
                  "unit %s, %s: after %d steps the moments in opt->m and "
                  "opt->v are %.9g and %.9g, the formula gives %.9g and %.9g%s",
                  flat[k]->name, where, in->steps, (double)got_m[i], (double)got_v[i], m, v,
                  fabs(got_m[i] - v) <= 4e-6 && fabs(got_v[i] - m) <= 4e-6 ? LIKELY
                      "they are exchanged: in which order does kernel_adamw take them?"
                                                                           : "");
        }
        free(got);
        free(got_m);
        free(got_v);
        free(start[k]);
    }
}

TEST(adamw_follows_the_formula)
{
    Case in = known_case(3);
    run_shape(in.shape, formula_body, &in, 1, 3);
    RULE(each_optimizer_counts_its_steps);
    run_drawn(formula_body);
}

static void moments_body(Sharded *s, const Rank *r, void *arg)
{
    size_t live = gpulog_live_bytes(r->device), valid = 0;
    size_t want = 8 * (size_t)sharded_padded(s) / (size_t)r->world;
    FlatParam *flat[MAX_FLAT];
    for (int n = flat_params(s->model, flat, MAX_FLAT); n > 0; n--)
        valid += 8 * (size_t)flat_valid_numel(&flat[n - 1]->layout, flat[n - 1]->layout.rank);
    need(fsdp_adamw_create(&s->adamw, s->model, &s->ctx, &TEST_ADAMW));
    size_t took = gpulog_live_bytes(r->device) - live;
    check(took == want,
          "the moments of create_moments take %zu bytes on this rank, want 8 bytes for each "
          "element of its shards: %zu%s",
          took, want,
          took == 0 && s->adamw.m != NULL && s->adamw.m[0] != NULL ? LIKELY
              "zeros takes memory of the host, where cudaMalloc takes the device's"
          : took == valid ? LIKELY
              "they have the valid elements alone (flat_valid_numel), and the padding has "
              "moments, too: kernel_adamw runs over the whole shard"
                          : arrays_cause(took, 2, want / 2, want / 2 * (size_t)r->world));
    set_gradients(s, 0.0f);
    need(fsdp_adamw_step(&s->adamw));
    check_figures();
    check(gpulog_live_bytes(r->device) - live == want, "a step left %zu bytes allocated",
          gpulog_live_bytes(r->device) - live - want);
    fsdp_adamw_destroy(&s->adamw);
    check(gpulog_live_bytes(r->device) == live,
          "fsdp_adamw_destroy_default must free all moments, and has left %zu bytes",
          gpulog_live_bytes(r->device) - live);
}

TEST(moments_are_shard_sized)
{
    Case in = known_case(4);
    run_shape(in.shape, moments_body, &in, 1, 4, 7);
    RULE(failed_optimizer_keeps_nothing);
    RULE(moments_beyond_32_bits);
    RULE(gradients_alone_are_counted, APART_STATE);
    run_drawn(moments_body);
}

static void padding_body(const Rank *r, void *arg)
{
    const Case *in = arg;
    for (int align = 0; align <= 1; align++) {
        Sharded s;
        FsdpOptions options = in->shape.options;
        options.align_shards = align;
        sharded_create(&s, &in->shape.spec, &options, &TEST_ADAMW, r);
        FlatParam *flat[MAX_FLAT];
        int n = flat_params(s.model, flat, MAX_FLAT);
        float *before[MAX_FLAT];
        for (int k = 0; k < n; k++) before[k] = fetch_shard(&s, flat[k]);
        for (int step = 0; step < 4; step++) {
            int valid = 0, moved = 0;
            // Dirt where no gradient should be: the step must not let it into the parameters. They
            // were zero there until now: each step is looked at.
            set_gradients(&s, 3.0f);
            if (step >= 2) // without decay too: the dirt is in the gradient
                need(fsdp_sgd_step(s.model, &s.ctx, 0.5f, step == 2 ? 0.25f : 0.0f));
            else
                need(fsdp_adamw_step(&s.adamw));
            for (int k = 0; k < n; k++) {
                float *shard = fetch_shard(&s, flat[k]);
                for (int64_t i = 0; i < flat[k]->layout.shard_numel; i++) {
                    int64_t place = flat[k]->layout.rank * flat[k]->layout.shard_numel + i;
                    bool padding = place >= flat[k]->layout.numel;
                    bool moves = !padding && given_gradient(place) != 0.0f;
                    valid += moves;
                    moved += moves && shard[i] != before[k][i];
                    check(
                        !padding || shard[i] == 0.0f,
                        "%s: after step %d (%s) padding element %lld of unit %s is %g, not zero%s",
                        step >= 2 ? "fsdp_sgd_step" : "fsdp_adamw_step", step,
                        step >= 2 ? "SGD" : "AdamW", (long long)i, flat[k]->name, (double)shard[i],
                        padding_cause(shard[i], step >= 2));
                }
                free(before[k]);
                before[k] = shard;
            }
            check(moved > 0 || valid == 0,
                  "%s moved none of the %d elements that have a gradient: nothing was stepped",
                  step >= 2 ? "fsdp_sgd_step" : "fsdp_adamw_step", valid);
        }
        for (int k = 0; k < n; k++) free(before[k]);
        sharded_destroy(&s);
    }
}

TEST(padding_stays_zero)
{
    Case in = known_case(3);
    for (int world = 1; world <= 8; world++) run_ranks(world, padding_body, &in);
    in = draw_case();
    run_ranks(drawn_case(&in, 1), padding_body, &in);
}

// ---- Gradients ----

static void zero_body(Sharded *s, const Rank *r, void *arg)
{
    FlatParam *flat[MAX_FLAT];
    int n = flat_params(s->model, flat, MAX_FLAT);
    float *before[MAX_FLAT];
    set_gradients(s, 3.0f);
    for (int k = 0; k < n; k++)
        before[k] = fetch(flat[k]->sharded_grad.data, (size_t)flat[k]->layout.shard_numel);
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    need(fsdp_zero_grad(s->model, &s->ctx));
    check_figures();
    check_no_host_wait(log, "in fsdp_zero_grad");
    check_on_stream(log, s->ctx.compute_stream, "zeroing the gradients", "ctx->compute_stream");
    need_cuda(cudaStreamSynchronize(s->ctx.compute_stream));
    for (int k = 0; k < n; k++) {
        size_t numel = (size_t)flat[k]->layout.shard_numel;
        float *got = fetch(flat[k]->sharded_grad.data, numel), *zero = calloc(numel, sizeof *zero);
        Layout layout;
        char what[100];
        unit_layout(&layout, s, flat[k], false);
        snprintf(what, sizeof what, "unit %s, the gradient shard after fsdp_zero_grad",
                 flat[k]->name);
        check_equal_in(&((Clues){.layout = &layout, .before = before[k]}), what, got, zero, numel);
        free(got);
        free(zero);
        free(before[k]);
    }
}

TEST(zero_grad_zeroes)
{
    Case in = known_case(3);
    run_shape(in.shape, zero_body, &in, 1, 3);
    RULE(zero_grad_reaches_every_unit);
    RULE(contexts_are_apart, APART_ZERO_GRAD);
    RULE(counts_beyond_32_bits, APART_ZERO_GRAD);
    RULE(gradients_alone_are_counted, APART_ZERO_GRAD);
    RULE(nothing_grows, APART_ZERO_GRAD);
    run_drawn(zero_body);
}

// However the ranks' sums become one: no kind of collective is called twice.
static void check_summed_once(uint64_t log)
{
    for (int op = GPU_ALL_GATHER; op <= GPU_RECV; op++)
        check(gpulog_count((GpuOp)op, log) <= 1,
              "fsdp_grad_norm makes %d calls of %s: the squares of all units are summed over the "
              "ranks once",
              (int)gpulog_count((GpuOp)op, log), gpulog_op_name((GpuOp)op));
}

// Squares of sixteenths add up exactly in double, in any order: the norm has one right value.
static void check_norm(Sharded *s, float norm, float want)
{
    check(norm == want, "fsdp_grad_norm gives %.9g on this rank, want %.9g%s", (double)norm,
          (double)want, norm_cause(s, norm));
}

static void norm_body(Sharded *s, const Rank *r, void *arg)
{
    size_t live = gpulog_live_bytes(r->device);
    set_gradients(s, 0.0f);
    float norm = -1.0f, want = (float)sqrt(given_squares(s));
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    need(fsdp_grad_norm(s->model, &s->ctx, &norm));
    check_figures();
    check_norm(s, norm, want);
    check(gpulog_live_bytes(r->device) == live, "fsdp_grad_norm left memory allocated");
    check_summed_once(log);
    check(gpulog_count(GPU_DEVICE_SYNC, log) == 0,
          "fsdp_grad_norm waits for all that the device does: the host must wait for only the "
          "compute "
          "stream, or an all-gather that runs ahead delays it");
    check_no_race(log);
}

TEST(norm_is_over_all_ranks)
{
    Case in = known_case(4);
    for (int world = 1; world <= 8; world++) run_shape(in.shape, norm_body, &in, world);
    RULE(norm_has_the_same_bits_everywhere);
    RULE(failed_norm_keeps_nothing);
    RULE(norm_refuses_what_is_no_root);
    RULE(contexts_are_apart, APART_NORM);
    RULE(counts_beyond_32_bits, APART_NORM);
    RULE(gradients_alone_are_counted, APART_NORM);
    run_drawn(norm_body);
}

static uint64_t collectives(uint64_t log)
{
    uint64_t calls = 0;
    for (int op = GPU_ALL_GATHER; op <= GPU_RECV; op++) calls += gpulog_count((GpuOp)op, log);
    return calls;
}

static void clip_body(Sharded *s, const Rank *r, void *arg)
{
    const Case *in = arg;
    FlatParam *flat[MAX_FLAT];
    int n = flat_params(s->model, flat, MAX_FLAT);
    float want = (float)sqrt(given_squares(s)), norm;
    const float limits[] = {2.0f * want, want, in->limit * want};
    set_gradients(s, 0.0f);
    uint64_t log = gpulog_length();
    need(fsdp_grad_norm(s->model, &s->ctx, &norm));
    check_norm(s, norm, want);
    const uint64_t once = collectives(log);
    for (int c = 0; c < 3; c++) {
        set_gradients(s, 0.0f);
        norm = -1.0f;
        log = gpulog_length();
        need(fsdp_clip_grad_norm(s->model, &s->ctx, limits[c], &norm));
        check_figures();
        check(collectives(log) <= once,
              "fsdp_clip_grad_norm makes %d collective calls, want %d: the norm is taken once",
              (int)collectives(log), (int)once);
        check(norm == want,
              "fsdp_clip_grad_norm returns the norm %.9g, and must return that before clipping, "
              "%.9g%s",
              (double)norm, (double)want, norm_cause(s, norm));
        need_cuda(cudaStreamSynchronize(s->ctx.compute_stream));
        for (int k = 0; k < n; k++) {
            float *got = fetch(flat[k]->sharded_grad.data, (size_t)flat[k]->layout.shard_numel);
            for (int64_t i = 0; i < flat[k]->layout.shard_numel; i++) {
                int64_t place = flat[k]->layout.rank * flat[k]->layout.shard_numel + i;
                double g = place < flat[k]->layout.numel ? given_gradient(place) : 0.0;
                if (c == 2) g *= (double)limits[c] / (double)want;
                check(fabs(got[i] - g) <= (c == 2 ? 1e-6 * fabs(g) : 0.0),
                      "fsdp_clip_grad_norm (norm %g, limit %g, %s): unit %s element %lld is %.9g, "
                      "want %.9g%s",
                      (double)want, (double)limits[c],
                      c == 2 ? "every gradient times limit / norm" : "nothing may change",
                      flat[k]->name, (long long)i, (double)got[i], g,
                      clip_cause(s, flat[k], got, (double)want, (double)limits[c]));
            }
            free(got);
        }
    }
}

TEST(clip_scales_only_above)
{
    Case in = known_case(3);
    run_shape(in.shape, clip_body, &in, 1, 3);
    RULE(clips_at_any_norm);
    RULE(clip_refuses_what_is_no_root);
    RULE(contexts_are_apart, APART_CLIP);
    RULE(counts_beyond_32_bits, APART_CLIP);
    RULE(gradients_alone_are_counted, APART_CLIP);
    RULE(nothing_grows, APART_CLIP);
    run_drawn(clip_body);
}

// ---- SGD, and who steps what ----

static void sgd_body(Sharded *s, const Rank *r, void *arg)
{
    const Case *in = arg;
    FlatParam *flat[MAX_FLAT];
    int n = flat_params(s->model, flat, MAX_FLAT);
    // Whole numbers as parameters and powers of two as rates: every value below is exact.
    for (int k = 0; k < n; k++) {
        float *host = malloc((size_t)flat[k]->layout.shard_numel * sizeof *host);
        for (int64_t i = 0; i < flat[k]->layout.shard_numel; i++) {
            int64_t place = flat[k]->layout.rank * flat[k]->layout.shard_numel + i;
            host[i] = place < flat[k]->layout.numel ? (float)(place % 7) : 0.0f;
        }
        need_cuda(cudaDeviceSynchronize());
        send_to(flat[k]->sharded_param.data, host, (size_t)flat[k]->layout.shard_numel);
        free(host);
    }
    set_gradients(s, 0.0f);
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    need(fsdp_sgd_step(s->model, &s->ctx, in->rate, in->decay));
    check_figures();
    check_no_host_wait(log, "in an SGD step");
    check_on_stream(log, s->ctx.compute_stream, "an SGD step", "ctx->compute_stream");
    for (int k = 0; k < n; k++) {
        float *got = fetch_shard(s, flat[k]);
        for (int64_t i = 0; i < flat[k]->layout.shard_numel; i++) {
            int64_t place = flat[k]->layout.rank * flat[k]->layout.shard_numel + i;
            float p = place < flat[k]->layout.numel ? (float)(place % 7) : 0.0f;
            float g = place < flat[k]->layout.numel ? given_gradient(place) : 0.0f;
            float want = p - in->rate * (g + in->decay * p);
            check(got[i] == want,
                  "fsdp_sgd_step, unit %s element %lld: got %g, want p - lr·(g + decay·p) = %g%s",
                  flat[k]->name, (long long)i, (double)got[i], (double)want,
                  sgd_cause(flat[k], got, in->rate, in->decay));
        }
        check_gradient_kept(flat[k], "fsdp_sgd_step");
        free(got);
    }
}

TEST(sgd_step_with_decay)
{
    Case in = known_case(3);
    run_shape(in.shape, sgd_body, &in, 1, 4);
    RULE(sgd_steps_all_or_nothing);
    RULE(contexts_are_apart, APART_SGD);
    RULE(counts_beyond_32_bits, APART_SGD);
    RULE(gradients_alone_are_counted, APART_SGD);
    RULE(nothing_grows, APART_SGD);
    run_drawn(sgd_body);
}

static void every_body(Sharded *s, const Rank *r, void *arg)
{
    FlatParam *flat[MAX_FLAT];
    need(fsdp_adamw_create(&s->adamw, s->model, &s->ctx, &TEST_ADAMW));
    int n = flat_params(s->model, flat, MAX_FLAT);
    float *before[MAX_FLAT];
    set_gradients(s, 0.0f);
    for (int k = 0; k < n; k++) before[k] = fetch_shard(s, flat[k]);
    gpulog_reset_traffic();
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    need(fsdp_adamw_step(&s->adamw));
    check_figures();
    check_no_host_wait(log, "in an optimizer step");
    check_on_stream(log, s->ctx.compute_stream, "an AdamW step", "ctx->compute_stream");
    check_no_race(log);
    for (int op = GPU_ALL_GATHER; op <= GPU_RECV; op++)
        check(gpulog_traffic((GpuOp)op).calls == 0,
              "fsdp_adamw_step needs no communication, but made an %s", gpulog_op_name((GpuOp)op));
    for (int k = 0; k < n; k++) {
        float *after = fetch_shard(s, flat[k]);
        check_gradient_kept(flat[k], "fsdp_adamw_step");
        for (int64_t i = 0; i < flat[k]->layout.shard_numel; i++) {
            int64_t place = flat[k]->layout.rank * flat[k]->layout.shard_numel + i;
            bool moves = place < flat[k]->layout.numel && given_gradient(place) != 0.0f;
            check(!moves || after[i] != before[k][i],
                  "unit %s: element %lld of this rank's shard has a gradient and fsdp_adamw_step "
                  "did not move "
                  "it%s",
                  flat[k]->name, (long long)i,
                  still_cause(before[k], after, flat[k]->layout.shard_numel, k, n));
        }
        free(after);
        free(before[k]);
    }
}

TEST(every_rank_steps_its_shard)
{
    Case in = known_case(4);
    for (int world = 1; world <= 8; world++) run_shape(in.shape, every_body, &in, world);
    RULE(adamw_steps_all_or_nothing);
    RULE(contexts_are_apart, APART_ADAMW);
    RULE(counts_beyond_32_bits, APART_ADAMW);
    RULE(gradients_alone_are_counted, APART_ADAMW);
    RULE(nothing_grows, APART_ADAMW);
    run_drawn(every_body);
}

SUITE_MAIN("optimizer")
