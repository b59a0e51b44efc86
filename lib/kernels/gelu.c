/* gelu.c: the Gaussian error linear unit in its tanh form (Hendrycks & Gimpel 2016).
 *
 * gelu(x) = x/2 · (1 + tanh u) with u = √(2/π)·(x + 0.044715·x³). Since (1 + tanh u)/2 is the
 * sigmoid of 2u, it is computed as x · sigmoid(2u): no difference of nearly equal numbers for
 * negative x.
 *
 * Interface: kernel_gelu_forward, kernel_gelu_backward.
 */
#include <math.h>

#include "kernels.h"
#include "simgpu.h"
#include "vector_math.h"

static const float TWO_ROOT = 1.5957691216f; // 2·√(2/π)
static const float CUBE = 0.044715f;

cudaError_t kernel_gelu_forward(float *out, const float *in, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_gelu_forward", stream);
    float *restrict y = simgpu_write(&op, out, n * sizeof *out);
    const float *restrict x = simgpu_read(&op, in, n * sizeof *in);
    if (simgpu_ready(&op)) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            float twice_u = TWO_ROOT * (x[i] + CUBE * x[i] * x[i] * x[i]);
            y[i] = x[i] * vm_sigmoid(twice_u);
        }
    }
    return simgpu_end(&op);
}

cudaError_t kernel_gelu_backward(float *din, const float *dout, const float *in, size_t n,
                                 cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_gelu_backward", stream);
    float *restrict dx = simgpu_write(&op, din, n * sizeof *din);
    const float *restrict dy = simgpu_read(&op, dout, n * sizeof *dout);
    const float *restrict x = simgpu_read(&op, in, n * sizeof *in);
    if (simgpu_ready(&op)) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            float square = x[i] * x[i];
            float twice_u = TWO_ROOT * (x[i] + CUBE * square * x[i]);
            // The sigmoid s and its slope s·(1-s) from e^-|2u|, so that no 1 - s loses digits.
            float e = vm_exp(-fabsf(twice_u)), q = 1.0f / (1.0f + e);
            float s = twice_u < 0.0f ? e * q : q;
            float slope = TWO_ROOT * (1.0f + 3.0f * CUBE * square); // of 2u
            dx[i] = dy[i] * (s + x[i] * (e * q * q) * slope);
        }
    }
    return simgpu_end(&op);
}
