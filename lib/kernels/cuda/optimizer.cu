/* optimizer.cu: the update rules, element by element: AdamW and SGD, one pass over memory.
 *
 * The numbers that are the same for every element are worked out on the host, by the expressions of
 * lib/kernels/optimizer.c; division and square root are the exactly rounded ones, and nothing is
 * fused (-fmad=false). So both give the same bits.
 */
#include <math.h>

#include "each.cuh"

struct AdamW {
    float lr, decay; // decay = lr · weight decay
    float beta1, beta2;
    float rest1, rest2;     // 1 - beta
    float unbias1, unbias2; // 1 - beta^t: the moments start at 0 and are too small by this factor
    float eps;

    __device__ void operator()(float &p, const float &g, float &m, float &v) const
    {
        float decayed = p - decay * p;
        m = beta1 * m + rest1 * g;
        v = beta2 * v + rest2 * (g * g);
        p = decayed - lr * ((m / unbias1) / (sqrtf(v / unbias2) + eps));
    }
};

struct Sgd {
    float lr, weight_decay;
    __device__ void operator()(float &p, const float &g) const
    {
        p -= lr * (g + weight_decay * p);
    }
};

struct SgdMomentum {
    float lr, momentum, weight_decay;
    __device__ void operator()(float &p, const float &g, float &velocity) const
    {
        velocity = momentum * velocity + (g + weight_decay * p);
        p -= lr * velocity;
    }
};

extern "C" cudaError_t kernel_adamw(float *p, const float *g, float *m, float *v, size_t n,
                                    float lr, float beta1, float beta2, float eps,
                                    float weight_decay, int t, cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_adamw", stream);
    launch_update(&launch, p, n * sizeof *p);
    launch_read(&launch, g, n * sizeof *g);
    launch_update(&launch, m, n * sizeof *m);
    launch_update(&launch, v, n * sizeof *v);
    gpulog_category(m, GPU_OPTIMIZER_STATE);
    gpulog_category(v, GPU_OPTIMIZER_STATE);
    AdamW step = {};
    step.lr = lr;
    step.decay = lr * weight_decay;
    step.beta1 = beta1;
    step.beta2 = beta2;
    step.rest1 = 1.0f - beta1;
    step.rest2 = 1.0f - beta2;
    step.unbias1 = (float)(1.0 - pow((double)beta1, (double)t));
    step.unbias2 = (float)(1.0 - pow((double)beta2, (double)t));
    step.eps = eps;
    launch_each(&launch, step, n, p, g, m, v);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_sgd(float *p, const float *g, float *buf, size_t n, float lr,
                                  float momentum, float weight_decay, cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_sgd", stream);
    launch_update(&launch, p, n * sizeof *p);
    launch_read(&launch, g, n * sizeof *g);
    if (buf != NULL) {
        launch_update(&launch, buf, n * sizeof *buf);
        gpulog_category(buf, GPU_OPTIMIZER_STATE);
        launch_each(&launch, SgdMomentum{lr, momentum, weight_decay}, n, p, g, buf);
    } else {
        launch_each(&launch, Sgd{lr, weight_decay}, n, p, g);
    }
    return launch_end(&launch);
}
