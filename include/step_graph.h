/* step_graph.h: a training step as a CUDA graph, and its collectives regrouped by a plan. The
 * contract that lab 8 implements (graph.c, regroup.c).
 *
 * To *capture* a step is to have its streams keep what is queued on them, as nodes of a graph and
 * edges between them, instead of running it. To *launch* the graph is to queue all of it by one
 * call. Whatever the host has worked out during a capture is in the graph as it was then: addresses
 * and sizes, and each number that is a kernel's argument. So the numbers that change with each step
 * are in device memory, where the graph's first copy puts them.
 *
 * A *phase* is the forward or the backward of a unit, in the order in which they begin. A *pass* is
 * the phases of one forward, or of one backward. A *bucket* is a run of a pass's phases whose
 * all-gathers are one grouped call. A *plan* says which buckets a pass has and which phase's hook
 * queues each, and after which phases of a backward the gradients are reduced. FSDP2 is one plan
 * among many: each phase alone, queued by the phase before, and reduced when it ends.
 *
 * Every function that returns a Status prints one line if it fails.
 */
#ifndef SHARDLAB_STEP_GRAPH_H
#define SHARDLAB_STEP_GRAPH_H

#include "extensions.h"
#include "prefetch.h"

#define Status CHECKED_STATUS // as check.h says

// ---------------------------------------------------------------- The step: graph.c

// What changes with each step. (kernel_adamw_numbers reads it as three floats.)
typedef struct StepNumbers {
    float lr;
    float unbias1, unbias2; // 1 - β1ᵗ, 1 - β2ᵗ: what AdamW divides its moments by
} StepNumbers;

typedef struct StepGraphOptions {
    // Queues the forwards and backwards of all micro-batches on the compute stream, with
    // fsdp_zero_grad and losses if the step has them. It does not make the host wait, and reads the
    // tokens from the same memory each time.
    Status (*pass)(void *arg);
    void *arg;
    float max_norm;   // the gradient is clipped to this norm; 0: it is not
    bool accumulates; // only the pass: no clip and no step
} StepGraphOptions;

typedef struct StepGraph {
    FsdpAdamW *opt;
    StepGraphOptions options;
    StepNumbers *host;    // pinned: what the next step's first copy reads
    StepNumbers *numbers; // device: what the kernels read
    double *squares;      // device: Σ of the gradient's squares
    float *clip;          // device: [0] the norm, [1] the factor for gradients
    float *norm;          // pinned: the norm of the last step
    cudaEvent_t join;     // for one stream to wait for another
    cudaEvent_t launched; // recorded after each launch
    cudaGraph_t graph;    // NULL: nothing is captured
    cudaGraphExec_t exec;
} StepGraph;

// The numbers of step t = 1, 2, …, each bitwise what kernel_adamw works out from the same config.
void step_numbers(const AdamWConfig *config, int t, StepNumbers *out);
// Queues on the compute stream: graph->clip is the norm over all ranks and min(1, max_norm / norm),
// and every gradient shard is multiplied by that. The host waits for nothing. Shards and norm are
// bitwise those of fsdp_clip_grad_norm.
Status step_clip(StepGraph *graph);
// Queues one step of AdamW on every shard with the numbers on the device; the padding is zero
// afterwards. opt->t stays: the caller counts the step. Bitwise equal to fsdp_adamw_step.
// ERR_ARGUMENT if a unit is not sharded.
Status step_update(StepGraph *graph);
// Queues a whole step on the compute stream: first the copy of the numbers; the pass; the clip, if
// there is one, and the copy of the norm to graph->norm; the update. At its end the compute stream
// has waited for all other streams of the context, and at its beginning they wait for it. With
// `accumulates` only the pass is between these waits. It may be captured, or run as it is.
Status step_queue(StepGraph *graph);
// Captures step_queue: the graph and its executable. Nothing has run, and opt->t is as it was.
// Other threads may call what a capture forbids. One step must have run before on these units.
// ERR_ARGUMENT if something is captured already. On failure no stream is capturing, and there is
// no graph.
Status step_graph_capture(StepGraph *graph);
// Launches the step on the compute stream with opt->config's present rate (its other fields are
// those of the capture) and the next opt->t; with `accumulates`, with neither. Then records
// graph->launched. The host waits only for the previous launch, before it writes the next numbers.
// ERR_ARGUMENT if nothing is captured; then, and if the launch fails, opt->t stays.
Status step_graph_launch(StepGraph *graph);

// Given code (lib/fsdp/step_graph.c).

// Memory and events for steps of this optimizer. ERR_ARGUMENT if max_norm is negative, if the
// optimizer is not fsdp.h's own AdamW (an offload's), or where a pipeline, FP8 or a precision is
// on, whose step asks the host.
Status step_graph_create(StepGraph *graph, FsdpAdamW *opt, const StepGraphOptions *options);
// Waits for the last launch, and frees all of it. A zeroed graph is fine.
void step_graph_destroy(StepGraph *graph);
// Queues and runs a step as step_graph_launch does, without a graph: the warm-up.
Status step_graph_warm_up(StepGraph *graph);

// ---------------------------------------------------------------- The record

typedef enum StepKind { STEP_FORWARD, STEP_BACKWARD, STEP_GATHER, STEP_REDUCE } StepKind;

// Something that units did while a trace was on, in the order in which it began.
typedef struct StepMark {
    StepKind kind; // of the first two the phase of a unit, of the others a collective
    int unit;      // in the root's registry
    int64_t bytes; // of a collective: the unsharded buffer
    int phase; // of a phase: its own number; of a collective: that of the phase it was queued in
    int last;  // of a phase: the last one that began before it ended; itself if none did
    int node;  // in a captured graph: the phase's last node, or the collective's; -1: none
} StepMark;

typedef struct StepTrace {
    FsdpRoot *root;
    int n, room;
    StepMark *marks; // (n)
    void **at;       // (n) the nodes as CUDA has them
    Hook **hooks;    // (units · HOOK_POINTS)
    int n_nodes, n_edges;
    int (*edges)[2]; // (n_edges) from, to: numbers of nodes, in no order
} StepTrace;

// A collective of a captured step, and what it is ordered with.
typedef struct StepCall {
    StepKind kind; // STEP_GATHER or STEP_REDUCE
    int unit;
    int64_t bytes;
    int after;  // the phase that began last of those whose end it waits for; -1: none
    int before; // the phase that ends first of those whose end waits for it, and of several with
                // the same `last` the one that began last; -1: none
} StepCall;

// Lists the collectives of the trace, in their order, each with the phases whose ends have a path
// to it, and the phases to which it has a path. Writes at most `max` to out (which may be NULL for
// max = 0); *n is how many the trace has. ERR_MEMORY.
Status step_calls(const StepTrace *trace, StepCall *out, int max, int *n);

// Given code (lib/fsdp/step_trace.c). Begins to record the root's units, between steps.
Status step_trace_begin(StepTrace *trace, FsdpRoot *root);
// Ends the record. With the graph of a capture between the two calls (or NULL) the marks get their
// nodes, and the trace its edges.
Status step_trace_end(StepTrace *trace, cudaGraph_t graph);
void step_trace_free(StepTrace *trace);

// ---------------------------------------------------------------- The plan: regroup.c

enum { STEP_MOST_PHASES = 512 }; // of a pass

// What a call of B bytes takes: latency_us + B / bytes_per_us. A phase of n elements computes for
// phase_us + n / elements_per_us, a backward twice that.
typedef struct StepCosts {
    double latency_us, bytes_per_us, elements_per_us, phase_us;
} StepCosts;

typedef struct StepPhase {
    int unit;
    int64_t gather_bytes; // of its all-gather; 0: it needs none
    int64_t reduce_bytes; // of its gradient, which begins with it; 0: it has none to reduce
    double compute_us;
    int ready; // the first phase whose hook may gather it: 0, or if the unit ran before, the phase
               // after the end of that run
    int last;  // the phase at whose end it is resharded and its gradient complete: itself, or for a
               // unit that contains units a later one
} StepPhase;

typedef struct StepPass {
    int n;              // 0: no such pass, or one that is too long
    bool reduces_alone; // its units' reductions cannot be in a group (replicas; one rank)
    StepPhase phase[STEP_MOST_PHASES];
} StepPass;

// One call gathers those of phases first to last that need it. The hook before phase `at`, which is
// before `first`, queues it once phase `at` has its own parameters. If at == first, then last ==
// first, and the phase's own hook queues it.
typedef struct RegroupBucket {
    int first, last, at;
} RegroupBucket;

// Buckets in the order of their phases; each phase but 0 that needs an all-gather is in one. One
// call at the end of a phase reduces what is complete there and what the phases right before kept.
typedef struct RegroupPlan {
    int n;
    RegroupBucket bucket[STEP_MOST_PHASES];
    bool keeps[STEP_MOST_PHASES]; // [p]: nothing is reduced at the end of phase p; never the last's
    bool is_default; // FSDP2's, and regroup_plan found none that is better within the limit
} RegroupPlan;

// Microseconds from the pass's beginning until all is done. There is one wire, on which calls run
// in the order in which hooks queue them: phase 0's own all-gather; then for each phase p its
// buckets, which begin after phase p - 1 has ended, and its reduction, after phase p has. Phase p
// computes when p - 1 has ended and its own all-gather is done. It ends when it has computed and,
// if it has a reduction, when the previous reduction is done, whose memory is freed there.
double regroup_time(const StepPass *pass, const StepCosts *costs, const RegroupPlan *plan);
// The most bytes that are unsharded at a time. Parameters: during phase p those of every phase
// whose call is queued at or before p, and that is not resharded before p; a phase whose own hook
// gathers it counts during the phase before, too. And gradients: from the phase that they begin
// with to the one at whose end the reduction after their own is queued, or to the pass's end.
int64_t regroup_peak(const StepPass *pass, const RegroupPlan *plan);
// Sets each bucket's `at`, the first bucket's first, as early as order, data and limit allow: never
// before the previous bucket's, nor before each of its phases is `ready` (also those that need no
// all-gather), nor so that regroup_peak of the buckets up to it exceeds limit_bytes (0: no limit).
// False if a bucket has no such `at` (RegroupBucket says which there are), or if regroup_peak
// exceeds the limit without any bucket: then do not use *plan.
bool regroup_place(const StepPass *pass, int64_t limit_bytes, RegroupPlan *plan);
// A search in rounds, from FSDP2's plan, placed (regroup_place). Each round makes every merge of
// every plan that the previous round kept: two neighbouring buckets, or two neighbouring reductions
// (regroup_next_reduction). It keeps the REGROUP_KEPT_PLANS quickest; the rounds end when the
// quickest is no quicker than the previous round's. Each plan that is tried is placed before it is
// timed. *plan is within the limit and takes no longer than FSDP2's, or it is that one, and
// is_default. It depends only on the arguments, so all ranks have the same.
enum { REGROUP_KEPT_PLANS = 8 };
void regroup_plan(const StepPass *pass, const StepCosts *costs, int64_t limit_bytes,
                  RegroupPlan *plan);

// What regrouping has added to a root (FsdpExtensions.regroup).
typedef struct RegroupState {
    FsdpRoot *root;
    StepPass pass[2]; // forward, backward
    RegroupPlan plan[2];
    int phase[2];             // how many phases of each have begun
    bool follows[2];          // they are those of the pass
    Hook **hooks;             // (units · HOOK_POINTS)
    FlatLayoutOps layout_ops; // its reduce_grad follows the plan
    int n_grads;              // how many units' gradients this backward has completed
    int n_kept;
    FsdpUnit *kept[STEP_MOST_PHASES]; // (n_kept) whose gradients wait for others
    int n_reduced;
    void *reduced[STEP_MOST_PHASES]; // (n_reduced) gradients that a grouped call reads; freed with
                                     // root->reduce_scatter_state's
} RegroupState;

// Queues the units' all-gathers as one grouped call, without those that are not sharded, and then
// records all_gather_done of each after that call. On failure no group is open.
Status regroup_gather(FsdpUnit *const *units, int n);
// Queues the reductions of n units as one grouped call on the reduce-scatter stream, once the
// compute stream has run what is queued. After it each unit's sharded_grad has grown by this rank's
// shard of the ranks' sum, divided by the divisor, and its padding is zero; no unit or parameter
// has an unsharded gradient: the memory is in `buffers`, and not freed. The event of
// root->reduce_scatter_state is recorded after all that. On failure no group is open, and the units
// have their gradients.
Status regroup_reduce(FsdpUnit *const *units, int n, float divisor, void **buffers);
// A phase of this unit in pass k (0: forward, 1: backward) begins: queues what the plan has at this
// phase, as long as the pass's units are those of the record.
Status regroup_begin(RegroupState *state, int k, FsdpUnit *unit);

// Given code (lib/fsdp/regroup.c).

// FSDP2's plan of the pass.
void regroup_default(const StepPass *pass, RegroupPlan *plan);
// bytes[p] (pass->n of them): what one call at the end of phase p reduces; 0: there is none.
void regroup_reductions(const StepPass *pass, const RegroupPlan *plan, int64_t *bytes);
// The phase at whose end the next reduction after phase p's is, where both may be one; -1: there is
// none, phase p has none, or a unit would run again before its gradient of this pass is reduced.
int regroup_next_reduction(const StepPass *pass, const RegroupPlan *plan, int p);
// The passes of a traced step of one micro-batch, which has a forward and a backward.
Status step_passes(const StepTrace *trace, const StepCosts *costs, StepPass pass[2]);
// Plans both passes and applies the plans to the root. ERR_ARGUMENT if it has a prefetch, is in a
// pipeline or is regrouped already, or if its units gather in another way than fsdp_all_gather
// (FP8, a precision, offload, lab 1's slices), which cannot be in a group.
Status regroup_apply(Module *root, const StepPass pass[2], const StepCosts *costs,
                     int64_t limit_bytes);
// Removes them. Between steps.
Status regroup_remove(Module *root);

#undef Status

#endif
