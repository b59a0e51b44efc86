/* rules_apart.c: what belongs to one context, model or optimizer is not another's in the same
 * process. See rules.h.
 */
#include "rules.h"

#include "fsdp.h"
#include "harness.h"
#include "training.h"

// Nothing that was queued since log entry `first` is on a stream of the other model's, or is told
// by an event of it.
static void check_apart(const Sharded *own, const Sharded *other, uint64_t first)
{
    const cudaStream_t mine[] = {own->ctx.compute_stream, own->ctx.all_gather_stream,
                                 own->ctx.reduce_scatter_stream},
                       theirs[] = {other->ctx.compute_stream, other->ctx.all_gather_stream,
                                   other->ctx.reduce_scatter_stream};
    static const char *const NAME[] = {"compute", "all-gather", "reduce-scatter"};
    GpuLogEntry entry;
    char place[256];
    for (uint64_t i = first; i < gpulog_length(); i++) {
        bool has_own = false;
        if (!gpulog_get(i, &entry) || entry.stream == NULL) continue;
        gpulog_where(entry.site, place, sizeof place);
        for (int k = 0; k < 3; k++) has_own |= entry.stream == mine[k];
        for (int k = 0; k < 3; k++)
            check(has_own || entry.stream != theirs[k],
                  "two models, each with a context of its own: while one ran, %s at %s was queued "
                  "on the %s stream of the other's context",
                  entry.name, place, NAME[k]);
        check(entry.event == NULL || entry.event != other->ctx.compute_done,
              "two models, each with a context of its own: while one ran, %s at %s used "
              "compute_done of the other's context",
              entry.name, place);
    }
}

static Status nothing(const Param *param, const float *values, void *arg)
{
    return OK;
}

static void call(Sharded *s, Apart part)
{
    float norm = -1.0f;
    if (part == APART_STATE) need(fsdp_full_state(s->model, nothing, NULL));
    if (part == APART_NORM) need(fsdp_grad_norm(s->model, &s->ctx, &norm));
    if (part == APART_CLIP) need(fsdp_clip_grad_norm(s->model, &s->ctx, 0.125f, &norm));
    if (part == APART_ADAMW) need(fsdp_adamw_step(&s->adamw));
    if (part == APART_SGD) need(fsdp_sgd_step(s->model, &s->ctx, 0.5f, 0.25f));
    if (part == APART_ZERO_GRAD) need(fsdp_zero_grad(s->model, &s->ctx));
}

// Two models of different depth run interleaved, each on streams of its own; then the first goes,
// and the second runs on.
static void apart_body(const Rank *r, void *arg)
{
    const Apart part = *(const Apart *)arg;
    const Spec spec[2] = {spec_mlp(3), spec_mlp(4)};
    Rank on[2] = {*r, *r};
    Sharded s[2];
    Batch batch[2];
    FsdpReshard reshard[2] = {FSDP_RESHARD_NEVER, FSDP_RESHARD_ALWAYS};
    check_leaks();
    need_cuda(cudaStreamCreateWithFlags(&on[1].stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
        FsdpOptions options = TEST_OPTIONS;
        options.reshard_after_forward = reshard[i];
        sharded_create(&s[i], &spec[i], &options, part == APART_ADAMW ? &TEST_ADAMW : NULL, &on[i]);
        batch[i] = batch_create(&spec[i], (uint64_t)i);
    }
    for (int round = 0; round < 5; round++) {
        int i = round < 4 ? round % 2 : 1;
        need_cuda(cudaDeviceSynchronize());
        uint64_t log = gpulog_length();
        if (part == APART_FORWARD)
            forward_batch(&spec[i], &s[i].run, s[i].model, &batch[i]);
        else if (part == APART_BACKWARD)
            train_batch(&spec[i], &s[i].run, s[i].model, &batch[i]);
        else
            call(&s[i], part);
        if (round < 4) check_apart(&s[i], &s[1 - i], log);
        if (round < 3) continue;
        log = gpulog_length(); // the first one's units are unsharded: it reshards them here alone
        need(fsdp_reshard_all(s[round - 3].model));
        if (round == 3) check_apart(&s[0], &s[1], log);
        batch_destroy(&batch[round - 3]);
        sharded_destroy(&s[round - 3]);
    }
    need_cuda(cudaStreamDestroy(on[1].stream));
}

void rule_contexts_are_apart(Apart part)
{
    run_worlds(apart_body, &part, 1, 3);
}
