/* The states of a unit: one order of them, and no optimizer step on parameters that the next
 * forward would not gather again.
 */
#include "harness.h"
#include "training.h"

#include <string.h>

RANK_TEST(transitions_have_one_order, 1)
{
    static const FlatState LEGAL[] = {FLAT_UNSHARDING, FLAT_UNSHARDED, FLAT_SHARDED};
    static const char *const NAME[] = {"sharded", "unsharding", "unsharded"};
    for (FlatState from = FLAT_SHARDED; from <= FLAT_UNSHARDED; from++) {
        for (FlatState to = FLAT_SHARDED; to <= FLAT_UNSHARDED; to++) {
            FlatParam flat = {.name = "h.7", .state = from};
            Status status = flat_set_state(&flat, to);
            if (to == LEGAL[from]) {
                check(status == OK && flat.state == to, "from %s to %s is legal", NAME[from],
                      NAME[to]);
                continue;
            }
            check(status == ERR_ARGUMENT && flat.state == from,
                  "from %s to %s must be refused, and the state must stay", NAME[from], NAME[to]);
            const char *said = check_last();
            check(strstr(said, "h.7") && strstr(said, NAME[from]) && strstr(said, NAME[to]),
                  "the refusal must name the unit, its state and the wish: %s", said);
        }
    }
}

// What is refused changes nothing.
RANK_TEST(illegal_calls_are_refused, 1, 2, 3)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    FsdpUnit *unit = fsdp_unit(s.model->children[0]);
    need_cuda(cudaDeviceSynchronize()); // no hook orders all-gathers after the making of the shards
    check(fsdp_wait_for_unshard(unit) == ERR_ARGUMENT && strstr(check_last(), "l.0") != NULL,
          "waiting for what is sharded must be refused, with the unit's name");
    check(fsdp_reduce_grad(unit) == ERR_ARGUMENT && strstr(check_last(), "l.0") != NULL,
          "reducing without a gradient must be refused, with the unit's name");
    need(fsdp_reshard(unit)); // of what is sharded: nothing
    need(fsdp_unshard(unit));
    const void *buffer = unit->flat.unsharded_param.data;
    need(fsdp_unshard(unit)); // of what is unsharding: nothing
    check(unit->flat.unsharded_param.data == buffer, "a second unshard made a second buffer");
    check(fsdp_reshard(unit) == ERR_ARGUMENT && unit->flat.unsharded_param.data == buffer &&
              unit->flat.layout.params[0]->data.data != NULL,
          "resharding what is unsharding must be refused, and change nothing");
    need(fsdp_wait_for_unshard(unit));
    need(fsdp_unshard(unit));
    need(fsdp_wait_for_unshard(unit)); // of what is unsharded: nothing
    check(unit->flat.unsharded_param.data == buffer,
          "an unshard of what is unsharded made a second buffer");
    need(fsdp_reshard_all(s.model));
    check(unit->flat.state == FLAT_SHARDED, "fsdp_reshard_all left a unit unsharded");
    need(fsdp_begin_grad(unit));
    check(fsdp_begin_grad(unit) == ERR_ARGUMENT && strstr(check_last(), "l.0") != NULL,
          "a second gradient must be refused, with the unit's name");
    need(fsdp_reduce_grad(unit));
    need(fsdp_finish_backward(s.root));
    sharded_destroy(&s);
}

// The loss after a step, with or without an evaluation before the step.
static float loss_after_step(const Rank *r, FsdpReshard reshard, bool evaluates, bool adamw)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    FsdpOptions options = {.reshard_after_forward = reshard, .seed = 42};
    sharded_create(&s, &spec, &options, &TEST_ADAMW, r);
    Batch batch = batch_create(&spec, 1);
    float before = train_batch(&spec, &s.run, s.model, &batch);
    if (evaluates) {
        forward_batch(&spec, &s.run, s.model, &batch);
        if (reshard != FSDP_RESHARD_ALWAYS) {
            int t = s.adamw.t;
            check((adamw ? fsdp_adamw_step(&s.adamw)
                         : fsdp_sgd_step(s.model, &s.ctx, 0.5f, 0.0f)) == ERR_ARGUMENT,
                  "a step on unsharded parameters must be refused");
            check(strstr(check_last(), "fsdp_reshard_all(root)") != NULL && s.adamw.t == t,
                  "the refusal must name the remedy, and not count as a step: %s", check_last());
        }
        need(fsdp_reshard_all(s.model));
    }
    if (adamw)
        need(fsdp_adamw_step(&s.adamw));
    else
        need(fsdp_sgd_step(s.model, &s.ctx, 0.5f, 0.0f));
    need(fsdp_zero_grad(s.model, &s.ctx));
    float after = train_batch(&spec, &s.run, s.model, &batch);
    check(after != before, "the loss after the step is the one before it");
    batch_destroy(&batch);
    sharded_destroy(&s);
    return after;
}

RANK_TEST(no_step_on_stale_parameters, 1, 2, 3)
{
    for (FsdpReshard reshard = FSDP_RESHARD_AUTO; reshard <= FSDP_RESHARD_NEVER; reshard++) {
        for (int adamw = 0; adamw <= 1; adamw++) {
            float want = loss_after_step(r, reshard, false, adamw);
            float got = loss_after_step(r, reshard, true, adamw);
            check(got == want, "with an evaluation before the step the next loss is %g, without %g",
                  (double)got, (double)want);
        }
    }
}

// One unit that is not sharded, whichever it is and however far it has come, is enough.
RANK_TEST(one_unit_forbids_the_step, 1, 2, 3)
{
    Spec spec = spec_mlp(4);
    Sharded s;
    FsdpUnit *units[8];
    sharded_create(&s, &spec, &TEST_OPTIONS, &TEST_ADAMW, r);
    int n = fsdp_units(s.model, units, 8);
    // No hook orders these all-gathers after the making of the shards.
    need_cuda(cudaDeviceSynchronize());
    for (int i = 0; i < n; i++) {
        const char *name = units[i]->module->name;
        need(fsdp_unshard(units[i]));
        for (int waited = 0; waited <= 1; waited++) {
            check(fsdp_sgd_step(s.model, &s.ctx, 0.5f, 0.0f) == ERR_ARGUMENT &&
                      strstr(check_last(), name) != NULL,
                  "while %s is %s a step of SGD must be refused, with its name: %s", name,
                  waited ? "unsharded" : "unsharding", check_last());
            check(fsdp_adamw_step(&s.adamw) == ERR_ARGUMENT && strstr(check_last(), name) != NULL,
                  "while %s is %s a step of AdamW must be refused, with its name: %s", name,
                  waited ? "unsharded" : "unsharding", check_last());
            need(fsdp_wait_for_unshard(units[i]));
        }
        need(fsdp_reshard_all(s.model));
    }
    need(fsdp_adamw_step(&s.adamw));
    sharded_destroy(&s);
}

// The functions for a root refuse what is none, by name.
RANK_TEST(roots_are_asked_for, 1, 2)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    float norm;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    Module *block = s.model->children[0], *plain = block->children[0];
    check(fsdp_zero_grad(block, &s.ctx) == ERR_ARGUMENT && strstr(check_last(), s.model->name),
          "of a unit below the root the refusal names the root: %s", check_last());
    check(fsdp_grad_norm(plain, &s.ctx, &norm) == ERR_ARGUMENT &&
              strstr(check_last(), "fully_shard"),
          "of a module that is not a unit the refusal says what to call: %s", check_last());
    sharded_destroy(&s);

    // Another context below: two sets of streams cannot order one iteration.
    Module *model = spec_create(&spec);
    FsdpContext one, two;
    make_context(&one, r);
    make_context(&two, r);
    need(fully_shard(model->children[0], &one, &TEST_OPTIONS));
    size_t live = gpulog_live_bytes(r->device);
    check(fully_shard(model, &two, &TEST_OPTIONS) == ERR_ARGUMENT && fsdp_unit(model) == NULL &&
              !module_has_hooks(model) && gpulog_live_bytes(r->device) == live,
          "units of one root with two contexts must be refused, and the module stay as it was");
    need(fully_shard(model, &one, &TEST_OPTIONS));
    fsdp_unwrap(model);
    module_destroy(model);
    need(fsdp_context_destroy(&one));
    need(fsdp_context_destroy(&two));
}

SUITE_MAIN("states")
