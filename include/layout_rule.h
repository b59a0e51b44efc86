/* layout_rule.h: what another layout than the flat one does in place of flat_param.c. Given code.
 *
 * The collectives of a unit know equal shards in rank order, and nothing of parameters. So a layout
 * that cuts a unit in another way leaves them as they are: it says which element is where, and
 * stands between the two orders. After an all-gather it copies out, before a reduction it copies in.
 *
 *   flat    gathered in place: views into the buffer that the all-gather has filled
 *   other   all-gather → [rank by rank] → copy_out → [parameter by parameter], of which offset says
 *           where each begins; gradients the other way, by copy_in
 */
#ifndef SHARDLAB_LAYOUT_RULE_H
#define SHARDLAB_LAYOUT_RULE_H

#include "fsdp.h"

typedef struct LayoutRule {
    // What flat_valid_numel, flat_param_range_in_shard and flat_zero_padding do. Padding may be
    // anywhere in the shard; valid_numel says where the last valid element ends.
    int64_t (*valid_numel)(const FlatLayout *layout, int rank);
    void (*param_range)(const FlatLayout *layout, int i, int rank, int64_t *begin, int64_t *end,
                        int64_t *at);
    Status (*zero_padding)(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream);
    // After the compute stream's wait for an all-gather: unsharded_param is the gather buffer, and
    // becomes a buffer laid out by parameter; the views are set.
    Status (*copy_out)(FsdpUnit *unit);
    // Before a reduction: unsharded_grad is laid out by parameter, and becomes a buffer in rank
    // order, on the compute stream. There may be none.
    Status (*copy_in)(FsdpUnit *unit);
    // Before a unit that is unsharded is resharded: unsharded_param becomes again, but for its
    // memory, the buffer that an all-gather fills. NULL: it is that, also after copy_out.
    void (*reset)(FsdpUnit *unit);
} LayoutRule;

// New memory on the compute stream, as long as the buffer says, which the log calls an unsharded
// parameter or gradient; the latter's old memory, too. lib/fsdp/layout.c.
Status layout_alloc_param(FsdpUnit *unit, Buffer *param);
Status layout_alloc_grad(FsdpUnit *unit, Buffer *grad);

#endif
