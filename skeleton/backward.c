/* Task 4: backward. Gradients are summed over the ranks and cut into shards on the way.
 *
 * The backward gathers a unit's parameters again if the forward freed them. The unit's layers add
 * their gradients into one unsharded buffer with the layout of the flat parameter. Then one
 * reduce-scatter sums the ranks' buffers and leaves each rank the sum of its own shard. Divided by
 * W this is the average: the gradient of the mean loss over all ranks' data.
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
 * [Note: two gradients] The unsharded gradient is allocated, zeroed and freed on the compute
 * stream, which may free it only when the reduce-scatter has read it. Waiting at once would leave
 * the compute stream idle. So the buffer stays in root->reduce_scatter_state, and is freed when the
 * next unit's backward is done: at most two unsharded gradients exist besides the root's, whatever
 * the depth.
 *
 * [Note: sum, then divide] The sum of W equal gradients divided by W is bitwise equal to the
 * gradient for W = 2, 4, 8. Multiplying every input by 1/W first (ncclAvg) rounds differently if W
 * is not a power of two.
 *
 * Interface:
 *   fsdp_begin_grad                           allocates the unsharded gradient
 *   fsdp_reduce_grad                          queues its reduction
 *   fsdp_reduce_scatter                       the collective alone, unit->reduce_scatter's default
 *   fsdp_free_reduce_scatter                  frees the gradient that was reduced last
 *   fsdp_finish_backward                      the end of an iteration
 *   fsdp_pre_backward, fsdp_post_backward     the hooks
 */
// Task 4 of 6. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is handouts/4_backward.md; `make grade TASK=4` says how far you are.
#include "fsdp.h"
#include "kernels.h"

Status fsdp_begin_grad(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->unsharded_grad.data != NULL)
        return fail(ERR_ARGUMENT, "%s has an unsharded gradient already", flat->name);
    if (flat->unsharded_grad.numel == 0) return OK; // all of it is frozen

    // TODO 4.1: The parameters' gradients are views of unsharded_grad. The compute stream owns
    // it; it is zero, including the padding, before a layer adds to it. With only one rank
    // (mesh_size is 1) unsharded_grad is the memory of sharded_grad itself, and is not zeroed.
    // Hint: What would the ranks sum in the padding if only numel elements were zeroed?
    NOT_YET("4.1");
}

Status fsdp_free_reduce_scatter(FsdpRoot *root)
{
    ReduceScatterState *state = &root->reduce_scatter_state;
    cudaStream_t stream = root->ctx->compute_stream;
    if (state->buffer == NULL) return OK;

    // TODO 4.2: The buffer is freed on the stream that owns it, after the reduce-scatter that reads
    // it, and the state holds none.
    // Hint: Compare with 3.4: who reads last here, and who frees?
    NOT_YET("4.2");
}

Status fsdp_reduce_scatter(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    int64_t shard_numel = flat->sharded_grad.numel;

    // TODO 4.3: Once the reduce-scatter stream has run what is queued, this rank's shard of the
    // averaged gradient (the sum of the ranks' gradients, divided by W) has been added to
    // sharded_grad. Nothing was allocated: the sum is in unsharded_grad, which is not needed any
    // more.
    // Hint: In place: at which element of the buffer does rank r receive?
    NOT_YET("4.3");
}

Status fsdp_reduce_grad_default(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    ReduceScatterState *state = &unit->root->reduce_scatter_state;
    if (flat->unsharded_grad.numel == 0) return OK; // all of it is frozen
    void *buffer = flat->unsharded_grad.data;
    if (buffer == NULL)
        return fail(ERR_ARGUMENT, "%s has no unsharded gradient to reduce", flat->name);

    // TODO 4.4: The unit and its views have no unsharded gradient. Its reduction
    // (unit->reduce_scatter) is queued after the kernels that write the gradient; once it has run,
    // the padding of sharded_grad is zero. root->reduce_scatter_state holds the buffer, and the
    // state's event is recorded after the reduction, the last use of the buffer. A buffer that the
    // state held before has been freed. With one rank in all, nothing is queued.
    // Hint: What does dividing by W do in a world of one? And averaging with W = 1 by ncclAvg?
    NOT_YET("4.4");
}

Status fsdp_finish_backward(FsdpRoot *root)
{
    // TODO 4.5: Every unit of the root is sharded, unused prefetches included; no buffer is left to
    // free; and later work on the compute stream sees every gradient reduced.
    // Hint: The compute stream waits for one reduce-scatter only. Which, and why is that enough?
    NOT_YET("4.5");
}

Status fsdp_pre_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;
    unit->phase = FSDP_PRE_BACKWARD;
    if (root->iter_backward_root == NULL) root->iter_backward_root = unit;

    // TODO 4.6: The unit is FLAT_UNSHARDED and has a gradient of zeros. The parameters that were
    // resharded last are freed. The all-gather of the unit whose forward ended just before this
    // one's (fsdp_pop_post_forward) is queued, and nobody waits for it (see [Note: gather ahead]).
    // Hint: Two units' parameters may be unsharded at a time. Why does the free come first here?
    NOT_YET("4.6");
}

Status fsdp_post_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    unit->phase = FSDP_POST_BACKWARD;

    // TODO 4.7: The unit is resharded, whatever the options say, and its gradient is being reduced.
    // If its backward was the outermost (root->iter_backward_root), the backward is finished.
    // Hint: The forward may keep a unit unsharded. Who reads its parameters after this?
    NOT_YET("4.7");
    unit->phase = FSDP_IDLE;
    return OK;
}
