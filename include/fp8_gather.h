/* fp8_gather.h: all-gathers in 8 bits. The second half of the contract that lab 6 implements; the
 * first is per_parameter.h.
 *
 *   file      half              main functions
 *   fp8.c     FP8 all-gather    fp8_place, fp8_update_scales, fp8_all_gather, fp8_copy_out
 *
 * The model is torchao's float8 all-gather under FSDP2, with tensorwise dynamic scaling. Each rank
 * *quantises* its chunk of a matrix in front of the all-gather: x · scale, rounded to an e4m3
 * (e4m3.h). After it copy-out *dequantises*: what is unsharded has the type that it has without
 * FP8, and values that 8 bits have. The scale is the parameter's own, and a power of two: the
 * largest with which its largest element, its *amax*, stays within 448. So scaling rounds
 * nothing, and
 *
 *   |x - what is unsharded| <= 2^-4 |x|, or 2^-10 / scale if that is more
 *
 * The amax of all parameters of all units of the root takes one all-reduce (max) of as many
 * numbers, after each step of the optimizer. Masters, gradients and moments are what they are
 * without FP8.
 *
 * A unit may hold parameters of both kinds: what is not quantised travels in the same message, in
 * the type in which the modules compute. In a rank's part of the gather buffer these come first,
 * one after the other, in the order of the layout; then those in 8 bits; then, if there are some
 * of the first kind, bytes up to a multiple of their element's size, so that each part begins at
 * one.
 *
 * A model is made units with layout per_parameter, gets a strategy, a precision, then this; they
 * are taken off in the reverse order. A group of one rank quantises as well, and sends nothing: a
 * training has the same parameters on any number of ranks. Of a parameter with an infinite element
 * or a NaN all elements are NaN.
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
// Removes it, between steps. ERR_ARGUMENT if an extension that was added later is still on.
Status fp8_remove(Module *root);

// at[i] = where the chunk of parameter i begins in a rank's part, in bytes, as above; slot is a
// unit's, wide_bytes those of an element that is not quantised. Returns the bytes of a part.
int64_t fp8_place(const FlatLayout *layout, const int *slot, int64_t wide_bytes, int64_t *at);

// Where the shards were written since the scales were computed: queues, on the all-gather stream,
// the amax of every parameter that is quantised, from the masters of all ranks that shard. One
// all-reduce, whatever the number of units. Where a call fails, the scales are as old as before.
Status fp8_update_scales(FsdpRoot *root);

// unit->all_gather: queues, on the all-gather stream, the scales if they are due; then this
// rank's part, and the all-gather of all parts, as bytes, in place. Nothing is allocated.
Status fp8_all_gather(FsdpUnit *unit);

// The layout's copy-out, with any number of ranks: one kernel or one copy for each parameter, on
// the compute stream. The gather buffer is kept and freed as per_parameter.h says.
Status fp8_copy_out(FsdpUnit *unit);
// Before a unit that is unsharded is resharded: unsharded_param is the gather buffer's again, W ·
// shard_bytes of DTYPE_BYTE; its data stays.
void fp8_reset(FsdpUnit *unit);

// What fsdp_full_state does under FP8: gathers the masters. ERR_ARGUMENT if a unit is not
// sharded.
Status fp8_full_state(Module *root, StateVisitor visit, void *arg);

// Given code (lib/fsdp/fp8_tables.c): the unit's part of the state; a state with its tables (slots,
// places) and memory; and without them.
Fp8Unit *fp8_of(const FsdpUnit *unit);
Status fp8_create(FsdpRoot *root, const Fp8Options *options);
void fp8_destroy(FsdpRoot *root);

#undef Status

#endif
