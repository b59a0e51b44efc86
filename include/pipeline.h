/* pipeline.h: pipeline parallelism: the model is cut into stages, and each stage is sharded. The
 * contract of lab 7.
 *
 *   file         part                    main functions
 *   pipeline.c   stages and schedules    pipeline_mesh, pipeline_schedule, pipeline_step
 *   transfers.c  between two stages      pipeline_transfer, pipeline_exchange
 *   tied.c       across all stages       pipeline_sum_ties, pipeline_grad_norm
 *
 * The words are PyTorch's (torch.distributed.pipelining). Each *stage* holds some of the model's
 * blocks. A step has n micro-batches. Each goes forward through all stages, which send the next one
 * *activations*, and backward through them again, with gradients. A *schedule* says in which order
 * a stage runs its forwards and backwards.
 *
 *   GPipe (Huang et al. 2019)   all forwards, then all backwards, in the order of micro-batches
 *   1F1B (Narayanan et al. 2019)   some forwards first; then forwards and backwards alternate:
 *                               backwards run as early as they can, so that fewer activations
 *                               are held at a time
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
 *   pipeline_clip_grad_norm(pipeline, 1.0f, &norm);   // fsdp_clip_grad_norm sees only this stage
 *   fsdp_adamw_step(…);
 *
 * Order of sums. With both schedules backwards run in the order of micro-batches and accumulate as
 * strategy.h says: a stage's gradients are bitwise those of an uncut model that has accumulated the
 * same micro-batches. If two stages share a parameter (tied: GPT-2's wte, on the first and the last
 * stage), each has a copy. After the reductions of a step the sharded gradients of the two are
 * added: one addition of two floats, the same sum on both.
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
    int place;          // this rank's place among the ranks of its stage
    ProcessGroup group; // the stage's ranks; even one has a communicator, for mesh_1d and mesh_2d
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
    const void *in;         // device: the model's input (B·T rows). Only on the first stage
    const int32_t *targets; // device (B·T). Only on the last stage
    int B;                  // sequences
} MicroBatch;

// A micro-batch in flight: between its forward and its backward.
typedef struct PipelineSlot {
    struct PipelineHeld *held; // the state of modules and units meanwhile (pipeline_swap)
    Buffer in;                 // the received activations; no memory on the first stage
    Buffer out;                // the stage's output; its module's memory
    Buffer out_grad;           // the output's gradient, received; no memory on the last stage
    Buffer in_grad;            // the gradient of `in`, to send; allocated on the compute stream
    cudaEvent_t received;      // recorded after in or out_grad was received
} PipelineSlot;

typedef struct PipelinePiece {
    int rank;           // in the world: the other rank that has these elements
    int64_t begin, end; // elements of this rank's shard of the unit
} PipelinePiece;
// A parameter that this rank shares with ranks of another stage.
typedef struct PipelineShared {
    Param *param;
    int other;
    FsdpUnit *unit; // has the parameter here
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

// Fills in all fields of the mesh. Collective. Makes the group's communicator (ncclCommSplit); with
// one stage it is `world`. ERR_ARGUMENT unless `stages` divides the ranks; ERR_NCCL.
Status pipeline_mesh(PipelineMesh *mesh, ncclComm_t world, int stages);
// Destroys the communicator that pipeline_mesh made, but not `world`.
Status pipeline_mesh_destroy(PipelineMesh *mesh);

// Stage `stage` has blocks [*first, *last) of `blocks`: each block is in one stage, in order, and
// no stage has more than one block more than another. ERR_ARGUMENT if a stage would have none.
Status pipeline_blocks(int blocks, int stages, int stage, int *first, int *last);

// The most micro-batches that are in flight at a time: n; for 1F1B the smaller of n and
// stages-stage.
int pipeline_in_flight(PipelineKind kind, int stage, int stages, int n);
// Writes the stage's 2n actions in order. 1F1B: first one forward less than pipeline_in_flight,
// then forwards and backwards alternate until no forward is left, then the remaining backwards.
void pipeline_schedule(PipelineKind kind, int stage, int stages, int n, PipelineAction *out);

// Forward, loss and backward of all micro-batches; afterwards the compute stream has waited for
// every reduction and summed the gradients of tied parameters. `scale` is the weight of a row's
// loss (cross_entropy_scaled). losses[k] = the mean loss of micro-batch k, on the last stage, which
// waits for it; NULL: no host waits. Collective. After a failure only pipeline_destroy may be
// called.
Status pipeline_step(Pipeline *pipeline, NnRun *run, const MicroBatch *batches, float scale,
                     float *losses);

// The forward of micro-batch k, with its input from its slot (on the first stage: from the batch),
// and its backward, with the output's gradient from the slot (on the last stage: from the loss).
// They put their results into the slot.
Status pipeline_forward(Pipeline *pipeline, int k);
Status pipeline_backward(Pipeline *pipeline, int k);

// ------------------------------------------------------- Between two stages: transfers.c

// The slot's buffer, with its type and size, that the action needs from another stage (before it)
// or has made for one (after it), and that stage. NULL: none. A buffer to receive has no memory
// yet.
Buffer *pipeline_transfer(Pipeline *pipeline, PipelineAction action, bool before, int *stage);

// Between two actions (NULL: before the first, after the last): sends what `done` has made and
// receives what `next` needs, both at once, on pipeline->stream. Sends follow the work queued on
// the compute stream; the buffer to receive is allocated here, and the slot's event says when it
// has arrived. After a backward the slot's buffers are freed, each after its last use; those that
// have been used by then, before others are allocated. The host waits for nothing.
Status pipeline_exchange(Pipeline *pipeline, const PipelineAction *done,
                         const PipelineAction *next);

// ------------------------------------------------------- Across all stages: tied.c

// Sums the gradients of tied parameters: each piece of pipeline->shared is both stages' sum, on
// both. pipeline_step ends with it, after the last reduction.
Status pipeline_sum_ties(Pipeline *pipeline);

// *norm = the 2-norm of the gradient of all stages, the same number on every rank. A tied parameter
// and a replica count once. Waits for the stream. Collective, over all ranks.
Status pipeline_grad_norm(Pipeline *pipeline, float *norm);
// Scales the gradients of all stages by max_norm / *norm if *norm is larger than max_norm.
Status pipeline_clip_grad_norm(Pipeline *pipeline, float max_norm, float *norm);

// ------------------------------------------------------- Given code (lib/fsdp/pipeline_*.c)

// Cuts a model into this rank's stage, in place, before it is sharded. Blocks are the children
// whose name has a number ("h.3", "l.0"); children before the first block belong to the first
// stage, children after the last block to the last. ERR_ARGUMENT for a model that is not a
// sequence, with fewer blocks than stages, or with a parameter that three stages share.
Status pipeline_cut(Module *model, const PipelineMesh *mesh, PipelineTies *ties);

// Makes the stage's blocks units, and the stage itself the root (fully_shard). If the root would
// have no parameter, the last block is not a unit of its own.
Status pipeline_fully_shard(Module *stage, FsdpContext *ctx, const FsdpOptions *options);

// Gives a schedule to the stage, which is a root with a strategy. Collective. ERR_ARGUMENT if it
// has no strategy; if n is not positive; if the strategy has reshard_ranks, since a unit has one
// slice and a pipeline several forwards; and if requires_all_reduce is off, since the pipeline sets
// the flags. Under offload the gradients of tied parameters are on the device while they are
// summed. A stage in a pipeline has no loss scaler (loss_scaler_create).
Status pipeline_create(Pipeline **pipeline, Module *stage, const PipelineMesh *mesh,
                       const PipelineTies *ties, PipelineKind kind, int n);
// Frees it, and what a failed step has left. NULL is fine. ERR_ARGUMENT, and nothing is freed, if
// an extension that was applied later is still there.
Status pipeline_destroy(Pipeline *pipeline);

// The losses of n batches (at most those of a step), without gradients: only forwards, after which
// every unit is sharded. losses[k] as in pipeline_step. Collective.
Status pipeline_evaluate(Pipeline *pipeline, NnRun *run, const MicroBatch *batches, int n,
                         float *losses);

// Changes a policy for a stage, so that stages send each other param_dtype without a cast.
struct MixedPrecisionPolicy;
void pipeline_policy(const PipelineMesh *mesh, struct MixedPrecisionPolicy *policy);

// The first finds micro-batch k's slot; the second swaps the state that the stage holds between a
// forward and its backward with the slot's: the module's saved activations, and the order in which
// units' forwards ended.
PipelineSlot *pipeline_slot(Pipeline *pipeline, int k);
Status pipeline_swap(Pipeline *pipeline, int k);
// Allocates a buffer of the slot to receive into, on the stream of the transfers.
Status pipeline_alloc(Pipeline *pipeline, Buffer *buffer);
// For pipeline_grad_norm under offload, with gradients on the host: *squares = Σ of the squares of
// the gradients that each stage counts, over all stages. sum: one double on the device.
Status pipeline_host_squares(const Pipeline *pipeline,
                             bool (*counts)(const Pipeline *pipeline, const Param *param),
                             double *sum, double *squares);
// Sets the flags for the backward of micro-batch k (strategy_micro_batch). Parameters that a
// strategy keeps from forward to backward stay to the step's end: another forward may need them.
Status pipeline_micro_batch(Pipeline *pipeline, int k);

#undef Status

#endif
