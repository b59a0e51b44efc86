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
// Task 4 of 6: write what the places marked TODO ask for. The handout is
// handouts/4_backward.md; `make grade TASK=4` says how far you are.
#include "fsdp.h"
#include "kernels.h"

Status fsdp_begin_grad(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->unsharded_grad.data != NULL)
        return fail(ERR_ARGUMENT, "%s has an unsharded gradient already", flat->name);

    // TODO 4.1: With one rank in all (mesh_size) the layers add straight into sharded_grad: its
    // memory is the unsharded gradient's. Else cudaMallocAsync of unsharded_grad and
    // cudaMemsetAsync to zero, both on the compute stream: the layers add to what is there, and the
    // padding is reduced with the rest. The views in both cases.
    // Hint: What would the ranks sum in the padding if only numel elements were zeroed?
    NOT_YET("4.1");
}

Status fsdp_free_reduce_scatter(FsdpRoot *root)
{
    ReduceScatterState *state = &root->reduce_scatter_state;
    cudaStream_t stream = root->ctx->compute_stream;
    if (state->buffer == NULL) return OK;

    // TODO 4.2: On the compute stream: wait for state->event, then cudaFreeAsync; nothing is left
    // to free afterwards.
    NOT_YET("4.2");
}

Status fsdp_reduce_scatter(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    int64_t shard_numel = flat->layout.shard_numel;

    // TODO 4.3: All on the reduce-scatter stream. ncclReduceScatter (ncclSum) of unsharded_grad, in
    // place: this rank's sum lands where its shard lies in the buffer, which nobody needs any more.
    // Then kernel_add_divided adds sum / W to sharded_grad, which may hold an earlier micro-batch.
    // Hint: In place: where in the buffer does NCCL want rank r to receive?
    NOT_YET("4.3");
}

Status fsdp_reduce_grad(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    ReduceScatterState *state = &unit->root->reduce_scatter_state;
    void *buffer = flat->unsharded_grad.data;
    if (buffer == NULL)
        return fail(ERR_ARGUMENT, "%s has no unsharded gradient to reduce", flat->name);

    // TODO 4.4: At the end unsharded_grad has no memory, and so the views have none. With one rank
    // that is all: sharded_grad has everything, and nothing is divided. Else: free the gradient
    // reduced before this one; let the reduce-scatter stream wait for the compute stream
    // (ctx->compute_done), whose kernels write the gradient; unit->reduce_scatter; zero the padding
    // of sharded_grad; leave the buffer in root->reduce_scatter_state, its event recorded after the
    // last use.
    // Hint: What does dividing by W do to a world of one? And averaging with W = 1 by ncclAvg?
    NOT_YET("4.4");
}

Status fsdp_finish_backward(FsdpRoot *root)
{
    // TODO 4.5: Reshard whatever is still unsharded (fsdp_reshard_all: a prefetch that nobody used,
    // say), and free the last unsharded gradient. The compute stream, on which the optimizer is
    // about to run, has then waited for the last reduce-scatter and, since a stream runs in order,
    // for all before it.
    NOT_YET("4.5");
}

Status fsdp_pre_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;
    unit->phase = FSDP_PRE_BACKWARD;
    if (root->iter_backward_root == NULL) root->iter_backward_root = unit;

    // TODO 4.6: Free the parameters that were resharded last, whose compute is done or about to be;
    // unshard this unit (the one before it has mostly done so already) and wait; queue the
    // all-gather of the unit whose forward ended just before this unit's (fsdp_pop_post_forward),
    // if there is one (see [Note: gather ahead]). Then fsdp_begin_grad.
    // Hint: Two units' parameters may be unsharded at a time. Why does the free come first here?
    NOT_YET("4.6");
}

Status fsdp_post_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    unit->phase = FSDP_POST_BACKWARD;

    // TODO 4.7: The parameters have done their work: reshard, whatever the options say. Reduce the
    // gradient. The outermost backward (root->iter_backward_root) ends the iteration:
    // fsdp_finish_backward.
    NOT_YET("4.7");
    unit->phase = FSDP_IDLE;
    return OK;
}
