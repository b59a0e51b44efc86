/* Task 6, API: modules become units in place, nested, and modules again. */
#include "bytes.h"
#include "claim_causes.h"
#include "draw_model.h"
#include "drawn_claims.h"
#include "fsdp.h"
#include "harness.h"
#include "host_memory.h"
#include "rules.h"
#include "snapshot.h"
#include "tests_layouts.h"
#include "training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool takes(const FsdpUnit *unit, const Param *param)
{
    for (int i = 0; i < unit->flat.layout.n; i++)
        if (unit->flat.layout.params[i] == param) return true;
    return false;
}

// Each of the units is for this rank of those that shard, and has its hooks' handles.
static void check_units(const Module *model)
{
    FsdpUnit *units[MAX];
    int n = fsdp_units(model, units, MAX);
    for (int i = 0; i < n; i++) {
        const FlatLayout *layout = &units[i]->flat.layout;
        const ProcessGroup *group = &units[i]->ctx->mesh.shard;
        check(
            layout->rank == group->rank && layout->world == group->size,
            "make_flat must lay out unit %s for rank %d of %d (mesh.shard), not for rank %d of %d",
            units[i]->flat.name, group->rank, group->size, layout->rank, layout->world);
        for (int at = 0; at < HOOK_POINTS; at++)
            check(units[i]->hooks[at] == units[i]->module->hooks[at],
                  "install_hooks: unit->hooks[%d] of unit %s must be the handle of a hook at point "
                  "%d, where the module has %s",
                  at, units[i]->flat.name, at, units[i]->module->hooks[at] ? "another" : "none");
    }
}

static void nested_body(const Rank *r, void *arg)
{
    Spec spec = spec_gpt2(3);
    Sharded s;
    Param *params[MAX];
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    int n = meta_params(s.model, params, MAX);
    FsdpUnit *root = fsdp_unit(s.model);
    check(root != NULL && fsdp_is_root(root),
          "clear_descendant_roots must hand the model's unit to fsdp_root_create as the first");
    for (int i = 0; i < n; i++) {
        int owners = takes(root, params[i]);
        bool in_block = strncmp(params[i]->name, "h.", 2) == 0;
        check(owners == !in_block, "%s %s", params[i]->name,
              in_block ? "is also in the root unit"
                       : "is missing in the root unit: does collect_unowned_params leave it in "
                         "params, and count it?");
        for (int c = 0; c < s.model->n_children; c++) {
            FsdpUnit *unit = fsdp_unit(s.model->children[c]);
            if (unit == NULL) continue;
            check(!fsdp_is_root(unit),
                  "block %s still takes itself for a root: clear_descendant_roots must make one "
                  "root of the module and of what fsdp_units lists below it",
                  s.model->children[c]->name);
            owners += takes(unit, params[i]);
        }
        check(owners == 1, "%s is in %d units: which parameters does make_flat lay out?",
              params[i]->name, owners);
    }
    check(sharded_numel(&s) == meta_count(s.model),
          "the units of fsdp_units hold %lld elements, the model has %lld",
          (long long)sharded_numel(&s), (long long)meta_count(s.model));
    sharded_destroy(&s);

    // Three deep: a linear layer inside a block inside the model.
    Module *model = spec_create(&spec);
    FsdpContext ctx;
    make_context(&ctx, r);
    Module *block = model->children[1], *inner = block->children[block->n_children - 1];
    need(fully_shard(inner, &ctx, &TEST_OPTIONS));
    need(fully_shard(block, &ctx, &TEST_OPTIONS));
    need(fully_shard(model, &ctx, &TEST_OPTIONS));
    check(fsdp_units(model, NULL, 0) == 3,
          "fsdp_units finds %d of three nested units, each in the one before",
          fsdp_units(model, NULL, 0));
    int64_t sum = fsdp_unit(inner)->flat.layout.numel + fsdp_unit(block)->flat.layout.numel +
                  fsdp_unit(model)->flat.layout.numel;
    check(fsdp_unit(inner)->flat.layout.numel == meta_count(inner),
          "the innermost unit does not hold its own");
    check(sum == meta_count(model), "three nested units hold %lld elements, the model has %lld",
          (long long)sum, (long long)meta_count(model));
    check(!fsdp_is_root(fsdp_unit(inner)) && !fsdp_is_root(fsdp_unit(block)) &&
              fsdp_is_root(fsdp_unit(model)),
          "of three nested units only the outermost is the root");
    fsdp_unwrap(model);
    need(fsdp_context_destroy(&ctx));
    module_destroy(model);
}

TEST(takes_what_no_inner_unit_took)
{
    run_ranks(1, count_body, NULL);
    run_worlds(nested_body, NULL, 1, 3);
    for (int i = 0; i < 3; i++) claim_drawn_units(1, 8);
}

static void tied_body(const Rank *r, void *arg)
{
    const Spec spec = *(const Spec *)arg;
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    const FlatParam *flat = &fsdp_unit(s.model)->flat;
    int found = 0;
    check_units(s.model);
    for (int i = 0; i < flat->layout.n; i++)
        found += strstr(flat->layout.params[i]->name, "wte") != NULL;
    check(found == 1, "the tied embedding is %d times in the root unit", found);
    // The last rank's part of it, too, moves when it is trained.
    Batch batch = batch_create(&spec, 1);
    need_cuda(cudaStreamSynchronize(r->stream));
    float *before = fetch(flat->sharded_param.data, (size_t)flat->layout.shard_numel);
    train_batch(&spec, &s.run, s.model, &batch);
    need(fsdp_sgd_step(s.model, &s.ctx, 1.0f, 0.0f));
    need_cuda(cudaStreamSynchronize(r->stream));
    float *after = fetch(flat->sharded_param.data, (size_t)flat->layout.shard_numel);
    check(memcmp(before, after, (size_t)flat->layout.shard_numel * sizeof *after) != 0,
          "this rank's shard of the root unit did not move in a step");
    free(before);
    free(after);
    batch_destroy(&batch);
    sharded_destroy(&s);
}

TEST(tied_parameter_is_taken_once)
{
    Spec spec = spec_gpt2(2);
    run_worlds(tied_body, &spec, 1, 3);
    // Large enough for every rank to hold something real that has a gradient.
    do spec = draw_gpt2(2);
    while (spec.dim < 8);
    run_ranks(drawn_world(&spec, 2, 5), tied_body, &spec);
}

static void misuse_body(const Rank *r, void *arg)
{
    Spec spec = spec_gpt2(2);
    Module *model = spec_create(&spec);
    FsdpContext ctx;
    size_t live = gpulog_live_bytes(r->device);
    make_context(&ctx, r);
    Module *block = model->children[1];

    need(fully_shard(block, &ctx, &TEST_OPTIONS));
    need_refused_whole(model, NULL, fully_shard(block, &ctx, &TEST_OPTIONS), block->name);
    // A module without parameters of its own: nothing to take.
    Spec mlp = spec_mlp(2);
    Module *other = spec_create(&mlp), *gelu = other->children[0]->children[1];
    need_refused_whole(other, NULL, fully_shard(gelu, &ctx, &TEST_OPTIONS), gelu->name);
    need(fully_shard(model, &ctx, &TEST_OPTIONS));
    fsdp_unwrap(model);
    need(fsdp_context_destroy(&ctx));
    check(gpulog_live_bytes(r->device) == live, "fsdp_unwrap left %zu bytes allocated",
          gpulog_live_bytes(r->device) - live);
    module_destroy(model);
    module_destroy(other);
}

// A parameter that a child's unit has is also used in the root, or two levels below it: refused.
static void half_body(const Rank *r, void *arg)
{
    Param own = {.name = "own", .ndim = 1, .shape = {5}};
    Param shared = {.name = "shared", .ndim = 1, .shape = {7}};
    Param *of_child[] = {&shared}, *both[] = {&own, &shared};
    FsdpContext ctx;
    make_context(&ctx, r);
    for (int deep = 0; deep < 2; deep++) {
        Module child = {.name = "child", .n_params = 1, .params = of_child};
        Module leaf = {.name = "leaf", .n_params = 2, .params = both}, *leaves[] = {&leaf};
        Module middle = {.name = "middle", .n_children = 1, .children = leaves};
        Module *below[] = {&child, &middle};
        Module root = {.name = "root", .n_params = deep ? 0 : 2, .params = both};
        root.n_children = 1 + deep;
        root.children = below;
        need(fully_shard(&child, &ctx, &TEST_OPTIONS));
        Snapshot *before = snapshot_take(&root, NULL);
        unsigned errors = failure_begins();
        Status status = fully_shard(&root, &ctx, &TEST_OPTIONS);
        check(status != OK || check_errors() == errors,
              "make_flat must return its first failure: it was refused, and fully_shard gives OK");
        check(status != OK && check_errors() > errors,
              "collect_unowned_params must refuse \"shared\", of unit \"child\"%s, and gives %s",
              deep ? " and, as uses_outside_units finds, of leaf, two levels below" : "",
              status == OK ? "OK" : "a status without a line (return fail(…))");
        failed_at(__FILE__, __LINE__, "fully_shard(&root, &ctx, &TEST_OPTIONS)", errors, status,
                  ERR_ARGUMENT, shared.name);
        snapshot_check_at(__FILE__, __LINE__, before, &root, NULL,
                          "fully_shard(&root, &ctx, &TEST_OPTIONS)");
        fsdp_unwrap(&root);
        check(fsdp_unit(&child) == NULL,
              "fsdp_unwrap must unwrap what is below a plain module, too");
        check(
            shared.owner == NULL,
            "after fsdp_unwrap a parameter still has an owner: does destroy_unit free unit->flat?");
    }
    need(fsdp_context_destroy(&ctx));
}

TEST(refuses_misuse)
{
    run_worlds(half_body, NULL, 1, 2);
    run_ranks(2, misuse_body, NULL);
    RULE(a_refused_module_is_as_it_was);
    RULE(refuses_each_time);
}

// What fully_shard was told is what the unit does.
static void options_body(const Rank *r, void *arg)
{
    const Spec spec = *(const Spec *)arg;
    for (int bits = 0; bits < 6; bits++) {
        Sharded s;
        FlatParam *flat[MAX];
        FsdpOptions options = TEST_OPTIONS;
        options.reshard_after_forward = bits / 2;
        options.align_shards = bits & 1;
        // The batch first: making it waits for the device, and would hide what nothing orders.
        Batch batch = batch_create(&spec, 1);
        uint64_t log = gpulog_length();
        sharded_create(&s, &spec, &options, NULL, r);
        int n = flat_params(s.model, flat, MAX);
        check_units(s.model);
        for (int i = 0; i < n; i++) {
            const Module *m = i == 0 ? s.model : s.model->children[i - 1];
            check(strcmp(flat[i]->name, m->name) == 0,
                  "the flat parameter of module %s is called %s", m->name, flat[i]->name);
            check(
                fsdp_unit(m)->reshard_after_forward == options.reshard_after_forward,
                "unit %s does not know what options->reshard_after_forward says: fully_shard must "
                "tell it",
                m->name);
            int64_t multiple = options.align_shards ? 4 : 1;
            int64_t want =
                (flat[i]->layout.numel + multiple * r->world - 1) / (multiple * r->world);
            check(flat[i]->layout.shard_numel == want * multiple,
                  "make_flat (unit %s, align_shards %s, numel %lld, W = %d): shards of "
                  "%lld, want %lld: what does lay_out get?",
                  m->name, options.align_shards ? "true" : "false",
                  (long long)flat[i]->layout.numel, r->world,
                  (long long)flat[i]->layout.shard_numel, (long long)(want * multiple));
        }
        train_batch(&spec, &s.run, s.model, &batch);
        need(fsdp_sgd_step(s.model, &s.ctx, 0.125f, 0.0f));
        check_no_race(log);
        batch_destroy(&batch);
        sharded_destroy(&s);
    }
}

static const HookFn WANT[HOOK_POINTS] = {fsdp_pre_forward, fsdp_post_forward, fsdp_pre_backward,
                                         fsdp_post_backward};

// Whether the function does to the unit, at this point of a pass, what the one of that name does:
// hooks may be functions that call it.
static bool does_the_same(FsdpUnit *unit, int at, HookFn fn)
{
    static const FsdpPhase AFTER[] = {FSDP_FORWARD, FSDP_IDLE, FSDP_PRE_BACKWARD, FSDP_IDLE};
    bool same = true;
    for (int i = 0; i <= at && same; i++) {
        int ended = unit->root->n_post_forward;
        same = (i == at ? fn : WANT[i])(unit->module, unit) == OK && unit->phase == AFTER[i];
        if (i == HOOK_PRE_FORWARD) same &= unit->flat.state == FLAT_UNSHARDED;
        if (i == HOOK_POST_FORWARD) same &= unit->root->n_post_forward == ended + 1;
        if (i >= HOOK_PRE_BACKWARD)
            same &= (unit->flat.unsharded_grad.data != NULL) == (i == HOOK_PRE_BACKWARD);
    }
    need(fsdp_reshard_all(unit->root->units[0]->module));
    return same;
}

static void hooks_body(Sharded *s, const Rank *r, void *arg)
{
    need_cuda(cudaDeviceSynchronize());
    check_on_stream(0, s->ctx.compute_stream, "fully_shard's work", "ctx->compute_stream");
    for (int c = -1; c < s->model->n_children; c++) {
        Module *m = c < 0 ? s->model : s->model->children[c];
        FsdpUnit *unit = fsdp_unit(m);
        if (unit == NULL) continue;
        for (int at = 0; at < HOOK_POINTS; at++) {
            const Hook *hook = m->hooks[at];
            check(hook != NULL && hook->next == NULL &&
                      (hook->fn == WANT[at] || does_the_same(unit, at, hook->fn)),
                  "%s: install_hooks leaves a hook out, or puts it at the wrong point", m->name);
            check(hook->arg == unit, "%s: install_hooks gives a hook something else than its unit",
                  m->name);
        }
        check(unit->module == m && unit->ctx == &s->ctx, "%s: the unit does not know its module",
              m->name);
    }
    Batch batch = batch_create(&s->spec, 1);
    float loss = train_batch(&s->spec, &s->run, s->model, &batch);
    check(loss > 1.0f && loss < 5.0f,
          "the loss of an untrained model over %d tokens is %g, want about "
          "ln %d",
          s->spec.vocab, (double)loss, s->spec.vocab);
    batch_destroy(&batch);
}

TEST(hooks_run_in_order)
{
    run_sharded(spec_gpt2(2), hooks_body, 1, 3);
    Spec spec = spec_mlp(3);
    run_worlds(options_body, &spec, 1, 3);
    RULE(options_are_the_units_own);
    RULE(contexts_are_apart, APART_BACKWARD);
    spec = draw_mlp(6);
    run_ranks(drawn_world(&spec, 2, 8), options_body, &spec);
}

static void list_body(const Rank *r, void *arg)
{
    Spec spec = spec_gpt2(3);
    Sharded s;
    FsdpUnit *units[MAX] = {NULL};
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    check(fsdp_units(s.model, NULL, 0) == 4,
          "fsdp_units of a model of three blocks and a root counts %d, want 4",
          fsdp_units(s.model, NULL, 0));
    check(fsdp_units(s.model, units, 2) == 4 && units[1] != NULL && units[2] == NULL,
          "fsdp_units must count all and write no more than max");
    fsdp_units(s.model, units, MAX);
    check(units[0] == fsdp_unit(s.model), "fsdp_units must list the root first");
    for (int i = 0; i < 3; i++)
        check(units[1 + i] == fsdp_unit(s.model->children[1 + i]),
              "fsdp_units: place %d must be block h.%d", 1 + i, i);
    check(fsdp_units(s.model->children[2], NULL, 0) == 1, "below one block there is one");
    sharded_destroy(&s);

    // A unit inside a module that is none.
    Module *model = spec_create(&spec);
    Module *block = model->children[2], *inner = block->children[block->n_children - 1];
    FsdpContext ctx;
    make_context(&ctx, r);
    need(fully_shard(inner, &ctx, &TEST_OPTIONS));
    check(fsdp_units(model, units, MAX) == 1 && units[0] == fsdp_unit(inner),
          "fsdp_units must find a unit below a module that is not a unit itself");
    fsdp_unwrap(model);
    check(fsdp_unit(inner) == NULL,
          "fsdp_unwrap of a model must find a unit below a module that is none");
    need(fsdp_context_destroy(&ctx));
    module_destroy(model);
}

TEST(lists_flat_parameters)
{
    run_ranks(2, list_body, NULL);
    RULE(any_number_of_units);
    RULE(lists_no_more_than_its_places);
    for (int i = 0; i < 3; i++) claim_drawn_list(1, 8);
}

// ---- The full state ----

typedef struct Seen {
    int n;
    const Param *param[MAX];
    int wrong;       // parameters whose values are not the initial ones
    char first[400]; // what is wrong with the first of them
    int fail_from;   // the visitor fails from this call on; -1: never
} Seen;

static Status visitor(const Param *param, const float *values, void *arg)
{
    Seen *seen = arg;
    size_t numel = (size_t)meta_numel(param);
    float *want = malloc(numel * sizeof *want);
    if (seen->fail_from >= 0 && seen->n >= seen->fail_from) {
        seen->n++;
        free(want);
        return ERR_IO;
    }
    meta_init_slice(param, TEST_OPTIONS.seed, 0, (int64_t)numel, want);
    if (memcmp(values, want, numel * sizeof *want) != 0 && seen->wrong++ == 0) {
        size_t i = 0;
        while (i + 1 < numel && memcmp(&values[i], &want[i], sizeof *want) == 0) i++;
        float *unseeded = malloc(numel * sizeof *unseeded);
        meta_init_slice(param, 0, 0, (int64_t)numel, unseeded);
        Clues clues = {.n = 1,
                       .otherwise = i != numel / 4 ? NULL
                                                   : "a quarter of it is right: visit_param "
                                                     "must copy buffer_bytes",
                       .clue = {{unseeded, "these are the initial values of seed 0: does make_flat "
                                           "give options->seed to flat_create?"}}};
        snprintf(seen->first, sizeof seen->first, "%s[%zu] is %.9g, must be %.9g%s", param->name, i,
                 (double)values[i], (double)want[i], cause_of(&clues, values, want, numel));
        free(unseeded);
    }
    seen->param[seen->n++] = param;
    free(want);
    return OK;
}

static void state_body(Sharded *s, const Rank *r, void *arg)
{
    Param *params[MAX];
    Seen seen = {.fail_from = -1};
    int n = meta_params(s->model, params, MAX);
    size_t live = gpulog_live_bytes(r->device);
    Sizes sizes;
    sizes_of(&sizes, s->model, r->world);
    gpulog_reset_peak(r->device);
    need(fsdp_full_state(s->model, visitor, &seen));
    if (r->rank == 0) {
        check(seen.n == n, "fsdp_full_state called the visitor %d times for %d parameters", seen.n,
              n);
        check(seen.wrong == 0, "%d parameters came with other values than the model has: %s",
              seen.wrong, seen.first);
        for (int i = 0; i < n; i++) {
            int times = 0;
            for (int j = 0; j < seen.n; j++) times += seen.param[j] == params[i];
            check(times == 1, "fsdp_full_state: %s came %d times", params[i]->name, times);
        }
    } else {
        check(seen.n == 0, "fsdp_full_state called the visitor on rank %d: it belongs to rank 0",
              r->rank);
    }
    check(gpulog_live_bytes(r->device) == live, "fsdp_full_state left %zu bytes on the device%s",
          gpulog_live_bytes(r->device) - live,
          bytes_cause(gpulog_live_bytes(r->device) - live, &sizes));
    size_t largest = whole_bytes(fsdp_unit(s->model));
    for (int i = 1; i <= 2; i++)
        if (whole_bytes(fsdp_unit(s->model->children[i])) > largest)
            largest = whole_bytes(fsdp_unit(s->model->children[i]));
    check(gpulog_peak_bytes(r->device) <= live + largest,
          "fsdp_full_state takes %zu bytes of the device, and the largest unit has %zu: it gathers "
          "a unit at a time, and frees it before the next",
          gpulog_peak_bytes(r->device) - live, largest);

    // A visitor that fails on rank 0: all ranks come through, rank 0 says so.
    Seen failing = {.fail_from = 3};
    Status status = fsdp_full_state(s->model, visitor, &failing);
    check(status == (r->rank == 0 ? ERR_IO : OK),
          "the visitor failed on rank 0, and this rank got status %d", (int)status);
    check(failing.n <= 4, "fsdp_full_state called the visitor again after it had failed");

    // What an optimizer wrote is what is saved; and the model can go on.
    Batch batch = batch_create(&s->spec, 1);
    train_batch(&s->spec, &s->run, s->model, &batch);
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    need(fsdp_sgd_step(s->model, &s->ctx, 0.5f, 0.0f));
    float *after = sharded_params(s);
    check_no_race(log);
    if (r->rank == 0) {
        float *first = malloc((size_t)meta_numel(params[0]) * sizeof *first);
        meta_init_slice(params[0], TEST_OPTIONS.seed, 0, meta_numel(params[0]), first);
        check(memcmp(first, after, (size_t)meta_numel(params[0]) * sizeof *first) != 0,
              "after a step the full state still is the initial one");
        free(first);
    }
    free(after);
    train_batch(&s->spec, &s->run, s->model, &batch);
    batch_destroy(&batch);
}

// A unit that is unsharded stays so.
static void kept_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    Seen seen = {.fail_from = -1};
    FsdpOptions options = TEST_OPTIONS;
    options.reshard_after_forward = FSDP_RESHARD_NEVER;
    sharded_create(&s, &spec, &options, NULL, r);
    Batch batch = batch_create(&spec, 1);
    forward_batch(&spec, &s.run, s.model, &batch);
    for (int i = 0; i < s.model->n_children - 1; i++)
        check(fsdp_unit(s.model->children[i])->flat.state == FLAT_UNSHARDED,
              "unit %s is not unsharded after a forward, with reshard_after_forward off: does "
              "fully_shard tell it?",
              s.model->children[i]->name);
    need(fsdp_full_state(s.model, visitor, &seen));
    for (int i = 0; i < s.model->n_children - 1; i++)
        check(
            fsdp_unit(s.model->children[i])->flat.state == FLAT_UNSHARDED,
            "unit %s was unsharded before fsdp_full_state and is not afterwards: gather_unit must "
            "leave a unit as it was",
            s.model->children[i]->name);
    batch_destroy(&batch);
    sharded_destroy(&s);
}

TEST(full_state_is_the_model)
{
    run_ranks(2, kept_body, NULL);
    run_sharded(spec_gpt2(2), state_body, 1, 3, 4);
    RULE(full_state_leaves_units_as_they_were);
    RULE(full_state_says_what_failed);
    RULE(full_state_is_shown_to_one);
    RULE(full_state_of_what_is_below);
    RULE(contexts_are_apart, APART_STATE);
    for (int i = 0; i < 2; i++) claim_drawn_state(2, 8);
}

static void unwrap_body(const Rank *r, void *arg)
{
    Spec spec = spec_gpt2(2);
    FsdpContext ctx;
    NnRun run;
    size_t live = gpulog_live_bytes(r->device);
    Module *model = spec_create(&spec);
    Batch batch = batch_create(&spec, 1);
    need(nn_run_create(&run, r->stream));
    make_context(&ctx, r);
    FsdpOptions keep = TEST_OPTIONS;
    keep.reshard_after_forward = FSDP_RESHARD_NEVER;
    size_t bare = gpulog_live_bytes(r->device);
    for (int round = 0; round < 4; round++) {
        need(fully_shard(model->children[1], &ctx, &TEST_OPTIONS));
        need(fully_shard(model, &ctx, &keep));
        Sizes sizes;
        sizes_of(&sizes, model, r->world);
        if (round < 2)
            forward_batch(&spec, &run, model, &batch); // the root stays unsharded
        else
            need(fsdp_unshard(fsdp_unit(model->children[1]))); // nobody waited for it
        host_fill(true);
        fsdp_unwrap(model);
        host_fill(false);
        check(gpulog_live_bytes(r->device) == bare,
              "fsdp_unwrap of a model whose %s left %zu bytes on the device%s",
              round < 2 ? "root is unsharded" : "block is being gathered",
              gpulog_live_bytes(r->device) - bare,
              left_cause(gpulog_live_bytes(r->device) - bare, &sizes));
        check(fsdp_unit(model) == NULL && fsdp_unit(model->children[1]) == NULL,
              "after fsdp_unwrap a module still is a unit");
        check(!module_has_hooks(model), "after fsdp_unwrap a hook is still there");
        Param *params[MAX];
        int n = meta_params(model, params, MAX);
        for (int i = 0; i < n; i++)
            check(params[i]->owner == NULL && params[i]->data.data == NULL,
                  "after fsdp_unwrap %s is not on meta", params[i]->name);
    }
    need(fsdp_context_destroy(&ctx));
    need(nn_run_destroy(&run));
    batch_destroy(&batch);
    module_destroy(model);
    check(gpulog_live_bytes(r->device) == live, "fsdp_unwrap left %zu bytes on the device",
          gpulog_live_bytes(r->device) - live);
}

TEST(unwrap_gives_everything_back)
{
    run_worlds(unwrap_body, NULL, 1, 3);
    RULE(unwrap_leaves_what_is_not_its_own);
    RULE(unwraps_below_a_root);
    claim_drawn_unwrap(1, 8);
}

SUITE_MAIN("api")
