/* Task 6: API. One call makes a module a unit, and the training loop stays as it was.
 *
 * fully_shard changes a module in place: its parameters move into a flat parameter, and four hooks
 * do the rest when the module runs. Called for every block of a model and then for the model, it
 * makes nested units: the outermost takes what no inner unit took, in GPT-2 the embeddings, the
 * last layer norm and the head. Each block is then gathered and freed on its own.
 *
 * [Note: one owner] A parameter belongs to one unit (param->owner is its flat parameter), and is
 * unsharded only while that unit runs. If the model used it anywhere else, it would read freed
 * memory there; fully_shard refuses that. Tied parameters must be in one unit.
 *
 * [Note: one root] What an iteration must remember (the order of the forwards, buffers to free)
 * belongs to the outermost unit, so that two models can share the streams of one context. Every
 * unit starts as a root of its own; one that is wrapped later takes over the units below it.
 *
 * Interface:
 *   fsdp_context_create, fsdp_context_destroy    streams and events of a rank
 *   fully_shard, fsdp_unwrap                     a module becomes a unit, and a module again
 *   fsdp_units                                   what there is
 *   fsdp_full_state                              the unsharded model, for saving
 */
// Task 6 of 6: write what the places marked TODO ask for. The handout is
// handouts/6_api.md; `make grade TASK=6` says how far you are.
#include "fsdp.h"

#include <stdlib.h>
#include <string.h>

Status fsdp_context_create(FsdpContext *ctx, const Mesh *mesh, cudaStream_t compute_stream)
{
    int least, greatest;
    memset(ctx, 0, sizeof *ctx);
    ctx->mesh = *mesh;
    ctx->compute_stream = compute_stream;
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(
        cudaStreamCreateWithPriority(&ctx->all_gather_stream, cudaStreamNonBlocking, greatest));
    CUDA_TRY(
        cudaStreamCreateWithPriority(&ctx->reduce_scatter_stream, cudaStreamNonBlocking, greatest));
    CUDA_TRY(cudaEventCreateWithFlags(&ctx->compute_done, cudaEventDisableTiming));
    CUDA_TRY(cudaMallocHost((void **)&ctx->host_scalar, sizeof *ctx->host_scalar));
    return OK;
}

Status fsdp_context_destroy(FsdpContext *ctx)
{
    CUDA_TRY(cudaStreamSynchronize(ctx->all_gather_stream));
    CUDA_TRY(cudaStreamSynchronize(ctx->reduce_scatter_stream));
    CUDA_TRY(cudaStreamSynchronize(ctx->compute_stream));
    CUDA_TRY(cudaEventDestroy(ctx->compute_done));
    CUDA_TRY(cudaStreamDestroy(ctx->all_gather_stream));
    CUDA_TRY(cudaStreamDestroy(ctx->reduce_scatter_stream));
    CUDA_TRY(cudaFreeHost(ctx->host_scalar));
    memset(ctx, 0, sizeof *ctx);
    return OK;
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
    // TODO 6.1: A parameter without an owner is taken: it moves to params[*taken]. One with an
    // owner is an inner unit's and left alone; but where this module uses it outside that unit too
    // (uses_outside_units), that is ERR_ARGUMENT with a line that names the parameter.
    // Hint: The embedding is tied to the head. What goes wrong if the head alone is made a unit?
    NOT_YET("6.1");
}

// The unit's hooks, at all four points; their handles are unit->hooks.
static Status install_hooks(FsdpUnit *unit)
{
    // TODO 6.2: For each HookPoint module_add_hook the function of that name from tasks 3 and 4,
    // with the unit as its argument, and keep the handle in unit->hooks. Without memory there is no
    // handle: ERR_MEMORY.
    NOT_YET("6.2");
}

// The unit's flat parameter, from the parameters that no inner unit has.
static Status make_flat(FsdpUnit *unit, const FsdpOptions *options)
{
    Module *module = unit->module;
    const ProcessGroup *group = &unit->ctx->mesh.shard;
    FlatLayout layout = {0};
    int n = meta_params(module, NULL, 0);
    int taken = 0;
    Status status = OK;
    Param **params = malloc((size_t)(n + 1) * sizeof *params);
    if (params == NULL) return fail(ERR_MEMORY, "no host memory for %d parameters", n);
    meta_params(module, params, n);

    // TODO 6.3: collect_unowned_params, then flat_layout of what was taken (under the module's
    // name, with the rank and the size of the group that shards, and options->align_shards), then
    // flat_create on the compute stream with options->seed. Each only where the one before it went
    // well: keep the status in `status`.
    NOT_YET("6.3");
    free(params);
    return status;
}

// The units below become units of the new one's root, and are roots no more.
static Status clear_descendant_roots(FsdpUnit *unit)
{
    int n = 1 + fsdp_units(unit->module, NULL, 0);
    FsdpUnit **units = malloc((size_t)n * sizeof *units);
    if (units == NULL) return fail(ERR_MEMORY, "no host memory for %d units", n);
    units[0] = unit;
    fsdp_units(unit->module, units + 1, n - 1);
    Status status = fsdp_root_create(unit->ctx, units, n);
    free(units);
    return status;
}

// Takes off what fully_shard gave the unit, as far as it came, and frees it.
static void destroy_unit(FsdpUnit *unit)
{
    for (int point = 0; point < HOOK_POINTS; point++)
        module_remove_hook(unit->module, unit->hooks[point]);
    if (unit->root != NULL) fsdp_root_remove(unit);
    flat_destroy(&unit->flat);
    free(unit->post_forward_indices);
    free(unit);
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

    // TODO 6.4: make_flat, install_hooks, clear_descendant_roots, each where the one before it went
    // well; then the module points to its unit. Where one fails, destroy_unit, and its status: the
    // module is as it was.
    // Hint: Why must the module's pointer be last?
    NOT_YET("6.4");
}

int fsdp_units(const Module *root, FsdpUnit **out, int max)
{
    // TODO 6.5: The module's own, if it is a unit, then the children's in order. Write only below
    // max; count always.
    NOT_YET("6.5");
}

// Hands one parameter, unsharded on the device, to the visitor in host memory.
static Status visit_param(const Param *param, StateVisitor visit, void *arg, cudaStream_t stream)
{
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
}

// Gathers one unit, hands its parameters to the visitor on rank 0, and leaves the unit as it was.
// *visit_status is what the visitor has said so far: after an error it is not called again, but
// every rank goes on gathering.
static Status gather_unit(FsdpUnit *unit, StateVisitor visit, void *arg, Status *visit_status)
{
    const FlatLayout *layout = &unit->flat.layout;
    FsdpContext *ctx = unit->ctx;
    bool was_sharded = unit->flat.state == FLAT_SHARDED;
    bool visits = layout->rank == 0 && ctx->mesh.replicate.rank == 0;

    // TODO 6.6: Unshard and wait. On rank 0 (visits), visit_param for each parameter on the compute
    // stream, while *visit_status is OK; *visit_status keeps the first error. Then reshard where
    // the unit was sharded before.
    // Hint: Rank 0 must not return early. What do the other ranks do in the next all-gather if it
    // does?
    NOT_YET("6.6");
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
        TRY(fsdp_free_all_gather(unit->root));
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
        // TODO 6.7: Undo fully_shard: what is still gathered is freed (fsdp_wait_for_unshard and
        // fsdp_reshard where the state is not FLAT_SHARDED, then fsdp_free_all_gather), the module
        // has no unit, destroy_unit. Errors have no way out of here; go on.
        NOT_YET("6.7");
    }
    for (int i = 0; i < root->n_children; i++) fsdp_unwrap(root->children[i]);
}
