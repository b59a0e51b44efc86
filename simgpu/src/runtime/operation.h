/* runtime/: the calls of the CUDA runtime that need all the rooms below it.
 *
 *   operation.c     simgpu.h's begin … end, used by kernels, copies, cuBLAS and collectives alike
 *   copy.c          cudaMemcpy and cudaMemset
 *   noted.c         calls that a graph makes again, from their function and arguments
 *   graph_*.c       executable graphs and their launch; nodes that a program adds; their memory
 *   free.c          cudaFree, and memory that is allocated and freed in the order of a stream
 *   stream_calls.c  records, waits, and functions of the host in the order of a stream
 *   device_calls.c  choosing devices, waiting for them, resetting them
 *   properties.c    the properties of a device
 *
 * Beyond simgpu.h: here an operation finds its stream, is ordered and checked, and is written to
 * the log (gpulog.h).
 */
#ifndef SIMGPU_OPERATION_H
#define SIMGPU_OPERATION_H

#include "memory/shadow.h"
#include "simgpu.h"

// Begins an operation that is no kernel.
SimgpuOp sim_begin(GpuOp kind, const char *name, cudaStream_t stream, const void *site);
// As simgpu_read/write/update; `host_ok` also allows pageable and pinned host memory.
void *sim_touch(SimgpuOp *op, const void *ptr, size_t bytes, GpuAccess access, bool host_ok);
// The same for a range with gaps (memory/shadow.h): `logged` is for the log, `access` is the use of
// the bytes of the shape.
void *sim_touch_shape(SimgpuOp *op, GpuRange logged, const SimShape *shape, GpuAccess access,
                      bool host_ok);
// The same for a range that the operation only reads, and only before it returns. If the range
// borrows bytes, the result is the address of those (memory/contents.h: USE_READ).
const void *sim_touch_read_only(SimgpuOp *op, GpuRange range, const SimShape *shape);
// The same for a range that the operation overwrites completely. Before it writes, the caller calls
// sim_overwritten or another of those functions (memory/contents.h: USE_OVERWRITE).
void *sim_touch_overwrite(SimgpuOp *op, GpuRange range, bool host_ok);
// Ends the operation like simgpu_end. The host has waited for all before it, but not for the
// operation.
cudaError_t sim_end_begun(SimgpuOp *op);

// cudaMemcpy2D or cudaMemcpy2DAsync, with the name of the call that needs it.
typedef struct SimRows {
    void *dst;
    const void *src;
    size_t dpitch, spitch, width, height;
    enum cudaMemcpyKind kind;
} SimRows;
cudaError_t sim_copy_rows(const char *name, const void *site, SimRows rows, bool async,
                          cudaStream_t stream);
// The same for cudaMemset2DAsync.
cudaError_t sim_fill_rows(const char *name, void *ptr, size_t pitch, int value, size_t width,
                          size_t height, cudaStream_t stream, const void *site);
// cudaMallocAsync from a pool (NULL: the current one), and cudaFreeAsync.
cudaError_t sim_allocate_on_stream(const char *call, void **ptr, size_t size, cudaStream_t stream,
                                   cudaMemPool_t pool, const void *site);
cudaError_t sim_free_on_stream(void *ptr, cudaStream_t stream, const void *site);
cudaError_t sim_free(void *ptr, bool from_nccl, const void *site); // cudaFree and ncclMemFree

#endif
