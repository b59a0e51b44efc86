/* fused_attention.c: attention.c's layer with O(T) memory per head in place of (T,T).
 *
 * One kernel computes scores, softmax and weighted values, and saves two numbers per row of the
 * softmax; another computes the scores again for the backward. The parameters and their names are
 * those of attention.c, and the results differ from its results by rounding alone.
 */
#include <math.h>

#include "internal.h"
#include "kernels.h"

typedef struct Attention {
    int heads;
    void *y;      // device (B, T, C): the heads' outputs, proj's input
    float *stats; // device (B, heads, T, 2): of each row's softmax, for the backward
    void *dy;     // device (B, T, C)      gradients: here so that they are found on errors
    float *delta; // device (B, heads, T)
    void *dqkv;   // device (B, T, 3C)
} Attention;

static float scale_of(const Module *self)
{
    const Attention *s = self->state;
    return 1.0f / sqrtf((float)(self->in_dim / s->heads));
}

static Status attention_forward(Module *self, NnRun *run, const void *in, void *out)
{
    Attention *s = self->state;
    size_t rows = run_rows(run), heads = (size_t)s->heads;
    void *qkv = NULL;
    TRY(module_forward_any(self->children[0], run, in, &qkv));
    if (run->cache != NULL) return kv_cache_attention(self, run, qkv, NULL, out);
    TRY(module_alloc_typed(self, run, &s->y, rows * (size_t)self->in_dim, "weighted values"));
    TRY(module_alloc(self, run, &s->stats, 2 * rows * heads, "softmax statistics"));
    CUDA_TRY(kernel_attention_forward_ex(self->out_type, s->y, s->stats, qkv, run->B, run->T,
                                         self->in_dim, s->heads, scale_of(self), run->stream));
    TRY(module_forward_into(self->children[1], run, s->y, out));
    return OK;
}

static Status attention_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    Attention *s = self->state;
    size_t rows = run_rows(run), C = (size_t)self->in_dim;
    TRY(module_backward_any(self->children[1], run, dout, &s->dy));
    TRY(module_alloc(self, run, &s->delta, rows * (size_t)s->heads, "softmax gradient's sums"));
    TRY(module_alloc_typed(self, run, &s->dqkv, rows * 3 * C, "gradient of q, k and v"));
    CUDA_TRY(kernel_attention_backward_ex(self->out_type, s->dqkv, s->delta, s->dy, s->y, s->stats,
                                          self->children[0]->out, run->B, run->T, self->in_dim,
                                          s->heads, scale_of(self), run->stream));
    TRY(module_backward_into(self->children[0], run, s->dqkv, din));
    return OK;
}

static Status attention_free_saved(Module *self, NnRun *run)
{
    Attention *s = self->state;
    TRY(run_free_typed(run, &s->y));
    TRY(run_free(run, &s->stats));
    TRY(run_free_typed(run, &s->dy));
    TRY(run_free(run, &s->delta));
    TRY(run_free_typed(run, &s->dqkv));
    return OK;
}

Module *fused_attention_create(const char *name, int dim, int heads, float init_std, float proj_std)
{
    if (dim < 1 || heads < 1 || dim % heads != 0) {
        fail(ERR_ARGUMENT, "attention %s: %d columns do not divide among %d heads", name, dim,
             heads);
        return NULL;
    }
    if (dim / heads > ATTENTION_MOST_COLUMNS) {
        fail(ERR_ARGUMENT,
             "fused attention %s: a head has %d columns, and the kernel takes %d: use more heads, "
             "or plain attention",
             name, dim / heads, ATTENTION_MOST_COLUMNS);
        return NULL;
    }
    Module *m = module_create(name, dim, dim, sizeof(Attention));
    if (m == NULL) return NULL;
    ((Attention *)m->state)->heads = m->numbers.heads = heads;
    m->forward = attention_forward;
    m->backward = attention_backward;
    m->free_saved = attention_free_saved;
    if (module_add_child(m, linear_create("qkv", dim, 3 * dim, true, init_std)) &&
        module_add_child(m, linear_create("proj", dim, dim, true, proj_std)))
        return module_named(m);
    module_destroy(m);
    return NULL;
}
