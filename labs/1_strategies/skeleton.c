/* Lab 1, first file: shards and replicas. Which ranks keep what, and which sum gradients.
 *
 * The six tasks have built ZeRO-3. The other strategies keep more and send less. None of them needs
 * a different all-gather or optimizer: they differ in when a unit is resharded, when its gradient
 * is reduced, and over which ranks.
 *
 *              unsharded parameters stay   unsharded gradients    a gradient is reduced
 *     ZeRO-1   for all micro-batches       for all micro-batches  by the last micro-batch
 *     ZeRO-2   from forward to backward    in a unit's backward   by each, or by the last
 *     ZeRO-3   while the unit runs         in a unit's backward   by each, or by the last
 *
 * [Note: two streams] With replicas a gradient needs two collectives: a reduce-scatter within a
 * replica, an all-reduce between replicas. On one stream the next unit's reduce-scatter would wait
 * for this unit's all-reduce. So the all-reduce has its own stream and works in its own memory, and
 * the unsharded gradient is freed as always.
 *
 * [Note: one order] Two communicators are two queues. Ranks that enter them in different orders can
 * wait for each other forever. Every rank runs the same hooks in the same order, and so calls the
 * collectives of both in one order; nothing here may depend on what only one rank knows.
 *
 * Interface:
 *   mesh_2d, mesh_destroy                     shards × replicas, a communicator for each group
 *   strategy_apply, strategy_remove           puts a strategy into a root's units, and undoes it
 *   strategy_micro_batch, fsdp_set_training   flags of the next micro-batch
 *   strategy_reduce                           the sum over the ranks that shard, then the replicas
 *   strategy_pre_backward, strategy_post_backward     the hooks
 */
// Lab 1. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is labs/1_strategies/handout.md; `make grade LAB=1` says how far you are.
#include "strategy.h"

#include <math.h>
#include <stdlib.h>

#include "kernels.h"

Status mesh_2d(Mesh *mesh, ncclComm_t world, int replicas)
{
    int rank, size;
    NCCL_TRY(ncclCommUserRank(world, &rank));
    NCCL_TRY(ncclCommCount(world, &size));
    if (replicas < 1 || size % replicas != 0)
        return fail(ERR_ARGUMENT, "%d ranks cannot form %d replicas of equal size", size, replicas);
    int shards = size / replicas;
    *mesh = (Mesh){.shard = {.size = shards}, .replicate = {.size = replicas}};
    // TODO L1.1: Both groups have this rank's place and, where mesh.h says so, a communicator.
    // Hint: Which ranks shard with rank 5 of 8, with 2 replicas? Which hold the same shard?
    NOT_YET("L1.1");
}

Status mesh_destroy(Mesh *mesh, ncclComm_t world)
{
    ProcessGroup *const groups[] = {&mesh->shard, &mesh->replicate};
    for (int i = 0; i < 2; i++) {
        ncclComm_t comm = groups[i]->comm;
        groups[i]->comm = NULL;
        if (comm != NULL && comm != world) NCCL_TRY(ncclCommDestroy(comm));
    }
    return OK;
}

// Frees the sum that was all-reduced last, on the reduce-scatter stream that owns it.
static Status free_all_reduce(StrategyState *state)
{
    ReduceScatterState *last = &state->all_reduce_state;
    cudaStream_t stream = state->root->ctx->reduce_scatter_stream;
    if (last->buffer == NULL) return OK;
    CUDA_TRY(cudaStreamWaitEvent(stream, last->event, 0));
    CUDA_TRY(cudaFreeAsync(last->buffer, stream));
    last->buffer = NULL;
    return OK;
}

// ---- Applying and removing a strategy ----

// Whether options, mesh and units go together.
static Status check_options(const FsdpRoot *root, const StrategyOptions *o)
{
    int shards = root->ctx->mesh.shard.size, all = mesh_size(&root->ctx->mesh);
    if (root->extensions->strategy != NULL)
        return fail(ERR_ARGUMENT, "%s has a strategy already", root->units[0]->flat.name);
    if (o->reshard_ranks != 0 && o->strategy != STRATEGY_ZERO3)
        return fail(ERR_ARGUMENT,
                    "reshard_ranks is %d: only ZeRO-3 reshards between forward and backward",
                    o->reshard_ranks);
    if (o->reshard_ranks != 0 &&
        (o->reshard_ranks < 2 || o->reshard_ranks >= shards || shards % o->reshard_ranks != 0))
        return fail(ERR_ARGUMENT,
                    "reshard_ranks is %d: it must divide the %d ranks that shard, and be neither 1 "
                    "(use ZeRO-2 for that) nor all of them (use 0 for that)",
                    o->reshard_ranks, shards);
    if (o->divide_factor != 0.0f && o->divide_factor != 1.0f && all == 1)
        return fail(ERR_ARGUMENT,
                    "one rank reduces nothing, so nothing is divided: the factor is 1");
    if (!(o->divide_factor >= 0.0f) || isinf(o->divide_factor))
        return fail(ERR_ARGUMENT, "a divide factor of %g: it must be positive and finite, or 0",
                    (double)o->divide_factor);
    if (o->first_bucket_bytes < 0 || o->bucket_bytes < 0)
        return fail(ERR_ARGUMENT, "a bucket of %lld bytes: it must be positive, or 0",
                    (long long)(o->bucket_bytes < 0 ? o->bucket_bytes : o->first_bucket_bytes));
    if (o->strategy > STRATEGY_ZERO3)
        return fail(ERR_ARGUMENT, "%d is not a Strategy", (int)o->strategy);
    if (o->strategy == STRATEGY_DDP && shards > 1)
        return fail(ERR_ARGUMENT, "DDP shards nothing: its mesh has %d replicas, not %d", all,
                    all / shards);
    if (o->strategy == STRATEGY_DDP && root->n_units > 1)
        return fail(ERR_ARGUMENT, "DDP wants one unit, the model, not %d", root->n_units);
    if (o->strategy != STRATEGY_DDP && shards == 1 && all > 1)
        return fail(ERR_ARGUMENT, "a mesh of %d replicas leaves no rank to shard with: take DDP",
                    all);
    if (o->strategy == STRATEGY_ZERO1 && o->reduce_every_time)
        return fail(ERR_ARGUMENT,
                    "ZeRO-1 keeps its gradients until the last micro-batch: it cannot "
                    "reduce every time");
    return OK;
}

// Whether the units' layouts suit the strategy.
static Status check_layouts(const FsdpRoot *root, const StrategyOptions *o)
{
    for (int i = 0; i < root->n_units; i++) {
        const FlatParam *flat = &root->units[i]->flat;
        if (o->reshard_ranks != 0 && flat->layout.ops != &FLAT_LAYOUT_OPS)
            return fail(ERR_ARGUMENT,
                        "%s: a slice (reshard_ranks) is a part of the gathered buffer, which this "
                        "layout does not keep",
                        flat->name);
        if (o->strategy == STRATEGY_DDP && flat->layout.grad_numel < flat->layout.shard_numel)
            return fail(ERR_ARGUMENT,
                        "%s: DDP sums every parameter's gradient, and some are frozen: take ZeRO",
                        flat->name);
    }
    return OK;
}

// Sets reshard_after_forward of every unit.
static void set_reshard_after_forward(StrategyState *state)
{
    // TODO L1.2: reshard_after_forward of every unit is what the strategy wants. In an evaluation
    // every unit is resharded, even the root.
    // Hint: ZeRO-1 and ZeRO-2 keep the parameters for the backward. What does ZeRO-3 do with the
    // root?
    NOT_YET("L1.2");
}

// Runs after the root's own hook. An evaluation has no backward that would clear the recorded
// order.
static Status after_forward(Module *module, void *arg)
{
    StrategyState *state = arg;
    if (!state->training) fsdp_clear_post_forward(state->root);
    return OK;
}

// The streams, events, tables and communicator of a state.
static Status create_state(StrategyState *state)
{
    FsdpRoot *root = state->root;
    int least, greatest;
    state->partial = calloc((size_t)root->n_units, sizeof *state->partial);
    state->slices = calloc((size_t)root->n_units, sizeof *state->slices);
    if (state->partial == NULL || state->slices == NULL)
        return fail(ERR_MEMORY, "no host memory for a strategy");
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(
        cudaStreamCreateWithPriority(&state->all_reduce_stream, cudaStreamNonBlocking, greatest));
    CUDA_TRY(cudaEventCreateWithFlags(&state->reduced, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&state->all_reduce_state.event, cudaEventDisableTiming));
    state->after_forward =
        module_add_hook(root->units[0]->module, HOOK_POST_FORWARD, after_forward, state);
    if (state->after_forward == NULL) return ERR_MEMORY;
    if (state->options.reshard_ranks > 0)
        TRY(group_split(&state->slice_group, &root->ctx->mesh.shard, state->options.reshard_ranks));
    return state->options.strategy == STRATEGY_DDP ? ddp_create(state) : OK;
}

// Replaces the unit's collectives and hooks by the strategy's.
static void take_over(FsdpUnit *unit, const StrategyOptions *o)
{
    unit->reduce_scatter = o->strategy == STRATEGY_DDP ? ddp_reduce : strategy_reduce;
    unit->hooks[HOOK_PRE_BACKWARD]->fn = strategy_pre_backward;
    unit->hooks[HOOK_POST_BACKWARD]->fn = strategy_post_backward;
    if (o->reshard_ranks == 0 || fsdp_is_root(unit)) return;
    unit->all_gather = strategy_all_gather;
    unit->hooks[HOOK_POST_FORWARD]->fn = strategy_post_forward;
}

Status strategy_apply(Module *module, const StrategyOptions *options)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(check_options(root, options));
    TRY(check_layouts(root, options));
    StrategyState *state = calloc(1, sizeof *state);
    if (state == NULL) return fail(ERR_MEMORY, "no host memory for a strategy");
    *state = (StrategyState){.options = *options,
                             .root = root,
                             .reduce_input = strategy_reduce_input,
                             .divided_before = 1.0f,
                             .requires_gradient_sync = true,
                             .requires_all_reduce = true,
                             .is_last_backward = true,
                             .reshard_after_backward = true,
                             .training = true};
    StrategyOptions *o = &state->options;
    if (o->divide_factor == 0.0f) o->divide_factor = (float)mesh_size(&root->ctx->mesh);
    if (o->first_bucket_bytes == 0) o->first_bucket_bytes = 1 << 20;
    if (o->bucket_bytes == 0) o->bucket_bytes = 25 << 20;
    Status status = extension_push(root, EXTENSION_STRATEGY);
    if (status != OK) {
        free(state);
        return status;
    }
    root->extensions->strategy = state;
    status = create_state(state);
    for (int i = 0; i < root->n_units; i++) take_over(root->units[i], o);
    set_reshard_after_forward(state);
    if (status != OK) IGNORE_STATUS(strategy_remove(module));
    return status;
}

Status strategy_remove(Module *module)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(extension_check_last(root, EXTENSION_STRATEGY));
    StrategyState *state = root->extensions->strategy;
    ddp_destroy(state);
    if (state->after_forward != NULL) { // made last: stream and event exist
        module_remove_hook(module, state->after_forward);
        TRY(stream_run_after(root->ctx->compute_stream, state->all_reduce_stream, state->reduced));
    }
    TRY(fsdp_finish_backward(root));
    TRY(strategy_free_sums(state));
    for (int i = 0; i < root->n_units; i++) {
        FlatParam *flat = &root->units[i]->flat;
        // An accumulated gradient that was never reduced. With one rank it is the shard.
        if (mesh_size(&root->ctx->mesh) > 1) cudaFree(flat->unsharded_grad.data);
        flat->unsharded_grad.data = NULL;
        flat_set_grad_views(flat);
    }
    TRY(group_destroy(&state->slice_group));
    if (state->reduced != NULL) CUDA_TRY(cudaEventDestroy(state->reduced));
    if (state->all_reduce_state.event != NULL)
        CUDA_TRY(cudaEventDestroy(state->all_reduce_state.event));
    if (state->all_reduce_stream != NULL) CUDA_TRY(cudaStreamDestroy(state->all_reduce_stream));
    free(state->partial);
    free(state->slices);
    free(state);
    root->extensions->strategy = NULL;
    extension_pop(root);
    return OK;
}

// ---- Flags of the next micro-batch ----

Status strategy_micro_batch(Module *root, int i, int n)
{
    StrategyState *state;
    TRY(strategy_find(root, &state));
    if (n < 1 || i < 0 || i >= n) return fail(ERR_ARGUMENT, "micro-batch %d of %d", i, n);
    // TODO L1.3: The four flags are those of micro-batch i: does its backward reduce, does it
    // reduce over the replicas too, is it the last, and are the parameters resharded after it?
    // Hint: Which strategy keeps parameters from one micro-batch to the next?
    NOT_YET("L1.3");
}

Status fsdp_set_training(Module *root, bool on)
{
    StrategyState *state;
    TRY(strategy_find(root, &state));
    state->training = on;
    set_reshard_after_forward(state);
    return OK;
}

// ---- Reducing ----

// Sums the gradient over the ranks that shard, in new memory (grad_numel), and adds the sum to
// *partial.
static Status reduce_within(FsdpUnit *unit, Buffer *partial)
{
    FlatParam *flat = &unit->flat;
    cudaStream_t stream = unit->ctx->reduce_scatter_stream;
    Buffer *sum = &unit->root->extensions->strategy->sum; // has memory only during this call
    *sum = (Buffer){NULL, flat->unsharded_grad.dtype, flat->sharded_grad.numel};
    // TODO L1.4: The gradient is summed over the ranks that shard; this rank's shard of the sum has
    // been added to *partial, which the reduce-scatter stream owns; if *partial had no memory, it
    // now is that sum. Allocate new memory in *sum, where given code frees it if a call fails.
    // Hint: Could the sum stay in unsharded_grad? Who frees that, and when?
    NOT_YET("L1.4");
}

// Sums *partial over the replicas, divides the sum by the factor, and adds the quotient to the
// gradient shard, but not to its padding: the reduce-scatter stream may be zeroing that.
static Status reduce_between(FsdpUnit *unit, Buffer *partial)
{
    StrategyState *state = unit->root->extensions->strategy;
    FlatParam *flat = &unit->flat;
    cudaStream_t stream = state->all_reduce_stream;
    size_t valid = (size_t)flat_valid_numel(&flat->layout, flat->layout.rank);
    if (valid > (size_t)partial->numel) valid = (size_t)partial->numel; // frozen: no gradient
    // TODO L1.5: When the all-reduce stream has run what is queued, the sum over the replicas
    // divided by the factor has been added to the valid elements of sharded_grad.
    // state->all_reduce_state holds the buffer, and its event is recorded after the last use; the
    // buffer that it held before is freed; *partial has no memory.
    // Hint: Two streams and one buffer: which waits for which, before the all-reduce and before the
    // free?
    NOT_YET("L1.5");
}

Status strategy_reduce(FsdpUnit *unit)
{
    StrategyState *state = unit->root->extensions->strategy;
    FlatParam *flat = &unit->flat;
    cudaStream_t stream = unit->ctx->reduce_scatter_stream;
    size_t n = (size_t)flat->sharded_grad.numel;

    // TODO L1.6: The gradient is reduced as strategy.h says. If this backward does not all-reduce,
    // its sum stays in state->partial, for a later backward that does.
    // Hint: Without replicas, what is different from task 4?
    NOT_YET("L1.6");
}

// ---- The hooks ----

Status strategy_pre_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;
    unit->phase = FSDP_PRE_BACKWARD;
    if (root->iter_backward_root == NULL) {
        root->iter_backward_root = unit;
        ddp_begin_backward(root->extensions->strategy);
    }
    // TODO L1.7: All is as part 4.6 leaves it, with two changes. If an earlier micro-batch has left
    // an unsharded gradient, it stays, and the backward adds to it. The gradient that the previous
    // micro-batch was reducing is freed when the outermost backward begins; a forward has run
    // since, so nothing stalls.
    // Hint: What does fsdp_begin_grad return for a unit that has a gradient?
    NOT_YET("L1.7");
}

// Ends the outermost backward.
static Status end_backward(FsdpRoot *root)
{
    StrategyState *state = root->extensions->strategy;
    // TODO L1.8: After the last backward of a step everything is as fsdp_finish_backward leaves it,
    // the compute stream has waited for every reduction, also over the replicas, and no sum is left
    // to free. After an earlier backward no pass is running and no forward is recorded; gradients
    // and sums stay as they are, and no stream has waited for them.
    // Hint: What would a wait cost after each of eight micro-batches?
    NOT_YET("L1.8");
}

Status strategy_post_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    const StrategyState *state = unit->root->extensions->strategy;
    unit->phase = FSDP_POST_BACKWARD;
    // TODO L1.9: The unit is resharded if its strategy reshards now, and its gradient is being
    // reduced if gradients synchronise now. If this was the outermost backward, it has ended
    // (end_backward).
    // Hint: Without a reduction, what is in the shard, and what in the unsharded gradient?
    NOT_YET("L1.9");
    unit->phase = FSDP_IDLE;
    return OK;
}
