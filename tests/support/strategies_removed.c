/* strategies_removed.c: run_removed: what an extension has put on is taken off again, whatever ran
 * last. See strategies.h.
 */
#include "strategies_oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot.h"

// What ran last. Those from HALF on are in the middle of a step.
typedef enum Last {
    NOTHING,
    STEP,
    EVALUATION,
    DISCARDED,
    FAILED,
    HALF,
    REDUCING,
    PARTIAL,
    LASTS
} Last;
static const char *const LAST[LASTS] = {
    "nothing",
    "a step of two micro-batches",
    "an evaluation's forward",
    "a forward that was discarded",
    "a backward that failed",
    "the first of two micro-batches",
    "a backward that reduces and is not the last",
    "a backward whose sums the replicas have still to add",
};

typedef struct Run {
    const Case *c;
    const Removal *removal;
} Run;

static Status failing_hook(Module *module, void *arg)
{
    return fail(ERR_IO, "%s: the test's hook fails", module->name);
}

static void forward(Wrapped *w, const Case *c)
{
    float *out;
    Batch batch = case_batch(c, 0, 0, 0);
    w->run.B = c->spec.B;
    w->run.T = c->spec.T;
    need(module_forward(w->model, &w->run, batch.in, &out));
    batch_destroy(&batch);
}

static void fail_backward(Wrapped *w, const Case *c)
{
    Module *last = w->model->children[0];
    float *logits, *dlogits, *din = NULL, loss;
    Hook *hook = module_add_first_hook(last, HOOK_POST_BACKWARD, failing_hook, NULL);
    Batch batch = case_batch(c, 0, 0, 0);
    check(hook != NULL, "no memory for a hook");
    w->run.B = c->spec.B;
    w->run.T = c->spec.T;
    need(module_forward(w->model, &w->run, batch.in, &logits));
    need(cross_entropy_scaled(&w->run, logits, batch.targets, w->run.B * w->run.T, c->spec.vocab,
                              1.0f, &loss, &dlogits));
    check_set_silent(true);
    Status status = module_backward(w->model, &w->run, dlogits, &din);
    check_set_silent(false);
    check(status == ERR_IO, "a hook of %s fails, and the backward's status is %d", last->name,
          (int)status);
    module_remove_hook(last, hook);
    need_cuda(cudaFreeAsync(dlogits, w->run.stream));
    if (din != NULL) need_cuda(cudaFreeAsync(din, w->run.stream));
    need(module_discard(w->model, &w->run));
    need(fsdp_reshard_all(w->model));
    batch_destroy(&batch);
}

static void pass(Wrapped *w, const Case *c, const Rank *r)
{
    case_pass(c, &w->run, w->model, 0, r->rank, 0, 1.0f);
}

static void run_last(Wrapped *w, const Case *c, const Rank *r, Last last)
{
    if (last == EVALUATION) need(fsdp_set_training(w->model, false));
    if (last == EVALUATION || last == DISCARDED) forward(w, c);
    if (last == EVALUATION || last == DISCARDED) need(module_discard(w->model, &w->run));
    if (last == DISCARDED) need(fsdp_reshard_all(w->model));
    if (last == FAILED) fail_backward(w, c);
    for (int k = 0; k < 2 && (last == STEP || (last == HALF && k == 0)); k++) {
        need(strategy_micro_batch(w->model, k, 2));
        pass(w, c, r);
    }
    if (last < REDUCING) return;
    need(fsdp_set_is_last_backward(w->model, false));
    if (last == PARTIAL) need(fsdp_set_requires_all_reduce(w->model, false));
    pass(w, c, r);
}

// The gradients of one pass without the extension; the shards are zero before it and after it.
// Units that shard nothing have no reduction over replicas but the strategy's.
static float *gradients_of_a_pass(Wrapped *w, const Run *run, const Rank *r, size_t *n)
{
    bool alone = run->c->options.strategy == STRATEGY_DDP && !run->removal->between_steps;
    if (alone) need(run->removal->put(w, run->c));
    pass(w, run->c, r);
    need_cuda(cudaDeviceSynchronize());
    float *grads = case_gradients(w, n);
    if (alone) need(run->removal->take(w->model));
    need(fsdp_zero_grad(w->model, &w->ctx));
    return grads;
}

static void removed_body(const Rank *r, void *arg)
{
    const Run *run = arg;
    const Case *c = run->c;
    const Removal *removal = run->removal;
    PipelineTies ties;
    Wrapped w;
    size_t n = 0;
    float *trained = NULL; // the gradients of a step
    check_leaks();
    memset(&w, 0, sizeof w);
    need(nn_run_create(&w.run, r->stream));
    w.run.T = c->spec.T;
    need(case_mesh(&w, c, r));
    need(case_shard(&w, c, &ties));
    if (removal->between_steps) need(strategy_apply(w.model, &c->options));
    bool ddp = c->options.strategy == STRATEGY_DDP && !removal->between_steps;
    Snapshot *untouched = ddp ? snapshot_take(w.model, NULL) : NULL;
    float *want = gradients_of_a_pass(&w, run, r, &n);
    need(fsdp_reshard_all(w.model));
    if (ddp) // it was on for that pass
        snapshot_check_at(__FILE__, __LINE__, untouched, w.model, NULL, removal->name);
    for (int last = 0; last < (removal->between_steps ? HALF : LASTS); last++) {
        char call[200];
        if (last == PARTIAL && (c->replicas == 1 || c->options.strategy == STRATEGY_DDP)) continue;
        Snapshot *before = snapshot_take(w.model, NULL);
        need(removal->put(&w, c));
        if (last == FAILED) {
            fail_backward(&w, c); // the next one is right
            need(fsdp_zero_grad(w.model, &w.ctx));
            case_train(&w, c, r, 0);
            need_cuda(cudaDeviceSynchronize());
            float *got = case_gradients(&w, &n);
            check(trained != NULL && memcmp(got, trained, n * sizeof *got) == 0,
                  "the step after one whose backward failed has other gradients");
            free(got);
        }
        if (last != FAILED || !removal->between_steps) run_last(&w, c, r, (Last)last);
        // The strategy below holds on to the slices of a forward up to the next one, and to what a
        // backward that failed was reducing.
        if (last == DISCARDED && removal->between_steps) case_train(&w, c, r, 0);
        if (last == STEP) {
            case_train(&w, c, r, 0);
            need_cuda(cudaDeviceSynchronize());
            trained = case_gradients(&w, &n);
        }
        if (removal->between_steps && last == EVALUATION) need(fsdp_set_training(w.model, true));
        need(removal->take(w.model));
        need(fsdp_zero_grad(w.model, &w.ctx)); // at once
        snprintf(call, sizeof call, "%s after %s", removal->name, LAST[last]);
        snapshot_check_at(__FILE__, __LINE__, before, w.model, NULL, call);
        float *got = gradients_of_a_pass(&w, run, r, &n);
        check(memcmp(got, want, n * sizeof *got) == 0,
              "a pass after %s has other gradients than before: something is left on", call);
        free(got);
        need(fsdp_reshard_all(w.model));
    }
    free(want);
    free(trained);
    case_unwrap(&w, r);
}

void run_removed(int world, const Case *c, const Removal *removal)
{
    Run run = {c, removal};
    run_ranks(world, removed_body, &run);
}
