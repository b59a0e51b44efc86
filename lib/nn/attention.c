/* attention.c: causal self-attention with several heads (Vaswani et al. 2017).
 *
 * One linear layer makes queries, keys and values side by side: qkv (B,T,3C), of which head h owns
 * columns h·hs … (h+1)·hs of each third, hs = C/heads. Per sequence and head, with q, k, v (T,hs):
 *
 *   att = softmax(q·kᵀ/√hs)      (T,T), row t sees columns 0 … t
 *   y   = att·v                  (T,hs), columns of the heads' (B,T,C)
 *
 * and a second linear layer makes the output from y. No head is copied out: a strided GEMM takes
 * rows 3C apart, and one batched call does all heads of a sequence, hs apart, or one head of all
 * sequences, T·3C apart, whichever are more: fewer calls. As everywhere, each product is given to
 * cuBLAS transposed (see linear.c): yᵀ = vᵀ·attᵀ.
 */
#include <math.h>

#include "internal.h"
#include "kernels.h"
#include "product.h"

typedef struct Attention {
    int heads;
    void *att;  // device (calls, batch, T, T): the softmax's output, for the backward
    void *y;    // device (B, T, C): the heads' outputs, proj's input
    void *dy;   // device (B, T, C)      gradients: here so that they are found on errors
    void *left; // device (calls, batch, T, T): of att, after dropout; both passes make it
    void *datt; // device (batch, T, T)  of one call, for each in turn
    void *dqkv; // device (B, T, 3C)
} Attention;

// The distance between two heads of a sequence, or two sequences: in elements of qkv, and of y.
typedef struct Step {
    size_t qkv, y;
} Step;

// The sizes that every product below needs.
typedef struct Shape {
    int T, C, hs;
    size_t square;      // T·T, one matrix of att
    size_t calls;       // of each product …
    int batch;          // … so many matrices of each call
    Step call, product; // from one call to the next, and within a call
    DType type;
} Shape;

static Shape shape_of(const Module *self, const NnRun *run)
{
    const Attention *s = self->state;
    int T = run->T, C = self->in_dim, hs = C / s->heads;
    size_t rows = (size_t)T * (size_t)C;
    Step head = {(size_t)hs, (size_t)hs}, sequence = {3 * rows, rows};
    bool by_head = run->B > s->heads && run->dropout.p == 0.0f; // which goes by sequence
    Shape shape = {.T = T, .C = C, .hs = hs, .square = (size_t)T * (size_t)T};
    shape.calls = (size_t)(by_head ? s->heads : run->B);
    shape.batch = by_head ? run->B : s->heads;
    shape.call = by_head ? head : sequence;
    shape.product = by_head ? sequence : head;
    shape.type = self->out_type;
    return shape;
}

// The queries, the keys or the values of a call, from where its first head's begin in qkv.
enum { Q, K, V };
static Factor part_of(Shape n, cublasOperation_t turn, const void *qkv, int part)
{
    return (Factor){turn, element_at(qkv, n.type, (size_t)part * (size_t)n.C), 3 * n.C,
                    (long long)n.product.qkv};
}

// A call's matrices of y or its gradient, and of att or its gradient (batch,T,T)
static Factor rows_of(Shape n, cublasOperation_t turn, const void *y)
{
    return (Factor){turn, y, n.C, (long long)n.product.y};
}
static Factor square_of(Shape n, cublasOperation_t turn, const void *att)
{
    return (Factor){turn, att, n.T, (long long)n.square};
}

// att = q·kᵀ
static Status multiply_scores(NnRun *run, Shape n, const void *qkv, void *att)
{
    return multiply_batch(run, n.type, n.T, n.T, n.hs, part_of(n, CUBLAS_OP_T, qkv, K),
                          part_of(n, CUBLAS_OP_N, qkv, Q), att, n.T, (long long)n.square, n.batch);
}

// y = att·v
static Status multiply_values(NnRun *run, Shape n, const void *att, const void *qkv, void *y)
{
    return multiply_batch(run, n.type, n.hs, n.T, n.T, part_of(n, CUBLAS_OP_N, qkv, V),
                          square_of(n, CUBLAS_OP_N, att), y, n.C, (long long)n.product.y, n.batch);
}

// Where a call's matrices begin.
static void *qkv_at(Shape n, const void *qkv, size_t call)
{
    return element_at(qkv, n.type, call * n.call.qkv);
}
static void *rows_at(Shape n, const void *y, size_t call)
{
    return element_at(y, n.type, call * n.call.y);
}
static void *square_at(Shape n, const void *att, size_t call)
{
    return element_at(att, n.type, call * (size_t)n.batch * n.square);
}

// att of all heads, from the queries and keys of the first layer
static Status compute_weights(Module *self, NnRun *run)
{
    Attention *s = self->state;
    Shape n = shape_of(self, run);
    size_t matrices = n.calls * (size_t)n.batch;
    const void *qkv = self->children[0]->out;
    TRY(module_alloc_typed(self, run, &s->att, matrices * n.square, "weights"));
    for (size_t c = 0; c < n.calls; c++)
        TRY(multiply_scores(run, n, qkv_at(n, qkv, c), square_at(n, s->att, c)));
    CUDA_TRY(kernel_causal_softmax_forward_ex(n.type, s->att, (int)matrices, n.T,
                                              1.0f / sqrtf((float)n.hs), run->stream));
    return OK;
}

// Applies dropout to the weights: *left is the result, or the weights themselves.
static Status drop_weights(Module *self, NnRun *run, Shape n, const void **left)
{
    Attention *s = self->state;
    *left = s->att;
    return dropout_copy(self, run, self->children[0]->params[0], left, (size_t)s->heads * n.square,
                        &s->left);
}

// The same for datt, the gradient of the weights of sequence c.
static Status drop_gradient(Module *self, NnRun *run, Shape n, size_t c)
{
    Attention *s = self->state;
    NnRun one = *run;
    one.B = 1;
    one.dropout.first += c;
    return dropout(self, &one, self->children[0]->params[0], s->datt, (size_t)n.batch * n.square);
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
    const void *left;
    void *qkv = NULL;
    TRY(module_forward_any(self->children[0], run, in, &qkv));
    if (run->cache != NULL) return kv_cache_attention(self, run, qkv, NULL, out);
    TRY(compute_weights(self, run));
    TRY(module_alloc_typed(self, run, &s->y, run_rows(run) * (size_t)n.C, "weighted values"));
    TRY(drop_weights(self, run, n, &left));
    for (size_t c = 0; c < n.calls; c++)
        TRY(multiply_values(run, n, square_at(n, left, c), qkv_at(n, qkv, c), rows_at(n, s->y, c)));
    TRY(run_free_typed(run, &s->left));
    TRY(module_forward_into(self->children[1], run, s->y, out));
    return OK;
}

// datt = dy·vᵀ and dv = attᵀ·dy
static Status backward_values(NnRun *run, Shape n, const void *att, const void *qkv, const void *dy,
                              void *datt, void *dqkv)
{
    TRY(multiply_batch(run, n.type, n.T, n.T, n.hs, part_of(n, CUBLAS_OP_T, qkv, V),
                       rows_of(n, CUBLAS_OP_N, dy), datt, n.T, (long long)n.square, n.batch));
    return multiply_batch(run, n.type, n.hs, n.T, n.T, rows_of(n, CUBLAS_OP_N, dy),
                          square_of(n, CUBLAS_OP_T, att),
                          element_at(dqkv, n.type, (size_t)V * (size_t)n.C), 3 * n.C,
                          (long long)n.product.qkv, n.batch);
}

// dq = datt·k and dk = dattᵀ·q; datt is by the scores by now
static Status backward_scores(NnRun *run, Shape n, const void *datt, const void *qkv, void *dqkv)
{
    TRY(multiply_batch(run, n.type, n.hs, n.T, n.T, part_of(n, CUBLAS_OP_N, qkv, K),
                       square_of(n, CUBLAS_OP_N, datt), dqkv, 3 * n.C, (long long)n.product.qkv,
                       n.batch));
    return multiply_batch(run, n.type, n.hs, n.T, n.T, part_of(n, CUBLAS_OP_N, qkv, Q),
                          square_of(n, CUBLAS_OP_T, datt),
                          element_at(dqkv, n.type, (size_t)K * (size_t)n.C), 3 * n.C,
                          (long long)n.product.qkv, n.batch);
}

static Status attention_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    Attention *s = self->state;
    Shape n = shape_of(self, run);
    size_t squares = (size_t)n.batch * n.square;
    const void *qkv = self->children[0]->out, *left;
    TRY(module_backward_any(self->children[1], run, dout, &s->dy));
    TRY(module_alloc_typed(self, run, &s->datt, squares, "gradient of the weights"));
    TRY(module_alloc_typed(self, run, &s->dqkv, run_rows(run) * 3 * (size_t)n.C,
                           "gradient of q, k and v"));
    TRY(drop_weights(self, run, n, &left));
    for (size_t c = 0; c < n.calls; c++) {
        const void *att = square_at(n, s->att, c), *of_c = qkv_at(n, qkv, c);
        void *dqkv = qkv_at(n, s->dqkv, c);
        TRY(backward_values(run, n, square_at(n, left, c), of_c, rows_at(n, s->dy, c), s->datt,
                            dqkv));
        TRY(drop_gradient(self, run, n, c));
        CUDA_TRY(kernel_causal_softmax_backward_ex(n.type, s->datt, att, n.batch, n.T,
                                                   1.0f / sqrtf((float)n.hs), run->stream));
        TRY(backward_scores(run, n, s->datt, of_c, dqkv));
    }
    TRY(module_backward_into(self->children[0], run, s->dqkv, din));
    return OK;
}

static Status attention_free_saved(Module *self, NnRun *run)
{
    Attention *s = self->state;
    TRY(run_free_typed(run, &s->att));
    TRY(run_free_typed(run, &s->left));
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
    ((Attention *)m->state)->heads = m->numbers.heads = m->numbers.kv_heads = heads;
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
