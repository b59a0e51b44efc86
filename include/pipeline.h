/* pipeline.h: the model cut into stages, and each stage sharded: pipeline parallelism. The contract
 * that lab 7 implements.
 *
 *   file         part                    main functions
 *   pipeline.c   stages and schedules    pipeline_mesh, pipeline_schedule, pipeline_step
 *   transfers.c  between two stages      pipeline_transfer, pipeline_exchange
 *   tied.c       across all stages       pipeline_sum_ties, pipeline_grad_norm
 *
 * The words are PyTorch's (torch.distributed.pipelining). Each *stage* holds some of the model's
 * blocks. A step is n micro-batches; each goes forward through all stages, as *activations* that a
 * stage sends to the next, and backward through them again, as their gradients. A *schedule* says
 * in which order a stage runs its forwards and backwards.
 *
 *   GPipe (Huang et al. 2019)   all forwards, then all backwards, in the order of micro-batches
 *   1F1B (Narayanan et al. 2019)   some forwards to begin with; then a forward and a backward
 *                               alternate: backwards run as early as they can, so that fewer
 *                               activations are there at a time
 *
 * Within a stage the ranks shard, with any strategy of strategy.h: the stage is a root of units
 * like any other model.
 *
 *   PipelineMesh mesh;                       // stages × ranks of a stage
 *   pipeline_mesh(&mesh, world, 2);
 *   pipeline_cut(model, &mesh, &ties);       // the model is this rank's stage now
 *   mesh_2d(&fsdp, mesh.group.comm, 1); fsdp_context_create(…);
 *   pipeline_fully_shard(model, …); strategy_apply(model, …);
 *   pipeline_create(&pipeline, model, &mesh, &ties, PIPELINE_1F1B, n);
 *   pipeline_step(pipeline, &run, batches, scale, losses);
 *   pipeline_clip_grad_norm(pipeline, 1.0f, &norm);   // fsdp_clip_grad_norm sees this stage alone
 *   fsdp_adamw_step(…);
 *
 * Order of sums. Backwards run in the order of micro-batches, whatever the schedule, and accumulate
 * as strategy.h says: the gradients of a stage are bitwise those of a model that is not cut and has
 * accumulated the same micro-batches. A parameter that two stages share (tied: GPT-2's wte, on the
 * first and the last stage) has a copy on each. After the reductions of a step the sharded
 * gradients of the two are added: one addition of two floats, the same sum on both.
 *
 * Sizes are in elements unless a name says bytes. Every function that returns a Status prints one
 * line if it fails.
 */
#ifndef SHARDLAB_PIPELINE_H
#define SHARDLAB_PIPELINE_H

#include "strategy.h"

#define Status CHECKED_STATUS // as check.h says

typedef enum PipelineKind { PIPELINE_GPIPE, PIPELINE_1F1B } PipelineKind;

// One forward or backward of a micro-batch.
typedef struct PipelineAction {
    bool backward;
    int micro_batch;
} PipelineAction;

// Ranks stage·R … stage·R + R - 1 are a stage of R ranks: neighbours, because ranks that shard send
// more than stages send each other.
typedef struct PipelineMesh {
    ncclComm_t world; // all ranks
    int stage, stages;
    int place;          // this rank's among the ranks of its stage
    ProcessGroup group; // these; with a communicator, also of one rank: mesh_1d and mesh_2d take it
} PipelineMesh;

// A parameter that another stage holds, too.
typedef struct PipelineTie {
    Param *param;
    int other; // that stage
} PipelineTie;
enum { PIPELINE_MOST_TIES = 8 };
typedef struct PipelineTies {
    int n;
    PipelineTie tie[PIPELINE_MOST_TIES];
} PipelineTies;

// A micro-batch, the same on all stages. Its memory stays until the step has ended.
typedef struct MicroBatch {
    const void *in;         // device: the model's input (B·T rows). Of the first stage alone
    const int32_t *targets; // device (B·T). Of the last stage alone
    int B;                  // sequences
} MicroBatch;

// A micro-batch in flight: between its forward and its backward.
typedef struct PipelineSlot {
    struct PipelineHeld *held; // what modules and units hold meanwhile (pipeline_swap)
    Buffer in;                 // activations that were received; no memory on the first stage
    Buffer out;                // the stage's output, memory of its module
    Buffer out_grad;           // its gradient, received; no memory on the last stage
    Buffer in_grad;            // of `in`, to be sent; allocated on the compute stream
    cudaEvent_t received;      // recorded after in or out_grad was received
} PipelineSlot;

typedef struct PipelinePiece {
    int rank;           // of the world, that has these elements of the parameter too
    int64_t begin, end; // elements of this rank's shard of the unit
} PipelinePiece;
// A parameter that this rank shares with ranks of another stage.
typedef struct PipelineShared {
    Param *param;
    int other;
    FsdpUnit *unit; // that has the parameter here
    int n_pieces;
    PipelinePiece *pieces; // (n_pieces) by rank; their elements make a range without a gap
} PipelineShared;

typedef struct Pipeline {
    const PipelineMesh *mesh;
    PipelineKind kind;
    int n;          // micro-batches of a step
    Module *module; // the stage
    FsdpRoot *root;
    NnRun *run;                // of the step that is running, as are:
    const MicroBatch *batches; // (n)
    float scale;
    int n_actions;
    PipelineAction *actions; // (n_actions) this stage's schedule
    int n_slots;
    PipelineSlot *slots; // (n_slots) micro-batch k has slot k % n_slots
    int n_shared;
    PipelineShared *shared; // (n_shared)
    cudaStream_t stream;    // of the transfers; it allocates and frees in and out_grad
    cudaEvent_t computed;   // recorded where the stream of the transfers waits for compute
    float *losses;          // device (n), on the last stage
} Pipeline;

// ------------------------------------------------------- Stages and schedules: pipeline.c

// Fills in the mesh, all fields. Collective. The group's communicator is made here (ncclCommSplit),
// or is `world`, if there is one stage. ERR_ARGUMENT unless `stages` divides the ranks;
// ERR_NCCL.
Status pipeline_mesh(PipelineMesh *mesh, ncclComm_t world, int stages);
// Destroys the communicator that pipeline_mesh made, and not `world`.
Status pipeline_mesh_destroy(PipelineMesh *mesh);

// Stage `stage` has blocks [*first, *last) of `blocks`: each block is in one stage, in order, and
// no stage has more than one block more than another. ERR_ARGUMENT if a stage would have none.
Status pipeline_blocks(int blocks, int stages, int stage, int *first, int *last);

// The most micro-batches that are in flight at a time: n, of 1F1B the smaller of n and
// stages-stage.
int pipeline_in_flight(PipelineKind kind, int stage, int stages, int n);
// The stage's 2n actions in order. 1F1B: one forward less than pipeline_in_flight to begin with,
// then forwards and backwards alternate until the forwards are over, then the backwards that are
// left.
void pipeline_schedule(PipelineKind kind, int stage, int stages, int n, PipelineAction *out);

// Forward, loss and backward of all micro-batches; afterwards the compute stream sees every
// gradient reduced and those of tied parameters summed. `scale` is what a row's loss counts for
// (cross_entropy_scaled). losses[k] = the mean loss of micro-batch k, on the last stage, which
// waits for it; NULL: nobody waits. Collective. After a failure pipeline_destroy is all that is
// left.
Status pipeline_step(Pipeline *pipeline, NnRun *run, const MicroBatch *batches, float scale,
                     float *losses);

// The forward of micro-batch k, whose input is in its slot (on the first stage: in the batch), and
// its backward, whose gradient is; on the last stage the backward begins with the loss. What they
// make is put in the slot.
Status pipeline_forward(Pipeline *pipeline, int k);
Status pipeline_backward(Pipeline *pipeline, int k);

// ------------------------------------------------------- Between two stages: transfers.c

// Returns the slot's buffer, with its type and size, that the action needs from another stage
// (before it), or has made for one (after it), and sets *stage. NULL: none. A buffer to receive has
// no memory yet.
Buffer *pipeline_transfer(Pipeline *pipeline, PipelineAction action, bool before, int *stage);

// Between two actions (NULL: before the first, after the last): sends what `done` has made and
// receives what `next` needs, both at once, on pipeline->stream. Sends follow the work queued on
// the compute stream. Allocates the buffers to receive; the slot's event is recorded when they have
// arrived. After a backward frees the slot's buffers, each after its last use, and before it
// allocates others, as far as they have been used by then. The host waits for nothing.
Status pipeline_exchange(Pipeline *pipeline, const PipelineAction *done,
                         const PipelineAction *next);

// ------------------------------------------------------- Across all stages: tied.c

// The gradients of tied parameters: of every piece of pipeline->shared the sum of both stages', on
// both. Between the last reduction and the optimizer; pipeline_step's end.
Status pipeline_sum_ties(Pipeline *pipeline);

// *norm = the 2-norm of the gradient of all stages: the same number on every rank. A tied parameter
// and a replica count once. Waits for the stream. Collective, over all ranks.
Status pipeline_grad_norm(Pipeline *pipeline, float *norm);
// Scales the gradients of all stages by max_norm / *norm if *norm is larger than max_norm.
Status pipeline_clip_grad_norm(Pipeline *pipeline, float max_norm, float *norm);

// ------------------------------------------------------- Given code (lib/fsdp/pipeline_*.c)

// Cuts a model into this rank's stage, in place, before it is sharded. Blocks are the children
// whose name has a number ("h.3", "l.0"); what is before the first belongs to the first stage, what
// is after the last one to the last. ERR_ARGUMENT for a model that is no sequence, with fewer
// blocks than stages, or with a parameter that three stages share.
Status pipeline_cut(Module *model, const PipelineMesh *mesh, PipelineTies *ties);

// Makes the stage's blocks units, and the stage itself the root (fully_shard). Where that would
// have no parameter left to take, the last block is not a unit of its own.
Status pipeline_fully_shard(Module *stage, FsdpContext *ctx, const FsdpOptions *options);

// The stage, which is a root with a strategy, gets a schedule. Collective. ERR_ARGUMENT if it
// has none; if n is no positive number; for a strategy with reshard_ranks: a unit has one slice,
// and there would be several forwards; and if requires_all_reduce is off: the flags are the
// pipeline's. Under offload the gradients of tied parameters are on the device while they are
// summed.
Status pipeline_create(Pipeline **pipeline, Module *stage, const PipelineMesh *mesh,
                       const PipelineTies *ties, PipelineKind kind, int n);
// A stage in a pipeline gets no loss scaler (loss_scaler_create).
// Frees it, and what a step that failed has left. NULL is fine. ERR_ARGUMENT, and nothing is freed,
// under what was put on later.
Status pipeline_destroy(Pipeline *pipeline);

// The losses of n batches (at most those of a step), without gradients: forwards alone, after which
// every unit is sharded. losses[k] as pipeline_step's. Collective.
Status pipeline_evaluate(Pipeline *pipeline, NnRun *run, const MicroBatch *batches, int n,
                         float *losses);

// The policy of a stage: what one stage hands the next is of param_dtype, not cast in between.
struct MixedPrecisionPolicy;
void pipeline_policy(const PipelineMesh *mesh, struct MixedPrecisionPolicy *policy);

// Micro-batch k's slot; and exchanges what the stage holds between a forward and its backward with
// what the slot does: the module's saved activations, and the order in which units' forwards ended.
PipelineSlot *pipeline_slot(Pipeline *pipeline, int k);
Status pipeline_swap(Pipeline *pipeline, int k);
// Memory for a buffer of the slot that is to be received, on the stream of the transfers.
Status pipeline_alloc(Pipeline *pipeline, Buffer *buffer);
// Of pipeline_grad_norm under offload, whose gradients are on the host: *squares = Σ of the squares
// of those that this stage counts, of all stages. sum: one double on the device.
Status pipeline_host_squares(const Pipeline *pipeline,
                             bool (*counts)(const Pipeline *pipeline, const Param *param),
                             double *sum, double *squares);
// The flags of the backward of micro-batch k (strategy_micro_batch). Parameters that a strategy
// keeps from forward to backward are kept to the step's end: another forward may need them.
Status pipeline_micro_batch(Pipeline *pipeline, int k);

#undef Status

#endif
