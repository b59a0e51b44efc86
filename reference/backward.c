/* Task 4: backward. Gradients are summed over the ranks and cut into shards on the way.
 *
 * In the backward a unit's parameters are gathered again where the forward freed them, and its
 * layers add their gradients into one unsharded buffer, laid out as the flat parameter is. Then one
 * reduce-scatter sums the ranks' buffers and leaves each rank the sum of its own shard, which
 * divided by W is the average: the gradient of the mean loss over all ranks' data.
 *
 *     all-gather       AG i-1         | AG i-2
 *     compute          backward i     | backward i-1   | wait for RS i, free its buffer …
 *     reduce-scatter                  | RS i           | RS i-1
 *
 * [Note: gather ahead] Operations on one communicator run in the order in which they were queued.
 * If the reduce-scatter of unit i were queued before the all-gather of unit i-1, backward i-1 would
 * wait for both. So the pre-backward hook of unit i queues the all-gather of unit i-1: the unit
 * whose forward ended just before unit i's.
 *
 * [Note: two gradients] The unsharded gradient is allocated, zeroed and freed on the compute stream,
 * which may free it only when the reduce-scatter has read it. To wait at once would idle the
 * compute stream. So the buffer is left in root->reduce_scatter_state, and freed when the next
 * unit's backward is done: two unsharded gradients at most, whatever the depth.
 *
 * [Note: sum, then divide] The sum of W equal gradients divided by W is bitwise equal to the gradient
 * for W = 2, 4, 8. Multiplying every input by 1/W first (ncclAvg) rounds differently where W is no
 * power of two.
 *
 * Interface:
 *   fsdp_begin_grad, fsdp_reduce_grad         the unsharded gradient, there and back
 *   fsdp_reduce_scatter                       the collective alone; what unit->reduce_scatter is
 *   fsdp_free_reduce_scatter                  frees the gradient that was reduced last
 *   fsdp_finish_backward                      the end of an iteration
 *   fsdp_pre_backward, fsdp_post_backward     the hooks
 */
#include "fsdp.h"
#include "kernels.h"

Status fsdp_begin_grad(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->unsharded_grad.data != NULL)
        return fail(ERR_ARGUMENT, "%s has an unsharded gradient already", flat->name);

    //[4.1] With one rank in all (mesh_size) the layers add straight into sharded_grad: its memory is
    //  the unsharded gradient's. Else cudaMallocAsync of unsharded_grad and cudaMemsetAsync to zero, both on the
    //  compute stream: the layers add to what is there, and the padding is reduced with the rest.
    //  The views in both cases.
    //? What would the ranks sum in the padding if only numel elements were zeroed?
    if (mesh_size(&ctx->mesh) == 1) {
        flat->unsharded_grad.data = flat->sharded_grad.data;
    } else {
        size_t bytes = buffer_bytes(&flat->unsharded_grad);
        CUDA_TRY(cudaMallocAsync(&flat->unsharded_grad.data, bytes, ctx->compute_stream));
        CUDA_TRY(cudaMemsetAsync(flat->unsharded_grad.data, 0, bytes, ctx->compute_stream));
    }
    flat_set_grad_views(flat);
    return OK;
    //[end 4.1]
}

Status fsdp_free_reduce_scatter(FsdpRoot *root)
{
    ReduceScatterState *state = &root->reduce_scatter_state;
    cudaStream_t stream = root->ctx->compute_stream;
    if (state->buffer == NULL) return OK;

    //[4.2] On the compute stream: wait for state->event, then cudaFreeAsync; nothing is left to
    //  free afterwards.
    CUDA_TRY(cudaStreamWaitEvent(stream, state->event, 0));
    CUDA_TRY(cudaFreeAsync(state->buffer, stream));
    state->buffer = NULL;
    return OK;
    //[end 4.2]
}

Status fsdp_reduce_scatter(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    int64_t shard_numel = flat->layout.shard_numel;

    //[4.3] All on the reduce-scatter stream. ncclReduceScatter (ncclSum) of unsharded_grad, in
    //  place: this rank's sum lands where its shard lies in the buffer, which nobody needs any more.
    //  Then kernel_add_divided adds sum / W to sharded_grad, which may hold an earlier micro-batch.
    //? In place: where in the buffer does NCCL want rank r to receive?
    Buffer sum = buffer_range(&flat->unsharded_grad, flat->layout.rank * shard_numel, shard_numel);
    NCCL_TRY(ncclReduceScatter(flat->unsharded_grad.data, sum.data, (size_t)shard_numel,
                               dtype_nccl(sum.dtype), ncclSum, ctx->mesh.shard.comm,
                               ctx->reduce_scatter_stream));
    CUDA_TRY(kernel_add_divided(flat->sharded_grad.data, sum.data, (float)flat->layout.world,
                                (size_t)shard_numel, ctx->reduce_scatter_stream));
    return OK;
    //[end 4.3]
}

Status fsdp_reduce_grad(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    ReduceScatterState *state = &unit->root->reduce_scatter_state;
    void *buffer = flat->unsharded_grad.data;
    if (buffer == NULL)
        return fail(ERR_ARGUMENT, "%s has no unsharded gradient to reduce", flat->name);

    //[4.4] At the end unsharded_grad has no memory, and so the views have none. With one rank that
    //  is all: sharded_grad has everything, and nothing is divided. Else: free the gradient reduced
    //  before this one; let the reduce-scatter stream wait for the compute stream
    //  (ctx->compute_done), whose kernels write the gradient; unit->reduce_scatter; zero the padding
    //  of sharded_grad; leave the buffer in root->reduce_scatter_state, its event recorded after the
    //  last use.
    //? What does dividing by W do to a world of one? And averaging with W = 1 by ncclAvg?
    if (mesh_size(&ctx->mesh) > 1) {
        TRY(fsdp_free_reduce_scatter(unit->root));
        CUDA_TRY(cudaEventRecord(ctx->compute_done, ctx->compute_stream));
        CUDA_TRY(cudaStreamWaitEvent(ctx->reduce_scatter_stream, ctx->compute_done, 0));
        TRY(unit->reduce_scatter(unit));
        TRY(flat_zero_padding(flat, &flat->sharded_grad, ctx->reduce_scatter_stream));
        CUDA_TRY(cudaEventRecord(state->event, ctx->reduce_scatter_stream));
        state->buffer = buffer;
    }
    flat->unsharded_grad.data = NULL;
    flat_set_grad_views(flat);
    return OK;
    //[end 4.4]
}

Status fsdp_finish_backward(FsdpRoot *root)
{
    //[4.5] Reshard whatever is still unsharded (fsdp_reshard_all: a prefetch that nobody used, say),
    //  and free the last unsharded gradient. The compute stream, on which the optimizer is about to
    //  run, has then waited for the last reduce-scatter and, since a stream runs in order, for all
    //  before it.
    TRY(fsdp_reshard_all(root->units[0]->module));
    TRY(fsdp_free_reduce_scatter(root));
    return OK;
    //[end 4.5]
}

Status fsdp_pre_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;
    unit->phase = FSDP_PRE_BACKWARD;
    if (root->iter_backward_root == NULL) root->iter_backward_root = unit;

    //[4.6] Free the parameters that were resharded last, whose compute is done or about to be;
    //  unshard this unit (the one before it has mostly done so already) and wait; queue the
    //  all-gather of the unit whose forward ended just before this unit's (fsdp_pop_post_forward),
    //  if there is one (see [Note: gather ahead]). Then fsdp_begin_grad.
    //? Two units' parameters may be unsharded at a time. Why does the free come first here?
    TRY(fsdp_free_all_gather(root));
    TRY(fsdp_unshard(unit));
    TRY(fsdp_wait_for_unshard(unit));
    FsdpUnit *next = fsdp_pop_post_forward(unit);
    if (next != NULL) TRY(fsdp_unshard(next));
    TRY(fsdp_begin_grad(unit));
    return OK;
    //[end 4.6]
}

Status fsdp_post_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    unit->phase = FSDP_POST_BACKWARD;

    //[4.7] The parameters have done their work: reshard, whatever the options say. Reduce the
    //  gradient. The outermost backward (root->iter_backward_root) ends the iteration:
    //  fsdp_finish_backward.
    TRY(fsdp_reshard(unit));
    TRY(fsdp_reduce_grad(unit));
    if (unit->root->iter_backward_root == unit) TRY(fsdp_finish_backward(unit->root));
    //[end 4.7]
    unit->phase = FSDP_IDLE;
    return OK;
}
