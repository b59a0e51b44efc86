/* optimizer.c: the update rules, AdamW and SGD, as kernels. The arithmetic is lib/host's, which
 * works on shards in host memory as well (lab 4).
 */
#include "host_kernels.h"
#include "kernels.h"
#include "pieces.h"
#include "simgpu.h"

#include <math.h>

typedef struct AdamW {
    float *param, *mean, *square;
    const float *grad;
    const float *numbers; // kernel_adamw_numbers's; NULL: lr and t
    float lr, beta1, beta2, eps, weight_decay;
    int t;
} AdamW;

static void adamw_piece(void *arg, size_t begin, size_t end)
{
    const AdamW *a = arg;
    if (a->numbers != NULL) {
        host_adamw_numbers(a->param + begin, a->grad + begin, a->mean + begin, a->square + begin,
                           end - begin, a->numbers, a->beta1, a->beta2, a->eps, a->weight_decay);
        return;
    }
    host_adamw(a->param + begin, a->grad + begin, a->mean + begin, a->square + begin, end - begin,
               a->lr, a->beta1, a->beta2, a->eps, a->weight_decay, a->t);
}

static cudaError_t adamw_of(SimgpuOp *op, AdamW *a, float *p, const float *g, float *m, float *v,
                            size_t n)
{
    a->param = simgpu_update(op, p, n * sizeof *p);
    a->grad = simgpu_read(op, g, n * sizeof *g);
    a->mean = simgpu_update(op, m, n * sizeof *m);
    a->square = simgpu_update(op, v, n * sizeof *v);
    gpulog_category(m, GPU_OPTIMIZER_STATE);
    gpulog_category(v, GPU_OPTIMIZER_STATE);
    simgpu_cost(op, 16 * n, GPU_F32);
    if (simgpu_ready(op)) simgpu_parallel(n, PIECE, adamw_piece, a);
    return simgpu_end(op);
}

cudaError_t kernel_adamw(float *p, const float *g, float *m, float *v, size_t n, float lr,
                         float beta1, float beta2, float eps, float weight_decay, int t,
                         cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_adamw", stream, kernel_adamw, p, g, m, v, n, lr, beta1,
                               beta2, eps, weight_decay, t);
    AdamW a = {.lr = lr, .beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = weight_decay};
    a.t = t;
    return adamw_of(&op, &a, p, g, m, v, n);
}

cudaError_t kernel_adamw_numbers(float *p, const float *g, float *m, float *v, size_t n,
                                 const float *numbers, float beta1, float beta2, float eps,
                                 float weight_decay, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_adamw_numbers", stream, kernel_adamw_numbers, p, g, m, v, n,
                               numbers, beta1, beta2, eps, weight_decay);
    AdamW a = {.beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = weight_decay};
    a.numbers = simgpu_read(&op, numbers, 3 * sizeof *numbers);
    return adamw_of(&op, &a, p, g, m, v, n);
}

// ---- A clip whose norm stays on the device ----

typedef struct Clip {
    float *clip, max_norm; // clip: the norm, the factor
    const double *squares;
} Clip;

static void clip_factor(void *arg, size_t begin, size_t end)
{
    const Clip *c = arg;
    float norm = (float)sqrt(*c->squares);
    c->clip[0] = norm;
    c->clip[1] = norm > c->max_norm ? c->max_norm / norm : 1.0f;
}

cudaError_t kernel_clip_factor(float *clip, const double *squares, float max_norm,
                               cudaStream_t stream)
{
    SimgpuOp op =
        SIMGPU_BEGIN("kernel_clip_factor", stream, kernel_clip_factor, clip, squares, max_norm);
    Clip c = {simgpu_write(&op, clip, 2 * sizeof *clip), max_norm,
              simgpu_read(&op, squares, sizeof *squares)};
    simgpu_cost(&op, 2, GPU_F32); // a root and a division
    if (simgpu_ready(&op)) simgpu_parallel(1, 1, clip_factor, &c);
    return simgpu_end(&op);
}

typedef struct Scaled {
    float *x;
    const float *factor;
} Scaled;

static void scaled_piece(void *arg, size_t begin, size_t end)
{
    const Scaled *s = arg;
    host_scale(s->x + begin, *s->factor, end - begin);
}

cudaError_t kernel_scale_by(float *x, const float *factor, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_scale_by", stream, kernel_scale_by, x, factor, n);
    Scaled s = {simgpu_update(&op, x, n * sizeof *x), simgpu_read(&op, factor, sizeof *factor)};
    simgpu_cost(&op, n, GPU_F32);
    if (simgpu_ready(&op)) simgpu_parallel(n, PIECE, scaled_piece, &s);
    return simgpu_end(&op);
}

typedef struct Sgd {
    float *param, *velocity; // velocity: NULL for none
    const float *grad;
    float lr, momentum, weight_decay;
} Sgd;

static void sgd_piece(void *arg, size_t begin, size_t end)
{
    const Sgd *s = arg;
    float *param = s->param, *velocity = s->velocity;
    const float *grad = s->grad;
    float lr = s->lr, momentum = s->momentum, weight_decay = s->weight_decay;
    if (velocity == NULL) {
        host_sgd(param + begin, grad + begin, end - begin, lr, weight_decay);
        return;
    }
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        velocity[i] = momentum * velocity[i] + (grad[i] + weight_decay * param[i]);
        param[i] -= lr * velocity[i];
    }
}

cudaError_t kernel_sgd(float *p, const float *g, float *buf, size_t n, float lr, float momentum,
                       float weight_decay, cudaStream_t stream)
{
    SimgpuOp op =
        SIMGPU_BEGIN("kernel_sgd", stream, kernel_sgd, p, g, buf, n, lr, momentum, weight_decay);
    Sgd s = {.lr = lr, .momentum = momentum, .weight_decay = weight_decay};
    s.param = simgpu_update(&op, p, n * sizeof *p);
    s.grad = simgpu_read(&op, g, n * sizeof *g);
    if (buf != NULL) s.velocity = simgpu_update(&op, buf, n * sizeof *buf);
    gpulog_category(buf, GPU_OPTIMIZER_STATE);
    simgpu_cost(&op, 6 * n, GPU_F32);
    if (simgpu_ready(&op)) simgpu_parallel(n, PIECE, sgd_piece, &s);
    return simgpu_end(&op);
}
