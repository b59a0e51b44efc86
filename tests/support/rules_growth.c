/* rules_growth.c: what an iteration leaves adds up over a training: host memory, events, streams.
 * See rules.h.
 */
#include "rules.h"

#include "fsdp.h"
#include "harness.h"
#include "host_memory.h"
#include "training.h"

enum {
    UNITS = 36,
    FIRST = 8,
    TIMES = 24,
    // A list of the units takes 304 bytes each time. Less is noise: what simgpu's other threads
    // have freed the libc keeps at hand for them, and counts as in use (2,112 bytes were seen).
    EACH = 192,
};

static void check_growth(const char *what, size_t before, size_t now)
{
    check(now <= before + (TIMES - FIRST) * EACH,
          "%d iterations of %s leave %zu bytes of host memory, which nobody frees", TIMES - FIRST,
          what, now - before);
}

// ---- Calls that undo each other ----

static const struct Call {
    Apart part;
    const char *name;
    Status (*call)(FsdpUnit *unit);
} CALLS[] = {
    {APART_FORWARD, "fsdp_unshard", fsdp_unshard},
    {APART_FORWARD, "fsdp_wait_for_unshard", fsdp_wait_for_unshard},
    {APART_FORWARD, "fsdp_reshard", fsdp_reshard},
    {APART_BACKWARD, "fsdp_begin_grad", fsdp_begin_grad},
    {APART_BACKWARD, "fsdp_reduce_grad", fsdp_reduce_grad},
};
enum { N_CALLS = sizeof CALLS / sizeof *CALLS };

// One rank, which allocates and moves nothing: what a call leaves is its own.
static void calls_body(const Rank *r, void *arg)
{
    const Apart part = *(const Apart *)arg;
    Spec spec = spec_mlp(UNITS);
    FsdpUnit *units[UNITS + 1];
    size_t grown[N_CALLS] = {0};
    Sharded s;
    check_leaks();
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    int n = fsdp_units(s.model, units, UNITS + 1);
    for (int i = 0; i < TIMES; i++) {
        for (int k = 0; k < N_CALLS; k++) {
            if (CALLS[k].part != part) continue;
            size_t before = host_bytes();
            for (int u = 0; u < n; u++) need(CALLS[k].call(units[u]));
            need_cuda(cudaDeviceSynchronize());
            if (i >= FIRST && host_bytes() > before) grown[k] += host_bytes() - before;
        }
        if (part == APART_BACKWARD) need(fsdp_finish_backward(s.root));
    }
    for (int k = 0; k < N_CALLS; k++) check_growth(CALLS[k].name, 0, grown[k]);
    sharded_destroy(&s);
}

// ---- Calls of the optimizer's ----

static Status step(Sharded *s)
{
    return fsdp_adamw_step(&s->adamw);
}

static Status clip(Sharded *s)
{
    float norm;
    return fsdp_clip_grad_norm(s->model, &s->ctx, 0.125f, &norm);
}

static Status sgd(Sharded *s)
{
    return fsdp_sgd_step(s->model, &s->ctx, 0.5f, 0.25f);
}

static Status zero(Sharded *s)
{
    return fsdp_zero_grad(s->model, &s->ctx);
}

static const struct {
    Apart part;
    const char *name;
    Status (*call)(Sharded *s);
} STEPS[] = {{APART_ADAMW, "fsdp_adamw_step", step},
             {APART_CLIP, "fsdp_clip_grad_norm", clip},
             {APART_SGD, "fsdp_sgd_step", sgd},
             {APART_ZERO_GRAD, "fsdp_zero_grad", zero}};
enum { N_STEPS = sizeof STEPS / sizeof *STEPS };

static void steps_body(const Rank *r, void *arg)
{
    const int k = *(const int *)arg;
    Spec spec = spec_mlp(UNITS);
    Sharded s;
    size_t host = 0;
    check_leaks();
    sharded_create(&s, &spec, &TEST_OPTIONS, STEPS[k].part == APART_ADAMW ? &TEST_ADAMW : NULL, r);
    for (int i = 0; i < TIMES; i++) {
        if (i == FIRST) host = host_bytes();
        need(STEPS[k].call(&s));
        need_cuda(cudaDeviceSynchronize());
    }
    check_growth(STEPS[k].name, host, host_bytes());
    sharded_destroy(&s);
}

// ---- All together ----

static void iterations_body(const Rank *r, void *arg)
{
    const Apart part = *(const Apart *)arg;
    Spec spec = spec_mlp(UNITS);
    Sharded s;
    size_t host = 0;
    check_leaks();
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    Batch batch = batch_create(&spec, 1);
    for (int i = 0; i < TIMES; i++) {
        if (i == FIRST) host = host_bytes();
        if (part == APART_FORWARD)
            forward_batch(&spec, &s.run, s.model, &batch);
        else
            train_batch(&spec, &s.run, s.model, &batch);
        need(fsdp_reshard_all(s.model));
        need_cuda(cudaDeviceSynchronize());
    }
    check_growth(part == APART_FORWARD ? "a forward" : "a forward and a backward", host,
                 host_bytes());
    batch_destroy(&batch);
    sharded_destroy(&s);
}

void rule_nothing_grows(Apart part)
{
    for (int k = 0; k < N_STEPS; k++)
        if (STEPS[k].part == part) {
            run_ranks(2, steps_body, &k);
            return;
        }
    run_ranks(1, calls_body, &part);
    run_ranks(2, iterations_body, &part);
}
