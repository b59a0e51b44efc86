/* Task 3: forward. A unit's parameters are unsharded only while it runs.
 *
 * Before a unit's forward its shards are all-gathered into a new buffer; after it the buffer is
 * freed. So a rank holds its shards and about two units, not the model:
 *
 *     all-gather   AG 0 | AG 1      | free 0, AG 2      | free 1 …
 *     compute           | forward 0 | forward 1         | forward 2 …
 *
 * Time runs from left to right. The hook before forward 1 queues AG 1, then free 0; the hook before
 * forward 2 queues AG 2, then free 1.
 *
 * Three rules make this correct and fast.
 *
 * [Note: whose buffer] A buffer is allocated and freed on one stream, the all-gather stream, in
 * that stream's order. The compute stream only reads it, between two events: it waits for
 * all_gather_done before the first read, and the all-gather stream waits for an event recorded
 * after the last.
 *
 * [Note: free late] To free unit i's buffer the all-gather stream must wait for forward i. If that
 * wait came before all-gather i+1, the two could not overlap. So reshard only leaves the buffer in
 * root->all_gather_state. The next pre-forward hook queues its all-gather first, then the wait and
 * the free. The state holds at most one buffer: apart from the root, two units are unsharded,
 * whatever the depth.
 *
 * [Note: after the optimizer] The optimizer writes the shards on the compute stream. The first
 * all-gather of an iteration must wait for it, once: the outermost forward ensures this.
 *
 * Interface:
 *   fsdp_all_gather                           the collective alone, unit->all_gather's default
 *   fsdp_unshard, fsdp_wait_for_unshard, fsdp_reshard
 *                                             sharded → unsharding → unsharded → sharded
 *   fsdp_free_all_gather                      frees the buffer that was resharded last
 *   fsdp_reshard_all                          all units of a root
 *   fsdp_pre_forward, fsdp_post_forward       the hooks
 *
 * Source of the schedule: PyTorch FSDP2 (torch/distributed/fsdp/_fully_shard), which copies into
 * and out of its gather buffers; a flat parameter is gathered in place.
 */
// Task 3 of 6. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is handouts/3_forward.md; `make grade TASK=3` says how far you are.
#include "fsdp.h"

// Makes stream `waiter` wait for everything that is queued on `worker` so far.
static Status stream_wait_stream(FsdpContext *ctx, cudaStream_t waiter, cudaStream_t worker)
{
    CUDA_TRY(cudaEventRecord(ctx->compute_done, worker));
    CUDA_TRY(cudaStreamWaitEvent(waiter, ctx->compute_done, 0));
    return OK;
}

Status fsdp_all_gather(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;

    // TODO 3.1: Once the all-gather stream has run what is queued, unsharded_param holds the shards
    // of all ranks, in rank order.
    // Hint: The count of an all-gather: what one rank sends, or what it receives?
    NOT_YET("3.1");
}

Status fsdp_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->state != FLAT_SHARDED) return OK;

    // TODO 3.2: The unit is FLAT_UNSHARDING. The allocation of its buffer and the collective
    // (unit->all_gather) are queued on the stream that owns the buffer, all_gather_done is
    // recorded after them, and the parameters are views. If flat_param_is_shard, then
    // unsharded_param points at the shard's memory, and nothing is queued.
    // Hint: Which stream will free this memory? On which must it then be allocated?
    NOT_YET("3.2");
}

Status fsdp_wait_for_unshard_default(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    if (flat->state == FLAT_UNSHARDED) return OK;

    // TODO 3.3: The unit is FLAT_UNSHARDED: from now on the compute stream reads no parameter
    // before its all-gather is done. The host has not waited. If the transition is not legal, no
    // wait is queued.
    // Hint: Which stream waits, and which one recorded the event? And with flat_param_is_shard?
    NOT_YET("3.3");
    return OK;
}

Status fsdp_free_all_gather(FsdpRoot *root)
{
    AllGatherState *state = &root->all_gather_state;
    cudaStream_t stream = root->ctx->all_gather_stream;
    if (state->buffer == NULL) return OK;

    // TODO 3.4: The buffer is freed on the stream that owns it, after the last kernel that reads
    // it, and state->buffer is NULL. The event stays, for the next buffer.
    // Hint: What could be allocated in the same place if nobody waited?
    NOT_YET("3.4");
}

Status fsdp_reshard_default(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    AllGatherState *state = &unit->root->all_gather_state;
    if (flat->state == FLAT_SHARDED) return OK;

    // TODO 3.5: The unit is FLAT_SHARDED and its parameters have no memory. root->all_gather_state
    // holds the buffer, and its event is recorded after the unit's kernels; a buffer that it held
    // before is freed. If the transition is not legal, nothing has changed. If the unsharded
    // parameter is the shard, the shard stays as it was.
    // Hint: There is room for one buffer. What does it hold when two units reshard back to back?
    NOT_YET("3.5");
}

Status fsdp_reshard_all(Module *module)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(fsdp_end_iteration(root));
    for (int i = 0; i < root->n_units; i++) {
        FsdpUnit *unit = root->units[i];
        if (unit->flat.state == FLAT_UNSHARDING) TRY(fsdp_wait_for_unshard(unit));
        TRY(fsdp_reshard(unit));
    }
    return fsdp_free_all_gather(root);
}

Status fsdp_pre_forward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;
    FsdpContext *ctx = unit->ctx;
    unit->phase = FSDP_FORWARD;

    // TODO 3.6: The unit is FLAT_UNSHARDED. The buffer that was resharded last is freed; this
    // unit's all-gather does not wait for the free. If no forward was running, this one is the
    // outermost (fsdp_begin_forward), and you have also made sure that no all-gather reads a shard
    // before the optimizer has written it.
    // Hint: Why does the free come after the unshard here? (See [Note: free late].)
    NOT_YET("3.6");
}

// Whether the unit frees its parameters between its forward and its backward.
static bool reshards_after_forward(const FsdpUnit *unit)
{
    if (unit->reshard_after_forward == FSDP_RESHARD_AUTO) return !fsdp_is_root(unit);
    return unit->reshard_after_forward == FSDP_RESHARD_ALWAYS;
}

Status fsdp_post_forward_default(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;

    // TODO 3.7: The unit is resharded if reshards_after_forward says so, and recorded as the
    // forward that ended last. If it was the outermost, no buffer is left to free and no forward is
    // running.
    // Hint: h.0 is a unit, and so are attn and mlp in it. In which order do the three forwards end?
    NOT_YET("3.7");
    unit->phase = FSDP_IDLE;
    return OK;
}
