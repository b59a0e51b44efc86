/* rules_frozen.c: parameters without a gradient. See rules.h. */
#include <math.h>
#include <stdlib.h>

#include "harness.h"
#include "kernels.h"
#include "rules.h"
#include "training.h"

enum { FROZEN = 2, UNITS = 8 };   // the last elements of a shard, which have no gradient
static const float NOBODYS = 512; // where theirs would be

// As if a layout had so many elements of a shard frozen; how many have a gradient.
static int64_t freeze(FlatParam *flat, int frozen)
{
    int64_t numel = flat->layout.shard_numel - frozen;
    flat->layout.grad_numel = flat->sharded_grad.numel = numel;
    flat->unsharded_grad.numel = flat->layout.world * numel;
    return numel;
}

static void check_nobodys(const FlatParam *flat, const char *function)
{
    float *end = (float *)flat->sharded_grad.data + flat->sharded_grad.numel;
    float *got = fetch(end, FROZEN);
    for (int i = 0; i < FROZEN; i++)
        check(got[i] == NOBODYS,
              "%s changed what lies after the %lld elements of sharded_grad: a shard may have "
              "fewer gradients (grad_numel) than elements (%lld)",
              function, (long long)flat->sharded_grad.numel, (long long)flat->layout.shard_numel);
    free(got);
}

// ---- Task 2 ----

RANK_RULE(flat_layout_refuses_a_frozen_parameter, 1)
{
    Param a = {.name = "p.1", .ndim = 1, .shape = {4}},
          b = {.name = "p.2", .ndim = 1, .shape = {4}};
    Param *params[2] = {&a, &b};
    FlatLayout layout;
    for (int i = 0; i < 2; i++) {
        params[i]->frozen = true;
        need_refused(flat_layout(&layout, "unit", params, 2, 0, 2, false), params[i]->name);
        params[i]->frozen = false;
    }
    need(flat_layout(&layout, "unit", params, 2, 0, 2, false));
    flat_layout_destroy(&layout);
}

// ---- Task 4 ----

static void unit_body(Sharded *s, const Rank *r, void *arg)
{
    FsdpUnit *unit = s->root->units[1];
    freeze(&unit->flat, (int)unit->flat.layout.shard_numel);
    for (int i = 0; i < 2; i++) {
        need(fsdp_begin_grad(unit));
        check(unit->flat.unsharded_grad.data == NULL, "a unit without a gradient begins one");
        need(fsdp_reduce_grad(unit));
    }
    freeze(&unit->flat, 0);
    need_cuda(cudaDeviceSynchronize());
}

// The gradient of element i is i; what is after the last is in the same memory.
static void fewer_body(Sharded *s, const Rank *r, void *arg)
{
    FsdpUnit *unit = s->root->units[1];
    FlatParam *flat = &unit->flat;
    size_t live = gpulog_live_bytes(r->device), shard = (size_t)flat->layout.shard_numel;
    int64_t numel = freeze(flat, FROZEN);
    need(fsdp_begin_grad(unit));
    check(gpulog_live_bytes(r->device) == live + buffer_bytes(&flat->unsharded_grad),
          "fsdp_begin_grad allocates %zu bytes, and unsharded_grad has %zu: a shard may have fewer "
          "gradients (grad_numel) than elements",
          gpulog_live_bytes(r->device) - live, buffer_bytes(&flat->unsharded_grad));
    need_cuda(cudaFreeAsync(flat->unsharded_grad.data, s->ctx.compute_stream));
    float *all = calloc((size_t)flat->layout.padded, sizeof *all);
    for (int64_t i = 0; i < flat->layout.padded; i++) all[i] = (float)i;
    need_cuda(cudaMalloc(&flat->unsharded_grad.data, (size_t)flat->layout.padded * sizeof *all));
    send_to(flat->unsharded_grad.data, all, (size_t)flat->layout.padded);
    need_cuda(kernel_fill(flat->sharded_grad.data, 0.0f, (size_t)numel, s->run.stream));
    need_cuda(
        kernel_fill((float *)flat->sharded_grad.data + numel, NOBODYS, FROZEN, s->run.stream));
    need_cuda(cudaDeviceSynchronize());
    need(fsdp_reduce_scatter(unit));
    need_cuda(cudaDeviceSynchronize());
    float *got = fetch(flat->sharded_grad.data, shard);
    int64_t begin = r->rank * numel;
    for (int64_t i = 0; i < numel; i++)
        check(got[i] == (float)(begin + i),
              "fsdp_reduce_scatter of %lld gradients in a shard of %zu elements: element %lld of "
              "sharded_grad is %g, want %g, that of element %lld of unsharded_grad: each rank has "
              "sharded_grad.numel of them",
              (long long)numel, shard, (long long)i, (double)got[i], (double)(begin + i),
              (long long)(begin + i));
    check_nobodys(flat, "fsdp_reduce_scatter");
    need_cuda(cudaFree(flat->unsharded_grad.data));
    flat->unsharded_grad.data = NULL;
    flat_set_grad_views(flat);
    freeze(flat, 0);
    free(all);
    free(got);
}

void rule_a_unit_may_have_no_gradient(void)
{
    run_sharded(spec_mlp(3), unit_body, 2);
}

void rule_gradients_alone_are_reduced(void)
{
    run_sharded(spec_mlp(3), fewer_body, 2);
}

// ---- Task 5 ----

static void call(Sharded *s, Apart part, float *norm)
{
    if (part == APART_NORM) need(fsdp_grad_norm(s->model, &s->ctx, norm));
    if (part == APART_CLIP) need(fsdp_clip_grad_norm(s->model, &s->ctx, 0.125f, norm));
    if (part == APART_ADAMW) need(fsdp_adamw_step(&s->adamw));
    if (part == APART_SGD) need(fsdp_sgd_step(s->model, &s->ctx, 0.5f, 0.25f));
    if (part == APART_ZERO_GRAD) need(fsdp_zero_grad(s->model, &s->ctx));
}

// Gradients of ones. APART_STATE: that of AdamW.
static void counts_body(Sharded *s, const Rank *r, void *arg)
{
    static const char *const NAME[] = {[APART_NORM] = "fsdp_grad_norm",
                                       [APART_CLIP] = "fsdp_clip_grad_norm",
                                       [APART_ADAMW] = "fsdp_adamw_step",
                                       [APART_SGD] = "fsdp_sgd_step",
                                       [APART_ZERO_GRAD] = "fsdp_zero_grad"};
    const Apart part = *(const Apart *)arg;
    FlatParam *flat[UNITS];
    float *before[UNITS], norm = -1.0f;
    size_t ones = 0, live;
    int n = flat_params(s->model, flat, UNITS);
    for (int k = 0; k < n; k++) {
        size_t numel = (size_t)freeze(flat[k], FROZEN);
        float *grad = flat[k]->sharded_grad.data;
        need_cuda(kernel_fill(grad, 1.0f, numel, s->run.stream));
        need_cuda(kernel_fill(grad + numel, NOBODYS, FROZEN, s->run.stream));
        need_cuda(cudaDeviceSynchronize());
        before[k] = fetch((float *)flat[k]->sharded_param.data + numel, FROZEN);
        ones += numel;
    }
    live = gpulog_live_bytes(r->device);
    if (part == APART_ADAMW || part == APART_STATE)
        need(fsdp_adamw_create(&s->adamw, s->model, &s->ctx, &TEST_ADAMW));
    check(part != APART_STATE || gpulog_live_bytes(r->device) - live == 8 * ones,
          "fsdp_adamw_create: the moments of %zu gradients take %zu bytes, want %zu: a shard may "
          "have fewer gradients (grad_numel) than elements",
          ones, gpulog_live_bytes(r->device) - live, 8 * ones);
    call(s, part, &norm);
    need_cuda(cudaDeviceSynchronize());
    check(norm == -1.0f || norm == (float)sqrt((double)ones),
          "fsdp_grad_norm: the norm of %zu ones is %g, want %g: a shard may have fewer gradients "
          "(grad_numel) than elements",
          ones, (double)norm, sqrt((double)ones));
    for (int k = 0; k < n; k++) {
        int64_t numel = flat[k]->sharded_grad.numel;
        float *after = fetch((float *)flat[k]->sharded_param.data + numel, FROZEN);
        for (int i = 0; i < FROZEN; i++)
            check(after[i] == before[k][i],
                  "%s moves element %lld of a shard of which %lld elements have a gradient: the "
                  "others (of frozen parameters) must stay",
                  NAME[part], (long long)(numel + i), (long long)numel);
        check_nobodys(flat[k], NAME[part]);
        freeze(flat[k], 0);
        free(before[k]);
        free(after);
    }
}

void rule_gradients_alone_are_counted(Apart part)
{
    run_shape(((Shape){spec_mlp(3), TEST_OPTIONS}), counts_body, &part, 1);
}
