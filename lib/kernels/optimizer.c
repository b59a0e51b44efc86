/* optimizer.c: the update rules, element by element: AdamW and SGD.
 *
 * As in elementwise.c an element's bits do not depend on its place in the array: division and
 * square root are rounded exactly in a vector as they are alone, and nothing is contracted.
 *
 * Interface: kernel_adamw, kernel_sgd.
 */
#include <math.h>

#include "kernels.h"
#include "simgpu.h"

// The numbers of an AdamW step that are the same for every element.
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

cudaError_t kernel_adamw(float *p, const float *g, float *m, float *v, size_t n, float lr,
                         float beta1, float beta2, float eps, float weight_decay, int t,
                         cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_adamw", stream);
    float *param = simgpu_update(&op, p, n * sizeof *p);
    const float *grad = simgpu_read(&op, g, n * sizeof *g);
    float *mean = simgpu_update(&op, m, n * sizeof *m);
    float *square = simgpu_update(&op, v, n * sizeof *v);
    AdamWStep step = {
        .lr = lr,
        .decay = lr * weight_decay,
        .beta1 = beta1,
        .beta2 = beta2,
        .rest1 = 1.0f - beta1,
        .rest2 = 1.0f - beta2,
        .unbias1 = (float)(1.0 - pow(beta1, t)),
        .unbias2 = (float)(1.0 - pow(beta2, t)),
        .eps = eps,
    };
    gpulog_category(m, GPU_OPTIMIZER_STATE);
    gpulog_category(v, GPU_OPTIMIZER_STATE);
    simgpu_cost(&op, 16 * n, GPU_F32);
    if (simgpu_ready(&op)) step_adamw(param, grad, mean, square, n, step);
    return simgpu_end(&op);
}

cudaError_t kernel_sgd(float *p, const float *g, float *buf, size_t n, float lr, float momentum,
                       float weight_decay, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_sgd", stream);
    float *param = simgpu_update(&op, p, n * sizeof *p);
    const float *grad = simgpu_read(&op, g, n * sizeof *g);
    float *velocity = buf != NULL ? simgpu_update(&op, buf, n * sizeof *buf) : NULL;
    gpulog_category(buf, GPU_OPTIMIZER_STATE);
    simgpu_cost(&op, 6 * n, GPU_F32);
    if (simgpu_ready(&op) && velocity != NULL) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            velocity[i] = momentum * velocity[i] + (grad[i] + weight_decay * param[i]);
            param[i] -= lr * velocity[i];
        }
    } else if (simgpu_ready(&op)) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) param[i] -= lr * (grad[i] + weight_decay * param[i]);
    }
    return simgpu_end(&op);
}
