/* refused.c: calls that simgpu does not do. They are declared so that a program that has them
 * compiles; each says where it was called and what can be done instead, and returns
 * cudaErrorNotSupported. A program that tries a capture only to go faster goes on without.
 *
 * Operations run at their call, so a stream cannot be captured. A device's memory reaches other
 * processes through NCCL alone.
 *
 * Interface: cudaMalloc3DArray; cudaStreamBeginCapture, cudaStreamEndCapture,
 * cudaStreamIsCapturing, cudaGraph*, cudaIpc*.
 */
#include <string.h>

#include "compat/compat.h"
#include "report/report.h"

// ---- Capture and graphs ----

#define NO_GRAPHS(name)                                                                            \
    sim_refuse_call(name, "capture of streams and no graph",                                       \
                    "make the calls on the stream itself", SIM_SITE)

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    return NO_GRAPHS("cudaStreamBeginCapture");
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph)
{
    if (pGraph) *pGraph = NULL;
    return NO_GRAPHS("cudaStreamEndCapture");
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus)
{
    SIM_ENTER();
    if (!pCaptureStatus) return sim_leave(cudaErrorInvalidValue);
    *pCaptureStatus = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                 unsigned long long flags)
{
    if (pGraphExec) *pGraphExec = NULL;
    return NO_GRAPHS("cudaGraphInstantiate");
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream)
{
    return NO_GRAPHS("cudaGraphLaunch");
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return NO_GRAPHS("cudaGraphDestroy");
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec)
{
    return NO_GRAPHS("cudaGraphExecDestroy");
}

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
