/* Task 4: backward. Gradients are summed over the ranks and cut into shards on the way.
 *
 * In the backward a unit's parameters are gathered again where the forward let them go, and its
 * layers add their gradients into one whole buffer, laid out as the flat parameter is. Then one
 * reduce-scatter sums the ranks' buffers and leaves each rank the sum of its own shard, which
 * divided by W is the average: the gradient of the mean loss over all ranks' data.
 *
 *     gather     AG i-1         | AG i-2
 *     compute    backward i     | backward i-1   | wait RS i, free its buffer …
 *     reduce                    | RS i           | RS i-1
 *
 * [Note: gather ahead] Operations on one communicator run in the order in which they were queued.
 * If the reduce-scatter of unit i were queued before the all-gather of unit i-1, backward i-1 would
 * wait for both. So the pre-backward hook of unit i queues the all-gather of unit i-1, the unit
 * that the forward met before it.
 *
 * [Note: two gradients] The whole gradient is allocated, zeroed and freed on the compute stream,
 * which may free it only when the reduce-scatter has read it. To wait at once would idle the
 * compute stream. So the buffer retires, and goes when the next unit's backward is done: two whole
 * gradients at most, whatever the depth.
 *
 * [Note: sum, then divide] The sum of W equal gradients divided by W gives the gradient back to the
 * bit for W = 2, 4, 8. Multiplying every input by 1/W first (ncclAvg) rounds differently where W is
 * no power of two.
 *
 * Interface:
 *   fsdp_begin_grad, fsdp_reduce_grad, fsdp_free_reduce_scatter, fsdp_finish_backward
 *   fsdp_pre_backward, fsdp_post_backward     the hooks
 */
#include "fsdp.h"
#include "kernels.h"

Status fsdp_begin_grad(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->unsharded_grad != NULL)
        return fail(ERR_ARGUMENT, "%s: has a gradient already", flat->name);

    //[4.1] With one rank the layers add straight into flat->sharded_grad: it is the whole gradient.
    //  Else cudaMallocAsync of `padded` elements into flat->unsharded_grad and cudaMemsetAsync to zero,
    //  both on ctx->compute_stream: the layers add to what is there, and the padding is reduced with the
    //  rest. flat_set_grad_views in both cases.
    //? What would the ranks sum in the padding if only numel elements were zeroed?
    if (flat->world == 1) {
        flat->unsharded_grad = flat->sharded_grad;
    } else {
        size_t bytes = (size_t)flat->padded * sizeof(float);
        CUDA_TRY(cudaMallocAsync((void **)&flat->unsharded_grad, bytes, ctx->compute_stream));
        CUDA_TRY(cudaMemsetAsync(flat->unsharded_grad, 0, bytes, ctx->compute_stream));
    }
    flat_set_grad_views(flat, flat->unsharded_grad);
    return OK;
    //[end 4.1]
}

Status fsdp_free_reduce_scatter(FsdpContext *ctx)
{
    Retired *old = &ctx->reduce_scatter_state;
    if (old->buffer == NULL) return OK;

    //[4.2] On ctx->compute_stream: wait for old->event, then cudaFreeAsync; the slot is empty afterwards.
    CUDA_TRY(cudaStreamWaitEvent(ctx->compute_stream, old->event, 0));
    CUDA_TRY(cudaFreeAsync(old->buffer, ctx->compute_stream));
    old->buffer = NULL;
    return OK;
    //[end 4.2]
}

// Sums the ranks' whole gradients and adds the average of this rank's part to its gradient shard.
static Status reduce_average(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;

    //[4.3] All on ctx->reduce_scatter_stream. ncclReduceScatter (ncclSum) of flat->unsharded_grad, in place: this
    //  rank's sum lands where its shard lies in the buffer, which nobody needs any more. Then
    //  kernel_add_divided adds sum / W to flat->sharded_grad, which may hold an earlier micro-batch,
    //  and flat_zero_padding zeroes the padding of sharded_grad.
    //? In place: where in the buffer does NCCL want rank r to receive?
    float *mine = flat->unsharded_grad + flat->rank * flat->shard_numel;
    NCCL_TRY(ncclReduceScatter(flat->unsharded_grad, mine, (size_t)flat->shard_numel, ncclFloat, ncclSum,
                               ctx->comm, ctx->reduce_scatter_stream));
    CUDA_TRY(kernel_add_divided(flat->sharded_grad, mine, (float)flat->world,
                                (size_t)flat->shard_numel, ctx->reduce_scatter_stream));
    TRY(flat_zero_padding(flat, flat->sharded_grad, ctx->reduce_scatter_stream));
    return OK;
    //[end 4.3]
}

Status fsdp_reduce_grad(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->unsharded_grad == NULL) return fail(ERR_ARGUMENT, "%s: no gradient to reduce", flat->name);

    //[4.4] The parameters lose their gradients (flat_set_grad_views), flat->unsharded_grad becomes NULL at
    //  the end. With one rank that is all: sharded_grad has everything, and nothing is divided. Else:
    //  release the gradient reduced before this one; let the reduce stream wait for the compute
    //  stream (ctx->compute_done), whose kernels write the gradient; reduce_average; retire the buffer,
    //  its event recorded on ctx->reduce_scatter_stream behind the last use.
    //? What does dividing by W do to a world of one? And averaging with W = 1 by ncclAvg?
    flat_set_grad_views(flat, NULL);
    if (flat->world > 1) {
        TRY(fsdp_free_reduce_scatter(ctx));
        CUDA_TRY(cudaEventRecord(ctx->compute_done, ctx->compute_stream));
        CUDA_TRY(cudaStreamWaitEvent(ctx->reduce_scatter_stream, ctx->compute_done, 0));
        TRY(reduce_average(unit));
        CUDA_TRY(cudaEventRecord(ctx->reduce_scatter_state.event, ctx->reduce_scatter_stream));
        ctx->reduce_scatter_state.buffer = flat->unsharded_grad;
    }
    flat->unsharded_grad = NULL;
    return OK;
    //[end 4.4]
}

Status fsdp_finish_backward(FsdpContext *ctx)
{
    //[4.5] Release both retired buffers. The compute stream, on which the optimizer is about to
    //  run, has then waited for the last reduce-scatter and, one stream after the other, for all
    //  before it.
    TRY(fsdp_free_all_gather(ctx));
    TRY(fsdp_free_reduce_scatter(ctx));
    return OK;
    //[end 4.5]
}

Status fsdp_pre_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpContext *ctx = unit->ctx;

    //[4.6] Release the parameters that were resharded last, whose compute is done or about to be;
    //  unshard this unit (the unit behind it has mostly done so already) and wait; queue the
    //  all-gather of the unit that the forward met before this one, ctx->order[place - 1], if there
    //  is one (see [Note: gather ahead]). The root is a special case: its backward holds all the
    //  others, so the next to run is the last of the order. Then fsdp_begin_grad.
    //? Two units' parameters may be whole at a time. Why does the release stand first here?
    TRY(fsdp_free_all_gather(ctx));
    TRY(fsdp_unshard(unit));
    TRY(fsdp_wait_for_unshard(unit));
    int next = unit->is_root ? ctx->n_order - 1 : unit->place - 1;
    if (next >= 0) TRY(fsdp_unshard(ctx->order[next]));
    TRY(fsdp_begin_grad(unit));
    return OK;
    //[end 4.6]
}

Status fsdp_post_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;

    //[4.7] The parameters have done their work: reshard, whatever the options say. Reduce the
    //  gradient. The root ends the iteration: fsdp_finish_backward.
    TRY(fsdp_reshard(unit));
    TRY(fsdp_reduce_grad(unit));
    if (unit->is_root) TRY(fsdp_finish_backward(unit->ctx));
    return OK;
    //[end 4.7]
}
