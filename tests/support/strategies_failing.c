/* strategies_failing.c: run_failing_calls: every call of a step, and of what makes it, fails once.
 * See strategies.h.
 */
#include "strategies_oracle.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "failing.h"

static Status micro_batch(Wrapped *w, const Case *c, const Batch *batch)
{
    float *logits, *dlogits, *din = NULL;
    TRY(module_forward(w->model, &w->run, batch->in, &logits));
    TRY(cross_entropy(&w->run, logits, batch->targets, w->run.B * w->run.T, c->spec.vocab, NULL,
                      &dlogits));
    Status status = module_backward(w->model, &w->run, dlogits, c->spec.gpt2 ? NULL : &din);
    need_cuda(cudaFreeAsync(dlogits, w->run.stream));
    if (din != NULL) need_cuda(cudaFreeAsync(din, w->run.stream));
    return status;
}

static Status ignore(const Param *param, const float *values, void *arg)
{
    return OK;
}

static const char *runs; // what the call that fails is in

// A step, with all that does not change the parameters.
static Status step(Wrapped *w, const Case *c, const Batch *batch)
{
    float norm;
    w->run.B = c->spec.B;
    w->run.T = c->spec.T;
    runs = "a step";
    if (w->pipeline != NULL) {
        const MicroBatch one = {.in = batch->in, .targets = batch->targets, .B = c->spec.B};
        MicroBatch batches[CASE_ROUNDS];
        for (int k = 0; k < c->rounds; k++) batches[k] = one;
        TRY(pipeline_step(w->pipeline, &w->run, batches, 1.0f, NULL));
        if (w->ranks.group.size > 1) return OK; // ranks square what their own shards have
        return pipeline_clip_grad_norm(w->pipeline, 0.125f, &norm);
    }
    for (int k = 0; k < c->rounds; k++) {
        TRY(strategy_micro_batch(w->model, k, c->rounds));
        if (c->partial) TRY(fsdp_set_requires_gradient_sync(w->model, true));
        if (c->partial) TRY(fsdp_set_requires_all_reduce(w->model, k == c->rounds - 1));
        TRY(micro_batch(w, c, batch));
    }
    runs = "fsdp_clip_grad_norm";
    TRY(fsdp_clip_grad_norm(w->model, &w->ctx, 0.125f, &norm));
    runs = c->fp8 != NULL      ? "fp8_full_state"
           : c->policy != NULL ? "precision_full_state"
                               : "fsdp_full_state";
    failing_visits = true;
    Status status = fsdp_full_state(w->model, ignore, NULL);
    failing_visits = false;
    return status;
}

static float *right_step(Wrapped *w, const Case *c, const Batch *batch, size_t *n)
{
    need(step(w, c, batch));
    need_cuda(cudaDeviceSynchronize());
    float *grads = case_gradients(w, n);
    need(fsdp_zero_grad(w->model, &w->ctx));
    return grads;
}

// Whether no unit's pass was cut off: a call has failed between two micro-batches, or in what comes
// after the outermost backward.
static bool passes_ended(const FsdpRoot *root)
{
    const FsdpUnit *last = root->iter_backward_root;
    bool idle = true;
    for (int u = 0; u < root->n_units; u++) idle &= root->units[u]->phase == FSDP_IDLE;
    return idle || (last != NULL && last->phase == FSDP_POST_BACKWARD &&
                    last->flat.unsharded_grad.data == NULL);
}

// What a step that failed has left goes. The gradients of passes that ended are kept for what comes
// next: they go with the strategy. And so does what a pipeline has, or a policy has put aside.
static void end_step(Wrapped *w, const Case *c)
{
    const bool all = passes_ended(w->root) || c->stages > 0 || c->policy != NULL;
    if (c->stages == 0) { // else pipeline_destroy does all of it
        need(module_discard(w->model, &w->run));
        need(fsdp_reshard_all(w->model));
    }
    for (int u = 0; c->offload && c->stages == 0 && u < w->root->n_units; u++)
        check(w->root->units[u]->flat.sharded_param.data == offload_of(w->root->units[u])->param,
              "a call of %s failed, %s, and the parameter shard of %s is not the host's", runs,
              failing_call(), w->root->units[u]->flat.name);
    if (all) {
        case_take_down(w);
        need(case_build(w, c));
        failing_add_hooks(w->model);
    }
    need(fsdp_zero_grad(w->model, &w->ctx));
    if (c->offload) need(offload_wait(w->root->extensions->offload)); // no copy is left after it
    need_cuda(cudaDeviceSynchronize());
}

// Of two stages one fails in its n-th call, and the other one where it would wait for the first.
enum { MOST_CALLS = 400 };
static int *made; // shared: of each call of that stage the calls of NCCL before it (failing.h)
static int leader;

// Whether this stage leads.
static bool count_calls(Wrapped *w, const Case *c, const Rank *r, const Batch *batch)
{
    end_step(w, c); // with models that are new, as each of the steps below
    if (r->rank == leader) failing_counts(made, MOST_CALLS);
    FAILS_AT(INT_MAX, need(step(w, c, batch)));
    while (__atomic_load_n(&made[0], __ATOMIC_SEQ_CST) == 0) sched_yield();
    check(made[0] < MOST_CALLS, "a step makes %d calls", made[0]);
    end_step(w, c);
    return r->rank == leader;
}

static void steps_body(Wrapped *w, const Case *c, const Rank *r)
{
    const bool pair = c->stages == 2;
    Batch batch = case_batch(c, 0, r->rank, 0);
    fsdp_adamw_destroy(&w->adamw); // units come and go
    size_t n_grads, live = gpulog_live_bytes(r->device);
    const uint64_t first = gpulog_length();
    float *want = right_step(w, c, &batch, &n_grads);
    if (!c->offload) check_all_freed(first); // a leak, whether a call fails or not
    failing_add_hooks(w->model);
    const bool leads = !pair || count_calls(w, c, r, &batch);
    for (int n = 1; !pair || n <= made[0]; n++) {
        Status status;
        if (!leads) failing_follows(made[n]);
        FAILS_AT(n, status = step(w, c, &batch));
        const char *failed = failing_call();
        if (!pair && failed == NULL) break;
        // Of the stage that does not lead the step may have been over before.
        check(failed == NULL ? status == OK
                             : status == ERR_CUDA || status == ERR_NCCL || status == ERR_IO,
              "call %d of %s, %s, fails, and its status is %d: who calls what fails returns its "
              "status",
              n, runs, failed, (int)status);
        if (failed == NULL) failed = "of the other stage";
        end_step(w, c);
        check(gpulog_live_bytes(r->device) == live,
              "call %d of %s failed, %s, and after fsdp_reshard_all and fsdp_zero_grad %zd "
              "bytes more are on the device: who fails leaves no memory that nobody frees",
              n, runs, failed, (ssize_t)(gpulog_live_bytes(r->device) - live));
        if (n % 4 != 0) continue;
        float *got = right_step(w, c, &batch, &n_grads);
        check(memcmp(got, want, n_grads * sizeof *got) == 0,
              "the step after one whose call %d failed, %s, has other gradients", n, failed);
        free(got);
    }
    free(want);
    batch_destroy(&batch);
}

// Of the calls that make the case the first that is none of the six files'.
static int first_call(Wrapped *w, const Case *c)
{
    PipelineTies ties;
    int left;
    FAILS_AT(INT_MAX, need(case_shard(w, c, &ties)); left = failing_calls_left());
    case_take_down(w);
    return INT_MAX - left + 1;
}

static void build_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w = {.run.T = c->spec.T};
    Status status = ERR_CUDA;
    check_leaks();
    need(case_mesh(&w, c, r));
    const size_t live = gpulog_live_bytes(r->device);
    for (int n = first_call(&w, c); status != OK; n++) {
        FAILS_AT(n, status = case_build(&w, c));
        check((status == OK) == (failing_call() == NULL),
              "call %d of all that is put on, %s, fails, and the status is %d", n, failing_call(),
              (int)status);
        case_take_down(&w);
        need_cuda(cudaDeviceSynchronize());
        check(gpulog_live_bytes(r->device) == live,
              "call %d of all that is put on failed, %s, and %zd bytes more are on the device", n,
              failing_call(), (ssize_t)(gpulog_live_bytes(r->device) - live));
    }
    case_unmesh(&w);
}

void run_failing_calls(int world, const Case *c)
{
#ifdef BACKEND_CUDA
    return; // no call is made to fail there
#endif
    // No rank's shard is all padding: all make the same calls.
    static const Spec EVEN = {.B = 6, .T = 1, .in_dim = 6, .dim = 12, .vocab = 8};
    Case all = *c;
    if (!c->spec.gpt2) all.spec = EVEN, all.spec.layers = c->spec.layers;
    for (leader = 0; leader < 2 && c->stages == 2; leader++) {
        made = shared_alloc(MOST_CALLS * sizeof *made);
        run_wrapped(world, steps_body, &all);
    }
    if (c->stages == 2) return;
    run_ranks(world, build_body, &all);
    run_wrapped(world, steps_body, &all);
}
