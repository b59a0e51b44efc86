/* What a program asks of its devices before it begins: properties, attributes, limits, memory. The
 * answers must agree with each other.
 */
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include <cstring>

#include "ok.h"

static int attribute_of(cudaDeviceAttr attribute, int device)
{
    int value = -1;
    OK(cudaDeviceGetAttribute(&value, attribute, device));
    return value;
}

static int query(int device)
{
    int wrong = 0, found = -1, least, greatest;
    size_t free_bytes, total, stack;
    char bus[32];
    cudaDeviceProp p;
    OK(cudaInitDevice(device, 0, 0));
    OK(cudaSetDevice(device));
    OK(cudaGetDeviceProperties(&p, device));
    wrong += std::strlen(p.name) == 0 || p.warpSize != 32 || p.totalGlobalMem == 0;
    wrong += attribute_of(cudaDevAttrMultiProcessorCount, device) != p.multiProcessorCount;
    wrong += attribute_of(cudaDevAttrComputeCapabilityMajor, device) != p.major;
    wrong += attribute_of(cudaDevAttrMaxThreadsPerBlock, device) != p.maxThreadsPerBlock;
    wrong += attribute_of(cudaDevAttrManagedMemory, device) != p.managedMemory;
    wrong += !attribute_of(cudaDevAttrUnifiedAddressing, device);
    OK(cudaDeviceGetPCIBusId(bus, sizeof bus, device));
    OK(cudaDeviceGetByPCIBusId(&found, bus));
    wrong += found != device;
    OK(cudaMemGetInfo(&free_bytes, &total));
    wrong += free_bytes > total || total > p.totalGlobalMem;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    wrong += greatest > least;
    OK(cudaDeviceSetLimit(cudaLimitStackSize, 4096));
    OK(cudaDeviceGetLimit(&stack, cudaLimitStackSize));
    wrong += stack < 4096;
    OK(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1));
    return wrong;
}

int main()
{
    int devices, driver, runtime, wrong = 0, access;
    OK(cudaDriverGetVersion(&driver));
    OK(cudaRuntimeGetVersion(&runtime));
    OK(cudaGetDeviceCount(&devices));
    MUST(driver >= runtime && runtime >= 13000);
    OK(cudaProfilerStart());
    for (int d = 0; d < devices; d++) wrong += query(d);
    for (int d = 1; d < devices; d++) {
        OK(cudaDeviceGetP2PAttribute(&access, cudaDevP2PAttrAccessSupported, d - 1, d));
        wrong += access != 1;
    }
    OK(cudaProfilerStop());
    MUST(std::strcmp(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice") == 0);
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
