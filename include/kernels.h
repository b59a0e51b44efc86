/* kernels.h: every kernel the kit runs, declared once. lib/kernels/X.c has them for the simulated
 * GPU, lib/kernels/cuda/X.cu in CUDA C.
 *
 * All pointers are device pointers to float unless said otherwise; sizes are in elements; a kernel
 * is queued on `stream` and returns what a launch returns. "+=" means that the kernel adds to what
 * is there. Elementwise kernels (group 1) compute an element in the same way wherever it is in the
 * array, so that results do not depend on how a parameter is cut into shards.
 *
 * On simgpu a kernel also says what it costs (simgpu_cost): an addition, a product, a division, a
 * root and an exponential are one FLOP each.
 */
#ifndef SHARDLAB_KERNELS_H
#define SHARDLAB_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- 1. Elementwise ----

// x[i] = value
cudaError_t kernel_fill(float *x, float value, size_t n, cudaStream_t stream);
// x[i] *= factor
cudaError_t kernel_scale(float *x, float factor, size_t n, cudaStream_t stream);
// dst[i] += src[i]
cudaError_t kernel_add(float *dst, const float *src, size_t n, cudaStream_t stream);
// out[i] = a[i] + b[i]
cudaError_t kernel_add_out(float *out, const float *a, const float *b, size_t n,
                           cudaStream_t stream);
// dst[i] += src[i] / divisor      (a true division, not a product with 1/divisor)
cudaError_t kernel_add_divided(float *dst, const float *src, float divisor, size_t n,
                               cudaStream_t stream);
// AdamW (Loshchilov & Hutter 2019), decoupled weight decay, step t = 1, 2, …; m and v are the two
// moments. p -= lr·wd·p;  m = β1·m + (1-β1)·g;  v = β2·v + (1-β2)·g²;
// p -= lr · (m/(1-β1ᵗ)) / (√(v/(1-β2ᵗ)) + eps)
cudaError_t kernel_adamw(float *p, const float *g, float *m, float *v, size_t n, float lr,
                         float beta1, float beta2, float eps, float weight_decay, int t,
                         cudaStream_t stream);
// The same step with its numbers on the device, where a graph's copy puts them: lr, 1-β1ᵗ, 1-β2ᵗ.
// Bitwise equal to kernel_adamw with the lr and t that give these numbers.
cudaError_t kernel_adamw_numbers(float *p, const float *g, float *m, float *v, size_t n,
                                 const float *numbers, float beta1, float beta2, float eps,
                                 float weight_decay, cudaStream_t stream);
// clip[0] = √*squares, the norm, as a float; clip[1] = max_norm / clip[0] if the norm is larger,
// else 1
cudaError_t kernel_clip_factor(float *clip, const double *squares, float max_norm,
                               cudaStream_t stream);
// x[i] *= *factor, which is on the device
cudaError_t kernel_scale_by(float *x, const float *factor, size_t n, cudaStream_t stream);
// SGD with decay and momentum: g' = g + wd·p;  buf = momentum·buf + g';  p -= lr·buf.
// buf may be NULL if momentum is 0.
cudaError_t kernel_sgd(float *p, const float *g, float *buf, size_t n, float lr, float momentum,
                       float weight_decay, cudaStream_t stream);

// ---- 2. Reductions ----

// *sum += Σ x[i]², summed in double; `sum` is one double on the device
cudaError_t kernel_sum_squares(double *sum, const float *x, size_t n, cudaStream_t stream);
// *mean = (Σ x[i]) / n, summed in double, stored as float
cudaError_t kernel_mean(float *mean, const float *x, size_t n, cudaStream_t stream);
// out[c] += Σ_r x[r,c]              x is (rows, cols)
cudaError_t kernel_sum_rows(float *out, const float *x, int rows, int cols, cudaStream_t stream);

// ---- 3. Layers ----
//
// A kernel that does the work of several (a bias with a GELU, a residual with a layer norm) is
// bitwise equal to those run one after another.

// out[r,c] = bias[c]                out is (rows, cols): what a GEMM with beta = 1 then adds to
cudaError_t kernel_broadcast_bias(float *out, const float *bias, int rows, int cols,
                                  cudaStream_t stream);
// GELU, tanh form (Hendrycks & Gimpel 2016)
cudaError_t kernel_gelu_forward(float *out, const float *in, size_t n, cudaStream_t stream);
// din[i] = dout[i] · gelu'(in[i])
cudaError_t kernel_gelu_backward(float *din, const float *dout, const float *in, size_t n,
                                 cudaStream_t stream);
// y[r,c] += bias[c], then out[r,c] = gelu(y[r,c]), in one pass; y (rows, cols) is what the backward
// needs
cudaError_t kernel_bias_gelu_forward(float *out, float *y, const float *bias, int rows, int cols,
                                     cudaStream_t stream);
// din[r,c] = dout[r,c] · gelu'(y[r,c]);  dbias[c] += Σ_r din[r,c].  din may be y itself.
cudaError_t kernel_bias_gelu_backward(float *din, float *dbias, const float *dout, const float *y,
                                      int rows, int cols, cudaStream_t stream);
// LayerNorm over the columns, eps 1e-5; in, out (rows, cols); weight, bias (cols); mean, rstd
// (rows)
cudaError_t kernel_layernorm_forward(float *out, float *mean, float *rstd, const float *in,
                                     const float *weight, const float *bias, int rows, int cols,
                                     cudaStream_t stream);
// sum[r,c] += residual[r,c], then out = LayerNorm of sum, in one pass; all (rows, cols)
cudaError_t kernel_residual_layernorm_forward(float *out, float *mean, float *rstd, float *sum,
                                              const float *residual, const float *weight,
                                              const float *bias, int rows, int cols,
                                              cudaStream_t stream);
// din = … + residual (rows, cols; NULL: nothing is added);  dweight += …;  dbias += …
cudaError_t kernel_layernorm_backward(float *din, float *dweight, float *dbias, const float *dout,
                                      const float *in, const float *weight, const float *mean,
                                      const float *rstd, const float *residual, int rows, int cols,
                                      cudaStream_t stream);
// Causal softmax in place over the last dimension: att (n, T, T), row t keeps columns 0..t, scaled
// by `scale` first; the columns after t become 0.
cudaError_t kernel_causal_softmax_forward(float *att, int n, int T, float scale,
                                          cudaStream_t stream);
// datt (n,T,T) in: the gradient of the softmax's output; out: of its input (before the scale). att:
// the output
cudaError_t kernel_causal_softmax_backward(float *datt, const float *att, int n, int T, float scale,
                                           cudaStream_t stream);
// Causal attention of `heads` heads of queries without a (T,T) matrix. kv_heads of keys and values,
// which divide `heads`, are shared (grouped queries, Ainslie et al. 2023): head h reads number
// h / (heads / kv_heads). qkv (B,T,C + 2·kv_heads·hs), hs = C/heads: queries, keys and values side
// by side, of which head h owns columns h·hs … (h+1)·hs of its part. out (B,T,C):
// out[b,t,h] = Σ_s softmax(scale·q·k)[s]·v[s] over s = 0 … t. stats (B,heads,T,2) is what the
// backward needs of the softmax: each row's largest q·k, and 1 / Σ exp(scale·(q·k - it)).
// scale > 0; hs <= ATTENTION_MOST_COLUMNS.
#define ATTENTION_MOST_COLUMNS 128
cudaError_t kernel_attention_forward(float *out, float *stats, const float *qkv, int B, int T,
                                     int C, int heads, int kv_heads, float scale,
                                     cudaStream_t stream);
// dqkv, of qkv's shape, from dout (B,T,C) and what the forward read and wrote; its keys and values
// are sums over the heads that share them, in their order. delta (B,heads,T): scratch, which holds
// Σ dout·out over the head's columns afterwards.
cudaError_t kernel_attention_backward(float *dqkv, float *delta, const float *dout,
                                      const float *out, const float *stats, const float *qkv, int B,
                                      int T, int C, int heads, int kv_heads, float scale,
                                      cudaStream_t stream);
// Rotary positions (Su et al. 2021) in place: x (B,T,width), of which the first heads·hs columns
// are heads of hs columns each. Column i < hs/2 of a head and column i + hs/2 are a pair, turned by
// the angle direction·t·of_pair[i]: the product is a float, its sine and cosine are computed in
// double and rounded. direction is 1, or -1 for the backward; hs is even, <=
// ATTENTION_MOST_COLUMNS.
typedef struct RotaryFrequencies {
    float of_pair[ATTENTION_MOST_COLUMNS / 2];
} RotaryFrequencies;
cudaError_t kernel_rotary(float *x, int B, int T, int width, int heads, int hs,
                          RotaryFrequencies frequencies, int direction, cudaStream_t stream);
// RMSNorm (Zhang & Sennrich 2019): rstd[r] = 1/√(mean of in[r,c]² + eps), out[r,c] =
// in[r,c]·rstd[r] ·weight[c]; in, out (rows, cols), weight (cols), rstd (rows)
cudaError_t kernel_rmsnorm_forward(float *out, float *rstd, const float *in, const float *weight,
                                   int rows, int cols, float eps, cudaStream_t stream);
// sum[r,c] += residual[r,c], then out = RMSNorm of sum, in one pass; all (rows, cols)
cudaError_t kernel_residual_rmsnorm_forward(float *out, float *rstd, float *sum,
                                            const float *residual, const float *weight, int rows,
                                            int cols, float eps, cudaStream_t stream);
// din = … + residual (rows, cols; NULL: nothing is added);  dweight += …
cudaError_t kernel_rmsnorm_backward(float *din, float *dweight, const float *dout, const float *in,
                                    const float *weight, const float *rstd, const float *residual,
                                    int rows, int cols, cudaStream_t stream);
// SwiGLU (Shazeer 2020): out[r,c] = g·sigmoid(g)·u with g = in[r,c] and u = in[r,cols+c]; out
// (rows, cols), in (rows, 2·cols)
cudaError_t kernel_swiglu_forward(float *out, const float *in, int rows, int cols,
                                  cudaStream_t stream);
// din (rows, 2·cols) from dout (rows, cols) and in; din may be in itself
cudaError_t kernel_swiglu_backward(float *din, const float *dout, const float *in, int rows,
                                   int cols, cudaStream_t stream);
// out[b,t,:] = wte[tokens[b,t],:] + wpe[t,:]     out (B,T,C); tokens (B,T) int32 in [0, vocab)
// wpe may be NULL: then out is only wte's rows
cudaError_t kernel_embedding_forward(float *out, const int32_t *tokens, const float *wte,
                                     const float *wpe, int B, int T, int C, int vocab,
                                     cudaStream_t stream);
// dwte[token,:] += dout, dwpe[t,:] += dout (unless dwpe is NULL), in a fixed order
cudaError_t kernel_embedding_backward(float *dwte, float *dwpe, const float *dout,
                                      const int32_t *tokens, int B, int T, int C, int vocab,
                                      cudaStream_t stream);
// Softmax and cross entropy in one pass: losses[r] = -log softmax(logits[r,:])[targets[r]];
// dlogits = (softmax - onehot) · scale. dlogits may be NULL, or logits itself.
cudaError_t kernel_cross_entropy(float *losses, float *dlogits, const float *logits,
                                 const int32_t *targets, int rows, int vocab, float scale,
                                 cudaStream_t stream);

// ---- 8 bits: e4m3 (e4m3.h) ----
//
// A parameter is scaled by e4m3_scale of its amax, the bits of its largest |x[i]|, which is on the
// device: a power of two, so that scaling rounds nothing.

// *amax = the larger one of *amax and the bits of each |x[i]|
cudaError_t kernel_amax(uint32_t *amax, const float *x, size_t n, cudaStream_t stream);
// dst[i] = src[i] · scale as an e4m3
cudaError_t kernel_quantize_e4m3(uint8_t *dst, const float *src, const uint32_t *amax, size_t n,
                                 cudaStream_t stream);
// dst[r·n + i] = src[r·stride + i] / scale: a number of dst_type, rounded once; dst (rows, n)
cudaError_t kernel_dequantize_e4m3(DType dst_type, void *dst, const uint8_t *src, size_t stride,
                                   const uint32_t *amax, size_t rows, size_t n,
                                   cudaStream_t stream);

// ---- 4. Other types: bf16 and fp16 ----
//
// kernel_X_ex is kernel_X on arrays of `type` (void pointers); statistics and losses stay float. It
// widens what it reads to float, which is exact, computes and sums up as kernel_X does, and rounds
// each result once, to nearest, ties to even, as it stores it: bitwise kernel_X on the widened
// arrays, rounded. A kernel that does the work of several is still bitwise equal to those run one
// after another, so it rounds what they would store. With DTYPE_F32 it is kernel_X itself.

// dst[i] = src[i] as a number of the other type (rounding.h). From float to float it copies; dst
// may be src if the types are equally wide.
cudaError_t kernel_cast(DType dst_type, void *dst, DType src_type, const void *src, size_t n,
                        cudaStream_t stream);
// *found = 1 if any x[i] is infinite or NaN; else *found stays as it is. `found` is on the device.
cudaError_t kernel_check_finite(int32_t *found, DType type, const void *x, size_t n,
                                cudaStream_t stream);
cudaError_t kernel_scale_ex(DType type, void *x, float factor, size_t n, cudaStream_t stream);
// x[i] = 0 with probability p (below 1), else x[i] / (1 - p): it is 0 where dropout_number (mix.h)
// of key and first + i, in [0, 2^24), is below p·2^24.
cudaError_t kernel_dropout_ex(DType type, void *x, float p, uint64_t key, uint64_t first, size_t n,
                              cudaStream_t stream);
// dst[i] += src[i], each of its own type; the sum is a float, rounded to dst's type
cudaError_t kernel_add_ex(DType dst_type, void *dst, DType src_type, const void *src, size_t n,
                          cudaStream_t stream);
// dst[i] += src[i] / divisor, each of its own type; computed in float, rounded to dst's type
cudaError_t kernel_add_divided_ex(DType dst_type, void *dst, DType src_type, const void *src,
                                  float divisor, size_t n, cudaStream_t stream);
cudaError_t kernel_add_out_ex(DType type, void *out, const void *a, const void *b, size_t n,
                              cudaStream_t stream);
cudaError_t kernel_sum_rows_ex(DType type, void *out, const void *x, int rows, int cols,
                               cudaStream_t stream);
cudaError_t kernel_broadcast_bias_ex(DType type, void *out, const void *bias, int rows, int cols,
                                     cudaStream_t stream);
cudaError_t kernel_gelu_forward_ex(DType type, void *out, const void *in, size_t n,
                                   cudaStream_t stream);
cudaError_t kernel_gelu_backward_ex(DType type, void *din, const void *dout, const void *in,
                                    size_t n, cudaStream_t stream);
cudaError_t kernel_bias_gelu_forward_ex(DType type, void *out, void *y, const void *bias, int rows,
                                        int cols, cudaStream_t stream);
cudaError_t kernel_bias_gelu_backward_ex(DType type, void *din, void *dbias, const void *dout,
                                         const void *y, int rows, int cols, cudaStream_t stream);
cudaError_t kernel_layernorm_forward_ex(DType type, void *out, float *mean, float *rstd,
                                        const void *in, const void *weight, const void *bias,
                                        int rows, int cols, cudaStream_t stream);
cudaError_t kernel_residual_layernorm_forward_ex(DType type, void *out, float *mean, float *rstd,
                                                 void *sum, const void *residual,
                                                 const void *weight, const void *bias, int rows,
                                                 int cols, cudaStream_t stream);
cudaError_t kernel_layernorm_backward_ex(DType type, void *din, void *dweight, void *dbias,
                                         const void *dout, const void *in, const void *weight,
                                         const float *mean, const float *rstd, const void *residual,
                                         int rows, int cols, cudaStream_t stream);
cudaError_t kernel_causal_softmax_forward_ex(DType type, void *att, int n, int T, float scale,
                                             cudaStream_t stream);
cudaError_t kernel_causal_softmax_backward_ex(DType type, void *datt, const void *att, int n, int T,
                                              float scale, cudaStream_t stream);
cudaError_t kernel_attention_forward_ex(DType type, void *out, float *stats, const void *qkv, int B,
                                        int T, int C, int heads, int kv_heads, float scale,
                                        cudaStream_t stream);
// The same of rows from … T-1 of one sequence, and no statistics: out (T - from, C).
cudaError_t kernel_attention_rows_ex(DType type, void *out, const void *qkv, int from, int T, int C,
                                     int heads, int kv_heads, float scale, cudaStream_t stream);
cudaError_t kernel_attention_backward_ex(DType type, void *dqkv, float *delta, const void *dout,
                                         const void *out, const float *stats, const void *qkv,
                                         int B, int T, int C, int heads, int kv_heads, float scale,
                                         cudaStream_t stream);
cudaError_t kernel_rotary_ex(DType type, void *x, int B, int T, int width, int heads, int hs,
                             RotaryFrequencies frequencies, int direction, cudaStream_t stream);
cudaError_t kernel_rmsnorm_forward_ex(DType type, void *out, float *rstd, const void *in,
                                      const void *weight, int rows, int cols, float eps,
                                      cudaStream_t stream);
cudaError_t kernel_residual_rmsnorm_forward_ex(DType type, void *out, float *rstd, void *sum,
                                               const void *residual, const void *weight, int rows,
                                               int cols, float eps, cudaStream_t stream);
cudaError_t kernel_rmsnorm_backward_ex(DType type, void *din, void *dweight, const void *dout,
                                       const void *in, const void *weight, const float *rstd,
                                       const void *residual, int rows, int cols,
                                       cudaStream_t stream);
cudaError_t kernel_swiglu_forward_ex(DType type, void *out, const void *in, int rows, int cols,
                                     cudaStream_t stream);
cudaError_t kernel_swiglu_backward_ex(DType type, void *din, const void *dout, const void *in,
                                      int rows, int cols, cudaStream_t stream);
cudaError_t kernel_embedding_forward_ex(DType type, void *out, const int32_t *tokens,
                                        const void *wte, const void *wpe, int B, int T, int C,
                                        int vocab, cudaStream_t stream);
cudaError_t kernel_embedding_backward_ex(DType type, void *dwte, void *dwpe, const void *dout,
                                         const int32_t *tokens, int B, int T, int C, int vocab,
                                         cudaStream_t stream);
cudaError_t kernel_cross_entropy_ex(DType type, float *losses, void *dlogits, const void *logits,
                                    const int32_t *targets, int rows, int vocab, float scale,
                                    cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
