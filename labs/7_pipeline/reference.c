/* Lab 7, first file: stages and schedules. Which rank has which blocks, and in which order a stage
 * runs its forwards and backwards.
 *
 * A stage cannot begin before the stage before it has ended: of p stages p - 1 are idle at the
 * beginning of a step, and again at its end. With n micro-batches a stage works for n of n + p - 1
 * turns; the rest is the *bubble*. GPipe and 1F1B have the same bubble, but 1F1B saves memory: a
 * backward frees its micro-batch's activations, and it runs as soon as its gradient has arrived.
 *
 *     stage 0   F0 F1 F2 F3          B0    B1    B2    B3
 *     stage 1      F0 F1 F2       B0 F3 B1    B2    B3
 *     stage 2         F0 F1    B0 F2 B1 F3 B2    B3
 *     stage 3            F0 B0 F1 B1 F2 B2 F3 B3
 *
 * [Note: several in flight] A module has room for one forward that waits for its backward. So after
 * each forward pipeline_swap puts the module's state into the micro-batch's slot, and puts it back
 * before the backward. Nothing is copied on the device.
 *
 * Interface:
 *   pipeline_mesh, pipeline_mesh_destroy      stages × ranks
 *   pipeline_blocks                           which blocks a stage has
 *   pipeline_in_flight, pipeline_schedule     the order of forwards and backwards
 *   pipeline_forward, pipeline_backward       one micro-batch
 *   pipeline_step                             all of them
 */
#include "pipeline.h"

Status pipeline_mesh(PipelineMesh *mesh, ncclComm_t world, int stages)
{
    int rank, size;
    NCCL_TRY(ncclCommUserRank(world, &rank));
    NCCL_TRY(ncclCommCount(world, &size));
    if (stages < 1 || size % stages != 0)
        return fail(ERR_ARGUMENT, "%d ranks cannot be %d stages: the stages must divide them", size,
                    stages);
    int ranks = size / stages;
    *mesh = (PipelineMesh){.world = world, .stages = stages, .group = {.size = ranks}};
    //[L7.1] *mesh has this rank's stage, its place there, and the group of the stage's
    //  ranks. The group has a communicator of its own, or the world's if there is one stage.
    //? With 6 ranks and 2 stages, which ranks are stage 1?
    mesh->stage = rank / ranks;
    mesh->place = mesh->group.rank = rank % ranks;
    mesh->group.comm = world;
    if (stages > 1)
        NCCL_TRY(ncclCommSplit(world, mesh->stage, mesh->place, &mesh->group.comm, NULL));
    return OK;
    //[end L7.1]
}

Status pipeline_mesh_destroy(PipelineMesh *mesh)
{
    //[[L7.1a] What pipeline_mesh made is destroyed, and the group has no communicator.
    ncclComm_t comm = mesh->group.comm;
    mesh->group.comm = NULL;
    if (comm != NULL && comm != mesh->world) NCCL_TRY(ncclCommDestroy(comm));
    return OK;
    //[end L7.1a]
}

Status pipeline_blocks(int blocks, int stages, int stage, int *first, int *last)
{
    if (stages < 1 || stage < 0 || stage >= stages)
        return fail(ERR_ARGUMENT, "there is no stage %d of %d", stage, stages);
    if (blocks < stages)
        return fail(ERR_ARGUMENT, "%d blocks cannot be %d stages: each has one at least", blocks,
                    stages);
    //[L7.2] The stage's blocks, as pipeline.h says.
    //? Seven blocks on three stages: which stage has three? Try blocks·stage/stages.
    *first = (int)((int64_t)blocks * stage / stages);
    *last = (int)((int64_t)blocks * (stage + 1) / stages);
    return OK;
    //[end L7.2]
}

int pipeline_in_flight(PipelineKind kind, int stage, int stages, int n)
{
    //[L7.3] The result is how many forwards of the stage may wait for their backward at a
    //  time.
    //? When does the last stage's first backward run in 1F1B? And the first stage's?
    int most = kind == PIPELINE_1F1B ? stages - stage : n;
    return most < n ? most : n;
    //[end L7.3]
}

void pipeline_schedule(PipelineKind kind, int stage, int stages, int n, PipelineAction *out)
{
    //[L7.4] out has the stage's 2n actions in order: forwards and backwards each in the order of
    //  micro-batches, and never more in flight than pipeline_in_flight says.
    //? If the next forward would be one too many, what must run first?
    int most = pipeline_in_flight(kind, stage, stages, n), forwards = 0, backwards = 0;
    for (int i = 0; i < 2 * n; i++) {
        bool backward = forwards == n || forwards - backwards == most;
        out[i] = (PipelineAction){backward, backward ? backwards++ : forwards++};
    }
    //[end L7.4]
}

static bool is_last(const Pipeline *p)
{
    return p->mesh->stage == p->mesh->stages - 1;
}

// Sets the run to the micro-batch's sequences, and makes the compute stream wait for its received
// buffer.
static Status begin_pass(Pipeline *p, int k, bool received)
{
    p->run->B = p->batches[k].B;
    if (received) CUDA_TRY(cudaStreamWaitEvent(p->run->stream, pipeline_slot(p, k)->received, 0));
    return OK;
}

Status pipeline_forward(Pipeline *p, int k)
{
    PipelineSlot *slot = pipeline_slot(p, k);
    bool first = p->mesh->stage == 0;
    TRY(begin_pass(p, k, !first));
    //[L7.5] The stage's forward of micro-batch k is queued, slot->out is its output, and the slot
    //  has the state that it left for the backward: the module is ready for another forward.
    //? What does module_forward say to a module that still waits for a backward?
    const void *in = first ? p->batches[k].in : slot->in.data;
    TRY(module_forward_typed(p->module, p->run, in, &slot->out));
    return pipeline_swap(p, k);
    //[end L7.5]
}

// Computes the gradient of the last stage's output, and the loss into p->losses[k].
static Status loss_of(Pipeline *p, int k, float **out_grad)
{
    const PipelineSlot *slot = pipeline_slot(p, k);
    int rows = p->run->B * p->run->T;
    return cross_entropy_queued(p->run, slot->out.data, p->batches[k].targets, rows,
                                p->module->out_dim, p->scale, &p->losses[k], out_grad);
}

Status pipeline_backward(Pipeline *p, int k)
{
    PipelineSlot *slot = pipeline_slot(p, k);
    float *loss_grad = NULL;
    TRY(begin_pass(p, k, !is_last(p)));
    if (is_last(p)) TRY(loss_of(p, k, &loss_grad));
    //[L7.6] The stage's backward of micro-batch k is queued, with the state that its forward left
    //  and with the flags of micro-batch k (pipeline_micro_batch); slot->in_grad is its result,
    //  unless the stage is the first. The loss's gradient is freed, even after a failure.
    //? Which backward reduces the gradients, and how do the units know that it is this one?
    const void *out_grad = is_last(p) ? loss_grad : slot->out_grad.data;
    TRY(pipeline_swap(p, k));
    TRY(pipeline_micro_batch(p, k));
    Status status = module_backward_typed(p->module, p->run, out_grad,
                                          p->mesh->stage > 0 ? &slot->in_grad : NULL);
    if (loss_grad != NULL) CUDA_TRY(cudaFreeAsync(loss_grad, p->run->stream));
    return status;
    //[end L7.6]
}

// Copies the losses to the host, if they are wanted and this is the last stage.
static Status fetch_losses(const Pipeline *p, float *losses)
{
    if (losses == NULL || !is_last(p)) return OK;
    cudaStream_t stream = p->run->stream;
    CUDA_TRY(cudaMemcpyAsync(losses, p->losses, (size_t)p->n * sizeof *losses,
                             cudaMemcpyDeviceToHost, stream));
    CUDA_TRY(cudaStreamSynchronize(stream));
    return OK;
}

Status pipeline_step(Pipeline *p, NnRun *run, const MicroBatch *batches, float scale, float *losses)
{
    p->run = run;
    p->batches = batches;
    p->scale = scale;
    //[L7.7] All actions of the stage are queued in order, with an exchange before the first,
    //  between two, and after the last; then the gradients of tied parameters are summed.
    //? What must have happened to a gradient before two stages add theirs?
    const PipelineAction *done = NULL;
    for (int i = 0; i < p->n_actions; i++) {
        const PipelineAction *action = &p->actions[i];
        TRY(pipeline_exchange(p, done, action));
        TRY(action->backward ? pipeline_backward(p, action->micro_batch)
                             : pipeline_forward(p, action->micro_batch));
        done = action;
    }
    TRY(pipeline_exchange(p, done, NULL));
    TRY(pipeline_sum_ties(p));
    //[end L7.7]
    return fetch_losses(p, losses);
}
