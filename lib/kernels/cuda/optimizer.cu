/* optimizer.cu: the update rules, element by element: AdamW and SGD, one pass over memory.
 *
 * The host computes the numbers that all elements share, by the expressions of
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

// The same with lr and the corrections on the device: each thread computes what depends on them.
static __global__ void __launch_bounds__(EACH_THREADS)
    adamw_numbers(AdamW s, const float *numbers, float weight_decay, float *p, const float *g,
                  float *m, float *v, size_t n)
{
    s.lr = numbers[0];
    s.decay = numbers[0] * weight_decay;
    s.unbias1 = numbers[1];
    s.unbias2 = numbers[2];
    size_t stride = gridDim.x * (size_t)EACH_THREADS;
    for (size_t i = blockIdx.x * (size_t)EACH_THREADS + threadIdx.x; i < n; i += stride)
        s(p[i], g[i], m[i], v[i]);
}

static __global__ void __launch_bounds__(EACH_THREADS)
    scale_by(float *x, const float *factor, size_t n)
{
    size_t stride = gridDim.x * (size_t)EACH_THREADS;
    for (size_t i = blockIdx.x * (size_t)EACH_THREADS + threadIdx.x; i < n; i += stride)
        x[i] *= *factor;
}

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

static void touch_adamw(Launch *launch, float *p, const float *g, float *m, float *v, size_t n)
{
    launch_update(launch, p, n * sizeof *p);
    launch_read(launch, g, n * sizeof *g);
    launch_update(launch, m, n * sizeof *m);
    launch_update(launch, v, n * sizeof *v);
    gpulog_category(m, GPU_OPTIMIZER_STATE);
    gpulog_category(v, GPU_OPTIMIZER_STATE);
}

static AdamW adamw_of(float beta1, float beta2, float eps)
{
    AdamW step = {};
    step.beta1 = beta1;
    step.beta2 = beta2;
    step.rest1 = 1.0f - beta1;
    step.rest2 = 1.0f - beta2;
    step.eps = eps;
    return step;
}

extern "C" cudaError_t kernel_adamw(float *p, const float *g, float *m, float *v, size_t n,
                                    float lr, float beta1, float beta2, float eps,
                                    float weight_decay, int t, cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_adamw", stream);
    touch_adamw(&launch, p, g, m, v, n);
    AdamW step = adamw_of(beta1, beta2, eps);
    step.lr = lr;
    step.decay = lr * weight_decay;
    step.unbias1 = (float)(1.0 - pow((double)beta1, (double)t));
    step.unbias2 = (float)(1.0 - pow((double)beta2, (double)t));
    launch_each(&launch, step, n, p, g, m, v);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_adamw_numbers(float *p, const float *g, float *m, float *v, size_t n,
                                            const float *numbers, float beta1, float beta2,
                                            float eps, float weight_decay, cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_adamw_numbers", stream);
    launch_read(&launch, numbers, 3 * sizeof *numbers);
    touch_adamw(&launch, p, g, m, v, n);
    if (n > 0)
        launch_grid(&launch, adamw_numbers, blocks_of(n, EACH_THREADS), EACH_THREADS,
                    adamw_of(beta1, beta2, eps), numbers, weight_decay, p, g, m, v, n);
    return launch_end(&launch);
}

static __global__ void clip_factor(float *clip, const double *squares, float max_norm)
{
    if (threadIdx.x > 0) return;
    float norm = (float)sqrt(*squares);
    clip[0] = norm;
    clip[1] = norm > max_norm ? max_norm / norm : 1.0f;
}

extern "C" cudaError_t kernel_clip_factor(float *clip, const double *squares, float max_norm,
                                          cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_clip_factor", stream);
    launch_write(&launch, clip, 2 * sizeof *clip);
    launch_read(&launch, squares, sizeof *squares);
    launch_grid(&launch, clip_factor, 1, 32, clip, squares, max_norm);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_scale_by(float *x, const float *factor, size_t n, cudaStream_t stream)
{
    Launch launch = LAUNCH_BEGIN("kernel_scale_by", stream);
    launch_update(&launch, x, n * sizeof *x);
    launch_read(&launch, factor, sizeof *factor);
    if (n > 0)
        launch_grid(&launch, scale_by, blocks_of(n, EACH_THREADS), EACH_THREADS, x, factor, n);
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
