/* fsdp.h: Fully Sharded Data Parallel, the contract that the six tasks implement.
 *
 * The words are PyTorch's. A *unit* is a module whose parameters are gathered and let go together.
 * Its *flat parameter* is one buffer in which they lie one behind the other, *padded* to a multiple
 * of the world size W, so that each of the W ranks holds an equal *shard*. To *unshard* is to
 * all-gather the shards into the whole buffer; to *reshard* is to let the whole buffer go again.
 * Gradients travel the other way by reduce-scatter, and the optimizer only ever sees shards.
 *
 *   file           task                    main functions
 *   meta_init.c    1 meta init             meta_params, meta_init_slice, meta_materialize
 *   flat_param.c   2 flat parameter        flat_layout, flat_create, flat_set_views
 *   forward.c      3 forward               fsdp_unshard, fsdp_wait_for_unshard, fsdp_reshard
 *   backward.c     4 backward              fsdp_begin_grad, fsdp_reduce_grad, fsdp_finish_backward
 *   optimizer.c    5 optimizer             fsdp_adamw_step, fsdp_grad_norm
 *   api.c          6 API                   fully_shard, fsdp_full_state
 *
 * Sizes are in elements (float) unless a name says bytes. Every function that returns a Status
 * prints one line where it fails.
 */
#ifndef SHARDLAB_FSDP_H
#define SHARDLAB_FSDP_H

#include <stdbool.h>
#include <stdint.h>

#include "check.h"
#include "nn.h"

// ---------------------------------------------------------------- Task 1: meta_init.c

// Elements of a parameter: the product of its shape.
int64_t meta_numel(const Param *param);

// Every parameter of the module and of what is below it, each once although it may stand in two
// modules (tied), in the order in which a walk (own parameters first, then the children in order)
// meets them. Returns how many there are; writes at most `max` of them to out (which may be NULL
// for max = 0).
int meta_params(const Module *module, Param **out, int max);

// Elements and bytes of all parameters, tied ones once. No storage is needed or made.
int64_t meta_count(const Module *module);
int64_t meta_bytes(const Module *module);

// Philox 4x32-10: four random words from a counter and a key (Salmon et al. 2011, "Parallel random
// numbers: as easy as 1, 2, 3"). The same counter and key give the same words on any machine.
void philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

// Writes elements [begin, end) of the parameter's initial value to host memory out (end-begin).
// Element i depends on (seed, param->id, i) alone: any cut into slices gives the same bits.
// INIT_NORMAL: block i/4 of four words, counter (low and high word of i/4, id, 0), key (low and
// high word of the seed); words 0,1 and 2,3 each make two normals by Box and Muller: the even
// element takes the cosine.
void meta_init_slice(const Param *param, uint64_t seed, int64_t begin, int64_t end, float *out);

// The same into device memory dst (end-begin), on `stream`, through a host buffer of fixed size.
// When it returns the values are there.
Status meta_init_device(const Param *param, uint64_t seed, int64_t begin, int64_t end, float *dst,
                        cudaStream_t stream);

// What one GPU without FSDP does: allocates data and grad for every parameter, whole, initialises
// the data and zeroes the gradient. On failure nothing stays allocated.
Status meta_materialize(Module *module, uint64_t seed, cudaStream_t stream);
// Frees what meta_materialize made.
void meta_release(Module *module);

// ---------------------------------------------------------------- Task 2: flat_param.c

typedef enum FlatState {
    FLAT_SHARDED,    // only the shard is there; the parameters' data is NULL
    FLAT_UNSHARDING, // the all-gather is queued, nobody has waited for it
    FLAT_UNSHARDED,  // the compute stream may read the parameters
} FlatState;

typedef struct FlatParam {
    char name[48];
    int n;               // parameters in it
    Param **params;      // (n)
    int64_t *offset;     // (n) where each begins in the flat buffer
    int64_t numel;       // elements of all of them
    int64_t padded;      // numel and padding: a multiple of world (of 4·world where aligned)
    int64_t shard_numel; // padded / world
    int rank, world;
    FlatState state;
    float *shard;        // device (shard_numel): elements [rank·shard_numel, (rank+1)·shard_numel)
    float *sharded_grad;   // device (shard_numel): the averaged gradient of the same elements
    float *full;         // device (padded) while unsharded, else NULL; for world 1 it is `shard`
    float *unsharded_grad;    // device (padded) during the unit's backward, else NULL; world 1: alias
    cudaEvent_t gathered; // recorded behind the all-gather
} FlatParam;

// Fills in everything that is arithmetic: n, params, offset, numel, padded, shard_numel, rank,
// world; pointers to device memory are NULL and the state is FLAT_SHARDED. `align` asks for shards
// of a multiple of 16 bytes (4 elements), which NCCL and vector loads want. ERR_ARGUMENT for no
// parameters, W < 1, a rank outside, or a parameter that is not DTYPE_F32 or that another flat
// parameter owns.
Status flat_layout(FlatParam *flat, const char *name, Param **params, int n, int rank, int world,
                   bool align);

// How many of the shard_numel elements of `rank`'s shard are real; the rest, at its end, is
// padding.
int64_t flat_valid_numel(const FlatParam *flat, int rank);

// Which part of parameter i lies in `rank`'s shard: elements [*begin, *end) of the parameter (begin
// = end where none does), starting at element *at of the shard.
void flat_param_range_in_shard(const FlatParam *flat, int i, int rank, int64_t *begin, int64_t *end, int64_t *at);

// Makes and initialises this rank's shard (each parameter's slice by meta_init_slice, the padding
// 0) and a gradient shard of zeros, and becomes the parameters' owner. Holds no more host memory
// than a small buffer and no device memory but the two shards. On failure nothing stays allocated.
Status flat_create(FlatParam *flat, uint64_t seed, cudaStream_t stream);

// Points every parameter's data (and grad) at its place in the whole buffer; NULL takes them away.
void flat_set_views(FlatParam *flat, float *full);
void flat_set_grad_views(FlatParam *flat, float *unsharded_grad);

// Zeroes the padding at the end of a shard-sized buffer of this rank (shard, sharded_grad …).
Status flat_zero_padding(const FlatParam *flat, float *shard_buffer, cudaStream_t stream);

// Frees the shards and the tables, lets the parameters go. A zeroed FlatParam is fine.
void flat_destroy(FlatParam *flat);

// ---------------------------------------------------------------- What all units of a rank share

typedef struct FsdpUnit FsdpUnit;

// A buffer that its stream may not free yet: somebody on another stream still uses it.
typedef struct Retired {
    float *buffer;     // NULL: none
    cudaEvent_t event; // recorded behind the last use
} Retired;

typedef struct FsdpContext {
    ncclComm_t comm;
    int rank, world;
    cudaStream_t compute;  // where the modules' kernels run; the caller's
    cudaStream_t gather;   // all-gathers; owns the whole parameters
    cudaStream_t reduce;   // reduce-scatters
    Retired all_gather_state;    // the whole parameter resharded last, freed on `gather`
    Retired reduce_scatter_state;    // the whole gradient reduced last, freed on `compute`
    cudaEvent_t computed;  // recorded on `compute` where another stream must wait for it
    FsdpUnit **order;      // units in the order in which this iteration's forward met them
    int n_order, max_order;
} FsdpContext;

typedef struct FsdpOptions {
    bool reshard_after_forward; // false: keep the whole parameters for the backward
    bool align_shards;          // shards of a multiple of 16 bytes
    uint64_t seed;              // of the initial values; the same on every rank
} FsdpOptions;

struct FsdpUnit {
    Module *module;
    FsdpContext *ctx;
    FlatParam flat;
    bool reshard_after_forward;
    bool is_root;          // no unit above it: it begins and ends an iteration
    int place;             // in ctx->order
};

// ---------------------------------------------------------------- Task 3: forward.c

// Queues the all-gather of the unit's shards into a new buffer, both on ctx->all_gather_stream, records
// flat.all_gather_done, attaches the parameters; FLAT_UNSHARDING. Nothing where it is not FLAT_SHARDED.
// World size 1: the whole parameter is the shard, nothing is allocated or moved.
Status fsdp_unshard(FsdpUnit *unit);
// Makes the compute stream wait for the all-gather; FLAT_UNSHARDED.
Status fsdp_wait_for_unshard(FsdpUnit *unit);
// Lets the whole parameter go: detaches the parameters, retires the buffer behind what the compute
// stream has queued so far; FLAT_SHARDED. Nothing where it is not FLAT_UNSHARDED.
Status fsdp_reshard(FsdpUnit *unit);
// Frees, on ctx->all_gather_stream, the buffer that was resharded last, once the compute stream has passed it.
Status fsdp_free_all_gather(FsdpContext *ctx);

// The hooks. ctx is the FsdpUnit.
Status fsdp_pre_forward(Module *module, void *unit);
Status fsdp_post_forward(Module *module, void *unit);

// ---------------------------------------------------------------- Task 4: backward.c

// Allocates the unit's whole gradient on ctx->compute_stream, zero with its padding, and attaches it.
// World size 1: the gradient shard itself.
Status fsdp_begin_grad(FsdpUnit *unit);
// Queues, on ctx->reduce_scatter_stream, behind what the compute stream has queued: reduce-scatter (sum) of the
// whole gradient, sharded_grad += sum / W, padding zeroed; retires the whole gradient. World size 1:
// nothing to move and nothing to divide.
Status fsdp_reduce_grad(FsdpUnit *unit);
// Frees, on ctx->compute_stream, the whole gradient that was reduced last, once its reduce-scatter is
// done.
Status fsdp_free_reduce_scatter(FsdpContext *ctx);
// The end of a backward: the compute stream waits for the last reduce-scatter; nothing stays
// retired.
Status fsdp_finish_backward(FsdpContext *ctx);

Status fsdp_pre_backward(Module *module, void *unit);
Status fsdp_post_backward(Module *module, void *unit);

// ---------------------------------------------------------------- Task 5: optimizer.c

typedef struct FsdpAdamW {
    FsdpContext *ctx;
    AdamWConfig config;
    int t;               // steps done
    int n;
    FlatParam **flat;    // (n)
    float **m, **v;      // (n) device (shard_numel): the two moments of each shard
} FsdpAdamW;

// AdamW over every flat parameter below `root`: moments for the shards alone, zero.
Status fsdp_adamw_create(FsdpAdamW *opt, Module *root, FsdpContext *ctx, const AdamWConfig *config);
// One step on every shard, on ctx->compute_stream; the padding of the shard is zero afterwards.
Status fsdp_adamw_step(FsdpAdamW *opt);
void fsdp_adamw_destroy(FsdpAdamW *opt);

// Plain SGD on every shard below root: p -= lr·(g + weight_decay·p); the padding is zero
// afterwards.
Status fsdp_sgd_step(Module *root, FsdpContext *ctx, float lr, float weight_decay);

// Zeroes every gradient shard below root.
Status fsdp_zero_grad(Module *root, FsdpContext *ctx);

// *norm = the 2-norm of the whole gradient, over all parameters and all ranks: the same number on
// every rank. Waits for the stream.
Status fsdp_grad_norm(Module *root, FsdpContext *ctx, float *norm);
// Scales all gradients by max_norm / *norm where *norm is larger than max_norm. *norm is as above,
// before.
Status fsdp_clip_grad_norm(Module *root, FsdpContext *ctx, float max_norm, float *norm);

// ---------------------------------------------------------------- Task 6: api.c

// Streams and events for the units of one rank. `compute` is the stream the modules run on.
Status fsdp_context_create(FsdpContext *ctx, ncclComm_t comm, cudaStream_t compute);
Status fsdp_context_destroy(FsdpContext *ctx);

// Makes the module a unit, in place: a flat parameter of every parameter in it and below it that no
// inner unit has taken, and the four hooks. Call it for the inner modules first and for the model
// last, as PyTorch's fully_shard. ERR_ARGUMENT where the module is a unit already, where nothing is
// left to take, or where an inner unit holds a parameter that this module also uses outside that
// unit.
Status fully_shard(Module *module, FsdpContext *ctx, const FsdpOptions *options);

// The unit that a module is, or NULL.
FsdpUnit *fsdp_unit(const Module *module);

// The flat parameters of the module and of what is below it, in the order of a walk that takes a
// module before its children. Returns how many; writes at most `max`.
int fsdp_flat_params(const Module *root, FlatParam **out, int max);

// Gathers the model, a unit at a time, and calls visit on rank 0 with every parameter, whole, in
// host memory (row-major, param->shape), in the order of meta_params within each unit. Collective:
// all ranks call it. A visit that returns anything but OK ends it on rank 0 after the collectives
// are done.
typedef Status (*StateVisitor)(const Param *param, const float *values, void *arg);
Status fsdp_full_state(Module *root, StateVisitor visit, void *arg);

// Takes the units off the module and all below it: hooks, flat parameters, memory. The modules
// stay.
void fsdp_unwrap(Module *root);

// ---------------------------------------------------------------- For the skeleton

// Says that a part of a task is not written yet, and ends the rank.
#define NOT_YET(part) fsdp_not_yet((part), __FILE__, __LINE__, __func__)
_Noreturn void fsdp_not_yet(const char *part, const char *file, int line, const char *function);

#endif
