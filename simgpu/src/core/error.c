/* error.c: error names and strings, the last error, and sticky errors.
 *
 * An error of the host interface (a bad argument, no memory left) belongs to the call. An error on
 * the device (an illegal address) is sticky: as on real hardware, every later call of the process
 * returns it, and only a new process helps.
 *
 * Interface: error.h; cudaGetLastError, cudaPeekAtLastError, cudaGetErrorName, cudaGetErrorString.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "core/config.h"
#include "core/error.h"
#include "report/report.h"

cudaError_t (*sim_unsafe_hook)(const char *call, const void *site);

static atomic_int sticky = cudaSuccess;
static atomic_bool used;   // some call has been made in this process
static atomic_bool forked; // this process was forked from one that had made a call
static _Thread_local cudaError_t last = cudaSuccess;
static _Thread_local struct {
    const char *launch; // the call whose host function this thread runs; NULL: none
    const void *site;
} host_function;

#define ENTRY(error, text)                                                                         \
    {                                                                                              \
        error, #error, text                                                                        \
    }
// clang-format off
static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    ENTRY(cudaSuccess, "no error"),
    ENTRY(cudaErrorInvalidValue, "invalid argument"),
    ENTRY(cudaErrorMemoryAllocation, "out of memory"),
    ENTRY(cudaErrorInitializationError, "initialization error"),
    ENTRY(cudaErrorCudartUnloading, "driver shutting down"),
    ENTRY(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ENTRY(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    ENTRY(cudaErrorInvalidHostPointer, "invalid host pointer"),
    ENTRY(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    ENTRY(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ENTRY(cudaErrorSynchronizationError, "synchronization error"),
    ENTRY(cudaErrorMixedDeviceExecution, "mixed device execution"),
    ENTRY(cudaErrorNotYetImplemented, "not yet implemented"),
    ENTRY(cudaErrorMemoryValueTooLarge, "memory value too large"),
    ENTRY(cudaErrorInsufficientDriver,
          "CUDA driver version is insufficient for CUDA runtime version"),
    ENTRY(cudaErrorCallRequiresNewerDriver, "call requires newer driver"),
    ENTRY(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    ENTRY(cudaErrorIncompatibleDriverContext, "incompatible driver context"),
    ENTRY(cudaErrorMissingConfiguration, "__global__ function call is not configured"),
    ENTRY(cudaErrorPriorLaunchFailure, "prior launch failure"),
    ENTRY(cudaErrorLaunchMaxDepthExceeded, "launch max depth exceeded"),
    ENTRY(cudaErrorSyncDepthExceeded, "sync depth exceeded"),
    ENTRY(cudaErrorLaunchPendingCountExceeded, "launch pending count exceeded"),
    ENTRY(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ENTRY(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ENTRY(cudaErrorInvalidDevice, "invalid device ordinal"),
    ENTRY(cudaErrorStartupFailure, "startup failure"),
    ENTRY(cudaErrorInvalidKernelImage, "invalid kernel image"),
    ENTRY(cudaErrorDeviceUninitialized, "invalid device context"),
    ENTRY(cudaErrorNoKernelImageForDevice,
          "no kernel image is available for execution on the device"),
    ENTRY(cudaErrorAlreadyAcquired, "already acquired"),
    ENTRY(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    ENTRY(cudaErrorUnsupportedLimit, "unsupported limit"),
    ENTRY(cudaErrorDeviceAlreadyInUse, "device already in use"),
    ENTRY(cudaErrorPeerAccessUnsupported,
          "peer access is not supported between these two devices"),
    ENTRY(cudaErrorUnsupportedExecAffinity, "unsupported exec affinity"),
    ENTRY(cudaErrorUnsupportedDevSideSync, "unsupported dev side sync"),
    ENTRY(cudaErrorInvalidSource, "device kernel image is invalid"),
    ENTRY(cudaErrorFileNotFound, "file not found"),
    ENTRY(cudaErrorSharedObjectInitFailed, "shared object init failed"),
    ENTRY(cudaErrorOperatingSystem, "OS call failed or operation not supported on this OS"),
    ENTRY(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ENTRY(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ENTRY(cudaErrorNotReady, "device not ready"),
    ENTRY(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ENTRY(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    ENTRY(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    ENTRY(cudaErrorLaunchIncompatibleTexturing, "launch incompatible texturing"),
    ENTRY(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ENTRY(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    ENTRY(cudaErrorSetOnActiveProcess, "cannot set while device is active in this process"),
    ENTRY(cudaErrorContextIsDestroyed, "context is destroyed"),
    ENTRY(cudaErrorAssert, "device-side assert triggered"),
    ENTRY(cudaErrorTooManyPeers, "peer mapping resources exhausted"),
    ENTRY(cudaErrorHostMemoryAlreadyRegistered,
          "part or all of the requested memory range is already mapped"),
    ENTRY(cudaErrorHostMemoryNotRegistered,
          "pointer does not correspond to a registered memory region"),
    ENTRY(cudaErrorHardwareStackError, "hardware stack error"),
    ENTRY(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    ENTRY(cudaErrorMisalignedAddress, "misaligned address"),
    ENTRY(cudaErrorInvalidAddressSpace, "operation not supported on global/shared address space"),
    ENTRY(cudaErrorInvalidPc, "invalid program counter"),
    ENTRY(cudaErrorLaunchFailure, "unspecified launch failure"),
    ENTRY(cudaErrorCooperativeLaunchTooLarge, "cooperative launch too large"),
    ENTRY(cudaErrorNotPermitted, "operation not permitted"),
    ENTRY(cudaErrorNotSupported, "operation not supported"),
    ENTRY(cudaErrorSystemNotReady, "system not yet initialized"),
    ENTRY(cudaErrorSystemDriverMismatch, "system driver mismatch"),
    ENTRY(cudaErrorCompatNotSupportedOnDevice, "compat not supported on device"),
    ENTRY(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ENTRY(cudaErrorStreamCaptureInvalidated,
          "operation failed due to a previous error during capture"),
    ENTRY(cudaErrorStreamCaptureMerge,
          "operation would result in a merge of separate capture sequences"),
    ENTRY(cudaErrorStreamCaptureUnmatched,
          "capture was not ended in the same stream as it began"),
    ENTRY(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ENTRY(cudaErrorStreamCaptureIsolation,
          "dependency created on uncaptured work in another stream"),
    ENTRY(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ENTRY(cudaErrorCapturedEvent,
          "operation not permitted on an event last recorded in a capturing stream"),
    ENTRY(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
    ENTRY(cudaErrorTimeout, "wait operation timed out"),
    ENTRY(cudaErrorGraphExecUpdateFailure, "graph exec update failure"),
    ENTRY(cudaErrorExternalDevice,
          "an async error has occurred in external entity outside of CUDA"),
    ENTRY(cudaErrorInvalidClusterSize, "invalid cluster size"),
    ENTRY(cudaErrorFunctionNotLoaded, "function not loaded"),
    ENTRY(cudaErrorInvalidResourceType, "invalid resource type"),
    ENTRY(cudaErrorInvalidResourceConfiguration, "invalid resource configuration"),
    ENTRY(cudaErrorUnknown, "unknown error"),
    ENTRY(cudaErrorApiFailureBase, "api failure base"),
};
// clang-format on
#undef ENTRY

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].error == error) return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].error == error) return errors[i].text;
    return "unrecognized error code";
}

cudaError_t cudaPeekAtLastError(void)
{
    cudaError_t stays = (cudaError_t)atomic_load(&sticky);
    return stays != cudaSuccess ? stays : last;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = cudaPeekAtLastError();
    last = cudaSuccess;
    return error;
}

cudaError_t sim_leave(cudaError_t error)
{
    if (error != cudaSuccess) last = error;
    return error;
}

void sim_stick(cudaError_t error)
{
    int none = cudaSuccess;
    atomic_compare_exchange_strong(&sticky, &none, (int)error);
}

static void note_fork(void)
{
    atomic_store(&forked, true);
}

static void first_use(void)
{
    pthread_atfork(NULL, NULL, note_fork);
    atomic_store(&used, true);
}

// The handles and addresses in a forked child belong to its parent.
static cudaError_t refuse_forked(void)
{
    static atomic_bool told;
    if (!atomic_exchange(&told, true))
        sim_report(
            SIMGPU_CALL, "CUDA was used before fork() and again in the child",
            "This process was forked from one that had called CUDA already. CUDA's state does not\n"
            "survive a fork.\n"
            "On a GPU every call fails here with \"initialization error\", as it does now.\n"
            "Can the ranks be forked first, so that each makes its own first CUDA call?");
    return sim_leave(cudaErrorInitializationError);
}

bool sim_is_forked(void)
{
    return atomic_load(&forked);
}

void sim_in_host_function(const char *launch, const void *site)
{
    host_function.launch = launch;
    host_function.site = site;
}

// "The host function must not make any CUDA API calls. Attempting to use a CUDA API may result in
// cudaErrorNotPermitted": CUDA Runtime API, cudaLaunchHostFunc.
void sim_tell_not_permitted(const char *call, const void *site)
{
    char where[256], launched[256];
    gpulog_where(site, where, sizeof where);
    gpulog_where(host_function.site, launched, sizeof launched);
    sim_facts_call(call, site, SIM_NO_STREAM);
    sim_facts_call(host_function.launch, host_function.site, SIM_NO_STREAM);
    sim_report(SIMGPU_CALL, "a CUDA call inside a host function",
               "%s, called at %s,\nis in the function that\n%s, called at %s,\nput on a stream.\n"
               "Such a function may make no CUDA call: on a GPU it fails with \"operation not\n"
               "permitted\", or waits for the stream that waits for it.\n"
               "Can the call be made on the stream, after the function?",
               call, where, host_function.launch, launched);
}

SimHeldLaunches sim_held;

cudaError_t sim_enter(const char *call, int device)
{
    if (atomic_load_explicit(&sim_held.n, memory_order_relaxed)) sim_held.make(call, device);
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!atomic_load_explicit(&used, memory_order_acquire)) pthread_once(&once, first_use);
    if (atomic_load_explicit(&forked, memory_order_relaxed)) return refuse_forked();
    if (sim_config()->devices == 0) return sim_leave(cudaErrorNoDevice);
    if (host_function.launch) return sim_leave(cudaErrorNotPermitted);
    int stays = atomic_load_explicit(&sticky, memory_order_relaxed);
    return stays != cudaSuccess ? sim_leave((cudaError_t)stays) : cudaSuccess;
}

cudaError_t sim_refuse_call(const char *name, const char *what, const char *instead,
                            const void *site)
{
    SIM_ENTER_AS(name, site);
    char where[256];
    gpulog_where(site, where, sizeof where);
    sim_report(SIMGPU_CALL, "simgpu does not implement this call",
               "%s, called at %s, returns cudaErrorNotSupported.\nThere is no %s here: %s.", name,
               where, what, instead);
    return sim_leave(cudaErrorNotSupported);
}
