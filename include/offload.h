/* offload.h: shards in host memory: parameters, gradients and optimizer state. The second half of
 * lab 4's contract; the first is recompute.h.
 *
 *   file        half          main functions
 *   offload.c   offload       offload_all_gather, offload_send_grad, offload_adamw_step
 *
 * The word is PyTorch's (CPUOffloadPolicy). Every rank keeps its shards in *pinned* host memory,
 * which a device copies from and to without the host's help. Copies cross the bus:
 *
 *   parameters   the shard, to the device, before each all-gather
 *   gradients    the reduced shard, to the host, after each reduction
 *
 * Floats cross the bus under any precision, which casts on the device. The host waits once, at the
 * end of a step's last backward; then it works with the gradients itself.
 *
 * Call fully_shard, strategy_apply, offload_apply, then precision_apply; remove them in the reverse
 * order. Make the optimizer after offload_apply, and destroy it before offload_remove.
 * sharded_param.data and sharded_grad.data are host memory, except while a copy on the device
 * replaces them: within offload_all_gather, and from a backward's hooks to its copy to the host.
 *
 * Sizes are in elements unless a name says bytes. Every function that returns a Status prints one
 * line if it fails.
 */
#ifndef SHARDLAB_OFFLOAD_H
#define SHARDLAB_OFFLOAD_H

#include "strategy.h"

#define Status CHECKED_STATUS // as check.h says

// What offload has changed in a unit.
typedef struct OffloadUnit {
    float *param, *grad; // (shard_numel), (grad_numel) pinned host memory; all frozen: no grad
    bool has_grad;       // grad has a gradient since they were zeroed
    Hook *after_forward, *before_backward, *before_reduce, *after_reduce;
} OffloadUnit;

// What offload has changed in a root (FsdpExtensions.offload).
typedef struct OffloadState {
    FsdpRoot *root;
    cudaStream_t to_device, to_host; // the copy streams
    cudaEvent_t copied;              // for stream_run_after (extensions.h)
    cudaEvent_t arrived;             // recorded after the last copy to the host
    AllGatherState param;    // the copy that was gathered last; its event: after the all-gather
    ReduceScatterState grad; // the gradient that was sent last; its event: after the copy
    float **moments;         // of the optimizer that was made last
    OffloadUnit *units;      // (root->n_units)
} OffloadState;

// Moves the shards of all units to the host. ERR_ARGUMENT, and nothing has changed, if the root has
// no strategy, is offloaded already, has a precision, is in a pipeline already, is not sharded, or
// has DDP (which keeps everything on the device) or reshard_ranks (whose slices stay there). Given
// code (lib/fsdp/offload_storage.c).
Status offload_apply(Module *root);
// Moves them back. ERR_ARGUMENT if an extension that was applied later is still there, and while an
// optimizer has its moments on the host; ERR_MEMORY, and nothing has changed, if the device has no
// room. Given code.
Status offload_remove(Module *root);
// Given code: finds the unit's part of the state; allocates, on `stream`, a device copy of the
// unit's shard, with its category in the log; tells which stream adds to the unit's gradient shard;
// after a failed call puts the host's memory back and frees the shards' copies on the device.
OffloadUnit *offload_of(const FsdpUnit *unit);
Status offload_alloc(const FsdpUnit *unit, bool grad, void **device, cudaStream_t stream);
cudaStream_t offload_grad_stream(const FsdpUnit *unit);
void offload_drop(FsdpUnit *unit);

// Work on gradients on the host. Given code (lib/fsdp/offload_optimizer.c).
void offload_take_over(FsdpRootOps *ops); // the optimizer's functions
Status offload_scale_grad(FsdpRoot *root, float factor);
// *finite = whether all gradients of this rank are finite; multiplies each by the factor.
Status offload_check_and_scale_grad(FsdpRoot *root, float factor, bool *finite);
// From borrow to return the unit's sharded_grad is device memory, which the compute stream may read
// and write (without offload it always is).
Status offload_borrow_grad(FsdpUnit *unit);
Status offload_return_grad(FsdpUnit *unit);

// ---------------------------------------------------------------- Copies: offload.c

// unit->all_gather: queues, on the stream to the device, the copy of the shard into device memory
// of its own; then, after it, the unit's own all-gather, which finds the copy in sharded_param. One
// rank copies the shard into unsharded_param. At most two copies are on the device: the one before
// the last is freed, on the stream to the device, after its all-gather. (Given code frees the last
// one at the end of the outermost forward.) The copy is in sharded_param as soon as it is
// allocated: if a call fails, given code frees it and puts the host's memory back.
Status offload_all_gather(FsdpUnit *unit);

// Replaces sharded_grad by a gradient shard on the device, on offload_grad_stream: zero, or the
// host's gradient if it has one already. It is in sharded_grad as soon as it is allocated: if a
// call fails, fsdp_zero_grad frees it and puts the host's memory back.
Status offload_begin_grad(FsdpUnit *unit);
// Queues the copy of the gradient shard to the host, on the stream to the host, after everything
// that adds to it; sharded_grad is the host's memory again. At most two gradient shards are on the
// device: the one before the last is freed on offload_grad_stream, after its copy.
Status offload_send_grad(FsdpUnit *unit);
// Ends a step's last backward: the host waits, once, until all gradients have arrived and no copy
// is running; no copy is left on the device.
Status offload_wait(OffloadState *state);

// The hooks. arg is the FsdpUnit. The first runs before the unit's own pre-backward hook: one
// rank's backwards add to sharded_grad, which must be on the device. The second runs before its
// post-backward hook, which reduces into sharded_grad if gradients synchronise; the third after it.
Status offload_pre_backward(Module *module, void *unit);
Status offload_pre_reduce(Module *module, void *unit);
Status offload_post_backward(Module *module, void *unit);

// ---------------------------------------------------------------- The host's work: offload.c

// One step of AdamW on all shards, by the host (host_adamw); padding is zero afterwards. (With
// another layout than the flat one, or ParamGroups, given code goes parameter by parameter.)
Status offload_adamw_step(FsdpAdamW *opt);
// *squares = Σ of the squares of the gradient, over all ranks that shard; sum: a double on the
// device.
Status offload_sum_squares(FsdpRoot *root, double *sum, double *squares);

#undef Status

#endif
