/* per_parameter.h: cuts units parameter by parameter, as FSDP2 does. The first half of lab 6's
 * contract; the second is fp8_gather.h.
 *
 *   file               half             main functions
 *   per_parameter.c    the layout       per_parameter_layout, its copies, param_groups_apply
 *
 * A flat parameter is cut without regard to where a parameter ends. This layout cuts dimension 0 of
 * each parameter, like torch.chunk: into chunks of ceil(rows / W) rows, of which the last may have
 * fewer, or none. Every chunk is padded to the first one's size, and a rank's shard is its chunks
 * of all the unit's parameters, one after the other:
 *
 *   a (5 rows of 2), b (3 rows of 1), 2 ranks
 *     rank 0   a[0..2] | b[0..1]       6 + 2 elements
 *     rank 1   a[3..4] . | b[2] .      as many, 3 of them padding
 *
 * So a collective has equal shards, as always, but gathers them rank by rank, while a parameter
 * must be contiguous. The all-gather fills a *gather buffer*; *copy-out* copies from it into the
 * unsharded parameters, each contiguous, with its padding at its end. Gradients go the other way:
 * the backward writes them parameter by parameter, and *copy-in* brings them into the order of the
 * ranks before they are reduced. Each unit can choose the layout:
 *
 *   FsdpOptions options = {.layout = per_parameter_layout};
 *
 * The rest stays: fully_shard and its hooks, strategies, precision, accumulation, replicas,
 * checkpoints. reshard_ranks and align_shards are refused.
 *
 * A parameter may be *frozen* (param->frozen, set before fully_shard): it is gathered like the
 * others, but has no gradient, no optimizer state and no part in a reduction. In a unit the
 * parameters that train come first, in the order of the walk, then the frozen ones.
 *
 * Sizes are in elements unless a name says bytes. Every function that returns a Status prints one
 * line if it fails.
 */
#ifndef SHARDLAB_PER_PARAMETER_H
#define SHARDLAB_PER_PARAMETER_H

#include "extensions.h"

#define Status CHECKED_STATUS // as check.h says

// Elements of the parameter's first chunk on `world` ranks, the size of each chunk.
int64_t per_parameter_chunk(const Param *param, int world);

// A LayoutFn: see above. offset[i] is where parameter i begins in the unsharded buffer, world ·
// (the chunks before it). numel counts no padding; grad_numel is the chunks of those that train.
// ERR_ARGUMENT for what flat_layout refuses, except frozen parameters, and for `align`.
Status per_parameter_layout(FlatLayout *layout, const char *name, Param **params, int n, int rank,
                            int world, bool align);

// The layout's own functions (fsdp.h). Padding may be anywhere in a shard. The layout copies out
// after the wait for an all-gather, and copies in before a reduction: on the compute stream, one
// copy per parameter. If one rank shards alone, nothing is copied.
//
// Copy-out allocates the unsharded parameters. In a forward the gather buffer stays until the next
// copy-out, so that the next all-gather does not wait for this copy, or until the outermost forward
// ends (extensions->copied_out): at most two gather buffers exist. Elsewhere it is freed at once.
// Copy-in frees the unsharded gradient; before it allocates, it frees the last reduction's buffer.
// If a copy fails, one buffer of each is left, which fsdp_reshard_all or the next reduction frees.
extern const FlatLayoutOps PER_PARAMETER_OPS;

// Given code (lib/fsdp/layout_memory.c). The first two allocate memory on the compute stream, of
// the buffer's type and length, and name it an unsharded parameter or gradient in the log. They
// overwrite the buffer's data: keep its address if you want to free the old memory (an old gradient
// gets that name in the log, too). The third frees extensions->copied_out, if there is one, on the
// all-gather stream, after its copy.
Status layout_alloc_param(FsdpUnit *unit, Buffer *param);
Status layout_alloc_grad(FsdpUnit *unit, Buffer *grad);
Status layout_free_copied_out(FsdpRoot *root);

// Learning rates, or decays, by parameter: `choose` may change the configuration of one parameter.
typedef struct ParamGroups {
    void (*choose)(const Param *param, AdamWConfig *config, void *arg);
    void *arg;
} ParamGroups;

// From now on a step of `opt` uses the groups, which the caller keeps; NULL: one configuration for
// all, as before. Works with any layout: a kernel per parameter of which this rank has elements.
void param_groups_apply(FsdpAdamW *opt, const ParamGroups *groups);
// The optimizer's groups, or NULL.
const ParamGroups *param_groups_of(const FsdpAdamW *opt);

#undef Status

#endif
