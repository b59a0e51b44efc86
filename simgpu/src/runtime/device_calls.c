/* device_calls.c: the calls that choose devices, wait for them, and enable access to peers.
 *
 * Interface: cudaGetDeviceCount, cudaSetDevice, cudaGetDevice, cudaSetDeviceFlags,
 * cudaGetDeviceFlags, cudaDeviceSynchronize, cudaDeviceReset; cudaDeviceCanAccessPeer,
 * cudaDeviceEnablePeerAccess, cudaDeviceDisablePeerAccess.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/config.h"
#include "core/error.h"
#include "core/leak.h"
#include "memory/allocation.h"
#include "memory/fault.h"
#include "report/report.h"
#include "streams/capture.h"
#include "streams/streams.h"
#include "time/time.h"

static atomic_uint device_flags;

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
    sim_report(SIMGPU_CALL, "cudaSetDevice: there is no such device",
               "cudaSetDevice, called at %s,\nasks for device %d; %s\n%s", where, device, seen,
               config->hidden[0] ? config->hidden : more);
}

cudaError_t cudaSetDevice(int device)
{
    if (sim_config()->devices == 0 && sim_config()->hidden[0])
        report_no_such_device(device, SIM_SITE);
    SIM_ENTER();
    if (!sim_is_device(device)) {
        report_no_such_device(device, SIM_SITE);
        return sim_leave(cudaErrorInvalidDevice);
    }
    sim_set_current_device(device);
    sim_device(device);
    sim_fault_thread();
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    SIM_ENTER();
    if (!device) return sim_leave(cudaErrorInvalidValue);
    *device = sim_current_device();
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
    int device = sim_current_device();
    cudaError_t error = sim_capture_check_device(device, "cudaDeviceSynchronize", SIM_SITE);
    if (error != cudaSuccess) return error;
    sim_device_wait(device, "cudaDeviceSynchronize", SIM_SITE);
    GpuLogEntry entry = {.op = GPU_DEVICE_SYNC,
                         .name = "cudaDeviceSynchronize",
                         .device = device,
                         .host_waits = true,
                         .blocking_stream = true,
                         .site = SIM_SITE};
    sim_clock_log(&entry);
    return cudaSuccess;
}

cudaError_t cudaDeviceReset(void)
{
    SIM_ENTER();
    SimDevice *device = sim_device_made(sim_current_device());
    if (!device) return cudaSuccess;
    cudaError_t error = sim_capture_check_device(device->index, "cudaDeviceReset", SIM_SITE);
    if (error != cudaSuccess) return error;
    sim_device_wait(device->index, "cudaDeviceReset", SIM_SITE);
    sim_memory_reset(device, SIM_SITE);
    sim_stream_reset(device->index);
    sim_leak_reset();
    return cudaSuccess;
}

// ---- Peers ----

cudaError_t cudaDeviceCanAccessPeer(int *canAccessPeer, int device, int peerDevice)
{
    SIM_ENTER();
    if (!canAccessPeer) return sim_leave(cudaErrorInvalidValue);
    if (!sim_is_device(device) || !sim_is_device(peerDevice))
        return sim_leave(cudaErrorInvalidDevice);
    *canAccessPeer = device != peerDevice;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags)
{
    SIM_ENTER();
    if (flags) return sim_leave(cudaErrorInvalidValue);
    int current = sim_current_device();
    if (!sim_is_device(peerDevice) || peerDevice == current)
        return sim_leave(cudaErrorInvalidDevice);
    bool was = sim_allow_peer(current, peerDevice, true);
    return sim_leave(was ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess);
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice)
{
    SIM_ENTER();
    if (!sim_is_device(peerDevice)) return sim_leave(cudaErrorInvalidDevice);
    bool was = sim_allow_peer(sim_current_device(), peerDevice, false);
    return sim_leave(was ? cudaSuccess : cudaErrorPeerAccessNotEnabled);
}
