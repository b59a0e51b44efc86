/* bias.c: lays a bias under a matrix, to which a GEMM with beta = 1 then adds the product.
 *
 * Interface: kernel_broadcast_bias.
 */
#include <string.h>

#include "kernels.h"
#include "simgpu.h"

cudaError_t kernel_broadcast_bias(float *out, const float *bias, int rows, int cols,
                               cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_broadcast_bias", stream);
    size_t width = (size_t)cols;
    float *to = simgpu_write(&op, out, (size_t)rows * width * sizeof *out);
    const float *row = simgpu_read(&op, bias, width * sizeof *bias);
    if (simgpu_ready(&op))
        for (size_t r = 0; r < (size_t)rows; r++) memcpy(to + r * width, row, width * sizeof *row);
    return simgpu_end(&op);
}
