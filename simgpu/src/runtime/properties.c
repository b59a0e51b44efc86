/* properties.c: what a device is: its properties, its place, its versions.
 *
 * Interface: cudaGetDeviceProperties, cudaDeviceGetAttribute, cudaDeviceGetPCIBusId,
 * cudaDeviceGetByPCIBusId, cudaDeviceGetStreamPriorityRange, cudaDriverGetVersion,
 * cudaRuntimeGetVersion.
 */
#include <stdio.h>
#include <string.h>

#include "core/config.h"
#include "core/error.h"
#include "memory/device.h"

#define LAST_ATTRIBUTE 147 // of CUDA 13
#define PCI_BUSES 256      // of a domain

// Figures that are neither measured nor used, only plausible: a program may print them, or divide
// by them. The name says that this is no hardware.
// Nobody can use a texture here; programs print what a device would allow.
static void describe_textures(struct cudaDeviceProp *p)
{
    p->textureAlignment = p->surfaceAlignment = 512;
    p->texturePitchAlignment = 32;
    p->maxTexture1D = p->maxTexture2D[0] = 131072;
    p->maxTexture2D[1] = 65536;
    for (int i = 0; i < 3; i++) p->maxTexture3D[i] = p->maxSurface3D[i] = 16384;
    for (int i = 0; i < 2; i++) p->maxTexture2DLayered[i] = p->maxTexture2DGather[i] = 32768;
    p->maxTexture1DLayered[0] = 32768;
    p->maxTexture1DLayered[1] = p->maxTexture2DLayered[2] = 2048;
    p->maxTextureCubemap = 32768;
}

static void describe_device(struct cudaDeviceProp *p, int device)
{
    memset(p, 0, sizeof *p);
    int physical = sim_config()->physical[device];
    snprintf(p->name, sizeof p->name, "simgpu simulated GPU %d", physical);
    sim_device_uuid(physical, p->uuid.bytes);
    p->totalGlobalMem = sim_config()->memory;
    p->sharedMemPerBlock = 48 << 10;
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->memPitch = 0x7fffffff;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 65536;
    p->major = 8;
    p->minor = 0;
    p->multiProcessorCount = 108;
    p->canMapHostMemory = 1;
    p->concurrentKernels = 1;
    p->pciDomainID = (physical + 1) / PCI_BUSES;
    p->pciBusID = (physical + 1) % PCI_BUSES;
    p->asyncEngineCount = 2;
    p->unifiedAddressing = 1;
    p->memoryBusWidth = 5120;
    p->l2CacheSize = 40 << 20;
    p->maxThreadsPerMultiProcessor = 2048;
    p->streamPrioritiesSupported = 1;
    p->globalL1CacheSupported = p->localL1CacheSupported = 1;
    p->sharedMemPerMultiprocessor = 164 << 10;
    p->regsPerMultiprocessor = 65536;
    p->managedMemory = p->concurrentManagedAccess = 1;
    p->computePreemptionSupported = 1;
    p->canUseHostPointerForRegisteredMem = 1;
    p->cooperativeLaunch = 1;
    p->sharedMemPerBlockOptin = 163 << 10;
    p->maxBlocksPerMultiProcessor = 32;
    p->reservedSharedMemPerBlock = 1 << 10;
    p->hostRegisterSupported = 1;
    p->memoryPoolsSupported = 1;
    describe_textures(p);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    SIM_ENTER();
    if (!prop) return sim_leave(cudaErrorInvalidValue);
    if (!sim_is_device(device)) return sim_leave(cudaErrorInvalidDevice);
    describe_device(prop, device);
    return cudaSuccess;
}

// An attribute of the device that p describes; 0 for a feature that a simulated device does not
// have.
static int attribute(enum cudaDeviceAttr attr, const struct cudaDeviceProp *p)
{
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock: return p->maxThreadsPerBlock;
    case cudaDevAttrMaxBlockDimX: return p->maxThreadsDim[0];
    case cudaDevAttrMaxBlockDimY: return p->maxThreadsDim[1];
    case cudaDevAttrMaxBlockDimZ: return p->maxThreadsDim[2];
    case cudaDevAttrMaxGridDimX: return p->maxGridSize[0];
    case cudaDevAttrMaxGridDimY: return p->maxGridSize[1];
    case cudaDevAttrMaxGridDimZ: return p->maxGridSize[2];
    case cudaDevAttrMaxSharedMemoryPerBlock: return (int)p->sharedMemPerBlock;
    case cudaDevAttrTotalConstantMemory: return (int)p->totalConstMem;
    case cudaDevAttrWarpSize: return p->warpSize;
    case cudaDevAttrMaxPitch: return (int)p->memPitch;
    case cudaDevAttrMaxRegistersPerBlock: return p->regsPerBlock;
    case cudaDevAttrClockRate: return 1410000;
    case cudaDevAttrGpuOverlap: return 1;
    case cudaDevAttrMultiProcessorCount: return p->multiProcessorCount;
    case cudaDevAttrCanMapHostMemory: return p->canMapHostMemory;
    case cudaDevAttrComputeMode: return cudaComputeModeDefault;
    case cudaDevAttrConcurrentKernels: return p->concurrentKernels;
    case cudaDevAttrPciDomainId: return p->pciDomainID;
    case cudaDevAttrPciBusId: return p->pciBusID;
    case cudaDevAttrMemoryClockRate: return 1215000;
    case cudaDevAttrGlobalMemoryBusWidth: return p->memoryBusWidth;
    case cudaDevAttrL2CacheSize: return p->l2CacheSize;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return p->maxThreadsPerMultiProcessor;
    case cudaDevAttrAsyncEngineCount: return p->asyncEngineCount;
    case cudaDevAttrUnifiedAddressing: return p->unifiedAddressing;
    case cudaDevAttrComputeCapabilityMajor: return p->major;
    case cudaDevAttrComputeCapabilityMinor: return p->minor;
    case cudaDevAttrStreamPrioritiesSupported: return p->streamPrioritiesSupported;
    case cudaDevAttrGlobalL1CacheSupported: return p->globalL1CacheSupported;
    case cudaDevAttrLocalL1CacheSupported: return p->localL1CacheSupported;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return (int)p->sharedMemPerMultiprocessor;
    case cudaDevAttrMaxRegistersPerMultiprocessor: return p->regsPerMultiprocessor;
    case cudaDevAttrManagedMemory: return p->managedMemory;
    case cudaDevAttrConcurrentManagedAccess: return p->concurrentManagedAccess;
    case cudaDevAttrComputePreemptionSupported: return p->computePreemptionSupported;
    case cudaDevAttrCanUseHostPointerForRegisteredMem: return p->canUseHostPointerForRegisteredMem;
    case cudaDevAttrCooperativeLaunch: return p->cooperativeLaunch;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return (int)p->sharedMemPerBlockOptin;
    case cudaDevAttrHostRegisterSupported: return p->hostRegisterSupported;
    case cudaDevAttrMaxBlocksPerMultiprocessor: return p->maxBlocksPerMultiProcessor;
    case cudaDevAttrReservedSharedMemoryPerBlock: return (int)p->reservedSharedMemPerBlock;
    case cudaDevAttrMemoryPoolsSupported: return p->memoryPoolsSupported;
    default: return 0;
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    SIM_ENTER();
    if (!value) return sim_leave(cudaErrorInvalidValue);
    if (!sim_is_device(device)) return sim_leave(cudaErrorInvalidDevice);
    struct cudaDeviceProp p;
    describe_device(&p, device);
    if ((int)attr <= 0 || (int)attr > LAST_ATTRIBUTE) return sim_leave(cudaErrorInvalidValue);
    *value = attribute(attr, &p);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device)
{
    SIM_ENTER();
    if (!pciBusId || len < 13) return sim_leave(cudaErrorInvalidValue);
    if (!sim_is_device(device)) return sim_leave(cudaErrorInvalidDevice);
    int bus = sim_config()->physical[device] + 1;
    snprintf(pciBusId, (size_t)len, "%04X:%02X:00.0", bus / PCI_BUSES % 0x10000, bus % PCI_BUSES);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *pciBusId)
{
    SIM_ENTER();
    if (!device || !pciBusId) return sim_leave(cudaErrorInvalidValue);
    unsigned domain = 0, bus = 0;
    bool read =
        sscanf(pciBusId, "%x:%x:", &domain, &bus) == 2 || sscanf(pciBusId, "%x:", &bus) == 1;
    if (!read || domain > SIM_MAX_DEVICES / PCI_BUSES || bus >= PCI_BUSES)
        return sim_leave(cudaErrorInvalidDevice);
    for (int d = 0; d < sim_config()->devices; d++)
        if (sim_config()->physical[d] == (int)(domain * PCI_BUSES + bus) - 1) {
            *device = d;
            return cudaSuccess;
        }
    return sim_leave(cudaErrorInvalidDevice);
}

// Lower numbers are more urgent. Today's devices have priorities 0 to -5; priorities change
// nothing here.
cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    SIM_ENTER();
    if (leastPriority) *leastPriority = 0;
    if (greatestPriority) *greatestPriority = -5;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *driverVersion)
{
    if (!driverVersion) return sim_leave(cudaErrorInvalidValue);
    *driverVersion = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *runtimeVersion)
{
    if (!runtimeVersion) return sim_leave(cudaErrorInvalidValue);
    *runtimeVersion = CUDART_VERSION;
    return cudaSuccess;
}
