/* properties.c: the properties of a device, its PCI address, and versions.
 *
 * Interface: cudaGetDeviceProperties, cudaDeviceGetAttribute, cudaDeviceGetPCIBusId,
 * cudaDeviceGetByPCIBusId, cudaDeviceGetStreamPriorityRange, cudaDriverGetVersion,
 * cudaRuntimeGetVersion.
 */
#include <stdio.h>
#include <string.h>

#include "core/config.h"
#include "core/error.h"
#include "machine/figures.h"
#include "memory/device.h"

#define LAST_ATTRIBUTE 147 // of CUDA 13
#define PCI_BUSES 256      // of a domain

// There are no textures here; programs print the limits of a device.
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

// Figures of one multiprocessor by compute capability: the CUDA C++ programming guide's "technical
// specifications per compute capability"; `cores` is from its arithmetic throughput.
typedef struct Capability {
    int major, minor;
    int cores; // products and sums of floats in a clock
    int threads, blocks, shared_kib;
} Capability;

static Capability capability_of(const SimGpu *gpu)
{
    static const Capability known[] = {{7, 0, 64, 2048, 32, 96},   {8, 0, 64, 2048, 32, 164},
                                       {8, 6, 128, 1536, 16, 100}, {8, 9, 128, 1536, 24, 100},
                                       {9, 0, 128, 2048, 32, 228}, {10, 0, 128, 2048, 32, 228}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].major == gpu->major && known[i].minor == gpu->minor) return known[i];
    Capability like = known[1];
    if (gpu->major) like.major = gpu->major, like.minor = gpu->minor;
    return like;
}

// A device of the machine: its properties, and values that only attributes have. Programs derive
// the bandwidth from bus and memory clock, and the peak from cores and clock, so the clocks are
// chosen to give the machine's figures.
typedef struct Described {
    struct cudaDeviceProp p;
    int clock, memory_clock; // kHz
    int single_to_double;    // the ratio of the peaks
} Described;

static void describe_machine(Described *d, int physical)
{
    static const SimFigures plain = {.hbm = 1.555e12, .sms = 108};
    static const SimMachine none = {.gpu = {"", 8, 0, 5120, 40 << 20},
                                    .peak = {[SIM_F64] = 9.75e12, [SIM_F32] = 19.5e12}};
    const SimMachine *machine = sim_config()->machine ? sim_config()->machine : &none;
    const SimFigures *figures = sim_config()->machine ? machine->figures : &plain;
    struct cudaDeviceProp *p = &d->p;
    Capability capability = capability_of(&machine->gpu);
    uint64_t sms = figures->sms ? figures->sms : plain.sms;
    if (machine->gpu.name[0])
        snprintf(p->name, sizeof p->name, "%s", machine->gpu.name);
    else
        snprintf(p->name, sizeof p->name, "simgpu simulated GPU %d", physical);
    p->major = capability.major;
    p->minor = capability.minor;
    p->multiProcessorCount = (int)sms;
    p->memoryBusWidth = (int)(machine->gpu.bus ? machine->gpu.bus : none.gpu.bus);
    p->l2CacheSize = (int)(machine->gpu.l2 ? machine->gpu.l2 : none.gpu.l2);
    p->maxThreadsPerMultiProcessor = capability.threads;
    p->maxBlocksPerMultiProcessor = capability.blocks;
    p->sharedMemPerMultiprocessor = (size_t)capability.shared_kib << 10;
    p->reservedSharedMemPerBlock = 1 << 10;
    p->sharedMemPerBlockOptin = p->sharedMemPerMultiprocessor - p->reservedSharedMemPerBlock;
    double per_clock = 2.0 * capability.cores * (double)sms; // FLOP
    d->clock = (int)(machine->peak[SIM_F32] / per_clock / 1000 + 0.5);
    d->memory_clock = (int)(figures->hbm / (2.0 * p->memoryBusWidth / 8) / 1000 + 0.5);
    d->single_to_double = (int)(machine->peak[SIM_F32] / machine->peak[SIM_F64] + 0.5);
}

static void describe_device(Described *d, int device)
{
    struct cudaDeviceProp *p = &d->p;
    memset(d, 0, sizeof *d);
    int physical = sim_config()->physical[device];
    describe_machine(d, physical);
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
    p->canMapHostMemory = 1;
    p->concurrentKernels = 1;
    p->pciDomainID = (physical + 1) / PCI_BUSES;
    p->pciBusID = (physical + 1) % PCI_BUSES;
    p->asyncEngineCount = 2;
    p->unifiedAddressing = 1;
    p->streamPrioritiesSupported = 1;
    p->globalL1CacheSupported = p->localL1CacheSupported = 1;
    p->regsPerMultiprocessor = 65536;
    p->managedMemory = p->concurrentManagedAccess = 1;
    p->computePreemptionSupported = 1;
    p->canUseHostPointerForRegisteredMem = 1;
    p->cooperativeLaunch = 1;
    p->hostRegisterSupported = 1;
    p->memoryPoolsSupported = 1;
    describe_textures(p);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    SIM_ENTER();
    if (!prop) return sim_leave(cudaErrorInvalidValue);
    if (!sim_is_device(device)) return sim_leave(cudaErrorInvalidDevice);
    Described d;
    describe_device(&d, device);
    *prop = d.p;
    // Fields that CUDA 13 dropped, for programs that are compiled for 12 (driver_types.h).
    const int dropped[] = {d.clock, d.memory_clock, d.single_to_double, 1};
    memcpy(prop->reserved, dropped, sizeof dropped);
    return cudaSuccess;
}

// An attribute of the device that d describes; 0 for a feature that a simulated device does not
// have.
static int attribute(enum cudaDeviceAttr attr, const Described *d)
{
    const struct cudaDeviceProp *p = &d->p;
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
    case cudaDevAttrClockRate: return d->clock;
    case cudaDevAttrGpuOverlap: return 1;
    case cudaDevAttrMultiProcessorCount: return p->multiProcessorCount;
    case cudaDevAttrCanMapHostMemory: return p->canMapHostMemory;
    case cudaDevAttrComputeMode: return cudaComputeModeDefault;
    case cudaDevAttrConcurrentKernels: return p->concurrentKernels;
    case cudaDevAttrPciDomainId: return p->pciDomainID;
    case cudaDevAttrPciBusId: return p->pciBusID;
    case cudaDevAttrMemoryClockRate: return d->memory_clock;
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
    case cudaDevAttrSingleToDoublePrecisionPerfRatio: return d->single_to_double;
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
    Described described;
    describe_device(&described, device);
    if ((int)attr <= 0 || (int)attr > LAST_ATTRIBUTE) return sim_leave(cudaErrorInvalidValue);
    *value = attribute(attr, &described);
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

// Lower numbers are more urgent. Today's devices have priorities 0 to -5. Here priorities have no
// effect.
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
