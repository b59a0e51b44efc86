/* A program as it was written for CUDA 12, with the headers that such programs include: properties
 * that CUDA 13 dropped, calls for kernels of its own, names for NVIDIA's tools.
 */
#define CUDART_VERSION 12080
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <device_launch_parameters.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvtx3.hpp>

#include "ok.h"

static void kernel(float *x)
{
    *x = 1;
}

static int query(int device)
{
    int wrong = 0, khz, blocks, block, grid;
    size_t shared;
    cudaDeviceProp p;
    nvtx3::scoped_range range("query");
    OK(cudaSetDevice(device));
    OK(cudaGetDeviceProperties(&p, device));
    OK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, device));
    wrong += p.clockRate != khz || p.memoryClockRate <= 0 || p.deviceOverlap != 1;
    wrong += p.singleToDoublePrecisionPerfRatio < 1 || p.kernelExecTimeoutEnabled != 0;
    wrong += p.computeMode != cudaComputeModeDefault;
    OK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
    MUST(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 30) ==
         cudaErrorInvalidValue);
    OK(cudaFuncSetCacheConfig(kernel, cudaFuncCachePreferShared));
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 0));
    wrong += blocks != p.maxThreadsPerMultiProcessor / 256;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 32, 100 << 10));
    wrong += blocks != (int)(p.sharedMemPerMultiprocessor / (101 << 10));
    OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, kernel));
    wrong += block != 1024 || grid != p.multiProcessorCount * p.maxThreadsPerMultiProcessor / 1024;
    OK(cudaOccupancyAvailableDynamicSMemPerBlock(&shared, (const void *)kernel, 2, 64));
    wrong += shared == 0 || 2 * shared > p.sharedMemPerMultiprocessor;
    OK(cudaThreadSynchronize());
    return wrong;
}

int main()
{
    int devices, wrong = 0;
    cublasHandle_t handle;
    cudaEmulationStrategy strategy = CUDA_EMULATION_STRATEGY_DEFAULT;
    CUdevice unused = 0;
    NVTX3_FUNC_RANGE();
    OK(cudaGetDeviceCount(&devices));
    for (int d = 0; d < devices; d++) {
        nvtxRangePushA("device");
        wrong += query(d + unused);
        wrong += nvtxRangePop() != 1;
    }
    OK(cublasCreate(&handle));
    OK(cublasSetEmulationStrategy(handle, CUDA_EMULATION_STRATEGY_EAGER));
    OK(cublasGetEmulationStrategy(handle, &strategy));
    MUST(strategy == CUDA_EMULATION_STRATEGY_EAGER);
    OK(cublasDestroy(handle));
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
