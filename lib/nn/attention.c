/* attention.c: causal self-attention with several heads (Vaswani et al. 2017).
 *
 * One linear layer makes queries, keys and values side by side: qkv (B,T,3C), of which head h owns
 * columns h·hs … (h+1)·hs of each third, hs = C/heads. Per sequence and head, with q, k, v (T,hs):
 *
 *   att = softmax(q·kᵀ/√hs)      (T,T), row t sees columns 0 … t
 *   y   = att·v                  (T,hs), columns of the heads' (B,T,C)
 *
 * and a second linear layer makes the output from y. No head is copied out: a strided GEMM takes
 * rows 3C apart, and one batched call does all heads of a sequence, hs apart. As everywhere, each
 * product is given to cuBLAS transposed (see linear.c): yᵀ = vᵀ·attᵀ.
 *
 * Interface: attention_create.
 */
#include <math.h>

#include "internal.h"
#include "kernels.h"
#include "product.h"

typedef struct Attention {
    int heads;
    void *att;  // device (B, heads, T, T): the softmax's output, for the backward
    void *y;    // device (B, T, C): the heads' outputs, proj's input
    void *dy;   // device (B, T, C)      gradients: here so that they are found on errors
    void *datt; // device (heads, T, T)  of one sequence, for each in turn
    void *dqkv; // device (B, T, 3C)
} Attention;

// The sizes that every product below needs.
typedef struct Shape {
    int T, C, heads, hs;
    long long square; // T·T, one head of att
    DType type;
} Shape;

static Shape shape_of(const Module *self, const NnRun *run)
{
    const Attention *s = self->state;
    Shape shape = {
        run->T,        self->in_dim, s->heads, self->in_dim / s->heads, (long long)run->T * run->T,
        self->out_type};
    return shape;
}

// Of qkv (T,3C) the queries, the keys or the values of all heads.
enum { Q, K, V };
static Factor part_of(Shape n, cublasOperation_t turn, const void *qkv, int part)
{
    return (Factor){turn, element_at(qkv, n.type, (size_t)part * n.C), 3 * n.C, n.hs};
}

// y or its gradient (T,C), and att or its gradient (heads,T,T)
static Factor rows_of(Shape n, cublasOperation_t turn, const void *y)
{
    return (Factor){turn, y, n.C, n.hs};
}
static Factor square_of(Shape n, cublasOperation_t turn, const void *att)
{
    return (Factor){turn, att, n.T, n.square};
}

// att = q·kᵀ for all heads of one sequence
static Status multiply_scores(NnRun *run, Shape n, const void *qkv, void *att)
{
    return multiply_batch(run, n.type, n.T, n.T, n.hs, part_of(n, CUBLAS_OP_T, qkv, K),
                          part_of(n, CUBLAS_OP_N, qkv, Q), att, n.T, n.square, n.heads);
}

// y = att·v for all heads of one sequence
static Status multiply_values(NnRun *run, Shape n, const void *att, const void *qkv, void *y)
{
    return multiply_batch(run, n.type, n.hs, n.T, n.T, part_of(n, CUBLAS_OP_N, qkv, V),
                          square_of(n, CUBLAS_OP_N, att), y, n.C, n.hs, n.heads);
}

// att of all sequences, from the queries and keys that the first layer has made
static Status compute_weights(Module *self, NnRun *run)
{
    Attention *s = self->state;
    Shape n = shape_of(self, run);
    size_t per_qkv = (size_t)n.T * 3 * n.C, per_att = (size_t)n.heads * n.square;
    const void *qkv = self->children[0]->out;
    TRY(module_alloc_typed(self, run, &s->att, run->B * per_att, "weights"));
    for (size_t b = 0; b < (size_t)run->B; b++)
        TRY(multiply_scores(run, n, element_at(qkv, n.type, b * per_qkv),
                            element_at(s->att, n.type, b * per_att)));
    CUDA_TRY(kernel_causal_softmax_forward_ex(n.type, s->att, run->B * n.heads, n.T,
                                              1.0f / sqrtf((float)n.hs), run->stream));
    return OK;
}

static Status free_weights(Module *self, NnRun *run)
{
    Attention *s = self->state;
    return run_free_typed(run, &s->att);
}

static Status attention_forward(Module *self, NnRun *run, const void *in, void *out)
{
    Attention *s = self->state;
    Shape n = shape_of(self, run);
    size_t per_qkv = (size_t)n.T * 3 * n.C, per_y = (size_t)n.T * n.C;
    size_t per_att = (size_t)n.heads * n.square;
    void *qkv = NULL;
    TRY(module_forward_any(self->children[0], run, in, &qkv));
    TRY(compute_weights(self, run));
    TRY(module_alloc_typed(self, run, &s->y, run->B * per_y, "weighted values"));
    for (size_t b = 0; b < (size_t)run->B; b++)
        TRY(multiply_values(run, n, element_at(s->att, n.type, b * per_att),
                            element_at(qkv, n.type, b * per_qkv),
                            element_at(s->y, n.type, b * per_y)));
    TRY(module_forward_into(self->children[1], run, s->y, out));
    return OK;
}

// datt = dy·vᵀ and dv = attᵀ·dy, for all heads of one sequence
static Status backward_values(NnRun *run, Shape n, const void *att, const void *qkv, const void *dy,
                              void *datt, void *dqkv)
{
    TRY(multiply_batch(run, n.type, n.T, n.T, n.hs, part_of(n, CUBLAS_OP_T, qkv, V),
                       rows_of(n, CUBLAS_OP_N, dy), datt, n.T, n.square, n.heads));
    return multiply_batch(run, n.type, n.hs, n.T, n.T, rows_of(n, CUBLAS_OP_N, dy),
                          square_of(n, CUBLAS_OP_T, att), element_at(dqkv, n.type, (size_t)V * n.C),
                          3 * n.C, n.hs, n.heads);
}

// dq = datt·k and dk = dattᵀ·q, for all heads of one sequence; datt is by the scores by now
static Status backward_scores(NnRun *run, Shape n, const void *datt, const void *qkv, void *dqkv)
{
    TRY(multiply_batch(run, n.type, n.hs, n.T, n.T, part_of(n, CUBLAS_OP_N, qkv, K),
                       square_of(n, CUBLAS_OP_N, datt), dqkv, 3 * n.C, n.hs, n.heads));
    return multiply_batch(run, n.type, n.hs, n.T, n.T, part_of(n, CUBLAS_OP_N, qkv, Q),
                          square_of(n, CUBLAS_OP_T, datt),
                          element_at(dqkv, n.type, (size_t)K * n.C), 3 * n.C, n.hs, n.heads);
}

static Status attention_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    Attention *s = self->state;
    Shape n = shape_of(self, run);
    size_t per_qkv = (size_t)n.T * 3 * n.C, per_y = (size_t)n.T * n.C;
    size_t per_att = (size_t)n.heads * n.square;
    const void *qkv = self->children[0]->out;
    TRY(module_backward_any(self->children[1], run, dout, &s->dy));
    TRY(module_alloc_typed(self, run, &s->datt, per_att, "gradient of the weights"));
    TRY(module_alloc_typed(self, run, &s->dqkv, run->B * per_qkv, "gradient of q, k and v"));
    for (size_t b = 0; b < (size_t)run->B; b++) {
        const void *att = element_at(s->att, n.type, b * per_att);
        const void *of_b = element_at(qkv, n.type, b * per_qkv);
        void *dqkv = element_at(s->dqkv, n.type, b * per_qkv);
        TRY(backward_values(run, n, att, of_b, element_at(s->dy, n.type, b * per_y), s->datt,
                            dqkv));
        CUDA_TRY(kernel_causal_softmax_backward_ex(n.type, s->datt, att, n.heads, n.T,
                                                   1.0f / sqrtf((float)n.hs), run->stream));
        TRY(backward_scores(run, n, s->datt, of_b, dqkv));
    }
    TRY(module_backward_into(self->children[0], run, s->dqkv, din));
    return OK;
}

static Status attention_free_saved(Module *self, NnRun *run)
{
    Attention *s = self->state;
    TRY(run_free_typed(run, &s->att));
    TRY(run_free_typed(run, &s->y));
    TRY(run_free_typed(run, &s->dy));
    TRY(run_free_typed(run, &s->datt));
    TRY(run_free_typed(run, &s->dqkv));
    return OK;
}

Module *attention_create(const char *name, int dim, int heads, float init_std, float proj_std)
{
    if (dim < 1 || heads < 1 || dim % heads != 0) {
        fail(ERR_ARGUMENT, "attention %s: %d columns do not divide among %d heads", name, dim,
             heads);
        return NULL;
    }
    Module *m = module_create(name, dim, dim, sizeof(Attention));
    if (m == NULL) return NULL;
    ((Attention *)m->state)->heads = heads;
    m->forward = attention_forward;
    m->backward = attention_backward;
    m->free_saved = attention_free_saved;
    m->free_part = free_weights;
    m->compute_part = compute_weights;
    if (module_add_child(m, linear_create("qkv", dim, 3 * dim, true, init_std)) &&
        module_add_child(m, linear_create("proj", dim, dim, true, proj_std)))
        return module_named(m);
    module_destroy(m);
    return NULL;
}
