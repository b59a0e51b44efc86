/* nn.h: modules with a forward and a backward written by hand. Given code: no task changes it.
 *
 * A Module maps rows to rows: (rows, in_dim) to (rows, out_dim), where rows = B·T (B sequences of T
 * tokens). It has parameters, children and hooks. The hooks are all that this library knows of
 * FSDP: a function may run before and after the forward and the backward of a module.
 *
 * Memory: a module allocates its output in its forward, stream-ordered on run->stream, and frees it
 * at the end of its backward; its input is borrowed and must stay until then. A gradient that
 * module_backward returns belongs to the caller.
 *
 * Parameters start on "meta": shape and no storage. Whoever trains must give param->data (and,
 * before a backward, param->grad) device memory while the module runs. A backward adds to
 * param->grad, so a parameter used twice (tied embeddings) and several micro-batches both come out
 * right. A frozen one (param->frozen) has no gradient, and no optimizer moves it.
 *
 * Types: a module computes in float unless module_set_type says bf16 or fp16. Then its input, its
 * output, their gradients, its parameters' data and grad are all of that type; sums and statistics
 * (products of matrices, layer norm, softmax) are floats, and each kernel rounds as it stores.
 */
#ifndef SHARDLAB_NN_H
#define SHARDLAB_NN_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "check.h"

#define Status CHECKED_STATUS // as check.h says

// INIT_NONE: storage without values, which a checkpoint will bring; meta_init_device writes
// nothing.
typedef enum InitKind { INIT_ZERO, INIT_ONE, INIT_NORMAL, INIT_NONE } InitKind;

#define PARAM_MAX_DIMS 4
typedef struct Param {
    char name[80]; // path in the model: "h.3.attn.qkv.weight"
    uint32_t id;   // place among the model's parameters, for the generator
    DType dtype;
    int ndim;
    int64_t shape[PARAM_MAX_DIMS]; // row-major
    InitKind init;
    float init_std; // INIT_NORMAL: standard deviation, mean 0
    bool frozen;    // does not train: a backward makes no gradient of it, and grad
                    // needs no memory. Set before fully_shard or an optimizer
    Buffer data;    // the unsharded parameter; no memory while on meta or resharded
    Buffer grad;    // the unsharded gradient; no memory while there is none
    void *owner;    // who manages the storage (a flat parameter); NULL: nobody yet
} Param;

// The keys and values of the tokens that a generating model has read or written (kv_cache_create).
typedef struct KvCache {
    int max_T;   // room for so many tokens
    int length;  // tokens in it; whoever runs a forward adds its run->T after it
    int n, next; // attention layers, and the one whose turn it is
    void **rows; // (n) device (max_T, columns of qkv)
} KvCache;

// GPT-2's three dropouts: of the embedding, of attention's weights, and of what attention and MLP
// add to the residual. Which elements go follows from the numbers below and the element's place in
// the sequence: the backward, a forward that runs again and any split of the batch drop the same.
typedef struct Dropout {
    float p; // 0: none
    uint64_t seed;
    uint64_t first; // number of the batch's first sequence, in all of the training
} Dropout;

// Everything a pass needs apart from the parameters. One per rank.
typedef struct NnRun {
    cudaStream_t stream;        // the compute stream: every kernel of a pass runs here
    struct cublasContext *blas; // the cublasHandle_t that is bound to `stream`
    int B;                      // sequences in the batch
    int T;                      // tokens in a sequence
    KvCache *cache;             // NULL: none
    Dropout dropout;            // of a GPT-2 with plain attention
} NnRun;

// When a hook runs: before or after a module's forward or backward.
typedef enum HookPoint {
    HOOK_PRE_FORWARD,
    HOOK_POST_FORWARD,
    HOOK_PRE_BACKWARD,
    HOOK_POST_BACKWARD,
    HOOK_POINTS
} HookPoint;

// How far positions turn queries and keys (rotary positions, Su et al. 2021): pair i of a head of
// hs columns by theta^(-2i/hs) per token. With `factor` above 0 low frequencies are lower (Llama
// 3.1): those of which fewer than `low` periods fit into trained_T tokens are divided by it, those
// of more than `high` stay as they are, and those between go from one to the other.
typedef struct RotaryConfig {
    float theta; // 0: 500000, Llama 3's
    float factor, low, high;
    int trained_T;
} RotaryConfig;

// Numbers of a layer that no parameter's shape gives: the heads of attention and its rotary
// positions, the eps of a root mean square normalisation. 0: the layer has none.
typedef struct LayerNumbers {
    int heads, kv_heads;
    RotaryConfig rotary;
    float eps;
} LayerNumbers;

typedef struct Module Module;
typedef Status (*HookFn)(Module *module, void *arg);
// A hook that is installed; its address is the handle by which it is removed.
typedef struct Hook {
    HookFn fn;
    void *arg;
    struct Hook *next;
} Hook;

struct Module {
    char name[48];           // own name: "attn"
    int in_dim;              // columns of the input; 0: the input is int32 tokens (rows)
    int out_dim;             // columns of the output
    DType in_type, out_type; // of the input's numbers (unless it is tokens) and of the output's;
                             // a module with parameters computes in out_type, theirs
    bool types_stay;         // module_set_type leaves them: a cast layer, and what ends in one
    int n_params, n_children;
    Param **params; // its own, not its children's; a tied one is in two modules
    Module **children;
    Hook *hooks[HOOK_POINTS]; // of each point a chain, in the order in which they run
    LayerNumbers numbers;
    void *unit; // who shards it (fsdp.h's FsdpUnit); NULL: nobody

    const void *in;       // between forward and backward: the borrowed input (rows, in_dim)
    void *out;            // …and the module's own output (rows, out_dim)
    bool out_is_borrowed; // out is memory of the module above, which frees it
    void *state;          // the layer's own numbers and saved activations
    size_t state_bytes;   // of it
    Status (*forward)(Module *self, NnRun *run, const void *in, void *out);
    Status (*backward)(Module *self, NnRun *run, const void *dout, void *din);
    Status (*free_saved)(Module *self, NnRun *run); // frees what forward saved; NULL: nothing
        // free_part frees saved numbers that compute_part makes again from the rest; NULL: none.
    Status (*free_part)(Module *self, NnRun *run);
    Status (*compute_part)(Module *self, NnRun *run);
    void *around;                     // what has replaced forward and backward; NULL: nothing
    void (*free_state)(Module *self); // frees `state`; NULL: plain free()
};

// Creates a run on `stream` (which the caller made): a cuBLAS handle bound to it. TF32=1 in the
// environment lets the products of matrices be computed in TF32 on GPUs that have it: faster, with
// 10 bits after the point instead of 23. Unset, empty or 0: in full single precision. Tests of
// equality need it off. (On a simulated GPU it changes nothing.)
Status nn_run_create(NnRun *run, cudaStream_t stream);
Status nn_run_destroy(NnRun *run);

// Runs the module on `in` (rows, in_dim), or (rows) int32 tokens if in_dim is 0. *out is the
// module's output (rows, out_dim) on the device; the module frees it, in its backward or in
// module_discard. Hooks: pre_forward before anything, post_forward after everything. For modules
// whose output is float; ERR_ARGUMENT for others.
Status module_forward(Module *m, NnRun *run, const void *in, float **out);

// dout is (rows, out_dim), the loss's gradient by the output. *din (rows, in_dim) is the caller's
// to free with cudaFreeAsync on run->stream; NULL for a module of tokens. Adds to every
// param->grad. For modules whose output and input are float.
Status module_backward(Module *m, NnRun *run, const float *dout, float **din);

// The same for a module of any type: dout is of m->out_type, and the buffer says what it holds.
Status module_forward_typed(Module *m, NnRun *run, const void *in, Buffer *out);
Status module_backward_typed(Module *m, NnRun *run, const void *dout, Buffer *din);

// Makes the module and all modules below it compute in this type from the next forward on. (A cast
// layer keeps its types.) Code that allocates parameters must give them memory of that type.
void module_set_type(Module *m, DType type);

// Appends a hook to those that the point has already; they run in the order in which they were
// installed, and the first that fails ends the pass. Returns the handle to remove it by; NULL, with
// a line on stderr, without memory. module_destroy removes what is left.
Hook *module_add_hook(Module *m, HookPoint point, HookFn fn, void *arg);
// The same in front of those that the point has already.
Hook *module_add_first_hook(Module *m, HookPoint point, HookFn fn, void *arg);
// Removes the hook wherever it is installed in m; nothing if it is not (or NULL). A hook may
// remove itself while it runs.
void module_remove_hook(Module *m, Hook *hook);

// Frees what the module, and those below it, saved in a forward that has no backward.
Status module_discard(Module *m, NnRun *run);

// While run->cache is set a forward is of the run->T tokens that follow those in the cache, of one
// sequence, and no backward comes after it: module_discard. ERR_ARGUMENT for more sequences, or
// more tokens than it has room for.
Status kv_cache_create(KvCache **cache, int max_T);
Status kv_cache_destroy(KvCache *cache, NnRun *run); // NULL is fine

// Frees what a forward has saved in the module and below it, except the module's input and output.
// Its forward must run again before its backward.
Status module_free_inside(Module *m, NnRun *run);

// Stores what a module and all modules below it hold between a forward and its backward, so that a
// forward can run while an earlier one still waits for its backward. A new pass holds nothing;
// ERR_ARGUMENT if the module holds something then. A swap exchanges the contents of the module and
// of the pass. ERR_ARGUMENT for another module, or if its children have changed.
typedef struct ModulePass ModulePass;
Status module_pass_create(ModulePass **pass, Module *m);
Status module_pass_swap(ModulePass *pass, Module *m);
// Frees the pass; device memory that it holds must have been swapped out and discarded. NULL is
// fine.
void module_pass_destroy(ModulePass *pass);

// Frees the module, its children and its parameters' descriptions (not their device memory). A tied
// parameter is freed once. NULL is fine.
void module_destroy(Module *m);

// Whether the parameter is the module's own, or of a module below it.
bool module_holds(const Module *m, const Param *param);

// ---- Layers. Each returns NULL, with a line on stderr, for a bad size or without memory. ----

Module *linear_create(const char *name, int in_dim, int out_dim, bool bias, float init_std);
// Linear with a bias → GELU, as one layer with fewer passes over memory; parameters as linear's.
Module *linear_gelu_create(const char *name, int in_dim, int out_dim, float init_std);
Module *layernorm_create(const char *name, int dim);
Module *gelu_create(const char *name, int dim);
// From one type to another, and its gradient back.
Module *cast_create(const char *name, int dim, DType in_type, DType out_type);
// Causal self-attention with `heads` heads: qkv (C,3C), softmax(q·kᵀ/√hs)·v, proj (C,C).
Module *attention_create(const char *name, int dim, int heads, float init_std, float proj_std);
// The same with O(T) memory per head in place of the (T,T) matrices of softmax: their rows'
// statistics are saved, and the backward computes the rest again. dim/heads is at most 128. Results
// differ from attention_create's only by rounding.
Module *fused_attention_create(const char *name, int dim, int heads, float init_std,
                               float proj_std);
// Token and position embedding: wte (vocab, dim), wpe (max_T, dim).
Module *embedding_create(const char *name, int vocab, int max_T, int dim, float init_std);
// Linear → GELU → Linear: a sequence of a linear_gelu layer "fc" and a linear layer "proj".
Module *ffn_create(const char *name, int dim, int hidden, float init_std, float proj_std);
// Root mean square normalisation: weight (dim).
Module *rmsnorm_create(const char *name, int dim, float eps);
// Fused causal self-attention whose heads of queries share kv_heads heads of keys and values, with
// rotary positions and no biases: qkv (C + 2·kv_heads·hs, C), proj (C,C); C/heads is even and at
// most 128.
Module *grouped_attention_create(const char *name, int dim, int heads, int kv_heads,
                                 const RotaryConfig *rotary, float init_std, float proj_std);
// g·sigmoid(g)·u (SwiGLU), where g is the left half of a row and u the right, `dim` columns each.
Module *swiglu_create(const char *name, int dim);
// Linear → SwiGLU → Linear without biases: a sequence of "gate_up" (2·hidden, dim), "act" and
// "down" (dim, hidden).
Module *gated_ffn_create(const char *name, int dim, int hidden, float init_std, float proj_std);
// Token embedding: wte (vocab, dim). Sequences have at most max_T tokens.
Module *token_embedding_create(const char *name, int vocab, int max_T, int dim, float init_std);
// Runs its children in order; it owns them.
Module *sequence_create(const char *name, int n, Module **children);
// Cuts a sequence, in place, down to its children [first, last): a stage of a model. Parameters
// keep their names and numbers, and so their initial values; a parameter that a removed child
// shares stays with the other child. ERR_ARGUMENT for a module that is not a sequence, or if no
// child would stay.
Status sequence_keep(Module *m, int first, int last);
// Makes a sequence take in_type (unless it takes tokens) and give out_type: if its layers have
// another type, adds a cast layer before the first or after the last. Call it once; remove takes
// them away. ERR_ARGUMENT for a module that is not a sequence, or whose children do not fit each
// other.
Status sequence_add_casts(Module *m, DType in_type, DType out_type);
void sequence_remove_casts(Module *m);

// ---- Models ----

typedef enum AttentionKind {
    ATTENTION_PLAIN, // attention_create
    ATTENTION_FUSED, // fused_attention_create
} AttentionKind;

typedef struct Gpt2Config {
    int vocab; // 256 for bytes, 50257 for GPT-2's tokens
    int max_T; // longest sequence
    int layers;
    int heads;
    int dim; // C
    AttentionKind attention;
    DType dtype; // in which it computes; the logits are floats whatever it is
} Gpt2Config;

// GPT-2 (Radford et al. 2019): children "embed", "h.0" … "h.{layers-1}", "ln_f", "head"; the head's
// weight is the embedding's wte (tied: the same Param). Maps tokens (B·T) to logits (B·T, vocab).
// Where dtype is not float, a last child "logits" casts them to float, and their gradient back.
Module *gpt2_create(const Gpt2Config *config);

typedef struct LlamaConfig {
    int vocab; // 128256 for Llama 3's tokens
    int max_T; // longest sequence
    int layers;
    int heads;    // of queries
    int kv_heads; // of keys and values; divides `heads`
    int dim;      // C
    int hidden;   // columns of the feed-forward part
    float eps;    // of the normalisations; 0: 1e-5
    RotaryConfig rotary;
    bool tied;   // the head's weight is the embedding's
    DType dtype; // in which it computes; the logits are floats whatever it is
} LlamaConfig;

// A model of Llama 3's shape (Grattafiori et al. 2024): children "embed", "h.0" … "h.{layers-1}"
// (each "norm_1", "attn", "norm_2", "mlp"), "norm_f", "head". Maps tokens (B·T) to logits
// (B·T, vocab). Where dtype is not float, a last child "logits" casts them, as GPT-2's.
Module *llama_create(const LlamaConfig *config);

// A stack of `depth` children without residuals: "l.0" (in → hidden), "l.1" (hidden → hidden) …,
// "last" (hidden → out). Each "l.i" is a sequence of a linear layer "fc" and a "gelu"; "last" is
// linear.
Module *mlp_create(int in_dim, int hidden, int out_dim, int depth);

// ---- Loss ----

// Mean cross entropy over the rows, and its gradient, in one pass. logits (rows, vocab); targets
// (rows) int32 on the device. *loss is set when the call returns (it waits for the stream);
// *dlogits (rows, vocab) is the caller's to free with cudaFreeAsync on run->stream. Either may be
// NULL.
Status cross_entropy(NnRun *run, const float *logits, const int32_t *targets, int rows, int vocab,
                     float *loss, float **dlogits);
// The same, with *dlogits the gradient of `scale` times the sum of the rows' losses (cross_entropy:
// 1/rows). *loss is still the mean over the rows.
Status cross_entropy_scaled(NnRun *run, const float *logits, const int32_t *targets, int rows,
                            int vocab, float scale, float *loss, float **dlogits);
// The same with the gradient in place of the logits, if nobody needs them any more: a module's
// output may be handed to its module_backward.
Status cross_entropy_in_place(NnRun *run, float *logits, const int32_t *targets, int rows,
                              int vocab, float scale, float *loss);
// cross_entropy_scaled with *loss on the device: the host waits for nothing.
Status cross_entropy_queued(NnRun *run, const float *logits, const int32_t *targets, int rows,
                            int vocab, float scale, float *loss, float **dlogits);

// ---- The optimizer of one GPU without FSDP: the same arithmetic as fsdp.h's, by parameter. ----

typedef struct AdamWConfig {
    float lr, beta1, beta2, eps, weight_decay;
} AdamWConfig;
typedef struct PlainAdamW PlainAdamW;
Status plain_adamw_create(PlainAdamW **opt, Module *model, const AdamWConfig *config, NnRun *run);
Status plain_adamw_step(PlainAdamW *opt);
void plain_adamw_set_lr(PlainAdamW *opt, float lr); // for the steps from here on
Status plain_adamw_zero_grad(PlainAdamW *opt);
void plain_adamw_destroy(PlainAdamW *opt);

#undef Status

#endif
