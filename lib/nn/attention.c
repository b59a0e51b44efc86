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

typedef struct Attention {
    int heads;
    float *att;  // device (B, heads, T, T): the softmax's output, for the backward
    float *y;    // device (B, T, C): the heads' outputs, proj's input
    float *dy;   // device (B, T, C)      gradients: here so that they are found on errors
    float *datt; // device (heads, T, T)  of one sequence, for each in turn
    float *dqkv; // device (B, T, 3C)
} Attention;

static const float ZERO = 0.0f, ONE = 1.0f;

// The sizes that every product below needs.
typedef struct Shape {
    int T, C, heads, hs;
    long long square; // T·T, one head of att
} Shape;

static Shape shape_of(const Module *self, const NnRun *run)
{
    const Attention *s = self->state;
    Shape shape = {run->T, self->in_dim, s->heads, self->in_dim / s->heads,
                   (long long)run->T * run->T};
    return shape;
}

// att = q·kᵀ for all heads of one sequence; qkv (T,3C), att (heads,T,T)
static Status multiply_scores(NnRun *run, Shape n, const float *qkv, float *att)
{
    CUBLAS_TRY(cublasSgemmStridedBatched(run->blas, CUBLAS_OP_T, CUBLAS_OP_N, n.T, n.T, n.hs, &ONE,
                                         qkv + n.C, 3 * n.C, n.hs, qkv, 3 * n.C, n.hs, &ZERO, att,
                                         n.T, n.square, n.heads));
    return OK;
}

// y = att·v for all heads of one sequence; y (T,C)
static Status multiply_values(NnRun *run, Shape n, const float *att, const float *qkv, float *y)
{
    CUBLAS_TRY(cublasSgemmStridedBatched(run->blas, CUBLAS_OP_N, CUBLAS_OP_N, n.hs, n.T, n.T, &ONE,
                                         qkv + 2 * n.C, 3 * n.C, n.hs, att, n.T, n.square, &ZERO, y,
                                         n.C, n.hs, n.heads));
    return OK;
}

static Status attention_forward(Module *self, NnRun *run, const void *in, float *out)
{
    Attention *s = self->state;
    Shape n = shape_of(self, run);
    size_t per_qkv = (size_t)n.T * 3 * n.C, per_y = (size_t)n.T * n.C;
    size_t per_att = (size_t)n.heads * n.square;
    float *qkv = NULL;
    TRY(module_forward(self->children[0], run, in, &qkv));
    TRY(module_alloc(self, run, &s->att, run->B * per_att, "weights"));
    TRY(module_alloc(self, run, &s->y, run->B * per_y, "weighted values"));
    for (int b = 0; b < run->B; b++)
        TRY(multiply_scores(run, n, qkv + b * per_qkv, s->att + b * per_att));
    CUDA_TRY(kernel_causal_softmax_forward(s->att, run->B * n.heads, n.T, 1.0f / sqrtf((float)n.hs),
                                           run->stream));
    for (int b = 0; b < run->B; b++)
        TRY(multiply_values(run, n, s->att + b * per_att, qkv + b * per_qkv, s->y + b * per_y));
    TRY(module_forward_into(self->children[1], run, s->y, out));
    return OK;
}

// datt = dy·vᵀ and dv = attᵀ·dy, for all heads of one sequence
static Status backward_values(NnRun *run, Shape n, const float *att, const float *qkv,
                              const float *dy, float *datt, float *dqkv)
{
    CUBLAS_TRY(cublasSgemmStridedBatched(run->blas, CUBLAS_OP_T, CUBLAS_OP_N, n.T, n.T, n.hs, &ONE,
                                         qkv + 2 * n.C, 3 * n.C, n.hs, dy, n.C, n.hs, &ZERO, datt,
                                         n.T, n.square, n.heads));
    CUBLAS_TRY(cublasSgemmStridedBatched(run->blas, CUBLAS_OP_N, CUBLAS_OP_T, n.hs, n.T, n.T, &ONE,
                                         dy, n.C, n.hs, att, n.T, n.square, &ZERO, dqkv + 2 * n.C,
                                         3 * n.C, n.hs, n.heads));
    return OK;
}

// dq = datt·k and dk = dattᵀ·q, for all heads of one sequence; datt is by the scores by now
static Status backward_scores(NnRun *run, Shape n, const float *datt, const float *qkv, float *dqkv)
{
    CUBLAS_TRY(cublasSgemmStridedBatched(run->blas, CUBLAS_OP_N, CUBLAS_OP_N, n.hs, n.T, n.T, &ONE,
                                         qkv + n.C, 3 * n.C, n.hs, datt, n.T, n.square, &ZERO, dqkv,
                                         3 * n.C, n.hs, n.heads));
    CUBLAS_TRY(cublasSgemmStridedBatched(run->blas, CUBLAS_OP_N, CUBLAS_OP_T, n.hs, n.T, n.T, &ONE,
                                         qkv, 3 * n.C, n.hs, datt, n.T, n.square, &ZERO, dqkv + n.C,
                                         3 * n.C, n.hs, n.heads));
    return OK;
}

static Status attention_backward(Module *self, NnRun *run, const float *dout, float *din)
{
    Attention *s = self->state;
    Shape n = shape_of(self, run);
    size_t per_qkv = (size_t)n.T * 3 * n.C, per_y = (size_t)n.T * n.C;
    size_t per_att = (size_t)n.heads * n.square;
    const float *qkv = self->children[0]->out;
    TRY(module_backward(self->children[1], run, dout, &s->dy));
    TRY(module_alloc(self, run, &s->datt, per_att, "gradient of the weights"));
    TRY(module_alloc(self, run, &s->dqkv, run->B * per_qkv, "gradient of q, k and v"));
    for (int b = 0; b < run->B; b++) {
        const float *att = s->att + b * per_att;
        TRY(backward_values(run, n, att, qkv + b * per_qkv, s->dy + b * per_y, s->datt,
                            s->dqkv + b * per_qkv));
        CUDA_TRY(kernel_causal_softmax_backward(s->datt, att, n.heads, n.T,
                                                1.0f / sqrtf((float)n.hs), run->stream));
        TRY(backward_scores(run, n, s->datt, qkv + b * per_qkv, s->dqkv + b * per_qkv));
    }
    TRY(module_backward_into(self->children[0], run, s->dqkv, din));
    return OK;
}

static Status attention_free_saved(Module *self, NnRun *run)
{
    Attention *s = self->state;
    TRY(run_free(run, &s->att));
    TRY(run_free(run, &s->y));
    TRY(run_free(run, &s->dy));
    TRY(run_free(run, &s->datt));
    TRY(run_free(run, &s->dqkv));
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
    if (module_add_child(m, linear_create("qkv", dim, 3 * dim, true, init_std)) &&
        module_add_child(m, linear_create("proj", dim, dim, true, proj_std)))
        return module_named(m);
    module_destroy(m);
    return NULL;
}
