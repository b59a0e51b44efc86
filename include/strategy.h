/* strategy.h: which ranks keep what, and which sum gradients: DDP, ZeRO-1, -2, -3 and HSDP by one
 * switch. The contract of lab 1.
 *
 *   file           part                    main functions
 *   strategies.c   shards and replicas     mesh_2d (mesh.h), strategy_apply, strategy_reduce
 *   ddp.c          buckets                 ddp_buckets, ddp_reduce
 *   slices.c       slices in between       group_split (mesh.h), strategy_all_gather
 *
 * Call fully_shard as always (the model last; for DDP only the model), on a context whose mesh
 * suits the strategy; then strategy_apply. A training step is one or several *micro-batches*, each
 * a forward and a backward, and one step of the optimizer.
 *
 * Order of sums. A reduction adds over the ranks that shard, in the collective's order; then over
 * the replicas, if there are any; then it divides by the factor, once, and adds the quotient to
 * sharded_grad. If gradients accumulate unsharded, the backwards have added them up before the
 * reduction, one micro-batch after the other. So DDP, ZeRO-1, -2 and -3 are bitwise equal.
 *
 * Sizes are in elements unless a name says bytes. Every function that returns a Status prints one
 * line if it fails.
 */
#ifndef SHARDLAB_STRATEGY_H
#define SHARDLAB_STRATEGY_H

#include "extensions.h"

#define Status CHECKED_STATUS // as check.h says

typedef enum Strategy {
    STRATEGY_DDP,   // everything on every rank; gradients are all-reduced, in buckets
    STRATEGY_ZERO1, // optimizer state in shards; the rest until the last micro-batch
    STRATEGY_ZERO2, // also gradients in shards; parameters are kept from forward to backward
    STRATEGY_ZERO3, // also parameters in shards
} Strategy;

typedef struct StrategyOptions {
    Strategy strategy;
    // false: gradients of several micro-batches accumulate unsharded, and the last one reduces.
    // true: each micro-batch reduces, and the averages are added. Not with ZeRO-1.
    bool reduce_every_time;
    // What a reduction divides by, positive and finite; 0: the number of ranks. With one rank
    // nothing is divided, and only 0 and 1 are allowed.
    float divide_factor;
    // N, only with ZeRO-3 (FSDP2's integer): between its forward and its backward a unit keeps one
    // of N slices, and the backward gathers over N neighbours. N divides the number of ranks that
    // shard, and is neither 1 nor that number. 0: no slices.
    int reshard_ranks;
    int64_t first_bucket_bytes, bucket_bytes; // DDP; 0: 1 MiB and 25 MiB
} StrategyOptions;

// A range of the flat gradient that DDP all-reduces in one call: whole parameters.
typedef struct Bucket {
    int first, last;    // parameters [first, last) of the layout
    int64_t begin, end; // elements of the flat parameter
    int missing;        // parameters whose gradient is not complete yet
} Bucket;

// DDP's part of the state.
typedef struct Ddp {
    int n_buckets, next; // how many there are; the first that this backward has not sent yet
    Bucket *buckets;     // (n_buckets) in the order in which they are sent
    int *uses, *done;    // (params) how many modules hold it; how many of them have run backward
    int n_hooks;
    Module **hooked; // (n_hooks) the modules, and the handles of the hooks in them
    Hook **hooks;
} Ddp;

// What a strategy has changed in a root (FsdpExtensions.strategy).
typedef struct StrategyState {
    StrategyOptions options; // with the defaults filled in
    FsdpRoot *root;
    // The input of DDP's reductions: *input (padded) is a buffer whose elements from `begin` on may
    // be sent when the compute stream has run what is queued. During a backward `begin` moves from
    // the end to the beginning. By default strategy_reduce_input; lab 2 replaces it.
    Status (*reduce_input)(FsdpUnit *unit, int64_t begin, Buffer *input);
    float divided_before;        // reduce_input has divided by this already; usually 1
    bool requires_gradient_sync; // a backward reduces; false: its gradients accumulate unsharded
    bool requires_all_reduce;    // HSDP; false: the sums over the ranks that shard accumulate
    bool is_last_backward;       // of a step: it ends with fsdp_finish_backward
    bool reshard_after_backward; // false: the parameters stay for the next micro-batch
    bool training;               // false: evaluation; every unit reshards after its forward
    cudaStream_t all_reduce_stream;
    cudaEvent_t reduced;                 // for stream_run_after (extensions.h)
    ReduceScatterState all_reduce_state; // HSDP: the sum that was all-reduced last
    Buffer sum;               // HSDP: the sum of the reduction that is being queued; else no memory
    Buffer *partial;          // (units) HSDP: the sums that wait for an all-reduce
    ProcessGroup slice_group; // reshard_ranks: the neighbours that have one slice each
    Buffer *slices;           // (units) kept between forward and backward; else no memory
    Hook *after_forward;      // the root's hook that ends an evaluation
    Ddp ddp;
} StrategyState;

// ------------------------------------------------------- Shards and replicas: strategies.c

// Applies the strategy to all units of the root, after fully_shard. ERR_ARGUMENT, and nothing has
// changed, if the options do not suit each other or the mesh.
Status strategy_apply(Module *root, const StrategyOptions *options);
// Removes it, whatever ran last: the units are as fully_shard made them, sharded and without an
// unsharded gradient, and the compute stream has waited for all reductions. Call it before
// fsdp_unwrap. ERR_ARGUMENT if an extension that was applied later is still there (extensions.h).
Status strategy_remove(Module *root);

// Prepares micro-batch i (0 … n-1) of n: sets the four flags of StrategyState as the strategy needs
// them.
Status strategy_micro_batch(Module *root, int i, int n);

// Frees all sums and slices that a failed pass has left. Waits for the device. fsdp_end_iteration
// and strategy_remove call it. Given code (lib/fsdp/strategy_flags.c); state may be NULL.
Status strategy_free_sums(StrategyState *state);

// The default reduce_input, which gives unsharded_grad itself; and the number by which a sum must
// still be divided. Given code (lib/fsdp/strategy_flags.c).
Status strategy_reduce_input(FsdpUnit *unit, int64_t begin, Buffer *input);
float strategy_divisor(const StrategyState *state);

// Set the flags, as in FSDP2, from the next forward on. Given code (lib/fsdp/strategy_flags.c), as
// is strategy_find, which finds the state of the root that the module is.
Status strategy_find(const Module *root, StrategyState **state);
Status fsdp_set_requires_gradient_sync(Module *root, bool on);
Status fsdp_set_requires_all_reduce(Module *root, bool on); // ERR_ARGUMENT without replicas, DDP
Status fsdp_set_is_last_backward(Module *root, bool on);
Status fsdp_set_reshard_after_backward(Module *root, bool on);
Status fsdp_set_gradient_divide_factor(Module *root, float factor); // ERR_ARGUMENT unless
                                                                    // positive and finite
// false: an evaluation begins. With any strategy every unit is resharded after its forward, and the
// root's forward ends by clearing the recorded order. true: the evaluation has ended.
Status fsdp_set_training(Module *root, bool on);

// Averages by tokens, given code (lib/fsdp/tokens.c). A reduction divides by the factor, usually
// the number of ranks. That gives the mean over all tokens only if each rank has equally many, in
// one micro-batch. So a training loop passes its number of tokens, and in each micro-batch takes
// the gradient of scale · Σ of its tokens' losses (cross_entropy_scaled).
//
// `tokens`: this rank's, in all micro-batches of the step. *total is their sum over all ranks, and
// *scale = factor / *total. ERR_ARGUMENT on all ranks if *total is 0. Collective; waits for the
// compute stream. Works for the root of any model: without a strategy the factor is the number of
// ranks.
Status fsdp_token_scale(Module *root, int64_t tokens, int64_t *total, float *scale);

// unit->reduce_scatter of the ZeRO strategies: sums unsharded_grad and adds this rank's part to
// sharded_grad. Without replicas all of it is queued on the reduce-scatter stream. With replicas
// the sum over the shards goes to its own memory, on the reduce-scatter stream; the sum over the
// replicas is on the all-reduce stream, in place, and overlaps the next unit's reduce-scatter.
Status strategy_reduce(FsdpUnit *unit);

// They replace fsdp_pre_backward and fsdp_post_backward (unit->hooks). arg is the FsdpUnit.
Status strategy_pre_backward(Module *module, void *unit);
Status strategy_post_backward(Module *module, void *unit);

// ---------------------------------------------------------------- Buckets: ddp.c

// Cuts the flat gradient into buckets, from its end to its beginning: the backward completes the
// last parameters first. While a bucket has fewer bytes than its size, it takes the next parameter.
// The first bucket's size is first_bytes, so that the first all-reduce starts early; the others' is
// `bytes`. Returns their number; writes at most `max` to out (which may be NULL for max = 0).
int ddp_buckets(const FlatLayout *layout, int64_t first_bytes, int64_t bytes, Bucket *out, int max);

// Adds hooks to the modules of the state's only unit. ERR_MEMORY.
Status ddp_create(StrategyState *state);
void ddp_destroy(StrategyState *state);
// Begins a backward: no gradient is complete.
void ddp_begin_backward(StrategyState *state);
// The hook after a module's backward. A parameter's gradient is complete after the backward of
// every module that holds it; a bucket is complete when all its parameters' gradients are. If
// gradients synchronise, it sends complete buckets, but none before an earlier one: so the order is
// the same on every rank, even if a rank leaves a module out. arg is the StrategyState.
Status ddp_post_backward(Module *module, void *state);
// unit->reduce_scatter of DDP: sends the remaining buckets, and makes the reduce-scatter stream
// wait for all of them. If a parameter's gradient is not complete, ERR_ARGUMENT with a line
// that names it, after all collectives are queued, so that no other rank waits for this one.
Status ddp_reduce(FsdpUnit *unit);

// ---------------------------------------------------------------- Slices: slices.c

// With reshard_ranks: unit->all_gather, and the hook that replaces fsdp_post_forward, of all units
// but the root, which stays unsharded. After a forward the unit keeps elements [i·n, (i+1)·n) of
// its flat parameter, n = padded / reshard_ranks, if this rank is the i-th of slice_group; in an
// evaluation it keeps nothing. If a recorded forward has left a slice, strategy_all_gather gathers
// the slices of slice_group, else the shards of all ranks that shard; it frees the slice. Only the
// all-gather stream uses the slice. All results are bitwise those of ZeRO-3.
Status strategy_all_gather(FsdpUnit *unit);
Status strategy_post_forward(Module *module, void *unit);

#undef Status

#endif
