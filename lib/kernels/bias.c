/* bias.c: lays a bias under a matrix, to which a GEMM with beta = 1 then adds the product. */
#include <string.h>

#include "kernels.h"
#include "pieces.h"
#include "typed.h"

typedef struct Broadcast {
    char *to;
    const void *row;
    size_t bytes; // of a row
} Broadcast;

static void broadcast_rows(void *arg, size_t begin, size_t end)
{
    const Broadcast *b = arg;
    for (size_t r = begin; r < end; r++) memcpy(b->to + r * b->bytes, b->row, b->bytes);
}

static cudaError_t broadcast(SimgpuOp *op, DType type, void *out, const void *bias, int rows,
                             int cols)
{
    size_t width = (size_t)cols;
    Broadcast b = {.bytes = width * (size_t)dtype_bytes(type)};
    b.to = typed_write(op, type, out, (size_t)rows * width);
    b.row = typed_read(op, type, bias, width);
    if (simgpu_ready(op)) simgpu_parallel((size_t)rows, piece_rows(width), broadcast_rows, &b);
    return simgpu_end(op);
}

cudaError_t kernel_broadcast_bias(float *out, const float *bias, int rows, int cols,
                                  cudaStream_t stream)
{
    SimgpuOp op =
        SIMGPU_BEGIN("kernel_broadcast_bias", stream, kernel_broadcast_bias, out, bias, rows, cols);
    return broadcast(&op, DTYPE_F32, out, bias, rows, cols);
}

cudaError_t kernel_broadcast_bias_ex(DType type, void *out, const void *bias, int rows, int cols,
                                     cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_broadcast_bias", type, stream, kernel_broadcast_bias_ex, type,
                              out, bias, rows, cols);
    return broadcast(&op, type, out, bias, rows, cols);
}
