/* pipeline_slots.c: the given part of a pipeline: its tables, streams and slots; a stage's state
 * between a forward and its backward; which rank has which elements of a tied parameter.
 *
 * A strategy has room for one forward and its backward. For several micro-batches in flight, a slot
 * keeps the state that a forward has left in the modules (ModulePass) and in the units (the order
 * of their forwards, in which a backward gathers ahead).
 */
#include <stdlib.h>

#include "gpulog.h"
#include "pipeline.h"

typedef struct UnitOrder {
    int *indices;
    int n, max;
} UnitOrder;

struct PipelineHeld {
    ModulePass *pass;
    FsdpUnit **order;
    int n, max;
    UnitOrder *units; // (root->n_units)
};

PipelineSlot *pipeline_slot(Pipeline *pipeline, int k)
{
    return &pipeline->slots[k % pipeline->n_slots];
}

// ---- What a forward leaves ----

static void swap_ints(int *a, int *b)
{
    int kept = *a;
    *a = *b;
    *b = kept;
}

Status pipeline_swap(Pipeline *pipeline, int k)
{
    FsdpRoot *root = pipeline->root;
    struct PipelineHeld *held = pipeline_slot(pipeline, k)->held;
    TRY(module_pass_swap(held->pass, pipeline->module));
    FsdpUnit **order = root->post_forward_order;
    root->post_forward_order = held->order;
    held->order = order;
    swap_ints(&root->n_post_forward, &held->n);
    swap_ints(&root->max_post_forward, &held->max);
    for (int i = 0; i < root->n_units; i++) {
        FsdpUnit *unit = root->units[i];
        UnitOrder *other = &held->units[i];
        int *indices = unit->post_forward_indices;
        unit->post_forward_indices = other->indices;
        other->indices = indices;
        swap_ints(&unit->n_indices, &other->n);
        swap_ints(&unit->max_indices, &other->max);
    }
    return OK;
}

static Status create_held(Pipeline *p, PipelineSlot *slot)
{
    slot->held = calloc(1, sizeof *slot->held);
    if (slot->held != NULL)
        slot->held->units = calloc((size_t)p->root->n_units, sizeof *slot->held->units);
    if (slot->held == NULL || slot->held->units == NULL)
        return fail(ERR_MEMORY, "no host memory for a micro-batch");
    CUDA_TRY(cudaEventCreateWithFlags(&slot->received, cudaEventDisableTiming));
    return module_pass_create(&slot->held->pass, p->module);
}

static void destroy_held(const Pipeline *p, struct PipelineHeld *held)
{
    if (held == NULL) return;
    module_pass_destroy(held->pass);
    for (int i = 0; i < p->root->n_units && held->units != NULL; i++) free(held->units[i].indices);
    free(held->units);
    free(held->order);
    free(held);
}

Status pipeline_alloc(Pipeline *pipeline, Buffer *buffer)
{
    CUDA_TRY(cudaMallocAsync(&buffer->data, buffer_bytes(buffer), pipeline->stream));
    for (int i = 0; i < pipeline->n_slots; i++)
        if (buffer == &pipeline->slots[i].in) gpulog_category(buffer->data, GPU_ACTIVATION);
    return OK;
}

Status pipeline_micro_batch(Pipeline *pipeline, int k)
{
    const StrategyState *state = pipeline->root->extensions->strategy;
    bool last = k == pipeline->n - 1;
    TRY(strategy_micro_batch(pipeline->module, k, pipeline->n));
    if (state->options.strategy == STRATEGY_ZERO3) return OK;
    return fsdp_set_reshard_after_backward(pipeline->module, last);
}

// ---- Tied parameters ----

// What a rank sends about a tie: its shard has elements [begin, end) of the parameter. Replica -1:
// the rank does not have the tie.
typedef struct Claim {
    int64_t id, begin, end, at, replica;
} Claim;

static FsdpUnit *unit_of(const FsdpRoot *root, const Param *param, int *place)
{
    for (int u = 0; u < root->n_units; u++)
        for (*place = 0; *place < root->units[u]->flat.layout.n; ++*place)
            if (root->units[u]->flat.layout.params[*place] == param) return root->units[u];
    return NULL;
}

// Gathers PIPELINE_MOST_TIES of each rank, through `device`.
static Status exchange_claims(const Pipeline *p, const Claim *mine, Claim *all, int ranks,
                              char *device)
{
    size_t bytes = PIPELINE_MOST_TIES * sizeof *mine;
    cudaStream_t stream = p->root->ctx->compute_stream;
    char *own = device + (size_t)(p->mesh->stage * p->mesh->group.size + p->mesh->place) * bytes;
    CUDA_TRY(cudaMemcpyAsync(own, mine, bytes, cudaMemcpyHostToDevice, stream));
    NCCL_TRY(ncclAllGather(own, device, bytes, ncclInt8, p->mesh->world, stream));
    CUDA_TRY(cudaMemcpyAsync(all, device, (size_t)ranks * bytes, cudaMemcpyDeviceToHost, stream));
    CUDA_TRY(cudaStreamSynchronize(stream));
    return OK;
}

static Status gather_claims(const Pipeline *p, const Claim *mine, Claim *all, int ranks)
{
    char *device = NULL;
    CUDA_TRY(cudaMalloc((void **)&device, (size_t)ranks * PIPELINE_MOST_TIES * sizeof *mine));
    Status status = exchange_claims(p, mine, all, ranks, device);
    cudaError_t freed = cudaFree(device); // waits for queued work
    TRY(status);
    CUDA_TRY(freed);
    return OK;
}

// The pieces that this rank shares with ranks of the other stage in the same replica.
static Status find_pieces(const Pipeline *p, PipelineShared *shared, const Claim *mine,
                          const Claim *all)
{
    int ranks = p->mesh->group.size;
    shared->pieces = calloc((size_t)ranks, sizeof *shared->pieces);
    if (shared->pieces == NULL) return fail(ERR_MEMORY, "no host memory for a tied parameter");
    for (int r = 0; r < ranks; r++) {
        int rank = shared->other * ranks + r;
        for (int i = 0; i < PIPELINE_MOST_TIES; i++) {
            const Claim *other = &all[rank * PIPELINE_MOST_TIES + i];
            if (other->replica != mine->replica || other->id != mine->id) continue;
            int64_t begin = other->begin > mine->begin ? other->begin : mine->begin;
            int64_t end = other->end < mine->end ? other->end : mine->end;
            if (begin >= end) continue;
            shared->pieces[shared->n_pieces++] =
                (PipelinePiece){rank, mine->at + begin - mine->begin, mine->at + end - mine->begin};
        }
    }
    return OK;
}

static Status create_shared(Pipeline *p, const PipelineTies *ties)
{
    int ranks = p->mesh->stages * p->mesh->group.size;
    Claim mine[PIPELINE_MOST_TIES] = {{0}};
    Claim *all = calloc((size_t)ranks * PIPELINE_MOST_TIES, sizeof *all);
    p->shared = calloc(PIPELINE_MOST_TIES, sizeof *p->shared);
    if (all == NULL || p->shared == NULL) {
        free(all);
        return fail(ERR_MEMORY, "no host memory for tied parameters");
    }
    for (int i = 0; i < PIPELINE_MOST_TIES; i++) {
        mine[i].replica = -1;
        if (i >= ties->n) continue;
        PipelineShared *shared = &p->shared[p->n_shared++];
        *shared = (PipelineShared){.param = ties->tie[i].param, .other = ties->tie[i].other};
        int place;
        shared->unit = unit_of(p->root, shared->param, &place);
        const FlatLayout *layout = &shared->unit->flat.layout;
        mine[i].id = shared->param->id;
        mine[i].replica = p->root->ctx->mesh.replicate.rank;
        flat_param_range_in_shard(layout, place, layout->rank, &mine[i].begin, &mine[i].end,
                                  &mine[i].at);
    }
    Status status = gather_claims(p, mine, all, ranks);
    for (int i = 0; i < p->n_shared && status == OK; i++)
        status = find_pieces(p, &p->shared[i], &mine[i], all);
    free(all);
    return status;
}

// ---- Life ----

static Status check_options(const FsdpRoot *root, const PipelineMesh *mesh, int n)
{
    const char *name = root->units[0]->flat.name;
    const FsdpExtensions *on = root->extensions;
    if (on->strategy == NULL)
        return fail(ERR_ARGUMENT, "%s has no strategy: call strategy_apply first", name);
    if (on->pipeline != NULL) return fail(ERR_ARGUMENT, "%s is in a pipeline already", name);
    if (on->strategy->options.reshard_ranks != 0)
        return fail(ERR_ARGUMENT, "reshard_ranks keeps a slice of one forward: a pipeline has "
                                  "several micro-batches in flight");
    if (!on->strategy->requires_all_reduce)
        return fail(ERR_ARGUMENT, "a pipeline all-reduces at each reduction: call "
                                  "fsdp_set_requires_all_reduce(root, true) before");
    if (n < 1) return fail(ERR_ARGUMENT, "a step of %d micro-batches: it has at least 1", n);
    if (mesh_size(&root->ctx->mesh) != mesh->group.size)
        return fail(ERR_ARGUMENT, "the mesh of FSDP has %d ranks, the stage %d",
                    mesh_size(&root->ctx->mesh), mesh->group.size);
    return OK;
}

static Status create_parts(Pipeline *p, const PipelineTies *ties)
{
    int least, greatest;
    const PipelineMesh *mesh = p->mesh;
    p->n_slots = pipeline_in_flight(p->kind, mesh->stage, mesh->stages, p->n);
    p->n_actions = 2 * p->n;
    p->actions = calloc((size_t)p->n_actions, sizeof *p->actions);
    p->slots = calloc((size_t)p->n_slots, sizeof *p->slots);
    if (p->actions == NULL || p->slots == NULL)
        return fail(ERR_MEMORY, "no host memory for a pipeline");
    pipeline_schedule(p->kind, mesh->stage, mesh->stages, p->n, p->actions);
    for (int i = 0; i < p->n_slots; i++) TRY(create_held(p, &p->slots[i]));
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(cudaStreamCreateWithPriority(&p->stream, cudaStreamNonBlocking, greatest));
    gpulog_name_stream(p->stream, "pipeline->stream");
    CUDA_TRY(cudaEventCreateWithFlags(&p->computed, cudaEventDisableTiming));
    if (mesh->stage == mesh->stages - 1)
        CUDA_TRY(cudaMalloc((void **)&p->losses, (size_t)p->n * sizeof(float)));
    return create_shared(p, ties);
}

Status pipeline_create(Pipeline **out, Module *stage, const PipelineMesh *mesh,
                       const PipelineTies *ties, PipelineKind kind, int n)
{
    FsdpRoot *root = NULL;
    *out = NULL;
    TRY(fsdp_find_root(stage, &root));
    TRY(check_options(root, mesh, n));
    Pipeline *p = calloc(1, sizeof *p);
    if (p == NULL) return fail(ERR_MEMORY, "no host memory for a pipeline");
    *p = (Pipeline){.mesh = mesh, .kind = kind, .n = n, .module = stage, .root = root};
    Status status = extension_push(root, EXTENSION_PIPELINE);
    if (status != OK) {
        free(p);
        return status;
    }
    root->extensions->pipeline = p;
    status = create_parts(p, ties);
    if (status != OK)
        IGNORE_STATUS(pipeline_destroy(p));
    else
        *out = p;
    return status;
}

// Frees what a failed step has left in a slot. The device has run all queued work.
static void empty_slot(Pipeline *p, int i)
{
    PipelineSlot *slot = &p->slots[i];
    NnRun none = {.stream = p->root->ctx->compute_stream};
    if (slot->held != NULL && slot->held->pass != NULL && pipeline_swap(p, i) == OK)
        IGNORE_STATUS(module_discard(p->module, &none));
    Buffer *const buffers[] = {&slot->in, &slot->out_grad, &slot->in_grad};
    for (int b = 0; b < 3; b++) cudaFree(buffers[b]->data);
    destroy_held(p, slot->held);
    if (slot->received != NULL) cudaEventDestroy(slot->received);
}

Status pipeline_destroy(Pipeline *p)
{
    if (p == NULL) return OK;
    TRY(extension_check_last(p->root, EXTENSION_PIPELINE));
    CUDA_TRY(cudaDeviceSynchronize());
    NnRun none = {.stream = p->root->ctx->compute_stream};
    IGNORE_STATUS(module_discard(p->module, &none)); // left by a failed forward
    for (int i = 0; i < p->n_slots && p->slots != NULL; i++) empty_slot(p, i);
    for (int i = 0; i < p->n_shared; i++) free(p->shared[i].pieces);
    if (p->computed != NULL) cudaEventDestroy(p->computed);
    if (p->stream != NULL) cudaStreamDestroy(p->stream);
    cudaFree(p->losses);
    p->root->extensions->pipeline = NULL;
    extension_pop(p->root);
    free(p->shared);
    free(p->slots);
    free(p->actions);
    free(p);
    return OK;
}
