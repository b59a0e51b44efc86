/* offload.h: shards in host memory: parameters, gradients and optimizer state. The second half of
 * the contract that lab 4 implements; the first is recompute.h.
 *
 *   file        half          main functions
 *   offload.c   offload       offload_all_gather, offload_send_grad, offload_adamw_step
 *
 * The word is PyTorch's (CPUOffloadPolicy). Every rank keeps its shards in *pinned* host memory,
 * which a device copies from and to without the host's help. What is on the device comes and goes:
 *
 *   parameters   a copy of the shard, from the host, in front of each all-gather
 *   gradients    the reduced shard, to the host, after each reduction
 *
 * Floats cross the bus, whatever a precision says; it casts on the device. The host waits once, at
 * the end of a step's last backward; from then on it works with the gradients itself.
 *
 * A model is made units, gets a strategy, is offloaded, then gets a precision; they are taken off
 * in the reverse order. The optimizer is made after offload_apply, and destroyed before
 * offload_remove. sharded_param.data and sharded_grad.data are host memory, but while a copy on the
 * device is in their place, within offload_all_gather and from a backward's hooks to its copy to
 * the host.
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
    bool has_grad;       // since the gradients were zeroed, some were sent to grad
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

// Moves the shards of all units to the host. ERR_ARGUMENT, and nothing has changed, if the root
// has no strategy, is offloaded already, has a precision, is in a pipeline already, is not sharded,
// or has DDP (which keeps everything on the device) or reshard_ranks (whose slices stay there).
// Given code (lib/fsdp/offload_storage.c).
Status offload_apply(Module *root);
// Moves them back. ERR_ARGUMENT under what was put on later, and while an optimizer has its moments
// on the host; ERR_MEMORY, and nothing has changed, if the device has no room. Given code.
Status offload_remove(Module *root);
// Given code: the unit's part of the state; memory for a device copy of the unit's shard, on
// `stream`, and its category in the log; which stream adds to the unit's gradient shard; the shards
// are host memory again, and what a call that failed has left of them on the device is freed.
OffloadUnit *offload_of(const FsdpUnit *unit);
Status offload_alloc(const FsdpUnit *unit, bool grad, void **device, cudaStream_t stream);
cudaStream_t offload_grad_stream(const FsdpUnit *unit);
void offload_drop(FsdpUnit *unit);

// For gradients on the host. Given code (lib/fsdp/offload_optimizer.c).
void offload_take_over(FsdpRootOps *ops); // the optimizer's functions
Status offload_scale_grad(FsdpRoot *root, float factor);
// *finite = whether all gradients of this rank are; each is multiplied by the factor.
Status offload_check_and_scale_grad(FsdpRoot *root, float factor, bool *finite);
// From borrow to return the unit's sharded_grad is device memory, which the compute stream may read
// and write. Without offload it is that anyway.
Status offload_borrow_grad(FsdpUnit *unit);
Status offload_return_grad(FsdpUnit *unit);

// ---------------------------------------------------------------- Copies: offload.c

// unit->all_gather: queues, on the stream to the device, the copy of the shard into device memory
// of its own; then, after it, the unit's own all-gather, which finds the copy in sharded_param. One
// rank copies the shard into unsharded_param. Two copies at most are on the device: the one before
// the last is freed, on the stream to the device, after its all-gather. (The last one goes with the
// outermost forward: given code.) As soon as there is a copy it is in sharded_param: if a call
// fails, given code frees what is there, and puts the host's memory back.
Status offload_all_gather(FsdpUnit *unit);

// Puts a gradient shard on the device in the place of sharded_grad, on offload_grad_stream: zero,
// or what the host has, if that has some already. As soon as it is there it is in sharded_grad:
// if a call fails, fsdp_zero_grad frees it, and puts the host's memory back.
Status offload_begin_grad(FsdpUnit *unit);
// Queues, on the stream to the host, after everything that adds to it, the copy of the gradient
// shard to the host, whose memory is sharded_grad again. Two gradient shards at most are on the
// device: the one before the last is freed on offload_grad_stream, after its copy.
Status offload_send_grad(FsdpUnit *unit);
// The end of a step's last backward: the host waits, once, until all gradients are there and no
// copy is in flight; no copy is left on the device.
Status offload_wait(OffloadState *state);

// The hooks. arg is the FsdpUnit. Before the unit's own pre-backward hook: one rank's backwards add
// to sharded_grad, which must be on the device. Before its post-backward hook: that reduces into
// sharded_grad, if gradients are to be synchronised. And after it.
Status offload_pre_backward(Module *module, void *unit);
Status offload_pre_reduce(Module *module, void *unit);
Status offload_post_backward(Module *module, void *unit);

// ---------------------------------------------------------------- The host's work: offload.c

// One step of AdamW on all shards, by the host (host_adamw), padding zero afterwards. (Another
// layout than the flat one, and ParamGroups, are stepped parameter by parameter, by given code.)
Status offload_adamw_step(FsdpAdamW *opt);
// *squares = Σ of the squares of the gradient, of all ranks that shard; sum: a double on the
// device.
Status offload_sum_squares(FsdpRoot *root, double *sum, double *squares);

#undef Status

#endif
