/* graph.c: streams that are captured, and graphs that are launched: what a capture does not allow,
 * and mistakes of other classes that happen in a launch.
 */
#include "program.h"

// A capture that failed ends, with no graph.
HELPER void end_failed(cudaStream_t stream)
{
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated && !graph);
    CHECK(cudaGetLastError() == cudaErrorStreamCaptureInvalidated);
}

// `to` waits for what `from` has been given.
HELPER void follow(cudaStream_t to, cudaStream_t from)
{
    cudaEvent_t event = new_event();
    CUDA(cudaEventRecord(event, from));
    CUDA(cudaStreamWaitEvent(to, event, 0));
    CUDA(cudaEventDestroy(event));
}

// ---- What a capture does not allow ----

WRONG(CAPTURE, waits_for_a_captured_stream, 1, "0")
{
    float *x = filled(N, 1);
    cudaStream_t stream = side_stream();
    BEGIN(stream); // HERE
    CUDA(kernel_scale(x, 2, N, stream));
    CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported); // HERE
    CHECK(kernel_scale(x, 2, N, stream) == cudaErrorStreamCaptureInvalidated);
    end_failed(stream);
    expect(x, N, 1);
}

WRONG(CAPTURE, waits_for_the_device_in_a_capture, 1, "0")
{
    cudaStream_t stream = side_stream();
    BEGIN(stream);                                                       // HERE
    CHECK(cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported); // HERE
    end_failed(stream);
}

WRONG(CAPTURE, waits_for_a_captured_event, 1, "0")
{
    cudaStream_t stream = side_stream();
    cudaEvent_t event = new_event();
    BEGIN(stream); // HERE
    CUDA(cudaEventRecord(event, stream));
    CHECK(cudaEventSynchronize(event) == cudaErrorCapturedEvent); // HERE
    end_failed(stream);
}

WRONG(CAPTURE, allocates_in_a_capture, 1, "0")
{
    float *x;
    cudaStream_t stream = side_stream();
    BEGIN(stream);                                                              // HERE
    CHECK(cudaMalloc((void **)&x, 4 * N) == cudaErrorStreamCaptureUnsupported); // HERE
    end_failed(stream);
}

WRONG(CAPTURE, makes_a_communicator_in_a_capture, 1, "0")
{
    ncclComm_t comm;
    cudaStream_t stream = side_stream();
    BEGIN(stream);                                                    // HERE
    CHECK(ncclCommInitAll(&comm, 1, NULL) == ncclUnhandledCudaError); // HERE
    end_failed(stream);
}

WRONG(CAPTURE, splits_a_communicator_in_a_capture, 1, "0")
{
    ncclComm_t comm = meet(rank, ranks), part;
    cudaStream_t stream = side_stream();
    BEGIN(stream);                                                           // HERE
    CHECK(ncclCommSplit(comm, 0, 0, &part, NULL) == ncclUnhandledCudaError); // HERE
    end_failed(stream);
}

RIGHT(CAPTURE, makes_a_communicator_beside_a_relaxed_capture, 1)
{
    float *x = filled(N, 1);
    cudaStream_t stream = side_stream();
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    ncclComm_t comm = meet(rank, ranks);
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, stream));
    cudaGraphExec_t exec = end_capture(stream);
    CUDA(cudaGraphLaunch(exec, stream));
    expect(x, N, 1);
    CUDA(cudaGraphExecDestroy(exec));
}

RIGHT(CAPTURE, allocates_in_a_relaxed_capture, 1)
{
    float *x;
    cudaStream_t stream = side_stream();
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CUDA(cudaMalloc((void **)&x, 4 * N));
    CUDA(kernel_fill(x, 3, N, stream));
    cudaGraphExec_t exec = end_capture(stream);
    CUDA(cudaGraphLaunch(exec, stream));
    expect(x, N, 3);
    CUDA(cudaGraphExecDestroy(exec));
}

WRONG(CAPTURE, copies_and_waits_in_a_capture, 1, "0")
{
    float *x = filled(N, 1), host[4] = {0};
    cudaStream_t stream = side_stream();
    BEGIN(stream);                                                    // HERE
    CHECK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost) == // HERE
          cudaErrorStreamCaptureUnsupported);
    end_failed(stream);
}

WRONG(CAPTURE, default_stream_beside_a_blocking_capture, 1, "0")
{
    float *x = filled(N, 1);
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    BEGIN(stream);                                                        // HERE
    CHECK(kernel_scale(x, 2, N, NULL) == cudaErrorStreamCaptureImplicit); // HERE
    end_failed(stream);
}

RIGHT(CAPTURE, default_stream_beside_another_capture, 1)
{
    float *x = filled(N, 1);
    cudaStream_t stream = side_stream();
    BEGIN(stream);
    CUDA(kernel_scale(x, 2, N, NULL));
    CUDA(cudaGraphExecDestroy(end_capture(stream)));
    expect(x, N, 2);
}

WRONG(CAPTURE, default_stream_captured, 1, "0")
{
    CHECK(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeGlobal) == // HERE
          cudaErrorStreamCaptureUnsupported);
}

// The second stream's work would be lost: nothing of the first stream waits for it.
WRONG(CAPTURE, forks_and_does_not_join, 1, "0")
{
    float *x = filled(N, 1);
    cudaGraph_t graph;
    cudaStream_t stream = side_stream(), other = side_stream();
    BEGIN(stream); // HERE
    follow(other, stream);
    CUDA(kernel_scale(x, 2, N, other));                                            // HERE
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureUnjoined); // HERE
    CHECK(!graph);
}

RIGHT(CAPTURE, forks_and_joins, 1)
{
    float *x = filled(N, 1);
    cudaStream_t stream = side_stream(), other = side_stream();
    BEGIN(stream);
    follow(other, stream);
    CUDA(kernel_scale(x, 2, N, other));
    follow(stream, other);
    CUDA(kernel_scale(x, 3, N, stream));
    cudaGraphExec_t exec = end_capture(stream);
    expect(x, N, 1);
    for (int i = 0; i < 3; i++) CUDA(cudaGraphLaunch(exec, other));
    expect(x, N, 216);
    CUDA(cudaGraphExecDestroy(exec));
}

WRONG(CAPTURE, waits_for_an_event_of_before, 1, "0")
{
    cudaStream_t stream = side_stream(), other = side_stream();
    cudaEvent_t event = new_event();
    CUDA(cudaEventRecord(event, other));
    BEGIN(stream);                                                                   // HERE
    CHECK(cudaStreamWaitEvent(stream, event, 0) == cudaErrorStreamCaptureIsolation); // HERE
    end_failed(stream);
}

RIGHT(CAPTURE, waits_for_an_event_of_before_as_external, 1)
{
    float *x = filled(N, 1);
    cudaStream_t stream = side_stream(), other = side_stream();
    cudaEvent_t event = new_event();
    BEGIN(stream);
    CUDA(cudaStreamWaitEvent(stream, event, cudaEventWaitExternal));
    CUDA(kernel_scale(x, 2, N, stream));
    cudaGraphExec_t exec = end_capture(stream);
    CUDA(kernel_fill(x, 5, N, other));
    CUDA(cudaEventRecord(event, other));
    CUDA(cudaGraphLaunch(exec, stream));
    expect(x, N, 10);
    CUDA(cudaGraphExecDestroy(exec));
}

WRONG(CAPTURE, merges_two_captures, 1, "0")
{
    cudaStream_t stream = side_stream(), other = side_stream();
    cudaEvent_t event = new_event();
    BEGIN(stream);
    BEGIN(other); // HERE
    CUDA(cudaEventRecord(event, other));
    CHECK(cudaStreamWaitEvent(stream, event, 0) == cudaErrorStreamCaptureMerge); // HERE
    end_failed(stream);
    end_failed(other);
}

WRONG(CAPTURE, ends_the_capture_of_a_stream_that_joined, 1, "0")
{
    cudaGraph_t graph;
    cudaStream_t stream = side_stream(), other = side_stream();
    BEGIN(stream); // HERE
    follow(other, stream);
    CHECK(cudaStreamEndCapture(other, &graph) == cudaErrorStreamCaptureUnmatched); // HERE
    end_failed(stream);
}

WRONG(CAPTURE, callback_in_a_capture, 1, "0")
{
    cudaStream_t stream = side_stream();
    BEGIN(stream);                                                                       // HERE
    CHECK(cudaStreamAddCallback(stream, (cudaStreamCallback_t)(void *)abort, NULL, 0) == // HERE
          cudaErrorStreamCaptureUnsupported);
    end_failed(stream);
}

WRONG(CAPTURE, result_on_the_host_in_a_capture, 1, "0")
{
    float *x = filled(N, 1), sum = 0;
    cublasHandle_t handle;
    cudaStream_t stream = side_stream();
    BLAS(cublasCreate(&handle));
    BLAS(cublasSetStream(handle, stream));
    BEGIN(stream);                                                               // HERE
    CHECK(cublasSasum(handle, N, x, 1, &sum) == CUBLAS_STATUS_EXECUTION_FAILED); // HERE
    end_failed(stream);
    BLAS(cublasDestroy(handle));
}

// ---- A launch ----

// Neither kernel waits for the other, in whatever order they were captured; in forks_and_joins the
// second one does.
WRONG(RACE, two_branches_of_a_graph, 1, "0")
{
    float *x = filled(N, 1);
    cudaStream_t stream = side_stream(), other = side_stream();
    BEGIN(stream);
    follow(other, stream);
    CUDA(kernel_scale(x, 2, N, other));  // HERE
    CUDA(kernel_scale(x, 3, N, stream)); // HERE
    follow(stream, other);
    cudaGraphExec_t exec = end_capture(stream);
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaGraphExecDestroy(exec));
}

HELPER cudaGraphExec_t scaling(float *x, float factor, cudaStream_t stream)
{
    BEGIN(stream);
    CUDA(kernel_scale(x, factor, N, stream)); // of the graphs below
    return end_capture(stream);
}

WRONG(RACE, two_graphs_on_two_streams, 1, "0")
{
    float *x = filled(N, 1);
    cudaStream_t stream = side_stream(), other = side_stream();
    cudaGraphExec_t exec[2];
    BEGIN(stream);
    CUDA(kernel_scale(x, 2, N, stream)); // HERE
    exec[0] = end_capture(stream);
    BEGIN(stream);
    CUDA(kernel_scale(x, 3, N, stream)); // HERE
    exec[1] = end_capture(stream);
    CUDA(cudaGraphLaunch(exec[0], stream));
    CUDA(cudaGraphLaunch(exec[1], other));
    for (int i = 0; i < 2; i++) CUDA(cudaGraphExecDestroy(exec[i]));
}

// CUDA orders the launches of one executable, whatever their streams.
RIGHT(RACE, one_graph_on_two_streams, 1)
{
    float *x = filled(N, 1);
    cudaStream_t stream = side_stream(), other = side_stream();
    cudaGraphExec_t exec = scaling(x, 2, stream);
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaGraphLaunch(exec, other));
    expect(x, N, 4);
    CUDA(cudaGraphExecDestroy(exec));
}

WRONG(RACE, graph_beside_a_kernel, 1, "0")
{
    float *x = filled(N, 1);
    cudaStream_t stream = side_stream(), other = side_stream();
    BEGIN(stream);
    CUDA(kernel_scale(x, 2, N, stream)); // HERE
    cudaGraphExec_t exec = end_capture(stream);
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(kernel_scale(x, 3, N, other)); // HERE
    CUDA(cudaGraphExecDestroy(exec));
}

// The launch is before what its stream is given later, and after what it was given before.
RIGHT(RACE, graph_between_kernels, 1)
{
    float *x = filled(N, 1);
    cudaStream_t stream = side_stream(), other = side_stream();
    cudaGraphExec_t exec = scaling(x, 2, other);
    CUDA(kernel_fill(x, 5, N, stream));
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(kernel_scale(x, 3, N, stream));
    expect(x, N, 30);
    CUDA(cudaGraphExecDestroy(exec));
}

WRONG(LIFETIME, memory_of_a_captured_pointer_freed, 1, "0")
{
    float *x = filled(N, 1);
    cudaStream_t stream = side_stream();
    BEGIN(stream);
    CUDA(kernel_scale(x, 2, N, stream)); // HERE
    cudaGraphExec_t exec = end_capture(stream);
    CUDA(cudaFree(x)); // HERE
    CHECK(cudaGraphLaunch(exec, stream) == cudaErrorIllegalAddress);
    exit(0); // every call fails now
}

WRONG(UNINITIALISED, graph_reads_what_nobody_wrote, 1, "0")
{
    float *x, *y = filled(N, 1);
    cudaStream_t stream = side_stream();
    CUDA(cudaMalloc((void **)&x, 4 * N)); // HERE
    BEGIN(stream);
    CUDA(kernel_add(y, x, N, stream)); // HERE
    cudaGraphExec_t exec = end_capture(stream);
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaGraphExecDestroy(exec));
}

// ---- Memory of a graph ----

WRONG(CAPTURE, memory_of_a_graph_not_freed, 1, "0")
{
    float *x;
    cudaStream_t stream = side_stream();
    BEGIN(stream);
    CUDA(cudaMallocAsync((void **)&x, 4 * N, stream)); // HERE
    CUDA(kernel_fill(x, 1, N, stream));
    cudaGraphExec_t exec = end_capture(stream);
    CUDA(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphLaunch(exec, stream) == cudaErrorInvalidValue); // HERE
    CUDA(cudaFreeAsync(x, stream));
    CUDA(cudaGraphExecDestroy(exec));
}

RIGHT(CAPTURE, memory_of_a_graph_freed_between, 1)
{
    float *x, *sum = filled(N, 0);
    cudaStream_t stream = side_stream();
    BEGIN(stream);
    CUDA(cudaMallocAsync((void **)&x, 4 * N, stream));
    CUDA(kernel_fill(x, 1, N, stream));
    cudaGraphExec_t exec = end_capture(stream);
    for (int i = 0; i < 3; i++) {
        CUDA(cudaGraphLaunch(exec, stream));
        CUDA(kernel_add(sum, x, N, stream));
        CUDA(cudaFreeAsync(x, stream));
    }
    expect(sum, N, 3);
    CUDA(cudaGraphExecDestroy(exec));
}

WRONG(LIFETIME, memory_of_a_graph_used_after_it, 1, "0")
{
    float *x, *sum = filled(N, 0);
    cudaStream_t stream = side_stream();
    BEGIN(stream);
    CUDA(cudaMallocAsync((void **)&x, 4 * N, stream));
    CUDA(kernel_fill(x, 1, N, stream));
    CUDA(cudaFreeAsync(x, stream)); // HERE
    cudaGraphExec_t exec = end_capture(stream);
    CUDA(cudaGraphLaunch(exec, stream));
    CHECK(kernel_add(sum, x, N, stream) == cudaErrorIllegalAddress); // HERE
    exit(0);
}

WRONG(CAPTURE, two_executables_of_a_graph_with_memory, 1, "0")
{
    float *x;
    cudaGraph_t graph, clone;
    cudaGraphExec_t exec, second;
    cudaStream_t stream = side_stream();
    BEGIN(stream);
    CUDA(cudaMallocAsync((void **)&x, 4 * N, stream));
    CUDA(cudaFreeAsync(x, stream));
    CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphClone(&clone, graph) == cudaErrorNotSupported);
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphInstantiate(&second, graph, 0) == cudaErrorNotSupported); // HERE
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
}

WRONG(LEAK, graph_and_executable_never_destroyed, 1, "0")
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaGraphCreate(&graph, 0));            // HERE
    CUDA(cudaGraphInstantiate(&exec, graph, 0)); // HERE
}

// ---- Ranks ----

// Rank 1 makes the call by itself; NCCL wants all ranks to launch it alike.
WRONG(MISMATCH, graph_on_one_rank_alone, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1);
    cudaStream_t stream = side_stream();
    if (rank == 0) BEGIN(stream);
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, stream)); // HERE
    if (rank == 0) CUDA(cudaGraphLaunch(end_capture(stream), stream));
}

WRONG(MISMATCH, graphs_of_other_collectives, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1);
    cudaStream_t stream = side_stream();
    BEGIN(stream);
    NCCL(ncclAllReduce(x, x, N - (size_t)rank, ncclFloat, ncclSum, comm, stream)); // HERE
    CUDA(cudaGraphLaunch(end_capture(stream), stream));
}

RIGHT(MISMATCH, graphs_of_the_same_collectives, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1);
    cudaStream_t stream = side_stream();
    BEGIN(stream);
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, stream));
    cudaGraphExec_t exec = end_capture(stream);
    for (int i = 0; i < 3; i++) CUDA(cudaGraphLaunch(exec, stream));
    expect(x, N, 8);
    CUDA(cudaGraphExecDestroy(exec));
}

// Rank 0 waits for the message of rank 1, whose graph waits for rank 0's first.
WRONG(DEADLOCK, graphs_that_receive_first, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1), *y = filled(N, 0);
    cudaStream_t stream = side_stream();
    BEGIN(stream);
    NCCL(ncclRecv(y, N, ncclFloat, 1 - rank, comm, stream)); // HERE
    NCCL(ncclSend(x, N, ncclFloat, 1 - rank, comm, stream));
    CUDA(cudaGraphLaunch(end_capture(stream), stream));
}

RIGHT(DEADLOCK, graphs_that_receive_in_a_group, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1), *y = filled(N, 0);
    cudaStream_t stream = side_stream();
    BEGIN(stream);
    NCCL(ncclGroupStart());
    NCCL(ncclRecv(y, N, ncclFloat, 1 - rank, comm, stream));
    NCCL(ncclSend(x, N, ncclFloat, 1 - rank, comm, stream));
    NCCL(ncclGroupEnd());
    cudaGraphExec_t exec = end_capture(stream);
    CUDA(cudaGraphLaunch(exec, stream));
    expect(y, N, 1);
    CUDA(cudaGraphExecDestroy(exec));
}
