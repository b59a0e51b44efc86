/* offload_parts.c: what moves shards to the host and back, and what of the optimizer no student
 * writes there.
 *
 * [Note: hooks on both sides] One rank's unit begins its gradient in its own pre-backward hook, and
 * a precision puts one of its own in front of that. What offload does before them is in a hook at
 * the beginning of the chain, what it does after them in one at the end.
 */
#include "offload.h"

#include <stdlib.h>
#include <string.h>

#include "gpulog.h"
#include "host_kernels.h"
#include "per_parameter.h"

OffloadUnit *offload_of(const FsdpUnit *unit)
{
    int i = 0;
    while (unit->root->units[i] != unit) i++;
    return &unit->root->offload->units[i];
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

// ---- The optimizer's part ----

static Status create_moments(FsdpAdamW *opt)
{
    opt->m = calloc((size_t)opt->n, sizeof *opt->m);
    opt->v = calloc((size_t)opt->n, sizeof *opt->v);
    if (opt->m == NULL || opt->v == NULL)
        return fail(ERR_MEMORY, "no host memory for the moments of %d units", opt->n);
    for (int i = 0; i < opt->n; i++) {
        size_t bytes = buffer_bytes(&opt->root->units[i]->flat.sharded_grad);
        if (bytes == 0) continue; // all of it is frozen
        CUDA_TRY(cudaMallocHost((void **)&opt->m[i], bytes));
        CUDA_TRY(cudaMallocHost((void **)&opt->v[i], bytes));
        memset(opt->m[i], 0, bytes);
        memset(opt->v[i], 0, bytes);
    }
    opt->root->offload->moments = opt->m;
    return OK;
}

static void free_moments(FsdpAdamW *opt)
{
    for (int i = 0; i < opt->n; i++) {
        if (opt->m != NULL) cudaFreeHost(opt->m[i]);
        if (opt->v != NULL) cudaFreeHost(opt->v[i]);
    }
    if (opt->root->offload->moments == opt->m) opt->root->offload->moments = NULL;
    free(opt->m);
    free(opt->v);
    opt->m = opt->v = NULL;
}

// Whether elements without a gradient, or padding, are between those that are stepped; or each
// parameter has its own rate.
static bool steps_by_ranges(const FsdpAdamW *opt)
{
    bool ranges = opt->groups != NULL;
    for (int i = 0; i < opt->n; i++) ranges |= opt->root->units[i]->flat.layout.rule != NULL;
    return ranges;
}

// Of how many elements of a parameter this rank makes the step, and where in its shard they begin.
static size_t trained_range(const FlatParam *flat, int i, int64_t *at)
{
    int64_t begin, end;
    flat_param_range_in_shard(&flat->layout, i, flat->layout.rank, &begin, &end, at);
    return flat->layout.params[i]->frozen ? 0 : (size_t)(end - begin);
}

// A step of AdamW on what this rank has of each parameter that trains.
static void step_by_ranges(FsdpAdamW *opt)
{
    const ParamGroups *groups = opt->groups;
    opt->t++;
    for (int u = 0; u < opt->n; u++) {
        FlatParam *flat = &opt->root->units[u]->flat;
        float *values = flat->sharded_param.data, *grads = flat->sharded_grad.data;
        for (int i = 0; i < flat->layout.n; i++) {
            int64_t at;
            size_t n = trained_range(flat, i, &at);
            AdamWConfig c = opt->config;
            if (n == 0) continue;
            if (groups != NULL) groups->choose(flat->layout.params[i], &c, groups->arg);
            host_adamw(values + at, grads + at, opt->m[u] + at, opt->v[u] + at, n, c.lr, c.beta1,
                       c.beta2, c.eps, c.weight_decay, opt->t);
        }
    }
}

// An optimizer that was made before offload_apply has its moments on the device.
static Status adamw_step(FsdpAdamW *opt)
{
    if (opt->m != opt->root->offload->moments)
        return fail(ERR_ARGUMENT,
                    "%s: the optimizer was made before offload_apply, or is not the "
                    "last that was made: its moments are elsewhere",
                    opt->root->units[0]->flat.name);
    TRY(offload_wait(opt->root->offload));
    if (!steps_by_ranges(opt)) return offload_adamw_step(opt);
    step_by_ranges(opt);
    return OK;
}

static Status sgd_step(FsdpRoot *root, float lr, float weight_decay)
{
    TRY(offload_wait(root->offload));
    for (int i = 0; i < root->n_units; i++) {
        FlatParam *flat = &root->units[i]->flat;
        float *values = flat->sharded_param.data, *grads = flat->sharded_grad.data;
        for (int k = 0; k < flat->layout.n; k++) {
            int64_t at;
            size_t n = trained_range(flat, k, &at);
            if (n > 0) host_sgd(values + at, grads + at, n, lr, weight_decay);
        }
    }
    return OK;
}

static Status zero_grad(FsdpRoot *root)
{
    TRY(offload_wait(root->offload));
    for (int i = 0; i < root->n_units; i++) {
        const Buffer *grad = &root->units[i]->flat.sharded_grad;
        if (grad->numel > 0) memset(grad->data, 0, buffer_bytes(grad)); // else all of it is frozen
        root->offload->units[i].has_grad = false;
    }
    return OK;
}

static Status scale_grad(FsdpRoot *root, float factor)
{
    TRY(offload_wait(root->offload));
    for (int i = 0; i < root->n_units; i++) {
        const Buffer *grad = &root->units[i]->flat.sharded_grad;
        host_scale(grad->data, factor, (size_t)grad->numel);
    }
    return OK;
}

static Status check_and_scale_grad(FsdpRoot *root, float factor, bool *finite)
{
    TRY(offload_wait(root->offload));
    *finite = true;
    for (int i = 0; i < root->n_units; i++) {
        const Buffer *grad = &root->units[i]->flat.sharded_grad;
        *finite &= host_all_finite(grad->data, (size_t)grad->numel);
    }
    return scale_grad(root, factor);
}

// What `waiter` runs from now on, it runs after all that is queued on `worker`.
static Status wait_for(OffloadState *state, cudaStream_t waiter, cudaStream_t worker)
{
    CUDA_TRY(cudaEventRecord(state->copied, worker));
    CUDA_TRY(cudaStreamWaitEvent(waiter, state->copied, 0));
    return OK;
}

static Status borrow_grad(FsdpUnit *unit)
{
    TRY(offload_begin_grad(unit));
    return wait_for(unit->root->offload, unit->ctx->compute_stream, offload_grad_stream(unit));
}

// The host waits: whoever asks for a gradient next may be the host.
static Status return_grad(FsdpUnit *unit)
{
    TRY(wait_for(unit->root->offload, offload_grad_stream(unit), unit->ctx->compute_stream));
    TRY(offload_send_grad(unit));
    return offload_wait(unit->root->offload);
}

static const ShardOps HOST_OPS = {
    .create_moments = create_moments,
    .free_moments = free_moments,
    .adamw_step = adamw_step,
    .sgd_step = sgd_step,
    .zero_grad = zero_grad,
    .sum_squares = offload_sum_squares,
    .scale_grad = scale_grad,
    .check_and_scale_grad = check_and_scale_grad,
    .borrow_grad = borrow_grad,
    .return_grad = return_grad,
};

// ---- The switch ----

static Status check_root(const FsdpRoot *root)
{
    const char *name = root->units[0]->flat.name;
    const StrategyState *strategy = root->strategy;
    if (strategy == NULL)
        return fail(ERR_ARGUMENT, "%s has no strategy: call strategy_apply before offload_apply",
                    name);
    if (root->offload != NULL) return fail(ERR_ARGUMENT, "%s is offloaded already", name);
    if (root->precision != NULL)
        return fail(ERR_ARGUMENT, "%s has a precision: call offload_apply before precision_apply",
                    name);
    if (root->pipeline != NULL)
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

// Adds a hook before all others of the point.
static Hook *add_hook_first(Module *module, HookPoint point, HookFn fn, void *arg)
{
    Hook *first = module->hooks[point], *hook = module_add_hook(module, point, fn, arg);
    if (hook == NULL || first == NULL) return hook;
    Hook *before = first;
    while (before->next != hook) before = before->next;
    before->next = NULL;
    hook->next = first;
    module->hooks[point] = hook;
    return hook;
}

static void take_off(FsdpUnit *unit, OffloadUnit *own)
{
    unit->all_gather = own->all_gather;
    module_remove_hook(unit->module, own->before_backward);
    module_remove_hook(unit->module, own->before_reduce);
    module_remove_hook(unit->module, own->after_reduce);
}

// Moves the unit's shards to the host; on failure they are where they were.
static Status move_to_host(FsdpUnit *unit, OffloadUnit *own)
{
    Module *m = unit->module;
    FlatParam *flat = &unit->flat;
    size_t bytes = buffer_bytes(&flat->sharded_param), of_grad = buffer_bytes(&flat->sharded_grad);
    void *param = NULL, *grad = NULL;
    own->all_gather = unit->all_gather;
    own->before_backward = add_hook_first(m, HOOK_PRE_BACKWARD, offload_pre_backward, unit);
    own->before_reduce = add_hook_first(m, HOOK_POST_BACKWARD, offload_pre_reduce, unit);
    own->after_reduce = module_add_hook(m, HOOK_POST_BACKWARD, offload_post_backward, unit);
    if (own->before_backward == NULL || own->before_reduce == NULL || own->after_reduce == NULL)
        return ERR_MEMORY;
    CUDA_TRY(cudaMallocHost(&param, bytes));
    own->param = param;
    if (of_grad > 0) CUDA_TRY(cudaMallocHost(&grad, of_grad));
    own->grad = grad;
    CUDA_TRY(cudaMemcpy(param, flat->sharded_param.data, bytes, cudaMemcpyDeviceToHost));
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
    if (status != OK) {
        while (done-- > 0) take_off(root->units[done], &units[done]);
        free_state(state);
        return status;
    }
    root->offload = state;
    root->shard_ops = &HOST_OPS;
    for (int i = 0; i < root->n_units; i++) {
        FlatParam *flat = &root->units[i]->flat;
        cudaFree(flat->sharded_param.data);
        cudaFree(flat->sharded_grad.data);
        flat->sharded_param.data = units[i].param;
        flat->sharded_grad.data = units[i].grad;
        flat->offloaded = true;
        root->units[i]->all_gather = offload_all_gather;
    }
    return OK;
}

// A shard's place on the device, from the host.
static Status move_to_device(Buffer *shard)
{
    void *device = NULL;
    size_t bytes = buffer_bytes(shard);
    if (bytes == 0) return OK; // all of it is frozen
    CUDA_TRY(cudaMalloc(&device, bytes));
    CUDA_TRY(cudaMemcpy(device, shard->data, bytes, cudaMemcpyHostToDevice));
    shard->data = device;
    return OK;
}

Status offload_remove(Module *module)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    OffloadState *state = root->offload;
    if (state == NULL) return fail(ERR_ARGUMENT, "%s is not offloaded", module->name);
    if (root->precision != NULL)
        return fail(ERR_ARGUMENT, "%s has a precision: call precision_remove before", module->name);
    if (state->moments != NULL)
        return fail(ERR_ARGUMENT, "%s has an optimizer on the host: call fsdp_adamw_destroy before",
                    module->name);
    TRY(offload_wait(state));
    for (int i = 0; i < root->n_units; i++) {
        FlatParam *flat = &root->units[i]->flat;
        if (flat->sharded_grad.data != state->units[i].grad) cudaFree(flat->sharded_grad.data);
        flat->sharded_grad.data = state->units[i].grad;
        TRY(move_to_device(&flat->sharded_param));
        TRY(move_to_device(&flat->sharded_grad));
        gpulog_category(flat->sharded_param.data, GPU_SHARDED_PARAM);
        if (flat->sharded_grad.numel > 0)
            gpulog_category(flat->sharded_grad.data, GPU_SHARDED_GRAD);
        flat->offloaded = false;
        take_off(root->units[i], &state->units[i]);
    }
    CUDA_TRY(cudaDeviceSynchronize());
    free_state(state);
    root->offload = NULL;
    root->shard_ops = NULL;
    return OK;
}
