/* bias.c: lays a bias under a matrix, to which a GEMM with beta = 1 then adds the product.
 *
 * Interface: kernel_broadcast_bias, kernel_broadcast_bias_ex.
 */
#include <string.h>

#include "kernels.h"
#include "typed.h"

static cudaError_t broadcast(SimgpuOp *op, DType type, void *out, const void *bias, int rows,
                             int cols)
{
    size_t width = (size_t)cols, bytes = width * (size_t)dtype_bytes(type);
    char *to = typed_write(op, type, out, (size_t)rows * width);
    const void *row = typed_read(op, type, bias, width);
    if (simgpu_ready(op))
        for (size_t r = 0; r < (size_t)rows; r++) memcpy(to + r * bytes, row, bytes);
    return simgpu_end(op);
}

cudaError_t kernel_broadcast_bias(float *out, const float *bias, int rows, int cols,
                                  cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_broadcast_bias", stream);
    return broadcast(&op, DTYPE_F32, out, bias, rows, cols);
}

cudaError_t kernel_broadcast_bias_ex(DType type, void *out, const void *bias, int rows, int cols,
                                     cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_broadcast_bias", type, stream);
    return broadcast(&op, type, out, bias, rows, cols);
}
