/* cpu_kernels.h: the CPU's kernels under other names, for host memory: cpu_kernel_X beside
 * kernel_X.
 *
 * Interface: cpu_kernel_X for each kernel_X of kernels.h, and for those of bf16 and fp16 whose
 * results are exact; host_entry: what the last of them noted.
 */
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H

#include "gpulog.h"
#include "kernels.h"

extern GpuLogEntry host_entry;

#ifndef CPU_KERNELS_HERE // where they are compiled, kernels.h declares them by these names already
#define HOST_KERNEL(name) extern __typeof__(kernel_##name) cpu_kernel_##name
HOST_KERNEL(fill);
HOST_KERNEL(scale);
HOST_KERNEL(add);
HOST_KERNEL(add_out);
HOST_KERNEL(add_divided);
HOST_KERNEL(adamw);
HOST_KERNEL(sgd);
HOST_KERNEL(sum_squares);
HOST_KERNEL(mean);
HOST_KERNEL(sum_rows);
HOST_KERNEL(broadcast_bias);
HOST_KERNEL(gelu_forward);
HOST_KERNEL(gelu_backward);
HOST_KERNEL(bias_gelu_forward);
HOST_KERNEL(bias_gelu_backward);
HOST_KERNEL(layernorm_forward);
HOST_KERNEL(residual_layernorm_forward);
HOST_KERNEL(layernorm_backward);
HOST_KERNEL(causal_softmax_forward);
HOST_KERNEL(causal_softmax_backward);
HOST_KERNEL(attention_forward);
HOST_KERNEL(attention_backward);
HOST_KERNEL(rotary);
HOST_KERNEL(rmsnorm_forward);
HOST_KERNEL(residual_rmsnorm_forward);
HOST_KERNEL(rmsnorm_backward);
HOST_KERNEL(swiglu_forward);
HOST_KERNEL(swiglu_backward);
HOST_KERNEL(embedding_forward);
HOST_KERNEL(embedding_backward);
HOST_KERNEL(cross_entropy);
HOST_KERNEL(amax);
HOST_KERNEL(quantize_e4m3);
HOST_KERNEL(dequantize_e4m3);
HOST_KERNEL(cast);
HOST_KERNEL(check_finite);
HOST_KERNEL(scale_ex);
HOST_KERNEL(attention_rows_ex);
HOST_KERNEL(dropout_ex);
HOST_KERNEL(add_ex);
HOST_KERNEL(add_divided_ex);
HOST_KERNEL(add_out_ex);
HOST_KERNEL(broadcast_bias_ex);
#endif

#endif
