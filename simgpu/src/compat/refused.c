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

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus)
{
    SIM_ENTER();
    if (!pCaptureStatus) return sim_leave(cudaErrorInvalidValue);
    *pCaptureStatus = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    return NO_GRAPHS("cudaStreamBeginCapture");
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph)
{
    if (pGraph) *pGraph = NULL;
    return NO_GRAPHS("cudaStreamEndCapture");
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                     enum cudaStreamCaptureStatus *captureStatus_out,
                                     unsigned long long *id_out, cudaGraph_t *graph_out,
                                     const cudaGraphNode_t **dependencies_out,
                                     const cudaGraphEdgeData **edgeData_out,
                                     size_t *numDependencies_out)
{
    return NO_GRAPHS("cudaStreamGetCaptureInfo");
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *dependencies,
                                                const cudaGraphEdgeData *dependencyData,
                                                size_t numDependencies, unsigned int flags)
{
    return NO_GRAPHS("cudaStreamUpdateCaptureDependencies");
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    return NO_GRAPHS("cudaThreadExchangeStreamCaptureMode");
}

cudaError_t cudaGraphCreate(cudaGraph_t *pGraph, unsigned int flags)
{
    return NO_GRAPHS("cudaGraphCreate");
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                     const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                     void *dst, const void *src, size_t count,
                                     enum cudaMemcpyKind kind)
{
    return NO_GRAPHS("cudaGraphAddMemcpyNode1D");
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                   const struct cudaMemsetParams *pMemsetParams)
{
    return NO_GRAPHS("cudaGraphAddMemsetNode");
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                 const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                 const struct cudaHostNodeParams *pNodeParams)
{
    return NO_GRAPHS("cudaGraphAddHostNode");
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                  const cudaGraphNode_t *pDependencies, size_t numDependencies)
{
    return NO_GRAPHS("cudaGraphAddEmptyNode");
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, const cudaGraphEdgeData *edgeData,
                                     size_t numDependencies)
{
    return NO_GRAPHS("cudaGraphAddDependencies");
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes)
{
    return NO_GRAPHS("cudaGraphGetNodes");
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *pRootNodes,
                                  size_t *pNumRootNodes)
{
    return NO_GRAPHS("cudaGraphGetRootNodes");
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
                              cudaGraphEdgeData *edgeData, size_t *numEdges)
{
    return NO_GRAPHS("cudaGraphGetEdges");
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *pDependencies,
                                         cudaGraphEdgeData *edgeData, size_t *pNumDependencies)
{
    return NO_GRAPHS("cudaGraphNodeGetDependencies");
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *pDependentNodes,
                                           cudaGraphEdgeData *edgeData, size_t *pNumDependentNodes)
{
    return NO_GRAPHS("cudaGraphNodeGetDependentNodes");
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *pType)
{
    return NO_GRAPHS("cudaGraphNodeGetType");
}

cudaError_t cudaGraphClone(cudaGraph_t *pGraphClone, cudaGraph_t originalGraph)
{
    return NO_GRAPHS("cudaGraphClone");
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned int flags)
{
    return NO_GRAPHS("cudaGraphDebugDotPrint");
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return NO_GRAPHS("cudaGraphDestroy");
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                 unsigned long long flags)
{
    return NO_GRAPHS("cudaGraphInstantiate");
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                          unsigned long long flags)
{
    return NO_GRAPHS("cudaGraphInstantiateWithFlags");
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
                                cudaGraphExecUpdateResultInfo *resultInfo)
{
    return NO_GRAPHS("cudaGraphExecUpdate");
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream)
{
    return NO_GRAPHS("cudaGraphUpload");
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream)
{
    return NO_GRAPHS("cudaGraphLaunch");
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
