/* cpu_kernels.c: lib/kernels/X.c a second time, as cpu_kernel_X and for host memory. Compiled with
 * -Itests/cuda/host in front of all others, where simgpu.h is one that lets every pointer through.
 *
 * Interface: cpu_kernels.h.
 */
#define CPU_KERNELS_HERE
#define kernel_fill cpu_kernel_fill
#define kernel_scale cpu_kernel_scale
#define kernel_add cpu_kernel_add
#define kernel_add_out cpu_kernel_add_out
#define kernel_add_divided cpu_kernel_add_divided
#define kernel_adamw cpu_kernel_adamw
#define kernel_adamw_numbers cpu_kernel_adamw_numbers
#define kernel_clip_factor cpu_kernel_clip_factor
#define kernel_scale_by cpu_kernel_scale_by
#define kernel_sgd cpu_kernel_sgd
#define kernel_sum_squares cpu_kernel_sum_squares
#define kernel_mean cpu_kernel_mean
#define kernel_sum_rows cpu_kernel_sum_rows
#define kernel_broadcast_bias cpu_kernel_broadcast_bias
#define kernel_gelu_forward cpu_kernel_gelu_forward
#define kernel_gelu_backward cpu_kernel_gelu_backward
#define kernel_bias_gelu_forward cpu_kernel_bias_gelu_forward
#define kernel_bias_gelu_backward cpu_kernel_bias_gelu_backward
#define kernel_layernorm_forward cpu_kernel_layernorm_forward
#define kernel_residual_layernorm_forward cpu_kernel_residual_layernorm_forward
#define kernel_layernorm_backward cpu_kernel_layernorm_backward
#define kernel_causal_softmax_forward cpu_kernel_causal_softmax_forward
#define kernel_causal_softmax_backward cpu_kernel_causal_softmax_backward
#define kernel_attention_forward cpu_kernel_attention_forward
#define kernel_attention_backward cpu_kernel_attention_backward
#define kernel_rotary cpu_kernel_rotary
#define kernel_rmsnorm_forward cpu_kernel_rmsnorm_forward
#define kernel_residual_rmsnorm_forward cpu_kernel_residual_rmsnorm_forward
#define kernel_rmsnorm_backward cpu_kernel_rmsnorm_backward
#define kernel_swiglu_forward cpu_kernel_swiglu_forward
#define kernel_swiglu_backward cpu_kernel_swiglu_backward
#define kernel_embedding_forward cpu_kernel_embedding_forward
#define kernel_embedding_backward cpu_kernel_embedding_backward
#define kernel_cross_entropy cpu_kernel_cross_entropy
#define kernel_amax cpu_kernel_amax
#define kernel_quantize_e4m3 cpu_kernel_quantize_e4m3
#define kernel_dequantize_e4m3 cpu_kernel_dequantize_e4m3
#define kernel_cast cpu_kernel_cast
#define kernel_check_finite cpu_kernel_check_finite
#define kernel_scale_ex cpu_kernel_scale_ex
#define kernel_attention_rows_ex cpu_kernel_attention_rows_ex
#define kernel_dropout_ex cpu_kernel_dropout_ex
#define kernel_add_ex cpu_kernel_add_ex
#define kernel_add_divided_ex cpu_kernel_add_divided_ex
#define kernel_add_out_ex cpu_kernel_add_out_ex
#define kernel_sum_rows_ex cpu_kernel_sum_rows_ex
#define kernel_broadcast_bias_ex cpu_kernel_broadcast_bias_ex
#define kernel_gelu_forward_ex cpu_kernel_gelu_forward_ex
#define kernel_gelu_backward_ex cpu_kernel_gelu_backward_ex
#define kernel_bias_gelu_forward_ex cpu_kernel_bias_gelu_forward_ex
#define kernel_bias_gelu_backward_ex cpu_kernel_bias_gelu_backward_ex
#define kernel_layernorm_forward_ex cpu_kernel_layernorm_forward_ex
#define kernel_residual_layernorm_forward_ex cpu_kernel_residual_layernorm_forward_ex
#define kernel_layernorm_backward_ex cpu_kernel_layernorm_backward_ex
#define kernel_causal_softmax_forward_ex cpu_kernel_causal_softmax_forward_ex
#define kernel_causal_softmax_backward_ex cpu_kernel_causal_softmax_backward_ex
#define kernel_attention_forward_ex cpu_kernel_attention_forward_ex
#define kernel_attention_backward_ex cpu_kernel_attention_backward_ex
#define kernel_rotary_ex cpu_kernel_rotary_ex
#define kernel_rmsnorm_forward_ex cpu_kernel_rmsnorm_forward_ex
#define kernel_residual_rmsnorm_forward_ex cpu_kernel_residual_rmsnorm_forward_ex
#define kernel_rmsnorm_backward_ex cpu_kernel_rmsnorm_backward_ex
#define kernel_swiglu_forward_ex cpu_kernel_swiglu_forward_ex
#define kernel_swiglu_backward_ex cpu_kernel_swiglu_backward_ex
#define kernel_embedding_forward_ex cpu_kernel_embedding_forward_ex
#define kernel_embedding_backward_ex cpu_kernel_embedding_backward_ex
#define kernel_cross_entropy_ex cpu_kernel_cross_entropy_ex

#include "cpu_kernels.h"

GpuLogEntry host_entry;

#include "../../lib/kernels/attention.c"
#include "../../lib/kernels/bias.c"
#include "../../lib/kernels/cast.c"
#include "../../lib/kernels/cross_entropy.c"
#include "../../lib/kernels/e4m3.c"
#include "../../lib/kernels/elementwise.c"
#include "../../lib/kernels/embedding.c"
#include "../../lib/kernels/gelu.c"
#include "../../lib/kernels/layernorm.c"
#include "../../lib/kernels/optimizer.c"
#include "../../lib/kernels/reduce.c"
#include "../../lib/kernels/rmsnorm.c"
#include "../../lib/kernels/rotary.c"
#include "../../lib/kernels/softmax.c"
#include "../../lib/kernels/swiglu.c"
#include "../../lib/kernels/typed.c"
