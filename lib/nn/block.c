/* block.c: one block of a transformer: r = x + attn(norm_1(x)), then out = r + mlp(norm_2(r)).
 *
 * attn writes its output straight into r, and mlp into the block's own output; the residual is
 * added there. That is allowed because no layer's backward reads the layer's own output. The kernel
 * of a normalisation adds the residual beside it; only the last residual has a kernel of its own.
 */
#include "internal.h"
#include "kernels.h"

typedef struct Block {
    void *middle; // device (rows, C): r, norm_2's input
    void *dnorm;  // device (rows, C)  gradients: here so that they are found on errors
    void *dmiddle;
    void *ddropped; // a gradient after dropout
} Block;

enum { NORM_1, ATTN, NORM_2, MLP };

static size_t numel(const Module *self, const NnRun *run)
{
    return run_rows(run) * (size_t)self->in_dim;
}

// GPT-2's dropout of the output of a child whose last linear layer is "proj".
static const Param *proj_of(const Module *child)
{
    return child->children[child->n_children - 1]->params[0];
}

static Status block_forward(Module *self, NnRun *run, const void *in, void *out)
{
    Block *s = self->state;
    Module **child = self->children;
    void *normed = NULL;
    size_t each = (size_t)run->T * (size_t)self->in_dim;
    TRY(module_alloc_typed(self, run, &s->middle, numel(self, run), "middle"));
    TRY(module_forward_any(child[NORM_1], run, in, &normed));
    TRY(module_forward_into(child[ATTN], run, normed, s->middle));
    TRY(dropout(self, run, proj_of(child[ATTN]), s->middle, each));
    TRY(norm_forward_sum(child[NORM_2], run, s->middle, in, &normed));
    TRY(module_forward_into(child[MLP], run, normed, out));
    TRY(dropout(self, run, proj_of(child[MLP]), out, each));
    CUDA_TRY(kernel_add_ex(self->out_type, out, self->out_type, s->middle, numel(self, run),
                           run->stream));
    return OK;
}

static Status block_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    Block *s = self->state;
    Module **child = self->children;
    size_t each = (size_t)run->T * (size_t)self->in_dim;
    const void *dleft = dout;
    TRY(dropout_copy(self, run, proj_of(child[MLP]), &dleft, each, &s->ddropped));
    TRY(module_backward_any(child[MLP], run, dleft, &s->dnorm));
    TRY(module_alloc_typed(self, run, &s->dmiddle, numel(self, run), "gradient of the middle"));
    TRY(norm_backward_sum(child[NORM_2], run, s->dnorm, dout, s->dmiddle));
    TRY(run_free_typed(run, &s->dnorm));
    dleft = s->dmiddle;
    TRY(dropout_copy(self, run, proj_of(child[ATTN]), &dleft, each, &s->ddropped));
    TRY(module_backward_any(child[ATTN], run, dleft, &s->dnorm));
    TRY(norm_backward_sum(child[NORM_1], run, s->dnorm, s->dmiddle, din));
    return OK;
}

static Status block_free_saved(Module *self, NnRun *run)
{
    Block *s = self->state;
    TRY(run_free_typed(run, &s->middle));
    TRY(run_free_typed(run, &s->dnorm));
    TRY(run_free_typed(run, &s->dmiddle));
    TRY(run_free_typed(run, &s->ddropped));
    return OK;
}

Module *block_of(const char *name, int dim, Module *norm_1, Module *attn, Module *norm_2,
                 Module *mlp)
{
    Module *parts[] = {norm_1, attn, norm_2, mlp};
    Module *m = module_create(name, dim, dim, sizeof(Block));
    bool made = m != NULL;
    for (int i = 0; i < 4; i++) {
        if (made)
            made = module_add_child(m, parts[i]);
        else
            module_destroy(parts[i]);
    }
    if (made) {
        m->forward = block_forward;
        m->backward = block_backward;
        m->free_saved = block_free_saved;
        return module_named(m);
    }
    module_destroy(m);
    return NULL;
}

Module *block_create(const char *name, int dim, int heads, AttentionKind attention, float init_std,
                     float proj_std)
{
    Module *(*create_attention)(const char *, int, int, float, float) =
        attention == ATTENTION_FUSED ? fused_attention_create : attention_create;
    Module *norm = layernorm_create("ln_1", dim);
    if (norm == NULL) return NULL; // its constructor has said why
    Module *attn = create_attention("attn", dim, heads, init_std, proj_std);
    if (attn == NULL) {
        module_destroy(norm);
        return NULL;
    }
    return block_of(name, dim, norm, attn, layernorm_create("ln_2", dim),
                    ffn_create("mlp", dim, 4 * dim, init_std, proj_std));
}
