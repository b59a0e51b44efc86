/* trainer.h: a GPT-2 or a Llama, the ranks that train it, and one step of the training: what the
 * example programs share.
 *
 * With FSDP every block is a unit and the model is the root. Without (unsharded) the model is on
 * one GPU, in plain modules, and no other rank takes part; the rest is the same: the gradient is
 * clipped, the learning rate follows the same schedule. So the two can be compared step by step.
 */
#ifndef EXAMPLES_TRAINER_H
#define EXAMPLES_TRAINER_H

#include "fsdp.h"
#include "launch.h"
#include "model.h"
#include "nn.h"
#include "offload.h"
#include "pipeline.h"
#include "precision.h"
#include "prefetch.h"
#include "recompute.h"
#include "schedule.h"
#include "step_graph.h"

// What is done with a step whose gradient's norm is NaN, infinite or above `spike`: NaNs go
// on, the training stops before the optimizer, or the optimizer leaves the step out.
typedef enum OnNan { ON_NAN_GO_ON, ON_NAN_STOP, ON_NAN_SKIP } OnNan;

typedef struct TrainerOptions {
    Gpt2Config model;   // or the sizes of a Llama
    LlamaOptions llama; // zero: a GPT-2
    AdamWConfig adamw;  // lr: the largest learning rate, after the warm-up
    RateSchedule rate;
    int B, T;       // sequences per rank and step, tokens in a sequence
    int steps;      // that the schedule of the learning rate is made for
    float clip;     // largest gradient norm
    bool unsharded; // one GPU, no FSDP
    bool keep;      // keep unsharded parameters from forward to backward
    uint64_t seed;  // of the weights
    bool strategic; // strategy and replicas are set; else ZeRO-3 as the six tasks have it
    Strategy strategy;
    int replicas;
    int accumulate;            // micro-batches of a step, of B sequences each; 0: one
    bool reduce_every_time;    // each of them reduces
    bool reduce_replicas_once; // over the shards; the last one over the replicas, too
    bool mixed;                // policy is set; strategic is, too
    MixedPrecisionPolicy policy;
    int layout;        // of the units: 0 flat, 1 by parameter (lab 6)
    int gather;        // 1: matrices are gathered in FP8 (lab 6)
    int reshard_ranks; // ZeRO-3: slices between forward and backward; 0: none
    bool prefetches;   // so many units ahead, in both passes; strategic is set, too
    int prefetch;
    RecomputeKind recompute;
    int recompute_every; // so that one in so many recomputes; 0: all
    bool offload;        // shards in host memory; strategic is set, too
    bool uneven;         // micro-batches of 1 to B sequences, each rank and step others
    int stages;          // of a pipeline, with the micro-batches of `accumulate`; 0 or 1: none
    PipelineKind schedule;
    OnNan on_nan;
    float spike;       // 0: none
    bool decay_groups; // weight decay for matrices alone
    bool graph;        // each step is a CUDA graph's launch (lab 8)
    bool regroups;     // all-gathers by a plan, within so many MiB; 0: no limit
    int regroup;
    float dropout;      // 0: none
    const char *freeze; // patterns of names (params.h); NULL: all train
} TrainerOptions;

typedef struct Trainer {
    TrainerOptions opt;
    World world;
    ncclComm_t comm;
    cudaStream_t stream;
    NnRun run;
    int device; // that this rank uses
    Module *model;
    PlainAdamW *plain; // unsharded
    Mesh mesh;         // with FSDP, as ctx and adamw
    FsdpContext ctx;
    FsdpAdamW adamw;
    LossScaler scaler;   // where the modules compute in fp16
    PipelineMesh stages; // with stages, as the two below
    PipelineTies ties;
    Pipeline *pipeline;
    int place, places;         // which part of the data is this rank's: all stages have the same
    int64_t parameters;        // of all stages
    size_t batch_bytes;        // of the two below
    int32_t *tokens, *targets; // device: (B·T) each; with stages (accumulate·B·T)
    float rate;                // the last step's learning rate
    float norm;                // of the last step's gradient, before it was clipped
    int64_t step_tokens;       // of all ranks in the last step
    uint64_t drawn;            // sequences of the data before the next step, by all ranks together
    struct GraphSteps *graph;  // graph_steps.h
    StepTrace trace;           // of a micro-batch, where collectives are regrouped
    StepPass *passes;          // (4) forward and backward of the first one, and of the last one
    bool regrouped;
    bool skipped; // the optimizer left the last step out (on_nan, or the loss scale)
} Trainer;

// Makes the trainer on this rank. opt, world and model (model_create) are set, the rest is zero;
// comm is that of world_connect, NULL where unsharded.
Status trainer_create(Trainer *t);
Status trainer_destroy(Trainer *t); // and the model

// One step on this rank's part of the batch, in and targets (accumulate·B·T) in host memory:
// forward and backward of each micro-batch, optimizer. step is 1, 2, … The gradient is that of the
// mean loss over all ranks' tokens; *loss is this rank's part of it: its mean over the ranks is
// that loss.
Status trainer_step(Trainer *t, int step, const int32_t *in, const int32_t *targets, float *loss);

// The loss scale and its tracker, where the loss is scaled: for a checkpoint, or from one (`set`; 0
// in it: there was none).
void trainer_scale(Trainer *t, float *scale, int *growth_tracker, bool set);

// The forward alone, of B sequences of T tokens. *loss where targets is not NULL; logits (B·T,
// vocab) in host memory, where it is not NULL. With FSDP all ranks must call it.
Status trainer_forward(Trainer *t, const int32_t *in, const int32_t *targets, int B, int T,
                       float *loss, float *logits);

// The same of the next T tokens of one sequence, with the cache of t->run, which has them then:
// logits (vocab) of what follows the last one, in host memory.
Status trainer_next(Trainer *t, const int32_t *in, int T, float *logits);

// What one GPU without FSDP takes at the peak of a step with as large a batch: measured, by doing
// one on this rank alone. Bytes; the batch itself is not counted.
Status trainer_unsharded_peak(Trainer *t, size_t *peak);

// *value = its mean over the ranks.
Status mean_over_ranks(Trainer *t, float *value);
// all (world, n) = everybody's mine (n).
Status gather_over_ranks(Trainer *t, const uint64_t *mine, int n, uint64_t *all);
// checkpoint_agree over all ranks, those of other stages too.
Status agree_over_ranks(Trainer *t, Status mine);

#endif
