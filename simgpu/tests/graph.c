/* graph.c: graphs node by node, what a program asks about them, updates, clones, launches inside of
 * captures, captures by threads, and where a graph goes over several devices.
 */
#include <cublas_v2.h>
#include <pthread.h>

#include "heard.h"
#include "kernels.h"

enum { N = 256, BYTES = N * (int)sizeof(float) };

static float *floats(float value)
{
    float *x;
    need_cuda(cudaMalloc((void **)&x, BYTES));
    need_cuda(kernel_fill(x, value, N, NULL));
    need_cuda(cudaDeviceSynchronize());
    return x;
}

static float first_of(const float *x)
{
    float value = 0;
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaMemcpy(&value, x, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

static void begin(cudaStream_t stream)
{
    need_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
}

static cudaGraph_t end(cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    need_cuda(cudaStreamEndCapture(stream, &graph));
    return graph;
}

static cudaGraphExec_t instance(cudaGraph_t graph)
{
    cudaGraphExec_t exec = NULL;
    need_cuda(cudaGraphInstantiate(&exec, graph, 0));
    return exec;
}

static void launch_and_drop(cudaGraph_t graph, int times, cudaStream_t stream)
{
    cudaGraphExec_t exec = instance(graph);
    for (int i = 0; i < times; i++) need_cuda(cudaGraphLaunch(exec, stream));
    need_cuda(cudaGraphExecDestroy(exec));
    need_cuda(cudaGraphDestroy(graph));
}

static void count_up(void *count)
{
    ++*(int *)count;
}

// a: memset; b: host function; c: copy after both; d: empty after c; edges added by hand.
RANK_TEST(test_made_node_by_node, 1)
{
    cudaGraph_t graph;
    cudaGraphNode_t a, b, c, d, nodes[5], from[4], to[4];
    enum cudaGraphNodeType type;
    size_t n = 5;
    int count = 0;
    float *x = floats(1), *y = floats(2);
    float half = 0.5f;
    unsigned bits;
    memcpy(&bits, &half, sizeof bits);
    struct cudaMemsetParams set = {x, BYTES, bits, 4, N, 1};
    struct cudaHostNodeParams call = {count_up, &count};
    need_cuda(cudaGraphCreate(&graph, 0));
    need_cuda(cudaGraphAddMemcpyNode1D(&c, graph, NULL, 0, y, x, BYTES, cudaMemcpyDeviceToDevice));
    need_cuda(cudaGraphAddMemsetNode(&a, graph, NULL, 0, &set));
    need_cuda(cudaGraphAddHostNode(&b, graph, &a, 1, &call));
    need_cuda(cudaGraphAddEmptyNode(&d, graph, &c, 1));
    check(cudaGraphAddEmptyNode(&d, graph, (cudaGraphNode_t[]){c, c}, 2) == cudaErrorInvalidValue,
          "a dependency that is there twice");
    need_cuda(cudaGraphAddDependencies(graph, (cudaGraphNode_t[]){a, b}, (cudaGraphNode_t[]){c, c},
                                       NULL, 2));
    check(cudaGraphAddDependencies(graph, &a, &c, NULL, 1) == cudaErrorInvalidValue,
          "an edge that is there");
    need_cuda(cudaGraphGetNodes(graph, nodes, &n));
    check(n == 4 && nodes[0] == c && nodes[3] == d && !nodes[4], "%zu nodes", n);
    need_cuda(cudaGraphGetRootNodes(graph, NULL, &n));
    check(n == 1, "%zu roots", n);
    n = 4;
    need_cuda(cudaGraphGetEdges(graph, from, to, NULL, &n));
    check(n == 4 && from[0] == a && to[0] == c && from[1] == b && to[1] == c && from[2] == a &&
              to[2] == b && from[3] == c && to[3] == d,
          "%zu edges", n);
    n = 4;
    need_cuda(cudaGraphNodeGetDependencies(c, from, NULL, &n));
    check(n == 2 && from[0] == a && from[1] == b, "c is after %zu", n);
    need_cuda(cudaGraphNodeGetDependentNodes(a, NULL, NULL, &n));
    check(n == 2, "%zu are after a", n);
    need_cuda(cudaGraphNodeGetType(b, &type));
    check(type == cudaGraphNodeTypeHost, "b is of type %d", (int)type);
    launch_and_drop(graph, 2, r->stream);
    check(first_of(y) == 0.5f && first_of(x) == 0.5f && count == 2, "y %g, count %d",
          (double)first_of(y), count);
}

static Heard *heard;

RANK_TEST(test_a_cycle_is_refused, 1)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t a, b;
    hear(heard);
    need_cuda(cudaGraphCreate(&graph, 0));
    need_cuda(cudaGraphAddEmptyNode(&a, graph, NULL, 0));
    need_cuda(cudaGraphAddEmptyNode(&b, graph, &a, 1));
    need_cuda(cudaGraphAddDependencies(graph, &b, &a, NULL, 1));
    check(cudaGraphInstantiate(&exec, graph, 0) == cudaErrorInvalidValue && !exec, "a cycle");
    heard_is(heard, "a graph with a cycle", "cudaGraphInstantiate");
    need_cuda(cudaGraphDestroy(graph));
    check(cudaGraphDestroy(graph) == cudaErrorInvalidValue, "it is destroyed twice");
    heard_is(heard, "there is no such graph", "destroyed at");
}

// The executable has its own copy of the graph, and an update takes another one's.
RANK_TEST(test_updates, 1)
{
    cudaGraphExecUpdateResultInfo info;
    float *x = floats(1);
    begin(r->stream);
    need_cuda(kernel_scale(x, 2, N, r->stream));
    cudaGraph_t graph = end(r->stream), clone;
    cudaGraphExec_t exec = instance(graph);
    need_cuda(cudaGraphClone(&clone, graph));
    need_cuda(cudaGraphDestroy(graph));
    launch_and_drop(clone, 1, r->stream);
    need_cuda(cudaGraphUpload(exec, r->stream));
    need_cuda(cudaGraphLaunch(exec, r->stream));
    check(first_of(x) == 4, "x is %g", (double)first_of(x));
    begin(r->stream);
    need_cuda(kernel_scale(x, 5, N, r->stream));
    graph = end(r->stream);
    need_cuda(cudaGraphExecUpdate(exec, graph, &info));
    check(info.result == cudaGraphExecUpdateSuccess, "update gives %d", (int)info.result);
    need_cuda(cudaGraphDestroy(graph));
    need_cuda(cudaGraphLaunch(exec, r->stream));
    check(first_of(x) == 20, "x is %g", (double)first_of(x));
    begin(r->stream);
    need_cuda(cudaMemsetAsync(x, 0, BYTES, r->stream));
    graph = end(r->stream);
    check(cudaGraphExecUpdate(exec, graph, &info) == cudaErrorGraphExecUpdateFailure &&
              info.result == cudaGraphExecUpdateErrorNodeTypeChanged,
          "update gives %d", (int)info.result);
    need_cuda(cudaGraphDestroy(graph));
    need_cuda(cudaGraphExecDestroy(exec));
}

static cudaGraph_t of_copy(void *to, const void *from, size_t bytes)
{
    cudaGraph_t graph;
    cudaGraphNode_t node;
    need_cuda(cudaGraphCreate(&graph, 0));
    need_cuda(cudaGraphAddMemcpyNode1D(&node, graph, NULL, 0, to, from, bytes, cudaMemcpyDefault));
    return graph;
}

static cudaGraph_t of_memset(void *to, size_t width, size_t height, unsigned value)
{
    cudaGraph_t graph;
    cudaGraphNode_t node;
    struct cudaMemsetParams p = {.dst = to, .pitch = 64, .value = value, .elementSize = 1};
    p.width = width;
    p.height = height;
    need_cuda(cudaGraphCreate(&graph, 0));
    need_cuda(cudaGraphAddMemsetNode(&node, graph, NULL, 0, &p));
    return graph;
}

// Two nodes, the third after one of them.
static cudaGraph_t of_edge(int from)
{
    cudaGraph_t graph;
    cudaGraphNode_t node[3];
    need_cuda(cudaGraphCreate(&graph, 0));
    for (int i = 0; i < 2; i++) need_cuda(cudaGraphAddEmptyNode(&node[i], graph, NULL, 0));
    need_cuda(cudaGraphAddEmptyNode(&node[2], graph, &node[from], 1));
    return graph;
}

// What an executable of the one graph says to the other, which both end.
static cudaGraphExecUpdateResultInfo updated(cudaGraph_t from, cudaGraph_t to)
{
    cudaGraphExecUpdateResultInfo info;
    cudaGraphExec_t exec = instance(from);
    cudaError_t error = cudaGraphExecUpdate(exec, to, &info), want = cudaSuccess;
    if (info.result != cudaGraphExecUpdateSuccess) want = cudaErrorGraphExecUpdateFailure;
    check(error == want, "an update returns %s and says %d", cudaGetErrorName(error), info.result);
    need_cuda(cudaGraphExecDestroy(exec));
    need_cuda(cudaGraphDestroy(from));
    need_cuda(cudaGraphDestroy(to));
    return info;
}

// An update may change addresses, and lengths in one dimension; no place, and no shape of rows.
RANK_TEST(test_what_an_update_may_change, 1)
{
    char *a, *b, *far, *host, own[64];
    need_cuda(cudaMalloc((void **)&a, 256));
    need_cuda(cudaMalloc((void **)&b, 256));
    need_cuda(cudaMallocHost((void **)&host, 256));
    need_cuda(cudaSetDevice(1));
    need_cuda(cudaMalloc((void **)&far, 256));
    need_cuda(cudaSetDevice(0));
    const struct {
        cudaGraph_t from, to;
        enum cudaGraphExecUpdateResult want;
    } cases[] = {
        {of_copy(a, b, 8), of_copy(b, a, 16), cudaGraphExecUpdateSuccess},
        {of_copy(host, b, 8), of_copy(own, a, 8), cudaGraphExecUpdateSuccess},
        {of_copy(a, b, 8), of_copy(a, host, 8), cudaGraphExecUpdateErrorParametersChanged},
        {of_copy(a, b, 8), of_copy(far, b, 8), cudaGraphExecUpdateErrorParametersChanged},
        {of_memset(a, 8, 1, 0), of_memset(b, 16, 1, 1), cudaGraphExecUpdateSuccess},
        {of_memset(a, 8, 2, 0), of_memset(b, 8, 2, 1), cudaGraphExecUpdateSuccess},
        {of_memset(a, 8, 2, 0), of_memset(a, 16, 2, 0), cudaGraphExecUpdateErrorParametersChanged},
        {of_memset(a, 8, 1, 0), of_memset(a, 8, 2, 0), cudaGraphExecUpdateErrorParametersChanged},
        {of_edge(0), of_edge(1), cudaGraphExecUpdateErrorTopologyChanged},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cudaGraphExecUpdateResultInfo info = updated(cases[i].from, cases[i].to);
        check(info.result == cases[i].want, "case %zu: the update gives %d", i, info.result);
        bool edge = info.result == cudaGraphExecUpdateErrorTopologyChanged;
        check(!info.errorFromNode == !edge, "case %zu: errorFromNode", i);
    }
    need_cuda(cudaFree(a));
    need_cuda(cudaFree(b));
    need_cuda(cudaFree(far));
    need_cuda(cudaFreeHost(host));
}

// A launch inside of a capture is a node; a graph that is launched there runs as often.
RANK_TEST(test_a_graph_in_a_graph, 1)
{
    float *x = floats(1);
    begin(r->stream);
    need_cuda(kernel_scale(x, 2, N, r->stream));
    cudaGraph_t inner = end(r->stream);
    cudaGraphExec_t exec = instance(inner);
    begin(r->stream);
    need_cuda(cudaGraphLaunch(exec, r->stream));
    need_cuda(kernel_scale(x, 3, N, r->stream));
    need_cuda(cudaGraphLaunch(exec, r->stream));
    launch_and_drop(end(r->stream), 2, r->stream);
    check(first_of(x) == 144, "x is %g", (double)first_of(x));
    need_cuda(cudaGraphDestroy(inner));
    need_cuda(cudaGraphExecDestroy(exec));
}

// What the host had at the capture is what a launch has: arguments, scalars, the handle's modes.
RANK_TEST(test_arguments_are_the_captures, 1)
{
    float *x = floats(1), *y = floats(1), alpha = 3;
    cublasHandle_t handle;
    check(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "cublasCreate");
    cublasSetStream(handle, r->stream);
    begin(r->stream);
    check(cublasSaxpy(handle, N, &alpha, x, 1, y, 1) == CUBLAS_STATUS_SUCCESS, "axpy");
    cudaGraph_t graph = end(r->stream);
    alpha = 100;
    cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE);
    cublasSetStream(handle, NULL);
    launch_and_drop(graph, 2, r->stream);
    check(first_of(y) == 7, "y is %g", (double)first_of(y));
    cublasPointerMode_t mode;
    cublasGetPointerMode(handle, &mode);
    check(mode == CUBLAS_POINTER_MODE_DEVICE, "a launch changed the handle");
    check(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS, "cublasDestroy");
}

// A kernel that says no arguments cannot be called again; a graph is printed as it is.
RANK_TEST(test_a_kernel_without_arguments, 1)
{
    cudaGraph_t graph;
    char path[] = "/tmp/simgpu-graph-XXXXXX", text[4096] = "";
    float *x = floats(1);
    hear(heard);
    begin(r->stream);
    need_cuda(kernel_scale(x, 2, N, r->stream));
    // What another call has said, which was not captured, is not this one's.
    cublasHandle_t handle;
    float *y = NULL, zero = 0;
    cudaStream_t eager = make_stream(cudaStreamNonBlocking);
    need_cuda(cudaMallocAsync((void **)&y, BYTES, eager));
    need_cuda(kernel_fill(y, 2, N, eager));
    check(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "cublasCreate");
    cublasSetStream(handle, r->stream);
    check(cublasSaxpy(handle, 0, &zero, y, 1, y, 1) == CUBLAS_STATUS_SUCCESS, "nothing to do");
    check(kernel_touch(x, 4, 1, r->stream) == cudaErrorStreamCaptureUnsupported, "it is captured");
    heard_is(heard, "a kernel that cannot be captured", "kernel_touch");
    need_cuda(cudaMemsetAsync(x, 0, 4, r->stream));
    graph = end(r->stream);
    int file = mkstemp(path);
    check(file >= 0, "no file");
    need_cuda(cudaGraphDebugDotPrint(graph, path, 0));
    check(read(file, text, sizeof text - 1) > 0, "an empty file");
    check(strstr(text, "kernel_scale") && strstr(text, "MEMSET") &&
              strstr(text, "node_0 -> node_1"),
          "it prints: %s", text);
    close(file);
    unlink(path);
    need_cuda(cudaGraphDestroy(graph));
    need_cuda(cudaFreeAsync(y, eager));
    check(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS, "cublasDestroy");
}

RANK_TEST(test_what_is_captured, 1)
{
    enum cudaStreamCaptureStatus status;
    unsigned long long id = 0;
    cudaGraph_t graph = NULL;
    const cudaGraphNode_t *after;
    size_t n = 9;
    float *x = floats(1), *y = floats(1);
    need_cuda(cudaStreamIsCapturing(r->stream, &status));
    check(status == cudaStreamCaptureStatusNone, "it captures");
    check(cudaStreamEndCapture(r->stream, &graph) == cudaErrorIllegalState, "none began");
    begin(r->stream);
    check(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeGlobal) == cudaErrorIllegalState,
          "it began twice");
    need_cuda(cudaStreamGetCaptureInfo(r->stream, &status, &id, &graph, &after, NULL, &n));
    check(status == cudaStreamCaptureStatusActive && id && graph && n == 0, "%zu before", n);
    need_cuda(kernel_scale(x, 2, N, r->stream));
    need_cuda(cudaStreamGetCaptureInfo(r->stream, &status, NULL, NULL, &after, NULL, &n));
    check(n == 1, "%zu before", n);
    need_cuda(cudaStreamUpdateCaptureDependencies(r->stream, NULL, NULL, 0,
                                                  cudaStreamSetCaptureDependencies));
    need_cuda(kernel_scale(y, 3, N, r->stream)); // beside the other now, which nothing joins
    check(cudaStreamUpdateCaptureDependencies(r->stream, NULL, NULL, 0, 7) == cudaErrorInvalidValue,
          "a flag that is none");
    cudaGraphNode_t nodes[2];
    n = 2;
    need_cuda(cudaGraphGetNodes(graph, nodes, &n));
    need_cuda(cudaStreamUpdateCaptureDependencies(r->stream, nodes, NULL, 1,
                                                  cudaStreamAddCaptureDependencies));
    cudaGraph_t ended = end(r->stream);
    check(ended == graph, "another graph");
    need_cuda(cudaGraphGetEdges(graph, NULL, NULL, NULL, &n));
    check(n == 0, "%zu edges", n);
    launch_and_drop(graph, 1, r->stream);
    check(first_of(x) == 2 && first_of(y) == 3, "x %g, y %g", (double)first_of(x),
          (double)first_of(y));
}

// ---- Threads ----

typedef struct Other {
    cudaStream_t stream;
    enum cudaStreamCaptureMode mode;
    cudaError_t ended, allocated;
} Other;

static void *in_another_thread(void *arg)
{
    Other *o = arg;
    void *x;
    cudaGraph_t graph;
    enum cudaStreamCaptureMode mode = o->mode;
    cudaThreadExchangeStreamCaptureMode(&mode);
    o->allocated = cudaMalloc(&x, BYTES);
    if (o->allocated == cudaSuccess) cudaFree(x);
    o->ended = cudaStreamEndCapture(o->stream, &graph);
    return NULL;
}

// Global: no thread may call what is unsafe, unless it says that it is relaxed; and only the thread
// that began a capture ends it, unless that is relaxed.
RANK_TEST(test_modes_and_threads, 1)
{
    static const struct {
        enum cudaStreamCaptureMode of, other;
        cudaError_t allocated, ended;
    } rows[] = {
        {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeGlobal,
         cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureWrongThread},
        {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaSuccess,
         cudaErrorStreamCaptureWrongThread},
        {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal, cudaSuccess,
         cudaErrorStreamCaptureWrongThread},
        {cudaStreamCaptureModeRelaxed, cudaStreamCaptureModeGlobal, cudaSuccess, cudaSuccess},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pthread_t thread;
        Other other = {r->stream, rows[i].other, cudaSuccess, cudaSuccess};
        cudaGraph_t graph = NULL;
        hear(heard);
        need_cuda(cudaStreamBeginCapture(r->stream, rows[i].of));
        pthread_create(&thread, NULL, in_another_thread, &other);
        pthread_join(thread, NULL);
        check(other.allocated == rows[i].allocated, "case %zu: cudaMalloc gives %s", i,
              cudaGetErrorName(other.allocated));
        check(other.ended == rows[i].ended, "case %zu: the end gives %s", i,
              cudaGetErrorName(other.ended));
        cudaError_t ended = cudaStreamEndCapture(r->stream, &graph);
        check(ended == (rows[i].ended == cudaSuccess       ? cudaErrorIllegalState
                        : rows[i].allocated != cudaSuccess ? cudaErrorStreamCaptureInvalidated
                                                           : cudaSuccess),
              "case %zu: the second end gives %s", i, cudaGetErrorName(ended));
        if (graph) need_cuda(cudaGraphDestroy(graph));
    }
}

// ---- Several devices, memory, the clock ----

// One thread with two devices: the calls of a group are nodes that begin together.
RANK_TEST(test_two_devices, 1)
{
    enum { D = 2 };
    ncclComm_t comm[D];
    cudaStream_t stream[D];
    cudaEvent_t fork, join;
    float *x[D];
    need_nccl(ncclCommInitAll(comm, D, (int[]){0, 1}));
    for (int d = 0; d < D; d++) {
        need_cuda(cudaSetDevice(d));
        stream[d] = make_stream(cudaStreamNonBlocking);
        x[d] = floats((float)(d + 1));
    }
    need_cuda(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    need_cuda(cudaSetDevice(0));
    need_cuda(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    begin(stream[0]);
    need_cuda(kernel_scale(x[0], 10, N, stream[0]));
    need_cuda(cudaEventRecord(fork, stream[0]));
    need_cuda(cudaStreamWaitEvent(stream[1], fork, 0));
    need_nccl(ncclGroupStart());
    for (int d = 0; d < D; d++)
        need_nccl(ncclAllReduce(x[d], x[d], N, ncclFloat, ncclSum, comm[d], stream[d]));
    need_nccl(ncclGroupEnd());
    need_cuda(cudaSetDevice(1));
    need_cuda(kernel_scale(x[1], 2, N, stream[1]));
    need_cuda(cudaEventRecord(join, stream[1]));
    need_cuda(cudaStreamWaitEvent(stream[0], join, 0));
    need_cuda(cudaSetDevice(0));
    cudaGraph_t graph = end(stream[0]);
    size_t n;
    need_cuda(cudaGraphGetNodes(graph, NULL, &n));
    check(n == 4, "%zu nodes", n);
    launch_and_drop(graph, 1, stream[0]);
    check(first_of(x[0]) == 12, "device 0 has %g", (double)first_of(x[0]));
    need_cuda(cudaSetDevice(1));
    check(first_of(x[1]) == 24, "device 1 has %g", (double)first_of(x[1]));
    for (int d = 0; d < D; d++) need_nccl(ncclCommDestroy(comm[d]));
}

// The memory of a graph is held from its allocation in a launch to its free, and counted then.
RANK_TEST(test_memory_is_counted, 1)
{
    void *p, *other;
    begin(r->stream);
    size_t before = gpulog_live_bytes(r->device);
    need_cuda(cudaMallocAsync(&p, 1 << 20, r->stream));
    need_cuda(cudaMemsetAsync(p, 1, 1 << 20, r->stream));
    cudaGraph_t graph = end(r->stream);
    check(gpulog_live_bytes(r->device) == before, "a capture allocated");
    cudaGraphExec_t exec;
    need_cuda(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    need_cuda(cudaMalloc(&other, 1 << 20));
    check(other != p, "a graph's address was given away");
    need_cuda(cudaFree(other));
    for (int i = 0; i < 2; i++) {
        need_cuda(cudaGraphLaunch(exec, r->stream));
        check(gpulog_live_bytes(r->device) == before + (1 << 20), "a launch did not allocate");
    }
    need_cuda(cudaFreeAsync(p, r->stream));
    check(gpulog_live_bytes(r->device) == before, "it was not freed");
    need_cuda(cudaGraphExecDestroy(exec));
    need_cuda(cudaGraphDestroy(graph));
}

// Ten kernels cost the host one launch; each has its own start on the device.
RANK_TEST(test_time_of_a_launch, 1)
{
    enum { KERNELS = 10 };
    float *x = floats(1), ms[2];
    cudaEvent_t from, to;
    need_cuda(cudaEventCreate(&from));
    need_cuda(cudaEventCreate(&to));
    begin(r->stream);
    for (int i = 0; i < KERNELS; i++) need_cuda(kernel_scale(x, 1, N, r->stream));
    cudaGraph_t graph = end(r->stream);
    cudaGraphExec_t exec = instance(graph);
    for (int way = 0; way < 2; way++) {
        need_cuda(cudaDeviceSynchronize());
        need_cuda(cudaEventRecord(from, r->stream));
        for (int i = 0; i < KERNELS && !way; i++) need_cuda(kernel_scale(x, 1, N, r->stream));
        if (way) need_cuda(cudaGraphLaunch(exec, r->stream));
        need_cuda(cudaEventRecord(to, r->stream));
        need_cuda(cudaDeviceSynchronize());
        need_cuda(cudaEventElapsedTime(&ms[way], from, to));
    }
    // h100x8: 4 us a call and 2 for the last kernel; 2.5 for the launch and 2 for each kernel.
    check(ms[0] > 0.040f && ms[0] < 0.044f, "call by call: %g us", 1e3 * (double)ms[0]);
    check(ms[1] > 0.022f && ms[1] < 0.026f, "as a graph: %g us", 1e3 * (double)ms[1]);
    need_cuda(cudaGraphExecDestroy(exec));
    need_cuda(cudaGraphDestroy(graph));
}

int main(int argc, char **argv)
{
    heard = shared_alloc(sizeof *heard);
    return suite_main(argc, argv, "simgpu/graph");
}
