/* training.h: small models, data and training loops that several suites share.
 *
 * A Spec says which model and how large a batch. Data is made from a seed on the host, so that any
 * rank can make any batch. Two loops train the same model on the same data: one GPU without FSDP,
 * and FSDP.
 */
#ifndef TRAINING_H
#define TRAINING_H

#include "fsdp.h"
#include "harness.h"
#include "nn.h"

typedef struct Spec {
    bool gpt2;       // or Llama: tokens in, blocks "h.i"
    int layers;      // GPT-2: blocks; MLP: linear layers
    int B, T;        // MLP: T is 1
    int in_dim, dim; // dim: GPT-2's C, the MLP's hidden size
    int heads;
    int kv_heads, hidden;                   // Llama's; kv_heads 0: GPT-2
    bool tied;                              // Llama's head
    Module *(*create)(const struct Spec *); // Llama's; NULL: GPT-2 or the MLP
    int vocab;                              // classes
    float init_std; // of the normal parameters; 0: what the model has for them
} Spec;

Spec spec_mlp(int layers);  // odd sizes: 7 → 13 … → 5, 6 rows
Spec spec_gpt2(int layers); // 11 tokens, C = 24, 3 heads, B = 2, T = 9
// 11 tokens, C = 24, 6 heads on 2 of keys, 17 hidden, B = 2, T = 9
Spec spec_llama(int layers, bool tied);
Module *spec_create(const Spec *spec);

typedef struct Batch {
    void *in;         // device: (B·T, in_dim) float, or (B·T) int32 tokens
    int32_t *targets; // device: (B·T)
} Batch;
Batch batch_create(const Spec *spec, uint64_t seed);
void batch_destroy(Batch *batch);

// Forward, cross entropy, backward; returns the loss. Adds to the gradients.
float train_batch(const Spec *spec, NnRun *run, Module *model, const Batch *batch);

// A model being trained on one GPU without FSDP.
typedef struct Plain {
    Spec spec;
    NnRun run;
    Module *model;
    PlainAdamW *adamw;
} Plain;
void plain_create(Plain *p, const Spec *spec, uint64_t seed, const AdamWConfig *adamw,
                  cudaStream_t stream);
void plain_destroy(Plain *p);
float *plain_params(const Plain *p); // host: all parameters back to back; free it
float *plain_grads(const Plain *p);

// The same with FSDP: every block of the model (child but the last; GPT-2: "h.i") is a unit, the
// model the root.
typedef struct Sharded {
    Spec spec;
    NnRun run;
    Module *model;
    FsdpContext ctx;
    FsdpRoot *root; // of the model's units
    FsdpAdamW adamw;
    int rank, world; // as the test has them
} Sharded;
// A context of all ranks on the rank's stream.
void make_context(FsdpContext *ctx, const Rank *r);
// An MLP of two layers that is one unit, on any mesh.
typedef struct OneUnit {
    Module *model;
    FsdpContext ctx;
    FsdpUnit *unit;
} OneUnit;
void one_unit_create(OneUnit *u, const Mesh *mesh, const Rank *r);
void one_unit_destroy(OneUnit *u);
// One rank shards, and all ranks hold replicas (DDP). A group of one rank has no communicator.
Mesh mesh_of_replicas(const Rank *r);
// Of four ranks two shard, and two of these pairs hold replicas.
Mesh mesh_of_pairs(const Rank *r);
void mesh_of_pairs_destroy(Mesh *mesh);
// The flat parameters of the module and below, as a walk that takes a module before its children
// meets them; counts all and writes at most max. The modules are asked, not the code under test.
int flat_params(const Module *root, FlatParam **out, int max);
void sharded_create(Sharded *s, const Spec *spec, const FsdpOptions *options,
                    const AdamWConfig *adamw, const Rank *r);
void sharded_destroy(Sharded *s);
// A model and the options of its units.
typedef struct Shape {
    Spec spec;
    FsdpOptions options;
} Shape;
// run_sharded(spec_mlp(3), body, 1, 4): runs the body on one rank, then on four, on a model that is
// sharded before it and destroyed after it.
typedef void (*ShardedBody)(Sharded *s, const Rank *r, void *arg);
#define run_sharded(spec, body, ...)                                                               \
    run_shape(((Shape){spec, TEST_OPTIONS}), body, NULL, __VA_ARGS__)
// The same with other options, and an argument for the body.
#define run_shape(shape, body, arg, ...)                                                           \
    run_shape_at(__FILE__, __LINE__, shape, body, arg, (const int[]){__VA_ARGS__, 0})
void run_shape_at(const char *file, int line, Shape shape, ShardedBody body, void *arg,
                  const int *worlds);
// Whether the model's child i is a block, which becomes a unit of its own.
bool is_block(const Spec *spec, const Module *model, int i);
FsdpUnit *unit_of(const Sharded *s, int child);
// Elements of all parameters, by their shapes.
int64_t model_numel(const Module *model);
float *sharded_params(Sharded *s);        // host, on rank 0; NULL on the others. Collective
float *sharded_grads(Sharded *s);         // host, on every rank. Collective
int64_t sharded_padded(const Sharded *s); // Σ padded of all flat parameters
int64_t sharded_numel(const Sharded *s);  // Σ numel

// Fails the rank where padding is anything but zero: shards, gradients, moments.
void check_padding(const Sharded *s, const char *when);
// The unit's unsharded parameter, once its streams are done, is the initial values of this seed.
void check_initial_values(const FsdpUnit *unit, uint64_t seed);

// Fail the rank (passes.c): where a unit's hooks are not those of their points, up to the last one
// that runs, which the two functions that run a batch ask first; where a forward or a backward has
// left something.
void check_hooks(const Module *model, HookPoint last);
void check_forward_over(const FsdpRoot *root);
void check_backward_over(FsdpRoot *root);

// Fails the rank where two operations from `first` on race with each other (gpulog_race).
void check_no_race(uint64_t first);
// Fails the rank where the host waited for the device since `first`, and says in which call. That
// lib/nn reads the loss, once a step, does not count.
void check_no_host_wait(uint64_t first, const char *when);
// Fails the rank where work since `first` was queued on another stream.
void check_on_stream(uint64_t first, cudaStream_t stream, const char *what, const char *name);

// What the activations of one pass take at their peak, in bytes: measured without FSDP.
size_t activation_bytes(const Spec *spec, const Rank *r, bool backward);
// Takes the device's free memory but so many bytes (run_ranks_small); cudaFree gives it back.
void *fill_all_but(size_t room);
#ifndef BACKEND_CUDA // of a GPU's driver nobody knows what it does with one
// A stream on which nothing can be queued: between backend_ignore_reports and backend_listen every
// call that is given it fails.
cudaStream_t dead_stream(void);
#endif
// In place of a unit's all_gather or reduce_scatter: a collective that fails with failing_status.
extern Status failing_status;
Status failing_collective(FsdpUnit *unit);
// Bytes of the unit's whole flat parameter.
size_t whole_bytes(const FsdpUnit *unit);
// Forward alone, and what it left behind is dropped.
void forward_batch(const Spec *spec, NnRun *run, Module *model, const Batch *batch);

// The gradient, averaged over `n` micro-batches, that a collective over n ranks would make: out[i]
// = (g[0][i] + g[1][i] + …, in the tree's order) / n. All host memory.
void tree_average(float *out, float *const *grads, int n, size_t count);

// The layout of a unit's flat parameter, of this rank's shard of it or of the whole: from the
// module's parameters. Of a flat parameter that no module's unit has, nothing.
void unit_layout(Layout *layout, const Sharded *s, const FlatParam *flat, bool whole);
// The layout of all parameters back to back, as plain_params has them, and why there is
// none: the code under test lists them in another way; NULL: there is one.
const char *model_layout(Layout *layout, const Module *model);

extern const AdamWConfig TEST_ADAMW;   // lr 1e-3, decay 0.1
extern const FsdpOptions TEST_OPTIONS; // reshard, not aligned, seed 42

#endif
