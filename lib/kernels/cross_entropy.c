/* cross_entropy.c: softmax and cross entropy of each row, with the gradient, in one pass over the
 * logits.
 *
 * loss = log Σ e^(x - max) - (x[target] - max). The gradient may take the logits' own place.
 *
 * Interface: kernel_cross_entropy.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "kernels.h"
#include "rows.h"
#include "simgpu.h"
#include "vector_math.h"

// Whether all targets (rows) are in [0, vocab); says which is not.
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

cudaError_t kernel_cross_entropy(float *losses, float *dlogits, const float *logits,
                                 const int32_t *targets, int rows, int vocab, float scale,
                                 cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_cross_entropy", stream);
    size_t R = (size_t)rows, V = (size_t)vocab, bytes = R * V * sizeof *logits;
    float *loss = simgpu_write(&op, losses, R * sizeof *losses);
    const float *from = NULL;
    float *to = NULL;
    if (dlogits == logits) {
        from = to = simgpu_update(&op, dlogits, bytes);
    } else {
        from = simgpu_read(&op, logits, bytes);
        if (dlogits != NULL) to = simgpu_write(&op, dlogits, bytes);
    }
    const int32_t *target = simgpu_read(&op, targets, R * sizeof *targets);
    simgpu_cost(&op, 6 * R * V, GPU_F32);
    if (simgpu_ready(&op) && targets_fit(&op, target, rows, vocab)) {
        for (size_t r = 0; r < R; r++) {
            const float *x = from + r * V;
            float max = row_max(x, V), log_sum = log_sum_exp(x, V, max);
            loss[r] = log_sum - (x[target[r]] - max);
            if (to == NULL) continue;
            float *dx = to + r * V;
#pragma omp simd
            for (size_t i = 0; i < V; i++) dx[i] = vm_exp((x[i] - max) - log_sum) * scale;
            dx[target[r]] -= scale;
        }
    }
    return simgpu_end(&op);
}
