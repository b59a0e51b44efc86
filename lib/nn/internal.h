/* internal.h: what the files of lib/nn share. Nothing outside lib/nn includes it.
 *
 *   param.c          parameters: making one, checking that its storage is there
 *   module.c         the two passes around a layer: outputs, hooks, discarding, destroying
 *   name.c           path names and numbers of a model's parameters
 *   run.c            the cuBLAS handle of a pass, and the memory of its stream
 *   product.c        products of matrices of any type (product.h)
 *   linear.c layernorm.c rmsnorm.c gelu.c swiglu.c attention.c fused_attention.c
 *   rotary.c embedding.c token_embedding.c cast.c            layers
 *   ffn.c block.c sequence.c                                 containers
 *   gpt2.c llama.c mlp.c                                     models
 *   dropout.c        GPT-2's dropouts
 *   kv_cache.c       keys and values of tokens that were there before
 *   cross_entropy.c  the loss
 *   plain_adamw.c    the optimizer of one GPU without FSDP
 */
#ifndef SHARDLAB_NN_INTERNAL_H
#define SHARDLAB_NN_INTERNAL_H

#include "kernels.h"
#include "nn.h"

#define Status CHECKED_STATUS // as check.h says

// ---- run.c ----

// n floats on the run's stream; and back, leaving NULL (which is fine to free).
Status run_alloc(NnRun *run, float **x, size_t n);
Status run_free(NnRun *run, float **x);
// The same for numbers of any type.
Status run_alloc_typed(NnRun *run, void **x, DType type, size_t n);
Status run_free_typed(NnRun *run, void **x);
// Rows of the batch: B·T.
size_t run_rows(const NnRun *run);

// ---- param.c ----

// A parameter on meta, called `name` until the model gives it its path; dim1 = 0: it is a vector.
// NULL, with a line on stderr, for a bad size or without memory.
Param *param_create(const char *name, int64_t dim0, int64_t dim1, InitKind init, float init_std);
int64_t param_numel(const Param *param);
// ERR_ARGUMENT, with a line that names it, for a parameter without data (without a gradient), or of
// another type than what computes with it.
Status param_has_data(const Param *param, DType type);
Status param_has_grad(const Param *param, DType type);
// Where a kernel that makes several gradients at once adds this one: the parameter's gradient, or
// for a frozen parameter zeroed memory of the run's stream, which param_grad_end frees.
Status param_grad_begin(const Param *param, NnRun *run, DType type, void **grad);
Status param_grad_end(const Param *param, NnRun *run, void **grad);

// ---- module.c ----

// A module without parameters, children or functions, whose `state` is state_bytes of zeros. NULL,
// with a line on stderr, for a bad size or without memory.
Module *module_create(const char *name, int in_dim, int out_dim, size_t state_bytes);
// Adds a parameter or a child at the end, and owns it from then on, also where this fails. False,
// with a line on stderr, for NULL (what a constructor that failed returned) or without memory.
bool module_add_param(Module *m, Param *param);
bool module_add_child(Module *m, Module *child);
// Gives the parameters of m and below their names and numbers; hands m back. NULL, and m is
// destroyed, where a path is too long.
Module *module_named(Module *m);

// As module_forward and module_backward, but the result goes where the caller says: a container
// lets its last child write the container's own output, so that nothing is copied. `out` stays the
// caller's; it must not be freed, but may be written to, until the child's backward is done.
Status module_forward_into(Module *m, NnRun *run, const void *in, void *out);
Status module_backward_into(Module *m, NnRun *run, const void *dout, void *din);
// module_forward and module_backward of any type.
Status module_forward_any(Module *m, NnRun *run, const void *in, void **out);
Status module_backward_any(Module *m, NnRun *run, const void *dout, void **din);
// run_alloc for a module's pass; reports call the memory "`what` of h.3.attn". The second is of the
// type that the module computes in, its out_type.
Status module_alloc(const Module *m, NnRun *run, float **x, size_t n, const char *what);
Status module_alloc_typed(const Module *m, NnRun *run, void **x, size_t n, const char *what);

// ---- linear.c ----

// A linear layer without bias and, so far, without a weight; and gives it one that stands in
// another module too. Two steps, so that a failure between them does not free the other module's
// parameter.
Module *linear_create_bare(const char *name, int in_dim, int out_dim);
bool linear_tie(Module *m, Param *weight);

// ---- layernorm.c, rmsnorm.c ----

// The beginning of the state of both: a residual for the time of one pass.
typedef struct NormPass {
    void *sum;            // a forward's input, to be added to
    const void *residual; // what is added (rows, dim). NULL: there is none
} NormPass;

// module_forward and module_backward_into of a normalisation, with hooks, whose kernel also adds a
// residual (rows, dim). Forward: sum += residual, then the forward of sum, the input, which must
// stay until the backward. Backward: din = the input's gradient + residual.
Status norm_forward_sum(Module *m, NnRun *run, void *sum, const void *residual, void **out);
Status norm_backward_sum(Module *m, NnRun *run, const void *dout, const void *residual, void *din);

// ---- cast.c ----

// Has all of m compute in `dtype`, and appends a child "logits" that casts its output (of
// m->out_dim columns) to float; nothing for floats. False: no memory.
bool cast_logits(Module *m, DType dtype);

// ---- dropout.c ----

// Applies dropout to x, of self's type, in which each sequence has `each` numbers; does nothing
// without dropout. The parameter `at` identifies the place in the model.
Status dropout(const Module *self, NnRun *run, const Param *at, void *x, size_t each);
// The same where *x must not change: the result goes to *copy, which the caller frees (NULL: it is
// allocated), and *x becomes that. Does nothing without dropout.
Status dropout_copy(const Module *self, NnRun *run, const Param *at, const void **x, size_t each,
                    void **copy);

// ---- kv_cache.c ----

// A forward begins, in the embedding: *first is the position of its first token.
Status kv_cache_begin(NnRun *run, int *first);
// With a cache, the rest of an attention layer's forward, from the output of its first linear layer
// to its own. turn gives T rows of qkv the rotary positions 0 … T-1; NULL: positions are not
// rotary.
typedef Status (*TurnRows)(const Module *self, NnRun *run, int T, void *qkv);
Status kv_cache_attention(Module *self, NnRun *run, const void *qkv, TurnRows turn, void *out);

// ---- rotary.c ----

// The frequencies of heads of hs columns.
RotaryFrequencies rotary_frequencies(const RotaryConfig *config, int hs);

// ---- block.c ----

// One block of a transformer: r = x + attn(norm_1(x)), then r + mlp(norm_2(r)). It owns the four.
// One that is NULL, because its constructor failed, makes the result NULL.
Module *block_of(const char *name, int dim, Module *norm_1, Module *attn, Module *norm_2,
                 Module *mlp);
// GPT-2's.
Module *block_create(const char *name, int dim, int heads, AttentionKind attention, float init_std,
                     float proj_std);

#undef Status

#endif
