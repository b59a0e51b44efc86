/* Task 3: forward. A unit's parameters are unsharded only while it runs.
 *
 * Before a unit's forward its shards are all-gathered into a new buffer; after it the buffer is
 * freed. So a rank holds its shards and about two units, not the model:
 *
 *     all-gather   AG 0 | AG 1      | free 0, AG 2      | free 1 …
 *     compute           | forward 0 | forward 1         | forward 2 …
 *
 * Three rules make this right and quick.
 *
 * [Note: whose buffer] A buffer is allocated and freed on one stream, the all-gather stream, in that
 * stream's order. The compute stream only reads it, between two events: it waits for all_gather_done
 * before the first read, and the all-gather stream waits for an event recorded after the last.
 *
 * [Note: free late] To free unit i's buffer the all-gather stream must wait for forward i. If that
 * wait came before all-gather i+1, the two could not overlap. So reshard only leaves the buffer in
 * root->all_gather_state, and the next pre-forward hook queues its all-gather first, the wait and
 * the free after it. At most one buffer is left there at a time: two units are unsharded, whatever
 * the depth.
 *
 * [Note: after the optimizer] The optimizer writes the shards on the compute stream. The first
 * all-gather of an iteration must wait for it, once: the outermost forward ensures this.
 *
 * Interface:
 *   fsdp_all_gather                           the collective alone; what unit->all_gather is
 *   fsdp_unshard, fsdp_wait_for_unshard, fsdp_reshard
 *                                             sharded → unsharding → unsharded → sharded
 *   fsdp_free_all_gather                      frees the buffer that was resharded last
 *   fsdp_reshard_all                          all units of a root
 *   fsdp_pre_forward, fsdp_post_forward       the hooks
 *
 * Source of the schedule: PyTorch FSDP2 (torch/distributed/fsdp/_fully_shard), which copies into
 * and out of its gather buffers; a flat parameter is gathered in place.
 */
#include "fsdp.h"

// Makes stream `waiter` wait for everything that `worker` has queued so far.
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

    //[3.1] Queue, on the all-gather stream, the ncclAllGather of sharded_param into
    //  unsharded_param. dtype_nccl is NCCL's name for the type.
    //? The count of ncclAllGather: what one rank sends, or what it receives?
    NCCL_TRY(ncclAllGather(flat->sharded_param.data, flat->unsharded_param.data,
                           (size_t)flat->layout.shard_numel, dtype_nccl(flat->sharded_param.dtype),
                           ctx->mesh.shard.comm, ctx->all_gather_stream));
    return OK;
    //[end 3.1]
}

Status fsdp_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    if (flat->state != FLAT_SHARDED) return OK;

    //[3.2] With one rank unsharded_param is the memory of sharded_param, no call at all. Else, on
    //  the all-gather stream: cudaMallocAsync of the memory, unit->all_gather, cudaEventRecord of
    //  all_gather_done. Then the views, and the state is FLAT_UNSHARDING.
    //? Which stream will free this memory, and whose order does its life follow?
    if (flat->layout.world == 1) {
        flat->unsharded_param.data = flat->sharded_param.data;
    } else {
        CUDA_TRY(cudaMallocAsync(&flat->unsharded_param.data, buffer_bytes(&flat->unsharded_param),
                                 ctx->all_gather_stream));
        TRY(unit->all_gather(unit));
        CUDA_TRY(cudaEventRecord(flat->all_gather_done, ctx->all_gather_stream));
    }
    flat_set_views(flat);
    return flat_set_state(flat, FLAT_UNSHARDING);
    //[end 3.2]
}

Status fsdp_wait_for_unshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    if (flat->state == FLAT_UNSHARDED) return OK;

    //[3.3] The compute stream must not read the parameters before they are there:
    //  cudaStreamWaitEvent for all_gather_done (not with one rank, where nothing was recorded). The
    //  host waits for nothing. The state is FLAT_UNSHARDED; where that is not legal, nothing waits.
    //? Which stream waits, and which one recorded?
    TRY(flat_set_state(flat, FLAT_UNSHARDED));
    if (flat->layout.world > 1)
        CUDA_TRY(cudaStreamWaitEvent(unit->ctx->compute_stream, flat->all_gather_done, 0));
    return OK;
    //[end 3.3]
}

Status fsdp_free_all_gather(FsdpRoot *root)
{
    AllGatherState *state = &root->all_gather_state;
    cudaStream_t stream = root->ctx->all_gather_stream;
    if (state->buffer == NULL) return OK;

    //[3.4] On the all-gather stream: wait for state->event, then cudaFreeAsync. Nothing is left to
    //  free afterwards (state->buffer NULL); the event stays, for the next.
    //? What could be allocated in the same place if the wait were left out?
    CUDA_TRY(cudaStreamWaitEvent(stream, state->event, 0));
    CUDA_TRY(cudaFreeAsync(state->buffer, stream));
    state->buffer = NULL;
    return OK;
    //[end 3.4]
}

Status fsdp_reshard(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    AllGatherState *state = &unit->root->all_gather_state;
    if (flat->state == FLAT_SHARDED) return OK;

    //[3.5] Nobody may use the parameters any more: FLAT_SHARDED (first: where that is not legal,
    //  nothing changes), unsharded_param has no memory, and so the views have none. The buffer goes
    //  to root->all_gather_state, with its event recorded on the compute stream after the unit's
    //  kernels (see [Note: free late]). It has room for one buffer: free the one before. With one
    //  rank there is no buffer to free, only the state and the views change.
    void *buffer = flat->unsharded_param.data;
    TRY(flat_set_state(flat, FLAT_SHARDED));
    flat->unsharded_param.data = NULL;
    flat_set_views(flat);
    if (flat->layout.world == 1) return OK;
    TRY(fsdp_free_all_gather(unit->root));
    CUDA_TRY(cudaEventRecord(state->event, ctx->compute_stream));
    state->buffer = buffer;
    return OK;
    //[end 3.5]
}

Status fsdp_reshard_all(Module *module)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    for (int i = 0; i < root->n_units; i++) {
        FsdpUnit *unit = root->units[i];
        if (unit->flat.state == FLAT_UNSHARDING) TRY(fsdp_wait_for_unshard(unit));
        TRY(fsdp_reshard(unit));
        unit->phase = FSDP_IDLE;
    }
    TRY(fsdp_free_all_gather(root));
    fsdp_clear_post_forward(root);
    root->iter_forward_root = root->iter_backward_root = NULL;
    return OK;
}

Status fsdp_pre_forward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;
    FsdpContext *ctx = unit->ctx;
    unit->phase = FSDP_FORWARD;

    //[3.6] The outermost forward begins an iteration (root->iter_forward_root is NULL):
    //  fsdp_begin_forward, and the all-gather stream waits for the compute stream
    //  (stream_wait_stream), where the optimizer has written the shards. Every unit then: unshard,
    //  free what the unit before it resharded, wait.
    //? Why does the free come after the unshard here? (See [Note: free late].)
    if (root->iter_forward_root == NULL) {
        fsdp_begin_forward(unit);
        TRY(stream_wait_stream(ctx, ctx->all_gather_stream, ctx->compute_stream));
    }
    TRY(fsdp_unshard(unit));
    TRY(fsdp_free_all_gather(root));
    TRY(fsdp_wait_for_unshard(unit));
    return OK;
    //[end 3.6]
}

// Whether the unit frees its parameters between its forward and its backward.
static bool reshards_after_forward(const FsdpUnit *unit)
{
    if (unit->reshard_after_forward == FSDP_RESHARD_AUTO) return !fsdp_is_root(unit);
    return unit->reshard_after_forward == FSDP_RESHARD_ALWAYS;
}

Status fsdp_post_forward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;

    //[3.7] Reshard where the unit is to (reshards_after_forward), and record that its forward has
    //  ended (fsdp_record_post_forward). The outermost forward frees the last buffer, and is over:
    //  root->iter_forward_root is NULL again.
    //? h.0 holds attn and mlp, units too. In which order do the three forwards end?
    if (reshards_after_forward(unit)) TRY(fsdp_reshard(unit));
    TRY(fsdp_record_post_forward(unit));
    if (root->iter_forward_root == unit) {
        TRY(fsdp_free_all_gather(root));
        root->iter_forward_root = NULL;
    }
    //[end 3.7]
    unit->phase = FSDP_IDLE;
    return OK;
}
