/* gelu.cuh: the Gaussian error linear unit in its tanh form, and its slope.
 *
 * gelu(x) = x/2 · (1 + tanh u) with u = √(2/π)·(x + 0.044715·x³) (Hendrycks & Gimpel 2016). Since
 * (1 + tanh u)/2 is the sigmoid of 2u, it is computed as x · sigmoid(2u): no difference of nearly
 * equal numbers for negative x.
 */
#ifndef SHARDLAB_GELU_CUH
#define SHARDLAB_GELU_CUH

#include <cuda_runtime.h>
#include <math.h>

#define GELU_TWO_ROOT 1.5957691216f // 2·√(2/π)
#define GELU_CUBE 0.044715f

static inline __device__ float gelu_of(float x)
{
    float twice_u = GELU_TWO_ROOT * (x + GELU_CUBE * x * x * x);
    return x * (1.0f / (1.0f + expf(-twice_u)));
}

static inline __device__ float gelu_slope_of(float x)
{
    float square = x * x;
    float twice_u = GELU_TWO_ROOT * (x + GELU_CUBE * square * x);
    // The sigmoid s and its slope s·(1-s) from e^-|2u|, so that no 1 - s loses digits.
    float e = expf(-fabsf(twice_u)), q = 1.0f / (1.0f + e);
    float s = twice_u < 0.0f ? e * q : q;
    float slope = GELU_TWO_ROOT * (1.0f + 3.0f * GELU_CUBE * square); // of 2u
    return s + x * (e * q * q) * slope;
}

#endif
