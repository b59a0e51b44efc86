/* numbers.h: what the suites of lib/nn share: numbers drawn from a fixed sequence, device buffers
 * that begin as NaN, parameters with storage, and comparisons by norm.
 *
 * Interface: draw, draw_floats; on_device, nans_on_device, poison, tokens_on_device, send_tokens;
 * give_storage, take_storage, list_params; check_norm.
 */
#ifndef TESTS_NN_NUMBERS_H
#define TESTS_NN_NUMBERS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "nn.h"

// The next number of a sequence, in [-1, 1): the upper bits of a linear congruential generator
// (Knuth's MMIX constants).
static inline double draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*seed >> 11) / (double)(1LL << 52) - 1.0;
}

// n of them times `scale`, as floats; free() them.
static inline float *draw_floats(size_t n, double scale, uint64_t *seed)
{
    float *x = malloc((n + 1) * sizeof *x);
    check(x != NULL, "no host memory for %zu floats", n);
    for (size_t i = 0; i < n; i++) x[i] = (float)(scale * draw(seed));
    return x;
}

// Each of the following waits: a rank's stream is in no order with the default stream, and on a
// real GPU neither a copy of the host's memory nor a memset need be done when its call returns.

static inline void *bytes_on_device(const void *host, size_t bytes)
{
    void *x = NULL;
    need_cuda(cudaMalloc(&x, bytes));
    need_cuda(cudaMemcpy(x, host, bytes, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    return x;
}

static inline float *on_device(const float *host, size_t n)
{
    return bytes_on_device(host, n * sizeof *host);
}

static inline int32_t *tokens_on_device(const int32_t *host, size_t n)
{
    return bytes_on_device(host, n * sizeof *host);
}

static inline void send_tokens(int32_t *device, const int32_t *host, size_t n)
{
    need_cuda(cudaMemcpy(device, host, n * sizeof *host, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
}

// Makes all n of them NaN.
static inline void poison(float *device, size_t n)
{
    need_cuda(cudaMemset(device, 0xff, n * sizeof *device));
    need_cuda(cudaDeviceSynchronize());
}

static inline float *nans_on_device(size_t n)
{
    void *x = NULL;
    need_cuda(cudaMalloc(&x, n * sizeof(float)));
    poison(x, n);
    return x;
}

static inline size_t numel_of(const Param *param)
{
    size_t n = 1;
    for (int i = 0; i < param->ndim; i++) n *= (size_t)param->shape[i];
    return n;
}

#define MAX_PARAMS 64

// The parameters of m and below, each once, in the order of a walk.
static inline int list_params(const Module *m, Param **out, int n)
{
    for (int i = 0; i < m->n_params; i++) {
        bool seen = false;
        for (int j = 0; j < n; j++) seen |= out[j] == m->params[i];
        check(n < MAX_PARAMS, "the model has more than %d parameters", MAX_PARAMS);
        if (!seen) out[n++] = m->params[i];
    }
    for (int i = 0; i < m->n_children; i++) n = list_params(m->children[i], out, n);
    return n;
}

// What every gradient holds before a backward, so that "adds to it" can be told from "sets it".
#define GRAD_BASE 0.25f

// Gives every parameter storage, values of ±scale around 0 (around 1 where they start as one), and
// a gradient of GRAD_BASE.
static inline void give_storage(const Module *m, double scale, uint64_t *seed)
{
    Param *params[MAX_PARAMS];
    int n = list_params(m, params, 0);
    for (int i = 0; i < n; i++) {
        size_t size = numel_of(params[i]);
        float *values = draw_floats(size, scale, seed), *base = draw_floats(size, 0.0, seed);
        for (size_t j = 0; j < size; j++) {
            if (params[i]->init == INIT_ONE) values[j] += 1.0f;
            base[j] = GRAD_BASE;
        }
        params[i]->data.data = on_device(values, size);
        params[i]->grad.data = on_device(base, size);
        free(values);
        free(base);
    }
}

static inline void take_storage(const Module *m)
{
    Param *params[MAX_PARAMS];
    int n = list_params(m, params, 0);
    for (int i = 0; i < n; i++) {
        need_cuda(cudaFree(params[i]->data.data));
        need_cuda(cudaFree(params[i]->grad.data));
        params[i]->data.data = params[i]->grad.data = NULL;
    }
}

// ‖got - base - want‖ <= bound·‖want‖, with no NaN anywhere.
static inline void check_norm(const char *what, const float *got, float base, const double *want,
                              size_t n, double bound)
{
    double off = 0.0, size = 0.0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - base - want[i];
        off += d * d;
        size += want[i] * want[i];
    }
    check(sqrt(off) <= bound * sqrt(size), "%s is off by %.3g of its norm %.3g; %.3g is allowed",
          what, sqrt(off / size), sqrt(size), bound);
}

#endif
