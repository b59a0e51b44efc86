/* Task 6: API. One call makes a module a unit, and the training loop stays as it was.
 *
 * fully_shard changes a module in place: its parameters move into a flat parameter, and four hooks
 * do the rest when the module runs. Called for every block of a model and then for the model, it
 * makes nested units: the outermost takes what no inner unit took, in GPT-2 the embeddings, the
 * last layer norm and the head. Each block is then gathered and let go on its own.
 *
 * [Note: one owner] A parameter belongs to one unit (param->owner is its flat parameter). A
 * parameter that an inner unit has taken is whole only while that unit runs. If the model used it
 * anywhere else, it would read freed memory there; fully_shard refuses that. Tied parameters must
 * meet in one unit.
 *
 * Interface:
 *   fsdp_context_create, fsdp_context_destroy    streams and events of a rank
 *   fully_shard, fsdp_unwrap                     a module becomes a unit, and a module again
 *   fsdp_unit, fsdp_flat_params                  what there is
 *   fsdp_full_state                              the whole model, for saving
 */
#include "fsdp.h"

#include <stdlib.h>
#include <string.h>

Status fsdp_context_create(FsdpContext *ctx, ncclComm_t comm, cudaStream_t compute)
{
    memset(ctx, 0, sizeof *ctx);
    ctx->comm = comm;
    ctx->compute_stream = compute;
    NCCL_TRY(ncclCommUserRank(comm, &ctx->rank));
    NCCL_TRY(ncclCommCount(comm, &ctx->world));
    CUDA_TRY(cudaStreamCreateWithFlags(&ctx->all_gather_stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaStreamCreateWithFlags(&ctx->reduce_scatter_stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreateWithFlags(&ctx->compute_done, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&ctx->all_gather_state.event, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&ctx->reduce_scatter_state.event, cudaEventDisableTiming));
    return OK;
}

Status fsdp_context_destroy(FsdpContext *ctx)
{
    TRY(fsdp_free_all_gather(ctx));
    TRY(fsdp_free_reduce_scatter(ctx));
    CUDA_TRY(cudaStreamSynchronize(ctx->all_gather_stream));
    CUDA_TRY(cudaStreamSynchronize(ctx->reduce_scatter_stream));
    CUDA_TRY(cudaStreamSynchronize(ctx->compute_stream));
    CUDA_TRY(cudaEventDestroy(ctx->compute_done));
    CUDA_TRY(cudaEventDestroy(ctx->all_gather_state.event));
    CUDA_TRY(cudaEventDestroy(ctx->reduce_scatter_state.event));
    CUDA_TRY(cudaStreamDestroy(ctx->all_gather_stream));
    CUDA_TRY(cudaStreamDestroy(ctx->reduce_scatter_stream));
    free(ctx->order);
    memset(ctx, 0, sizeof *ctx);
    return OK;
}

FsdpUnit *fsdp_unit(const Module *module)
{
    return module->pre_forward.fn == fsdp_pre_forward ? module->pre_forward.ctx : NULL;
}

// Whether the module has the parameter itself, or has below it, outside of any unit, somebody who
// has.
static bool uses_outside_units(const Module *module, const Param *param)
{
    for (int i = 0; i < module->n_params; i++)
        if (module->params[i] == param) return true;
    for (int i = 0; i < module->n_children; i++) {
        const Module *child = module->children[i];
        if (fsdp_unit(child) == NULL && uses_outside_units(child, param)) return true;
    }
    return false;
}

// Of the module's `n` parameters (meta_params), keeps those that this unit takes, in their order;
// *taken is how many.
static Status collect_unowned_params(const Module *module, Param **params, int n, int *taken)
{
    *taken = 0;
    //[6.1] A parameter without an owner is taken: it moves to params[*taken]. One with an owner is
    //  an inner unit's and left alone; but where this module uses it outside that unit too
    //  (uses_outside_units), that is ERR_ARGUMENT with a line that names the parameter.
    //? The embedding is tied to the head. What goes wrong if the head alone is made a unit?
    for (int i = 0; i < n; i++) {
        if (params[i]->owner == NULL)
            params[(*taken)++] = params[i];
        else if (uses_outside_units(module, params[i]))
            return fail(ERR_ARGUMENT,
                        "%s is in an inner unit and also used outside of it: put both uses into "
                        "one unit",
                        params[i]->name);
    }
    return OK;
    //[end 6.1]
}

// The units below the module are no roots any more: this one is above them.
static void clear_descendant_roots(const Module *module)
{
    for (int i = 0; i < module->n_children; i++) {
        FsdpUnit *inner = fsdp_unit(module->children[i]);
        if (inner != NULL) inner->is_root = false;
        clear_descendant_roots(module->children[i]);
    }
}

// Puts the four hooks into the module's slots.
static void install_hooks(FsdpUnit *unit)
{
    //[6.2] Each of pre_forward, post_forward, pre_backward, post_backward gets the function of that
    //  name from tasks 3 and 4, with the unit as its ctx.
    Module *m = unit->module;
    m->pre_forward = (Hook){fsdp_pre_forward, unit};
    m->post_forward = (Hook){fsdp_post_forward, unit};
    m->pre_backward = (Hook){fsdp_pre_backward, unit};
    m->post_backward = (Hook){fsdp_post_backward, unit};
    //[end 6.2]
}

// The unit's flat parameter, from the parameters that no inner unit has.
static Status make_flat(FsdpUnit *unit, const FsdpOptions *options)
{
    Module *module = unit->module;
    FsdpContext *ctx = unit->ctx;
    int n = meta_params(module, NULL, 0);
    int taken = 0;
    Status status = OK;
    Param **params = malloc((size_t)(n + 1) * sizeof *params);
    if (params == NULL) return fail(ERR_MEMORY, "no host memory for %d parameters", n);
    meta_params(module, params, n);

    //[6.3] take, then flat_layout of what was taken (under the module's name, with the context's
    //  rank and world and options->align_shards), then flat_create on ctx->compute_stream with
    //  options->seed. Each only where the one before it went well: keep the status in `status`.
    status = collect_unowned_params(module, params, n, &taken);
    if (status == OK)
        status = flat_layout(&unit->flat, module->name, params, taken, ctx->rank, ctx->world,
                             options->align_shards);
    if (status == OK) status = flat_create(&unit->flat, options->seed, ctx->compute_stream);
    //[end 6.3]
    free(params);
    return status;
}

Status fully_shard(Module *module, FsdpContext *ctx, const FsdpOptions *options)
{
    if (fsdp_unit(module) != NULL) return fail(ERR_ARGUMENT, "%s is a unit already", module->name);
    FsdpUnit *unit = calloc(1, sizeof *unit);
    if (unit == NULL) return fail(ERR_MEMORY, "no host memory for a unit");

    //[6.4] Fill in the unit: module, ctx, reshard_after_forward; it is a root until a unit above it
    //  says otherwise. make_flat; where that fails, free the unit and return its status: the module
    //  is as it was. Else adopt the units below and hook.
    //? Why must the hooks be last?
    unit->module = module;
    unit->ctx = ctx;
    unit->reshard_after_forward = options->reshard_after_forward;
    unit->is_root = true;
    Status status = make_flat(unit, options);
    if (status != OK) {
        free(unit);
        return status;
    }
    clear_descendant_roots(module);
    install_hooks(unit);
    return OK;
    //[end 6.4]
}

// Writes the flat parameters of the module and below it to out from place n on; returns the next
// place.
static int list(const Module *module, FlatParam **out, int max, int n)
{
    //[6.5] The module's own, if it is a unit, then the children's in order. Write only below max;
    //  count always.
    FsdpUnit *unit = fsdp_unit(module);
    if (unit != NULL) {
        if (n < max) out[n] = &unit->flat;
        n++;
    }
    for (int i = 0; i < module->n_children; i++) n = list(module->children[i], out, max, n);
    return n;
    //[end 6.5]
}

int fsdp_flat_params(const Module *root, FlatParam **out, int max)
{
    return list(root, out, max, 0);
}

// Hands one parameter, whole on the device, to the visit in host memory.
static Status visit_param(const Param *param, StateVisitor visit, void *arg, cudaStream_t stream)
{
    size_t bytes = (size_t)meta_numel(param) * sizeof(float);
    float *values = malloc(bytes);
    if (values == NULL) return fail(ERR_MEMORY, "%s: no host memory for it", param->name);
    cudaError_t error = cudaMemcpyAsync(values, param->data, bytes, cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    Status status = error == cudaSuccess ? visit(param, values, arg) : ERR_CUDA;
    free(values);
    CUDA_TRY(error);
    return status;
}

// Gathers one unit, hands its parameters to the visit on rank 0, and leaves the unit as it was.
// *visit_status is what the visit has said so far: after an error it is not called again, but every rank
// goes on gathering.
static Status gather_unit(FsdpUnit *unit, StateVisitor visit, void *arg, Status *visit_status)
{
    FlatParam *flat = &unit->flat;
    FsdpContext *ctx = unit->ctx;
    bool was_sharded = flat->state == FLAT_SHARDED;

    //[6.6] Unshard and wait. On rank 0, visit_param for each parameter on ctx->compute_stream, while *visit_status
    //  is OK; *visit_status keeps the first error. Then reshard where the unit was sharded before.
    //? Rank 0 must not return early. What do the other ranks do in the next all-gather if it does?
    TRY(fsdp_unshard(unit));
    TRY(fsdp_wait_for_unshard(unit));
    for (int i = 0; i < flat->n && ctx->rank == 0 && *visit_status == OK; i++)
        *visit_status = visit_param(flat->params[i], visit, arg, ctx->compute_stream);
    if (was_sharded) TRY(fsdp_reshard(unit));
    return OK;
    //[end 6.6]
}

// gather_unit for the module, if it is a unit, and for all below it.
static Status gather_below(Module *module, StateVisitor visit, void *arg, Status *visit_status)
{
    FsdpUnit *unit = fsdp_unit(module);
    if (unit != NULL) {
        // The optimizer may just have written the shards, on the compute stream.
        CUDA_TRY(cudaEventRecord(unit->ctx->compute_done, unit->ctx->compute_stream));
        CUDA_TRY(cudaStreamWaitEvent(unit->ctx->all_gather_stream, unit->ctx->compute_done, 0));
        TRY(gather_unit(unit, visit, arg, visit_status));
        TRY(fsdp_free_all_gather(unit->ctx));
    }
    for (int i = 0; i < module->n_children; i++)
        TRY(gather_below(module->children[i], visit, arg, visit_status));
    return OK;
}

Status fsdp_full_state(Module *root, StateVisitor visit, void *arg)
{
    Status visit_status = OK;
    TRY(gather_below(root, visit, arg, &visit_status));
    return visit_status;
}

void fsdp_unwrap(Module *root)
{
    FsdpUnit *unit = fsdp_unit(root);
    if (unit != NULL) {
        //[6.7] Undo fully_shard: what is still gathered goes (fsdp_wait_for_unshard and fsdp_reshard where the
        //  state is not FLAT_SHARDED, then fsdp_free_all_gather), the four hook slots are empty
        //  again, flat_destroy, and the unit itself is freed. Errors have no way out of here; go
        //  on.
        if (unit->flat.state != FLAT_SHARDED) {
            fsdp_wait_for_unshard(unit);
            fsdp_reshard(unit);
        }
        fsdp_free_all_gather(unit->ctx);
        root->pre_forward = root->post_forward = (Hook){NULL, NULL};
        root->pre_backward = root->post_backward = (Hook){NULL, NULL};
        flat_destroy(&unit->flat);
        free(unit);
        //[end 6.7]
    }
    for (int i = 0; i < root->n_children; i++) fsdp_unwrap(root->children[i]);
}
