/* rules_frozen.c: parameters without a gradient. See rules.h. */
#include "harness.h"
#include "rules.h"
#include "training.h"

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
    int64_t numel = unit->flat.unsharded_grad.numel;
    unit->flat.unsharded_grad.numel = 0; // as if all of it were frozen
    for (int i = 0; i < 2; i++) {
        need(fsdp_begin_grad(unit));
        check(unit->flat.unsharded_grad.data == NULL, "a unit without a gradient begins one");
        need(fsdp_reduce_grad(unit));
    }
    unit->flat.unsharded_grad.numel = numel;
    need_cuda(cudaDeviceSynchronize());
}

void rule_a_unit_may_have_no_gradient(void)
{
    run_sharded(spec_mlp(3), unit_body, 2);
}
