/* fp8_gather.h: all-gathers in 8 bits. The second half of lab 6's contract; the first is
 * per_parameter.h.
 *
 *   file      half              main functions
 *   fp8.c     FP8 all-gather    fp8_place, fp8_update_scales, fp8_all_gather, fp8_copy_out
 *
 * The model is torchao's float8 all-gather under FSDP2, with tensorwise dynamic scaling. Each rank
 * *quantises* its chunk of a matrix before the all-gather: x · scale, rounded to an e4m3 (e4m3.h).
 * After the all-gather copy-out *dequantises*: the unsharded parameter has its usual type, with
 * values that 8 bits can have. Each parameter has its own scale, the largest power of two with
 * which its largest element, its *amax*, stays within 448. So scaling rounds nothing, and
 *
 *   |x - unsharded x| <= 2^-4 |x|, or 2^-10 / scale if that is more
 *
 * One all-reduce (max) after each step of the optimizer finds the amax of all parameters of all
 * units of the root. Masters, gradients and moments do not change with FP8.
 *
 * A unit may have quantised and other parameters in the same message. The others travel in the type
 * in which the modules compute. In a rank's part of the gather buffer they come first, one after
 * the other, in the order of the layout; then those in 8 bits; then, if there are others, bytes up
 * to a multiple of their element's size, so that each part begins at one.
 *
 * Call fully_shard with layout per_parameter, strategy_apply, precision_apply, then fp8_apply;
 * remove them in the reverse order. A group of one rank quantises, too, and sends nothing, so a
 * training has the same parameters on any number of ranks. If one element of a parameter is
 * infinite or NaN, all its elements become NaN.
 *
 * Sizes are in elements unless a name says bytes. Every function that returns a Status prints one
 * line if it fails.
 */
#ifndef SHARDLAB_FP8_GATHER_H
#define SHARDLAB_FP8_GATHER_H

#include "e4m3.h"
#include "per_parameter.h"

#define Status CHECKED_STATUS // as check.h says

typedef struct Fp8Options {
    // Which parameters are quantised; NULL: those of more than one dimension.
    bool (*chosen)(const Param *param);
} Fp8Options;

// What FP8 has changed in a unit.
typedef struct Fp8Unit {
    int *slot;           // (params) its number in Fp8State.amax; -1: it is not quantised
    int64_t *at;         // (params) bytes: where its chunk begins in each rank's part
    int64_t shard_bytes; // of a rank's part of the gather buffer
    Buffer wide;         // what unsharded_param is without FP8
} Fp8Unit;

// What FP8 has changed in a root (FsdpExtensions.fp8).
typedef struct Fp8State {
    FsdpRoot *root;
    FlatLayoutOps layout_ops; // PER_PARAMETER_OPS with fp8_copy_out and fp8_reset
    int n;                    // parameters that are quantised
    uint32_t *amax;           // (n) device: bits of a float (e4m3.h)
    bool stale;               // shards were written since they were computed
    Fp8Unit *units;           // (root->n_units)
} Fp8State;

// Makes all units of the root gather in FP8. ERR_ARGUMENT, and nothing has changed, if they do
// already, if one has another layout than per_parameter, if the strategy is DDP, which gathers
// nothing, if the shards are in host memory, if a unit is not sharded, or if no parameter is
// chosen. options may be NULL.
Status fp8_apply(Module *root, const Fp8Options *options);
// Removes it. Call it between steps. ERR_ARGUMENT if an extension that was applied later is still
// there.
Status fp8_remove(Module *root);

// at[i] = where the chunk of parameter i begins in a rank's part, in bytes, as above; slot is the
// unit's; an element that is not quantised has wide_bytes bytes. Returns the bytes of a part.
int64_t fp8_place(const FlatLayout *layout, const int *slot, int64_t wide_bytes, int64_t *at);

// If the shards were written since the scales were computed: queues, on the all-gather stream, the
// amax of every quantised parameter, from the masters of all ranks that shard. One all-reduce for
// any number of units. If a call fails, the scales stay stale.
Status fp8_update_scales(FsdpRoot *root);

// unit->all_gather: queues, on the all-gather stream, the scales if they are stale; then this
// rank's part, and the all-gather of all parts, as bytes, in place. Allocates nothing.
Status fp8_all_gather(FsdpUnit *unit);

// The layout's copy-out, with any number of ranks: one kernel or one copy for each parameter, on
// the compute stream. The gather buffer is kept and freed as per_parameter.h says.
Status fp8_copy_out(FsdpUnit *unit);
// Before a unit that is unsharded is resharded: unsharded_param is the gather buffer's again, W ·
// shard_bytes of DTYPE_BYTE; its data stays.
void fp8_reset(FsdpUnit *unit);

// fsdp_full_state under FP8: gathers the masters. ERR_ARGUMENT if a unit is not sharded.
Status fp8_full_state(Module *root, StateVisitor visit, void *arg);

// Given code (lib/fsdp/fp8_tables.c): finds the unit's part of the state; makes and frees a state
// with its tables (slots, places) and memory.
Fp8Unit *fp8_of(const FsdpUnit *unit);
Status fp8_create(FsdpRoot *root, const Fp8Options *options);
void fp8_destroy(FsdpRoot *root);

#undef Status

#endif
