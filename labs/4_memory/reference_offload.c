/* Lab 4, second half: offload. The shards are in host memory, and on the device only as long as a
 * collective needs them.
 *
 * Sharding leaves 16/W bytes per parameter on each device; on few GPUs that is still most of the
 * memory. The host has ten times as much, behind a bus. Few bytes have to cross it: the parameters'
 * shard before an all-gather and the gradient's after a reduce-scatter, 4/W bytes per parameter
 * each. The optimizer reads and writes 28/W bytes, so it runs on the host.
 *
 *     to the device    copy 0 | copy 1       | copy 2 …
 *     all-gather              | AG 0         | AG 1
 *     compute                                | forward 0 …
 *
 * [Note: pinned] A device copies from and to pinned memory by itself. With pageable memory the host
 * would have to take part, and the call would wait.
 *
 * [Note: two copies] Copy i may be freed after all-gather i. If the stream to the device waited for
 * that before copy i+1, no copy could overlap an all-gather. So it is freed after copy i+1 is
 * queued, as task 3 frees late. The same holds the other way for gradients.
 *
 * [Note: one wait] Copies to the host are asynchronous: the host reads a gradient only after it has
 * waited for its event. All copies are on one stream, so the last one's event is enough, and until
 * then the host runs ahead as always.
 *
 * Interface:
 *   offload_all_gather                                        parameters: copied, then gathered
 *   offload_begin_grad, offload_send_grad, offload_wait       gradients: reduced, then copied
 *   offload_pre_backward, offload_pre_reduce, offload_post_backward     the hooks
 *   offload_adamw_step, offload_sum_squares                   the host's work
 */
#include "offload.h"

#include <string.h>

#include "host_kernels.h"
#include "not_yet.h"

// ---- Parameters ----

// Frees the last gathered copy, on the stream to the device.
static Status free_param(OffloadState *state)
{
    if (state->param.buffer == NULL) return OK;
    //[[L4.7a] The copy is freed after its all-gather, and the state has none.
    CUDA_TRY(cudaStreamWaitEvent(state->to_device, state->param.event, 0));
    CUDA_TRY(cudaFreeAsync(state->param.buffer, state->to_device));
    state->param.buffer = NULL;
    return OK;
    //[end L4.7a]
}

// The unit's all-gather, with its shard on the device.
static Status gather(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    if (flat->layout.world == 1 && flat->unsharded_param.dtype == flat->sharded_param.dtype) {
        CUDA_TRY(cudaMemcpyAsync(flat->unsharded_param.data, flat->sharded_param.data,
                                 buffer_bytes(&flat->sharded_param), cudaMemcpyDeviceToDevice,
                                 unit->ctx->all_gather_stream));
        return OK;
    }
    Status (*before)(FsdpUnit *) = extension_before(unit, EXTENSION_OFFLOAD)->all_gather;
    return before == fsdp_all_gather ? unit->gather_shards(unit) : before(unit);
}

Status offload_all_gather(FsdpUnit *unit)
{
    OffloadState *state = unit->root->extensions->offload;
    Buffer *shard = &unit->flat.sharded_param;
    void *host = shard->data, *device = NULL;
    //[L4.7] A copy of the shard on the device (offload_alloc) is queued on the stream to the
    //  device, and after it the unit's all-gather (gather), with the copy in sharded_param.
    //  Afterwards sharded_param is host memory again, and state->param holds the copy, its event
    //  recorded after the all-gather; the copy that it held before is freed. Put the copy into
    //  sharded_param as soon as it is allocated: if a call fails, your caller frees it and puts the
    //  host's memory back.
    //? Which of the two streams waits for what, and when is the previous copy freed?
    TRY(offload_alloc(unit, false, &device, state->to_device));
    shard->data = device;
    CUDA_TRY(cudaMemcpyAsync(device, host, buffer_bytes(shard), cudaMemcpyHostToDevice,
                             state->to_device));
    TRY(stream_run_after(unit->ctx->all_gather_stream, state->to_device, state->copied));
    TRY(free_param(state));
    TRY(gather(unit));
    shard->data = host;
    state->param.buffer = device;
    CUDA_TRY(cudaEventRecord(state->param.event, unit->ctx->all_gather_stream));
    return OK;
    //[end L4.7]
}

// ---- Gradients ----

Status offload_begin_grad(FsdpUnit *unit)
{
    OffloadState *state = unit->root->extensions->offload;
    OffloadUnit *own = offload_of(unit);
    Buffer *grad = &unit->flat.sharded_grad;
    cudaStream_t stream = offload_grad_stream(unit);
    void *device = NULL;
    if (grad->numel == 0) return OK; // all of it is frozen
    //[L4.8] sharded_grad is device memory that `stream` owns. If own->has_grad, it is a copy
    //  of the host's gradient, made after that has arrived there (state->arrived); else it is zero.
    //  Put the memory into sharded_grad as soon as it is allocated: if a call fails, fsdp_zero_grad
    //  frees it.
    //? Two micro-batches reduce, each by itself. To what is the second one's average added?
    TRY(offload_alloc(unit, true, &device, stream));
    grad->data = device;
    if (own->has_grad) {
        CUDA_TRY(cudaStreamWaitEvent(stream, state->arrived, 0));
        CUDA_TRY(
            cudaMemcpyAsync(device, own->grad, buffer_bytes(grad), cudaMemcpyHostToDevice, stream));
    } else {
        CUDA_TRY(cudaMemsetAsync(device, 0, buffer_bytes(grad), stream));
    }
    return OK;
    //[end L4.8]
}

// Frees the last sent gradient shard, on the stream that owns it.
static Status free_grad(OffloadState *state)
{
    cudaStream_t stream = offload_grad_stream(state->root->units[0]);
    if (state->grad.buffer == NULL) return OK;
    //[[L4.9a] The gradient shard is freed after its copy, and the state has none.
    CUDA_TRY(cudaStreamWaitEvent(stream, state->grad.event, 0));
    CUDA_TRY(cudaFreeAsync(state->grad.buffer, stream));
    state->grad.buffer = NULL;
    return OK;
    //[end L4.9a]
}

Status offload_send_grad(FsdpUnit *unit)
{
    OffloadState *state = unit->root->extensions->offload;
    OffloadUnit *own = offload_of(unit);
    Buffer *grad = &unit->flat.sharded_grad;
    bool replicas = unit->ctx->mesh.replicate.size > 1;
    if (grad->numel == 0) return OK; // all of it is frozen
    //[L4.9] The copy to own->grad is queued on the stream to the host, after the reduction: with
    //  replicas that ends on the strategy's all_reduce_stream. state->arrived is recorded after it.
    //  sharded_grad is host memory again. state->grad holds the device's memory, its event recorded
    //  after the copy; the gradient that it held before is freed.
    //? If the other replicas' gradients are not added yet, the copy is wrong on every rank. For
    //? which streams must you wait?
    TRY(stream_run_after(state->to_host, offload_grad_stream(unit), state->copied));
    if (replicas)
        TRY(stream_run_after(state->to_host, unit->root->extensions->strategy->all_reduce_stream,
                             state->copied));
    CUDA_TRY(cudaMemcpyAsync(own->grad, grad->data, buffer_bytes(grad), cudaMemcpyDeviceToHost,
                             state->to_host));
    CUDA_TRY(cudaEventRecord(state->arrived, state->to_host));
    TRY(free_grad(state));
    CUDA_TRY(cudaEventRecord(state->grad.event, state->to_host));
    state->grad.buffer = grad->data;
    grad->data = own->grad;
    own->has_grad = true;
    return OK;
    //[end L4.9]
}

Status offload_wait(OffloadState *state)
{
    if (state->param.buffer == NULL && state->grad.buffer == NULL) return OK;
    //[L4.10] The host has waited for one event, after which no copy is running, in either
    //  direction, and no copy is left on the device.
    //? An all-gather that nobody used: is its copy over when the last gradient has arrived?
    TRY(stream_run_after(state->to_host, state->to_device, state->copied));
    CUDA_TRY(cudaEventRecord(state->arrived, state->to_host));
    TRY(free_param(state));
    TRY(free_grad(state));
    CUDA_TRY(cudaEventSynchronize(state->arrived));
    return OK;
    //[end L4.10]
}

// ---- The hooks ----

Status offload_pre_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    bool on_host = unit->flat.sharded_grad.data == offload_of(unit)->grad;
    if (mesh_size(&unit->ctx->mesh) == 1 && on_host) return offload_begin_grad(unit);
    return OK;
}

Status offload_pre_reduce(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    bool reduces = unit->root->extensions->strategy->requires_gradient_sync;
    if (mesh_size(&unit->ctx->mesh) > 1 && reduces) return offload_begin_grad(unit);
    return OK;
}

Status offload_post_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;
    //[L4.11] If gradients synchronise, this unit's gradient is on its way to the host. After
    //  the outermost backward (root->iter_backward_root) of the step's last micro-batch the host
    //  has waited.
    //? The unit's own hook has run. What does it leave in iter_backward_root after the outermost
    //? backward?
    if (root->extensions->strategy->requires_gradient_sync) TRY(offload_send_grad(unit));
    if (root->iter_backward_root == NULL && root->extensions->strategy->is_last_backward)
        TRY(offload_wait(root->extensions->offload));
    return OK;
    //[end L4.11]
}

// ---- The host's work ----

Status offload_adamw_step(FsdpAdamW *opt)
{
    const AdamWConfig *c = &opt->config;
    //[L4.12] Every shard in host memory has made one step of AdamW on the host, which opt->t
    //  counts. The padding of every shard, which is zero, has not changed.
    //? How many elements of a shard are not padding?
    opt->t++;
    for (int i = 0; i < opt->n; i++) {
        FlatParam *flat = &opt->root->units[i]->flat;
        size_t valid = (size_t)flat_valid_numel(&flat->layout, flat->layout.rank);
        host_adamw(flat->sharded_param.data, flat->sharded_grad.data, opt->m[i], opt->v[i], valid,
                   c->lr, c->beta1, c->beta2, c->eps, c->weight_decay, opt->t);
    }
    return OK;
    //[end L4.12]
}

Status offload_sum_squares(FsdpRoot *root, double *sum, double *squares)
{
    FsdpContext *ctx = root->ctx;
    double own = 0.0;
    TRY(offload_wait(root->extensions->offload));
    //[L4.13] *squares is the sum over all units and all ranks that shard, on every rank; each rank
    //  knows only its own shards. *sum is device memory, *ctx->host_scalar pinned host memory.
    //? One rank needs no other. With more, where must a number be for NCCL to sum it?
    for (int i = 0; i < root->n_units; i++) {
        const Buffer *grad = &root->units[i]->flat.sharded_grad;
        own += host_sum_squares(grad->data, (size_t)grad->numel);
    }
    *squares = own;
    if (ctx->mesh.shard.size == 1) return OK;
    *ctx->host_scalar = own;
    CUDA_TRY(cudaMemcpyAsync(sum, ctx->host_scalar, sizeof *sum, cudaMemcpyHostToDevice,
                             ctx->compute_stream));
    NCCL_TRY(
        ncclAllReduce(sum, sum, 1, ncclDouble, ncclSum, ctx->mesh.shard.comm, ctx->compute_stream));
    CUDA_TRY(cudaMemcpyAsync(ctx->host_scalar, sum, sizeof *sum, cudaMemcpyDeviceToHost,
                             ctx->compute_stream));
    CUDA_TRY(cudaStreamSynchronize(ctx->compute_stream));
    *squares = *ctx->host_scalar;
    return OK;
    //[end L4.13]
}
