/* precision.h: mixed precision: the type of each buffer, and where it is cast. The contract of
 * lab 2.
 *
 *   file               half          main functions
 *   mixed_precision.c  three types   precision_apply, precision_all_gather, precision_reduce_input
 *   loss_scale.c       one number    loss_scaler_unscale, loss_scaler_step, loss_scaler_update
 *
 * The words are PyTorch's (MixedPrecisionPolicy, GradScaler). Every rank keeps its shards in float:
 * the *master* parameters, their gradient, the moments. Unsharded buffers are narrower, with a cast
 * in between:
 *
 *   sharded_param   float → param_dtype     before the all-gather
 *   the modules     compute in param_dtype, with sums in float; gradients are of that type, too
 *   unsharded_grad  param_dtype → reduce_dtype   at the end of the unit's backward
 *   sharded_grad    reduce_dtype → float    after the reduction: += sum / factor, in float
 *
 * Call fully_shard, then strategy_apply, then precision_apply; remove them in the reverse order.
 * All strategies and kinds of accumulation of strategy.h work.
 *
 * Order of sums. If param_dtype is reduce_dtype, the backwards of several micro-batches add to one
 * gradient of that type, as without a policy. Else each begins its own gradient, which is then
 * added to the accumulated one in reduce_dtype, rounded once. On simgpu a reduction rounds to
 * reduce_dtype once per collective. One rank reduces nothing: with any reduce_dtype, each backward
 * adds a gradient that is not float to sharded_grad, in float.
 *
 * fp16 has no number above 65504. If reduce_dtype is fp16, the gradient is first divided by
 * precision_divide_before of the factor, and the sum by the rest of the factor.
 *
 * Sizes are in elements unless a name says bytes. Every function that returns a Status prints one
 * line if it fails.
 */
#ifndef SHARDLAB_PRECISION_H
#define SHARDLAB_PRECISION_H

#include "strategy.h"

#define Status CHECKED_STATUS // as check.h says

typedef struct MixedPrecisionPolicy {
    DType param_dtype;        // parameters are gathered and modules compute in it
    DType reduce_dtype;       // gradients accumulate unsharded and are reduced in it
    DType output_dtype;       // the type of the root's output
    bool cast_forward_inputs; // the root's input is float, and cast; false: it is param_dtype
} MixedPrecisionPolicy;

// What a policy has changed in a unit.
typedef struct PrecisionUnit {
    Buffer reduce; // (padded) during the unit's backward: the gradient in reduce_dtype, if any
    bool adds;     // `reduce` has a gradient from an earlier backward
    int64_t left;  // elements [0, left) are still as the backward wrote them
} PrecisionUnit;

// What a policy has changed in a root (FsdpExtensions.precision).
typedef struct PrecisionState {
    MixedPrecisionPolicy policy;
    FsdpRoot *root;
    DType reduce_dtype;   // the policy's; with one rank in all, float
    DType module_dtype;   // the modules computed in it before the policy
    PrecisionUnit *units; // (root->n_units)
} PrecisionState;

// ------------------------------------------------------- Three types: mixed_precision.c

// Applies the policy to all units of the root, which has a strategy. ERR_ARGUMENT, and nothing has
// changed, if it has none, has a policy already, or is not sharded; or if the model cannot be cast
// (sequence_add_casts).
Status precision_apply(Module *root, const MixedPrecisionPolicy *policy);
// Removes it: the units are as they were. Call it between steps. ERR_ARGUMENT if an extension
// that was applied later is still there.
Status precision_remove(Module *root);

// unit->all_gather if param_dtype is not float: queues, on the all-gather stream, the cast of this
// rank's shard into its place in unsharded_param, and the all-gather from there, in place. A group
// of one rank only casts.
Status precision_all_gather(FsdpUnit *unit);

// The part of `factor` by which a gradient is divided before a sum in this type; the sum is divided
// by the rest. 1; for fp16 about the root of the factor: 1, doubled as long as it divides the
// factor and the quotient is larger than it (FSDP2).
float precision_divide_before(DType reduce_dtype, float factor);

// state->reduce_input: makes elements [begin, left) of the gradient that this backward wrote ready
// to be reduced, on the compute stream: in reduce_dtype, added to the accumulated gradient, and
// divided by divided_before. *input is the buffer that holds them.
Status precision_reduce_input(FsdpUnit *unit, int64_t begin, Buffer *input);

// The hooks that run before the unit's own. Before a backward, if the types differ: unsharded_grad
// begins again in param_dtype, zeroed, and the gradient accumulated in reduce_dtype is put aside.
// After it: the rest of the gradient is made ready, unsharded_grad is the buffer that holds it, in
// reduce_dtype, and the buffer in param_dtype is freed. At most one gradient is then being reduced.
// arg is the FsdpUnit.
Status precision_pre_backward(Module *module, void *unit);
Status precision_post_backward(Module *module, void *unit);

// fsdp_full_state under a policy: gathers the masters, as floats. ERR_ARGUMENT if a unit is not
// sharded.
Status precision_full_state(Module *root, StateVisitor visit, void *arg);

// Given code (lib/fsdp/precision_units.c): finds the state of the root that the module is, and of a
// unit; allocates a unit's gradient of one type, not zeroed, on the compute stream, and sets all
// fields of *grad; calls the hook that the unit had at this point before the policy.
Status precision_find(const Module *root, PrecisionState **state);
PrecisionUnit *precision_of(const FsdpUnit *unit);
Status precision_alloc_grad(FsdpUnit *unit, DType dtype, Buffer *grad);
Status precision_hook_before(FsdpUnit *unit, HookPoint point);

// ------------------------------------------------------- Loss scaling: loss_scale.c
//
// fp16's smallest number is 6e-8: gradients below it are lost. So the loss's gradient is multiplied
// by `scale`, which scales every parameter's; the optimizer gets them divided again. If a gradient
// becomes infinite or NaN on any rank, no rank takes the step, and the scale shrinks; after
// growth_interval steps without that it grows.
//
//   loss_scaler_scale(&scaler, dlogits, n, stream);  each micro-batch, between loss and backward
//   loss_scaler_unscale(&scaler);                    after the last; then clipping, if any
//   loss_scaler_step(&scaler, &adamw);
//   loss_scaler_update(&scaler);

typedef struct LossScaler {
    FsdpRoot *root;
    float scale;
    float growth_factor, backoff_factor;
    int growth_interval;
    int growth_tracker; // steps since the scale changed
    bool unscaled;      // the gradients of this step are unscaled
    bool stepped;       // the step was made, or skipped because of found_inf
    bool found_inf;     // a gradient is infinite or NaN, on some rank
    int32_t *found;     // device; the same on all ranks after loss_scaler_unscale
    int32_t *host;      // pinned: the host's copy of *found
} LossScaler;

// GradScaler's: 65536, 2, 0.5, 2000.
#define LOSS_SCALER_DEFAULTS                                                                       \
    ((LossScaler){.scale = 65536.0f,                                                               \
                  .growth_factor = 2.0f,                                                           \
                  .backoff_factor = 0.5f,                                                          \
                  .growth_interval = 2000})

// The caller has set scale … growth_tracker: ERR_ARGUMENT unless scale is positive and finite,
// growth_factor above 1 and finite, backoff_factor between 0 and 1, growth_interval positive.
Status loss_scaler_create(LossScaler *scaler, Module *root);
void loss_scaler_destroy(LossScaler *scaler);

// grad[i] *= scale, on `stream`. ERR_ARGUMENT after loss_scaler_unscale: the step has begun.
Status loss_scaler_scale(LossScaler *scaler, float *grad, size_t n, cudaStream_t stream);
// Divides every sharded_grad by the scale, and sets found_inf, the same on every rank: whether any
// gradient was not finite. One all-reduce of one number over the ranks that shard; replicas have
// the same gradient, and one rank has all of it. Waits for the stream. ERR_ARGUMENT in a second
// call.
Status loss_scaler_unscale(LossScaler *scaler);
// Makes one step of the optimizer, unless found_inf: then t, moments and parameters stay. First
// unscales, if that was not done. ERR_ARGUMENT in a second call before loss_scaler_update.
Status loss_scaler_step(LossScaler *scaler, FsdpAdamW *opt);
// If found_inf: scale *= backoff_factor. Else, after growth_interval such steps, scale *=
// growth_factor, unless that is infinite. The next step may begin. ERR_ARGUMENT if nothing was
// unscaled.
Status loss_scaler_update(LossScaler *scaler);

#undef Status

#endif
