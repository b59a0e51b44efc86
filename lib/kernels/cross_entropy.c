/* cross_entropy.c: softmax and cross entropy of each row, with the gradient, in one pass over the
 * logits.
 *
 * loss = log Σ e^(x - max) - (x[target] - max). The gradient may take the logits' own place.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "kernels.h"
#include "pieces.h"
#include "rows.h"
#include "typed.h"
#include "vector_math.h"

// Whether all targets (rows) are in [0, vocab); prints the first that is not.
static bool targets_fit(SimgpuOp *op, const int32_t *targets, int rows, int vocab)
{
    for (int r = 0; r < rows; r++) {
        if (targets[r] >= 0 && targets[r] < vocab) continue;
        fprintf(stderr, "%s: target %d in row %d, but the vocabulary has %d\n", op->entry.name,
                targets[r], r, vocab);
        op->error = cudaErrorIllegalAddress;
        return false;
    }
    return true;
}

#define BLOCK 256

// log Σ e^(x[i] - max), through a small buffer: x stays as it is.
static float log_sum_exp(const float *x, size_t n, float max)
{
    float sum = 0.0f, part[BLOCK];
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t count = n - first < BLOCK ? n - first : BLOCK;
#pragma omp simd
        for (size_t i = 0; i < count; i++) part[i] = vm_exp(x[first + i] - max);
        sum += row_sum(part, count);
    }
    return logf(sum);
}

// The loss of one row x (n), and in dx, which may be x or NULL, its gradient times `scale`.
static float cross_entropy_row(float *dx, const float *x, size_t n, size_t target, float scale)
{
    float max = row_max(x, n), log_sum = log_sum_exp(x, n, max);
    float loss = log_sum - (x[target] - max);
    if (dx == NULL) return loss;
#pragma omp simd
    for (size_t i = 0; i < n; i++) dx[i] = vm_exp((x[i] - max) - log_sum) * scale;
    dx[target] -= scale;
    return loss;
}

typedef struct CrossEntropy {
    DType type;
    float *loss;
    void *to;
    const void *from;
    const int32_t *target;
    size_t V;
    float scale;
    atomic_bool failed; // for want of memory
} CrossEntropy;

static void cross_entropy_rows(void *arg, size_t begin, size_t end)
{
    CrossEntropy *c = arg;
    DType type = c->type;
    size_t V = c->V;
    float *copy = NULL;
    if (!typed_room(type, &copy, V, &c->failed)) return;
    for (size_t r = begin; r < end; r++) {
        const float *x = typed_load(type, copy, c->from, r * V, V);
        float *dx = c->to != NULL ? typed_place(type, copy, c->to, r * V) : NULL;
        c->loss[r] = cross_entropy_row(dx, x, V, (size_t)c->target[r], c->scale);
        if (c->to != NULL) typed_store(type, c->to, r * V, dx, V);
    }
    free(copy);
}

static cudaError_t cross_entropy_of(SimgpuOp *op, DType type, float *losses, void *dlogits,
                                    const void *logits, const int32_t *targets, int rows, int vocab,
                                    float scale)
{
    size_t R = (size_t)rows, V = (size_t)vocab;
    CrossEntropy c = {.type = type, .V = V, .scale = scale};
    c.loss = simgpu_write(op, losses, R * sizeof *losses);
    if (dlogits == logits) {
        c.from = c.to = typed_update(op, type, dlogits, R * V);
    } else {
        c.from = typed_read(op, type, logits, R * V);
        if (dlogits != NULL) c.to = typed_write(op, type, dlogits, R * V);
    }
    c.target = simgpu_read(op, targets, R * sizeof *targets);
    simgpu_cost(op, 6 * R * V, GPU_F32);
    if (simgpu_ready(op) && targets_fit(op, c.target, rows, vocab)) {
        simgpu_parallel(R, piece_rows(V), cross_entropy_rows, &c);
        typed_check_room(op, &c.failed);
    }
    return simgpu_end(op);
}

cudaError_t kernel_cross_entropy(float *losses, float *dlogits, const float *logits,
                                 const int32_t *targets, int rows, int vocab, float scale,
                                 cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_cross_entropy", stream, kernel_cross_entropy, losses,
                               dlogits, logits, targets, rows, vocab, scale);
    return cross_entropy_of(&op, DTYPE_F32, losses, dlogits, logits, targets, rows, vocab, scale);
}

cudaError_t kernel_cross_entropy_ex(DType type, float *losses, void *dlogits, const void *logits,
                                    const int32_t *targets, int rows, int vocab, float scale,
                                    cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_cross_entropy", type, stream, kernel_cross_entropy_ex, type,
                              losses, dlogits, logits, targets, rows, vocab, scale);
    return cross_entropy_of(&op, type, losses, dlogits, logits, targets, rows, vocab, scale);
}
