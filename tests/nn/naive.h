/* naive.h: the layers once more, in double precision and as plainly as the formulas read. They are
 * what lib/nn is compared with, and what is differentiated numerically.
 *
 * Matrices are row-major; a weight is (out, in). p is the list of a module's parameters in the
 * order of a walk, and each function returns how many it used.
 *
 * Interface: naive_linear, naive_layernorm, naive_gelu, naive_attention, naive_ffn, naive_block,
 * naive_embedding, naive_gpt2, naive_loss.
 */
#ifndef TESTS_NN_NAIVE_H
#define TESTS_NN_NAIVE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline double *naive_buffer(size_t n)
{
    double *x = calloc(n + 1, sizeof *x);
    if (x == NULL) abort();
    return x;
}

// y (rows, O) = x (rows, I)·Wᵀ + b; b may be NULL
static inline void naive_product(double *y, const double *x, const double *W, const double *b,
                                 int rows, int I, int O)
{
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < O; o++) {
            double sum = b != NULL ? b[o] : 0.0;
            for (int i = 0; i < I; i++) sum += x[r * I + i] * W[o * I + i];
            y[r * O + o] = sum;
        }
}

// GPT-2's dropouts: p is 0 without. block: number of the parameter that a block begins with.
static struct {
    double p;
    uint64_t seed, first;
    int block;
} naive_dropout;

static inline uint64_t naive_mix(uint64_t z)
{
    z += 11400714819323198485u; // 2^64 divided by the golden ratio
    z = (z ^ z >> 30) * 13787848793156543929u;
    z = (z ^ z >> 27) * 10723151780598845931u;
    return z ^ z >> 31;
}

// What element i of what is dropped beside this parameter is multiplied by.
static inline double naive_kept(int param, size_t i)
{
    uint64_t key = naive_mix(naive_dropout.seed ^ naive_mix((uint64_t)param));
    double number = (double)(naive_mix(key ^ naive_mix(i)) >> 40) / (1 << 24);
    return number < naive_dropout.p ? 0.0 : 1.0 / (1.0 - naive_dropout.p);
}

// x (rows, C), from the first sequence on
static inline void naive_drop(double *x, int param, int rows, int T, int C)
{
    size_t at = (size_t)naive_dropout.first * (size_t)(T * C);
    for (size_t i = 0; i < (size_t)(rows * C); i++) x[i] *= naive_kept(param, at + i);
}

static inline int naive_linear(double *y, const double *x, double *const *p, int rows, int I, int O)
{
    naive_product(y, x, p[0], p[1], rows, I, O);
    return 2;
}

static inline int naive_layernorm(double *y, const double *x, double *const *p, int rows, int C)
{
    for (int r = 0; r < rows; r++) {
        double mean = 0.0, variance = 0.0;
        for (int c = 0; c < C; c++) mean += x[r * C + c] / C;
        for (int c = 0; c < C; c++) variance += (x[r * C + c] - mean) * (x[r * C + c] - mean) / C;
        for (int c = 0; c < C; c++)
            y[r * C + c] = (x[r * C + c] - mean) / sqrt(variance + 1e-5) * p[0][c] + p[1][c];
    }
    return 2;
}

static inline double naive_gelu_of(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

static inline void naive_gelu(double *y, const double *x, int n)
{
    for (int i = 0; i < n; i++) y[i] = naive_gelu_of(x[i]);
}

// p (n) = softmax of scale·x (n)
static inline void naive_softmax(double *p, const double *x, int n, double scale)
{
    double max = -INFINITY, sum = 0.0;
    for (int i = 0; i < n; i++) max = fmax(max, scale * x[i]);
    for (int i = 0; i < n; i++) sum += p[i] = exp(scale * x[i] - max);
    for (int i = 0; i < n; i++) p[i] /= sum;
}

// What the query at t of head h sees of its sequence: y (hs); qkv is the sequence's (T,3C). at: the
// number of its weight for the first key.
static inline void naive_look(double *y, const double *qkv, int t, int h, int C, int hs, size_t at)
{
    double *score = naive_buffer((size_t)t + 1);
    const double *q = qkv + (size_t)t * 3 * C + h * hs;
    for (int s = 0; s <= t; s++)
        for (int i = 0; i < hs; i++) score[s] += q[i] * qkv[s * 3 * C + C + h * hs + i];
    naive_softmax(score, score, t + 1, 1.0 / sqrt(hs));
    for (int s = 0; s <= t; s++) score[s] *= naive_kept(naive_dropout.block + 2, at + (size_t)s);
    for (int i = 0; i < hs; i++) {
        y[i] = 0.0;
        for (int s = 0; s <= t; s++) y[i] += score[s] * qkv[s * 3 * C + 2 * C + h * hs + i];
    }
    free(score);
}

static inline int naive_attention(double *out, const double *x, double *const *p, int B, int T,
                                  int C, int heads)
{
    int hs = C / heads;
    double *qkv = naive_buffer((size_t)B * T * 3 * C), *y = naive_buffer((size_t)B * T * C);
    naive_product(qkv, x, p[0], p[1], B * T, C, 3 * C);
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++)
            for (int h = 0; h < heads; h++) {
                size_t matrix = (naive_dropout.first + (size_t)b) * (size_t)heads + (size_t)h;
                naive_look(y + (b * T + t) * C + h * hs, qkv + b * T * 3 * C, t, h, C, hs,
                           matrix * (size_t)(T * T) + (size_t)(t * T));
            }
    naive_product(out, y, p[2], p[3], B * T, C, C);
    free(qkv);
    free(y);
    return 4;
}

static inline int naive_ffn(double *out, const double *x, double *const *p, int rows, int C,
                            int hidden)
{
    double *a = naive_buffer((size_t)rows * hidden);
    naive_product(a, x, p[0], p[1], rows, C, hidden);
    naive_gelu(a, a, rows * hidden);
    naive_product(out, a, p[2], p[3], rows, hidden, C);
    free(a);
    return 4;
}

// x becomes x + attn(ln_1(x)), then x + mlp(ln_2(x))
static inline int naive_block(double *x, double *const *p, int B, int T, int C, int heads)
{
    int used = 0, n = B * T * C;
    double *a = naive_buffer((size_t)n), *b = naive_buffer((size_t)n);
    used += naive_layernorm(a, x, p + used, B * T, C);
    used += naive_attention(b, a, p + used, B, T, C, heads);
    naive_drop(b, naive_dropout.block + 4, B * T, T, C);
    for (int i = 0; i < n; i++) x[i] += b[i];
    used += naive_layernorm(a, x, p + used, B * T, C);
    used += naive_ffn(b, a, p + used, B * T, C, 4 * C);
    naive_drop(b, naive_dropout.block + 10, B * T, T, C);
    for (int i = 0; i < n; i++) x[i] += b[i];
    free(a);
    free(b);
    return used;
}

static inline int naive_embedding(double *out, const int32_t *tokens, double *const *p, int B,
                                  int T, int C)
{
    for (int r = 0; r < B * T; r++)
        for (int c = 0; c < C; c++) out[r * C + c] = p[0][tokens[r] * C + c] + p[1][r % T * C + c];
    return 2;
}

// logits (B·T, vocab); p begins with wte, which is the head's weight too
static inline void naive_gpt2(double *logits, const int32_t *tokens, double *const *p, int B, int T,
                              int C, int heads, int layers, int vocab)
{
    double *x = naive_buffer((size_t)B * T * C);
    int used = naive_embedding(x, tokens, p, B, T, C);
    naive_drop(x, 0, B * T, T, C);
    for (int i = 0; i < layers; i++) {
        naive_dropout.block = used;
        used += naive_block(x, p + used, B, T, C, heads);
    }
    naive_layernorm(x, x, p + used, B * T, C);
    naive_product(logits, x, p[0], NULL, B * T, C, vocab);
    free(x);
}

// Mean over the rows of -log softmax(logits)[target]
static inline double naive_loss(const double *logits, const int32_t *targets, int rows, int vocab)
{
    double loss = 0.0, *p = naive_buffer((size_t)vocab);
    for (int r = 0; r < rows; r++) {
        naive_softmax(p, logits + r * vocab, vocab, 1.0);
        loss -= log(p[targets[r]]) / rows;
    }
    free(p);
    return loss;
}

#endif
