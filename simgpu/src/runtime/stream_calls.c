/* stream_calls.c: operations on a stream that touch no memory: records, waits, and host functions.
 *
 * Interface: cudaEventRecord, cudaEventRecordWithFlags, cudaStreamWaitEvent, cudaLaunchHostFunc,
 * cudaStreamAddCallback.
 */
#include "core/error.h"
#include "runtime/graph_nodes.h"
#include "runtime/operation.h"
#include "streams/capture.h"
#include "streams/streams.h"

static cudaError_t record(const char *call, cudaEvent_t event, cudaStream_t stream, bool external,
                          const void *site);
static cudaError_t wait(cudaEvent_t event, cudaStream_t stream, bool external, const void *site);

static cudaError_t again(cudaGraphNode_t node)
{
    cudaEvent_t event = *(cudaEvent_t *)node->call.args;
    return node->type == cudaGraphNodeTypeEventRecord
               ? record(node->name, event, NULL, true, node->site)
               : wait(event, NULL, true, node->site);
}

static SimNewNode event_node(enum cudaGraphNodeType type, const cudaEvent_t *event)
{
    return (SimNewNode){.type = type, .again = again, .args = event, .bytes = sizeof *event};
}

// An external record or wait ("Set the flag to capture the event record into a node"): it becomes a
// node, and the event does not join the capture.
static cudaError_t capture_event(SimgpuOp *op, enum cudaGraphNodeType type, cudaEvent_t event)
{
    return sim_capture_node(op, event_node(type, &event));
}

static cudaError_t record(const char *call, cudaEvent_t event, cudaStream_t stream, bool external,
                          const void *site)
{
    SimNewNode node = event_node(cudaGraphNodeTypeEventRecord, &event);
    if (sim_hold_node && sim_hold_node(stream, call, site, node)) return cudaSuccess;
    SimgpuOp op = sim_begin(GPU_EVENT_RECORD, call, stream, site);
    if (op.error != cudaSuccess) return simgpu_end(&op);
    if (op.captured && external) return capture_event(&op, cudaGraphNodeTypeEventRecord, event);
    cudaError_t error = sim_event_record(&op, event);
    return error != cudaSuccess ? error : simgpu_end(&op);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return record("cudaEventRecord", event, stream, false, SIM_SITE);
}

// The other flags are "invalid outside of stream capture" (CUDA Runtime API, event management).
static cudaError_t check_external(cudaStream_t stream, unsigned flags, unsigned external)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (flags == 0) return cudaSuccess;
    if (flags != external) return cudaErrorInvalidValue;
    cudaError_t error = cudaStreamIsCapturing(stream, &status);
    if (error != cudaSuccess) return error;
    return status == cudaStreamCaptureStatusNone ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    cudaError_t error = check_external(stream, flags, cudaEventRecordExternal);
    if (error != cudaSuccess) return sim_leave(error);
    return record("cudaEventRecordWithFlags", event, stream, flags != 0, SIM_SITE);
}

// As documented, a wait for an event that was never recorded does not wait.
static cudaError_t wait(cudaEvent_t event, cudaStream_t stream, bool external, const void *site)
{
    SimgpuOp op = sim_begin(GPU_STREAM_WAIT, "cudaStreamWaitEvent", stream, site);
    if (op.error != cudaSuccess) return simgpu_end(&op);
    if (op.captured && external) return capture_event(&op, cudaGraphNodeTypeWaitEvent, event);
    cudaError_t error = sim_event_wait(&op, event);
    return error != cudaSuccess ? error : simgpu_end(&op);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    cudaError_t error = check_external(stream, flags, cudaEventWaitExternal);
    if (error != cudaSuccess) return sim_leave(error);
    return wait(event, stream, flags != 0, SIM_SITE);
}

// A host function, in the order of its stream. It runs between these two, sees the pinned memory
// that the stream has filled before it, and must not make a CUDA call.
static SimgpuOp begin_host_function(const char *name, cudaStream_t stream, const void *site)
{
    SimgpuOp op = sim_begin(GPU_KERNEL, name, stream, site);
    if (op.error != cudaSuccess || op.captured) return op;
    sim_stream_deliver(&op);
    sim_in_host_function(name, site);
    return op;
}

static cudaError_t end_host_function(SimgpuOp *op)
{
    if (op->error == cudaSuccess && !op->captured) sim_in_host_function(NULL, NULL);
    return simgpu_end(op);
}

static cudaError_t host_function_again(cudaGraphNode_t node)
{
    const struct cudaHostNodeParams *p = node->call.args;
    return sim_host_function(node->name, NULL, p, node->site);
}

SimNewNode sim_host_node(const struct cudaHostNodeParams *params)
{
    return (SimNewNode){.type = cudaGraphNodeTypeHost,
                        .name = "cudaLaunchHostFunc",
                        .again = host_function_again,
                        .args = params,
                        .bytes = sizeof *params};
}

cudaError_t sim_host_function(const char *name, cudaStream_t stream,
                              const struct cudaHostNodeParams *params, const void *site)
{
    SimgpuOp op = begin_host_function(name, stream, site);
    if (op.captured) return sim_capture_node(&op, sim_host_node(params));
    if (op.error == cudaSuccess) params->fn(params->userData);
    return end_host_function(&op);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData)
{
    SIM_ENTER();
    if (!fn) return sim_leave(cudaErrorInvalidValue);
    struct cudaHostNodeParams params = {fn, userData};
    return sim_host_function("cudaLaunchHostFunc", stream, &params, SIM_SITE);
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
                                  void *userData, unsigned int flags)
{
    SIM_ENTER();
    if (!callback || flags) return sim_leave(cudaErrorInvalidValue);
    SimgpuOp op = begin_host_function("cudaStreamAddCallback", stream, SIM_SITE);
    if (op.captured)
        return sim_capture_refuse(&op, "cannot be captured", "Does cudaLaunchHostFunc do it?");
    if (op.error == cudaSuccess) callback(stream, cudaSuccess, userData);
    return end_host_function(&op);
}
