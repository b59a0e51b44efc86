/* per_parameter.h: units that are cut parameter by parameter, as FSDP2 has them. The contract that
 * lab 6 implements.
 *
 *   file               half             main functions
 *   per_parameter.c    the layout       per_parameter_layout, its copies, param_groups_apply
 *
 * A flat parameter is cut without regard to where a parameter ends. Here dimension 0 of each
 * parameter is cut instead, as torch.chunk cuts it: into chunks of ceil(rows / W) rows, of which
 * the last may have fewer, or none. Every chunk is padded to the first one's size, and a rank's
 * shard is its chunks of all the unit's parameters, one after the other:
 *
 *   a (5 rows of 2), b (3 rows of 1), 2 ranks
 *     rank 0   a[0..2] | b[0..1]       6 + 2 elements
 *     rank 1   a[3..4] . | b[2] .      as many, 3 of them padding
 *
 * So a collective has equal shards, as ever, but what it gathers lies rank by rank, and a parameter
 * is to be contiguous. The all-gather fills a *gather buffer*; *copy-out* copies from it into the
 * unsharded parameters, each contiguous, its padding at its end. Gradients go the other way: they
 * are written parameter by parameter, and *copy-in* brings them into the order of the ranks before
 * they are reduced. The layout is chosen unit by unit:
 *
 *   FsdpOptions options = {.layout = per_parameter_layout};
 *
 * and all else stays: fully_shard and its hooks, strategies, precision, accumulation, replicas,
 * checkpoints. With reshard_ranks, and with align_shards, it is refused.
 *
 * A parameter may be *frozen* (param->frozen, set before fully_shard): it is gathered like the
 * others, and has no gradient, no optimizer state and no part in a reduction. In a unit the
 * parameters that train come first, in the order of the walk, then the frozen ones.
 *
 * Sizes are in elements unless a name says bytes. Every function that returns a Status prints one
 * line if it fails.
 */
#ifndef SHARDLAB_PER_PARAMETER_H
#define SHARDLAB_PER_PARAMETER_H

#include "extensions.h"

#define Status CHECKED_STATUS // as check.h says

// Elements of the first chunk of the parameter on `world` ranks, the size of all of them.
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

// Given code (lib/fsdp/layout_memory.c): new memory on the compute stream, as long as the buffer
// says, which the log calls an unsharded parameter or gradient. The buffer's data is overwritten:
// who wants to free the old memory keeps its address (of a gradient the log gives it that name,
// too). And frees extensions->copied_out on the all-gather stream, once the copy has passed;
// nothing if there is none.
Status layout_alloc_param(FsdpUnit *unit, Buffer *param);
Status layout_alloc_grad(FsdpUnit *unit, Buffer *grad);
Status layout_free_copied_out(FsdpRoot *root);

// Different learning rates, or decays, by parameter: `choose` may change the configuration for one.
typedef struct ParamGroups {
    void (*choose)(const Param *param, AdamWConfig *config, void *arg);
    void *arg;
} ParamGroups;

// From now on a step of `opt` asks the groups, which stay the caller's; NULL: one configuration
// for all, as before. With any layout: a kernel per parameter of which this rank has elements.
void param_groups_apply(FsdpAdamW *opt, const ParamGroups *groups);
// The optimizer's groups, or NULL.
const ParamGroups *param_groups_of(const FsdpAdamW *opt);

#undef Status

#endif
