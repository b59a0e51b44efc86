/* rules.c: sentences of fsdp.h on optimizer.c that no other body of its suite reads. See
 * rules.h.
 */
#include "rules.h"

#include "draw.h"
#include "figures.h"
#include "fsdp.h"
#include "harness.h"
#include "kernels.h"
#include "pattern.h"
#include "snapshot.h"
#include "steps.h"
#include "training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 20 }; // units below the root, more than anybody's array of sixteen

// This rank's shard of a gradient whose element `place` is value(place, unit); padding 0.
typedef double (*GradientOf)(int64_t place, int unit);

static float *shard_of(const FlatParam *flat, int unit, GradientOf value)
{
    float *host = malloc((size_t)flat->layout.shard_numel * sizeof *host);
    check(host != NULL, "no memory");
    for (int64_t i = 0; i < flat->layout.shard_numel; i++) {
        int64_t place = flat->layout.rank * flat->layout.shard_numel + i;
        host[i] = place < flat->layout.numel ? (float)value(place, unit) : 0.0f;
    }
    return host;
}

// Gives every unit the gradient; returns its norm over all ranks, in double.
static double give(const Sharded *s, GradientOf value)
{
    FlatParam *flat[MAX_FLAT];
    int n = flat_params(s->model, flat, MAX_FLAT);
    double squares = 0.0;
    need_cuda(cudaDeviceSynchronize());
    for (int k = 0; k < n; k++) {
        float *host = shard_of(flat[k], k, value);
        send_to(flat[k]->sharded_grad.data, host, (size_t)flat[k]->layout.shard_numel);
        free(host);
        for (int64_t i = 0; i < flat[k]->layout.numel; i++) {
            double g = (double)(float)value(i, k);
            squares += g * g;
        }
    }
    return sqrt(squares);
}

// Whether every unit's gradient is the given one times a factor; 1: bitwise.
static void check_given(const Sharded *s, GradientOf value, double factor, const char *when)
{
    FlatParam *flat[MAX_FLAT];
    int n = flat_params(s->model, flat, MAX_FLAT);
    need_cuda(cudaStreamSynchronize(s->ctx.compute_stream));
    for (int k = 0; k < n; k++) {
        float *want = shard_of(flat[k], k, value);
        float *got = fetch(flat[k]->sharded_grad.data, (size_t)flat[k]->layout.shard_numel);
        for (int64_t i = 0; i < flat[k]->layout.shard_numel; i++) {
            double g = (double)want[i] * factor;
            bool same = factor == 1.0 ? memcmp(&got[i], &want[i], sizeof *got) == 0
                                      : fabs((double)got[i] - g) <= 1e-6 * fabs(g);
            check(same, "%s: element %lld of the gradient of unit %s is %.9g, want %.9g", when,
                  (long long)i, flat[k]->name, (double)got[i], g);
        }
        free(want);
        free(got);
    }
}

// ---- Clipping at norms that are no ordinary numbers ----

static double zero_at(int64_t place, int unit)
{
    return 0.0;
}

static double huge_at(int64_t place, int unit)
{
    return (double)given_gradient(place + unit) * 1e30;
}

static double tiny_at(int64_t place, int unit)
{
    return (double)given_gradient(place + unit) * 1e-9;
}

static double nan_at(int64_t place, int unit)
{
    return place == 5 && unit == 1 ? (double)NAN : (double)given_gradient(place + unit);
}

static double infinite_at(int64_t place, int unit)
{
    return place == 5 && unit == 1 ? (double)INFINITY : (double)given_gradient(place + unit);
}

// Infinity is larger than any limit, and a limit divided by it is 0: of infinite_at nothing finite
// is left.
static void check_finite_are_zero(const Sharded *s)
{
    FlatParam *flat[MAX_FLAT];
    int n = flat_params(s->model, flat, MAX_FLAT);
    need_cuda(cudaStreamSynchronize(s->ctx.compute_stream));
    for (int k = 0; k < n; k++) {
        float *given = shard_of(flat[k], k, infinite_at);
        float *got = fetch(flat[k]->sharded_grad.data, (size_t)flat[k]->layout.shard_numel);
        for (int64_t i = 0; i < flat[k]->layout.shard_numel; i++)
            check(isinf(given[i]) || got[i] == 0.0f,
                  "the norm is infinite, which is larger than max_norm: element %lld of the "
                  "gradient of unit %s is %g, want 0, max_norm / norm times what it was%s",
                  (long long)i, flat[k]->name, (double)got[i],
                  got[i] == given[i] ? LIKELY "a norm that is infinite is not clipped" : "");
        free(given);
        free(got);
    }
}

// Gradients whose squares do not add up exactly: every rank has the same bits all the same.
static uint64_t rough_seed;
static double rough_at(int64_t place, int unit)
{
    uint64_t z = (uint64_t)(place + 1) * 0x9E3779B97F4A7C15u + (uint64_t)unit * 0xBF58476D1CE4E5B9u;
    z += rough_seed;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    return ((double)(z >> 40) + 0.5) / 3e6 * (z & 1 ? 1.0 : -1.0);
}

static void special_body(Sharded *s, const Rank *r, void *arg)
{
    float norm = -1.0f;
    check_leaks();
    for (int limit = 0; limit <= 1; limit++) {
        give(s, zero_at);
        need(fsdp_clip_grad_norm(s->model, &s->ctx, (float)limit, &norm));
        check(norm == 0.0f, "fsdp_clip_grad_norm of gradients of zero gives the norm %g",
              (double)norm);
        check_given(s, zero_at, 1.0, "a norm of 0 is larger than no limit, and nothing may change");
    }
    static const struct {
        GradientOf value;
        const char *what;
    } sizes[] = {{huge_at, "gradients of about 1e30"}, {tiny_at, "gradients of about 1e-9"}};
    for (int k = 0; k < 2; k++) {
        double want = give(s, sizes[k].value);
        need(fsdp_grad_norm(s->model, &s->ctx, &norm));
        check(
            fabs((double)norm - want) <= 1e-6 * want,
            "fsdp_grad_norm of %s gives %.9g, want %.9g: %s", sizes[k].what, (double)norm, want,
            fabs(*s->ctx.host_scalar - want * want) <= 1e-6 * want * want
                ? "*ctx->host_scalar has the right sum, of which fsdp_grad_norm_default takes the "
                  "root: in double?"
                : "the squares are summed in double");
        check_given(s, sizes[k].value, 1.0, "fsdp_grad_norm only reads the gradients");
        need(fsdp_clip_grad_norm(s->model, &s->ctx, 2.0f * norm, &norm));
        check_given(s, sizes[k].value, 1.0,
                    "the norm is half of max_norm: fsdp_clip_grad_norm changes nothing");
        float limit = (float)(want / 4.0);
        need(fsdp_clip_grad_norm(s->model, &s->ctx, limit, &norm));
        check_given(s, sizes[k].value, (double)limit / (double)norm,
                    "fsdp_clip_grad_norm to a quarter of the norm, by max_norm / norm alone");
    }
    give(s, nan_at);
    need(fsdp_clip_grad_norm(s->model, &s->ctx, 0.5f, &norm));
    check(norm != norm, "one gradient is NaN, and fsdp_clip_grad_norm gives the norm %g",
          (double)norm);
    check_given(
        s, nan_at, 1.0,
        "a norm that is NaN is not larger than the limit: fsdp_clip_grad_norm changes nothing");
    give(s, rough_at);
    need(fsdp_clip_grad_norm(s->model, &s->ctx, 0.0f, &norm));
    check_given(s, rough_at, 0.0,
                "the norm is larger than a max_norm of 0: fsdp_clip_grad_norm scales by 0 / norm");
    give(s, infinite_at);
    need(fsdp_clip_grad_norm(s->model, &s->ctx, 0.5f, &norm));
    check(isinf(norm), "one gradient is infinite, and fsdp_clip_grad_norm gives the norm %g",
          (double)norm);
    check_finite_are_zero(s);
}

enum { ROUNDS = 8 };

static void same_body(const Rank *r, void *arg)
{
    const Spec *spec = arg;
    Sharded s;
    float norm[ROUNDS], *device = NULL;
    check_leaks();
    sharded_create(&s, spec, &TEST_OPTIONS, NULL, r);
    for (int k = 0; k < ROUNDS; k++) {
        rough_seed = (uint64_t)k << 20;
        double want = give(&s, rough_at);
        need(fsdp_grad_norm(s.model, &s.ctx, &norm[k]));
        check(fabs((double)norm[k] - want) <= 1e-6 * want,
              "fsdp_grad_norm gives %.9g on this rank, want %.9g", (double)norm[k], want);
    }
    need_cuda(cudaMalloc((void **)&device, (size_t)r->world * sizeof norm));
    send_to(device + ROUNDS * r->rank, norm, ROUNDS);
    need_nccl(
        ncclAllGather(device + ROUNDS * r->rank, device, ROUNDS, ncclFloat, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    float *all = fetch(device, ROUNDS * (size_t)r->world);
    for (int rank = 0; rank < r->world; rank++)
        for (int k = 0; k < ROUNDS; k++)
            check(memcmp(&all[ROUNDS * rank + k], &norm[k], sizeof norm[k]) == 0,
                  "fsdp_grad_norm gives %.9g on rank %d and %.9g here: it must be the same number "
                  "on every rank, to the last bit, or ranks clip by different factors",
                  (double)all[ROUNDS * rank + k], rank, (double)norm[k]);
    free(all);
    need_cuda(cudaFree(device));
    sharded_destroy(&s);
}

// Twenty-one units: all of them are in the norm, and scaled.
static void many_norms_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(MANY + 1);
    Sharded s;
    float norm = 0.0f;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    double want = give(&s, rough_at);
    need(fsdp_grad_norm(s.model, &s.ctx, &norm));
    check(fabs((double)norm - want) <= 1e-6 * want,
          "fsdp_grad_norm of 21 units gives %.9g, want %.9g: are all of them in it?", (double)norm,
          want);
    uint64_t log = gpulog_length();
    need(fsdp_clip_grad_norm(s.model, &s.ctx, 0.5f * norm, &norm));
    need(fsdp_sgd_step(s.model, &s.ctx, 0.01f, 0.0f)); // the host waits for nothing before it
    check_no_race(log);
    check_given(&s, rough_at, 0.5, "clipped to half of the norm, of 21 units");
    sharded_destroy(&s);
}

// A device without room for a number.
static void full_device_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    size_t room = 0, total = 0;
    void *ballast = NULL;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    double want = give(&s, rough_at);
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaMemGetInfo(&room, &total));
    need_cuda(cudaMalloc(&ballast, room));
    for (int clip = 0; clip < 2; clip++) {
        float norm = -1.0f;
        Status status = clip ? fsdp_clip_grad_norm(s.model, &s.ctx, 0.5f * (float)want, &norm)
                             : fsdp_grad_norm(s.model, &s.ctx, &norm);
        check(status == ERR_MEMORY || (status == OK && fabs((double)norm - want) <= 1e-6 * want),
              "%s on a full device gives status %d and the norm %g: it must be ERR_MEMORY, or "
              "right all the same",
              clip ? "fsdp_clip_grad_norm" : "fsdp_grad_norm", (int)status, (double)norm);
    }
    need_cuda(cudaFree(ballast));
    sharded_destroy(&s);
}

// One rank shards, and two hold replicas (DDP): a group of one rank has no communicator, and the
// replicas' gradients are the same.
static void replicas_body(const Rank *r, void *arg)
{
    const Mesh mesh = mesh_of_replicas(r);
    OneUnit one;
    float norm = 0.0f;
    one_unit_create(&one, &mesh, r);
    const Buffer *grad = &one.unit->flat.sharded_grad;
    need_cuda(kernel_fill(grad->data, 2.0f, (size_t)grad->numel, r->stream));
    need(fsdp_grad_norm(one.model, &one.ctx, &norm));
    double want = 2.0 * sqrt((double)model_numel(one.model));
    check(fabs((double)norm - want) <= 1e-6 * want,
          "one rank shards and %d replicate: the norm of %lld twos is %g, want %g", r->world,
          (long long)model_numel(one.model), (double)norm, want);
    one_unit_destroy(&one);
}

// Two ranks shard, and two of these pairs replicate: the norm is that of the pair that shards.
static void pairs_body(const Rank *r, void *arg)
{
    Mesh pairs = mesh_of_pairs(r);
    OneUnit one;
    float norm = 0.0f;
    one_unit_create(&one, &pairs, r);
    const FlatParam *flat = &one.unit->flat;
    const int rank = pairs.shard.rank;
    int64_t valid[] = {flat_valid_numel(&flat->layout, 0), flat_valid_numel(&flat->layout, 1)};
    need_cuda(
        kernel_fill(flat->sharded_grad.data, 1.0f + (float)rank, (size_t)valid[rank], r->stream));
    need(fsdp_grad_norm(one.model, &one.ctx, &norm));
    double want = sqrt((double)(valid[0] + 4 * valid[1]));
    check(fabs((double)norm - want) <= 1e-6 * want,
          "two ranks shard, %lld ones and %lld twos, and two such pairs replicate: the norm is %g, "
          "want %g",
          (long long)valid[0], (long long)valid[1], (double)norm, want);
    one_unit_destroy(&one);
    mesh_of_pairs_destroy(&pairs);
}

void rule_clips_at_any_norm(void)
{
    run_ranks_small(1, full_device_body, NULL);
    run_ranks_small(2, full_device_body, NULL);
    run_sharded(spec_mlp(3), special_body, 1, 3);
    run_ranks(2, many_norms_body, NULL);
}

void rule_norm_has_the_same_bits_everywhere(void)
{
    Spec spec = spec_mlp(4);
    run_ranks(2, replicas_body, NULL);
    run_ranks(4, pairs_body, NULL);
    run_ranks(5, same_body, &spec);
    spec = spec_mlp(draw(3, 5));
    int world = draw(5, 8);
    drawn("%d layers, %d ranks", spec.layers, world);
    run_ranks(world, same_body, &spec);
}

// ---- Steps ----

// A test of each function calls no other one: a mistake must cost its own test alone.
typedef enum Function { ADAMW, SGD, ZERO_GRAD, NORM, CLIP } Function;
static const char *const NAME[] = {"fsdp_adamw_step", "fsdp_sgd_step", "fsdp_zero_grad",
                                   "fsdp_grad_norm", "fsdp_clip_grad_norm"};
static float norm_of_test = -1.0f;

static Status call(Sharded *s, Function function)
{
    switch (function) {
    case ADAMW: return fsdp_adamw_step(&s->adamw);
    case SGD: return fsdp_sgd_step(s->model, &s->ctx, 0.5f, 0.0f);
    case ZERO_GRAD: return fsdp_zero_grad(s->model, &s->ctx);
    case NORM: return fsdp_grad_norm(s->model, &s->ctx, &norm_of_test);
    case CLIP: break;
    }
    return fsdp_clip_grad_norm_default(s->model, &s->ctx, 0.25f, &norm_of_test);
}

// The call on module m must be refused with these words, and change nothing.
static void refuse(Sharded *s, Module *m, Function function, const char *words)
{
    FsdpAdamW *opt = &s->adamw;
    FsdpContext *ctx = &s->ctx;
    float *norm = &norm_of_test;
    switch (function) {
    case ADAMW: need_refused_whole(s->model, opt, fsdp_adamw_step(opt), words); break;
    case SGD: need_refused_whole(s->model, opt, fsdp_sgd_step(m, ctx, 0.5f, 0.0f), words); break;
    case ZERO_GRAD: need_refused_whole(s->model, opt, fsdp_zero_grad(m, ctx), words); break;
    case NORM: need_refused_whole(s->model, opt, fsdp_grad_norm(m, ctx, norm), words); break;
    case CLIP:
        need_refused_whole(s->model, opt, fsdp_clip_grad_norm(m, ctx, 0.25f, norm), words);
        break;
    }
}

// Twenty-one units: all of them are stepped, or zeroed.
static void many_body(const Rank *r, void *arg)
{
    const Function function = *(const Function *)arg;
    Spec spec = spec_mlp(MANY + 1);
    Sharded s;
    FlatParam *flat[MAX_FLAT];
    float *before[MAX_FLAT];
    check_leaks();
    sharded_create(&s, &spec, &TEST_OPTIONS, function == ADAMW ? &TEST_ADAMW : NULL, r);
    int n = flat_params(s.model, flat, MAX_FLAT);
    check(n == MANY + 1, "the test's model has %d units", n);
    for (int round = 0; round < 2; round++) {
        give(&s, rough_at);
        need_cuda(cudaDeviceSynchronize());
        for (int k = 0; k < n; k++)
            before[k] = fetch(flat[k]->sharded_param.data, (size_t)flat[k]->layout.shard_numel);
        need(call(&s, function));
        need_cuda(cudaDeviceSynchronize());
        check_figures();
        if (function == ZERO_GRAD)
            check_given(&s, zero_at, 1.0, "after fsdp_zero_grad of 21 units");
        for (int k = 0; k < n; k++) {
            const FlatLayout *layout = &flat[k]->layout;
            float *after = fetch(flat[k]->sharded_param.data, (size_t)layout->shard_numel);
            for (int64_t i = 0; i < layout->shard_numel && function != ZERO_GRAD; i++)
                check(layout->rank * layout->shard_numel + i >= layout->numel ||
                          after[i] != before[k][i],
                      "call %d of %s did not move element %lld of unit %s, number %d of %d",
                      round + 1, NAME[function], (long long)i, flat[k]->name, k, n);
            free(after);
            free(before[k]);
        }
    }
    sharded_destroy(&s);
}

// A unit that is not the root, and a module that is not a unit: refused, every time.
static void refuse_below(Sharded *s, Function function)
{
    Module *below[] = {s->model->children[0], s->model->children[1],
                       s->model->children[0]->children[0]};
    for (int i = 0; i < 3; i++)
        for (int attempt = 0; attempt < 2; attempt++) refuse(s, below[i], function, below[i]->name);
    check(norm_of_test == -1.0f, "%s of what is no root was refused, and has written *norm",
          NAME[function]);
}

// A unit that is unsharded, or about to be: no step, and nothing of one.
static void refuse_with(Sharded *s, FsdpUnit *unit, Function function)
{
    need(fsdp_unshard(unit));
    Snapshot *before = snapshot_take(s->model, &s->adamw);
    check_set_silent(true);
    if (call(s, function) != OK) {
        snapshot_check_at(__FILE__, __LINE__, before, s->model, &s->adamw, NAME[function]);
    } else {
        need(fsdp_wait_for_unshard(unit));
        check(call(s, function) == OK,
              "a step with an unsharding unit is not refused, with an unsharded one it is: "
              "check_sharded must refuse every state but FLAT_SHARDED");
    }
    check_set_silent(false);
    for (int waited = 0; waited < 2; waited++) {
        refuse(s, s->model, function, "fsdp_reshard_all");
        check(strstr(last_error(), unit->flat.name) != NULL,
              "%s with a unit that is %s must be refused with a line that names it, %s: %s",
              NAME[function], waited ? "unsharded" : "unsharding", unit->flat.name, last_error());
        if (!waited) need(fsdp_wait_for_unshard(unit));
    }
    need(fsdp_reshard_all(s->model));
}

static Status failure;
static int failures;
static Status fail_to_zero(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream)
{
    failures++;
    return fail(failure, "%s: the test's flat_zero_padding fails, as it is meant to", flat->name);
}

static Status fail_to_give_a_norm(Module *root, FsdpContext *ctx, float *norm)
{
    failures++;
    return fail(failure, "the test's fsdp_grad_norm fails, as it is meant to");
}

// What the function calls fails, for one unit after the other: it returns that status.
static void check_failures(Sharded *s, Function function)
{
    static const Status FAILURES[] = {ERR_CUDA, ERR_MEMORY, ERR_IO};
    s->root->ops.grad_norm = fail_to_give_a_norm;
    for (int i = 0; i < 3 && function != ZERO_GRAD && function != NORM; i++) {
        FlatParam *flat = &s->root->units[i]->flat;
        FlatLayoutOps ops = *flat->layout.ops;
        const FlatLayoutOps *usual = flat->layout.ops;
        ops.zero_padding = fail_to_zero;
        flat->layout.ops = &ops;
        failure = FAILURES[i];
        failures = 0;
        Status status = call(s, function);
        // A step that never lets padding move has nothing to zero.
        check(failures > 0 ? status == failure : status == OK,
              "%s, which %s calls, failed with status %d for unit %s: it must return that, and "
              "returns %d",
              function == CLIP ? "fsdp_grad_norm" : "flat_zero_padding", NAME[function],
              (int)failure, flat->name, (int)status);
        flat->layout.ops = usual;
    }
    s->root->ops.grad_norm = FSDP_ROOT_OPS.grad_norm;
}

static void refused_body(const Rank *r, void *arg)
{
    const Function function = *(const Function *)arg;
    Spec spec = spec_mlp(3);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, function == ADAMW ? &TEST_ADAMW : NULL, r);
    give(&s, rough_at);
    need_cuda(cudaDeviceSynchronize());
    if (function != ADAMW) refuse_below(&s, function);
    for (int i = 0; i < 3 && (function == ADAMW || function == SGD); i++)
        refuse_with(&s, fsdp_unit(i == 2 ? s.model : s.model->children[i]), function);
    check_failures(&s, function);
    need(call(&s, function));
    check(function != NORM || (float)sqrt(*s.ctx.host_scalar) == norm_of_test,
          "after fsdp_grad_norm *ctx->host_scalar is %.9g, want the square of the norm %.9g: that "
          "is where the number arrives, pinned memory that the context has for it",
          *s.ctx.host_scalar, (double)norm_of_test);
    sharded_destroy(&s);
}

static void step_rules(Function function)
{
    run_ranks(2, many_body, &function);
    run_worlds(refused_body, &function, 1, 2);
}

void rule_adamw_steps_all_or_nothing(void)
{
    step_rules(ADAMW);
}

void rule_sgd_steps_all_or_nothing(void)
{
    step_rules(SGD);
}

void rule_zero_grad_reaches_every_unit(void)
{
    step_rules(ZERO_GRAD);
}

void rule_norm_refuses_what_is_no_root(void)
{
    Function function = NORM;
    run_ranks(1, refused_body, &function);
}

void rule_clip_refuses_what_is_no_root(void)
{
    Function function = CLIP;
    run_ranks(1, refused_body, &function);
}
