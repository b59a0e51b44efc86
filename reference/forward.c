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
 *   fsdp_unshard, fsdp_wait_for_unshard, fsdp_reshard     FLAT_SHARDED → UNSHARDING → UNSHARDED → SHARDED
 *   fsdp_free_all_gather                       frees the retired buffer
 *   fsdp_pre_forward, fsdp_post_forward       the hooks
 *
 * Source of the schedule: PyTorch FSDP2 (torch/distributed/fsdp/_fully_shard), which copies into
 * and out of its gather buffers; a flat parameter is gathered in place.
 */
#include "fsdp.h"

#include <stdlib.h>

// Makes stream `waiter` wait for everything that `worker` has queued so far.
static Status stream_wait_stream(FsdpContext *ctx, cudaStream_t waiter, cudaStream_t worker)
{
    CUDA_TRY(cudaEventRecord(ctx->compute_done, worker));
    CUDA_TRY(cudaStreamWaitEvent(waiter, ctx->compute_done, 0));
    return OK;
}

Status fsdp_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->state != FLAT_SHARDED) return OK;

    //[3.1] With one rank the whole parameter is the shard: flat->unsharded_param = flat->sharded_param, no call at
    //  all. Else, on ctx->all_gather_stream: cudaMallocAsync of `padded` elements into flat->unsharded_param,
    //  ncclAllGather of the shard into it, cudaEventRecord of flat->all_gather_done. Then flat_set_views, and
    //  the state is FLAT_UNSHARDING.
    //? The count of ncclAllGather: what one rank sends, or what it receives?
    if (flat->world == 1) {
        flat->unsharded_param = flat->sharded_param;
    } else {
        size_t bytes = (size_t)flat->padded * sizeof(float);
        CUDA_TRY(cudaMallocAsync((void **)&flat->unsharded_param, bytes, ctx->all_gather_stream));
        NCCL_TRY(ncclAllGather(flat->sharded_param, flat->unsharded_param, (size_t)flat->shard_numel, ncclFloat,
                               ctx->comm, ctx->all_gather_stream));
        CUDA_TRY(cudaEventRecord(flat->all_gather_done, ctx->all_gather_stream));
    }
    flat_set_views(flat, flat->unsharded_param);
    flat->state = FLAT_UNSHARDING;
    return OK;
    //[end 3.1]
}

Status fsdp_wait_for_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    if (flat->state == FLAT_SHARDED)
        return fail(ERR_ARGUMENT, "%s: nothing to wait for: it is sharded", flat->name);

    //[3.2] The compute stream must not read the parameters before they are there:
    //  cudaStreamWaitEvent for flat->all_gather_done (not with one rank, where nothing was recorded). Once
    //  is enough: not where the state is FLAT_UNSHARDED already. The host waits for nothing.
    //? Which stream waits, and which one recorded?
    if (flat->state == FLAT_UNSHARDING && flat->world > 1)
        CUDA_TRY(cudaStreamWaitEvent(unit->ctx->compute_stream, flat->all_gather_done, 0));
    flat->state = FLAT_UNSHARDED;
    return OK;
    //[end 3.2]
}

Status fsdp_free_all_gather(FsdpContext *ctx)
{
    Retired *old = &ctx->all_gather_state;
    if (old->buffer == NULL) return OK;

    //[3.3] On ctx->all_gather_stream: wait for old->event, then cudaFreeAsync. The slot is empty afterwards
    //  (old->buffer NULL); the event stays, for the next.
    //? What could be allocated in the same place if the wait were left out?
    CUDA_TRY(cudaStreamWaitEvent(ctx->all_gather_stream, old->event, 0));
    CUDA_TRY(cudaFreeAsync(old->buffer, ctx->all_gather_stream));
    old->buffer = NULL;
    return OK;
    //[end 3.3]
}

Status fsdp_reshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->state != FLAT_UNSHARDED) return OK;

    //[3.4] Nobody may use the parameters any more: flat_set_views with NULL, flat->unsharded_param NULL,
    //  FLAT_SHARDED. The buffer goes to ctx->all_gather_state, with its event recorded on ctx->compute_stream
    //  behind the unit's kernels (see [Note: free late]). There is one slot: release what is in it
    //  first. With one rank there is no buffer to let go, only the state and the views change.
    float *buffer = flat->unsharded_param;
    flat_set_views(flat, NULL);
    flat->unsharded_param = NULL;
    flat->state = FLAT_SHARDED;
    if (flat->world == 1) return OK;
    TRY(fsdp_free_all_gather(ctx));
    CUDA_TRY(cudaEventRecord(ctx->all_gather_state.event, ctx->compute_stream));
    ctx->all_gather_state.buffer = buffer;
    return OK;
    //[end 3.4]
}

// Writes down that this iteration's forward met the unit now: task 4 goes back in this order.
static Status record_post_forward(FsdpUnit *unit)
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
    //  record_post_forward, unshard, release what the unit before it retired, wait.
    //? Why does the release stand behind the unshard here? (See [Note: free late].)
    if (unit->is_root) {
        ctx->n_order = 0;
        TRY(stream_wait_stream(ctx, ctx->all_gather_stream, ctx->compute_stream));
    }
    TRY(record_post_forward(unit));
    TRY(fsdp_unshard(unit));
    TRY(fsdp_free_all_gather(ctx));
    TRY(fsdp_wait_for_unshard(unit));
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
