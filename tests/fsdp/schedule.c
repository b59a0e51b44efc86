/* The order of an iteration: which forward ended when, what is prefetched, and whose iteration it
 * is. What PyTorch FSDP2 does (post_forward_order, iter_forward_root) is the oracle, written out.
 */
#include "harness.h"
#include "training.h"

#include <stdlib.h>
#include <string.h>

enum { UNITS = 7 };

// A GPT-2 of two blocks in which the attention and the MLP of each block are units too.
typedef struct Nested {
    NnRun run;
    FsdpContext ctx;
    Module *model;
    FsdpUnit *unit[UNITS]; // in the order in which their forwards end
} Nested;

static const char *const ENDS[UNITS] = {"h.0.attn", "h.0.mlp", "h.0", "h.1.attn",
                                        "h.1.mlp",  "h.1",     "root"};

static Module *child(Module *m, const char *name)
{
    for (int i = 0; i < m->n_children; i++)
        if (strcmp(m->children[i]->name, name) == 0) return m->children[i];
    check(false, "%s has no child %s", m->name, name);
    return NULL;
}

static void nested_create(Nested *t, const Spec *spec, const FsdpOptions *options, const Rank *r)
{
    t->model = spec_create(spec);
    need(nn_run_create(&t->run, r->stream));
    make_context(&t->ctx, r);
    for (int i = 0; i < 2; i++) {
        Module *block = child(t->model, i == 0 ? "h.0" : "h.1");
        Module *parts[] = {child(block, "attn"), child(block, "mlp"), block};
        for (int j = 0; j < 3; j++) {
            need(fully_shard(parts[j], &t->ctx, options));
            t->unit[3 * i + j] = fsdp_unit(parts[j]);
        }
    }
    need(fully_shard(t->model, &t->ctx, options));
    t->unit[UNITS - 1] = fsdp_unit(t->model);
}

static void nested_destroy(Nested *t)
{
    fsdp_unwrap(t->model);
    need(fsdp_context_destroy(&t->ctx));
    module_destroy(t->model);
    need(nn_run_destroy(&t->run));
}

// ---- Nested units ----

// Runs after FSDP's own pre-backward hook: the unit that comes next must be on its way, and the one
// after that must not.
static Status expect_prefetch(Module *m, void *arg)
{
    const Nested *t = arg;
    int at = 0;
    while (t->unit[at]->module != m) at++;
    check(t->unit[at]->flat.state == FLAT_UNSHARDED, "%s is not unsharded in its backward",
          ENDS[at]);
    if (at >= 1)
        check(t->unit[at - 1]->flat.state != FLAT_SHARDED,
              "in the pre-backward of %s the all-gather of %s is not queued", ENDS[at],
              ENDS[at - 1]);
    if (at >= 2)
        check(t->unit[at - 2]->flat.state == FLAT_SHARDED,
              "in the pre-backward of %s the all-gather of %s is queued, a unit too early",
              ENDS[at], ENDS[at - 2]);
    return OK;
}

RANK_TEST(prefetches_the_unit_that_ended_before, 1, 2, 3)
{
    Spec spec = spec_gpt2(2);
    Nested t;
    nested_create(&t, &spec, &TEST_OPTIONS, r);
    Batch batch = batch_create(&spec, 1 + (uint64_t)r->rank);
    const FsdpRoot *root = t.unit[UNITS - 1]->root;
    static const int WALK[UNITS] = {6, 2, 0, 1, 5, 3, 4}; // a module before its children
    check(root->n_units == UNITS, "the root's registry has %d units", root->n_units);
    for (int i = 0; i < UNITS; i++)
        check(root->units[i] == t.unit[WALK[i]], "place %d of the root's registry is not %s", i,
              ENDS[WALK[i]]);
    for (int i = 0; i < UNITS; i++)
        check(module_add_hook(t.unit[i]->module, HOOK_PRE_BACKWARD, expect_prefetch, &t) != NULL,
              "no hook");
    uint64_t log = gpulog_length();
    for (int step = 0; step < 2; step++) {
        forward_batch(&spec, &t.run, t.model, &batch);
        check(root->n_post_forward == UNITS, "%d forwards are recorded", root->n_post_forward);
        for (int i = 0; i < UNITS; i++)
            check(root->post_forward_order[i] == t.unit[i], "forward %d to end was not that of %s",
                  i, ENDS[i]);
        train_batch(&spec, &t.run, t.model, &batch);
        check(root->n_post_forward == 0, "after a backward %d forwards are still recorded",
              root->n_post_forward);
        for (int i = 0; i < UNITS; i++)
            check(t.unit[i]->flat.state == FLAT_SHARDED && t.unit[i]->phase == FSDP_IDLE,
                  "after a backward %s is not sharded and idle", ENDS[i]);
        need(fsdp_sgd_step(t.model, &t.ctx, 0.125f, 0.0f));
    }
    check_no_race(log);
    check_no_host_wait(log, "in a step");
    batch_destroy(&batch);
    nested_destroy(&t);
}

// ---- A unit that runs twice ----

// u, v, u, v, with the root around them: every backward but the last prefetches the one before it.
RANK_TEST(a_unit_that_runs_twice_is_recorded_twice, 2, 3)
{
    enum { RUNS = 4 };
    Spec spec = spec_mlp(3);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    Module *u = s.model->children[0], *v = s.model->children[1], *root = s.model;
    Module *const runs[RUNS + 1] = {u, v, u, v, root};
    int index[RUNS];
    need(fsdp_pre_forward(root, root->unit));
    for (int i = 0; i < RUNS; i++) {
        need(fsdp_pre_forward(runs[i], runs[i]->unit));
        need(fsdp_post_forward(runs[i], runs[i]->unit));
    }
    need(fsdp_post_forward(root, root->unit));
    for (int i = 0; i <= RUNS; i++)
        check(s.root->n_post_forward == RUNS + 1 &&
                  s.root->post_forward_order[i] == fsdp_unit(runs[i]),
              "place %d of post_forward_order: a unit that ran twice must be in it twice", i);

    need(fsdp_pre_backward(root, root->unit));
    check(fsdp_unit(v)->flat.state == FLAT_UNSHARDING,
          "the root prefetches the unit that ended last");
    for (int i = RUNS - 1; i >= 0; i--) {
        need(fsdp_pre_backward(runs[i], runs[i]->unit));
        if (i > 0)
            check(fsdp_unit(runs[i - 1])->flat.state == FLAT_UNSHARDING,
                  "backward %d does not prefetch the unit whose forward ended before it",
                  RUNS - 1 - i);
        index[i] = fsdp_unit(runs[i])->backward_index;
        need(fsdp_post_backward(runs[i], runs[i]->unit));
    }
    check(fsdp_unit(u)->flat.state == FLAT_SHARDED && fsdp_unit(v)->flat.state == FLAT_SHARDED,
          "after the last backward nothing is prefetched");
    for (int i = 0; i < RUNS; i++)
        check(index[i] == i, "the backward of forward %d has index %d", i, index[i]);
    need(fsdp_post_backward(root, root->unit));
    sharded_destroy(&s);
}

// ---- Whose iteration it is ----

// The gradients of one step on a model alone.
static float *grads_alone(const Spec *spec, uint64_t seed, uint64_t data, const Rank *r, size_t *n)
{
    Sharded s;
    FsdpOptions options = TEST_OPTIONS;
    options.seed = seed;
    sharded_create(&s, spec, &options, NULL, r);
    Batch batch = batch_create(spec, data);
    train_batch(spec, &s.run, s.model, &batch);
    float *grads = sharded_grads(&s);
    *n = (size_t)meta_count(s.model);
    batch_destroy(&batch);
    sharded_destroy(&s);
    return grads;
}

static void check_all_sharded(const Module *root, const char *when)
{
    FlatParam *flat[16];
    int n = flat_params(root, flat, 16);
    for (int i = 0; i < n; i++)
        check(flat[i]->state == FLAT_SHARDED && flat[i]->unsharded_param.data == NULL,
              "%s unit %s is not sharded", when, flat[i]->name);
}

// Forward b, forward a, backward b, backward a, on one context.
RANK_TEST(two_models_share_a_context, 2, 3)
{
    Spec spec[2] = {spec_mlp(3), spec_mlp(4)};
    Module *model[2];
    FsdpUnit *units[2][16];
    Batch batch[2];
    NnRun run;
    FsdpContext ctx;
    float *logits[2], *dlogits, *din;
    need(nn_run_create(&run, r->stream));
    make_context(&ctx, r);
    for (int m = 0; m < 2; m++) {
        FsdpOptions options = {.reshard_after_forward = FSDP_RESHARD_ALWAYS, .seed = 42 + m};
        model[m] = spec_create(&spec[m]);
        for (int i = 0; i < model[m]->n_children - 1; i++)
            need(fully_shard(model[m]->children[i], &ctx, &options));
        need(fully_shard(model[m], &ctx, &options));
        fsdp_units(model[m], units[m], 16);
        batch[m] = batch_create(&spec[m], 7 + (uint64_t)m + 10 * (uint64_t)r->rank);
    }
    run.B = spec[0].B;
    run.T = spec[0].T;
    uint64_t log = gpulog_length();
    for (int k = 0; k < 2; k++)
        need(module_forward(model[1 - k], &run, batch[1 - k].in, &logits[1 - k]));
    for (int k = 0; k < 2; k++) {
        int m = 1 - k;
        need(cross_entropy(&run, logits[m], batch[m].targets, spec[m].B, spec[m].vocab, NULL,
                           &dlogits));
        need(module_backward(model[m], &run, dlogits, &din));
        need_cuda(cudaFreeAsync(dlogits, r->stream));
        need_cuda(cudaFreeAsync(din, r->stream));
        // Nor may the backward of one gather what the other will need.
        for (int other = 0; other < 2; other++)
            check_all_sharded(model[other], "after the backward of one of two models");
    }
    for (int m = 0; m < 2; m++) need(fsdp_sgd_step(model[m], &ctx, 0.0f, 0.0f));
    check_no_race(log);

    for (int m = 0; m < 2; m++) {
        size_t n, at = 0;
        float *want = grads_alone(&spec[m], 42 + (uint64_t)m,
                                  7 + (uint64_t)m + 10 * (uint64_t)r->rank, r, &n);
        need_cuda(cudaStreamSynchronize(r->stream));
        for (int u = 0; u < 2; u++) { // the first parameters, of the first block: a sample
            const FlatParam *flat = &units[m][1 + u]->flat;
            float *got = fetch(flat->sharded_grad.data, (size_t)flat->layout.shard_numel);
            int64_t begin = flat->layout.rank * flat->layout.shard_numel;
            for (int64_t i = 0; i < flat->layout.shard_numel && begin + i < flat->layout.numel; i++)
                check(got[i] == want[at + (size_t)(begin + i)],
                      "model %d, unit %s: gradient %lld is %g, and %g for the model alone", m,
                      flat->name, (long long)(begin + i), (double)got[i],
                      (double)want[at + (size_t)(begin + i)]);
            at += (size_t)flat->layout.numel;
            free(got);
        }
        free(want);
        fsdp_unwrap(model[m]);
        module_destroy(model[m]);
        batch_destroy(&batch[m]);
    }
    need(fsdp_context_destroy(&ctx));
    need(nn_run_destroy(&run));
}

// A block below the root runs alone, forward and backward: its iteration begins and ends with it.
RANK_TEST(a_part_is_an_iteration_of_its_own, 2, 3)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    Batch batch = batch_create(&spec, 1);
    Module *part = s.model->children[0];
    float *out, *din;
    train_batch(&spec, &s.run, s.model, &batch); // an iteration of the root's is over
    size_t live = gpulog_live_bytes(r->device);
    uint64_t log = gpulog_length();
    for (int step = 0; step < 2; step++) {
        need(module_forward(part, &s.run, batch.in, &out));
        need(module_backward(part, &s.run, out, &din));
        need_cuda(cudaFreeAsync(din, r->stream));
        check_all_sharded(s.model, "after a block's backward");
        need(fsdp_sgd_step(s.model, &s.ctx, 0.125f, 0.0f));
    }
    check_no_race(log);
    check(gpulog_live_bytes(r->device) == live, "a block that ran alone left %zu bytes",
          gpulog_live_bytes(r->device) - live);
    batch_destroy(&batch);
    sharded_destroy(&s);
}

// Two blocks run alone: while one awaits its backward, the forward of the other forgets nothing.
RANK_TEST(forwards_await_their_backward, 2)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    Batch batch = batch_create(&spec, 1);
    Module *first = s.model->children[0], *second = s.model->children[1];
    float *out, *din;
    s.run.B = spec.B;
    s.run.T = spec.T;
    need(module_forward(first, &s.run, batch.in, &out));
    need(module_forward(second, &s.run, out, &out));
    check(s.root->n_post_forward == 2 && s.root->post_forward_order[0] == fsdp_unit(first) &&
              s.root->post_forward_order[1] == fsdp_unit(second),
          "a forward that awaits its backward is forgotten when another begins: %d are recorded",
          s.root->n_post_forward);
    need(fsdp_pre_backward(second, second->unit));
    check(fsdp_unit(first)->flat.state == FLAT_UNSHARDING,
          "the backward of the second block does not prefetch the first");
    need(fsdp_post_backward(second, second->unit));
    need(module_backward(first, &s.run, out, &din));
    need_cuda(cudaFreeAsync(din, r->stream));
    need(module_discard(s.model, &s.run));
    need(module_forward(first, &s.run, batch.in, &out));
    check(s.root->n_post_forward == 1, "of the forwards that are over %d are still recorded",
          s.root->n_post_forward - 1);
    need(module_discard(s.model, &s.run));
    batch_destroy(&batch);
    sharded_destroy(&s);
}

// The whole forward, and the backward of one block alone: what it prefetches nobody uses.
RANK_TEST(unused_prefetches_are_cleared, 1, 2, 3)
{
    Spec spec = spec_mlp(4);
    Sharded s;
    FsdpOptions options = {.seed = 42}; // auto: the root is unsharded, too
    sharded_create(&s, &spec, &options, NULL, r);
    Batch batch = batch_create(&spec, 1);
    Module *block = s.model->children[2];
    float *logits, *din;
    s.run.B = spec.B;
    s.run.T = spec.T;
    need(module_forward(s.model, &s.run, batch.in, &logits));
    check(fsdp_unit(s.model)->flat.state == FLAT_UNSHARDED,
          "with FSDP_RESHARD_AUTO the root stays unsharded after its forward");
    uint64_t log = gpulog_length();
    need(module_backward(block, &s.run, block->out, &din));
    check(gpulog_count(GPU_ALL_GATHER, log) == (r->world > 1 ? 2u : 0u),
          "the block and the one before it are gathered");
    need_cuda(cudaFreeAsync(din, r->stream));
    check_all_sharded(s.model, "after a backward that used no prefetch");
    check(s.root->all_gather_state.buffer == NULL && s.root->reduce_scatter_state.buffer == NULL,
          "after the backward a buffer is left to free");
    need(module_discard(s.model, &s.run));
    need(fsdp_sgd_step(s.model, &s.ctx, 0.125f, 0.0f));
    batch_destroy(&batch);
    sharded_destroy(&s);
}

static Status fails(Module *m, void *arg)
{
    return ERR_ARGUMENT;
}

// A forward that fails half-way leaves units unsharded; fsdp_reshard_all makes an end of it, and
// the next iteration finds nothing of it.
RANK_TEST(a_failed_forward_can_be_ended, 1, 2)
{
    Spec spec = spec_mlp(4);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    Batch batch = batch_create(&spec, 1);
    Module *block = s.model->children[1];
    float want = train_batch(&spec, &s.run, s.model, &batch), got, *logits;
    size_t live = gpulog_live_bytes(r->device);
    Hook *hook = module_add_hook(block, HOOK_PRE_FORWARD, fails, NULL);
    check(hook != NULL, "no hook");
    uint64_t log = gpulog_length();
    check(module_forward(s.model, &s.run, batch.in, &logits) == ERR_ARGUMENT,
          "a forward with a hook that fails must fail");
    need(module_discard(s.model, &s.run));
    need(fsdp_reshard_all(s.model));
    check_all_sharded(s.model, "after fsdp_reshard_all");
    check(gpulog_live_bytes(r->device) == live, "fsdp_reshard_all left %zu bytes",
          gpulog_live_bytes(r->device) - live);
    for (int i = 0; i < s.root->n_units; i++)
        check(s.root->units[i]->phase == FSDP_IDLE && s.root->units[i]->n_indices == 0,
              "after fsdp_reshard_all unit %s is not idle", s.root->units[i]->module->name);
    check(s.root->n_post_forward == 0, "after fsdp_reshard_all %d forwards are recorded",
          s.root->n_post_forward);
    module_remove_hook(block, hook);

    need(fsdp_sgd_step(s.model, &s.ctx, 0.0f, 0.0f)); // changes nothing, but writes
    got = train_batch(&spec, &s.run, s.model, &batch);
    check(got == want, "after a forward that failed the loss is %g, before it %g", (double)got,
          (double)want);
    check_no_race(log); // with the step, for which the next forward must wait
    batch_destroy(&batch);
    sharded_destroy(&s);
}

// Forwards without a backward do not pile up in the order.
RANK_TEST(evaluations_are_forgotten, 2)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    Batch batch = batch_create(&spec, 1);
    for (int i = 0; i < 40; i++) {
        forward_batch(&spec, &s.run, s.model, &batch);
        check(s.root->n_post_forward == 3 && fsdp_unit(s.model)->n_indices == 1,
              "after %d evaluations %d forwards are recorded, want 3", i + 1,
              s.root->n_post_forward);
    }
    batch_destroy(&batch);
    sharded_destroy(&s);
}

// ---- Phases ----

// Where in an iteration a unit is asked for its phase: the order of the tables below.
enum { IN_FORWARD, IN_BACKWARD, IN_GATHER, IN_REDUCE, PLACES };
static int seen[PLACES]; // how often

static void expect_phase(const FsdpUnit *unit, int place, FsdpPhase want)
{
    static const char *const PLACE[PLACES] = {"in its forward", "in its backward",
                                              "where it is gathered for its backward",
                                              "where its gradient is reduced"};
    seen[place]++;
    check(unit->phase == want, "%s unit %s is in phase %d, want %d", PLACE[place],
          unit->module->name, (int)unit->phase, (int)want);
}

// Run after FSDP's own hooks.
static Status in_forward(Module *m, void *arg)
{
    expect_phase(fsdp_unit(m), IN_FORWARD, FSDP_FORWARD);
    return OK;
}

static Status after_forward(Module *m, void *arg)
{
    check(fsdp_unit(m)->phase == FSDP_IDLE, "after its forward unit %s is not idle", m->name);
    return OK;
}

static Status in_backward(Module *m, void *arg)
{
    expect_phase(fsdp_unit(m), IN_BACKWARD, FSDP_PRE_BACKWARD);
    return OK;
}

static Status after_backward(Module *m, void *arg)
{
    check(fsdp_unit(m)->phase == FSDP_IDLE, "after its backward unit %s is not idle", m->name);
    return OK;
}

static Status reduce_in_phase(FsdpUnit *unit)
{
    expect_phase(unit, IN_REDUCE, FSDP_POST_BACKWARD);
    return fsdp_reduce_scatter(unit);
}

// A prefetch is queued while the unit itself is idle: the phase is that of the unit which runs.
static Status gather_in_phase(FsdpUnit *unit)
{
    const FsdpUnit *runs = unit->root->iter_backward_root;
    if (runs == unit && unit->root->iter_forward_root == NULL)
        expect_phase(unit, IN_GATHER, FSDP_PRE_BACKWARD);
    return fsdp_all_gather(unit);
}

RANK_TEST(phases_follow_the_iteration, 1, 2)
{
    static const HookFn HOOKS[HOOK_POINTS] = {in_forward, after_forward, in_backward,
                                              after_backward};
    Spec spec = spec_gpt2(2);
    Nested t;
    nested_create(&t, &spec, &TEST_OPTIONS, r);
    for (int i = 0; i < UNITS; i++) {
        for (int point = 0; point < HOOK_POINTS; point++)
            check(module_add_hook(t.unit[i]->module, point, HOOKS[point], NULL) != NULL, "no hook");
        t.unit[i]->reduce_scatter = reduce_in_phase;
        t.unit[i]->all_gather = gather_in_phase;
    }
    Batch batch = batch_create(&spec, 1);
    train_batch(&spec, &t.run, t.model, &batch);
    check(seen[IN_FORWARD] == UNITS && seen[IN_BACKWARD] == UNITS &&
              seen[IN_REDUCE] == (r->world > 1 ? UNITS : 0) &&
              seen[IN_GATHER] == (r->world > 1 ? 1 : 0),
          "of %d units %d ran forward, %d backward, %d were reduced, %d gathered first", UNITS,
          seen[IN_FORWARD], seen[IN_BACKWARD], seen[IN_REDUCE], seen[IN_GATHER]);
    batch_destroy(&batch);
    nested_destroy(&t);
}

// ---- Streams ----

RANK_TEST(communication_has_priority, 1)
{
    FsdpContext ctx;
    int least, greatest, priority[2];
    make_context(&ctx, r);
    need_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    need_cuda(cudaStreamGetPriority(ctx.all_gather_stream, &priority[0]));
    need_cuda(cudaStreamGetPriority(ctx.reduce_scatter_stream, &priority[1]));
    check(priority[0] == greatest && priority[1] == greatest,
          "the communication streams have priorities %d and %d, want %d", priority[0], priority[1],
          greatest);
    need(fsdp_context_destroy(&ctx));
}

SUITE_MAIN("schedule")
