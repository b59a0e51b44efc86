/* Lab 6: parameters that do not train, and parameters that learn at a rate of their own.
 */
#include <math.h>
#include <stdlib.h>

#include "draw_model.h"
#include "harness.h"
#include "per_parameter.h"
#include "tests.h"

// ---- Frozen parameters ----

static void frozen_body(Wrapped *w, const Case *c, const Rank *r)
{
    case_train(w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatLayout *layout = &w->root->units[u]->flat.layout;
        size_t trains = 0;
        for (int i = 0; i < layout->n; i++) {
            Param *param = layout->params[i];
            int64_t length = param->shape[0];
            if (!param->frozen)
                trains += (size_t)(most_rows(length, r->world) * (meta_numel(param) / length));
            check(!param->frozen || param->grad.data == NULL, "%s is frozen and has a gradient",
                  param->name);
        }
        check(w->root->units[u]->flat.sharded_grad.numel == (int64_t)trains,
              "%s keeps a gradient shard of %lld elements, want %zu: of those that train",
              w->root->units[u]->flat.name, (long long)w->root->units[u]->flat.sharded_grad.numel,
              trains);
    }
}

static void flat_refuses_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Module *model = spec_create(&c->spec);
    FlatLayout layout;
    Param *params[32];
    int n = meta_params(model, params, 32);
    params[1]->frozen = true;
    need_refused(flat_layout(&layout, "unit", params, n, 0, 1, false),
                 "a flat parameter trains as one");
    module_destroy(model);
}

TEST(frozen_parameters_have_no_gradient)
{
    need_layout(true);
    static const MixedPrecisionPolicy NARROW = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    bool (*const WHICH[])(int) = {every_third, a_unit_and_more};
    for (int k = 0; k < 2; k++)
        for (int world = 1; world <= MOST_WORLD; world += 1 + k) {
            Case c = by_parameter(spec_mlp(4), STRATEGY_ZERO3, world, 1, 1 + world % 2);
            c.frozen = WHICH[k];
            c.policy = world == 3 ? &NARROW : NULL;
            run_case(world, &c);
            c.policy = NULL;
            if (world > 1) run_wrapped(world, frozen_body, &c);
        }
    Case gpt2 = by_parameter(spec_gpt2(2), STRATEGY_ZERO2, 4, 2, 2);
    gpt2.frozen = every_third;
    run_case(4, &gpt2);
    Case ddp = by_parameter(spec_mlp(3), STRATEGY_DDP, 2, 2, 1);
    ddp.frozen = every_third;
    check_case_refused(2, &ddp);
    run_ranks(1, flat_refuses_body, &ddp);
}

// ---- Learning rates by parameter ----

static void choose(const Param *param, AdamWConfig *config, void *arg)
{
    int *asked = arg;
    (*asked)++;
    config->lr *= (float)(1 + param->id % 3);
    if (param->ndim == 1) config->weight_decay = 0.0f;
    config->beta1 = 0.5f;
    config->beta2 = 0.75f;
    config->eps = 1e-3f;
}

// AdamW of one element, as the handout of task 5 has it, for step 1.
static float adamw_of(float p, float g, const AdamWConfig *c, int id, int ndim)
{
    float lr = c->lr * (float)(1 + id % 3), decay = ndim == 1 ? 0.0f : c->weight_decay;
    double m_hat = (double)g, v_hat = (double)g * (double)g; // of the first step, whatever decays
    return (float)((double)p -
                   (double)lr * (m_hat / (sqrt(v_hat) + 1e-3) + (double)decay * (double)p));
}

static void rates_body(Wrapped *w, const Case *c, const Rank *r)
{
    int asked = 0, owned = 0;
    ParamGroups groups = {choose, &asked};
    param_groups_apply(&w->adamw, &groups);
    case_train(w, c, r, 0);
    need(fsdp_adamw_step(&w->adamw));
    check(w->adamw.t == 1, "step_by_groups: after one step opt->t is %d", w->adamw.t);
    for (int u = 0; u < w->root->n_units; u++) {
        FlatParam *flat = &w->root->units[u]->flat;
        size_t n = (size_t)flat->layout.shard_numel, trains = (size_t)flat->sharded_grad.numel;
        float *got = fetch(flat->sharded_param.data, n), *start = calloc(n + 1, sizeof *start);
        float *grads = trains > 0 ? fetch(flat->sharded_grad.data, trains) : calloc(1, 4);
        float *m = trains > 0 ? fetch(w->adamw.m[u], trains) : calloc(1, 4);
        float *v = trains > 0 ? fetch(w->adamw.v[u], trains) : calloc(1, 4);
        check(start != NULL, "no memory for the oracle");
        const FlatLayout *cut = &flat->layout;
        for (int i = 0; i < cut->n; i++) {
            const Param *one = cut->params[i];
            int64_t begin, end, at;
            flat_param_range_in_shard(cut, i, cut->rank, &begin, &end, &at);
            if (begin < end && !one->frozen) owned++;
            if (begin < end) meta_init_slice(one, 42, begin, end, start + at);
            for (int64_t k = at; k < at + end - begin; k++) {
                float want = one->frozen ? start[k]
                                         : adamw_of(start[k], grads[k], &TEST_ADAMW, (int)one->id,
                                                    one->ndim);
                check(fabsf(got[k] - want) <= (one->frozen ? 0.0f : 2e-6f),
                      "step_by_groups: element %lld of %s is %.9g after a step with %g times the "
                      "learning rate%s, "
                      "want %.9g",
                      (long long)(begin + k - at), one->name, (double)got[k],
                      (double)(1 + one->id % 3),
                      one->frozen      ? ", and it is frozen"
                      : one->ndim == 1 ? " and without decay"
                                       : "",
                      (double)want);
                check(one->frozen || (m[k] == 0.5f * grads[k] &&
                                      fabsf(v[k] - 0.25f * grads[k] * grads[k]) <= 1e-6f * v[k]),
                      "step_by_groups: the moments of element %lld of %s are not those of betas "
                      "0.5 and 0.75, which `choose` has set",
                      (long long)(begin + k - at), one->name);
            }
        }
        free(got);
        free(m);
        free(v);
        free(grads);
        free(start);
    }
    check(asked == owned,
          "step_by_groups asked the groups %d times, want %d: once for each parameter that trains "
          "and of "
          "which this rank has elements",
          asked, owned);
    param_groups_apply(&w->adamw, NULL);
    need(fsdp_adamw_step(&w->adamw));
    check(asked == owned && w->adamw.t == 2, "without groups a step asked them all the same");
}

// Of flat parameters, which need no other part.
TEST(rates_differ_by_parameter)
{
    for (int world = 1; world <= 5; world += 2) {
        Case c = case_of(spec_mlp(world == 1 ? 1 : 3), STRATEGY_ZERO3, world, 1, 1);
        run_wrapped(world, rates_body, &c);
    }
}

TEST(rates_hold_for_chunks)
{
    need_layout(true);
    for (int world = 1; world <= 5; world += 2) {
        Case c = by_parameter(spec_mlp(3), STRATEGY_ZERO3, world, 1, 1);
        c.frozen = world == 3 ? every_third : NULL;
        run_wrapped(world, rates_body, &c);
    }
}
