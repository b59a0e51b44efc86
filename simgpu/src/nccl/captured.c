/* captured.c: NCCL calls in a stream capture. See captured.h.
 *
 * A group becomes one node for each stream that it is on, as its kernels do. The nodes of a group
 * begin together: a launch makes all its calls when all of them can be made (graph_exec.c).
 *
 * "CUDA Graphs: … whether an operation is launched via graph is considered a collective property of
 * that operation and so must be uniform over all ranks participating in the launch" (NCCL, Using
 * NCCL with CUDA Graphs): that is part of a call's signature.
 */
#include <stdlib.h>
#include <string.h>

#include "nccl/arguments.h"
#include "nccl/captured.h"
#include "nccl/group.h"
#include "nccl/inside.h"
#include "nccl/kind.h"
#include "nccl/launches.h"
#include "nccl/pending.h"
#include "nccl/refuse.h"

// The calls of a group, which its nodes share.
typedef struct Group {
    int n, nodes; // nodes that have it
    int *node;    // (n), of each call: which of them it is of
    Call *call;
} Group;

static void drop_group(void *args)
{
    Group *group = *(Group **)args;
    if (--group->nodes > 0) return;
    free(group->node);
    free(group->call);
    free(group);
}

static cudaError_t error_of(ncclResult_t result)
{
    if (result == ncclSuccess) return cudaSuccess;
    cudaError_t error = cudaPeekAtLastError();
    return error != cudaSuccess ? error : cudaErrorLaunchFailure;
}

// Makes the calls on those streams. With `polled` it only begins them, and the caller polls
// (pending.h).
static ncclResult_t make_calls(const Group *group, const cudaStream_t *together, bool polled)
{
    Call *call = malloc((size_t)group->n * sizeof *call);
    ncclResult_t result = call ? ncclSuccess : ncclSystemError;
    int entered = 0;
    if (call) memcpy(call, group->call, (size_t)group->n * sizeof *call);
    for (int i = 0; i < group->n && result == ncclSuccess; i++) {
        call[i].stream = together[group->node[i]];
        call[i].polled = polled;
        call[i].signature.in_graph = 1;
        result = sim_check_call(&call[i]);
        if (result != ncclSuccess) break;
        const char *name = sim_kind(call[i].signature.kind)->call;
        call[i].entered = sim_comm_enter(call[i].comm, name, call[i].site);
        entered = i + 1;
    }
    if (result == ncclSuccess) result = sim_check_messages(call, group->n);
    if (result == ncclSuccess && !polled) result = sim_run_calls(call, group->n);
    for (int i = 0; i < entered; i++)
        if (call[i].entered) sim_comm_exit(call[i].comm);
    if (result == ncclSuccess && polled) return sim_pending_calls(call, group->n);
    free(call);
    return result;
}

static cudaError_t calls_again(cudaGraphNode_t node)
{
    sim_launching.stream = NULL; // each call has its own
    sim_launching.site = NULL;
    return error_of(make_calls(*(Group **)node->call.args, sim_launching.together, false));
}

const Call *sim_captured_calls(cudaGraphNode_t node, int *n)
{
    const Group *group = node->call.again == calls_again ? *(Group **)node->call.args : NULL;
    *n = group ? group->n : 0;
    return group ? group->call : NULL;
}

cudaError_t sim_captured_begin(cudaGraphNode_t node, const SimLaunch *launch, ncclComm_t *comm)
{
    const Group *group = *(Group **)node->call.args;
    SimReplay before = sim_launching;
    sim_launching = (SimReplay){.launch = launch->number};
    ncclResult_t result = make_calls(group, launch->together, true);
    sim_launching = before;
    *comm = group->call[0].comm;
    return error_of(result == ncclInProgress ? ncclSuccess : result);
}

// An operation that only finds out whether the call's stream is captured and what it may do there.
static SimgpuOp begin(const Call *call)
{
    int device = sim_current_device();
    sim_set_current_device(call->comm->device);
    SimgpuOp op =
        sim_begin(GPU_EVENT_RECORD, sim_kind(call->signature.kind)->call, call->stream, call->site);
    sim_set_current_device(device);
    return op;
}

static ncclResult_t refuse(const Call *call, const char *title, const char *text)
{
    return sim_refuse(SIMGPU_CAPTURE, ncclInvalidUsage, sim_kind(call->signature.kind)->call,
                      call->site, title, "%s", text);
}

static ncclResult_t capture(const Call *calls, SimgpuOp *op, int n)
{
    Group *group = calloc(1, sizeof *group);
    if (group) group->node = calloc((size_t)n, sizeof *group->node);
    if (group) group->call = malloc((size_t)n * sizeof *calls);
    if (!group || !group->node || !group->call) return ncclSystemError;
    memcpy(group->call, calls, (size_t)n * sizeof *calls);
    sim_launches_hold();
    group->n = n;
    int nodes = 0;
    for (int i = 0; i < n; i++) {
        int first = 0;
        while (op[first].entry.stream != op[i].entry.stream) first++;
        group->node[i] = first < i ? group->node[first] : nodes++;
    }
    group->nodes = nodes;
    for (int i = 0, made = 0; i < n; i++) {
        if (group->node[i] < made) continue;
        made++;
        cudaError_t error = sim_capture_node(&op[i], (SimNewNode){.type = cudaGraphNodeTypeKernel,
                                                                  .again = calls_again,
                                                                  .drop = drop_group,
                                                                  .together = group,
                                                                  .args = &group,
                                                                  .bytes = sizeof group});
        if (error != cudaSuccess) return ncclUnhandledCudaError;
    }
    return ncclSuccess;
}

bool sim_capture_calls(const Call *calls, int n, ncclResult_t *result)
{
    *result = ncclSuccess;
    if (!simgpu_captures || sim_launching.launch) return false;
    SimgpuOp *op = malloc((size_t)n * sizeof *op);
    int captured = 0, eager = 0, faults = 0, nonblocking = 0;
    for (int i = 0; i < n && op; i++) {
        bool setup = sim_is_setup(calls[i].signature.kind);
        if (!setup) op[i] = begin(&calls[i]);
        bool fault = !setup && op[i].error != cudaSuccess;
        bool is_captured = !setup && !fault && op[i].captured;
        faults += fault;
        captured += is_captured;
        eager += !fault && !is_captured;
        nonblocking += is_captured && calls[i].comm->options.nonblocking;
    }
    if (!op)
        *result = ncclSystemError;
    else if (faults)
        *result = ncclUnhandledCudaError;
    else if (captured && eager)
        *result = refuse(&calls[0], "only some calls of a group are captured",
                         "Some calls of its group are on streams that are captured, others are "
                         "not.\nOn real GPUs it returns \"invalid usage\", as here.\n"
                         "Do all streams of the group join the capture, by events?");
    else if (nonblocking)
        *result = refuse(&calls[0], "a call on a non-blocking communicator is captured",
                         "simgpu captures calls only on communicators that block.\n"
                         "Can config.blocking be 1?");
    else if (captured)
        *result = capture(calls, op, n);
    free(op);
    return captured || *result != ncclSuccess;
}
