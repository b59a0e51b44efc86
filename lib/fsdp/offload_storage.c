/* offload_storage.c: the given code that moves shards to the host and back.
 *
 * [Note: hooks on both sides] With one rank a unit begins its gradient in its pre-backward hook,
 * and lab 2's precision puts a hook before that. Offload needs code before and after both, so it
 * has a hook at both ends of the chain.
 */
#include "offload.h"

#include <stdlib.h>
#include <string.h>

#include "gpulog.h"

OffloadUnit *offload_of(const FsdpUnit *unit)
{
    return &unit->root->extensions->offload->units[fsdp_unit_index(unit)];
}

Status offload_alloc(const FsdpUnit *unit, bool grad, void **device, cudaStream_t stream)
{
    const Buffer *shard = grad ? &unit->flat.sharded_grad : &unit->flat.sharded_param;
    CUDA_TRY(cudaMallocAsync(device, buffer_bytes(shard), stream));
    gpulog_category(*device, grad ? GPU_SHARDED_GRAD : GPU_SHARDED_PARAM);
    return OK;
}

cudaStream_t offload_grad_stream(const FsdpUnit *unit)
{
    const FsdpContext *ctx = unit->ctx;
    return mesh_size(&ctx->mesh) == 1 ? ctx->compute_stream : ctx->reduce_scatter_stream;
}

void offload_drop(FsdpUnit *unit)
{
    const OffloadUnit *own = offload_of(unit);
    Buffer *const shards[] = {&unit->flat.sharded_param, &unit->flat.sharded_grad};
    void *const host[] = {own->param, own->grad};
    for (int i = 0; i < 2; i++) {
        if (shards[i]->data == host[i]) continue;
        cudaDeviceSynchronize();
        cudaFree(shards[i]->data);
        shards[i]->data = host[i];
    }
}

// unit->all_gather. If a call fails, frees the copy.
static Status all_gather(FsdpUnit *unit)
{
    Status status = offload_all_gather(unit);
    if (status != OK) offload_drop(unit);
    return status;
}

// The outermost forward's end frees the last copy of a parameter: an evaluation has no backward.
static Status drop_param(Module *module, void *arg)
{
    const FsdpRoot *root = ((FsdpUnit *)arg)->root;
    OffloadState *state = root->extensions->offload;
    if (root->iter_forward_root != NULL || state->param.buffer == NULL) return OK;
    return stream_free_after(&state->param.buffer, state->param.event, state->to_device);
}

// ---- The switch ----

static Status check_root(const FsdpRoot *root)
{
    const char *name = root->units[0]->flat.name;
    const FsdpExtensions *on = root->extensions;
    const StrategyState *strategy = on->strategy;
    if (strategy == NULL)
        return fail(ERR_ARGUMENT, "%s has no strategy: call strategy_apply before offload_apply",
                    name);
    if (on->offload != NULL) return fail(ERR_ARGUMENT, "%s is offloaded already", name);
    if (on->precision != NULL)
        return fail(ERR_ARGUMENT, "%s has a precision: call offload_apply before precision_apply",
                    name);
    if (on->pipeline != NULL)
        return fail(ERR_ARGUMENT, "%s is in a pipeline: call offload_apply before pipeline_create",
                    name);
    if (strategy->options.strategy == STRATEGY_DDP)
        return fail(ERR_ARGUMENT, "DDP keeps everything on the device: offload wants shards");
    if (strategy->options.reshard_ranks != 0)
        return fail(ERR_ARGUMENT, "reshard_ranks keeps slices on the device, from which offload "
                                  "takes the shards");
    for (int i = 0; i < root->n_units; i++) {
        const FlatParam *flat = &root->units[i]->flat;
        if (flat->state != FLAT_SHARDED || flat->unsharded_grad.data != NULL)
            return fail(ERR_ARGUMENT,
                        "%s is in the middle of a step: shards are moved between steps",
                        flat->name);
    }
    return OK;
}

static void remove_hooks(const FsdpUnit *unit, const OffloadUnit *own)
{
    module_remove_hook(unit->module, own->after_forward);
    module_remove_hook(unit->module, own->before_backward);
    module_remove_hook(unit->module, own->before_reduce);
    module_remove_hook(unit->module, own->after_reduce);
}

// Copies the shard's values to the host, with zeros for padding and uninitialised parameters
// (INIT_NONE).
static Status copy_values(const FlatParam *flat, float *host)
{
    const FlatLayout *layout = &flat->layout;
    const float *shard = flat->sharded_param.data;
    memset(host, 0, buffer_bytes(&flat->sharded_param));
    for (int i = 0; i < layout->n; i++) {
        int64_t begin, end, at;
        flat_param_range_in_shard(layout, i, layout->rank, &begin, &end, &at);
        if (begin == end || layout->params[i]->init == INIT_NONE) continue;
        CUDA_TRY(cudaMemcpy(host + at, shard + at, (size_t)(end - begin) * sizeof *host,
                            cudaMemcpyDeviceToHost));
    }
    return OK;
}

// Moves the unit's shards to the host; after a failure they are where they were.
static Status move_to_host(FsdpUnit *unit, OffloadUnit *own)
{
    Module *m = unit->module;
    FlatParam *flat = &unit->flat;
    size_t bytes = buffer_bytes(&flat->sharded_param), of_grad = buffer_bytes(&flat->sharded_grad);
    void *param = NULL, *grad = NULL;
    own->after_forward = module_add_hook(m, HOOK_POST_FORWARD, drop_param, unit);
    own->before_backward = module_add_first_hook(m, HOOK_PRE_BACKWARD, offload_pre_backward, unit);
    own->before_reduce = module_add_first_hook(m, HOOK_POST_BACKWARD, offload_pre_reduce, unit);
    own->after_reduce = module_add_hook(m, HOOK_POST_BACKWARD, offload_post_backward, unit);
    if (own->after_forward == NULL || own->before_backward == NULL || own->before_reduce == NULL ||
        own->after_reduce == NULL)
        return ERR_MEMORY;
    CUDA_TRY(cudaMallocHost(&param, bytes));
    own->param = param;
    if (of_grad > 0) CUDA_TRY(cudaMallocHost(&grad, of_grad));
    own->grad = grad;
    TRY(copy_values(flat, param));
    if (of_grad > 0)
        CUDA_TRY(cudaMemcpy(grad, flat->sharded_grad.data, of_grad, cudaMemcpyDeviceToHost));
    own->has_grad = true;
    return OK;
}

static void free_state(OffloadState *state)
{
    for (int i = 0; i < state->root->n_units && state->units != NULL; i++) {
        cudaFreeHost(state->units[i].param);
        cudaFreeHost(state->units[i].grad);
    }
    if (state->to_device != NULL) cudaStreamDestroy(state->to_device);
    if (state->to_host != NULL) cudaStreamDestroy(state->to_host);
    cudaEvent_t events[] = {state->copied, state->arrived, state->param.event, state->grad.event};
    for (int i = 0; i < 4; i++)
        if (events[i] != NULL) cudaEventDestroy(events[i]);
    free(state->units);
    free(state);
}

static Status create_streams(OffloadState *state)
{
    cudaEvent_t *events[] = {&state->copied, &state->arrived, &state->param.event,
                             &state->grad.event};
    CUDA_TRY(cudaStreamCreateWithFlags(&state->to_device, cudaStreamNonBlocking));
    CUDA_TRY(cudaStreamCreateWithFlags(&state->to_host, cudaStreamNonBlocking));
    for (int i = 0; i < 4; i++)
        CUDA_TRY(cudaEventCreateWithFlags(events[i], cudaEventDisableTiming));
    return OK;
}

Status offload_apply(Module *module)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(check_root(root));
    OffloadState *state = calloc(1, sizeof *state);
    OffloadUnit *units = calloc((size_t)root->n_units, sizeof *units);
    if (state == NULL || units == NULL) {
        free(state);
        free(units);
        return fail(ERR_MEMORY, "no host memory for offload");
    }
    state->root = root;
    state->units = units;
    CUDA_TRY(cudaDeviceSynchronize());
    Status status = create_streams(state);
    int done = 0;
    while (status == OK && done < root->n_units) {
        status = move_to_host(root->units[done], &units[done]);
        done++;
    }
    if (status == OK) status = extension_push(root, EXTENSION_OFFLOAD);
    if (status != OK) {
        while (done-- > 0) remove_hooks(root->units[done], &units[done]);
        free_state(state);
        return status;
    }
    root->extensions->offload = state;
    offload_take_over(&root->ops);
    for (int i = 0; i < root->n_units; i++) {
        FlatParam *flat = &root->units[i]->flat;
        cudaFree(flat->sharded_param.data);
        cudaFree(flat->sharded_grad.data);
        flat->sharded_param.data = units[i].param;
        flat->sharded_grad.data = units[i].grad;
        flat->gathers_alone = true;
        root->units[i]->all_gather = all_gather;
    }
    return OK;
}

// Allocates both shards of each unit on the device; all of them or none.
static Status alloc_shards(const FsdpRoot *root, void **device)
{
    Status status = OK;
    for (int i = 0; i < 2 * root->n_units && status == OK; i++) {
        const FlatParam *flat = &root->units[i / 2]->flat;
        size_t bytes = buffer_bytes(i % 2 == 0 ? &flat->sharded_param : &flat->sharded_grad);
        if (bytes > 0 && cudaMalloc(&device[i], bytes) != cudaSuccess) // 0: all of it is frozen
            status = fail(ERR_MEMORY, "%s: no device memory for a shard of %zu bytes", flat->name,
                          bytes);
    }
    for (int i = 0; i < 2 * root->n_units && status != OK; i++) cudaFree(device[i]);
    return status;
}

// Moves a shard from the host into that memory.
static Status move_to_device(Buffer *shard, void *device)
{
    if (device == NULL) return OK;
    CUDA_TRY(cudaMemcpy(device, shard->data, buffer_bytes(shard), cudaMemcpyHostToDevice));
    shard->data = device;
    return OK;
}

Status offload_remove(Module *module)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(extension_check_last(root, EXTENSION_OFFLOAD));
    OffloadState *state = root->extensions->offload;
    if (state->moments != NULL)
        return fail(ERR_ARGUMENT, "%s has an optimizer on the host: call fsdp_adamw_destroy first",
                    module->name);
    TRY(fsdp_reshard_all(module)); // even one rank's unsharded parameter is a copy
    TRY(offload_wait(state));
    CUDA_TRY(cudaDeviceSynchronize()); // a wait may have failed
    for (int i = 0; i < root->n_units; i++) offload_drop(root->units[i]);
    void **device = calloc(2 * (size_t)root->n_units, sizeof *device);
    Status status = device != NULL ? alloc_shards(root, device)
                                   : fail(ERR_MEMORY, "no host memory for a list of shards");
    for (int i = 0; i < root->n_units && status == OK; i++) {
        FlatParam *flat = &root->units[i]->flat;
        status = move_to_device(&flat->sharded_param, device[2 * i]);
        if (status == OK) status = move_to_device(&flat->sharded_grad, device[2 * i + 1]);
        gpulog_category(flat->sharded_param.data, GPU_SHARDED_PARAM);
        if (flat->sharded_grad.numel > 0)
            gpulog_category(flat->sharded_grad.data, GPU_SHARDED_GRAD);
        remove_hooks(root->units[i], &state->units[i]);
    }
    free(device);
    if (status != OK) return status;
    CUDA_TRY(cudaDeviceSynchronize());
    free_state(state);
    root->extensions->offload = NULL;
    extension_pop(root);
    return OK;
}
