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
        check(fabs((double)norm - want) <= 1e-6 * want,
              "fsdp_grad_norm of %s gives %.9g, want %.9g: the squares are summed in double",
              sizes[k].what, (double)norm, want);
        check_given(s, sizes[k].value, 1.0, "fsdp_grad_norm only reads the gradients");
        need(fsdp_clip_grad_norm(s->model, &s->ctx, 2.0f * norm, &norm));
        check_given(s, sizes[k].value, 1.0, "the norm is half of max_norm: nothing changes");
        float limit = (float)(want / 4.0);
        need(fsdp_clip_grad_norm(s->model, &s->ctx, limit, &norm));
        check_given(s, sizes[k].value, (double)limit / (double)norm,
                    "clipped to a quarter of the norm, by max_norm / norm alone");
    }
    give(s, nan_at);
    need(fsdp_clip_grad_norm(s->model, &s->ctx, 0.5f, &norm));
    check(norm != norm, "one gradient is NaN, and fsdp_clip_grad_norm gives the norm %g",
          (double)norm);
    check_given(s, nan_at, 1.0, "a norm that is NaN is not larger than the limit: nothing changes");
    give(s, rough_at);
    need(fsdp_clip_grad_norm(s->model, &s->ctx, 0.0f, &norm));
    check_given(s, rough_at, 0.0, "the norm is larger than a max_norm of 0: scaled by 0 / norm");
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

// A unit that is not the root; and a device without room for a number.
static void refused_norm_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    size_t room = 0, total = 0;
    void *ballast = NULL;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    double want = give(&s, rough_at);
    for (int i = 0; i < 2; i++) {
        float norm = -1.0f;
        check(fsdp_grad_norm(s.model->children[i], &s.ctx, &norm) == ERR_ARGUMENT &&
                  fsdp_clip_grad_norm(s.model->children[i], &s.ctx, 1.0f, &norm) == ERR_ARGUMENT,
              "the norm of a unit that is not the root must be ERR_ARGUMENT");
    }
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

void rule_clips_at_any_norm(void)
{
    run_ranks_small(1, refused_norm_body, NULL);
    run_ranks_small(2, refused_norm_body, NULL);
    run_sharded(spec_mlp(3), special_body, 1, 3);
    run_ranks(2, many_norms_body, NULL);
}

void rule_norm_has_the_same_bits_everywhere(void)
{
    Spec spec = spec_mlp(4);
    run_ranks(2, replicas_body, NULL);
    run_ranks(5, same_body, &spec);
    spec = spec_mlp(draw(3, 5));
    int world = draw(5, 8);
    drawn("%d layers, %d ranks", spec.layers, world);
    run_ranks(world, same_body, &spec);
}

// ---- Steps ----

// A test of each function calls no other one: a mistake must cost its own test alone.
typedef enum Function { ADAMW, SGD, ZERO_GRAD } Function;
static const char *const NAME[] = {"fsdp_adamw_step", "fsdp_sgd_step", "fsdp_zero_grad"};

static Status call(Sharded *s, Function function)
{
    if (function == ADAMW) return fsdp_adamw_step(&s->adamw);
    if (function == SGD) return fsdp_sgd_step(s->model, &s->ctx, 0.5f, 0.0f);
    return fsdp_zero_grad(s->model, &s->ctx);
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

// A unit that is not the root: ERR_ARGUMENT, every time.
static void below_body(Sharded *s, const Rank *r, void *arg)
{
    const Function function = *(const Function *)arg;
    for (int i = 0; i < 2; i++) {
        Module *below = s->model->children[i];
        Status status = function == SGD ? fsdp_sgd_step(below, &s->ctx, 0.5f, 0.0f)
                                        : fsdp_zero_grad(below, &s->ctx);
        check(status == ERR_ARGUMENT && strstr(last_error(), below->name) != NULL,
              "%s of unit %s, which is not the root, must be ERR_ARGUMENT with a line that names "
              "it",
              NAME[function], below->name);
    }
}

// A unit that is unsharded, or about to be: no step, and nothing of one.
static void refuse_with(Sharded *s, FsdpUnit *unit, Function function)
{
    size_t numel = (size_t)unit->flat.layout.shard_numel;
    float *before = fetch(unit->flat.sharded_param.data, numel);
    need(fsdp_unshard(unit));
    for (int waited = 0; waited < 2; waited++) {
        Status status = call(s, function);
        check(status == ERR_ARGUMENT && s->adamw.t == 0 &&
                  strstr(last_error(), unit->flat.name) != NULL,
              "%s with a unit that is %s must be ERR_ARGUMENT with a line that names it, and count "
              "no step: the next forward would read the parameters from before",
              NAME[function], waited ? "unsharded" : "unsharding");
        check(strstr(last_error(), "fsdp_reshard_all") != NULL,
              "%s refused a unit that is not sharded, and its line does not name the remedy, "
              "fsdp_reshard_all: %s",
              NAME[function], last_error());
        need_cuda(cudaDeviceSynchronize());
        float *after = fetch(unit->flat.sharded_param.data, numel);
        check(memcmp(before, after, numel * sizeof *after) == 0,
              "a step that was refused has changed unit %s", unit->flat.name);
        free(after);
        if (!waited) need(fsdp_wait_for_unshard(unit));
    }
    free(before);
    need(fsdp_reshard_all(s->model));
}

static void stale_body(const Rank *r, void *arg)
{
    const Function function = *(const Function *)arg;
    Spec spec = spec_mlp(3);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, function == ADAMW ? &TEST_ADAMW : NULL, r);
    give(&s, rough_at);
    need_cuda(cudaDeviceSynchronize());
    for (int i = 0; i < 3; i++)
        refuse_with(&s, fsdp_unit(i == 2 ? s.model : s.model->children[i]), function);
    need(call(&s, function));
    sharded_destroy(&s);
}

static void step_rules(Function function)
{
    run_ranks(2, many_body, &function);
    if (function != ADAMW)
        run_shape(((Shape){spec_mlp(3), TEST_OPTIONS}), below_body, &function, 1);
    if (function == ZERO_GRAD) return;
    run_worlds(stale_body, &function, 1, 2);
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
