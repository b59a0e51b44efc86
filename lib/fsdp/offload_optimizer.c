/* offload_optimizer.c: the given part of offload's optimizer, and the functions that work on
 * gradients on the host.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "host_kernels.h"
#include "offload.h"
#include "per_parameter.h"

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
    opt->root->extensions->offload->moments = opt->m;
    return OK;
}

static Status adamw_create(FsdpAdamW *opt, Module *root, FsdpContext *ctx,
                           const AdamWConfig *config)
{
    memset(opt, 0, sizeof *opt);
    TRY(fsdp_find_root(root, &opt->root));
    opt->ctx = ctx;
    opt->config = *config;
    opt->n = opt->root->n_units;
    Status status = create_moments(opt);
    if (status != OK) fsdp_adamw_destroy(opt);
    return status;
}

static void adamw_destroy(FsdpAdamW *opt)
{
    for (int i = 0; i < opt->n; i++) {
        if (opt->m != NULL) cudaFreeHost(opt->m[i]);
        if (opt->v != NULL) cudaFreeHost(opt->v[i]);
    }
    if (opt->root->extensions->offload->moments == opt->m)
        opt->root->extensions->offload->moments = NULL;
    free(opt->m);
    free(opt->v);
    memset(opt, 0, sizeof *opt);
}

// Whether a step goes parameter by parameter: padding or elements without a gradient are between
// those that are stepped, or each parameter has its own learning rate.
static bool steps_by_ranges(const FsdpAdamW *opt)
{
    bool ranges = param_groups_of(opt) != NULL;
    for (int i = 0; i < opt->n; i++)
        ranges |= opt->root->units[i]->flat.layout.ops != &FLAT_LAYOUT_OPS;
    return ranges;
}

// How many elements of a parameter this rank steps, and where in its shard they begin.
static size_t trained_range(const FlatParam *flat, int i, int64_t *at)
{
    int64_t begin, end;
    flat_param_range_in_shard(&flat->layout, i, flat->layout.rank, &begin, &end, at);
    return flat->layout.params[i]->frozen ? 0 : (size_t)(end - begin);
}

// A step of AdamW on this rank's elements of each parameter that trains.
static void step_by_ranges(FsdpAdamW *opt)
{
    const ParamGroups *groups = param_groups_of(opt);
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

// If an optimizer was made before offload_apply, its moments are on the device.
static Status adamw_step(FsdpAdamW *opt)
{
    TRY(extension_check_sharded(opt->root));
    if (opt->m != opt->root->extensions->offload->moments)
        return fail(ERR_ARGUMENT,
                    "%s: the optimizer was made before offload_apply, or is not the "
                    "last that was made: its moments are elsewhere",
                    opt->root->units[0]->flat.name);
    TRY(offload_wait(opt->root->extensions->offload));
    if (!steps_by_ranges(opt)) return offload_adamw_step(opt);
    step_by_ranges(opt);
    return OK;
}

static Status sgd_step(Module *module, FsdpContext *ctx, float lr, float weight_decay)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(extension_check_sharded(root));
    TRY(offload_wait(root->extensions->offload));
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

static Status zero_grad(Module *module, FsdpContext *ctx)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(offload_wait(root->extensions->offload));
    for (int i = 0; i < root->n_units; i++) {
        const Buffer *grad = &root->units[i]->flat.sharded_grad;
        offload_drop(root->units[i]);                                   // left by a failed backward
        if (grad->numel > 0) memset(grad->data, 0, buffer_bytes(grad)); // else all of it is frozen
        root->extensions->offload->units[i].has_grad = false;
    }
    return OK;
}

Status offload_scale_grad(FsdpRoot *root, float factor)
{
    TRY(offload_wait(root->extensions->offload));
    for (int i = 0; i < root->n_units; i++) {
        const Buffer *grad = &root->units[i]->flat.sharded_grad;
        host_scale(grad->data, factor, (size_t)grad->numel);
    }
    return OK;
}

Status offload_check_and_scale_grad(FsdpRoot *root, float factor, bool *finite)
{
    TRY(offload_wait(root->extensions->offload));
    *finite = true;
    for (int i = 0; i < root->n_units; i++) {
        const Buffer *grad = &root->units[i]->flat.sharded_grad;
        *finite &= host_all_finite(grad->data, (size_t)grad->numel);
    }
    return offload_scale_grad(root, factor);
}

static Status grad_norm(Module *module, FsdpContext *ctx, float *norm)
{
    FsdpRoot *root = NULL;
    double *sum = NULL, squares = 0.0;
    TRY(fsdp_find_root(module, &root));
    CUDA_TRY(cudaMallocAsync((void **)&sum, sizeof *sum, ctx->compute_stream));
    Status status = offload_sum_squares(root, sum, &squares);
    CUDA_TRY(cudaFreeAsync(sum, ctx->compute_stream));
    *norm = (float)sqrt(squares);
    return status;
}

static Status clip_grad_norm(Module *module, FsdpContext *ctx, float max_norm, float *norm)
{
    TRY(grad_norm(module, ctx, norm));
    if (!(*norm > max_norm)) return OK;
    return offload_scale_grad(fsdp_unit(module)->root, max_norm / *norm);
}

Status offload_borrow_grad(FsdpUnit *unit)
{
    OffloadState *state = unit->root->extensions->offload;
    if (state == NULL) return OK;
    TRY(offload_begin_grad(unit));
    return stream_run_after(unit->ctx->compute_stream, offload_grad_stream(unit), state->copied);
}

// Makes the host wait, because the host may be the next to read a gradient.
Status offload_return_grad(FsdpUnit *unit)
{
    OffloadState *state = unit->root->extensions->offload;
    if (state == NULL) return OK;
    TRY(stream_run_after(offload_grad_stream(unit), unit->ctx->compute_stream, state->copied));
    TRY(offload_send_grad(unit));
    return offload_wait(state);
}

void offload_take_over(FsdpRootOps *ops)
{
    ops->adamw_create = adamw_create;
    ops->adamw_step = adamw_step;
    ops->adamw_destroy = adamw_destroy;
    ops->sgd_step = sgd_step;
    ops->zero_grad = zero_grad;
    ops->grad_norm = grad_norm;
    ops->clip_grad_norm = clip_grad_norm;
}
