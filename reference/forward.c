/* Task 3: forward. A unit's parameters are whole only while it runs.
 *
 * Before a unit's forward its shards are all-gathered into a new buffer; behind it the buffer goes
 * again. So a rank holds its shards and about two units, not the model:
 *
 *     gather    AG 0 | AG 1      | free 0, AG 2      | free 1 …
 *     compute        | forward 0 | forward 1         | forward 2 …
 *
 * Three rules make this right and quick.
 *
 * [Note: whose buffer] A buffer is allocated and freed on one stream, `gather`, in that stream's
 * order. The compute stream only reads it, between two events: it waits for `gathered` before the
 * first read, and the gather stream waits for an event recorded behind the last.
 *
 * [Note: free late] To free unit i's buffer the gather stream must wait for forward i. If that wait
 * stood before all-gather i+1, the two could not overlap. So reshard only *retires* the buffer, and
 * the next pre-forward hook queues its all-gather first and the wait and the free behind it. At
 * most one buffer is retired at a time: two units are whole, whatever the depth.
 *
 * [Note: after the optimizer] The optimizer writes the shards on the compute stream. The first
 * all-gather of an iteration must wait for it, once; the root's hook sees to that.
 *
 * Interface:
 *   fsdp_unshard, fsdp_wait, fsdp_reshard     FLAT_SHARDED → UNSHARDING → UNSHARDED → SHARDED
 *   fsdp_release_gather                       frees the retired buffer
 *   fsdp_pre_forward, fsdp_post_forward       the hooks
 *
 * Source of the schedule: PyTorch FSDP2 (torch/distributed/fsdp/_fully_shard), which copies into
 * and out of its gather buffers; a flat parameter is gathered in place.
 */
#include "fsdp.h"

#include <stdlib.h>

// Makes stream `waiter` wait for everything that `worker` has queued so far.
static Status wait_for(FsdpContext *ctx, cudaStream_t waiter, cudaStream_t worker)
{
    CUDA_TRY(cudaEventRecord(ctx->computed, worker));
    CUDA_TRY(cudaStreamWaitEvent(waiter, ctx->computed, 0));
    return OK;
}

Status fsdp_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->state != FLAT_SHARDED) return OK;

    //[3.1] With one rank the whole parameter is the shard: flat->full = flat->shard, no call at
    //  all. Else, on ctx->gather: cudaMallocAsync of `padded` elements into flat->full,
    //  ncclAllGather of the shard into it, cudaEventRecord of flat->gathered. Then flat_attach, and
    //  the state is FLAT_UNSHARDING.
    //? The count of ncclAllGather: what one rank sends, or what it receives?
    if (flat->world == 1) {
        flat->full = flat->shard;
    } else {
        size_t bytes = (size_t)flat->padded * sizeof(float);
        CUDA_TRY(cudaMallocAsync((void **)&flat->full, bytes, ctx->gather));
        NCCL_TRY(ncclAllGather(flat->shard, flat->full, (size_t)flat->shard_numel, ncclFloat,
                               ctx->comm, ctx->gather));
        CUDA_TRY(cudaEventRecord(flat->gathered, ctx->gather));
    }
    flat_attach(flat, flat->full);
    flat->state = FLAT_UNSHARDING;
    return OK;
    //[end 3.1]
}

Status fsdp_wait(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    if (flat->state == FLAT_SHARDED)
        return fail(ERR_ARGUMENT, "%s: nothing to wait for: it is sharded", flat->name);

    //[3.2] The compute stream must not read the parameters before they are there:
    //  cudaStreamWaitEvent for flat->gathered (not with one rank, where nothing was recorded). Once
    //  is enough: not where the state is FLAT_UNSHARDED already. The host waits for nothing.
    //? Which stream waits, and which one recorded?
    if (flat->state == FLAT_UNSHARDING && flat->world > 1)
        CUDA_TRY(cudaStreamWaitEvent(unit->ctx->compute, flat->gathered, 0));
    flat->state = FLAT_UNSHARDED;
    return OK;
    //[end 3.2]
}

Status fsdp_release_gather(FsdpContext *ctx)
{
    Retired *old = &ctx->old_gather;
    if (old->buffer == NULL) return OK;

    //[3.3] On ctx->gather: wait for old->event, then cudaFreeAsync. The slot is empty afterwards
    //  (old->buffer NULL); the event stays, for the next.
    //? What could be allocated in the same place if the wait were left out?
    CUDA_TRY(cudaStreamWaitEvent(ctx->gather, old->event, 0));
    CUDA_TRY(cudaFreeAsync(old->buffer, ctx->gather));
    old->buffer = NULL;
    return OK;
    //[end 3.3]
}

Status fsdp_reshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->state != FLAT_UNSHARDED) return OK;

    //[3.4] Nobody may use the parameters any more: flat_attach with NULL, flat->full NULL,
    //  FLAT_SHARDED. The buffer goes to ctx->old_gather, with its event recorded on ctx->compute
    //  behind the unit's kernels (see [Note: free late]). There is one slot: release what is in it
    //  first. With one rank there is no buffer to let go, only the state and the views change.
    float *buffer = flat->full;
    flat_attach(flat, NULL);
    flat->full = NULL;
    flat->state = FLAT_SHARDED;
    if (flat->world == 1) return OK;
    TRY(fsdp_release_gather(ctx));
    CUDA_TRY(cudaEventRecord(ctx->old_gather.event, ctx->compute));
    ctx->old_gather.buffer = buffer;
    return OK;
    //[end 3.4]
}

// Writes down that this iteration's forward met the unit now: task 4 goes back in this order.
static Status note_order(FsdpUnit *unit)
{
    FsdpContext *ctx = unit->ctx;
    if (ctx->n_order == ctx->max_order) {
        int max = ctx->max_order == 0 ? 16 : 2 * ctx->max_order;
        FsdpUnit **order = realloc(ctx->order, (size_t)max * sizeof *order);
        if (order == NULL) return fail(ERR_MEMORY, "no host memory for %d units", max);
        ctx->order = order;
        ctx->max_order = max;
    }
    unit->place = ctx->n_order;
    ctx->order[ctx->n_order++] = unit;
    return OK;
}

Status fsdp_pre_forward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpContext *ctx = unit->ctx;

    //[3.5] The root begins an iteration: ctx->n_order is 0 again, and the gather stream waits for
    //  the compute stream (wait_for), where the optimizer has written the shards. Every unit then:
    //  note_order, unshard, release what the unit before it retired, wait.
    //? Why does the release stand behind the unshard here? (See [Note: free late].)
    if (unit->is_root) {
        ctx->n_order = 0;
        TRY(wait_for(ctx, ctx->gather, ctx->compute));
    }
    TRY(note_order(unit));
    TRY(fsdp_unshard(unit));
    TRY(fsdp_release_gather(ctx));
    TRY(fsdp_wait(unit));
    return OK;
    //[end 3.5]
}

Status fsdp_post_forward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;

    //[3.6] Reshard, unless the unit was told to keep its parameters for the backward.
    if (unit->reshard_after_forward) TRY(fsdp_reshard(unit));
    return OK;
    //[end 3.6]
}
