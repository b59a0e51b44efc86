/* fsdp.h: Fully Sharded Data Parallel, the contract that the six tasks implement.
 *
 * The words are PyTorch's. A *unit* is a module whose parameters are gathered and freed together.
 * Its *flat parameter* is one buffer that holds them back to back, *padded* to a multiple of the
 * number of ranks W, so that each rank owns an equal *shard*. To *unshard* is to all-gather the
 * shards into the unsharded buffer; to *reshard* is to free it. Gradients travel the other way by
 * reduce-scatter, and the optimizer sees only shards.
 *
 *   file           task                    main functions
 *   meta_init.c    1 meta init             meta_params, meta_init_slice, meta_materialize
 *   flat_param.c   2 flat parameter        flat_layout, flat_create, flat_set_views
 *   forward.c      3 forward               fsdp_unshard, fsdp_wait_for_unshard, fsdp_reshard
 *   backward.c     4 backward              fsdp_begin_grad, fsdp_reduce_grad, fsdp_finish_backward
 *   optimizer.c    5 optimizer             fsdp_adamw_step, fsdp_grad_norm
 *   api.c          6 API                   fully_shard, fsdp_full_state
 *
 * Labs can replace some functions through tables (FlatLayoutOps, FsdpRootOps, the pointers of
 * FsdpUnit and FsdpAdamW), whose entries are never NULL. For such a function X you write X_default,
 * which the table holds until a lab replaces it. All code calls X, which is given and calls the
 * entry (lib/fsdp/dispatch.c). The contract of X is also that of X_default.
 *
 * Sizes are in elements unless a name says bytes. Every function that returns a Status prints one
 * line if it fails; if something that it called failed, it passes that status on. A call that
 * returns an ERR_ARGUMENT named in its contract has changed nothing. Nothing grows from one
 * iteration to the next: no host memory, no event, no stream.
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

// Lists every parameter of the module and of the modules below it, once even if two modules share
// it (tied), in the order of a walk: own parameters first, then the children in order. Returns how
// many there are; writes at most `max` of them to out (which may be NULL for max = 0). It must not
// allocate, because it could not report a failure.
int meta_params(const Module *module, Param **out, int max);

// Elements and bytes of all parameters, tied ones once. No storage is needed or made.
int64_t meta_count(const Module *module);
int64_t meta_bytes(const Module *module);

// Philox 4x32-10: four random words from a counter and a key (Salmon et al. 2011, "Parallel random
// numbers: as easy as 1, 2, 3"). The same counter and key give the same words on any machine.
void philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

// Writes elements [begin, end) of the parameter's initial value to host memory out (end-begin: a
// number in parentheses after a buffer is its size in elements). Element i depends only on (seed,
// param->id, i): however the parameter is cut into slices, the values are bitwise equal.
// INIT_NORMAL: element i is init_std times n[i%4], where n[0..3] are the four normally distributed
// numbers of block i/4. box_muller4 makes them from four words of Philox, whose counter is (low
// word of i/4, high word of i/4, id, 0) and whose key is (low word, high word) of the seed.
void meta_init_slice(const Param *param, uint64_t seed, int64_t begin, int64_t end, float *out);

// The same into device memory dst (end-begin), on `stream`, through a host buffer of fixed size.
// When it returns, the values are there.
Status meta_init_device(const Param *param, uint64_t seed, int64_t begin, int64_t end, float *dst,
                        cudaStream_t stream);

// Does what one GPU without FSDP does: allocates data and grad of all parameters (a frozen one
// needs no grad), unsharded, initialises the data and zeroes the gradients. On failure it frees
// what it allocated. ERR_ARGUMENT, with a line that names the parameter, if one has storage or an
// owner, or is not DTYPE_F32.
Status meta_materialize(Module *module, uint64_t seed, cudaStream_t stream);
// Frees what meta_materialize made.
void meta_release(Module *module);

// ---------------------------------------------------------------- Task 2: flat_param.c

struct FlatLayoutOps;

// Who owns which element: only arithmetic, no device memory. Code that only has to know where an
// element is, such as a checkpoint, needs no more of a flat parameter than this.
typedef struct FlatLayout {
    int n;               // parameters
    Param **params;      // (n)
    int64_t *offset;     // (n) where each begins in the flat buffer
    int64_t numel;       // elements of all of them
    int64_t padded;      // numel and padding: a multiple of world (of 4·world where aligned)
    int64_t shard_numel; // padded / world
    int rank, world;     // in the group that shards
    int64_t grad_numel;  // the first grad_numel elements of a shard have a gradient (all of them,
                         // in the layout of task 2)
    const struct FlatLayoutOps *ops; // FLAT_LAYOUT_OPS, unless a lab cuts units in another way
} FlatLayout;

// A function that fills in all fields of a unit's layout: flat_layout, or another one.
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
    FlatState state;        // only flat_set_state changes it
    bool gathers_alone;     // true: even a group of one rank gathers, into a copy
    Buffer sharded_param;   // (shard_numel) elements [rank·shard_numel, (rank+1)·shard_numel)
    Buffer sharded_grad;    // (grad_numel) the averaged gradient of the same elements
    Buffer unsharded_param; // (padded) elements; no memory (data NULL) while the unit is sharded;
                            // if flat_param_is_shard, its memory is the shard's
    Buffer unsharded_grad;  // (world·grad_numel) during the unit's backward; if there is only one
                            // rank, its memory is the gradient shard's
    cudaEvent_t all_gather_done; // recorded after the all-gather
} FlatParam;

// Whether the unsharded parameter is the shard itself, not a copy: one rank shards, and both are of
// one type.
static inline bool flat_param_is_shard(const FlatParam *flat)
{
    return flat->layout.world == 1 && !flat->gathers_alone &&
           flat->unsharded_param.dtype == flat->sharded_param.dtype;
}

// Fills in the layout. `align` asks for shards of a multiple of 16 bytes (4 elements), which NCCL
// and vector loads want. `name` is for messages. ERR_ARGUMENT, with a line that names the unit (or
// the parameter), if there are no parameters, W < 1, the rank is outside [0, W), or a parameter is
// not DTYPE_F32, is owned by another flat parameter or is frozen; then do not use *layout.
Status flat_layout(FlatLayout *layout, const char *name, Param **params, int n, int rank, int world,
                   bool align);
Status flat_layout_default(FlatLayout *layout, const char *name, Param **params, int n, int rank,
                           int world, bool align); // leaves ops and grad_numel alone
// Frees the layout's tables. A zeroed layout is fine.
void flat_layout_destroy(FlatLayout *layout);

// How many of the shard_numel elements of `rank`'s shard are valid, that is, not padding; the
// padding is at its end.
int64_t flat_valid_numel(const FlatLayout *layout, int rank);
int64_t flat_valid_numel_default(const FlatLayout *layout, int rank);

// Which part of parameter i lies in `rank`'s shard: elements [*begin, *end) of the parameter,
// starting at element *at of the shard. If no part does, *begin = *end; their common value and *at
// mean nothing.
void flat_param_range_in_shard(const FlatLayout *layout, int i, int rank, int64_t *begin,
                               int64_t *end, int64_t *at);
void flat_param_range_in_shard_default(const FlatLayout *layout, int i, int rank, int64_t *begin,
                                       int64_t *end, int64_t *at);

// Takes over the layout, makes and initialises this rank's shard (each parameter's slice by
// meta_init_slice, the padding 0) and a gradient shard of zeros, and becomes the owner of the
// parameters. It needs a small buffer on the host, and on the device only the two shards.
// ERR_ARGUMENT, with a line that names it, for a parameter that has storage. On failure everything
// is freed, including the layout's tables, and no parameter has an owner.
Status flat_create(FlatParam *flat, const char *name, const FlatLayout *layout, uint64_t seed,
                   cudaStream_t stream);

// Makes the transition to `to`. ERR_ARGUMENT, with a line that names the unit, its state and `to`,
// if the transition is not legal (one to the current state is not); then the state stays.
Status flat_set_state(FlatParam *flat, FlatState to);

// Points every parameter's data (or grad) at its place in the unsharded buffer, with the buffer's
// type; if the buffer has no memory, they have none either.
void flat_set_views(FlatParam *flat);
void flat_set_grad_views(FlatParam *flat);

// `sharded` is a buffer of any type with the layout of this rank's shard. Zeroes its padding: every
// element from flat_valid_numel(rank) on. Queued: the host does not wait.
Status flat_zero_padding(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream);
Status flat_zero_padding_default(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream);

// Frees the shards and the tables; the parameters lose owner and views. A zeroed FlatParam is fine.
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
    cudaEvent_t event; // made with the root; recorded after the buffer's last use
} AllGatherState;

// The unsharded gradient that was reduced last: the compute stream may free it only after the
// reduce-scatter stream has read it.
typedef struct ReduceScatterState {
    void *buffer;
    cudaEvent_t event;
} ReduceScatterState;

// The function that fsdp_full_state calls with each parameter's values.
typedef Status (*StateVisitor)(const Param *param, const float *values, void *arg);

typedef struct FsdpRoot FsdpRoot;
typedef struct FsdpAdamW FsdpAdamW;

// The functions that depend on a unit's layout; for the flat one, those of tasks 2 to 4. Another
// layout may have padding anywhere in a shard; its valid_numel says where the last valid element
// ends. Such a layout's functions may also copy parameters out of the gathered buffer, and copy
// gradients in before a reduction.
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

// The functions that work on all shards of a root. By default they are the functions of tasks 5 and
// 6 and of root.c with the same names.
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
    void (*shards_written)(FsdpRoot *root); // by default, marks every parameter as set: afterwards
                                            // none is INIT_NONE
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
    FsdpRootOps ops;                   // FSDP_ROOT_OPS, unless a lab has replaced some
    struct FsdpExtensions *extensions; // the labs' data; nothing in the six files reads it
};

// Whether a unit frees its parameters between its forward and its backward.
typedef enum FsdpReshard {
    FSDP_RESHARD_AUTO,   // all units but the root: its backward begins right after its forward
    FSDP_RESHARD_ALWAYS, // all units: ZeRO-3
    FSDP_RESHARD_NEVER,  // no unit: ZeRO-2, with more memory and one all-gather less per unit
} FsdpReshard;

// Zeros are the defaults: a program sets only what differs, as in {.seed = 42}. So `layout` may be
// NULL, unlike a unit's and a root's pointers to functions; fsdp_layout_fn handles that.
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
    int backward_index; // the index that the latest backward popped; -1: there was none to pop
    // By default both are fsdp_all_gather. A lab's all_gather calls gather_shards for the
    // collective itself.
    Status (*all_gather)(FsdpUnit *unit);
    Status (*gather_shards)(FsdpUnit *unit);
    Status (*reduce_scatter)(FsdpUnit *unit); // by default fsdp_reduce_scatter
    Hook *hooks[HOOK_POINTS];                 // the handles of the unit's own hooks
};

// Given code (lib/fsdp/root.c, and the last two in dispatch.c).

// Makes a root of the n units, the outermost first; they leave the roots that they had.
// ERR_ARGUMENT if one has another context. On any failure they stay as they were.
Status fsdp_root_create(FsdpContext *ctx, FsdpUnit **units, int n);
// Removes the unit from its root's registry; removing the last one frees the root.
void fsdp_root_remove(FsdpUnit *unit);
// The module's own unit, or NULL; and whether a unit is the outermost one.
FsdpUnit *fsdp_unit(const Module *module);
bool fsdp_is_root(const FsdpUnit *unit);
// The root whose outermost unit is this module. ERR_ARGUMENT if the module is an inner unit, or no
// unit.
Status fsdp_find_root(const Module *module, FsdpRoot **root);

// Makes this unit's forward the outermost: root->iter_forward_root. It also clears the recorded
// order if no recorded forward will have a backward any more, because the recorded forwards were
// discarded (module_discard), as an evaluation's are.
void fsdp_begin_forward(FsdpUnit *unit);
// Ends the iteration: afterwards no pass is running, every unit is idle and no forward is recorded.
// If a pass failed, also frees its unsharded gradients and makes the compute stream wait for their
// reductions. Frees the buffers of failed all-gathers, too.
Status fsdp_end_iteration(FsdpRoot *root);
// The unit's place in its root's registry.
int fsdp_unit_index(const FsdpUnit *unit);
// Appends the unit to the order in which forwards ended, and pushes its index in that order on the
// unit's own stack.
Status fsdp_record_post_forward(FsdpUnit *unit);
Status fsdp_record_post_forward_default(FsdpUnit *unit);
// Pops the index that the unit's latest forward pushed, into unit->backward_index. Returns the unit
// to prefetch, the one whose forward ended just before that forward, or NULL if there is none.
FsdpUnit *fsdp_pop_post_forward(FsdpUnit *unit);
FsdpUnit *fsdp_pop_post_forward_default(FsdpUnit *unit);
// Empties the order and every unit's stack.
void fsdp_clear_post_forward(FsdpRoot *root);
// Call this after writing shards, as a load does. dispatch.c calls it after each step of the
// optimizer.
void fsdp_shards_written(FsdpRoot *root);
// The function that lays out the units of fully_shard.
LayoutFn fsdp_layout_fn(const FsdpOptions *options);

// ---------------------------------------------------------------- Task 3: forward.c

// The collective of an unshard: queues, on the all-gather stream, the all-gather of the shards, in
// their type, into unsharded_param, which has memory already. The default of unit->all_gather.
Status fsdp_all_gather(FsdpUnit *unit);
// On the all-gather stream, allocates a new buffer, gathers the unit's shards into it and records
// all_gather_done. Sets the views. The new state is FLAT_UNSHARDING. Does nothing if
// the unit is not FLAT_SHARDED. If flat_param_is_shard (usually with one rank alone),
// unsharded_param points at the shard, and neither this function nor fsdp_wait_for_unshard nor
// fsdp_reshard queues anything. On failure the unit stays FLAT_SHARDED. The buffer of a failed
// all-gather may remain: a second call uses it, and fsdp_reshard_all frees it.
Status fsdp_unshard(FsdpUnit *unit);
// Makes the compute stream wait for the all-gather. The new state is FLAT_UNSHARDED. Does nothing
// if the unit is FLAT_UNSHARDED. ERR_ARGUMENT if it is FLAT_SHARDED.
Status fsdp_wait_for_unshard(FsdpUnit *unit);
Status fsdp_wait_for_unshard_default(FsdpUnit *unit);
// Clears the parameters' views and records an event on the compute stream; fsdp_free_all_gather
// frees the buffer after that event. The new state is FLAT_SHARDED. Does nothing if the unit is
// FLAT_SHARDED. ERR_ARGUMENT if it is FLAT_UNSHARDING: nobody has waited for the all-gather.
Status fsdp_reshard(FsdpUnit *unit);
Status fsdp_reshard_default(FsdpUnit *unit);
// Frees, on the all-gather stream, the buffer that was resharded last, after the compute stream's
// last use of it. The all-gather stream does not wait for later work on the compute stream.
Status fsdp_free_all_gather(FsdpRoot *root);
// Reshards every unit of the root that is not sharded, also one whose all-gather nobody has waited
// for. Needed before an optimizer's step if a forward without a backward (an evaluation) has left
// units unsharded, and after a failed forward, backward or fsdp_full_state. It also ends the
// iteration, always: it frees the unsharded gradients, and the next forward begins a new iteration.
// It leaves the gradient shards as they are: call fsdp_zero_grad to clear them. The host waits only
// after a failed pass. Do not call it during a forward or backward. ERR_ARGUMENT for a module that
// is not the root.
Status fsdp_reshard_all(Module *root);

// The hooks. arg is the FsdpUnit.
Status fsdp_pre_forward(Module *module, void *unit);
Status fsdp_post_forward(Module *module, void *unit);
Status fsdp_post_forward_default(Module *module, void *unit);

// ---------------------------------------------------------------- Task 4: backward.c

// Allocates the unit's unsharded gradient in its type on the compute stream, zeroes it including
// the padding, and sets the views. With one rank in all (mesh_size 1) the unsharded gradient is the
// gradient shard itself. ERR_ARGUMENT if there is one already.
Status fsdp_begin_grad(FsdpUnit *unit);
// The collective of a reduction: queues two things on the reduce-scatter stream: the reduce-scatter
// (sum) of unsharded_grad, then sharded_grad += sum / W. Nothing is allocated: the sum is in
// unsharded_grad. The default of unit->reduce_scatter.
Status fsdp_reduce_scatter(FsdpUnit *unit);
// Queues the reduction of the unsharded gradient into the shard, after all work queued so far on
// the compute stream, and zeroes the padding; fsdp_free_reduce_scatter frees the buffer later. With
// one rank in all (mesh_size 1) it moves and divides nothing. ERR_ARGUMENT if the unit has no
// unsharded gradient.
Status fsdp_reduce_grad(FsdpUnit *unit);
Status fsdp_reduce_grad_default(FsdpUnit *unit);
// Frees, on the compute stream, the unsharded gradient that was reduced last, once its
// reduce-scatter is done.
Status fsdp_free_reduce_scatter(FsdpRoot *root);
// Ends a backward: the compute stream waits for the last reduce-scatter. Afterwards every unit is
// sharded, unused prefetches included, no buffer is left to free, and the order is empty.
Status fsdp_finish_backward(FsdpRoot *root);

Status fsdp_pre_backward(Module *module, void *unit);
Status fsdp_post_backward(Module *module, void *unit);

// ---------------------------------------------------------------- Task 5: optimizer.c
//
// `root` is the module that fully_shard was called on last. A step returns ERR_ARGUMENT if a unit
// is not sharded: the next forward would read the parameters from before the step.

struct FsdpAdamW {
    FsdpContext *ctx;
    FsdpRoot *root;
    AdamWConfig config;
    int t;                          // steps done
    int n;                          // units
    float **m, **v;                 // (n) device (grad_numel): the two moments of each unit's shard
    Status (*step)(FsdpAdamW *opt); // by default fsdp_adamw_step_by_root
    const void *step_arg;           // for a lab's step
};

// AdamW over every unit of `root`: makes moments of zeros, for the shards only.
Status fsdp_adamw_create(FsdpAdamW *opt, Module *root, FsdpContext *ctx, const AdamWConfig *config);
Status fsdp_adamw_create_default(FsdpAdamW *opt, Module *root, FsdpContext *ctx,
                                 const AdamWConfig *config);
// One step on every shard, on the compute stream; the padding of the shard is zero afterwards. The
// gradients are only read.
Status fsdp_adamw_step(FsdpAdamW *opt);
Status fsdp_adamw_step_default(FsdpAdamW *opt);
Status fsdp_adamw_step_by_root(FsdpAdamW *opt); // opt->root->ops.adamw_step
// Frees what fsdp_adamw_create made, even if that call failed. A zeroed *opt is fine.
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
// on every rank. Sums over the ranks by one all-reduce of a double, and waits for the stream.
Status fsdp_grad_norm(Module *root, FsdpContext *ctx, float *norm);
Status fsdp_grad_norm_default(Module *root, FsdpContext *ctx, float *norm);
// Computes the norm once and sets *norm as fsdp_grad_norm does. Then, if *norm is larger than
// max_norm, scales all gradients by max_norm / *norm.
Status fsdp_clip_grad_norm(Module *root, FsdpContext *ctx, float max_norm, float *norm);
Status fsdp_clip_grad_norm_default(Module *root, FsdpContext *ctx, float max_norm, float *norm);

// ---------------------------------------------------------------- Task 6: api.c

// Streams and events for the units of one rank. The modules run on compute_stream. The
// communication streams have the highest priority: a collective that waits for kernels delays every
// rank. They are non-blocking: work on the default stream does not delay them.
Status fsdp_context_create(FsdpContext *ctx, const Mesh *mesh, cudaStream_t compute_stream);
Status fsdp_context_destroy(FsdpContext *ctx);

// Makes the module a unit, in place: a flat parameter of every parameter in it and below it that no
// inner unit has taken, and a hook at each of the four points. Call it for the inner modules first
// and for the model last, as PyTorch's fully_shard. ERR_ARGUMENT if the module is a unit already,
// if no parameter is left to take, if an inner unit has another context, or if an inner unit owns a
// parameter that this module also uses outside that unit. On any error the module stays as it was.
Status fully_shard(Module *module, FsdpContext *ctx, const FsdpOptions *options);

// Lists the units of the module and of the modules below it, a module before its children. Returns
// how many there are; writes at most `max` to out (which may be NULL for max = 0).
int fsdp_units(const Module *root, FsdpUnit **out, int max);

// Gathers the model, one unit at a time and each once, and calls visit on rank 0 with every
// parameter, unsharded, in host memory (row-major, param->shape), in the order of meta_params
// within each unit. Uses host memory for one parameter at a time, and only on rank 0. Collective:
// all ranks call it. If the visitor returns an error, it is not called again; rank 0 still takes
// part in all collectives, and then returns that error.
Status fsdp_full_state(Module *root, StateVisitor visit, void *arg);
Status fsdp_full_state_default(Module *root, StateVisitor visit, void *arg);

// Makes the module and all modules below it plain again, without hooks, flat parameters or memory
// of FSDP. Units above it stay.
void fsdp_unwrap(Module *root);

#undef Status

#endif
