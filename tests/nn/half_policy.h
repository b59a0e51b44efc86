/* half_policy.h: a GPT-2 in bf16 or fp16 by its policy, for half_modules.c: written down a second
 * time, operation by operation, with host arrays of floats that the type has.
 */
#ifndef TESTS_NN_HALF_POLICY_H
#define TESTS_NN_HALF_POLICY_H

#include <cublas_v2.h>
#include <stdio.h>

#include "halves.h"
#include "kernels.h"

// ---- Operations of the policy, on host arrays of floats that the type has ----

typedef struct Policy {
    DType type;
    cublasHandle_t blas;
    cudaStream_t stream;
    float *sent[12]; // device copies of the operation in progress
    int n;
} Policy;

#define need_blas(call) check((call) == CUBLAS_STATUS_SUCCESS, "%s failed", #call)

static inline float *send_floats(Policy *p, const float *x, size_t n)
{
    return p->sent[p->n++] = on_device(x, n);
}

static inline void receive(const Policy *p, float *x, const float *device, size_t n, bool rounded)
{
    need_cuda(cudaStreamSynchronize(p->stream));
    need_cuda(cudaMemcpy(x, device, n * sizeof *x, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n && rounded; i++) x[i] = half_float(p->type, x[i]);
}

static inline void free_sent(Policy *p)
{
    while (p->n > 0) need_cuda(cudaFree(p->sent[--p->n]));
}

// C = round(A·B + beta·C) column-major, a batch of them; `size` is that of a whole array.
typedef struct Side {
    cublasOperation_t turn;
    const float *x;
    size_t size, first;
    int ld;
    size_t stride;
} Side;

static inline void multiply(Policy *p, int m, int n, int k, Side A, Side B, float beta, Side C,
                            float *c, int count)
{
    static const float one = 1.0f, zero = 0.0f;
    float *a = send_floats(p, A.x, A.size), *b = send_floats(p, B.x, B.size);
    float *to = send_floats(p, c, C.size), *product = malloc(C.size * sizeof *product);
    for (int i = 0; i < count; i++)
        need_blas(cublasSgemm(p->blas, A.turn, B.turn, m, n, k, &one, a + A.first + i * A.stride,
                              A.ld, b + B.first + i * B.stride, B.ld, &zero,
                              to + C.first + i * C.stride, C.ld));
    receive(p, product, to, C.size, false);
    for (size_t i = 0; i < (size_t)count * m * n; i++) {
        size_t at = C.first + i / ((size_t)m * n) * C.stride + i / m % n * C.ld + i % m;
        float sum = product[at];
        if (beta != 0.0f) sum += beta * c[at];
        c[at] = half_float(p->type, sum);
    }
    free(product);
    free_sent(p);
}

static inline Side whole(cublasOperation_t turn, const float *x, size_t size, int ld)
{
    return (Side){turn, x, size, 0, ld, 0};
}

static const cublasOperation_t NO = CUBLAS_OP_N, YES = CUBLAS_OP_T;

// y (rows,O) = x (rows,I)·Wᵀ + beta·y
static inline void linear(Policy *p, float *y, const float *x, const float *W, float beta, int rows,
                          int I, int O)
{
    multiply(p, O, rows, I, whole(YES, W, (size_t)I * O, I), whole(NO, x, (size_t)rows * I, I),
             beta, whole(NO, NULL, (size_t)rows * O, O), y, 1);
}

static inline void lay_bias(float *y, const float *b, int rows, int O)
{
    for (size_t i = 0; i < (size_t)rows * O; i++) y[i] = b[i % (size_t)O];
}

// dx = dy·W, dW += dyᵀ·x, and db += Σ dy unless it is NULL
static inline void linear_back(Policy *p, float *dx, float *dW, float *db, const float *dy,
                               const float *x, const float *W, int rows, int I, int O)
{
    size_t of_x = (size_t)rows * I, of_y = (size_t)rows * O, of_w = (size_t)I * O;
    multiply(p, I, rows, O, whole(NO, W, of_w, I), whole(NO, dy, of_y, O), 0.0f,
             whole(NO, NULL, of_x, I), dx, 1);
    multiply(p, I, O, rows, whole(NO, x, of_x, I), whole(YES, dy, of_y, O), 1.0f,
             whole(NO, NULL, of_w, I), dW, 1);
    if (db == NULL) return;
    float *to = send_floats(p, db, (size_t)O);
    need_cuda(kernel_sum_rows(to, send_floats(p, dy, of_y), rows, O, p->stream));
    receive(p, db, to, (size_t)O, true);
    free_sent(p);
}

typedef struct Norm {
    float *mean, *rstd;
} Norm;

static inline void norm(Policy *p, float *y, Norm *s, const float *x, const float *w,
                        const float *b, int rows, int C)
{
    size_t n = (size_t)rows * C;
    float *to = send_floats(p, y, n), *mean = send_floats(p, s->mean, rows);
    float *rstd = send_floats(p, s->rstd, rows);
    need_cuda(kernel_layernorm_forward(to, mean, rstd, send_floats(p, x, n), send_floats(p, w, C),
                                       send_floats(p, b, C), rows, C, p->stream));
    receive(p, y, to, n, true);
    receive(p, s->mean, mean, rows, false);
    receive(p, s->rstd, rstd, rows, false);
    free_sent(p);
}

// dx, and the residual, unless it is NULL, added to what was rounded
static inline void norm_back(Policy *p, float *dx, float *dw, float *db, const float *dy,
                             const float *x, const float *w, const Norm *s, const float *residual,
                             int rows, int C)
{
    size_t n = (size_t)rows * C;
    float *to = send_floats(p, dx, n), *to_w = send_floats(p, dw, C), *to_b = send_floats(p, db, C);
    need_cuda(kernel_layernorm_backward(to, to_w, to_b, send_floats(p, dy, n), send_floats(p, x, n),
                                        send_floats(p, w, C), send_floats(p, s->mean, rows),
                                        send_floats(p, s->rstd, rows), NULL, rows, C, p->stream));
    receive(p, dx, to, n, true);
    receive(p, dw, to_w, C, true);
    receive(p, db, to_b, C, true);
    for (size_t i = 0; i < n && residual != NULL; i++)
        dx[i] = half_float(p->type, dx[i] + residual[i]);
    free_sent(p);
}

static inline void add(const Policy *p, float *to, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = half_float(p->type, to[i] + x[i]);
}

// ---- GPT-2 by the policy ----

enum { VOCAB = 11, T = 5, B = 2, ROWS = B * T, C = 6, HEADS = 2, HS = C / HEADS, LAYERS = 2 };
static const Gpt2Config SMALL = {
    .vocab = VOCAB, .max_T = 7, .layers = LAYERS, .heads = HEADS, .dim = C};
enum { WTE, WPE, BLOCK, LN_F = BLOCK + 12 * LAYERS, PARAMS = LN_F + 2 }; // as list_params has them
enum { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, FC_W, FC_B, OUT_W, OUT_B };

// Activations of a block; its input, too.
typedef struct Block {
    float x[ROWS * C], n1[ROWS * C], qkv[ROWS * 3 * C], att[B * HEADS * T * T], y[ROWS * C];
    float mid[ROWS * C], n2[ROWS * C], sum[ROWS * 4 * C], g[ROWS * 4 * C];
    float stats[4][ROWS];
    Norm s1, s2;
} Block;

#define SIDE(turn, x, first, ld, stride)                                                           \
    (Side)                                                                                         \
    {                                                                                              \
        turn, x, sizeof(x) / sizeof *(x), first, ld, stride                                        \
    }

static inline void attend(Policy *p, Block *k)
{
    for (size_t b = 0; b < B; b++) {
        size_t at = b * T * 3 * C, square = b * HEADS * T * T;
        multiply(p, T, T, HS, SIDE(YES, k->qkv, at + C, 3 * C, HS), SIDE(NO, k->qkv, at, 3 * C, HS),
                 0.0f, SIDE(NO, k->att, square, T, T * T), k->att, HEADS);
    }
    float *to = send_floats(p, k->att, B * HEADS * T * T);
    need_cuda(kernel_causal_softmax_forward(to, B * HEADS, T, 1.0f / sqrtf(HS), p->stream));
    receive(p, k->att, to, B * HEADS * T * T, true);
    free_sent(p);
    for (size_t b = 0; b < B; b++)
        multiply(p, HS, T, T, SIDE(NO, k->qkv, b * T * 3 * C + 2 * C, 3 * C, HS),
                 SIDE(NO, k->att, b * HEADS * T * T, T, T * T), 0.0f,
                 SIDE(NO, k->y, b * T * C, C, HS), k->y, HEADS);
}

static inline void block_forward(Policy *p, Block *k, float *const *w, float *out)
{
    k->s1 = (Norm){k->stats[0], k->stats[1]};
    k->s2 = (Norm){k->stats[2], k->stats[3]};
    norm(p, k->n1, &k->s1, k->x, w[LN1_W], w[LN1_B], ROWS, C);
    lay_bias(k->qkv, w[QKV_B], ROWS, 3 * C);
    linear(p, k->qkv, k->n1, w[QKV_W], 1.0f, ROWS, C, 3 * C);
    attend(p, k);
    lay_bias(k->mid, w[PROJ_B], ROWS, C);
    linear(p, k->mid, k->y, w[PROJ_W], 1.0f, ROWS, C, C);
    add(p, k->mid, k->x, ROWS * C);
    norm(p, k->n2, &k->s2, k->mid, w[LN2_W], w[LN2_B], ROWS, C);
    linear(p, k->sum, k->n2, w[FC_W], 0.0f, ROWS, C, 4 * C);
    lay_bias(k->g, w[FC_B], ROWS, 4 * C);
    add(p, k->sum, k->g, ROWS * 4 * C);
    float *to = send_floats(p, k->g, ROWS * 4 * C);
    need_cuda(
        kernel_gelu_forward(to, send_floats(p, k->sum, ROWS * 4 * C), ROWS * 4 * C, p->stream));
    receive(p, k->g, to, ROWS * 4 * C, true);
    free_sent(p);
    lay_bias(out, w[OUT_B], ROWS, C);
    linear(p, out, k->g, w[OUT_W], 1.0f, ROWS, 4 * C, C);
    add(p, out, k->mid, ROWS * C);
}

static inline void attend_back(Policy *p, const Block *k, float *dy, float *dqkv)
{
    float datt[HEADS * T * T];
    for (size_t b = 0; b < B; b++) {
        size_t at = b * T * 3 * C, square = b * HEADS * T * T;
        Side of_y = {NO, dy, ROWS * C, b * T * C, C, HS};
        Side of_dqkv = {NO, NULL, ROWS * 3 * C, at, 3 * C, HS}, of_dk = of_dqkv, of_dv = of_dqkv;
        of_dk.first += C;
        of_dv.first += 2 * C;
        memset(datt, 0, sizeof datt);
        multiply(p, T, T, HS, SIDE(YES, k->qkv, at + 2 * C, 3 * C, HS), of_y, 0.0f,
                 SIDE(NO, datt, 0, T, T * T), datt, HEADS);
        multiply(p, HS, T, T, of_y, SIDE(YES, k->att, square, T, T * T), 0.0f, of_dv, dqkv, HEADS);
        float *to = send_floats(p, datt, HEADS * T * T);
        need_cuda(kernel_causal_softmax_backward(to, send_floats(p, k->att + square, HEADS * T * T),
                                                 HEADS, T, 1.0f / sqrtf(HS), p->stream));
        receive(p, datt, to, HEADS * T * T, true);
        free_sent(p);
        multiply(p, HS, T, T, SIDE(NO, k->qkv, at + C, 3 * C, HS), SIDE(NO, datt, 0, T, T * T),
                 0.0f, of_dqkv, dqkv, HEADS);
        multiply(p, HS, T, T, SIDE(NO, k->qkv, at, 3 * C, HS), SIDE(YES, datt, 0, T, T * T), 0.0f,
                 of_dk, dqkv, HEADS);
    }
}

// dx (ROWS, C) is the gradient by the output, and becomes that by the input.
static inline void block_backward(Policy *p, const Block *k, float *const *w, float *const *d,
                                  float *dx)
{
    float dg[ROWS * 4 * C] = {0}, dn[ROWS * C] = {0}, dmid[ROWS * C] = {0}, dy[ROWS * C] = {0};
    float dqkv[ROWS * 3 * C] = {0};
    linear_back(p, dg, d[OUT_W], d[OUT_B], dx, k->g, w[OUT_W], ROWS, 4 * C, C);
    float *to = send_floats(p, dg, ROWS * 4 * C), *from = send_floats(p, dg, ROWS * 4 * C);
    need_cuda(kernel_gelu_backward(to, from, send_floats(p, k->sum, ROWS * 4 * C), ROWS * 4 * C,
                                   p->stream));
    receive(p, dg, to, ROWS * 4 * C, true);
    free_sent(p);
    linear_back(p, dn, d[FC_W], d[FC_B], dg, k->n2, w[FC_W], ROWS, C, 4 * C);
    norm_back(p, dmid, d[LN2_W], d[LN2_B], dn, k->mid, w[LN2_W], &k->s2, dx, ROWS, C);
    linear_back(p, dy, d[PROJ_W], d[PROJ_B], dmid, k->y, w[PROJ_W], ROWS, C, C);
    attend_back(p, k, dy, dqkv);
    linear_back(p, dn, d[QKV_W], d[QKV_B], dqkv, k->n1, w[QKV_W], ROWS, C, 3 * C);
    norm_back(p, dx, d[LN1_W], d[LN1_B], dn, k->x, w[LN1_W], &k->s1, dmid, ROWS, C);
}

static inline void look_up(Policy *p, float *x, const int32_t *tokens, float *const *w)
{
    float *to = send_floats(p, x, ROWS * C);
    float *wte = send_floats(p, w[WTE], VOCAB * C), *wpe = send_floats(p, w[WPE], 7 * C);
    need_cuda(kernel_embedding_forward(to, tokens, wte, wpe, B, T, C, VOCAB, p->stream));
    receive(p, x, to, ROWS * C, true);
    free_sent(p);
}

static inline void look_up_back(Policy *p, const float *dx, const int32_t *tokens, float *const *d)
{
    float *dwte = send_floats(p, d[WTE], VOCAB * C), *dwpe = send_floats(p, d[WPE], 7 * C);
    need_cuda(kernel_embedding_backward(dwte, dwpe, send_floats(p, dx, ROWS * C), tokens, B, T, C,
                                        VOCAB, p->stream));
    receive(p, d[WTE], dwte, VOCAB * C, true);
    receive(p, d[WPE], dwpe, 7 * C, true);
    free_sent(p);
}

// The mean loss; d (PARAMS) += the gradients.
static inline float policy_pass(Policy *p, float *const *w, float *const *d, const int32_t *tokens,
                                const int32_t *targets)
{
    static Block block[LAYERS];
    float x[ROWS * C] = {0}, n[ROWS * C] = {0}, dn[ROWS * C], dx[ROWS * C] = {0};
    float logits[ROWS * VOCAB] = {0}, mean[ROWS] = {0}, rstd[ROWS] = {0}, losses[ROWS] = {0};
    float loss = NAN;
    Norm s = {mean, rstd};
    look_up(p, block[0].x, tokens, w);
    for (int l = 0; l < LAYERS; l++)
        block_forward(p, &block[l], w + BLOCK + 12 * l, l + 1 < LAYERS ? block[l + 1].x : x);
    norm(p, n, &s, x, w[LN_F], w[LN_F + 1], ROWS, C);
    linear(p, logits, n, w[WTE], 0.0f, ROWS, C, VOCAB);
    float *of_loss = send_floats(p, losses, ROWS), *on = send_floats(p, logits, ROWS * VOCAB);
    need_cuda(kernel_cross_entropy(of_loss, on, on, targets, ROWS, VOCAB, 1.0f / ROWS, p->stream));
    float *of_mean = send_floats(p, &loss, 1);
    need_cuda(kernel_mean(of_mean, of_loss, ROWS, p->stream));
    receive(p, &loss, of_mean, 1, false);
    receive(p, logits, on, ROWS * VOCAB, true); // their gradient by now
    free_sent(p);
    linear_back(p, dn, d[WTE], NULL, logits, n, w[WTE], ROWS, C, VOCAB);
    norm_back(p, dx, d[LN_F], d[LN_F + 1], dn, x, w[LN_F], &s, NULL, ROWS, C);
    for (int l = LAYERS - 1; l >= 0; l--)
        block_backward(p, &block[l], w + BLOCK + 12 * l, d + BLOCK + 12 * l, dx);
    look_up_back(p, dx, tokens, d);
    return loss;
}

#endif
