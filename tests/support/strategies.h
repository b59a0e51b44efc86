/* strategies.h: small models trained under a strategy, and the oracle that each rank makes for
 * itself: gradients of a model without FSDP, one for each rank and micro-batch, added in the order
 * that include/strategy.h states, and under a policy with the casts of include/precision.h.
 */
#ifndef TESTS_STRATEGIES_H
#define TESTS_STRATEGIES_H

#include "files.h"
#include "fp8_gather.h"
#include "offload.h"
#include "pipeline.h"
#include "precision.h"
#include "prefetch.h"
#include "random_model.h"
#include "recompute.h"
#include "step_graph.h"
#include "training.h"

enum { CASE_RANKS = 8, CASE_ROUNDS = 8 }; // at most

typedef struct Wrapped Wrapped;

// A training: which model on which mesh, and how.
typedef struct Case {
    const char *name; // for messages; NULL: none
    Spec spec;
    StrategyOptions options;
    const MixedPrecisionPolicy *policy; // NULL: floats
    const PrefetchOptions *prefetch;    // NULL: none
    RecomputeKind recompute;
    bool offload;
    int replicas, rounds, steps;
    int stages; // of a pipeline; 0: it is none. Each has shards × replicas of its own
    PipelineKind kind;
    bool partial; // the all-reduce is left to the last micro-batch
    bool align;
    FsdpReshard reshard;       // of all units, before a strategy is on
    LayoutFn layout;           // NULL: flat
    const Fp8Options *fp8;     // NULL: parameters are gathered as they are
    double regroup;            // > 0: a plan for calls that cost so many µs; else none
    bool graph;                // forwards and backwards are captured and launched
    bool (*frozen)(int i);     // whether parameter i of the model is; NULL: none
    const RandomModel *random; // the model, in place of the spec's; NULL: that
    bool frozen_base;          // all is frozen but the random model's adapters
    bool tied;                 // an MLP whose blocks l.1 and l.2 share their bias
    bool bare_state;           // full_state at the end is asked for without the policy
    bool without_norm;         // the gradient's norm is not asked for
    bool uneven;               // each rank and micro-batch has another number of tokens
    float clip;    // > 0: to this norm; the parameters are then near the oracle's, to 1e-6
    float **grads; // shared memory: of each rank and micro-batch, as the ranks make them
    // Called between a step's backward and the optimizer, and before each step but the first: a
    // resume, say (case_resume). NULL: nothing.
    void (*before_update)(Wrapped *w, const struct Case *c, const Rank *r, int step);
    void (*between)(Wrapped *w, const struct Case *c, const Rank *r, int step);
} Case;

// A model under a strategy on one rank.
struct Wrapped {
    NnRun run;
    PipelineMesh ranks;        // one stage where there is no pipeline
    Pipeline *pipeline;        // NULL: none
    float losses[CASE_ROUNDS]; // of the micro-batches of its last step, on its last stage
    Mesh mesh;
    FsdpContext ctx;
    Module *model;
    FsdpRoot *root;
    FsdpAdamW adamw;
};

// For Case.frozen; the second: both parameters of the first unit, and another one.
static inline bool every_third(int i)
{
    return i % 3 == 1;
}
static inline bool a_unit_and_more(int i)
{
    return i < 2 || i == 5;
}
// Two steps of `rounds` micro-batches each. DDP has a replica on each rank, whatever is asked.
Case case_of(Spec spec, Strategy strategy, int world, int replicas, int rounds);
// What the library says where the case's options do not go with each other or with so many ranks;
// "": they do.
const char *case_refusal(const Case *c, int world);

// The ranks' mesh and the context; and back. What the library says of a shape that it refuses.
Status case_mesh(Wrapped *w, const Case *c, const Rank *r);
void case_unmesh(Wrapped *w);
// On a context that is there (w->ctx): the model, its units and all options. What the library says
// of the first that it refuses; case_take_down takes off what there is, and is needed then too.
Status case_build(Wrapped *w, const Case *c);
Status case_shard(Wrapped *w, const Case *c, PipelineTies *ties); // of these the units alone
void case_take_down(Wrapped *w);
// The same with all that a training needs; nothing may be refused.
void case_wrap(Wrapped *w, const Case *c, const Rank *r);
void case_unwrap(Wrapped *w, const Rank *r);
// Runs the body on `world` ranks, on a model that is wrapped before it and unwrapped after it.
typedef void (*WrappedBody)(Wrapped *w, const Case *c, const Rank *r);
#define run_wrapped(world, body, c) run_wrapped_at(__FILE__, __LINE__, world, body, c)
void run_wrapped_at(const char *file, int line, int world, WrappedBody body, const Case *c);
// The body on each case, up to one without rounds: in the same processes, whose starts cost more.
#define run_each(world, body, cases) run_each_at(__FILE__, __LINE__, world, body, cases)
void run_each_at(const char *file, int line, int world, RankBody body, Case *cases);
// The sequences of a rank's micro-batch, and the batch itself.
int case_rows(const Case *c, int step, int rank, int round);
Batch case_batch(const Case *c, int step, int rank, int round);
// Those of a pipeline's step: the first stage has the inputs, and the last one the targets.
typedef struct StageBatches {
    int n;
    Batch memory[CASE_ROUNDS];
    MicroBatch batch[CASE_ROUNDS];
} StageBatches;
void stage_batches_create(StageBatches *b, const Wrapped *w, const Case *c, int step);
void stage_batches_destroy(StageBatches *b);
// One step without the optimizer; the compute stream uses the gradients at the end, at once.
void case_train(Wrapped *w, const Case *c, const Rank *r, int step);

// A `between`: everything is saved, torn down, made again and loaded. In this folder, which the
// test makes and removes.
void case_resume(Wrapped *w, const Case *c, const Rank *r, int step);
extern char case_folder[PATH_BYTES];

// What an extension has put on is taken off by `take`: everything that can be seen is as it was
// before, whatever ran last, and the next pass has the same gradients (strategies_removed.c).
typedef struct Removal {
    const char *name; // of `take`
    Status (*put)(Wrapped *w, const Case *c);
    Status (*take)(Module *model);
    bool between_steps; // it may be taken off between steps alone; and there is a strategy below it
} Removal;
void run_removed(int world, const Case *c, const Removal *removal);
// A training with evaluations leaves no more memory, however long it goes on (strategies_growth.c).
void run_growth(int world, Case *c);

// A step of the case, of one stage, fails in its n-th call, for each n: its status says so; then
// fsdp_reshard_all and fsdp_zero_grad (of a pipeline: pipeline_destroy) leave no memory, and the
// next step has the gradients of one that nothing went before. So does the n-th call of what makes
// the case. (strategies_failing.c)
void run_failing_calls(int world, const Case *c);

// Waits until every rank is here.
void ranks_meet(const Rank *r);

// Trains on `world` ranks, and compares after each step with the oracle: gradients and their
// padding, the norm, the losses of a pipeline's micro-batches where they are floats, and at the end
// the parameters. It ends before a step with gradients that are not finite; whether the last case
// did.
void run_case(int world, Case *c);
bool case_overflowed(void);
// The same; returns the first failure's text (free it; NULL: none) instead of failing the test.
char *run_case_message(int world, Case *c);
// The library is asked for the case; NULL where each rank gets `reason` as its line.
char *run_refused_message(int world, Case *c, const char *reason);

// The most bytes of a category that were there at a time, of allocations that came and went since
// `first`: what an allocation was for is known when it is freed.
size_t case_peak(uint64_t first, GpuCategory category);
// Fails the rank where an allocation since `first`, of a whole step, was not freed: it would be
// missing in case_peak.
void check_all_freed(uint64_t first);

// The gradients of this rank's shards, one after the other; *n of them. The caller frees them.
float *case_gradients(const Wrapped *w, size_t *n);

#endif
