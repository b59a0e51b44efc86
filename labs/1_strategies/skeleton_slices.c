/* Lab 1, third file: slices. Between forward and backward a rank keeps a larger part.
 *
 * ZeRO-3 gathers each unit twice from all ranks that shard; on many hosts it uses the slowest wire
 * twice. With reshard_ranks = N a unit keeps one of N *slices* after its forward. If a host has N
 * ranks, the second all-gather stays within the host:
 *
 *     8 ranks           ZeRO-3                    with reshard_ranks = 4
 *     forward           all-gather from 8 ranks   all-gather from 8 ranks
 *     ranks then keep   0 1 2 3 4 5 6 7           01 23 45 67 01 23 45 67 (numbers of shards)
 *     backward          all-gather from 8 ranks   all-gather from 4 neighbours
 *
 * Optimizer and gradients only use the shards. A slice is a copy, which the backward's all-gather
 * frees. (ZeRO++ calls it the secondary partition, hpZ; FSDP2: an integer reshard_after_forward.)
 *
 * [Note: one stream] The all-gather stream has written the source of a slice, and will send the
 * slice. So only this stream uses it, and no stream waits.
 *
 * [Note: made once] strategy_apply makes the neighbours' communicator. Making one in each call
 * would take another collective over all ranks, and leak memory (PyTorch's #147179).
 *
 * Interface:
 *   group_split, group_destroy                neighbours within a group
 *   strategy_all_gather                       unit->all_gather: slices, or shards
 *   strategy_post_forward                     the hook
 */
// Lab 1. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is labs/1_strategies/handout.md; `make grade LAB=1` says how far you are.
#include "strategy.h"

Status group_split(ProcessGroup *part, const ProcessGroup *group, int ranks)
{
    *part = (ProcessGroup){.size = 0};
    if (ranks < 2 || ranks >= group->size || group->size % ranks != 0)
        return fail(ERR_ARGUMENT, "%d ranks cannot be cut into parts of %d neighbours", group->size,
                    ranks);
    // TODO L1.14: The part has this rank's place, its size and its communicator.
    // Hint: Which ranks are in one part with rank 5 of 8, if a part has 2 ranks? And if it has 4?
    NOT_YET("L1.14");
}

Status group_destroy(ProcessGroup *part)
{
    ncclComm_t comm = part->comm;
    part->comm = NULL;
    if (comm != NULL) NCCL_TRY(ncclCommDestroy(comm));
    return OK;
}

// The unit's slice in the state.
static Buffer *slice_of(const FsdpUnit *unit)
{
    return &unit->root->extensions->strategy->slices[fsdp_unit_index(unit)];
}

// Keeps this rank's slice of the unit, which is unsharded.
static Status keep_slice(FsdpUnit *unit)
{
    StrategyState *state = unit->root->extensions->strategy;
    const FlatParam *flat = &unit->flat;
    Buffer *slice = slice_of(unit);
    cudaStream_t stream = unit->ctx->all_gather_stream;
    // TODO L1.15: The unit's place in state->slices has this rank's slice, a copy in its own
    // memory, and no other stream has to wait for it.
    // Hint: Which stream has written the source of the copy, and which one will read the copy?
    NOT_YET("L1.15");
}

Status strategy_post_forward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    if (unit->root->extensions->strategy->training) TRY(keep_slice(unit));
    return extension_before(unit, EXTENSION_STRATEGY)->hooks[HOOK_POST_FORWARD](module, unit);
}

Status strategy_all_gather(FsdpUnit *unit)
{
    StrategyState *state = unit->root->extensions->strategy;
    Buffer *slice = slice_of(unit);
    cudaStream_t stream = unit->ctx->all_gather_stream;
    // TODO L1.16: If the unit has a slice that a recorded forward has left, the slices are
    // gathered, else the shards (unit->gather_shards). Afterwards the unit has no slice.
    // Hint: A forward was discarded, and the optimizer has stepped. What is in the slice, what in
    // the shard? What does unit->n_indices say then (fsdp_clear_post_forward)?
    NOT_YET("L1.16");
}
