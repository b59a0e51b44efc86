/* Task 6: API. One call makes a module a unit, and the training loop stays as it was.
 *
 * fully_shard changes a module in place: its parameters move into a flat parameter, and four hooks
 * do the rest when the module runs. If you call it for every block of a model and then for the
 * model, the units nest: the outermost takes the parameters that no inner unit has.
 *
 * [Note: one owner] A parameter belongs to one unit (param->owner is its flat parameter) and is
 * unsharded only while that unit runs. A module outside of the unit would read freed memory, so
 * fully_shard refuses that. Tied parameters must be in one unit.
 *
 * [Note: one root] The outermost unit has the state of an iteration (the order of the forwards,
 * buffers to free), so that two models can share one context. Every unit starts as its own root; a
 * unit that is wrapped later becomes the root of the units below it.
 *
 * Interface: fsdp_context_create, fsdp_context_destroy (streams and events of a rank); fully_shard,
 * fsdp_unwrap (make a module a unit, and undo that); fsdp_units, fsdp_full_state (for saving).
 */
#include "fsdp.h"

#include <stdlib.h>

static Status create_streams(FsdpContext *ctx)
{
    const unsigned kind = cudaStreamNonBlocking;
    int least, greatest;
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(cudaStreamCreateWithPriority(&ctx->all_gather_stream, kind, greatest));
    CUDA_TRY(cudaStreamCreateWithPriority(&ctx->reduce_scatter_stream, kind, greatest));
    CUDA_TRY(cudaEventCreateWithFlags(&ctx->compute_done, cudaEventDisableTiming));
    CUDA_TRY(cudaMallocHost((void **)&ctx->host_scalar, sizeof *ctx->host_scalar));
    return OK;
}

Status fsdp_context_create(FsdpContext *ctx, const Mesh *mesh, cudaStream_t compute_stream)
{
    *ctx = (FsdpContext){.mesh = *mesh, .compute_stream = compute_stream};
    Status status = create_streams(ctx);
    if (status != OK) TRY(fsdp_context_destroy(ctx));
    return status;
}

Status fsdp_context_destroy(FsdpContext *ctx)
{
    CUDA_TRY(cudaStreamSynchronize(ctx->all_gather_stream));
    CUDA_TRY(cudaStreamSynchronize(ctx->reduce_scatter_stream));
    CUDA_TRY(cudaStreamSynchronize(ctx->compute_stream));
    // Frees what fsdp_context_create has made so far.
    if (ctx->compute_done != NULL) CUDA_TRY(cudaEventDestroy(ctx->compute_done));
    if (ctx->all_gather_stream != NULL) CUDA_TRY(cudaStreamDestroy(ctx->all_gather_stream));
    if (ctx->reduce_scatter_stream != NULL) CUDA_TRY(cudaStreamDestroy(ctx->reduce_scatter_stream));
    CUDA_TRY(cudaFreeHost(ctx->host_scalar));
    *ctx = (FsdpContext){0};
    return OK;
}

// Whether the module has the parameter, or a module below it that is in no unit has it.
static bool uses_outside_units(const Module *module, const Param *param)
{
    //[[6.1a] True where the comment above says so. Does a child that is a unit count?
    for (int i = 0; i < module->n_params; i++)
        if (module->params[i] == param) return true;
    for (int i = 0; i < module->n_children; i++) {
        const Module *child = module->children[i];
        if (fsdp_unit(child) == NULL && uses_outside_units(child, param)) return true;
    }
    return false;
    //[end 6.1a]
}

// params has the module's n parameters (meta_params). Leaves those that this unit takes, in order.
static Status collect_unowned_params(const Module *module, Param **params, int n, int *taken)
{
    *taken = 0;
    //[6.1] params[0 … *taken) are those without an owner. ERR_ARGUMENT, with a line that names the
    //  parameter, if an inner unit owns one that is also used outside it (uses_outside_units).
    //? The embedding is tied to the head. What goes wrong if the head alone is made a unit?
    for (int i = 0; i < n; i++) {
        if (params[i]->owner == NULL)
            params[(*taken)++] = params[i];
        else if (uses_outside_units(module, params[i]))
            return fail(ERR_ARGUMENT,
                        "%s is in an inner unit and also used outside of it: make both one unit",
                        params[i]->name);
    }
    return OK;
    //[end 6.1]
}

// Installs the unit's hooks, at all four points.
static Status install_hooks(FsdpUnit *unit)
{
    //[6.2] At every HookPoint the module calls the function of that name from tasks 3 and 4 with
    //  the unit, and unit->hooks has the handle. ERR_MEMORY if there is no memory for it.
    //? Who will need the handles?
    static const HookFn AT[HOOK_POINTS] = {fsdp_pre_forward, fsdp_post_forward, fsdp_pre_backward,
                                           fsdp_post_backward}; // as HookPoint has them
    for (int point = 0; point < HOOK_POINTS; point++) {
        unit->hooks[point] = module_add_hook(unit->module, point, AT[point], unit);
        if (unit->hooks[point] == NULL) return ERR_MEMORY;
    }
    return OK;
    //[end 6.2]
}

// The unit's flat parameter, from the parameters that no inner unit has.
static Status make_flat(FsdpUnit *unit, const FsdpOptions *options)
{
    const Module *module = unit->module;
    const ProcessGroup *group = &unit->ctx->mesh.shard;
    FlatLayout layout = {0};
    int n = meta_params(module, NULL, 0), taken = 0;
    Status status = OK;
    LayoutFn lay_out = fsdp_layout_fn(options);
    Param **params = malloc((size_t)(n + 1) * sizeof *params);
    if (params == NULL) return fail(ERR_MEMORY, "no host memory for %d parameters", n);
    meta_params(module, params, n);

    //[6.3] If `status` is OK, unit->flat is the flat parameter of this unit's parameters, with the
    //  layout that lay_out makes for the ranks that shard; else `status` is the first failure.
    //? Which of the mesh's two groups shards? What would flat_create do with a failed layout?
    status = collect_unowned_params(module, params, n, &taken);
    if (status == OK)
        status = lay_out(&layout, module->name, params, taken, group->rank, group->size,
                         options->align_shards);
    if (status == OK)
        status = flat_create(&unit->flat, module->name, &layout, options->seed,
                             unit->ctx->compute_stream);
    //[end 6.3]
    free(params);
    return status;
}

// The units below get the new unit's root, and are no longer roots themselves.
static Status clear_descendant_roots(FsdpUnit *unit)
{
    //[[6.4a] The unit and all below it have one root, the unit first (fsdp_root_create).
    int n = 1 + fsdp_units(unit->module, NULL, 0);
    FsdpUnit **units = malloc((size_t)n * sizeof *units);
    if (units == NULL) return fail(ERR_MEMORY, "no host memory for %d units", n);
    units[0] = unit;
    fsdp_units(unit->module, units + 1, n - 1);
    Status status = fsdp_root_create(unit->ctx, units, n);
    free(units);
    return status;
    //[end 6.4a]
}

// Undoes what fully_shard has made of the unit so far, and frees it.
static void destroy_unit(FsdpUnit *unit)
{
    //[[6.4b] The unit's hooks are removed, its root does not list it, and its memory is freed.
    for (int point = 0; point < HOOK_POINTS; point++)
        module_remove_hook(unit->module, unit->hooks[point]);
    if (unit->root != NULL) fsdp_root_remove(unit);
    flat_destroy(&unit->flat);
    free(unit->post_forward_indices);
    free(unit);
    //[end 6.4b]
}

Status fully_shard(Module *module, FsdpContext *ctx, const FsdpOptions *options)
{
    if (fsdp_unit(module) != NULL) return fail(ERR_ARGUMENT, "%s is a unit already", module->name);
    FsdpUnit *unit = calloc(1, sizeof *unit);
    if (unit == NULL) return fail(ERR_MEMORY, "no host memory for a unit");
    *unit = (FsdpUnit){.module = module,
                       .ctx = ctx,
                       .all_gather = fsdp_all_gather,
                       .reduce_scatter = fsdp_reduce_scatter,
                       .reshard_after_forward = options->reshard_after_forward};

    //[6.4] Either the module is a unit: flat parameter, hooks, the root of the units below it, and
    //  last module->unit. Or the status says why not and the module is as it was (destroy_unit).
    //? Why must the module's pointer be last?
    Status status = make_flat(unit, options);
    if (status == OK) status = install_hooks(unit);
    if (status == OK) status = clear_descendant_roots(unit);
    if (status != OK) {
        destroy_unit(unit);
        return status;
    }
    module->unit = unit;
    return OK;
    //[end 6.4]
}

int fsdp_units(const Module *root, FsdpUnit **out, int max)
{
    //[6.5] out[0 … max) are the first units of the walk: the module itself, if it is one, then the
    //  units below it, child by child. The result counts all of them.
    //? At which index of out do the units of the second child begin, and how many may there be?
    int n = 0;
    if (fsdp_unit(root) != NULL && n++ < max) out[0] = fsdp_unit(root);
    for (int i = 0; i < root->n_children; i++) {
        int room = n < max ? max - n : 0;
        n += fsdp_units(root->children[i], room > 0 ? out + n : NULL, room);
    }
    return n;
    //[end 6.5]
}

// Hands one parameter, unsharded on the device, to the visitor in host memory.
static Status visit_param(const Param *param, StateVisitor visit, void *arg, cudaStream_t stream)
{
    //[[6.6a] The visitor has had the values, or the status is what failed; no host memory is left.
    size_t bytes = buffer_bytes(&param->data);
    float *values = malloc(bytes);
    if (values == NULL) return fail(ERR_MEMORY, "%s: no host memory for it", param->name);
    cudaError_t error =
        cudaMemcpyAsync(values, param->data.data, bytes, cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    Status status = error == cudaSuccess ? visit(param, values, arg) : ERR_CUDA;
    free(values);
    CUDA_TRY(error);
    return status;
    //[end 6.6a]
}

// Gathers one unit and leaves it as it was. *visit_status is the visitor's status so far: after an
// error the visitor is not called again, but every rank continues to gather.
static Status gather_unit(FsdpUnit *unit, StateVisitor visit, void *arg, Status *visit_status)
{
    const FlatLayout *layout = &unit->flat.layout;
    FsdpContext *ctx = unit->ctx;
    bool was_sharded = unit->flat.state == FLAT_SHARDED;
    bool visits = layout->rank == 0 && ctx->mesh.replicate.rank == 0;

    //[6.6] If this rank `visits`, the visitor has received every parameter of the unit, unsharded,
    //  or *visit_status is its first error. Every rank has made the same collective calls, whatever
    //  the visitor returned. A unit that was sharded is sharded again.
    //? Rank 0 must not return early. What do the others do in the next all-gather if it does?
    TRY(fsdp_unshard(unit));
    TRY(fsdp_wait_for_unshard(unit));
    for (int i = 0; i < layout->n && visits && *visit_status == OK; i++)
        *visit_status = visit_param(layout->params[i], visit, arg, ctx->compute_stream);
    if (was_sharded) TRY(fsdp_reshard(unit));
    return OK;
    //[end 6.6]
}

// Calls gather_unit for the module, if it is a unit, and for all units below it.
static Status gather_below(Module *module, StateVisitor visit, void *arg, Status *visit_status)
{
    //[[6.6b] Every unit here and below is gathered in turn, after what the optimizer wrote.
    FsdpUnit *unit = fsdp_unit(module);
    if (unit != NULL) {
        CUDA_TRY(cudaEventRecord(unit->ctx->compute_done, unit->ctx->compute_stream));
        CUDA_TRY(cudaStreamWaitEvent(unit->ctx->all_gather_stream, unit->ctx->compute_done, 0));
        TRY(gather_unit(unit, visit, arg, visit_status));
        TRY(fsdp_free_all_gather(unit->root));
    }
    for (int i = 0; i < module->n_children; i++)
        TRY(gather_below(module->children[i], visit, arg, visit_status));
    return OK;
    //[end 6.6b]
}

Status fsdp_full_state_default(Module *root, StateVisitor visit, void *arg)
{
    Status visit_status = OK;
    TRY(gather_below(root, visit, arg, &visit_status));
    return visit_status;
}

void fsdp_unwrap(Module *root)
{
    FsdpUnit *unit = fsdp_unit(root);
    if (unit != NULL) {
        //[6.7] The module is not a unit: no hook, no flat parameter, none of its memory is left,
        //  whatever state the unit had. Continue after errors: you cannot return them.
        //? Each step needs what the next takes away. In which order?
        if (unit->flat.state == FLAT_UNSHARDING) IGNORE_STATUS(fsdp_wait_for_unshard(unit));
        IGNORE_STATUS(fsdp_reshard(unit));
        IGNORE_STATUS(fsdp_free_all_gather(unit->root));
        root->unit = NULL;
        destroy_unit(unit);
        //[end 6.7]
    }
    for (int i = 0; i < root->n_children; i++) fsdp_unwrap(root->children[i]);
}
