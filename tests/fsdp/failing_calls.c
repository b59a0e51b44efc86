/* A call of CUDA's or NCCL's or a hook that fails, whichever of an iteration it is: then
 * fsdp_reshard_all has ended that iteration, the next one has the numbers of a run in which nothing
 * failed, and fsdp_unwrap leaves nothing. Shards of this model have no padding, so that all ranks
 * make the same calls (failing.h).
 */
#include <stdlib.h>
#include <string.h>

#include "failing.h"
#include "harness.h"
#include "training.h"

static const Spec SPEC = {.layers = 3, .B = 6, .T = 1, .in_dim = 6, .dim = 12, .vocab = 6};

// ---- An iteration ----

static Status ignore(const Param *param, const float *values, void *arg)
{
    return OK;
}

// What an iteration consists of, apart from the step of the optimizer, which cannot be undone.
static Status iterate(Sharded *s, const Batch *batch, float *loss)
{
    const Spec *spec = &s->spec;
    float *out, *dout, *din = NULL, norm;
    s->run.B = spec->B;
    s->run.T = spec->T;
    TRY(module_forward(s->model, &s->run, batch->in, &out));
    TRY(cross_entropy(&s->run, out, batch->targets, spec->B, spec->vocab, loss, &dout));
    Status status = module_backward(s->model, &s->run, dout, &din);
    need_cuda(cudaFreeAsync(dout, s->run.stream));
    if (din != NULL) need_cuda(cudaFreeAsync(din, s->run.stream));
    TRY(status);
    TRY(fsdp_clip_grad_norm(s->model, &s->ctx, 0.125f, &norm));
    failing_visits = true;
    status = fsdp_full_state(s->model, ignore, NULL);
    failing_visits = false;
    return status;
}

typedef struct Result {
    float loss, grads[512];
} Result;

static Result right_iteration(Sharded *s, const Batch *batch)
{
    Result result = {0};
    need(iterate(s, batch, &result.loss));
    float *grads = sharded_grads(s);
    memcpy(result.grads, grads, (size_t)sharded_padded(s) * sizeof *grads);
    free(grads);
    need(fsdp_zero_grad(s->model, &s->ctx));
    return result;
}

static void iteration_body(const Rank *r, void *arg)
{
    const FsdpOptions options = {.reshard_after_forward = *(const FsdpReshard *)arg, .seed = 42};
    Sharded s;
    float loss;
    check_leaks();
    sharded_create(&s, &SPEC, &options, NULL, r);
    failing_add_hooks(s.model);
    Batch batch = batch_create(&SPEC, (uint64_t)r->rank + 1);
    Result want = right_iteration(&s, &batch);
    for (int n = 1;; n++) {
        Status status;
        FAILS_AT(n, status = iterate(&s, &batch, &loss));
        if (failing_call() == NULL) break;
        check(status == ERR_CUDA || status == ERR_NCCL || status == ERR_IO,
              "call %d, %s, fails, and the status is %d", n, failing_call(), (int)status);
        need(module_discard(s.model, &s.run));
        need(fsdp_reshard_all(s.model));
        need(fsdp_zero_grad(s.model, &s.ctx));
        Result got = right_iteration(&s, &batch);
        check(memcmp(&got, &want, sizeof got) == 0,
              "the iteration after one whose call %d failed, %s, has other numbers", n,
              failing_call());
    }
    batch_destroy(&batch);
    sharded_destroy(&s);
}

TEST(the_next_iteration_is_right)
{
    FsdpReshard reshard[] = {FSDP_RESHARD_AUTO, FSDP_RESHARD_NEVER};
    for (int i = 0; i < 2; i++) run_worlds(iteration_body, &reshard[i], 1, 2, 3);
}

// As the first one, but nothing ends the iteration that failed.
static void unwrap_body(const Rank *r, void *arg)
{
    check_leaks();
    Batch batch = batch_create(&SPEC, 1);
    for (int n = 1;; n++) {
        Sharded s;
        float loss;
        sharded_create(&s, &SPEC, &TEST_OPTIONS, NULL, r);
        failing_add_hooks(s.model);
        FAILS_AT(n, (void)iterate(&s, &batch, &loss));
        need(module_discard(s.model, &s.run));
        sharded_destroy(&s);
        if (failing_call() == NULL) break;
    }
    batch_destroy(&batch);
}

TEST(fsdp_unwrap_leaves_nothing)
{
    run_worlds(unwrap_body, NULL, 1, 2, 3);
}

// ---- What is made ----

// Makes what is not there yet.
static Status make(Sharded *s, const Rank *r)
{
    Mesh mesh;
    Module *const modules[] = {s->model->children[0], s->model->children[1], s->model};
    TRY(mesh_1d(&mesh, r->comm));
    if (s->ctx.compute_stream == NULL) TRY(fsdp_context_create(&s->ctx, &mesh, r->stream));
    for (int i = 0; i < 3; i++)
        if (fsdp_unit(modules[i]) == NULL) TRY(fully_shard(modules[i], &s->ctx, &TEST_OPTIONS));
    return fsdp_adamw_create(&s->adamw, s->model, &s->ctx, &TEST_ADAMW);
}

static void make_body(const Rank *r, void *arg)
{
    check_leaks();
    for (int n = 1;; n++) {
        Sharded s = {.spec = SPEC, .model = spec_create(&SPEC), .world = r->world};
        Status status;
        FAILS_AT(n, status = make(&s, r));
        check((status == OK) == (failing_call() == NULL),
              "call %d, %s, fails, and the status is %d", n, failing_call(), (int)status);
        if (status != OK) need(make(&s, r));
        check(fsdp_units(s.model, NULL, 0) == 3 && fsdp_unit(s.model)->root->n_units == 3,
              "the root of three units has %d", fsdp_unit(s.model)->root->n_units);
        fsdp_adamw_destroy(&s.adamw);
        fsdp_unwrap(s.model);
        need(fsdp_context_destroy(&s.ctx));
        module_destroy(s.model);
        if (failing_call() == NULL) break;
    }
}

TEST(what_failed_can_be_made_again)
{
    run_worlds(make_body, NULL, 1, 2, 3);
}

SUITE_MAIN("failing_calls")
