/* compat/kernels.c: the resources of a GPU's multiprocessor for blocks of a kernel. A kernel is a C
 * function here, and its registers are not known: so only threads, blocks and shared memory limit
 * it.
 *
 * Interface: cudaFuncSetAttribute, cudaFuncSetCacheConfig, the cudaOccupancy* calls.
 */
#include "compat/compat.h"

cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
    SIM_ENTER();
    struct cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, sim_current_device());
    if (error != cudaSuccess) return error;
    if (!func) return sim_leave(cudaErrorInvalidDeviceFunction);
    if (attr < cudaFuncAttributeMaxDynamicSharedMemorySize || attr >= cudaFuncAttributeMax ||
        (attr == cudaFuncAttributeMaxDynamicSharedMemorySize &&
         (value < 0 || (size_t)value > p.sharedMemPerBlockOptin)))
        return sim_leave(cudaErrorInvalidValue);
    return cudaSuccess;
}

cudaError_t cudaFuncSetCacheConfig(const void *func, enum cudaFuncCache cacheConfig)
{
    SIM_ENTER();
    if (!func) return sim_leave(cudaErrorInvalidDeviceFunction);
    if ((unsigned)cacheConfig > cudaFuncCachePreferEqual) return sim_leave(cudaErrorInvalidValue);
    return cudaSuccess;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, const void *func,
                                                                   int blockSize,
                                                                   size_t dynamicSMemSize,
                                                                   unsigned int flags)
{
    SIM_ENTER();
    struct cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, sim_current_device());
    if (error != cudaSuccess) return error;
    if (!func) return sim_leave(cudaErrorInvalidDeviceFunction);
    if (!numBlocks || blockSize <= 0 || flags > cudaOccupancyDisableCachingOverride)
        return sim_leave(cudaErrorInvalidValue);
    int threads = (blockSize + p.warpSize - 1) / p.warpSize * p.warpSize; // whole warps
    size_t shared = dynamicSMemSize + p.reservedSharedMemPerBlock;
    *numBlocks = smaller(p.maxThreadsPerMultiProcessor / threads, p.maxBlocksPerMultiProcessor);
    if (dynamicSMemSize > 0)
        *numBlocks = smaller(*numBlocks, (int)(p.sharedMemPerMultiprocessor / shared));
    if (blockSize > p.maxThreadsPerBlock || dynamicSMemSize > p.sharedMemPerBlockOptin)
        *numBlocks = 0;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, const void *func,
                                                          int blockSize, size_t dynamicSMemSize)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        numBlocks, func, blockSize, dynamicSMemSize, cudaOccupancyDefault);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, const void *func,
                                                      int numBlocks, int blockSize)
{
    SIM_ENTER();
    struct cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, sim_current_device());
    if (error != cudaSuccess) return error;
    if (!func) return sim_leave(cudaErrorInvalidDeviceFunction);
    if (!dynamicSmemSize || numBlocks <= 0 || blockSize <= 0)
        return sim_leave(cudaErrorInvalidValue);
    size_t share = p.sharedMemPerMultiprocessor / (size_t)numBlocks;
    *dynamicSmemSize =
        share > p.reservedSharedMemPerBlock ? share - p.reservedSharedMemPerBlock : 0;
    if (*dynamicSmemSize > p.sharedMemPerBlockOptin) *dynamicSmemSize = p.sharedMemPerBlockOptin;
    return cudaSuccess;
}
