/* root.c: what the units of one root share: a list of them, and the order in which their forwards
 * ended.
 *
 * The outermost unit is the root. Its registry lists all units below it, so that the optimizer, for
 * example, can go through them without a walk over the modules.
 *
 * The backward prefetches in the order of the forward, backwards: the unit whose forward ended just
 * before this one's runs next. So each forward appends its unit when it ends, and pushes the index
 * on the unit's own stack. A unit that ran twice is in the order twice, and its backwards pop the
 * indices in reverse. (PyTorch: post_forward_order, _post_forward_indices.)
 */
#include <stdlib.h>

#include "categories.h"
#include "strategy.h"

static Status create_events(FsdpRoot *root)
{
    CUDA_TRY(cudaEventCreateWithFlags(&root->all_gather_state.event, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&root->reduce_scatter_state.event, cudaEventDisableTiming));
    return fsdp_extensions_create(root);
}

Status stream_run_after(cudaStream_t waiter, cudaStream_t worker, cudaEvent_t event)
{
    CUDA_TRY(cudaEventRecord(event, worker));
    CUDA_TRY(cudaStreamWaitEvent(waiter, event, 0));
    return OK;
}

Status stream_free_after(void **buffer, cudaEvent_t event, cudaStream_t stream)
{
    if (*buffer == NULL) return OK;
    CUDA_TRY(cudaStreamWaitEvent(stream, event, 0));
    CUDA_TRY(cudaFreeAsync(*buffer, stream));
    *buffer = NULL;
    return OK;
}

static void destroy(FsdpRoot *root)
{
    categories_remove(root);
    IGNORE_STATUS(stream_free_after(&root->all_gather_state.buffer, root->all_gather_state.event,
                                    root->ctx->all_gather_stream));
    fsdp_extensions_destroy(root);
    IGNORE_STATUS(stream_free_after(&root->reduce_scatter_state.buffer,
                                    root->reduce_scatter_state.event, root->ctx->compute_stream));
    if (root->all_gather_state.event != NULL) cudaEventDestroy(root->all_gather_state.event);
    if (root->reduce_scatter_state.event != NULL)
        cudaEventDestroy(root->reduce_scatter_state.event);
    free(root->post_forward_order);
    free(root->units);
    free(root);
}

// Frees a buffer that a failed call has left and that any stream may still use.
static Status free_leftover(void *buffer, cudaStream_t stream)
{
    CUDA_TRY(cudaDeviceSynchronize());
    CUDA_TRY(cudaFreeAsync(buffer, stream));
    return OK;
}

// After a failed all-gather or reshard.
static Status free_unsharded_param(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    if (flat->state != FLAT_SHARDED || flat->unsharded_param.data == NULL) return OK;
    if (!flat_param_is_shard(flat))
        TRY(free_leftover(flat->unsharded_param.data, unit->ctx->all_gather_stream));
    flat->unsharded_param.data = NULL;
    flat_set_views(flat);
    return OK;
}

// After a failed backward.
static Status free_unsharded_grad(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    if (flat->unsharded_grad.data == NULL) return OK;
    bool is_shard = flat->unsharded_grad.dtype == flat->sharded_grad.dtype; // with one rank
    if (mesh_size(&unit->ctx->mesh) > 1 || !is_shard)
        TRY(free_leftover(flat->unsharded_grad.data, unit->ctx->compute_stream));
    flat->unsharded_grad.data = NULL;
    flat_set_grad_views(flat);
    return OK;
}

void fsdp_root_remove(FsdpUnit *unit)
{
    FsdpRoot *root = unit->root;
    int n = 0;
    IGNORE_STATUS(free_unsharded_param(unit)); // what fails stays
    IGNORE_STATUS(free_unsharded_grad(unit));
    fsdp_clear_post_forward(root);
    for (int i = 0; i < root->n_units; i++)
        if (root->units[i] != unit) root->units[n++] = root->units[i];
    root->n_units = n;
    if (root->iter_forward_root == unit) root->iter_forward_root = NULL;
    if (root->iter_backward_root == unit) root->iter_backward_root = NULL;
    unit->root = NULL;
    if (n == 0) destroy(root);
}

Status fsdp_root_create(FsdpContext *ctx, FsdpUnit **units, int n)
{
    for (int i = 0; i < n; i++)
        if (units[i]->ctx != ctx)
            return fail(ERR_ARGUMENT, "%s has another context than %s above it",
                        units[i]->flat.name, units[0]->flat.name);
    for (int i = 1; i < n; i++)
        if (units[i] == units[0])
            return fail(ERR_ARGUMENT,
                        "%s is among the units below itself: module->unit belongs on the module "
                        "last",
                        units[i]->flat.name);
    FsdpRoot *root = calloc(1, sizeof *root);
    if (root == NULL) return fail(ERR_MEMORY, "no host memory for a root");
    root->ctx = ctx;
    root->ops = FSDP_ROOT_OPS;
    root->units = calloc((size_t)n, sizeof *root->units);
    Status status = create_events(root);
    if (root->units == NULL) status = fail(ERR_MEMORY, "no host memory for %d units", n);
    if (status != OK) {
        destroy(root);
        return status;
    }
    for (int i = 0; i < n; i++) {
        if (units[i]->root != NULL) fsdp_root_remove(units[i]);
        units[i]->root = root;
        units[i]->gather_shards = fsdp_all_gather;
        root->units[root->n_units++] = units[i];
    }
    categories_add(root);
    return OK;
}

FsdpUnit *fsdp_unit(const Module *module)
{
    return module->unit;
}

bool fsdp_is_root(const FsdpUnit *unit)
{
    return unit->root->units[0] == unit;
}

int fsdp_unit_index(const FsdpUnit *unit)
{
    int i = 0;
    while (unit->root->units[i] != unit) i++;
    return i;
}

Status fsdp_find_root(const Module *module, FsdpRoot **root)
{
    FsdpUnit *unit = module->unit;
    *root = NULL;
    if (unit == NULL)
        return fail(ERR_ARGUMENT, "%s is not sharded: call fully_shard on it, last of all",
                    module->name);
    if (!fsdp_is_root(unit))
        return fail(ERR_ARGUMENT,
                    "%s is below the root: pass %s, the module that fully_shard was called on last",
                    module->name, unit->root->units[0]->module->name);
    *root = unit->root;
    return OK;
}

// ---- The order in which forwards ended ----

// Whether some module's forward still waits for its backward.
static bool awaits_backward(const FsdpUnit *unit)
{
    return unit->module->out != NULL;
}

void fsdp_begin_forward(FsdpUnit *unit)
{
    FsdpRoot *root = unit->root;
    bool pending = false;
    for (int i = 0; i < root->n_units; i++) pending |= awaits_backward(root->units[i]);
    // The recorded forwards were discarded, such as an evaluation's.
    if (!pending) fsdp_clear_post_forward(root);
    root->iter_forward_root = unit;
}

// Whether a forward or backward of the root has failed. One whose backward is just ending has not:
// its outermost unit has already started the reduction of its gradient.
static bool pass_failed(const FsdpRoot *root)
{
    const FsdpUnit *last = root->iter_backward_root;
    if (last != NULL && last->phase == FSDP_POST_BACKWARD && last->flat.unsharded_grad.data == NULL)
        return false;
    for (int i = 0; i < root->n_units; i++)
        if (root->units[i]->phase != FSDP_IDLE) return true;
    return false;
}

Status fsdp_end_iteration(FsdpRoot *root)
{
    const FsdpUnit *finishes = NULL; // its hook is running, and sets its phase
    void **copied_out = &root->extensions->copied_out.buffer;
    for (int i = 0; i < root->n_units; i++) TRY(free_unsharded_param(root->units[i]));
    if (pass_failed(root)) {
        for (int i = 0; i < root->n_units; i++) TRY(free_unsharded_grad(root->units[i]));
        TRY(fsdp_free_reduce_scatter(root));
        TRY(strategy_free_sums(root->extensions->strategy));
        if (*copied_out != NULL) TRY(free_leftover(*copied_out, root->ctx->all_gather_stream));
        *copied_out = NULL;
    } else {
        finishes = root->iter_backward_root;
    }
    for (int i = 0; i < root->n_units; i++)
        if (root->units[i] != finishes) root->units[i]->phase = FSDP_IDLE;
    fsdp_clear_post_forward(root);
    root->iter_forward_root = root->iter_backward_root = NULL;
    return OK;
}

// Makes room for one more in an array of *max elements with n in use; NULL if there is no memory.
static void *with_room(void *array, int n, int *max, size_t bytes)
{
    if (n < *max) return array;
    int longer = *max == 0 ? 16 : 2 * *max;
    void *moved = realloc(array, (size_t)longer * bytes);
    if (moved != NULL) *max = longer;
    return moved;
}

Status fsdp_record_post_forward_default(FsdpUnit *unit)
{
    FsdpRoot *root = unit->root;
    FsdpUnit **order = with_room(root->post_forward_order, root->n_post_forward,
                                 &root->max_post_forward, sizeof(FsdpUnit *));
    if (order != NULL) root->post_forward_order = order;
    int *indices =
        with_room(unit->post_forward_indices, unit->n_indices, &unit->max_indices, sizeof(int));
    if (indices != NULL) unit->post_forward_indices = indices;
    if (order == NULL || indices == NULL)
        return fail(ERR_MEMORY, "%s: no host memory for the order of %d forwards", unit->flat.name,
                    root->n_post_forward + 1);
    indices[unit->n_indices++] = root->n_post_forward;
    order[root->n_post_forward++] = unit;
    return OK;
}

FsdpUnit *fsdp_pop_post_forward_default(FsdpUnit *unit)
{
    unit->backward_index = -1;
    if (unit->n_indices == 0) return NULL; // the forward has had its backward
    int index = unit->post_forward_indices[--unit->n_indices];
    unit->backward_index = index;
    return index > 0 ? unit->root->post_forward_order[index - 1] : NULL;
}

void fsdp_clear_post_forward(FsdpRoot *root)
{
    for (int i = 0; i < root->n_units; i++) root->units[i]->n_indices = 0;
    root->n_post_forward = 0;
}
