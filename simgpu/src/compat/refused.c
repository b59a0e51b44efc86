/* refused.c: calls that simgpu does not support. They are declared so that programs that have them
 * compile. Each reports its call site and an alternative, and returns cudaErrorNotSupported. The
 * memory of a device reaches other processes through NCCL alone.
 *
 * Interface: cudaMalloc3DArray; cudaIpc*.
 */
#include <string.h>

#include "compat/compat.h"
#include "report/report.h"

// ---- Arrays ----

cudaError_t cudaMalloc3DArray(cudaArray_t *array, const struct cudaChannelFormatDesc *desc,
                              struct cudaExtent extent, unsigned int flags)
{
    if (array) *array = NULL;
    return sim_refuse_call("cudaMalloc3DArray", NO_ARRAYS, SIM_SITE);
}

// ---- Memory and events of other processes ----

#define NO_IPC(name)                                                                               \
    sim_refuse_call(name, "memory or event of another process",                                    \
                    "send the data with NCCL, or use one process with several devices", SIM_SITE)

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *devPtr)
{
    return NO_IPC("cudaIpcGetMemHandle");
}

cudaError_t cudaIpcOpenMemHandle(void **devPtr, cudaIpcMemHandle_t handle, unsigned int flags)
{
    if (devPtr) *devPtr = NULL;
    return NO_IPC("cudaIpcOpenMemHandle");
}

cudaError_t cudaIpcCloseMemHandle(void *devPtr)
{
    return NO_IPC("cudaIpcCloseMemHandle");
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    return NO_IPC("cudaIpcGetEventHandle");
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    if (event) *event = NULL;
    return NO_IPC("cudaIpcOpenEventHandle");
}
