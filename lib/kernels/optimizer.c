/* optimizer.c: the update rules, AdamW and SGD, as kernels. The arithmetic is lib/host's, which works
 * on shards in host memory as well (lab 4).
 *
 * Interface: kernel_adamw, kernel_sgd.
 */
#include "host_kernels.h"
#include "kernels.h"
#include "simgpu.h"

cudaError_t kernel_adamw(float *p, const float *g, float *m, float *v, size_t n, float lr,
                         float beta1, float beta2, float eps, float weight_decay, int t,
                         cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_adamw", stream);
    float *param = simgpu_update(&op, p, n * sizeof *p);
    const float *grad = simgpu_read(&op, g, n * sizeof *g);
    float *mean = simgpu_update(&op, m, n * sizeof *m);
    float *square = simgpu_update(&op, v, n * sizeof *v);
    gpulog_category(m, GPU_OPTIMIZER_STATE);
    gpulog_category(v, GPU_OPTIMIZER_STATE);
    simgpu_cost(&op, 16 * n, GPU_F32);
    if (simgpu_ready(&op))
        host_adamw(param, grad, mean, square, n, lr, beta1, beta2, eps, weight_decay, t);
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
        host_sgd(param, grad, n, lr, weight_decay);
    }
    return simgpu_end(&op);
}
