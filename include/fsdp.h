/* fsdp.h: Fully Sharded Data Parallel, the contract that the six tasks implement.
 *
 * The words are PyTorch's. A *unit* is a module whose parameters are gathered and freed together.
 * Its *flat parameter* is one buffer that holds them back to back, *padded* to a multiple of the
 * number of ranks W, so that each rank owns an equal *shard*. To *unshard* is to all-gather the
 * shards into the unsharded buffer; to *reshard* is to free it. Gradients travel the other way by
 * reduce-scatter, and the optimizer sees shards alone.
 *
 *   file           task                    main functions
 *   meta_init.c    1 meta init             meta_params, meta_init_slice, meta_materialize
 *   flat_param.c   2 flat parameter        flat_layout, flat_create, flat_set_views
 *   forward.c      3 forward               fsdp_unshard, fsdp_wait_for_unshard, fsdp_reshard
 *   backward.c     4 backward              fsdp_begin_grad, fsdp_reduce_grad, fsdp_finish_backward
 *   optimizer.c    5 optimizer             fsdp_adamw_step, fsdp_grad_norm
 *   api.c          6 API                   fully_shard, fsdp_full_state
 *
 * Some functions may be done in another way: tables say by which function (FlatLayoutOps,
 * FsdpRootOps, the pointers of FsdpUnit and FsdpAdamW). They are never NULL. What a task writes is
 * the default, X_default; X itself, which everybody calls, is given code that asks the table
 * (lib/fsdp/dispatch.c). Both have one contract, that of X.
 *
 * Sizes are in elements unless a name says bytes. Every function that returns a Status prints one
 * line where it fails, and returns what a call of its own failed with. Where a contract says
 * ERR_ARGUMENT, the call has changed nothing. Nothing grows from one iteration to the next: no host
 * memory, no event, no stream.
 */
#ifndef SHARDLAB_FSDP_H
#define SHARDLAB_FSDP_H

#include <stdbool.h>
#include <stdint.h>

#include "box_muller.h"
#include "buffer.h"
#include "check.h"
#include "mesh.h"
#include "nn.h"
#include "not_yet.h" // NOT_YET, for the skeleton

#define Status CHECKED_STATUS // as check.h says

// ---------------------------------------------------------------- Task 1: meta_init.c

// Elements of a parameter: the product of its shape.
int64_t meta_numel(const Param *param);

// Every parameter of the module and of what is below it, each once although two modules may share
// it (tied), in the order in which a walk (own parameters first, then the children in order) meets
// them. Returns how many there are; writes at most `max` of them to out (which may be NULL for
// max = 0). It takes no memory: it has no way to say that there is none.
int meta_params(const Module *module, Param **out, int max);

// Elements and bytes of all parameters, tied ones once. No storage is needed or made.
int64_t meta_count(const Module *module);
int64_t meta_bytes(const Module *module);

// Philox 4x32-10: four random words from a counter and a key (Salmon et al. 2011, "Parallel random
// numbers: as easy as 1, 2, 3"). The same counter and key give the same words on any machine.
void philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

// Writes elements [begin, end) of the parameter's initial value to host memory out (end-begin).
// Element i depends on (seed, param->id, i) alone: however the parameter is cut into slices, the
// values are bitwise equal.
// INIT_NORMAL: init_std times normal i%4 of those that box_muller4 makes of block i/4 of four
// words, whose counter is (low and high word of i/4, id, 0) and whose key is (low and high word of
// the seed).
void meta_init_slice(const Param *param, uint64_t seed, int64_t begin, int64_t end, float *out);

// The same into device memory dst (end-begin), on `stream`, through a host buffer of fixed size.
// When it returns the values are there.
Status meta_init_device(const Param *param, uint64_t seed, int64_t begin, int64_t end, float *dst,
                        cudaStream_t stream);

// What one GPU without FSDP does: allocates data and grad of all parameters (a frozen one can do
// without grad), unsharded, initialises the data and zeroes the gradient. On failure nothing stays
// allocated. ERR_ARGUMENT, with a line that names the parameter, where one has storage or an owner,
// or is not DTYPE_F32.
Status meta_materialize(Module *module, uint64_t seed, cudaStream_t stream);
// Frees what meta_materialize made.
void meta_release(Module *module);

// ---------------------------------------------------------------- Task 2: flat_param.c

struct FlatLayoutOps;

// Who owns which element: arithmetic alone, without memory. Checkpoints and other storage need no
// more of a flat parameter than this.
typedef struct FlatLayout {
    int n;               // parameters
    Param **params;      // (n)
    int64_t *offset;     // (n) where each begins in the flat buffer
    int64_t numel;       // elements of all of them
    int64_t padded;      // numel and padding: a multiple of world (of 4·world where aligned)
    int64_t shard_numel; // padded / world
    int rank, world;     // in the group that shards
    int64_t grad_numel;  // so many elements of a shard, its first, have a gradient; flat: all
    const struct FlatLayoutOps *ops; // FLAT_LAYOUT_OPS, or those of another way to cut a unit
} FlatLayout;

// What makes a unit's layout, with all its fields: flat_layout, or another way.
typedef Status (*LayoutFn)(FlatLayout *layout, const char *name, Param **params, int n, int rank,
                           int world, bool align);

// Legal transitions: sharded → unsharding → unsharded → sharded.
typedef enum FlatState {
    FLAT_SHARDED,    // only the shard is there; the parameters have no data
    FLAT_UNSHARDING, // the all-gather is queued, nobody has waited for it
    FLAT_UNSHARDED,  // the compute stream may read the parameters
} FlatState;

typedef struct FlatParam {
    char name[48];
    FlatLayout layout;
    FlatState state;        // flat_set_state changes it where that is legal
    bool gathers_alone;     // one rank gathers, too: what is unsharded is a copy. Usually false
    Buffer sharded_param;   // (shard_numel) elements [rank·shard_numel, (rank+1)·shard_numel)
    Buffer sharded_grad;    // (grad_numel) the averaged gradient of the same elements
    Buffer unsharded_param; // (padded), else no memory; the shard's own where flat_param_is_shard
    Buffer unsharded_grad;  // (world·grad_numel, which is padded) during the unit's backward;
                            // world 1: the gradient shard's own
    cudaEvent_t all_gather_done; // recorded after the all-gather
} FlatParam;

// Whether the unsharded parameter is the shard itself, not a copy: one rank shards, and both are of
// one type.
static inline bool flat_param_is_shard(const FlatParam *flat)
{
    return flat->layout.world == 1 && !flat->gathers_alone &&
           flat->unsharded_param.dtype == flat->sharded_param.dtype;
}

// Fills in the layout. `align` asks for shards of a multiple of 16 bytes (4 elements), which
// NCCL and vector loads want. `name` is for messages. ERR_ARGUMENT, with a line that names the unit
// (or the parameter), for no parameters, W < 1, a rank outside, or a parameter that is not
// DTYPE_F32, that another flat parameter owns or that is frozen; what *layout is then says nothing.
Status flat_layout(FlatLayout *layout, const char *name, Param **params, int n, int rank, int world,
                   bool align);
Status flat_layout_default(FlatLayout *layout, const char *name, Param **params, int n, int rank,
                           int world, bool align); // but for ops and grad_numel
// Frees the layout's tables. A zeroed layout is fine.
void flat_layout_destroy(FlatLayout *layout);

// How many of the shard_numel elements of `rank`'s shard are valid, that is, not padding; the
// padding is at its end.
int64_t flat_valid_numel(const FlatLayout *layout, int rank);
int64_t flat_valid_numel_default(const FlatLayout *layout, int rank);

// Which part of parameter i lies in `rank`'s shard: elements [*begin, *end) of the parameter,
// starting at element *at of the shard. Where none does, *begin = *end; their common value
// and *at mean nothing.
void flat_param_range_in_shard(const FlatLayout *layout, int i, int rank, int64_t *begin,
                               int64_t *end, int64_t *at);
void flat_param_range_in_shard_default(const FlatLayout *layout, int i, int rank, int64_t *begin,
                                       int64_t *end, int64_t *at);

// From a layout, which it takes over: makes and initialises this rank's shard (each parameter's
// slice by meta_init_slice, the padding 0) and a gradient shard of zeros, and becomes the owner of
// the parameters. Uses no more host memory than a small buffer and no device memory but the two
// shards. ERR_ARGUMENT, with a line that names it, for a parameter that has storage. On failure
// nothing stays allocated, the layout's tables included, and no parameter has an owner.
Status flat_create(FlatParam *flat, const char *name, const FlatLayout *layout, uint64_t seed,
                   cudaStream_t stream);

// Makes the transition to `to`. ERR_ARGUMENT, with a line that names the unit, its state and the
// wish, where it is not legal; the state then stays.
Status flat_set_state(FlatParam *flat, FlatState to);

// Points every parameter's data (or grad) at its place in the unsharded buffer, whose type it
// takes; where that has no memory, they have none either.
void flat_set_views(FlatParam *flat);
void flat_set_grad_views(FlatParam *flat);

// Zeroes the padding at the end of a buffer of this rank that is laid out as its shard, of any
// type: what is behind its flat_valid_numel. Queued: the host does not wait.
Status flat_zero_padding(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream);
Status flat_zero_padding_default(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream);

// Frees the shards and the tables; the parameters have no owner and no views any more. A zeroed
// FlatParam is fine.
void flat_destroy(FlatParam *flat);

// ---------------------------------------------------------------- What units share

typedef struct FsdpUnit FsdpUnit;

// The streams of one rank, and its place in the mesh.
typedef struct FsdpContext {
    Mesh mesh;
    cudaStream_t compute_stream;        // where the modules' kernels run; the caller's
    cudaStream_t all_gather_stream;     // all-gathers; owns the unsharded parameters
    cudaStream_t reduce_scatter_stream; // reduce-scatters
    cudaEvent_t compute_done;           // recorded where another stream must wait for compute
    double *host_scalar;                // pinned host memory: where a norm arrives
} FsdpContext;

// The unsharded parameter that was resharded last: the all-gather stream may free it only after the
// compute stream has read it.
typedef struct AllGatherState {
    void *buffer;      // NULL: none
    cudaEvent_t event; // recorded after the last use
} AllGatherState;

// The unsharded gradient that was reduced last: the compute stream may free it only after the
// reduce-scatter stream has read it.
typedef struct ReduceScatterState {
    void *buffer;
    cudaEvent_t event;
} ReduceScatterState;

// What gets a parameter's values (fsdp_full_state).
typedef Status (*StateVisitor)(const Param *param, const float *values, void *arg);

typedef struct FsdpRoot FsdpRoot;
typedef struct FsdpAdamW FsdpAdamW;

// How units with one layout do what depends on it: flat, as tasks 2 to 4 do it. Another layout may
// have padding anywhere in a shard: valid_numel says where the last valid element ends. After a
// wait for an all-gather it may copy out, before a reduction copy in.
typedef struct FlatLayoutOps {
    int64_t (*valid_numel)(const FlatLayout *layout, int rank);
    void (*param_range_in_shard)(const FlatLayout *layout, int i, int rank, int64_t *begin,
                                 int64_t *end, int64_t *at);
    Status (*zero_padding)(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream);
    Status (*wait_for_unshard)(FsdpUnit *unit);
    Status (*reshard)(FsdpUnit *unit);
    Status (*reduce_grad)(FsdpUnit *unit);
    HookFn post_forward;
} FlatLayoutOps;
extern const FlatLayoutOps FLAT_LAYOUT_OPS;

// How a root does what concerns all its shards, as tasks 5 and 6 and root.c do it. Each function is
// the one of its name.
typedef struct FsdpRootOps {
    Status (*adamw_create)(FsdpAdamW *opt, Module *root, FsdpContext *ctx,
                           const AdamWConfig *config);
    Status (*adamw_step)(FsdpAdamW *opt);
    void (*adamw_destroy)(FsdpAdamW *opt);
    Status (*sgd_step)(Module *root, FsdpContext *ctx, float lr, float weight_decay);
    Status (*zero_grad)(Module *root, FsdpContext *ctx);
    Status (*grad_norm)(Module *root, FsdpContext *ctx, float *norm);
    Status (*clip_grad_norm)(Module *root, FsdpContext *ctx, float max_norm, float *norm);
    Status (*full_state)(Module *root, StateVisitor visit, void *arg);
    Status (*record_post_forward)(FsdpUnit *unit);
    FsdpUnit *(*pop_post_forward)(FsdpUnit *unit);
    void (*shards_written)(FsdpRoot *root); // by default: no parameter is INIT_NONE
} FsdpRootOps;
extern const FsdpRootOps FSDP_ROOT_OPS;

// What the units of one root share during an iteration. (PyTorch: FSDPStateContext and
// FSDPCommContext.)
struct FsdpRoot {
    FsdpContext *ctx;
    int n_units;
    FsdpUnit **units;              // (n_units) the root first, then those below, in walk order
    FsdpUnit *iter_forward_root;   // the unit whose forward is the outermost now; NULL: no forward
    FsdpUnit *iter_backward_root;  // the same for the backward
    FsdpUnit **post_forward_order; // units in the order in which their forwards ended: a unit that
                                   // ran twice is in it twice
    int n_post_forward, max_post_forward;
    AllGatherState all_gather_state;
    ReduceScatterState reduce_scatter_state;
    FsdpRootOps ops;                   // FSDP_ROOT_OPS, or in part another way
    struct FsdpExtensions *extensions; // what part two keeps; nothing in the six files reads it
};

// Whether a unit frees its parameters between its forward and its backward.
typedef enum FsdpReshard {
    FSDP_RESHARD_AUTO,   // all units but the root, whose backward comes at once
    FSDP_RESHARD_ALWAYS, // ZeRO-3
    FSDP_RESHARD_NEVER,  // ZeRO-2: more memory, one all-gather less
} FsdpReshard;

// Zeros are the defaults: a program names what it wants otherwise, as in {.seed = 42}. So `layout`
// may be NULL, unlike the functions of a unit and of a root; fsdp_layout_fn alone asks for that.
typedef struct FsdpOptions {
    FsdpReshard reshard_after_forward;
    bool align_shards; // shards of a multiple of 16 bytes
    uint64_t seed;     // of the initial values; the same on every rank
    LayoutFn layout;   // how a unit is cut; NULL: flat_layout (fsdp_layout_fn)
} FsdpOptions;

// What the unit is doing. (PyTorch: TrainingState.)
typedef enum FsdpPhase {
    FSDP_IDLE,
    FSDP_FORWARD,
    FSDP_PRE_BACKWARD, // until its gradients are complete
    FSDP_POST_BACKWARD,
} FsdpPhase;

struct FsdpUnit {
    Module *module;
    FsdpContext *ctx;
    FsdpRoot *root; // shared by all units of the same root
    FlatParam flat;
    FsdpReshard reshard_after_forward;
    FsdpPhase phase;
    int *post_forward_indices; // a stack: where the unit is in root->post_forward_order
    int n_indices, max_indices;
    int backward_index; // of the latest backward in root->post_forward_order; -1: in no place of it
    // Each fsdp_all_gather, or another way; the second is the collective that another first one
    // calls.
    Status (*all_gather)(FsdpUnit *unit);
    Status (*gather_shards)(FsdpUnit *unit);
    Status (*reduce_scatter)(FsdpUnit *unit); // fsdp_reduce_scatter, or another way
    Hook *hooks[HOOK_POINTS];                 // the handles of the unit's own hooks
};

// Given code (lib/fsdp/root.c, and the last two in dispatch.c).

// Makes a root of the n units, the outermost first; they leave the roots that they had.
// ERR_ARGUMENT where one has another context; then, or where another call fails, they stay as they
// were.
Status fsdp_root_create(FsdpContext *ctx, FsdpUnit **units, int n);
// Takes the unit off its root's registry; with the last one the root is freed.
void fsdp_root_remove(FsdpUnit *unit);
// The unit that a module is, or NULL; and whether it is the outermost one.
FsdpUnit *fsdp_unit(const Module *module);
bool fsdp_is_root(const FsdpUnit *unit);
// The root that the module is: ERR_ARGUMENT for a module that is no unit, or not the outermost one.
Status fsdp_find_root(const Module *module, FsdpRoot **root);

// The unit's forward is the outermost: root->iter_forward_root. Forgets forwards that have no
// backward any more (module_discard), such as an evaluation's.
void fsdp_begin_forward(FsdpUnit *unit);
// No pass is running, every unit is idle and no forward is recorded. Where a pass failed, its
// unsharded gradients are freed, and the compute stream has waited for what was reduced. Buffers of
// all-gathers that failed are freed, too.
Status fsdp_end_iteration(FsdpRoot *root);
// The unit's place in its root's registry.
int fsdp_unit_index(const FsdpUnit *unit);
// Appends the unit to the order in which forwards ended, and pushes its index there.
Status fsdp_record_post_forward(FsdpUnit *unit);
Status fsdp_record_post_forward_default(FsdpUnit *unit);
// Pops the index that the unit's latest forward pushed: unit->backward_index. The unit whose
// parameters its backward is to gather ahead: that whose forward ended just before that one; NULL
// where there is none.
FsdpUnit *fsdp_pop_post_forward(FsdpUnit *unit);
FsdpUnit *fsdp_pop_post_forward_default(FsdpUnit *unit);
// Empties the order and every unit's stack.
void fsdp_clear_post_forward(FsdpRoot *root);
// To be called by whoever has written shards: a step of the optimizer (which dispatch.c does), a
// load.
void fsdp_shards_written(FsdpRoot *root);
// What lays out the units of fully_shard.
LayoutFn fsdp_layout_fn(const FsdpOptions *options);

// ---------------------------------------------------------------- Task 3: forward.c

// The collective of an unshard: queues, on the all-gather stream, the all-gather of the shards, of
// their type, into unsharded_param, which is allocated. The default of unit->all_gather.
Status fsdp_all_gather(FsdpUnit *unit);
// Queues the all-gather of the unit's shards into a new buffer, both on the all-gather stream,
// records all_gather_done, sets the views; FLAT_UNSHARDING. Nothing where it is not FLAT_SHARDED.
// Where flat_param_is_shard (usually with one rank alone), the unsharded parameter is the shard,
// and nothing is queued, neither here nor in the next two. On failure the unit stays FLAT_SHARDED.
// The buffer of an all-gather that failed may stay: a second call then takes it over, and
// fsdp_reshard_all frees it.
Status fsdp_unshard(FsdpUnit *unit);
// Makes the compute stream wait for the all-gather; FLAT_UNSHARDED. Nothing where it is
// FLAT_UNSHARDED. ERR_ARGUMENT where it is FLAT_SHARDED.
Status fsdp_wait_for_unshard(FsdpUnit *unit);
Status fsdp_wait_for_unshard_default(FsdpUnit *unit);
// Takes the parameters' views away and leaves the buffer to fsdp_free_all_gather, after what is
// queued on the compute stream so far; FLAT_SHARDED. Nothing where it is FLAT_SHARDED. ERR_ARGUMENT
// where it is FLAT_UNSHARDING: nobody has waited for the all-gather.
Status fsdp_reshard(FsdpUnit *unit);
Status fsdp_reshard_default(FsdpUnit *unit);
// Frees, on the all-gather stream, the buffer that was resharded last, once the compute stream has
// passed its last use; for what is queued there later, the all-gather stream does not wait.
Status fsdp_free_all_gather(FsdpRoot *root);
// Reshards every unit of the root that is not sharded, also one whose all-gather nobody has waited
// for. Needed before an optimizer step where a forward without a backward (an evaluation) has left
// units unsharded, and after a forward, backward or fsdp_full_state that failed: it ends that
// iteration, whose unsharded gradients are freed, and the next forward begins a new one; what is in
// the gradient shards is for fsdp_zero_grad. The host waits only after a pass that failed. Not to
// be called during a forward or backward. ERR_ARGUMENT for a module that is not the root.
Status fsdp_reshard_all(Module *root);

// The hooks. arg is the FsdpUnit.
Status fsdp_pre_forward(Module *module, void *unit);
Status fsdp_post_forward(Module *module, void *unit);
Status fsdp_post_forward_default(Module *module, void *unit);

// ---------------------------------------------------------------- Task 4: backward.c

// Allocates the unit's unsharded gradient, of its type, on the compute stream, zero with its
// padding, and sets the views. World size 1: the gradient shard itself. ERR_ARGUMENT where there is
// one already.
Status fsdp_begin_grad(FsdpUnit *unit);
// The collective of a reduction: queues, on the reduce-scatter stream, the reduce-scatter (sum) of
// unsharded_grad and sharded_grad += sum / W. Nothing is allocated: the sum is in unsharded_grad.
// The default of unit->reduce_scatter.
Status fsdp_reduce_scatter(FsdpUnit *unit);
// Queues, after what is queued on the compute stream, the reduction of the unsharded gradient into
// the shard, and zeroes the padding; leaves the buffer to fsdp_free_reduce_scatter. World size 1:
// nothing to move and nothing to divide. ERR_ARGUMENT without a gradient.
Status fsdp_reduce_grad(FsdpUnit *unit);
Status fsdp_reduce_grad_default(FsdpUnit *unit);
// Frees, on the compute stream, the unsharded gradient that was reduced last, once its
// reduce-scatter is done.
Status fsdp_free_reduce_scatter(FsdpRoot *root);
// The end of a backward: the compute stream waits for the last reduce-scatter; every unit is
// sharded, prefetches that nobody used included; no buffer is left to free; the order is empty.
Status fsdp_finish_backward(FsdpRoot *root);

Status fsdp_pre_backward(Module *module, void *unit);
Status fsdp_post_backward(Module *module, void *unit);

// ---------------------------------------------------------------- Task 5: optimizer.c
//
// `root` is the module that fully_shard was called on last. A step is ERR_ARGUMENT where a unit is
// not sharded: the next forward would read the parameters from before the step.

struct FsdpAdamW {
    FsdpContext *ctx;
    FsdpRoot *root;
    AdamWConfig config;
    int t;                          // steps done
    int n;                          // units
    float **m, **v;                 // (n) device (grad_numel): the two moments of each unit's shard
    Status (*step)(FsdpAdamW *opt); // fsdp_adamw_step_by_root, or another way
    const void *step_arg;           // for that other way
};

// AdamW over every unit of `root`: moments for the shards alone, zero.
Status fsdp_adamw_create(FsdpAdamW *opt, Module *root, FsdpContext *ctx, const AdamWConfig *config);
Status fsdp_adamw_create_default(FsdpAdamW *opt, Module *root, FsdpContext *ctx,
                                 const AdamWConfig *config);
// One step on every shard, on the compute stream; the padding of the shard is zero afterwards. The
// gradients are only read.
Status fsdp_adamw_step(FsdpAdamW *opt);
Status fsdp_adamw_step_default(FsdpAdamW *opt);
Status fsdp_adamw_step_by_root(FsdpAdamW *opt); // opt->root->ops.adamw_step
// Zeroed or as fsdp_adamw_create left it, also where that failed.
void fsdp_adamw_destroy(FsdpAdamW *opt);
void fsdp_adamw_destroy_default(FsdpAdamW *opt);

// Plain SGD on every shard: p -= lr·(g + weight_decay·p); the padding is zero afterwards, and the
// gradients are only read.
Status fsdp_sgd_step(Module *root, FsdpContext *ctx, float lr, float weight_decay);
Status fsdp_sgd_step_default(Module *root, FsdpContext *ctx, float lr, float weight_decay);

// Zeroes every gradient shard.
Status fsdp_zero_grad(Module *root, FsdpContext *ctx);
Status fsdp_zero_grad_default(Module *root, FsdpContext *ctx);

// *norm = the 2-norm of the unsharded gradient, over all parameters and all ranks: the same number
// on every rank. Sums over the ranks once, one all-reduce of a double, and waits for the stream.
Status fsdp_grad_norm(Module *root, FsdpContext *ctx, float *norm);
Status fsdp_grad_norm_default(Module *root, FsdpContext *ctx, float *norm);
// Scales all gradients by max_norm / *norm where *norm is larger than max_norm. *norm is as above,
// before, and taken once.
Status fsdp_clip_grad_norm(Module *root, FsdpContext *ctx, float max_norm, float *norm);
Status fsdp_clip_grad_norm_default(Module *root, FsdpContext *ctx, float max_norm, float *norm);

// ---------------------------------------------------------------- Task 6: api.c

// Streams and events for the units of one rank. compute_stream is the one the modules run on. The
// communication streams have the highest priority: a collective that waits for kernels delays
// every rank. They are non-blocking: what is queued on the default stream does not hold them up.
Status fsdp_context_create(FsdpContext *ctx, const Mesh *mesh, cudaStream_t compute_stream);
Status fsdp_context_destroy(FsdpContext *ctx);

// Makes the module a unit, in place: a flat parameter of every parameter in it and below it that no
// inner unit has taken, and a hook at each of the four points. Call it for the inner modules first
// and for the model last, as PyTorch's fully_shard. ERR_ARGUMENT where the module is a unit
// already, where nothing is left to take, where an inner unit has another context, or where it
// holds a parameter that this module also uses outside that unit; the module is then as it was.
Status fully_shard(Module *module, FsdpContext *ctx, const FsdpOptions *options);

// The units of the module and of what is below it, in the order of a walk that takes a module
// before its children. Returns how many; writes at most `max` to out (which may be NULL for max =
// 0).
int fsdp_units(const Module *root, FsdpUnit **out, int max);

// Gathers the model, a unit at a time and each once, and calls visit on rank 0 with every
// parameter, unsharded, in host memory (row-major, param->shape), in the order of meta_params
// within each unit. The host has room for one parameter at a time; other ranks copy none to it.
// Collective: all ranks call it. A visitor that returns anything but OK ends it on rank 0 after the
// collectives are done.
Status fsdp_full_state(Module *root, StateVisitor visit, void *arg);
Status fsdp_full_state_default(Module *root, StateVisitor visit, void *arg);

// Makes the module and all below it plain modules again: no hooks, flat parameters or memory of
// FSDP's. Units above it stay.
void fsdp_unwrap(Module *root);

#undef Status

#endif
