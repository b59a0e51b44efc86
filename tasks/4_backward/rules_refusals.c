/* rules_refusals.c: sentences of fsdp.h on backward.c about what is refused, what fails, and what
 * is too large for 32 bits or not of floats. See rules.h.
 */
#include "rules.h"

#include "fsdp.h"
#include "harness.h"
#include "huge.h"
#include "kernels.h"
#include "snapshot.h"
#include "training.h"

#include <stdlib.h>
#include <string.h>

// ---- Refused, and refused again ----

static void refuse_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    FsdpUnit *unit = unit_of(&s, 1), *other = unit_of(&s, 0);
    need(fsdp_begin_grad(other)); // in the middle of a backward
    for (int i = 0; i < 2; i++)
        need_refused_whole(s.model, NULL, fsdp_reduce_grad(unit), unit->flat.name);
    need(fsdp_begin_grad(unit));
    const Buffer *gradient = &unit->flat.unsharded_grad;
    need_cuda(kernel_fill(gradient->data, 3.0f, (size_t)gradient->numel, r->stream));
    for (int i = 0; i < 2; i++)
        need_refused_whole(s.model, NULL, fsdp_begin_grad(unit), unit->flat.name);
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    need(fsdp_reduce_grad(unit));
    check(
        gpulog_count(GPU_ALLOC, log) == 0,
        "fsdp_reduce_scatter allocated memory: the sum is received in unsharded_grad, which nobody "
        "needs any more");
    check(gradient->data == NULL,
          "after fsdp_reduce_grad the unit still has an unsharded gradient");
    // The slot has a buffer: a refusal leaves it there.
    need_refused_whole(s.model, NULL, fsdp_reduce_grad(unit), unit->flat.name);
    need(fsdp_reduce_grad(other));
    need_refused_whole(s.model, NULL, fsdp_reduce_grad(other), other->flat.name);
    need(fsdp_finish_backward(s.root));
    need_refused(fsdp_post_backward(unit->module, unit), unit->flat.name);
    FsdpUnit *unsharding = unit; // which a message names
    need(fsdp_unshard(unit));    // nobody waits for it
    need(fsdp_begin_grad(unit));
    need_refused(fsdp_post_backward(unit->module, unsharding), unit->flat.name);
    need(fsdp_wait_for_unshard(unit));
    need(fsdp_post_backward(unit->module, unit));
    need(fsdp_finish_backward(s.root));
    sharded_destroy(&s);
}

// ---- A device without room ----

static void full_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    FsdpUnit *unit = unit_of(&s, 1);
    for (int failures = 0; failures <= 3; failures += 3) {
        void *filler = failures ? fill_all_but(0) : NULL;
        for (int i = 0; i < failures; i++) {
            need_failure(fsdp_begin_grad(unit), ERR_MEMORY, "");
            unit->flat.unsharded_grad.data = NULL; // what a call that failed leaves is its own
        }
        need_cuda(cudaFree(filler));
        size_t live = gpulog_live_bytes(r->device);
        need(fsdp_begin_grad(unit));
        need(fsdp_reduce_grad(unit));
        need(fsdp_free_reduce_scatter(s.root));
        check(
            gpulog_live_bytes(r->device) == live || failures > 0,
            "after fsdp_reduce_grad and fsdp_free_reduce_scatter %zu bytes of a gradient are left",
            gpulog_live_bytes(r->device) - live);
        check(gpulog_live_bytes(r->device) == live,
              "after calls of fsdp_begin_grad that found no memory, a gradient leaves %zu bytes",
              gpulog_live_bytes(r->device) - live);
    }
    sharded_destroy(&s);
}

// ---- Larger than 32 bits can count ----

static void huge_body(OneUnit *u, const Rank *r)
{
    FlatParam *flat = &u->unit->flat;
    uint64_t log = gpulog_length();
    need(fsdp_begin_grad(u->unit));
    Buffer gradient = flat->unsharded_grad;
    check_covers(log, &gradient, GPU_WRITE, "fsdp_begin_grad, which zeroes an unsharded gradient");
    log = gpulog_length();
    need(fsdp_reduce_grad(u->unit));
    check_covers(log, &gradient, GPU_READ, "fsdp_reduce_scatter, which sums an unsharded gradient");
    check_covers(log, &flat->sharded_grad, GPU_WRITE,
                 "fsdp_reduce_scatter, which adds to a gradient shard");
    need(fsdp_finish_backward(u->unit->root));
}

// ---- A gradient that is not of floats ----

static Status reduce_nothing(FsdpUnit *unit)
{
    return OK;
}

static void type_body(Sharded *s, const Rank *r, void *arg)
{
    FlatParam *flat = &unit_of(s, 1)->flat;
    Buffer *gradient = &flat->unsharded_grad;
    size_t live = gpulog_live_bytes(r->device);
    const DType usual = gradient->dtype;
    gradient->dtype = DTYPE_BF16;
    unit_of(s, 1)->reduce_scatter = reduce_nothing;
    need(fsdp_begin_grad(unit_of(s, 1)));
    check(gpulog_live_bytes(r->device) == live + buffer_bytes(gradient),
          "fsdp_begin_grad of %lld elements of bfloat16 took %zu bytes, want %zu: the buffer's "
          "type says how large an element is",
          (long long)gradient->numel, gpulog_live_bytes(r->device) - live, buffer_bytes(gradient));
    need_cuda(cudaStreamSynchronize(s->ctx.compute_stream));
    char *bytes = malloc(buffer_bytes(gradient));
    need_cuda(cudaMemcpy(bytes, gradient->data, buffer_bytes(gradient), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < buffer_bytes(gradient); i++)
        check(bytes[i] == 0, "fsdp_begin_grad of bfloat16: byte %zu is not zero", i);
    free(bytes);
    need(fsdp_reduce_grad(unit_of(s, 1)));
    need(fsdp_finish_backward(s->root));
    gradient->dtype = usual;
}

void rule_gradient_refusals(void)
{
    run_worlds(refuse_body, NULL, 1, 2);
    run_ranks_small(2, full_body, NULL);
}

void rule_gradient_of_any_size_and_type(void)
{
    run_sharded(spec_mlp(3), type_body, 2);
    run_huge(huge_body, 2);
}
