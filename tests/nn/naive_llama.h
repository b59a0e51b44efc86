/* naive_llama.h: the layers of a Llama-shaped model once more, in double precision, as naive.h has
 * GPT-2's. Positions turn complex numbers: column i of a head is the real part, column i + hs/2 the
 * imaginary part.
 *
 * Interface: NaiveLlama, naive_rmsnorm, naive_swiglu, naive_gated_ffn, naive_turn,
 * naive_grouped_attention, naive_words, naive_llama.
 */
#ifndef TESTS_NN_NAIVE_LLAMA_H
#define TESTS_NN_NAIVE_LLAMA_H

#include <stdbool.h>

#include "naive.h"

#include <complex.h> // after naive.h: its I is a macro

typedef struct NaiveLlama {
    int B, T, C, heads, kv_heads, hidden, layers, vocab;
    bool tied;
    double theta, eps;
    double factor, low, high, trained_T; // Llama 3.1's scaling; factor 0: none
} NaiveLlama;

static inline int naive_rmsnorm(double *y, const double *x, double *const *p, int rows, int C,
                                double eps)
{
    for (int r = 0; r < rows; r++) {
        double square = 0.0;
        for (int c = 0; c < C; c++) square += x[r * C + c] * x[r * C + c] / C;
        for (int c = 0; c < C; c++) y[r * C + c] = x[r * C + c] / sqrt(square + eps) * p[0][c];
    }
    return 1;
}

// y (rows, C), x (rows, 2C)
static inline void naive_swiglu(double *y, const double *x, int rows, int C)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < C; c++) {
            double gate = x[r * 2 * C + c];
            y[r * C + c] = gate / (1.0 + exp(-gate)) * x[r * 2 * C + C + c];
        }
}

static inline int naive_gated_ffn(double *out, const double *x, double *const *p, int rows, int C,
                                  int hidden)
{
    double *both = naive_buffer((size_t)rows * 2 * hidden);
    double *gated = naive_buffer((size_t)rows * hidden);
    naive_product(both, x, p[0], NULL, rows, C, 2 * hidden);
    naive_swiglu(gated, both, rows, hidden);
    naive_product(out, gated, p[1], NULL, rows, hidden, C);
    free(both);
    free(gated);
    return 2;
}

// The angle per token of pair i.
static inline double naive_frequency(const NaiveLlama *n, int i, int hs)
{
    double own = exp(-log(n->theta) * 2.0 * i / hs), length = 2.0 * M_PI / own;
    if (n->factor == 0.0 || length < n->trained_T / n->high) return own;
    if (length > n->trained_T / n->low) return own / n->factor;
    double smooth = (n->trained_T / length - n->low) / (n->high - n->low);
    return (1.0 - smooth) * own / n->factor + smooth * own;
}

// One head (hs) at position t
static inline void naive_turn(const NaiveLlama *n, double *x, int t, int hs)
{
    for (int i = 0; i < hs / 2; i++) {
        double complex z =
            (x[i] + I * x[i + hs / 2]) * cexp(I * (double)t * naive_frequency(n, i, hs));
        x[i] = creal(z);
        x[i + hs / 2] = cimag(z);
    }
}

// y (hs) of the query at row t of x, which has q, k and v (T,width) of one sequence: head h's
static inline void naive_look_grouped(const NaiveLlama *n, double *y, const double *x, int t, int h)
{
    int hs = n->C / n->heads, width = n->C + 2 * n->kv_heads * hs;
    int key = n->C + h * n->kv_heads / n->heads * hs, value = key + n->kv_heads * hs;
    double *score = naive_buffer((size_t)t + 1);
    for (int s = 0; s <= t; s++)
        for (int i = 0; i < hs; i++) score[s] += x[t * width + h * hs + i] * x[s * width + key + i];
    naive_softmax(score, score, t + 1, 1.0 / sqrt(hs));
    for (int i = 0; i < hs; i++) {
        y[i] = 0.0;
        for (int s = 0; s <= t; s++) y[i] += score[s] * x[s * width + value + i];
    }
    free(score);
}

static inline int naive_grouped_attention(const NaiveLlama *n, double *out, const double *x,
                                          double *const *p)
{
    int rows = n->B * n->T, hs = n->C / n->heads, width = n->C + 2 * n->kv_heads * hs;
    double *qkv = naive_buffer((size_t)rows * width), *y = naive_buffer((size_t)rows * n->C);
    naive_product(qkv, x, p[0], NULL, rows, n->C, width);
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < n->heads + n->kv_heads; h++)
            naive_turn(n, qkv + r * width + h * hs, r % n->T, hs);
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < n->heads; h++)
            naive_look_grouped(n, y + r * n->C + h * hs, qkv + r / n->T * n->T * width, r % n->T,
                               h);
    naive_product(out, y, p[1], NULL, rows, n->C, n->C);
    free(qkv);
    free(y);
    return 2;
}

static inline int naive_words(double *out, const int32_t *tokens, double *const *p, int rows, int C)
{
    for (int r = 0; r < rows; r++) memcpy(out + r * C, p[0] + tokens[r] * C, sizeof(double) * C);
    return 1;
}

// logits (B·T, vocab)
static inline void naive_llama(const NaiveLlama *n, double *logits, const int32_t *tokens,
                               double *const *p)
{
    int rows = n->B * n->T, size = rows * n->C, used;
    double *x = naive_buffer((size_t)size), *a = naive_buffer((size_t)size);
    double *b = naive_buffer((size_t)size);
    used = naive_words(x, tokens, p, rows, n->C);
    for (int layer = 0; layer < n->layers; layer++) {
        used += naive_rmsnorm(a, x, p + used, rows, n->C, n->eps);
        used += naive_grouped_attention(n, b, a, p + used);
        for (int i = 0; i < size; i++) x[i] += b[i];
        used += naive_rmsnorm(a, x, p + used, rows, n->C, n->eps);
        used += naive_gated_ffn(b, a, p + used, rows, n->C, n->hidden);
        for (int i = 0; i < size; i++) x[i] += b[i];
    }
    used += naive_rmsnorm(a, x, p + used, rows, n->C, n->eps);
    naive_product(logits, a, p[n->tied ? 0 : used], NULL, rows, n->C, n->vocab);
    free(x);
    free(a);
    free(b);
}

#endif
