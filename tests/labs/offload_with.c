/* Offload together with what works on gradients or shards as well: a loss scale, rates by
 * parameter, SGD over frozen parameters, stages that clip. The same training without offload is the
 * oracle; tests/labs/pairs.c has the other options.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "harness.h"
#include "per_parameter.h"
#include "strategies.h"

// Two trainings of one case: with its shards on the device, and on the host.
typedef struct Two {
    Wrapped of[2];
} Two;

static void two_wrap(Two *two, const Case *c, const Rank *r)
{
    for (int i = 0; i < 2; i++) {
        Case own = *c;
        own.offload = i == 1;
        case_wrap(&two->of[i], &own, r);
    }
}

static void two_train(Two *two, const Case *c, const Rank *r, int step)
{
    for (int i = 0; i < 2; i++) case_train(&two->of[i], c, r, step);
    need_cuda(cudaDeviceSynchronize());
}

// Fails the rank where a shard (of gradients, or of parameters) is another one on the host.
static void two_compare(const Two *two, bool grads, const char *when)
{
    for (int u = 0; u < two->of[0].root->n_units; u++) {
        const FlatParam *flat[2];
        float *values[2];
        size_t n = 0;
        need_cuda(cudaDeviceSynchronize());
        for (int i = 0; i < 2; i++) {
            flat[i] = &two->of[i].root->units[u]->flat;
            const Buffer *shard = grads ? &flat[i]->sharded_grad : &flat[i]->sharded_param;
            n = (size_t)shard->numel;
            values[i] = fetch(shard->data, n);
        }
        check(memcmp(values[0], values[1], n * sizeof(float)) == 0,
              "%s the %s of %s on the host are not those on the device", when,
              grads ? "gradients" : "parameters", flat[0]->name);
        free(values[0]);
        free(values[1]);
    }
}

static void two_unwrap(Two *two, const Rank *r)
{
    for (int i = 0; i < 2; i++) case_unwrap(&two->of[i], r);
}

// ---- A loss scale ----

static void put_infinity(Wrapped *w)
{
    float *grad = w->root->units[1]->flat.sharded_grad.data, infinite = INFINITY;
    need_cuda(cudaMemcpy(grad + 1, &infinite, sizeof infinite, cudaMemcpyDefault));
    need_cuda(cudaDeviceSynchronize());
}

static void loss_scale_body(const Rank *r, void *arg)
{
    enum { STEPS = 4 };
    const Case *c = arg;
    Two two;
    LossScaler scaler[2];
    two_wrap(&two, c, r);
    for (int i = 0; i < 2; i++) {
        scaler[i] = LOSS_SCALER_DEFAULTS;
        scaler[i].scale = 6.0f;
        scaler[i].growth_interval = 2;
        need(loss_scaler_create(&scaler[i], two.of[i].model));
    }
    for (int step = 0; step < STEPS; step++) {
        bool overflows = step == 1;
        two_train(&two, c, r, step);
        for (int i = 0; i < 2; i++) {
            const ProcessGroup *shard = &two.of[i].mesh.shard;
            if (overflows && shard->rank == shard->size - 1) put_infinity(&two.of[i]);
            need(loss_scaler_unscale(&scaler[i]));
            check(scaler[i].found_inf == overflows, "step %d: of the gradients %s is infinite",
                  step, overflows ? "one" : "none");
        }
        if (!overflows) two_compare(&two, true, "unscaled,");
        for (int i = 0; i < 2; i++) {
            need(loss_scaler_step(&scaler[i], &two.of[i].adamw));
            need(loss_scaler_update(&scaler[i]));
        }
        check(scaler[0].scale == scaler[1].scale, "the scales are %g and %g",
              (double)scaler[0].scale, (double)scaler[1].scale);
        check(two.of[1].adamw.t == step + (step < 1), "the optimizer has counted %d steps",
              two.of[1].adamw.t);
        two_compare(&two, false, "after the step");
    }
    for (int i = 0; i < 2; i++) loss_scaler_destroy(&scaler[i]);
    two_unwrap(&two, r);
}

TEST(a_loss_scale_is_searched_for_on_the_host)
{
    static const MixedPrecisionPolicy HALF = {DTYPE_F16, DTYPE_F32, DTYPE_F32, true};
    static const int SHAPES[][2] = {{1, 1}, {3, 1}, {4, 2}};
    for (int i = 0; i < 3; i++) {
        Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, SHAPES[i][0], SHAPES[i][1], 1);
        c.policy = &HALF;
        run_ranks(SHAPES[i][0], loss_scale_body, &c);
        c.layout = per_parameter_layout;
        c.frozen = every_third;
        run_ranks(SHAPES[i][0], loss_scale_body, &c);
    }
}

// ---- What steps by parameter ----

static void rate_by_name(const Param *param, AdamWConfig *config, void *arg)
{
    config->lr *= (float)(1 + param->name[0] % 3 + (int)param->ndim);
    config->weight_decay = param->ndim == 1 ? 0.0f : 0.2f;
}

static void groups_body(const Rank *r, void *arg)
{
    static const ParamGroups GROUPS = {rate_by_name, NULL};
    const Case *c = arg;
    Two two;
    two_wrap(&two, c, r);
    for (int i = 0; i < 2; i++) param_groups_apply(&two.of[i].adamw, &GROUPS);
    for (int step = 0; step < 2; step++) {
        two_train(&two, c, r, step);
        for (int i = 0; i < 2; i++) need(fsdp_adamw_step(&two.of[i].adamw));
        two_compare(&two, false, "after a step by parameter");
    }
    two_unwrap(&two, r);
}

// All parameters of a flat layout, and two thirds of those of one by parameter.
static void on_both_layouts(Strategy strategy, RankBody body)
{
    for (int world = 1; world < 6; world += 2) {
        Case c = case_of(spec_mlp(3), strategy, world, 1, 1);
        run_ranks(world, body, &c);
        c.layout = per_parameter_layout;
        c.frozen = every_third;
        run_ranks(world, body, &c);
    }
}

TEST(rates_by_parameter_hold_on_the_host)
{
    on_both_layouts(STRATEGY_ZERO3, groups_body);
}

static void sgd_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Two two;
    two_wrap(&two, c, r);
    for (int step = 0; step < 2; step++) {
        two_train(&two, c, r, step);
        for (int i = 0; i < 2; i++) {
            need(fsdp_sgd_step(two.of[i].model, &two.of[i].ctx, 0.1f, 0.02f));
            need(fsdp_zero_grad(two.of[i].model, &two.of[i].ctx));
        }
        two_compare(&two, false, "after a step of SGD");
    }
    two_unwrap(&two, r);
}

TEST(sgd_leaves_frozen_parameters_on_the_host)
{
    on_both_layouts(STRATEGY_ZERO2, sgd_body);
}

// ---- What is frozen ----

static bool first_blocks(int i)
{
    return i < 6;
}

// A unit of which all is frozen has parameters on the host, and nothing else: no gradient, no
// moments. Where a part trains, the gradient and the moments are that part's.
static void frozen_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    size_t before = 0, now = 0, want = 0;
    int frozen = 0;
    Case plain = *c;
    plain.offload = false;
    case_wrap(&w, &plain, r);
    bool counts = backend_pinned_bytes(&before);
    case_unwrap(&w, r);
    case_wrap(&w, c, r);
    for (int u = 0; u < w.root->n_units; u++) {
        const FlatParam *flat = &w.root->units[u]->flat;
        size_t trains = (size_t)flat->layout.grad_numel;
        want += 4 * (size_t)flat->layout.shard_numel + 12 * trains;
        frozen += trains == 0;
        check((offload_of(w.root->units[u])->grad != NULL) == (trains > 0) &&
                  (w.adamw.m[u] != NULL) == (trains > 0),
              "%s, of which %zu elements of a shard train, has %s gradient on the host", flat->name,
              trains, offload_of(w.root->units[u])->grad != NULL ? "a" : "no");
    }
    check(frozen > 0 && frozen < w.root->n_units, "%d of %d units are frozen", frozen,
          w.root->n_units);
    backend_pinned_bytes(&now);
    check(!counts || now - before == want, "%zu bytes of the host are pinned, want %zu",
          now - before, want);
    case_unwrap(&w, r);
}

TEST(a_frozen_unit_has_no_gradient_on_the_host)
{
    for (int world = 1; world <= 4; world++) {
        Case c = case_of(spec_mlp(4), STRATEGY_ZERO3, world, 1, 1);
        c.layout = per_parameter_layout;
        c.frozen = first_blocks;
        c.offload = true;
        run_ranks(world, frozen_body, &c);
        run_case(world, &c);
    }
}

// ---- Stages ----

// Ten steps, each of them clipped; the embedding is tied to the head.
TEST(offloaded_stages_clip_by_the_norm_of_all)
{
    static const int SHAPES[][3] = {{2, 2, 1}, {4, 2, 1}, {8, 2, 2}, {6, 3, 1}};
    for (int i = 0; i < 4; i++) {
        Case c = case_of(spec_gpt2(3), STRATEGY_ZERO3, SHAPES[i][0], SHAPES[i][2], 2);
        c.stages = SHAPES[i][1];
        c.offload = true;
        c.clip = 0.05f;
        c.steps = 10;
        run_case(SHAPES[i][0], &c);
    }
}

static void late_body(Wrapped *w, const Case *c, const Rank *r)
{
    check_set_silent(true);
    check(offload_apply(w->model) == ERR_ARGUMENT, "a stage in a pipeline was offloaded");
    check(strstr(check_last(), "call offload_apply before pipeline_create") != NULL,
          "the line is: %s", check_last());
    check_set_silent(false);
}

TEST(a_pipeline_is_offloaded_before_it_is_one)
{
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 2, 1, 2);
    c.stages = 2;
    run_wrapped(2, late_body, &c);
}

SUITE_MAIN("offload_with")
