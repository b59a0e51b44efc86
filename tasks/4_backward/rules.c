/* rules.c: sentences of fsdp.h on backward.c that no other body of its suite reads. See
 * rules.h.
 */
#include "rules.h"

#include "draw.h"
#include "draw_model.h"
#include "fsdp.h"
#include "harness.h"
#include "kernels.h"
#include "training.h"

#include <stdio.h>
#include <stdlib.h>

// ---- Micro-batches through the hooks ----

typedef struct Micro {
    Spec spec;
    int batches;
} Micro;

// Several forwards and backwards before a step, whether the units keep their parameters or not: the
// gradient is the sum of what each of them gives alone.
static void micro_body(const Rank *r, void *arg)
{
    static const char *const NAME[] = {"AUTO", "ALWAYS", "NEVER", "ALWAYS and NEVER in turn"};
    const Micro *micro = arg;
    float *sum = NULL;
    size_t n = 0;
    for (int b = 0; b < micro->batches; b++) { // each alone, of a fresh model
        Sharded s;
        sharded_create(&s, &micro->spec, &TEST_OPTIONS, NULL, r);
        n = (size_t)sharded_numel(&s);
        Batch batch = batch_create(&micro->spec, (uint64_t)(b * r->world + r->rank));
        train_batch(&micro->spec, &s.run, s.model, &batch);
        check_backward_over(s.root);
        float *grad = sharded_grads(&s);
        for (size_t i = 0; i < n && b > 0; i++) sum[i] += grad[i];
        if (b > 0)
            free(grad);
        else
            sum = grad;
        batch_destroy(&batch);
        sharded_destroy(&s);
    }
    for (int reshard = FSDP_RESHARD_AUTO; reshard <= FSDP_RESHARD_NEVER + 1; reshard++) {
        Sharded s;
        FsdpOptions options = TEST_OPTIONS;
        char what[280];
        bool mixed = reshard > FSDP_RESHARD_NEVER;
        options.reshard_after_forward = mixed ? FSDP_RESHARD_AUTO : (FsdpReshard)reshard;
        sharded_create(&s, &micro->spec, &options, NULL, r);
        for (int b = 0; b < micro->batches; b++) {
            for (int k = 0; k < s.root->n_units && mixed; k++) // another one each time
                s.root->units[k]->reshard_after_forward =
                    (k + b) % 2 == 0 ? FSDP_RESHARD_ALWAYS : FSDP_RESHARD_NEVER;
            Batch batch = batch_create(&micro->spec, (uint64_t)(b * r->world + r->rank));
            train_batch(&micro->spec, &s.run, s.model, &batch);
            check_backward_over(s.root);
            batch_destroy(&batch);
        }
        float *got = sharded_grads(&s);
        snprintf(what, sizeof what,
                 "%s what earlier micro-batches gave: the gradient of %d micro-batches, "
                 "FSDP_RESHARD_%s, against the sum of those that each gives alone",
                 r->world == 1 ? "with one rank fsdp_begin_grad and fsdp_reduce_grad must leave"
                               : "fsdp_reduce_scatter must add to",
                 micro->batches, NAME[reshard]);
        // One rank adds a layer's parts to what is there, in another order.
        check_near(what, got, sum, n, r->world == 1 ? 2e-6 : 0.0);
        free(got);
        sharded_destroy(&s);
    }
    free(sum);
}

void rule_micro_batches_with_kept_parameters(void)
{
    Micro micro = {draw_mlp(4), draw(2, 3)};
    int world = drawn_world(&micro.spec, 2, 4);
    run_worlds(micro_body, &micro, world, 1);
}

// ---- The order, the seventeenth unit, what is left ----

// The hooks of units `order` in a forward, then of the backward in reverse: which unit each gathers
// ahead. Nobody runs a layer.
static void check_iteration(Sharded *s, const int *order, int n, const char *what)
{
    Module *root = s->model;
    need(fsdp_pre_forward(root, fsdp_unit(root)));
    for (int i = 0; i < n; i++) {
        Module *m = root->children[order[i]];
        need(fsdp_pre_forward(m, fsdp_unit(m)));
        need(fsdp_post_forward(m, fsdp_unit(m)));
    }
    need(fsdp_post_forward(root, fsdp_unit(root)));
    need(fsdp_pre_backward(root, fsdp_unit(root)));
    for (int i = n - 1; i >= 0; i--) {
        Module *m = root->children[order[i]];
        check(fsdp_unit(m)->flat.state == FLAT_UNSHARDING,
              "%s: when unit %s is next, its all-gather is not queued: fsdp_pre_backward gathers "
              "the unit whose forward ended just before in this iteration",
              what, m->name);
        need(fsdp_pre_backward(m, fsdp_unit(m)));
        check(fsdp_unit(m)->phase == FSDP_PRE_BACKWARD,
              "%s: in its backward unit %s is in phase %d, want FSDP_PRE_BACKWARD", what, m->name,
              fsdp_unit(m)->phase);
        for (int k = 0; k < root->n_children - 1; k++) {
            bool here = k == order[i], next = i > 0 && k == order[i - 1];
            check(here || next || unit_of(s, k)->flat.state == FLAT_SHARDED,
                  "%s: in the backward of unit %s unit %s is gathered too, whose turn is another",
                  what, m->name, root->children[k]->name);
        }
        need(fsdp_post_backward(m, fsdp_unit(m)));
        check(fsdp_unit(m)->phase == FSDP_IDLE,
              "%s: after its backward the phase of unit %s is not FSDP_IDLE", what, m->name);
    }
    need(fsdp_post_backward(root, fsdp_unit(root)));
    check(fsdp_unit(root)->phase == FSDP_IDLE,
          "%s: after its backward the root's phase is not FSDP_IDLE", what);
    check(s->root->n_post_forward == 0 && s->root->iter_backward_root == NULL,
          "%s: after the backward the order is not empty: does fsdp_finish_backward end it?", what);
}

static void orders_body(Sharded *s, const Rank *r, void *arg)
{
    check_leaks();
    check_iteration(s, (int[]){0, 1, 2, 3}, 4, "first iteration");
    check_iteration(s, (int[]){2, 0, 3}, 3, "second iteration, in another order");
    check_iteration(s, (int[]){3, 1}, 2, "third iteration, in yet another order");

    FsdpUnit *unit = unit_of(s, 0); // alone: its backward is the outermost
    need(fsdp_pre_forward(unit->module, unit));
    need(fsdp_post_forward(unit->module, unit));
    count_entries(s);
    need(fsdp_pre_backward(unit->module, unit));
    check_entry_asked(ASKED_WAIT, 1, "fsdp_pre_backward");
    check(s->root->iter_backward_root == unit,
          "the backward of unit %s is the outermost: fsdp_pre_backward must note it in "
          "root->iter_backward_root, whichever unit it is",
          unit->flat.name);
    check(fsdp_unit(s->model)->flat.state == FLAT_SHARDED,
          "fsdp_pre_backward gathers the root ahead, whose forward has not run");
    need(fsdp_unshard(unit_of(s, 1))); // ahead, and nobody uses it
    need(fsdp_post_backward(unit->module, unit));
    check(s->root->iter_backward_root == NULL,
          "fsdp_post_backward of the outermost backward must end the iteration, whichever unit's "
          "it is");
    check_entry_asked(ASKED_REDUCE, 1, "fsdp_post_backward");
    check_entry_asked(ASKED_PADDING, 1, "fsdp_reduce_grad_default");
    check_entry_asked(ASKED_WAIT, 1, "fsdp_finish_backward");
    check_entry_asked(ASKED_RESHARD, 2, "fsdp_post_backward");
}

// A shard that the optimizer has just written is what the next iteration gathers, and twenty units.
static void many_body(const Rank *r, void *arg)
{
    enum { UNITS = 20 };
    Spec spec = spec_mlp(UNITS + 1);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    for (int i = 0; i < UNITS; i++) {
        need(fsdp_pre_forward(s.model->children[i], unit_of(&s, i)));
        need(fsdp_post_forward(s.model->children[i], unit_of(&s, i)));
        if (i % 2 == 0) need(fsdp_unshard(unit_of(&s, i)));
    }
    need(fsdp_finish_backward(s.root));
    for (int i = 0; i < UNITS; i++)
        check(unit_of(&s, i)->flat.state == FLAT_SHARDED,
              "after fsdp_finish_backward unit %s, one of %d, is not sharded", //
              unit_of(&s, i)->flat.name, UNITS + 1);
    sharded_destroy(&s);
}

// ---- Another reduction ----

static int reductions_of_test;
static FsdpPhase phase_seen;
static Status reduce_for_test(FsdpUnit *unit)
{
    reductions_of_test++;
    phase_seen = unit->phase;
    return fsdp_reduce_scatter(unit);
}

// A unit's gradient is reduced when its gradients are complete.
static void phase_body(Sharded *s, const Rank *r, void *arg)
{
    for (int i = 0; i < 3; i++) unit_of(s, i)->reduce_scatter = reduce_for_test;
    for (int round = 0; round < 2; round++) {
        check_iteration(s, (int[]){0, 1, 2}, 3, "gradients by the test's own function");
        check(reductions_of_test == 3 * (round + 1) && phase_seen == FSDP_POST_BACKWARD,
              "when its gradient is reduced a unit is in phase %d, want FSDP_POST_BACKWARD",
              phase_seen);
        if (s->root->reduce_scatter_state.buffer != NULL) continue; // other tests find that
        uint64_t log = gpulog_length();
        need(fsdp_free_reduce_scatter(s->root));
        check(gpulog_length() == log, "no gradient is left, and fsdp_free_reduce_scatter queues "
                                      "work");
    }
}

// ---- What fails ----

static void check_failure(Status status, const char *what, const char *function)
{
    check(status == failing_status, "%s failed with status %d: %s must return that, and returns %d",
          what, (int)failing_status, function, (int)status);
}

static void check_failures(Sharded *s)
{
    FsdpUnit *unit = unit_of(s, 1), *before = unit_of(s, 0);
    Module *m = unit->module;
    unit->reduce_scatter = failing_collective;
    need(fsdp_begin_grad(unit));
    check_failure(fsdp_reduce_grad(unit), "unit->reduce_scatter", "fsdp_reduce_grad");
    unit->phase = FSDP_POST_BACKWARD; // as its hook sets it
    need(fsdp_reshard_all(s->model));
    unit->reduce_scatter = fsdp_reduce_scatter;

    unit->all_gather = failing_collective;
    check_failure(fsdp_pre_backward(m, unit), "the unit's own all-gather", "fsdp_pre_backward");
    need(fsdp_reshard_all(s->model));
    unit->all_gather = fsdp_all_gather;

    // The forward of `before` ended just before the unit's.
    need(fsdp_record_post_forward(before));
    need(fsdp_record_post_forward(unit));
    before->all_gather = failing_collective;
    check_failure(fsdp_pre_backward(m, unit), "the all-gather of the next unit",
                  "fsdp_pre_backward");
    before->all_gather = fsdp_all_gather;
    need(fsdp_reshard_all(s->model));
}

static void failing_body(Sharded *s, const Rank *r, void *arg)
{
    static const Status FAILURES[] = {ERR_MEMORY, ERR_NCCL, ERR_CUDA};
    FsdpUnit *unit = unit_of(s, 1);
    Module *m = unit->module;
    need_cuda(cudaDeviceSynchronize());
    for (int i = 0; i < 3; i++) {
        failing_status = FAILURES[i];
        check_failures(s);
    }
    need(fsdp_begin_grad(unit));
    check(fsdp_pre_backward(m, unit) == ERR_ARGUMENT,
          "fsdp_pre_backward of a unit that has a gradient already must be ERR_ARGUMENT");
    need(fsdp_reduce_grad(unit));
    need(fsdp_reshard_all(s->model));

    check(fsdp_post_backward(m, unit) == ERR_ARGUMENT,
          "fsdp_post_backward of a unit without a gradient must be ERR_ARGUMENT");
    need(fsdp_unshard(unit)); // nobody waits for it
    need(fsdp_begin_grad(unit));
    check(fsdp_post_backward(m, unit) == ERR_ARGUMENT,
          "fsdp_post_backward of a unit that cannot be resharded must be ERR_ARGUMENT");
    need(fsdp_reshard_all(s->model));
}

// Each of the two backwards of a unit is gathered ahead.
static void twice_body(Sharded *s, const Rank *r, void *arg)
{
    check_iteration(s, (int[]){0, 1, 0, 2}, 4, "an iteration in which a unit runs twice");
    check_iteration(s, (int[]){2, 0, 1, 0}, 4, "an iteration that ends with a unit's second run");
    // The root is a unit like another: its forward ended just before that of unit 1.
    FsdpUnit *root = fsdp_unit(s->model), *unit = unit_of(s, 1);
    need(fsdp_record_post_forward(root));
    need(fsdp_record_post_forward(unit));
    need(fsdp_pre_backward(unit->module, unit));
    check(root->flat.state == FLAT_UNSHARDING,
          "the root's forward ended just before that of unit %s: its backward must gather the "
          "root ahead",
          unit->flat.name);
    need(fsdp_post_backward(unit->module, unit));
    check(root->flat.state == FLAT_SHARDED && unit->flat.state == FLAT_SHARDED,
          "the backward of unit %s was the outermost, so that its fsdp_post_backward finishes it: "
          "the root, which was gathered ahead, is still unsharded",
          unit->flat.name);
}

// Of two models one fails in the middle of its backward; the other one trains as if it were alone.
static void two_body(Sharded *s, const Rank *r, void *arg)
{
    Sharded other;
    Spec spec = spec_mlp(3);
    sharded_create(&other, &spec, &TEST_OPTIONS, NULL, r);
    Batch batch = batch_create(&spec, (uint64_t)r->rank);
    train_batch(&spec, &other.run, other.model, &batch);
    float *alone = sharded_grads(&other);
    need(fsdp_zero_grad(other.model, &other.ctx));
    FsdpUnit *unit = unit_of(s, 1);
    failing_status = ERR_IO;
    unit->all_gather = failing_collective;
    check_failure(fsdp_pre_backward(unit->module, unit), "the unit's all-gather",
                  "fsdp_pre_backward");
    train_batch(&spec, &other.run, other.model, &batch);
    float *after = sharded_grads(&other);
    check_equal("the gradient of a model, while another one's backward has failed, against that "
                "from before",
                after, alone, (size_t)sharded_numel(&other));
    free(after);
    free(alone);
    unit->all_gather = fsdp_all_gather;
    need(fsdp_reshard_all(s->model));
    batch_destroy(&batch);
    sharded_destroy(&other);
}

static void pointer_body(Sharded *s, const Rank *r, void *arg)
{
    FsdpUnit *unit = unit_of(s, 1);
    unit->reduce_scatter = reduce_for_test;
    need(fsdp_begin_grad(unit));
    need(fsdp_reduce_grad(unit));
    need(fsdp_finish_backward(s->root));
    check(reductions_of_test == (r->world > 1),
          "with %d ranks fsdp_reduce_grad called unit->reduce_scatter %d times, want %d", r->world,
          reductions_of_test, r->world > 1);
}

// ---- A mesh of two groups ----

static Status count_reduction(FsdpUnit *unit)
{
    reductions_of_test++;
    return OK;
}

// One rank shards, and two hold replicas (DDP). A shard is the whole, and there is a gradient to
// reduce all the same: the unsharded gradient is memory of its own.
static void replicas_body(const Rank *r, void *arg)
{
    const Mesh mesh = mesh_of_replicas(r);
    OneUnit one;
    check_leaks();
    one_unit_create(&one, &mesh, r);
    FsdpUnit *unit = one.unit;
    unit->reduce_scatter = count_reduction;
    need_cuda(kernel_fill(unit->flat.sharded_grad.data, 3.0f, (size_t)unit->flat.sharded_grad.numel,
                          r->stream));
    need(fsdp_begin_grad(unit));
    check(unit->flat.unsharded_grad.data != unit->flat.sharded_grad.data,
          "one rank shards and %d replicate: fsdp_begin_grad must not make the gradient shard the "
          "unsharded gradient, which is still to be reduced over the replicas: there is one rank "
          "in all where mesh_size(&ctx->mesh) is 1",
          r->world);
    need_cuda(cudaStreamSynchronize(r->stream));
    float *got = fetch(unit->flat.unsharded_grad.data, (size_t)unit->flat.layout.padded);
    for (int64_t i = 0; i < unit->flat.layout.padded; i++)
        check(got[i] == 0.0f, "the unsharded gradient begins with %g at element %lld, want 0",
              (double)got[i], (long long)i);
    free(got);
    need(fsdp_reduce_grad(unit));
    need(fsdp_finish_backward(unit->root));
    check(
        reductions_of_test == 1,
        "one rank shards and %d replicate: fsdp_reduce_grad called unit->reduce_scatter %d times, "
        "want 1",
        r->world, reductions_of_test);
    one_unit_destroy(&one);
}

// Two ranks shard, and two of these pairs replicate: what fsdp_reduce_scatter averages is the
// gradient of the pair that shards, whose W is 2.
static void pairs_body(const Rank *r, void *arg)
{
    Mesh pairs = mesh_of_pairs(r);
    OneUnit one;
    one_unit_create(&one, &pairs, r);
    FlatParam *flat = &one.unit->flat;
    need(fsdp_begin_grad(one.unit));
    need_cuda(kernel_fill(flat->unsharded_grad.data, (float)(1 + r->rank),
                          (size_t)flat->layout.padded, r->stream));
    need(fsdp_reduce_grad(one.unit));
    need(fsdp_finish_backward(one.unit->root));
    need_cuda(cudaStreamSynchronize(r->stream));
    float *got = fetch(flat->sharded_grad.data, (size_t)flat->layout.shard_numel);
    float want = r->rank < 2 ? 1.5f : 3.5f;
    for (int64_t i = 0; i < flat_valid_numel(&flat->layout, flat->layout.rank); i++)
        check(
            got[i] == want,
            "two ranks shard, with the gradients %d and %d, and two such pairs replicate: element "
            "%lld of the gradient shard is %g, want %g, the average of those that shard",
            r->rank / 2 * 2 + 1, r->rank / 2 * 2 + 2, (long long)i, (double)got[i], (double)want);
    free(got);
    one_unit_destroy(&one);
    mesh_of_pairs_destroy(&pairs);
}

void rule_reduces_by_the_units_own_function(int world)
{
    run_sharded(spec_mlp(3), pointer_body, world);
}

void rule_shards_within_its_group(void)
{
    run_ranks(2, replicas_body, NULL);
    run_ranks(4, pairs_body, NULL);
}

void rule_order_of_each_backward(void)
{
    run_ranks(2, many_body, NULL);
    run_sharded(spec_mlp(5), orders_body, 2);
    run_sharded(spec_mlp(4), phase_body, 2);
    run_sharded(spec_mlp(4), failing_body, 2, 3);
    run_sharded(spec_mlp(4), twice_body, 2);
    run_sharded(spec_mlp(3), two_body, 2);
}
