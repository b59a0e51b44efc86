/* device.c: the devices of this process.
 *
 * All devices share one reserved range of addresses, an arena each, without any access: the
 * addresses that programs see. The memory itself is a memfd a device, mapped elsewhere, readable
 * and writable (the alias), when the device is first used. So a host dereference of a device
 * pointer faults (fault.c), and which device a pointer belongs to is a division.
 *
 * Interface: sim_device, sim_device_made, sim_may_grow, sim_device_of, sim_current_device,
 * sim_peer_allowed; the cudaDevice* and cudaGetDevice* calls.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check/check.h"
#include "memory/heap.h"
#include "memory/memory.h"
#include "report/report.h"
#include "streams/streams.h"

// Address space of an arena beside the device's memory, so that pieces never hinder an allocation.
// Many devices have less of it: a rank maps its own arenas and, once more, each peer's, and a
// process has 128 TiB of addresses.
#define ARENA_FACTOR 4
#define LEAST_FACTOR 2
#define MOST_ADDRESSES ((size_t)96 << 40)
#define ARENA_LEAST ((size_t)1 << 30)

#define LAST_ATTRIBUTE 147 // of CUDA 13
#define PCI_BUSES 256      // of a domain

static struct {
    // The first arena's program range. A system call of another thread may look while the first
    // device is made (check/syscall.c): it is set when the rest is.
    char *_Atomic base;
    size_t arena; // bytes of each
    _Atomic(SimDevice *) made[SIM_MAX_DEVICES];
    atomic_bool peers[SIM_MAX_DEVICES][SIM_MAX_DEVICES];
} cluster;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int current;
static atomic_uint device_flags;

// ---- Making devices ----

_Noreturn static void no_memory_for(const char *what)
{
    sim_fatal(
        SIMGPU_SYSTEM, "simgpu could not be set up",
        "%s failed: %s.\n"
        "simgpu reserves %zu GiB of addresses a device and uses memory only where it is written.\n"
        "Is there a limit on address space (ulimit -v), or SIMGPU_MEMORY larger than it need be?",
        what, strerror(errno), cluster.arena >> 30);
}

// Called with `making` held.
static void reserve_addresses(void)
{
    const SimConfig *config = sim_config();
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t factor = ARENA_FACTOR, devices = (size_t)config->devices;
    if (config->memory > MOST_ADDRESSES / (2 * ARENA_FACTOR) / devices) factor = LEAST_FACTOR;
    size_t arena = config->memory * factor;
    if (arena < ARENA_LEAST) arena = ARENA_LEAST;
    cluster.arena = (arena + page - 1) / page * page;
    void *base = mmap(NULL, cluster.arena * devices, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) no_memory_for("reserving addresses");
    cluster.base = base;
    sim_fault_install();
}

static atomic_int files_limit;

int sim_files_limit(void)
{
    return atomic_load(&files_limit);
}

void sim_no_files_left(void)
{
    struct rlimit limit = {0, 0};
    char title[200];
    getrlimit(RLIMIT_NOFILE, &limit);
    atomic_store(&files_limit, (int)limit.rlim_cur);
    snprintf(title, sizeof title,
             "no file descriptor is left (ulimit -n is %llu): a process needs one per device, one "
             "per rank of its host, and some ten more",
             (unsigned long long)limit.rlim_cur);
    sim_fatal(SIMGPU_SYSTEM, title, "%s", "");
}

bool sim_may_grow(int memfd, size_t bytes, const char *what)
{
    struct rlimit limit;
    char title[256];
    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur >= bytes)
        return ftruncate(memfd, (off_t)bytes) == 0;
    snprintf(
        title, sizeof title,
        "a file may have %llu bytes (ulimit -f), and simgpu keeps %s in one of %zu bytes, most "
        "of it empty: raise the limit",
        (unsigned long long)limit.rlim_cur, what, bytes);
    sim_fatal(SIMGPU_SYSTEM, title, "%s", "");
}

uint32_t sim_next_stream_number(void)
{
    static _Atomic uint32_t made;
    return atomic_fetch_add(&made, 1) + 1;
}

static SimDevice *make_device(int index)
{
    SimDevice *d = calloc(1, sizeof *d);
    if (!d) no_memory_for("calloc");
    d->index = index;
    d->stream_number = sim_next_stream_number();
    d->arena = cluster.arena;
    d->program = cluster.base + (size_t)index * cluster.arena;
    d->memfd = memfd_create("simgpu-device", MFD_CLOEXEC);
    if (d->memfd < 0 && errno == EMFILE) sim_no_files_left();
    if (d->memfd < 0) no_memory_for("memfd_create");
    d->mapped = d->arena + SIM_OUTBOX;
    if (!sim_may_grow(d->memfd, d->mapped, "a device's memory (SIMGPU_MEMORY)"))
        no_memory_for("ftruncate");
    void *alias =
        mmap(NULL, d->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, d->memfd, 0);
    if (alias == MAP_FAILED) no_memory_for("mapping a device's memory");
    madvise(alias, d->mapped, MADV_DONTDUMP); // a core file need not hold it
    d->alias = alias;
    d->heap = sim_heap_create(d->arena);
    if (!d->heap) no_memory_for("calloc");
    pthread_mutex_init(&d->lock, NULL);
    return d;
}

SimDevice *sim_device_made(int index)
{
    if (index < 0 || index >= SIM_MAX_DEVICES) return NULL;
    return atomic_load_explicit(&cluster.made[index], memory_order_acquire);
}

SimDevice *sim_device(int index)
{
    SimDevice *device = sim_device_made(index);
    if (device || index < 0 || index >= sim_config()->devices) return device;
    pthread_mutex_lock(&making);
    device = sim_device_made(index);
    if (!device) {
        if (!cluster.base) reserve_addresses();
        device = make_device(index);
        atomic_store_explicit(&cluster.made[index], device, memory_order_release);
    }
    pthread_mutex_unlock(&making);
    sim_fault_thread();
    return device;
}

SimDevice *sim_device_of(const void *ptr, size_t *offset)
{
    const char *base = atomic_load_explicit(&cluster.base, memory_order_acquire);
    if (!base) return NULL;
    size_t distance = (size_t)((uintptr_t)ptr - (uintptr_t)base);
    size_t index = distance / cluster.arena;
    if (index >= (size_t)sim_config()->devices) return NULL;
    *offset = distance - index * cluster.arena;
    return sim_device_made((int)index);
}

int sim_current_device(void)
{
    return current;
}

bool sim_peer_allowed(int device, int peer)
{
    return device == peer || atomic_load(&cluster.peers[device][peer]);
}

static bool is_device(int index)
{
    return index >= 0 && index < sim_config()->devices;
}

// ---- Choosing and waiting ----

cudaError_t cudaGetDeviceCount(int *count)
{
    if (count) *count = 0;
    SIM_ENTER();
    if (!count) return sim_leave(cudaErrorInvalidValue);
    *count = sim_config()->devices;
    return cudaSuccess;
}

static void report_no_such_device(int device, const void *site)
{
    const SimConfig *config = sim_config();
    char where[256], seen[300];
    gpulog_where(site, where, sizeof where);
    sim_facts_call("cudaSetDevice", site, SIM_NO_STREAM);
    if (config->devices)
        snprintf(seen, sizeof seen,
                 "there are %d: 0 to %d.\n"
                 "On a GPU it returns \"invalid device ordinal\", and the device before it stays\n"
                 "current: two ranks may then share one. Is it the local rank that chooses the "
                 "device?",
                 config->devices, config->devices - 1);
    else
        snprintf(seen, sizeof seen,
                 "the program sees none.\n"
                 "On a GPU every call returns \"no CUDA-capable device is detected\".");
    const char *more = getenv("CUDA_VISIBLE_DEVICES")
                           ? "(SIMGPU_DEVICES sets how many there are, CUDA_VISIBLE_DEVICES which "
                             "of them are seen.)"
                           : "(SIMGPU_DEVICES sets how many there are.)";
    sim_report(SIMGPU_CALL, "cudaSetDevice of a device that is not there",
               "cudaSetDevice, called at %s,\nasks for device %d; %s\n%s", where, device, seen,
               config->hidden[0] ? config->hidden : more);
}

cudaError_t cudaSetDevice(int device)
{
    if (sim_config()->devices == 0 && sim_config()->hidden[0])
        report_no_such_device(device, SIM_SITE);
    SIM_ENTER();
    if (!is_device(device)) {
        report_no_such_device(device, SIM_SITE);
        return sim_leave(cudaErrorInvalidDevice);
    }
    current = device;
    sim_device(device);
    sim_fault_thread();
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    SIM_ENTER();
    if (!device) return sim_leave(cudaErrorInvalidValue);
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
    SIM_ENTER();
    if (flags & ~(unsigned)cudaDeviceMask) return sim_leave(cudaErrorInvalidValue);
    atomic_store(&device_flags, flags);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceFlags(unsigned int *flags)
{
    SIM_ENTER();
    if (!flags) return sim_leave(cudaErrorInvalidValue);
    *flags = atomic_load(&device_flags) | cudaDeviceMapHost;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    SIM_ENTER();
    sim_device_wait(current, "cudaDeviceSynchronize", SIM_SITE);
    GpuLogEntry entry = {.op = GPU_DEVICE_SYNC,
                         .name = "cudaDeviceSynchronize",
                         .device = current,
                         .host_waits = true,
                         .blocking_stream = true,
                         .site = SIM_SITE};
    sim_clock_log(&entry);
    return cudaSuccess;
}

cudaError_t cudaDeviceReset(void)
{
    SIM_ENTER();
    SimDevice *device = sim_device_made(current);
    if (!device) return cudaSuccess;
    sim_device_wait(current, "cudaDeviceReset", SIM_SITE);
    sim_memory_reset(device, SIM_SITE);
    sim_stream_reset(current);
    sim_leak_reset();
    return cudaSuccess;
}

// ---- What a device is ----

static void put_uuid(int physical, char bytes[16])
{
    memset(bytes, 0, 16);
    snprintf(bytes, 16, "simgpu%02d", physical);
}

void sim_device_uuid(int physical, char text[48])
{
    char bytes[16];
    put_uuid(physical, bytes);
    char *to = text + sprintf(text, "GPU");
    for (int i = 0; i < 16; i++)
        to += sprintf(to, "%s%02x", i == 0 || (i >= 4 && i <= 10 && i % 2 == 0) ? "-" : "",
                      (unsigned char)bytes[i]);
}

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

static void describe(struct cudaDeviceProp *p, int device)
{
    memset(p, 0, sizeof *p);
    int physical = sim_config()->physical[device];
    snprintf(p->name, sizeof p->name, "simgpu simulated GPU %d", physical);
    put_uuid(physical, p->uuid.bytes);
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
    if (!is_device(device)) return sim_leave(cudaErrorInvalidDevice);
    describe(prop, device);
    return cudaSuccess;
}

// An attribute of the device that p describes; 0 for a feature that a simulated device does not
// have.
static int attribute(enum cudaDeviceAttr attr, const struct cudaDeviceProp *p)
{
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
        return p->maxThreadsPerBlock;
    case cudaDevAttrMaxBlockDimX:
        return p->maxThreadsDim[0];
    case cudaDevAttrMaxBlockDimY:
        return p->maxThreadsDim[1];
    case cudaDevAttrMaxBlockDimZ:
        return p->maxThreadsDim[2];
    case cudaDevAttrMaxGridDimX:
        return p->maxGridSize[0];
    case cudaDevAttrMaxGridDimY:
        return p->maxGridSize[1];
    case cudaDevAttrMaxGridDimZ:
        return p->maxGridSize[2];
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return (int)p->sharedMemPerBlock;
    case cudaDevAttrTotalConstantMemory:
        return (int)p->totalConstMem;
    case cudaDevAttrWarpSize:
        return p->warpSize;
    case cudaDevAttrMaxPitch:
        return (int)p->memPitch;
    case cudaDevAttrMaxRegistersPerBlock:
        return p->regsPerBlock;
    case cudaDevAttrClockRate:
        return 1410000;
    case cudaDevAttrGpuOverlap:
        return 1;
    case cudaDevAttrMultiProcessorCount:
        return p->multiProcessorCount;
    case cudaDevAttrCanMapHostMemory:
        return p->canMapHostMemory;
    case cudaDevAttrComputeMode:
        return cudaComputeModeDefault;
    case cudaDevAttrConcurrentKernels:
        return p->concurrentKernels;
    case cudaDevAttrPciDomainId:
        return p->pciDomainID;
    case cudaDevAttrPciBusId:
        return p->pciBusID;
    case cudaDevAttrMemoryClockRate:
        return 1215000;
    case cudaDevAttrGlobalMemoryBusWidth:
        return p->memoryBusWidth;
    case cudaDevAttrL2CacheSize:
        return p->l2CacheSize;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        return p->maxThreadsPerMultiProcessor;
    case cudaDevAttrAsyncEngineCount:
        return p->asyncEngineCount;
    case cudaDevAttrUnifiedAddressing:
        return p->unifiedAddressing;
    case cudaDevAttrComputeCapabilityMajor:
        return p->major;
    case cudaDevAttrComputeCapabilityMinor:
        return p->minor;
    case cudaDevAttrStreamPrioritiesSupported:
        return p->streamPrioritiesSupported;
    case cudaDevAttrGlobalL1CacheSupported:
        return p->globalL1CacheSupported;
    case cudaDevAttrLocalL1CacheSupported:
        return p->localL1CacheSupported;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return (int)p->sharedMemPerMultiprocessor;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
        return p->regsPerMultiprocessor;
    case cudaDevAttrManagedMemory:
        return p->managedMemory;
    case cudaDevAttrConcurrentManagedAccess:
        return p->concurrentManagedAccess;
    case cudaDevAttrComputePreemptionSupported:
        return p->computePreemptionSupported;
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
        return p->canUseHostPointerForRegisteredMem;
    case cudaDevAttrCooperativeLaunch:
        return p->cooperativeLaunch;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return (int)p->sharedMemPerBlockOptin;
    case cudaDevAttrHostRegisterSupported:
        return p->hostRegisterSupported;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
        return p->maxBlocksPerMultiProcessor;
    case cudaDevAttrReservedSharedMemoryPerBlock:
        return (int)p->reservedSharedMemPerBlock;
    case cudaDevAttrMemoryPoolsSupported:
        return p->memoryPoolsSupported;
    default:
        return 0;
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    SIM_ENTER();
    if (!value) return sim_leave(cudaErrorInvalidValue);
    if (!is_device(device)) return sim_leave(cudaErrorInvalidDevice);
    struct cudaDeviceProp p;
    describe(&p, device);
    if ((int)attr <= 0 || (int)attr > LAST_ATTRIBUTE) return sim_leave(cudaErrorInvalidValue);
    *value = attribute(attr, &p);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device)
{
    SIM_ENTER();
    if (!pciBusId || len < 13) return sim_leave(cudaErrorInvalidValue);
    if (!is_device(device)) return sim_leave(cudaErrorInvalidDevice);
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

// ---- Peers ----

cudaError_t cudaDeviceCanAccessPeer(int *canAccessPeer, int device, int peerDevice)
{
    SIM_ENTER();
    if (!canAccessPeer) return sim_leave(cudaErrorInvalidValue);
    if (!is_device(device) || !is_device(peerDevice)) return sim_leave(cudaErrorInvalidDevice);
    *canAccessPeer = device != peerDevice;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags)
{
    SIM_ENTER();
    if (flags) return sim_leave(cudaErrorInvalidValue);
    if (!is_device(peerDevice) || peerDevice == current) return sim_leave(cudaErrorInvalidDevice);
    bool was = atomic_exchange(&cluster.peers[current][peerDevice], true);
    return sim_leave(was ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess);
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice)
{
    SIM_ENTER();
    if (!is_device(peerDevice)) return sim_leave(cudaErrorInvalidDevice);
    bool was = atomic_exchange(&cluster.peers[current][peerDevice], false);
    return sim_leave(was ? cudaSuccess : cudaErrorPeerAccessNotEnabled);
}
