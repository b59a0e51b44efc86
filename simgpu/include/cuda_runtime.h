/* cuda_runtime.h: cuda_runtime_api.h and, for C++, the allocation calls that know the pointer's
 * type.
 *
 * Interface: cudaMalloc(&p, bytes), cudaMallocManaged, cudaMallocPitch, cudaMallocHost,
 * cudaMallocAsync, cudaMallocFromPoolAsync, cudaHostGetDevicePointer with a T ** where the C call
 * wants a void **; cudaStreamAttachMemAsync with a T *; cudaEventCreate with flags.
 */
#if defined(__CUDA_RUNTIME_H__) && !defined(SIMGPU_CUDA_RUNTIME)
#error "NVIDIA's cuda_runtime.h comes before simgpu's: put simgpu/include first"
#endif
#ifndef __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_H__
#define SIMGPU_CUDA_RUNTIME

#include "cuda_runtime_api.h"
#include "driver_functions.h"
#include "library_types.h"
#include "vector_functions.h"

#ifdef __cplusplus
// Inlined and artificial: the call site is the program's line, not the one here.
#define SIMGPU_TYPED template <class T> __attribute__((always_inline, artificial)) static inline

SIMGPU_TYPED cudaError_t cudaMalloc(T **devPtr, size_t size)
{
    return ::cudaMalloc((void **)(void *)devPtr, size);
}
SIMGPU_TYPED cudaError_t cudaMallocManaged(T **devPtr, size_t size,
                                           unsigned int flags = cudaMemAttachGlobal)
{
    return ::cudaMallocManaged((void **)(void *)devPtr, size, flags);
}
SIMGPU_TYPED cudaError_t cudaMallocPitch(T **devPtr, size_t *pitch, size_t width, size_t height)
{
    return ::cudaMallocPitch((void **)(void *)devPtr, pitch, width, height);
}
SIMGPU_TYPED cudaError_t cudaHostGetDevicePointer(T **pDevice, void *pHost, unsigned int flags)
{
    return ::cudaHostGetDevicePointer((void **)(void *)pDevice, pHost, flags);
}
SIMGPU_TYPED cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, T *devPtr, size_t length = 0,
                                                  unsigned int flags = cudaMemAttachSingle)
{
    return ::cudaStreamAttachMemAsync(stream, (void *)devPtr, length, flags);
}
SIMGPU_TYPED cudaError_t cudaMallocHost(T **ptr, size_t size, unsigned int flags = 0)
{
    return ::cudaHostAlloc((void **)(void *)ptr, size, flags);
}
SIMGPU_TYPED cudaError_t cudaHostAlloc(T **ptr, size_t size, unsigned int flags)
{
    return ::cudaHostAlloc((void **)(void *)ptr, size, flags);
}
SIMGPU_TYPED cudaError_t cudaMallocAsync(T **ptr, size_t size, cudaStream_t stream)
{
    return ::cudaMallocAsync((void **)(void *)ptr, size, stream);
}
SIMGPU_TYPED cudaError_t cudaMallocAsync(T **ptr, size_t size, cudaMemPool_t memPool,
                                         cudaStream_t stream)
{
    return ::cudaMallocFromPoolAsync((void **)(void *)ptr, size, memPool, stream);
}
SIMGPU_TYPED cudaError_t cudaMallocFromPoolAsync(T **ptr, size_t size, cudaMemPool_t memPool,
                                                 cudaStream_t stream)
{
    return ::cudaMallocFromPoolAsync((void **)(void *)ptr, size, memPool, stream);
}
SIMGPU_TYPED cudaError_t cudaFuncSetAttribute(T *func, enum cudaFuncAttribute attr, int value)
{
    return ::cudaFuncSetAttribute((const void *)func, attr, value);
}
SIMGPU_TYPED cudaError_t cudaFuncSetCacheConfig(T *func, enum cudaFuncCache cacheConfig)
{
    return ::cudaFuncSetCacheConfig((const void *)func, cacheConfig);
}
SIMGPU_TYPED cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, T func,
                                                                       int blockSize,
                                                                       size_t dynamicSMemSize)
{
    return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks, (const void *)func, blockSize,
                                                           dynamicSMemSize);
}
// The block size that fills a multiprocessor best, the largest of them: from 1024 down, by warps.
SIMGPU_TYPED cudaError_t cudaOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize,
                                                            T func, size_t dynamicSMemSize = 0,
                                                            int blockSizeLimit = 0)
{
    int device = 0, processors = 0, best = 0, limit = blockSizeLimit ? blockSizeLimit : 1024;
    cudaError_t error = ::cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = ::cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    for (int size = limit / 32 * 32; size >= 32 && error == cudaSuccess; size -= 32) {
        int blocks = 0;
        error = ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)func, size,
                                                                dynamicSMemSize);
        if (error != cudaSuccess || blocks * size <= best) continue;
        best = blocks * size;
        *blockSize = size;
        *minGridSize = blocks * processors;
    }
    return error;
}
#undef SIMGPU_TYPED

__attribute__((always_inline, artificial)) static inline cudaError_t
cudaEventCreate(cudaEvent_t *event, unsigned int flags)
{
    return ::cudaEventCreateWithFlags(event, flags);
}
#endif
#endif
