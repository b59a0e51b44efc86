/* fused_attention.c: causal self-attention with O(T) memory per head, in place of attention.c's
 * (T,T): GPT-2's, with attention.c's parameters and, but for rounding, its results; and Llama's.
 *
 * One kernel computes scores, softmax and weighted values, and saves two numbers per row of the
 * softmax; another computes the scores again for the backward. In Llama's, heads of queries share
 * heads of keys and values (Ainslie et al. 2023), positions are rotary, and there are no biases.
 *
 * One linear layer makes queries, keys and values side by side, C + 2·kv_heads·hs columns. Rotary
 * positions turn the queries and keys in place, in the linear layer's output, which its backward
 * does not read; the backward turns their gradients back, also in place.
 */
#include <limits.h>
#include <math.h>

#include "internal.h"

typedef struct Attention {
    int heads, kv_heads, hs;
    bool rotary;
    RotaryFrequencies frequencies; // where positions are rotary
    void *y;                       // device (B, T, C): the heads' outputs, proj's input
    float *stats; // device (B, heads, T, 2): of each row's softmax, for the backward
    void *dy;     // device (B, T, C)      gradients: kept here so that errors can free them
    float *delta; // device (B, heads, T)
    void *dqkv;   // device (B, T, columns of qkv)
} Attention;

static float scale_of(const Attention *s)
{
    return 1.0f / sqrtf((float)s->hs);
}

// Turns the queries and keys in x, which is qkv or its gradient, where positions are rotary.
static Status turn(const Module *self, NnRun *run, void *x, int direction)
{
    const Attention *s = self->state;
    if (!s->rotary) return OK;
    CUDA_TRY(kernel_rotary_ex(self->out_type, x, run->B, run->T, self->children[0]->out_dim,
                              s->heads + s->kv_heads, s->hs, s->frequencies, direction,
                              run->stream));
    return OK;
}

// A TurnRows, for one sequence.
static Status turn_sequence(const Module *self, NnRun *run, int T, void *x)
{
    NnRun one = *run;
    one.B = 1;
    one.T = T;
    return turn(self, &one, x, 1);
}

static Status attention_forward(Module *self, NnRun *run, const void *in, void *out)
{
    Attention *s = self->state;
    size_t rows = run_rows(run), heads = (size_t)s->heads;
    void *qkv = NULL;
    TRY(module_forward_any(self->children[0], run, in, &qkv));
    if (run->cache != NULL) return kv_cache_attention(self, run, qkv, turn_sequence, out);
    TRY(turn(self, run, qkv, 1));
    TRY(module_alloc_typed(self, run, &s->y, rows * (size_t)self->in_dim, "weighted values"));
    TRY(module_alloc(self, run, &s->stats, 2 * rows * heads, "softmax statistics"));
    CUDA_TRY(kernel_attention_forward_ex(self->out_type, s->y, s->stats, qkv, run->B, run->T,
                                         self->in_dim, s->heads, s->kv_heads, scale_of(s),
                                         run->stream));
    TRY(module_forward_into(self->children[1], run, s->y, out));
    return OK;
}

static Status attention_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    Attention *s = self->state;
    const Module *qkv = self->children[0];
    size_t rows = run_rows(run);
    TRY(module_backward_any(self->children[1], run, dout, &s->dy));
    TRY(module_alloc(self, run, &s->delta, rows * (size_t)s->heads, "softmax gradient's sums"));
    TRY(module_alloc_typed(self, run, &s->dqkv, rows * (size_t)qkv->out_dim,
                           "gradient of q, k and v"));
    CUDA_TRY(kernel_attention_backward_ex(self->out_type, s->dqkv, s->delta, s->dy, s->y, s->stats,
                                          qkv->out, run->B, run->T, self->in_dim, s->heads,
                                          s->kv_heads, scale_of(s), run->stream));
    TRY(turn(self, run, s->dqkv, -1));
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

// Reports sizes that do not fit together, and returns false.
static bool sizes_fit(const char *name, int dim, int heads, int kv_heads)
{
    if (dim < 1 || dim > INT_MAX / 3 || heads < 1 || dim % heads != 0)
        fail(ERR_ARGUMENT, "attention %s: %d columns do not divide among %d heads", name, dim,
             heads);
    else if (kv_heads < 1 || heads % kv_heads != 0)
        fail(ERR_ARGUMENT, "attention %s: %d heads of queries do not divide among %d of keys", name,
             heads, kv_heads);
    else if (dim / heads > ATTENTION_MOST_COLUMNS)
        fail(ERR_ARGUMENT,
             "fused attention %s: a head has %d columns, and the kernel takes %d: use more heads, "
             "or plain attention",
             name, dim / heads, ATTENTION_MOST_COLUMNS);
    else
        return true;
    return false;
}

static bool rotary_fits(const char *name, int hs, const RotaryConfig *c)
{
    bool scales = c->factor != 0.0f;
    if (hs % 2 != 0)
        fail(ERR_ARGUMENT, "attention %s: a head has %d columns, and rotary positions take pairs",
             name, hs);
    else if (c->theta < 0.0f || (scales && !(c->factor > 0.0f && c->low > 0.0f &&
                                             c->high > c->low && c->trained_T > 0)))
        fail(ERR_ARGUMENT,
             "attention %s: rotary positions with theta %g, factor %g, low %g, high %g, trained_T "
             "%d: theta must not be negative, and with a factor all must be above 0, low below "
             "high",
             name, (double)c->theta, (double)c->factor, (double)c->low, (double)c->high,
             c->trained_T);
    else
        return true;
    return false;
}

static Module *create(const char *name, int dim, int heads, int kv_heads, bool bias, float init_std,
                      float proj_std)
{
    if (!sizes_fit(name, dim, heads, kv_heads)) return NULL;
    Module *m = module_create(name, dim, dim, sizeof(Attention));
    if (m == NULL) return NULL;
    Attention *s = m->state;
    s->heads = m->numbers.heads = heads;
    s->kv_heads = m->numbers.kv_heads = kv_heads;
    s->hs = dim / heads;
    m->forward = attention_forward;
    m->backward = attention_backward;
    m->free_saved = attention_free_saved;
    int columns = dim + 2 * kv_heads * s->hs;
    if (module_add_child(m, linear_create("qkv", dim, columns, bias, init_std)) &&
        module_add_child(m, linear_create("proj", dim, dim, bias, proj_std)))
        return module_named(m);
    module_destroy(m);
    return NULL;
}

Module *fused_attention_create(const char *name, int dim, int heads, float init_std, float proj_std)
{
    return create(name, dim, heads, heads, true, init_std, proj_std);
}

Module *grouped_attention_create(const char *name, int dim, int heads, int kv_heads,
                                 const RotaryConfig *rotary, float init_std, float proj_std)
{
    if (heads > 0 && !rotary_fits(name, dim / heads, rotary)) return NULL;
    Module *m = create(name, dim, heads, kv_heads, false, init_std, proj_std);
    if (m == NULL) return NULL;
    Attention *s = m->state;
    m->numbers.rotary = *rotary;
    s->rotary = true;
    s->frequencies = rotary_frequencies(rotary, s->hs);
    return m;
}
