/* stream_calls.c: what is queued on a stream and touches no memory: records, waits, and functions
 * of the host.
 *
 * Interface: cudaEventRecord, cudaEventRecordWithFlags, cudaStreamWaitEvent, cudaLaunchHostFunc,
 * cudaStreamAddCallback.
 */
#include "core/error.h"
#include "runtime/operation.h"
#include "streams/streams.h"

static cudaError_t record(const char *call, cudaEvent_t event, cudaStream_t stream,
                          const void *site)
{
    SimgpuOp op = sim_begin(GPU_EVENT_RECORD, call, stream, site);
    if (op.error != cudaSuccess) return simgpu_end(&op);
    cudaError_t error = sim_event_record(&op, event);
    return error != cudaSuccess ? error : simgpu_end(&op);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return record("cudaEventRecord", event, stream, SIM_SITE);
}

// The other flag, as cudaStreamWaitEvent's, is "invalid outside of stream capture" (CUDA Runtime
// API, event management), and simgpu has none.
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    if (flags != cudaEventRecordDefault) return sim_leave(cudaErrorInvalidValue);
    return record("cudaEventRecordWithFlags", event, stream, SIM_SITE);
}

// An event that was never recorded holds nobody up, as documented.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    SimgpuOp op = sim_begin(GPU_STREAM_WAIT, "cudaStreamWaitEvent", stream, SIM_SITE);
    if (op.error == cudaSuccess && flags != cudaEventWaitDefault) op.error = cudaErrorInvalidValue;
    if (op.error != cudaSuccess) return simgpu_end(&op);
    cudaError_t error = sim_event_wait(&op, event);
    return error != cudaSuccess ? error : simgpu_end(&op);
}

// A function of the host after what its stream does. It runs between these two, sees the pinned
// memory that the stream has filled before it, and may make no CUDA call.
static SimgpuOp begin_host_function(const char *name, cudaStream_t stream, const void *site)
{
    SimgpuOp op = sim_begin(GPU_KERNEL, name, stream, site);
    if (op.error != cudaSuccess) return op;
    sim_stream_deliver(&op);
    sim_in_host_function(name, site);
    return op;
}

static cudaError_t end_host_function(SimgpuOp *op)
{
    if (op->error == cudaSuccess) sim_in_host_function(NULL, NULL);
    return simgpu_end(op);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData)
{
    SIM_ENTER();
    if (!fn) return sim_leave(cudaErrorInvalidValue);
    SimgpuOp op = begin_host_function("cudaLaunchHostFunc", stream, SIM_SITE);
    if (op.error == cudaSuccess) fn(userData);
    return end_host_function(&op);
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
                                  void *userData, unsigned int flags)
{
    SIM_ENTER();
    if (!callback || flags) return sim_leave(cudaErrorInvalidValue);
    SimgpuOp op = begin_host_function("cudaStreamAddCallback", stream, SIM_SITE);
    if (op.error == cudaSuccess) callback(stream, cudaSuccess, userData);
    return end_host_function(&op);
}
