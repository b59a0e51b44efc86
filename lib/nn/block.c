/* block.c: one block of GPT-2: r = x + attn(ln_1(x)), then out = r + mlp(ln_2(r)).
 *
 * attn writes its output straight into r, and mlp into the block's own output; the residual is
 * added there. That is allowed because no layer's backward looks at its own output. A residual that
 * stands beside a layer norm is added by that one's kernel; only the last one has none to follow.
 *
 * Interface: block_create.
 */
#include "internal.h"
#include "kernels.h"

typedef struct Block {
    void *middle; // device (rows, C): r, ln_2's input
    void *dnorm;  // device (rows, C)  gradients: here so that they are found on errors
    void *dmiddle;
} Block;

enum { LN_1, ATTN, LN_2, MLP };

static size_t numel(const Module *self, const NnRun *run)
{
    return run_rows(run) * (size_t)self->in_dim;
}

static Status block_forward(Module *self, NnRun *run, const void *in, void *out)
{
    Block *s = self->state;
    Module **child = self->children;
    void *normed = NULL;
    TRY(module_alloc_typed(self, run, &s->middle, numel(self, run), "middle"));
    TRY(module_forward_any(child[LN_1], run, in, &normed));
    TRY(module_forward_into(child[ATTN], run, normed, s->middle));
    TRY(layernorm_forward_sum(child[LN_2], run, s->middle, in, &normed));
    TRY(module_forward_into(child[MLP], run, normed, out));
    CUDA_TRY(kernel_add_ex(self->out_type, out, self->out_type, s->middle, numel(self, run),
                           run->stream));
    return OK;
}

static Status block_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    Block *s = self->state;
    Module **child = self->children;
    TRY(module_backward_any(child[MLP], run, dout, &s->dnorm));
    TRY(module_alloc_typed(self, run, &s->dmiddle, numel(self, run), "gradient of the middle"));
    TRY(layernorm_backward_sum(child[LN_2], run, s->dnorm, dout, s->dmiddle));
    TRY(run_free_typed(run, &s->dnorm));
    TRY(module_backward_any(child[ATTN], run, s->dmiddle, &s->dnorm));
    TRY(layernorm_backward_sum(child[LN_1], run, s->dnorm, s->dmiddle, din));
    return OK;
}

static Status block_free_saved(Module *self, NnRun *run)
{
    Block *s = self->state;
    TRY(run_free_typed(run, &s->middle));
    TRY(run_free_typed(run, &s->dnorm));
    TRY(run_free_typed(run, &s->dmiddle));
    return OK;
}

Module *block_create(const char *name, int dim, int heads, AttentionKind attention, float init_std,
                     float proj_std)
{
    Module *(*create_attention)(const char *, int, int, float, float) =
        attention == ATTENTION_FUSED ? fused_attention_create : attention_create;
    Module *m = module_create(name, dim, dim, sizeof(Block));
    if (m == NULL) return NULL;
    m->forward = block_forward;
    m->backward = block_backward;
    m->free_saved = block_free_saved;
    if (module_add_child(m, layernorm_create("ln_1", dim)) &&
        module_add_child(m, create_attention("attn", dim, heads, init_std, proj_std)) &&
        module_add_child(m, layernorm_create("ln_2", dim)) &&
        module_add_child(m, ffn_create("mlp", dim, 4 * dim, init_std, proj_std)))
        return module_named(m);
    module_destroy(m);
    return NULL;
}
