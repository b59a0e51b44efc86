/* race.c: two operations on the same bytes, at least one of them writing, that no order of
 * streams and events separates. The streams are non-blocking ones unless a program says
 * otherwise.
 */
#include "program.h"

// ---- Wrong ----

// The gather runs on a stream of its own, and the compute stream does not wait for it.
WRONG(RACE, gather_without_a_wait, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    cudaStream_t gather = side_stream(), compute = side_stream();
    float *shard = filled(N, 1), *full = filled(2 * N, 0), *out = filled(2 * N, 0);
    NCCL(ncclAllGather(shard, full, N, ncclFloat, comm, gather)); // HERE
    CUDA(kernel_add(out, full, 2 * N, compute));                  // HERE
}

// The event is recorded before the operation that it is to stand for.
WRONG(RACE, recorded_too_early, 1, "0")
{
    cudaStream_t producer = side_stream(), consumer = side_stream();
    cudaEvent_t ready = new_event();
    float *x = filled(N, 1), *out = filled(N, 0);
    CUDA(cudaEventRecord(ready, producer));
    CUDA(kernel_scale(x, 2, N, producer)); // HERE
    CUDA(cudaStreamWaitEvent(consumer, ready, 0));
    CUDA(kernel_add(out, x, N, consumer)); // HERE
}

// One event for two units: before anybody waits it is recorded again, for the second one, on
// another stream. So the wait is for that, and not for the first unit.
WRONG(RACE, event_recorded_again, 1, "0")
{
    cudaStream_t one = side_stream(), two = side_stream(), compute = side_stream();
    cudaEvent_t ready = new_event();
    float *a = filled(N, 1), *b = filled(N, 1), *out = filled(N, 0);
    CUDA(kernel_scale(a, 2, N, one)); // HERE
    CUDA(cudaEventRecord(ready, one));
    CUDA(kernel_scale(b, 2, N, two));
    CUDA(cudaEventRecord(ready, two));
    CUDA(cudaStreamWaitEvent(compute, ready, 0));
    CUDA(kernel_add(out, a, N, compute)); // HERE
}

WRONG(RACE, wait_on_the_wrong_stream, 1, "0")
{
    cudaStream_t gather = side_stream(), compute = side_stream();
    cudaEvent_t ready = new_event();
    float *x = filled(N, 1), *out = filled(N, 0);
    CUDA(kernel_scale(x, 2, N, gather)); // HERE
    CUDA(cudaEventRecord(ready, gather));
    CUDA(cudaStreamWaitEvent(gather, ready, 0)); // compute was meant
    CUDA(kernel_add(out, x, N, compute));        // HERE
}

// An event that was never recorded holds nobody up.
WRONG(RACE, never_recorded, 1, "0")
{
    cudaStream_t producer = side_stream(), consumer = side_stream();
    cudaEvent_t ready = new_event();
    float *x = filled(N, 1), *out = filled(N, 0);
    CUDA(kernel_scale(x, 2, N, producer)); // HERE
    CUDA(cudaStreamWaitEvent(consumer, ready, 0));
    CUDA(kernel_add(out, x, N, consumer)); // HERE
}

// cudaMemset does not wait, and it is on the default stream, which a non-blocking one ignores.
WRONG(RACE, memset_on_the_default_stream, 1, "0")
{
    cudaStream_t compute = side_stream();
    float *grad = filled(N, 5), *dout = filled(N, 1);
    CUDA(cudaMemset(grad, 0, N * sizeof *grad)); // HERE
    CUDA(kernel_add(grad, dout, N, compute));    // HERE
}

// cudaMemcpy waits for the host's sake, and between two places on devices nobody does.
WRONG(RACE, copy_on_the_device, 1, "0")
{
    cudaStream_t compute = side_stream();
    float *x = filled(N, 1), *backup = filled(N, 0);
    CUDA(cudaMemcpy(backup, x, N * sizeof *x, cudaMemcpyDeviceToDevice)); // HERE
    CUDA(kernel_scale(x, 2, N, compute));                                 // HERE
}

// The next micro-batch's backward writes the gradient that is still being reduced.
WRONG(RACE, gradient_still_being_reduced, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    cudaStream_t reduce = side_stream(), compute = side_stream();
    cudaEvent_t ready = new_event();
    float *grad = filled(2 * N, 1), *shard = filled(N, 0);
    CUDA(kernel_scale(grad, 2, 2 * N, compute));
    CUDA(cudaEventRecord(ready, compute));
    CUDA(cudaStreamWaitEvent(reduce, ready, 0));
    NCCL(ncclReduceScatter(grad, shard, N, ncclFloat, ncclSum, comm, reduce)); // HERE
    CUDA(kernel_fill(grad + N, 0, N, compute));                                // HERE
}

// The optimizer steps before the reduced gradient is there.
WRONG(RACE, step_before_the_gradient, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    cudaStream_t reduce = side_stream(), compute = side_stream();
    float *grad = filled(2 * N, 1), *shard = filled(N, 0), *weights = filled(N, 1);
    NCCL(ncclReduceScatter(grad, shard, N, ncclFloat, ncclAvg, comm, reduce)); // HERE
    CUDA(kernel_sgd(weights, shard, NULL, N, 0.5f, 0, 0, compute));            // HERE
}

// Prefetch into the buffer of the unit before, which the compute stream may still be reading.
WRONG(RACE, prefetch_into_a_buffer_in_use, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    cudaStream_t gather = side_stream(), compute = side_stream();
    cudaEvent_t ready = new_event();
    float *shard = filled(N, 1), *next = filled(N, 2), *full = filled(2 * N, 0);
    float *out = filled(2 * N, 0);
    NCCL(ncclAllGather(shard, full, N, ncclFloat, comm, gather));
    CUDA(cudaEventRecord(ready, gather));
    CUDA(cudaStreamWaitEvent(compute, ready, 0));
    CUDA(kernel_add(out, full, 2 * N, compute));                 // HERE
    NCCL(ncclAllGather(next, full, N, ncclFloat, comm, gather)); // HERE
}

// The host waits for the wrong one of two streams.
WRONG(RACE, query_of_another_stream, 1, "0")
{
    cudaStream_t one = side_stream(), two = side_stream(), three = side_stream();
    float *x = filled(N, 1), *y = filled(N, 1);
    CUDA(kernel_scale(x, 2, N, one)); // HERE
    CUDA(kernel_scale(y, 2, N, two));
    while (cudaStreamQuery(two) == cudaErrorNotReady) continue;
    CUDA(kernel_scale(x, 2, N, three)); // HERE
}

// Two blocks of columns that have one byte a row in common.
WRONG(RACE, columns_that_touch, 1, "0")
{
    cudaStream_t left = side_stream(), right = side_stream();
    char *grid = (char *)filled(N, 0);
    CUDA(cudaMemset2DAsync(grid, 40, 1, 21, 100, left));       // HERE
    CUDA(cudaMemset2DAsync(grid + 20, 40, 2, 20, 100, right)); // HERE
}

// Halves that share an element.
WRONG(RACE, halves_that_touch, 1, "0")
{
    cudaStream_t one = side_stream(), two = side_stream();
    float *x = filled(N, 1);
    CUDA(kernel_scale(x, 2, N / 2 + 1, one));     // HERE
    CUDA(kernel_scale(x + N / 2, 2, N / 2, two)); // HERE
}

// A message that has arrived on one stream is used on another.
WRONG(RACE, message_used_too_early, 2, "1")
{
    ncclComm_t comm = meet(rank, ranks);
    cudaStream_t messages = side_stream(), compute = side_stream();
    float *x = filled(N, 1);
    if (rank == 0) NCCL(ncclSend(x, N, ncclFloat, 1, comm, messages));
    if (rank == 1) NCCL(ncclRecv(x, N, ncclFloat, 0, comm, messages)); // HERE
    if (rank == 1) CUDA(kernel_scale(x, 2, N, compute));               // HERE
}

// Without cublasSetStream a product runs on the default stream.
WRONG(RACE, product_on_the_default_stream, 1, "0")
{
    cublasHandle_t blas;
    cublasOperation_t no = CUBLAS_OP_N;
    cudaStream_t compute = side_stream();
    float *a = filled(64, 0), *b = filled(64, 2), *c = filled(64, 0), one = 1, zero = 0;
    BLAS(cublasCreate(&blas));
    CUDA(kernel_fill(a, 1, 64, compute));                                    // HERE
    BLAS(cublasSgemm(blas, no, no, 8, 8, 8, &one, a, 8, b, 8, &zero, c, 8)); // HERE
    BLAS(cublasDestroy(blas));
}

// A stream of one device fetches what a stream of another device is still making.
WRONG(RACE, fetched_from_another_device, 1, "0")
{
    cudaStream_t there = side_stream();
    float *far = filled(N, 1);
    CUDA(cudaSetDevice(1));
    cudaStream_t here = side_stream();
    float *near = filled(N, 0);
    CUDA(cudaSetDevice(0));
    CUDA(kernel_scale(far, 2, N, there)); // HERE
    CUDA(cudaSetDevice(1));
    CUDA(cudaMemcpyPeerAsync(near, 1, far, 0, N * sizeof *near, here)); // HERE
    CUDA(cudaDeviceReset());
    CUDA(cudaSetDevice(0));
}

// ---- Right ----

RIGHT(RACE, gather_with_a_wait, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    cudaStream_t gather = side_stream(), compute = side_stream();
    cudaEvent_t ready = new_event();
    float *shard = filled(N, (float)(rank + 1)), *full = filled(2 * N, 0), *out = filled(2 * N, 0);
    NCCL(ncclAllGather(shard, full, N, ncclFloat, comm, gather));
    CUDA(cudaEventRecord(ready, gather));
    CUDA(cudaStreamWaitEvent(compute, ready, 0));
    CUDA(kernel_add(out, full, 2 * N, compute));
    expect(out, N, 1);
    expect(out + N, N, 2);
}

// A wait is for the event as it was when the wait was queued; recording it again changes nothing.
RIGHT(RACE, recorded_again_behind_the_wait, 1)
{
    cudaStream_t one = side_stream(), two = side_stream(), compute = side_stream();
    cudaEvent_t ready = new_event();
    float *a = filled(N, 1), *b = filled(N, 1), *out = filled(N, 0);
    CUDA(kernel_scale(a, 2, N, one));
    CUDA(cudaEventRecord(ready, one));
    CUDA(cudaStreamWaitEvent(compute, ready, 0));
    CUDA(kernel_scale(b, 2, N, two));
    CUDA(cudaEventRecord(ready, two));
    CUDA(kernel_add(out, a, N, compute));
    CUDA(cudaStreamWaitEvent(compute, ready, 0));
    CUDA(kernel_add(out, b, N, compute));
    expect(out, N, 4);
}

// Streams of cudaStreamCreate wait for the default stream, and it for them.
RIGHT(RACE, default_stream_between, 1)
{
    cudaStream_t one, two;
    CUDA(cudaStreamCreate(&one));
    CUDA(cudaStreamCreate(&two));
    float *x = filled(N, 1);
    CUDA(kernel_scale(x, 2, N, one));
    CUDA(kernel_scale(x, 3, N, NULL));
    CUDA(kernel_scale(x, 5, N, two));
    expect(x, N, 30);
}

// Whoever does not look at the answer has not waited.
WRONG(RACE, query_that_is_not_looked_at, 1, "0")
{
    cudaStream_t one = side_stream(), two = side_stream();
    cudaEvent_t done = new_event();
    float *x = filled(N, 1);
    CUDA(kernel_scale(x, 2, N, one)); // HERE
    CUDA(cudaEventRecord(done, one));
    cudaEventQuery(done);
    CUDA(kernel_scale(x, 3, N, two)); // HERE
}

// The default stream waits for both, but a question to it makes neither wait for the other.
WRONG(RACE, query_of_the_default_stream, 1, "0")
{
    cudaStream_t one, two;
    float *x = filled(N, 1);
    CUDA(cudaStreamCreate(&one));
    CUDA(cudaStreamCreate(&two));
    CUDA(kernel_scale(x, 2, N, one)); // HERE
    cudaStreamQuery(NULL);
    CUDA(kernel_scale(x, 3, N, two)); // HERE
}

// The same, and the answer is looked at.
RIGHT(RACE, query_of_the_default_stream_until_it_is_done, 1)
{
    cudaStream_t one, two;
    float *x = filled(N, 1);
    CUDA(cudaStreamCreate(&one));
    CUDA(cudaStreamCreate(&two));
    CUDA(kernel_scale(x, 2, N, one));
    while (cudaStreamQuery(NULL) == cudaErrorNotReady) continue;
    CUDA(kernel_scale(x, 3, N, two));
    expect(x, N, 6);
}

// Two events that are asked for in turn, with other work in the meantime.
RIGHT(RACE, queries_between_other_work, 1)
{
    cudaStream_t stream[2] = {side_stream(), side_stream()}, last = side_stream();
    cudaEvent_t done[2] = {new_event(), new_event()};
    float *x[2] = {filled(N, 1), filled(N, 2)}, *y = filled(N, 0), *sum = filled(N, 0);
    for (int step = 0; step < 3; step++) {
        int open[2] = {1, 1};
        for (int i = 0; i < 2; i++) {
            CUDA(kernel_scale(x[i], 2, N, stream[i]));
            CUDA(cudaEventRecord(done[i], stream[i]));
        }
        for (int i = 0; open[0] || open[1]; i = !i) {
            CUDA(kernel_scale(y, 2, N, last));
            if (!open[i] || cudaEventQuery(done[i]) == cudaErrorNotReady) continue;
            CUDA(kernel_add(sum, x[i], N, last));
            CUDA(cudaStreamSynchronize(last));
            open[i] = 0;
        }
    }
    expect(sum, N, 2 + 4 + 8 + 4 + 8 + 16);
}

// A query that says "done" is as good as a wait.
RIGHT(RACE, query_until_it_is_done, 1)
{
    cudaStream_t one = side_stream(), two = side_stream();
    cudaEvent_t done = new_event();
    float *x = filled(N, 1);
    CUDA(kernel_scale(x, 2, N, one));
    while (cudaStreamQuery(one) == cudaErrorNotReady) continue;
    CUDA(kernel_scale(x, 3, N, two));
    CUDA(cudaEventRecord(done, two));
    while (cudaEventQuery(done) == cudaErrorNotReady) continue;
    CUDA(kernel_scale(x, 5, N, one));
    expect(x, N, 30);
}

// Columns of one matrix, side by side: no byte in common.
RIGHT(RACE, interleaved_columns, 1)
{
    cudaStream_t left = side_stream(), right = side_stream();
    float *grid = filled(100 * 10, 0), *from = filled(100 * 5, 3);
    size_t row = 10 * sizeof(float), half = 5 * sizeof(float);
    CUDA(cudaMemcpy2DAsync(grid, row, from, half, half, 100, cudaMemcpyDeviceToDevice, left));
    CUDA(cudaMemcpy2DAsync(grid + 5, row, from, half, half, 100, cudaMemcpyDeviceToDevice, right));
    expect(grid, 100 * 10, 3);
}

RIGHT(RACE, adjacent_halves, 1)
{
    cudaStream_t one = side_stream(), two = side_stream();
    float *x = filled(N, 1);
    CUDA(kernel_scale(x, 2, N / 2, one));
    CUDA(kernel_scale(x + N / 2, 2, N - N / 2, two));
    expect(x, N, 2);
}

RIGHT(RACE, two_readers, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    cudaStream_t one = side_stream(), two = side_stream();
    float *x = filled(N, 1), *a = filled(N, 0), *b = filled(2 * N, 0);
    CUDA(kernel_add(a, x, N, one));
    NCCL(ncclAllGather(x, b, N, ncclFloat, comm, two));
    expect(a, N, 1);
    expect(b, 2 * N, 1);
}

// A chain of waits: the third stream waits for the second, which waited for the first.
RIGHT(RACE, chain_of_three, 1)
{
    cudaStream_t stream[3] = {side_stream(), side_stream(), side_stream()};
    cudaEvent_t done[2] = {new_event(), new_event()};
    float *x = filled(N, 1), *y = filled(N, 1);
    CUDA(kernel_scale(x, 2, N, stream[0]));
    CUDA(cudaEventRecord(done[0], stream[0]));
    CUDA(cudaStreamWaitEvent(stream[1], done[0], 0));
    CUDA(kernel_scale(y, 2, N, stream[1]));
    CUDA(cudaEventRecord(done[1], stream[1]));
    CUDA(cudaStreamWaitEvent(stream[2], done[1], 0));
    CUDA(kernel_scale(x, 2, N, stream[2]));
    expect(x, N, 4);
    expect(y, N, 2);
}

// A group is one operation on all of its streams: each of them waits for all of it.
RIGHT(RACE, group_on_two_streams, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    cudaStream_t one = side_stream(), two = side_stream();
    float *a = filled(N, 1), *b = filled(N, 2);
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(a, a, N, ncclFloat, ncclSum, comm, one));
    NCCL(ncclAllReduce(b, b, N, ncclFloat, ncclSum, comm, two));
    NCCL(ncclGroupEnd());
    CUDA(kernel_scale(b, 2, N, one));
    CUDA(kernel_scale(a, 3, N, two));
    expect(a, N, 6);
    expect(b, N, 8);
}

// Two buffers in turn: a prefetch waits until the unit that had its buffer has been used.
RIGHT(RACE, prefetch_by_turns, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    cudaStream_t gather = side_stream(), compute = side_stream();
    float *shard = filled(N, 1), *full[2], *out = filled(2 * N, 0);
    cudaEvent_t ready[2], used[2];
    for (int i = 0; i < 2; i++) {
        full[i] = filled(2 * N, 0);
        ready[i] = new_event();
        used[i] = new_event();
    }
    for (int unit = 0; unit < 6; unit++) {
        int i = unit % 2;
        CUDA(cudaStreamWaitEvent(gather, used[i], 0)); // the first two times it was never recorded
        NCCL(ncclAllGather(shard, full[i], N, ncclFloat, comm, gather));
        CUDA(cudaEventRecord(ready[i], gather));
        CUDA(cudaStreamWaitEvent(compute, ready[i], 0));
        CUDA(kernel_add(out, full[i], 2 * N, compute));
        CUDA(cudaEventRecord(used[i], compute));
    }
    expect(out, 2 * N, 6);
}

// The host waits in between: for an event, for the device, for a copy to the host behind the
// kernel.
RIGHT(RACE, host_waits_between, 1)
{
    cudaStream_t one = side_stream(), two = side_stream();
    cudaEvent_t done = new_event();
    float *x = filled(N, 1), host;
    CUDA(kernel_scale(x, 2, N, one));
    CUDA(cudaEventRecord(done, one));
    CUDA(cudaEventSynchronize(done));
    CUDA(kernel_scale(x, 2, N, two));
    CUDA(cudaDeviceSynchronize());
    CUDA(kernel_scale(x, 2, N, NULL));
    CUDA(cudaMemcpy(&host, x, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(host == 8);
    CUDA(kernel_scale(x, 2, N, one));
    expect(x, N, 16);
}

RIGHT(RACE, product_on_its_stream, 1)
{
    cublasHandle_t blas;
    cublasOperation_t no = CUBLAS_OP_N;
    cudaStream_t compute = side_stream();
    float *a = filled(64, 0), *b = filled(64, 2), *c = filled(64, 0), one = 1, zero = 0;
    BLAS(cublasCreate(&blas));
    BLAS(cublasSetStream(blas, compute));
    CUDA(kernel_fill(a, 1, 64, compute));
    BLAS(cublasSgemm(blas, no, no, 8, 8, 8, &one, a, 8, b, 8, &zero, c, 8));
    expect(c, 64, 16);
    BLAS(cublasDestroy(blas));
}

// A stream waits for an event of another device's stream.
RIGHT(RACE, wait_for_another_device, 1)
{
    cudaStream_t there = side_stream();
    cudaEvent_t ready = new_event();
    float *far = filled(N, 1);
    CUDA(cudaSetDevice(1));
    cudaStream_t here = side_stream();
    float *near = filled(N, 0);
    CUDA(cudaSetDevice(0));
    CUDA(kernel_scale(far, 2, N, there));
    CUDA(cudaEventRecord(ready, there));
    CUDA(cudaSetDevice(1));
    CUDA(cudaStreamWaitEvent(here, ready, 0));
    CUDA(cudaMemcpyPeerAsync(near, 1, far, 0, N * sizeof *near, here));
    expect(near, N, 2);
    CUDA(cudaDeviceReset());
    CUDA(cudaSetDevice(0));
}

// cudaMemcpyPeer is "serialized with respect to all pending and future asynchronous work" of both
// devices.
RIGHT(RACE, peer_copy_waits_for_all, 1)
{
    cudaStream_t there = side_stream();
    float *far = filled(N, 1);
    CUDA(cudaSetDevice(1));
    cudaStream_t here = side_stream();
    float *near = filled(N, 0);
    CUDA(cudaSetDevice(0));
    CUDA(kernel_scale(far, 2, N, there));
    CUDA(cudaMemcpyPeer(near, 1, far, 0, N * sizeof *near));
    CUDA(cudaSetDevice(1));
    CUDA(kernel_scale(near, 3, N, here));
    expect(near, N, 6);
    CUDA(cudaDeviceReset());
    CUDA(cudaSetDevice(0));
}

// What cudaFree gives back may be given to the next cudaMalloc, and be used on any stream.
RIGHT(RACE, memory_handed_on, 1)
{
    cudaStream_t stream[2] = {side_stream(), side_stream()};
    float *x, *out = filled(N, 0);
    for (int unit = 0; unit < 4; unit++) {
        CUDA(cudaMalloc((void **)&x, N * sizeof *x));
        CUDA(kernel_fill(x, 1, N, stream[unit % 2]));
        CUDA(kernel_add(out, x, N, stream[unit % 2]));
        CUDA(cudaFree(x)); // waits
    }
    expect(out, N, 4);
}

// An event recorded on the default stream stands for the blocking streams' work too.
RIGHT(RACE, event_on_the_default_stream, 1)
{
    cudaStream_t blocking, other = side_stream();
    cudaEvent_t ready = new_event();
    float *x = filled(N, 1);
    CUDA(cudaStreamCreate(&blocking));
    CUDA(kernel_scale(x, 2, N, blocking));
    CUDA(cudaEventRecord(ready, NULL));
    CUDA(cudaStreamWaitEvent(other, ready, 0));
    CUDA(kernel_scale(x, 3, N, other));
    expect(x, N, 6);
}

// NCCL starts the calls of a communicator in their order, which is more than its guide promises.
WRONG(RACE, two_streams_on_one_communicator, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    cudaStream_t first = side_stream(), second = side_stream();
    float *x = filled(N, 1);
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, first));  // HERE
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, second)); // HERE
    CUDA(cudaDeviceSynchronize());
}
