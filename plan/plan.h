/* plan.h: what a training step would take on a machine that has not been bought yet.
 *
 * The student's files run dry (simgpu/pages/dry.md), one rank of each kind alone among phantoms.
 * The ranks' logs show what they hold and send, and are timed together on the modelled machine.
 *
 * Files, each of which calls only those below it:
 *
 *   main.c           the order of the work
 *   fit.c            the fastest of several plans that fit
 *   print.c, json.c  the plan as a table and as JSON
 *   advice.c         what would help most, which may be other plans
 *   levers.c         settings that make a step fit
 *   text.c           lines of 80 columns, times in their unit
 *   make.c           one plan: formulas, ranks, times
 *   rank_kinds.c     which ranks differ
 *   run_ranks.c      processes that run the ranks
 *   stage_ties.c     what these cannot know in a dry run
 *   host_dry.c       what they need not do
 *   step_time.c      the step in time, from the logs
 *   timeline_json.c  the same, operation by operation, as JSON
 *   rank_record.c    what a rank keeps of its own log: memory, messages
 *   formulas.c       the same quantities without a run
 *   stage_parts.c    the model of a stage, and its units
 *   options.c        the meaning of the settings, and what is wrong with them
 *   lab_options.c    the labs' settings
 *   config.c         a model's config.json
 *   settings.c       NAME=VALUE on the command line
 *   models.c         models by name
 */
#ifndef PLAN_H
#define PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "check.h"
#include "common/model.h"
#include "common/trainer.h"
#include "gpulog.h"
#include "machine/machine.h"
#include "nn.h"
#include "pipeline.h"
#include "recompute.h"
#include "strategy.h"

#define PLAN_ENTRIES 1048576 // entries of a rank's log
#define PLAN_ALIKE 65536     // entries that differ
#define PLAN_KINDS 128       // ranks that run
#define PLAN_STAGES 64
#define PLAN_STEPS 2 // the last one is measured

typedef enum PlanRun {
    PLAN_ALONE,    // dry, one rank of each kind among phantoms
    PLAN_DRY,      // dry, all ranks
    PLAN_EXECUTED, // all ranks, with their arithmetic
} PlanRun;

typedef struct PlanOptions {
    char model_name[32];
    Gpt2Config model;
    LlamaOptions llama; // with kv_heads and hidden; zero: a GPT-2
    int gpus, replicas;
    bool strategic; // strategy and replicas are set (lab 1); else ZeRO-3 by the six tasks alone
    Strategy strategy;
    char strategy_name[16];
    int reshard_ranks;       // slices between forward and backward; 0: none
    bool reduce_every_time;  // each micro-batch reduces
    bool reduce_given;       // else each reduces if nothing else fits
    RecomputeKind recompute; // lab 4, like offload: shards in host memory
    int recompute_every;     // one in so many blocks, or attentions
    bool recompute_given, offload;
    bool prefetches; // prefetch is set: units ahead (lab 3)
    int prefetch;
    bool per_parameter;           // how units are cut (lab 6); else flat
    bool fp8;                     // all-gathers of matrices in 8 bits (lab 6)
    int stages;                   // of a pipeline (lab 7); 1: none
    PipelineKind schedule;        // schedule of the pipeline's micro-batches
    int batch, accumulate, micro; // sequences of a step; micro-batches; sequences of one on a GPU
    bool batch_given;
    int seq;
    bool tf32;
    bool mixed;                // dtype or reduce_dtype is not float (lab 2): strategic, too
    DType dtype, reduce_dtype; // of parameters and modules; of gradients in reductions
    bool clip;                 // the gradient's norm counts as too large
    int efficiency;            // percent of the memory's bandwidth that kernels reach; 0: machine's
    bool compiled;             // kernels are fused, as by torch.compile
    bool flash1;               // attention as the first FlashAttention's
    bool fp8_products;         // products in FP8
    bool fused_loss;           // the loss has no logits in floats
    bool graph, regroups;      // the step as a graph, its all-gathers by a plan (lab 8)
    int regroup;               // MiB unsharded at most; 0: no limit
    bool candidate;            // it may need more memory than there is: ERR_MEMORY, silently
    bool verbose;              // prints what dry runs read
    bool values;               // parameters get initial values
    bool all;                  // every rank runs, not one of each kind
    bool fit;                  // looks for the strategy, micro-batches and others
    bool advice;               // also makes plans with what would help most
    int slow_rank, slow;       // percent by which that rank's kernels take longer; 0: none
    PlanRun run;
    const SimMachine *machine;
    const char *machine_name; // as given: a name or a file
    const char *json;         // a file; NULL: none
    const char *timeline;     // the same
} PlanOptions;

// ---- models.c ---- False: the name is not known.
bool plan_model(const char *name, Gpt2Config *model, LlamaOptions *llama);
// "gpt2, gpt2-medium …"
void plan_model_names(char *text, size_t size);

// ---- options.c ---- The ranks of a stage; without stages, all ranks.
int plan_places(const PlanOptions *options);
// "no", "blocks", "attention" (lab_options.c)
const char *plan_recompute_name(const PlanOptions *options);
// ERR_ARGUMENT, after a line on stderr that says what is wrong.
Status plan_options(int argc, char **argv, PlanOptions *options);

// ---- rank_kinds.c ---- The ranks to run, one of each kind, in ascending order. Returns their
// number; 0: not known.
int plan_kinds(const PlanOptions *options, int ranks[PLAN_KINDS]);

// ---- stage_parts.c ---- The model of a stage, on meta; NULL, after a line on stderr.
Module *plan_stage(const PlanOptions *options, int stage);
typedef struct PlanUnitSize {
    int64_t numel, shard; // elements; of a rank, with padding
    int params, matrices; // matrices: of more than one dimension, which FP8 quantises
    int64_t codes;        // elements of a rank's rows of the matrices
} PlanUnitSize;
typedef struct PlanParts { // of a stage
    int blocks;            // blocks that are units
    PlanUnitSize block, root;
} PlanParts;
PlanParts plan_parts(const PlanOptions *options, const Module *stage);
// Whether one of the first `blocks` blocks has the parameter.
bool plan_in_block(const Module *stage, int blocks, const Param *param);

// ---- rank_record.c ----
#define PLAN_TEXT 200
#define PLAN_UNITS 160
typedef struct PlanUnit { // elements
    char name[48];
    int64_t numel, padded, shard, valid; // valid: those of the rank's shard that are not padding
} PlanUnit;
typedef struct PlanEntry { // of a log: the number of its kind, and what is its own
    uint32_t alike, launch;
    cudaEvent_t event;
    uint64_t call, group; // of a collective
} PlanEntry;
typedef struct PlanRecord {
    int rank;
    bool done;                              // the run came to its end
    bool full;                              // its log exceeds the room for entries
    int n, first;                           // entries; the first of the measured step
    uint64_t order;                         // a hash of all operations, in their order
    uint64_t peak, at_peak[GPU_CATEGORIES]; // bytes
    uint64_t held[GPU_CATEGORIES];          // before the measured step
    uint64_t most[GPU_CATEGORIES];          // the most in the measured step
    uint64_t over;                          // bytes above the machine's memory, at its first excess
    char peak_where[PLAN_TEXT], over_where[PLAN_TEXT];
    GpuTraffic traffic[GPU_RECV + 1];    // of the measured step
    uint64_t products, attention, other; // FLOP of the measured step
    uint64_t copies[3], copied[3];       // calls and bytes of copies within the GPU, to it, from it
    int n_units;
    PlanUnit unit[PLAN_UNITS]; // the root first; no more than there is room for
    PlanEntry entry[PLAN_ENTRIES];
    int n_alike;
    GpuLogEntry alike[PLAN_ALIKE]; // range 0: the bytes that all its ranges read and write
} PlanRecord;

// From the calling process's log; the measured step begins with entry `first`.
void plan_record(PlanRecord *record, uint64_t first, const PlanOptions *options);
// Without index, event, launch and call.
const GpuLogEntry *plan_entry(const PlanRecord *record, int i);
typedef enum PlanKind {
    PLAN_PRODUCT,
    PLAN_ATTENTION,
    PLAN_OPTIMIZER,
    PLAN_KERNEL, // the others
    PLAN_COPY,
    PLAN_ALL_GATHER,
    PLAN_REDUCE_SCATTER,
    PLAN_ALL_REDUCE,
    PLAN_MESSAGE, // other calls of NCCL
    PLAN_TIME_KINDS
} PlanKind;
PlanKind plan_kind_of(const GpuLogEntry *entry);
uint64_t plan_flops_of(const GpuLogEntry *entry);

// ---- stage_ties.c ---- In a dry run: which elements of tied parameters this rank and the ranks of
// another stage send each other.
Status plan_ties(const PlanOptions *options, Trainer *trainer);

// ---- host_dry.c ---- From now on this process takes no memory for shards on the host.
void plan_host_dry(void);

// ---- run_ranks.c ----
typedef struct PlanRanks {
    int n;
    PlanRecord *record[PLAN_KINDS];
    char *notes; // what the first rank wrote to stderr and others did not; free it
} PlanRanks;
Status plan_run(const PlanOptions *options, const int *ranks, int n, PlanRanks *all);
void plan_free(PlanRanks *all);

// ---- step_time.c ---- Picoseconds, of the slowest rank that ran.
typedef struct PlanShare {      // of one kind of operation
    uint64_t calls, time, work; // work: if nothing slows them
    uint64_t flops, bytes;      // bytes: read and written; of collectives, sent
    uint64_t latency;           // of collectives
    const char *algorithm, *protocol;
    SimLink link;
    int ranks, nodes; // of the largest call
} PlanShare;
typedef struct PlanTimes {
    int rank;
    uint64_t step, compute, communication, exposed, idle;
    uint64_t host;     // of the idle time: until the host had queued the next kernel
    uint64_t overhead; // part of the step: fitted, for waits of several nodes
    PlanShare share[PLAN_TIME_KINDS];
    uint64_t link_messages[SIM_LINKS], link_bytes[SIM_LINKS];
} PlanTimes;
const char *plan_kind_name(PlanKind kind);
Status plan_times(const PlanOptions *options, const PlanRanks *all, PlanTimes *times);

// ---- timeline_json.c ---- When an operation was queued, began and ended.
typedef struct PlanSpan {
    uint64_t queued, start, end;
} PlanSpan;
// Writes the measured step to the file options->timeline. It began at `from`; span is that of its
// operations.
Status plan_write_timeline(const PlanOptions *options, const PlanRecord *record,
                           const PlanSpan *span, uint64_t from, uint64_t step);

// ---- formulas.c ---- Without a run.
typedef struct PlanFormulas { // of a stage
    uint64_t parameters;
    uint64_t products, attention;     // FLOP of a step on a rank
    uint64_t params, grads, state;    // bytes that a rank keeps: the first one
    uint64_t most_params, most_grads; // bytes that it has unsharded, at most
    uint64_t slices, activations;     // bytes at most
    uint64_t gather_calls, scatter_calls;
    uint64_t gather_sent, scatter_sent, reduce_sent;
    uint64_t sent_messages;  // bytes, to other stages; of the first place
    uint64_t copies, copied; // of a layout that copies: calls, bytes
} PlanFormulas;
PlanFormulas plan_formulas(const PlanOptions *options, const Module *model, int stage);
// FLOP of a step on all ranks that count for MFU, in a model with that many parameters: 6 per
// parameter and token, and the causal half of attention, which is what is computed; or all of it,
// as in PaLM's MFU.
double plan_useful(const PlanOptions *options, uint64_t parameters, bool full_attention);
// FLOP of a token in a block's forward, without its attention.
uint64_t plan_block_flops(const PlanOptions *options);
double plan_peak(const PlanOptions *options); // FLOP/s of a GPU in the step's arithmetic
const char *plan_type_name(DType dtype);
const char *plan_dtype_name(const PlanOptions *options); // …or tf32
double plan_hbm(const SimMachine *machine);              // bytes/s of its memory

// ---- text.c ---- Prints like printf, but each line only at its end, in 80 columns.
void plan_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
typedef struct PlanText {
    char is[48];
} PlanText;
double plan_gib(uint64_t bytes);
double plan_percent(uint64_t part, uint64_t of); // 0 of nothing
PlanText plan_time(uint64_t ps);                 // "0.8 ms", "463 ms"
// The same for a step, with the range of 8 of 10 published steps: "463 ms (430 to 560)".
PlanText plan_step_time(const PlanOptions *options, uint64_t ps);
// A step's time at the 10th percentile of published steps (0) or at the 90th (1); 0: not known.
uint64_t plan_range(const PlanOptions *options, uint64_t ps, int end);

// ---- print.c, json.c ----
typedef struct Plan {
    const PlanOptions *options;
    uint64_t parameters; // of all stages
    double useful;
    PlanFormulas formulas[PLAN_STAGES];
    PlanRanks ranks;
    PlanTimes times;
} Plan;
void plan_print(const Plan *plan);
Status plan_write_json(const Plan *plan);

// ---- make.c ---- Runs the ranks and times them; plan->options must be set.
Status plan_make(Plan *plan);
uint64_t plan_most_memory(const Plan *plan); // the peak of the fullest rank
// Whether that many live bytes fit: with the needs of the allocator, CUDA and NCCL they are less
// than the GPU has. The next functions return those two numbers, in bytes.
bool plan_fits(const PlanOptions *options, uint64_t live);
uint64_t plan_reserved(const PlanOptions *options, uint64_t live);
uint64_t plan_offered(const PlanOptions *options);

// ---- advice.c ---- Prints what would help most; with options->advice, also the figures of plans
// with it.
void plan_advise(const Plan *plan);

// ---- levers.c ---- Prints the rest of a line, and lines: the three fastest settings that fit.
void plan_advise_memory(const Plan *plan);

// ---- fit.c ---- Sets strategy, replicas, recomputation, micro-batches, prefetching and, if none
// is given, the batch to those of the fastest plan that fits. Prints a line for each plan that it
// tries. ERR_ARGUMENT, after a line on stderr: none fits.
Status plan_fit(PlanOptions *options);

#endif
