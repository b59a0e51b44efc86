/* optimizer.c: the update rules on the CPU, element by element. See host_kernels.h.
 *
 * An element's bits do not depend on its place in the array: vectors round division and square root
 * exactly, as single floats do, and nothing is contracted.
 */
#include "host_kernels.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

// The numbers that all elements share in an AdamW step.
typedef struct AdamWStep {
    float lr, decay; // decay = lr · weight decay
    float beta1, beta2;
    float rest1, rest2;     // 1 - beta
    float unbias1, unbias2; // 1 - beta^t: the moments start at 0 and are too small by this factor
    float eps;
} AdamWStep;

static void step_adamw(float *restrict p, const float *restrict g, float *restrict m,
                       float *restrict v, size_t n, AdamWStep s)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float decayed = p[i] - s.decay * p[i];
        m[i] = s.beta1 * m[i] + s.rest1 * g[i];
        v[i] = s.beta2 * v[i] + s.rest2 * (g[i] * g[i]);
        p[i] = decayed - s.lr * ((m[i] / s.unbias1) / (sqrtf(v[i] / s.unbias2) + s.eps));
    }
}

void host_adamw_numbers(float *p, const float *g, float *m, float *v, size_t n,
                        const float numbers[3], float beta1, float beta2, float eps,
                        float weight_decay)
{
    AdamWStep step = {
        .lr = numbers[0],
        .decay = numbers[0] * weight_decay,
        .beta1 = beta1,
        .beta2 = beta2,
        .rest1 = 1.0f - beta1,
        .rest2 = 1.0f - beta2,
        .unbias1 = numbers[1],
        .unbias2 = numbers[2],
        .eps = eps,
    };
    step_adamw(p, g, m, v, n, step);
}

void host_adamw(float *p, const float *g, float *m, float *v, size_t n, float lr, float beta1,
                float beta2, float eps, float weight_decay, int t)
{
    const float numbers[3] = {lr, (float)(1.0 - pow(beta1, t)), (float)(1.0 - pow(beta2, t))};
    host_adamw_numbers(p, g, m, v, n, numbers, beta1, beta2, eps, weight_decay);
}

void host_sgd(float *p, const float *g, size_t n, float lr, float weight_decay)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) p[i] -= lr * (g[i] + weight_decay * p[i]);
}

void host_scale(float *x, float factor, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) x[i] *= factor;
}

double host_sum_squares(const float *x, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

// A loop over whole numbers, which no compiler flag for floats changes.
bool host_all_finite(const float *x, size_t n)
{
    bool all = true;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        all &= (bits & 0x7F800000u) != 0x7F800000u;
    }
    return all;
}
