/* Lab 2, loss scaling: into the gradients and out of them, the step that is left out, the scale.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "tests.h"

// What a step may change on this rank: shards and moments, back to back; their length in *n.
static float *state_of(const Wrapped *w, size_t *n)
{
    size_t all = 0;
    for (int u = 0; u < w->root->n_units; u++)
        all += 3 * (size_t)w->root->units[u]->flat.layout.shard_numel;
    float *values = malloc((all + 1) * sizeof *values);
    check(values != NULL, "no memory for %zu numbers", all);
    *n = all;
    all = 0;
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatParam *flat = &w->root->units[u]->flat;
        const float *from[] = {flat->sharded_param.data, w->adamw.m[u], w->adamw.v[u]};
        for (int i = 0; i < 3; i++) {
            float *part = fetch(from[i], (size_t)flat->layout.shard_numel);
            memcpy(values + all, part, (size_t)flat->layout.shard_numel * sizeof *part);
            all += (size_t)flat->layout.shard_numel;
            free(part);
        }
    }
    return values;
}

// A step of a training loop; `spoil` makes this rank's gradient too large for fp16.
static void scaled_step(Wrapped *w, LossScaler *scaler, const Case *c, const Rank *r, int step,
                        bool spoil)
{
    size_t n = (size_t)c->spec.B * (size_t)c->spec.T * (size_t)c->spec.vocab;
    float *logits, *dlogits, *din, loss;
    Batch batch = case_batch(c, step, r->rank, 0);
    w->run.B = c->spec.B;
    w->run.T = c->spec.T;
    need(fsdp_zero_grad(w->model, &w->ctx));
    need(module_forward(w->model, &w->run, batch.in, &logits));
    need(cross_entropy(&w->run, logits, batch.targets, c->spec.B * c->spec.T, c->spec.vocab, &loss,
                       &dlogits));
    if (scaler != NULL) need(loss_scaler_scale(scaler, dlogits, n, r->stream));
    if (spoil) need_cuda(kernel_scale(dlogits, 1e12f, n, r->stream));
    need(module_backward(w->model, &w->run, dlogits, &din));
    need_cuda(cudaFreeAsync(dlogits, r->stream));
    if (din != NULL) need_cuda(cudaFreeAsync(din, r->stream));
    batch_destroy(&batch);
}

static void overflow_body(Wrapped *w, const Case *c, const Rank *r)
{
    LossScaler scaler = LOSS_SCALER_DEFAULTS;
    size_t n, again;
    scaler.scale = 1024.0f;
    need(loss_scaler_create(&scaler, w->model));
    for (int step = 0; step < 4; step++) {
        bool left_out = step == 1 || step == 3;
        int t = w->adamw.t;
        float scale = scaler.scale, *before = state_of(w, &n);
        scaled_step(w, &scaler, c, r, step, left_out && r->rank == r->world - 1);
        gpulog_reset_traffic();
        need(loss_scaler_unscale(&scaler));
        GpuTraffic traffic = gpulog_traffic(GPU_ALL_REDUCE);
        bool asks = w->mesh.shard.size > 1;
        check(
            traffic.calls == (uint64_t)asks && traffic.bytes == 4 * (uint64_t)asks,
            "loss_scaler_unscale made %llu all-reduces of %llu bytes, want %d of 4: one, over the "
            "ranks that shard",
            (unsigned long long)traffic.calls, (unsigned long long)traffic.bytes, (int)asks);
        check(scaler.found_inf == left_out,
              "step %d: rank %d says that a gradient is %sfinite, where that of the last rank is "
              "%sfinite: all ranks say the same",
              step, r->rank, scaler.found_inf ? "not " : "", left_out ? "not " : "");
        need(loss_scaler_step(&scaler, &w->adamw));
        need(loss_scaler_update(&scaler));
        need_cuda(cudaDeviceSynchronize());
        float *after = state_of(w, &again);
        bool same = n == again && memcmp(before, after, n * sizeof *before) == 0;
        check(
            same == left_out && w->adamw.t == t + !left_out,
            "step %d: parameters and moments %s and t went from %d to %d: a step that is left out "
            "changes nothing, any other does",
            step, same ? "are as before" : "have changed", t, w->adamw.t);
        check(scaler.scale == (left_out ? scale / 2.0f : scale),
              "step %d: the scale went from %g to %g", step, (double)scale, (double)scaler.scale);
        free(before);
        free(after);
    }
    loss_scaler_destroy(&scaler);
}

TEST(an_overflow_leaves_the_step_out_everywhere)
{
    for (int i = 0; i < 4; i++) {
        Case c = typed(spec_mlp(3), F16, i % 2 ? F32 : F16, ALL[i], 3);
        run_wrapped(3, overflow_body, &c);
    }
    Case hsdp = typed(spec_mlp(3), F16, F16, STRATEGY_ZERO3, 4);
    hsdp.replicas = 2;
    run_wrapped(4, overflow_body, &hsdp);
    Case one = typed(spec_mlp(3), F16, F16, STRATEGY_ZERO3, 1);
    run_wrapped(1, overflow_body, &one);
    RULE(policies_beyond_32_bits);
}

static void unscale_body(Wrapped *w, const Case *c, const Rank *r)
{
    LossScaler scaler = LOSS_SCALER_DEFAULTS;
    size_t n, again;
    scaler.scale = 4096.0f;
    need(loss_scaler_create(&scaler, w->model));
    scaled_step(w, NULL, c, r, 0, false);
    need_cuda(cudaDeviceSynchronize());
    float *want = case_gradients(w, &n);
    scaled_step(w, &scaler, c, r, 0, false);
    need_cuda(cudaDeviceSynchronize());
    float *scaled = case_gradients(w, &again);
    for (size_t i = 0; i < n; i++)
        check(scaled[i] == 4096.0f * want[i],
              "with a scale of 4096 gradient %zu is %.9g, and without %.9g: the loss's gradient is "
              "multiplied, once",
              i, (double)scaled[i], (double)want[i]);
    need(loss_scaler_unscale(&scaler));
    float *got = case_gradients(w, &again);
    for (size_t i = 0; i < n; i++)
        check(
            got[i] == want[i],
            "gradient %zu, %.9g with a scale of 4096, is unscaled to %.9g, want %.9g: that without "
            "a scale",
            i, (double)scaled[i], (double)got[i], (double)want[i]);
    free(want);
    free(scaled);
    free(got);
    loss_scaler_destroy(&scaler);
}

TEST(gradients_are_scaled_and_unscaled)
{
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO2, 2, 1, 1); // powers of two change no bit
    run_wrapped(2, unscale_body, &c);
}

// A step with gradients of zero, one of them infinite where `spoil`.
static void step_of_zeros(Wrapped *w, LossScaler *scaler, bool spoil)
{
    const Buffer *grad = &w->root->units[w->root->n_units - 1]->flat.sharded_grad;
    float bad[] = {spoil ? INFINITY : 0.0f};
    need(fsdp_zero_grad(w->model, &w->ctx));
    need_cuda(cudaDeviceSynchronize());
    send_to((float *)grad->data + grad->numel - 1, bad, 1);
    need(loss_scaler_step(scaler, &w->adamw));
    need_refused(loss_scaler_step(scaler, &w->adamw), "this step was taken already");
    need_refused(loss_scaler_unscale(scaler), "are unscaled already");
    need_refused(loss_scaler_scale(scaler, grad->data, 1, w->ctx.compute_stream),
                 "are unscaled already");
    need(loss_scaler_update(scaler));
    need_refused(loss_scaler_update(scaler), "nothing was unscaled");
}

static void scale_body(Wrapped *w, const Case *c, const Rank *r)
{
    static const char STEPS[] = "gggbggbbggggggggggggggg"; // good and bad
    LossScaler scaler = {
        .scale = 0x1p125f, .growth_factor = 4.0f, .backoff_factor = 0.25f, .growth_interval = 3};
    need(loss_scaler_create(&scaler, w->model));
    float want = scaler.scale;
    int good = 0;
    for (size_t i = 0; STEPS[i] != '\0'; i++) {
        step_of_zeros(w, &scaler, STEPS[i] == 'b');
        good = STEPS[i] == 'b' ? 0 : good + 1;
        if (STEPS[i] == 'b') want /= 4.0f;
        if (good == 3 && want < 0x1p126f) want *= 4.0f;
        if (good == 3) good = 0;
        check(
            scaler.scale == want && scaler.growth_tracker == good,
            "after step %zu of %s (g: finite) the scale is %g and the tracker %d, want %g and %d: "
            "times 0.25 after b, times 4 after three g, and never infinite%s",
            i + 1, STEPS, (double)scaler.scale, scaler.growth_tracker, (double)want, good,
            scaler.scale == want ? ": in loss_scaler_update the tracker is 0 again after the third "
                                   "g, whether or not the scale grew"
                                 : "");
    }
    loss_scaler_destroy(&scaler);
}

TEST(the_scale_shrinks_and_grows)
{
    Case c = typed(spec_mlp(2), F16, F32, STRATEGY_ZERO3, 2);
    run_wrapped(2, scale_body, &c);
    RULE(scales_any_gradient);
    RULE(scaler_refusals);
}
