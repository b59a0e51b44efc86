/* host_kernels.h: the optimizer's arithmetic on the CPU, for shards in host memory (offload.h), on
 * every backend. All arrays are floats in host memory. They are ready when a function is called and
 * when it returns: no stream is involved.
 */
#ifndef SHARDLAB_HOST_KERNELS_H
#define SHARDLAB_HOST_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

// One step of AdamW, the t-th: kernels.h's kernel_adamw. On simulated GPUs that kernel is this
// function, so results are bitwise equal; on real ones they differ by rounding at most.
void host_adamw(float *p, const float *g, float *m, float *v, size_t n, float lr, float beta1,
                float beta2, float eps, float weight_decay, int t);
// The same with lr, 1 - beta1^t and 1 - beta2^t given: kernel_adamw_numbers.
void host_adamw_numbers(float *p, const float *g, float *m, float *v, size_t n,
                        const float numbers[3], float beta1, float beta2, float eps,
                        float weight_decay);
// p -= lr·(g + weight_decay·p): kernel_sgd without momentum.
void host_sgd(float *p, const float *g, size_t n, float lr, float weight_decay);
// x *= factor.
void host_scale(float *x, float factor, size_t n);
// Σ x², in double, in the order of the elements.
double host_sum_squares(const float *x, size_t n);
// Whether none is infinite or NaN.
bool host_all_finite(const float *x, size_t n);

#endif
