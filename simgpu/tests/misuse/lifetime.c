/* lifetime.c: device memory, streams, events and communicators used before they are there or
 * after they are gone. Memory of cudaMallocAsync is there for its stream from the allocation to
 * the free, and for another one only if that has waited.
 */
#include "program.h"

// Resharded after forward, and used again in backward without a new gather.
WRONG(LIFETIME, used_after_reshard, 1, "0")
{
    float *full = filled(N, 1), *out = filled(N, 0);
    CUDA(kernel_gelu_forward(out, full, N, NULL));
    CUDA(cudaFree(full));                                // HERE
    CUDA(kernel_gelu_backward(out, out, full, N, NULL)); // HERE
}

WRONG(LIFETIME, freed_twice, 1, "0")
{
    float *x = filled(N, 1);
    CUDA(cudaFree(x)); // HERE
    CUDA(cudaFree(x)); // HERE
}

WRONG(LIFETIME, used_after_a_free_on_its_stream, 1, "0")
{
    cudaStream_t stream = side_stream();
    float *x;
    CUDA(cudaMallocAsync((void **)&x, N * sizeof *x, stream));
    CUDA(cudaFreeAsync(x, stream));     // HERE
    CUDA(kernel_fill(x, 1, N, stream)); // HERE
}

// Unshard allocates on the stream of the gathers, but the gather runs on another one.
WRONG(LIFETIME, used_before_its_allocation, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    cudaStream_t memory = side_stream(), gather = side_stream();
    float *shard = filled(N, (float)rank), *full;
    CUDA(cudaMallocAsync((void **)&full, 2 * N * sizeof *full, memory)); // HERE
    NCCL(ncclAllGather(shard, full, N, ncclFloat, comm, gather));        // HERE
    CUDA(cudaStreamSynchronize(gather));
    CUDA(cudaFreeAsync(full, memory));
}

// Reshard frees on the stream of the gathers while the compute stream still works with the unit.
WRONG(LIFETIME, freed_while_in_use, 1, "0")
{
    cudaStream_t gather = side_stream(), compute = side_stream();
    cudaEvent_t ready = new_event();
    float *full, *out = filled(N, 0);
    CUDA(cudaMallocAsync((void **)&full, N * sizeof *full, gather));
    CUDA(kernel_fill(full, 1, N, gather));
    CUDA(cudaEventRecord(ready, gather));
    CUDA(cudaStreamWaitEvent(compute, ready, 0));
    CUDA(kernel_gelu_forward(out, full, N, compute)); // HERE
    CUDA(cudaFreeAsync(full, gather));                // HERE
}

// cudaFree waits for the device with memory of cudaMalloc, and not with memory of a pool: "This
// API will not perform any implicit synchronization when the pointer was allocated with
// cudaMallocAsync".
WRONG(LIFETIME, pool_memory_freed_without_waiting, 1, "0")
{
    cudaStream_t stream = side_stream();
    float *x;
    CUDA(cudaMallocAsync((void **)&x, N * sizeof *x, stream));
    CUDA(kernel_fill(x, 1, N, stream)); // HERE
    CUDA(cudaFree(x));                  // HERE
}

// A reset frees everything that the device had.
WRONG(LIFETIME, used_after_a_reset, 1, "0")
{
    float *x = filled(N, 1);
    CUDA(cudaDeviceReset());
    CUDA(kernel_scale(x, 2, N, NULL)); // HERE
}

WRONG(LIFETIME, destroyed_stream, 1, "0")
{
    cudaStream_t stream = side_stream();
    float *x = filled(N, 1);
    CUDA(cudaStreamDestroy(stream));     // HERE
    CUDA(kernel_scale(x, 2, N, stream)); // HERE
}

WRONG(LIFETIME, destroyed_event, 1, "0")
{
    cudaStream_t stream = side_stream();
    cudaEvent_t event = new_event();
    CUDA(cudaEventDestroy(event));        // HERE
    CUDA(cudaEventRecord(event, stream)); // HERE
}

WRONG(LIFETIME, destroyed_communicator, 1, "0")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1);
    NCCL(ncclCommDestroy(comm));                                  // HERE
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, NULL)); // HERE
}

WRONG(LIFETIME, finalized_twice, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    NCCL(ncclCommFinalize(comm));                         // HERE
    CHECK(ncclCommFinalize(comm) == ncclInvalidArgument); // HERE
}

WRONG(LIFETIME, summed_after_finalize, 1, "0")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1);
    NCCL(ncclCommFinalize(comm));                                                 // HERE
    CHECK(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, NULL) != ncclSuccess); // HERE
}

WRONG(LIFETIME, split_after_finalize, 1, "0")
{
    ncclComm_t comm = meet(rank, ranks), part;
    NCCL(ncclCommFinalize(comm));                                 // HERE
    CHECK(ncclCommSplit(comm, 0, 0, &part, NULL) != ncclSuccess); // HERE
}

WRONG(LIFETIME, finalized_after_its_destruction, 1, "0")
{
    ncclComm_t comm = join(rank, ranks);
    NCCL(ncclCommDestroy(comm));                  // HERE
    CHECK(ncclCommFinalize(comm) != ncclSuccess); // HERE
}

// Who finalizes may ask, and destroys.
RIGHT(LIFETIME, finalized_asked_and_destroyed, 2)
{
    ncclComm_t comm = join(rank, ranks);
    ncclResult_t state;
    int count;
    NCCL(ncclCommFinalize(comm));
    NCCL(ncclCommGetAsyncError(comm, &state));
    NCCL(ncclCommCount(comm, &count));
    CHECK(state == ncclSuccess && count == ranks);
    NCCL(ncclCommDestroy(comm));
}

RIGHT(LIFETIME, destroyed_without_finalize, 2)
{
    NCCL(ncclCommDestroy(join(rank, ranks)));
}

WRONG(LIFETIME, destroyed_handle, 1, "0")
{
    cublasHandle_t blas, other;
    float *x = filled(N, 1), one = 1;
    BLAS(cublasCreate(&blas));
    BLAS(cublasDestroy(blas)); // HERE
    BLAS(cublasCreate(&other));
    BLAS(cublasSaxpy(blas, N / 2, &one, x, 1, x + N / 2, 1)); // HERE
    BLAS(cublasDestroy(other));
}

// The scale of the loss, as a reduction; a new one is made where the old one was.
WRONG(LIFETIME, destroyed_reduction, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    ncclRedOp_t scaled, other;
    float *x = filled(N, 1), half = 0.5f;
    NCCL(ncclRedOpCreatePreMulSum(&scaled, &half, ncclFloat, ncclScalarHostImmediate, comm));
    NCCL(ncclRedOpDestroy(scaled, comm)); // HERE
    NCCL(ncclRedOpCreatePreMulSum(&other, &half, ncclFloat, ncclScalarHostImmediate, comm));
    NCCL(ncclAllReduce(x, x, N, ncclFloat, scaled, comm, NULL)); // HERE
}

// Made and destroyed again and again, each used while it is there.
RIGHT(LIFETIME, handles_renewed, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1), half = 0.5f, zero = 0;
    for (int i = 0; i < 100; i++) {
        ncclRedOp_t scaled;
        cublasHandle_t blas;
        BLAS(cublasCreate(&blas));
        NCCL(ncclRedOpCreatePreMulSum(&scaled, &half, ncclFloat, ncclScalarHostImmediate, comm));
        NCCL(ncclAllReduce(x, x, N, ncclFloat, scaled, comm, NULL));
        BLAS(cublasSaxpy(blas, N / 2, &zero, x, 1, x + N / 2, 1));
        NCCL(ncclRedOpDestroy(scaled, comm));
        BLAS(cublasDestroy(blas));
    }
    expect(x, N, 1);
}

WRONG(LIFETIME, pinned_memory_freed_twice, 1, "0")
{
    float *host;
    CUDA(cudaMallocHost((void **)&host, N * sizeof *host));
    CUDA(cudaFreeHost(host)); // HERE
    CUDA(cudaFreeHost(host)); // HERE
}

// The buffer of the last result, given back before the copy of the next one.
WRONG(LIFETIME, copy_into_freed_pinned_memory, 1, "0")
{
    float *host, *x = filled(N, 1);
    CUDA(cudaMallocHost((void **)&host, N * sizeof *host));
    CUDA(cudaMemcpy(host, x, N * sizeof *x, cudaMemcpyDeviceToHost));
    CUDA(cudaFreeHost(host));                                                         // HERE
    CHECK(cudaMemcpy(host, x, N * sizeof *x, cudaMemcpyDeviceToHost) != cudaSuccess); // HERE
}

WRONG(LIFETIME, copy_out_of_freed_pinned_memory, 1, "0")
{
    cudaStream_t stream = side_stream();
    float *host, *other, *x = filled(N, 1);
    CUDA(cudaMallocHost((void **)&host, N * sizeof *host));
    CUDA(cudaFreeHost(host)); // HERE
    CUDA(cudaMallocHost((void **)&other, N * sizeof *other));
    cudaMemcpyAsync(x, host + 1, 8, cudaMemcpyHostToDevice, stream); // HERE
    CUDA(cudaFreeHost(other));
}

WRONG(LIFETIME, freed_pinned_memory_read_by_the_host, 1, "0")
{
    float *host, *x = filled(N, 1);
    CUDA(cudaMallocHost((void **)&host, N * sizeof *host));
    CUDA(cudaMemcpy(host, x, N * sizeof *x, cudaMemcpyDeviceToHost));
    CUDA(cudaFreeHost(host));                     // HERE
    printf("first weight %g\n", (double)host[0]); // HERE
}

// Given back and asked for again, in sizes small and large, more often than anybody remembers.
RIGHT(LIFETIME, pinned_memory_renewed, 1)
{
    float *x = filled(N, 1);
    for (int round = 0; round < 600; round++) {
        float *host, *other;
        size_t n = round % 7 == 0 ? 100 * N : N;
        CUDA(cudaMallocHost((void **)&host, n * sizeof *host));
        CUDA(cudaMallocHost((void **)&other, N * sizeof *other));
        CUDA(cudaMemcpy(host, x, N * sizeof *x, cudaMemcpyDeviceToHost));
        CHECK(host[N - 1] == 1);
        host[n - 1] = other[0] = 2;
        CUDA(cudaFreeHost(host));
        CUDA(cudaFreeHost(other));
        float *plain = malloc(n * sizeof *plain);
        CUDA(cudaMemcpy(plain, x, N * sizeof *x, cudaMemcpyDeviceToHost));
        CHECK(plain[N - 1] == 1);
        free(plain);
    }
}

// cudaFree of memory of cudaMalloc waits for all streams, so a kernel may still be under way.
RIGHT(LIFETIME, free_waits, 1)
{
    cudaStream_t stream = side_stream();
    float *x = filled(N, 1), *out = filled(N, 0);
    CUDA(kernel_scale(x, 2, N, stream));
    CUDA(kernel_add(out, x, N, stream));
    CUDA(cudaFree(x));
    expect(out, N, 2);
}

// The next allocation on the stream may get the very memory; that is what the order is for.
RIGHT(LIFETIME, reuse_on_one_stream, 1)
{
    cudaStream_t stream = side_stream();
    float *x, *out = filled(N, 0);
    for (int unit = 0; unit < 4; unit++) {
        CUDA(cudaMallocAsync((void **)&x, N * sizeof *x, stream));
        CUDA(kernel_fill(x, (float)unit, N, stream));
        CUDA(kernel_add(out, x, N, stream));
        CUDA(cudaFreeAsync(x, stream));
    }
    expect(out, N, 6);
}

// FSDP's life of a full parameter: allocated and freed on the stream of the gathers, used on the
// compute stream between two events.
RIGHT(LIFETIME, freed_when_the_use_is_over, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    cudaStream_t gather = side_stream(), compute = side_stream();
    cudaEvent_t ready = new_event(), done = new_event();
    float *shard = filled(N, (float)(rank + 1)), *out = filled(2 * N, 0), *full;
    CUDA(cudaMallocAsync((void **)&full, 2 * N * sizeof *full, gather));
    NCCL(ncclAllGather(shard, full, N, ncclFloat, comm, gather));
    CUDA(cudaEventRecord(ready, gather));
    CUDA(cudaStreamWaitEvent(compute, ready, 0));
    CUDA(kernel_add(out, full, 2 * N, compute));
    CUDA(cudaEventRecord(done, compute));
    CUDA(cudaStreamWaitEvent(gather, done, 0));
    CUDA(cudaFreeAsync(full, gather));
    expect(out, N, 1);
    expect(out + N, N, 2);
}

// Freed on another stream than it was allocated on, which has waited.
RIGHT(LIFETIME, freed_on_another_stream, 1)
{
    cudaStream_t one = side_stream(), other = side_stream();
    cudaEvent_t done = new_event();
    float *x, *out = filled(N, 0);
    CUDA(cudaMallocAsync((void **)&x, N * sizeof *x, one));
    CUDA(kernel_fill(x, 3, N, one));
    CUDA(kernel_add(out, x, N, one));
    CUDA(cudaEventRecord(done, one));
    CUDA(cudaStreamWaitEvent(other, done, 0));
    CUDA(cudaFreeAsync(x, other));
    expect(out, N, 3);
}

// A stream's work is done all the same when it is destroyed, and so is a wait for an event.
RIGHT(LIFETIME, destroyed_with_work_to_do, 1)
{
    cudaStream_t one = side_stream(), other = side_stream();
    cudaEvent_t ready = new_event();
    float *x = filled(N, 1);
    CUDA(kernel_scale(x, 3, N, one));
    CUDA(cudaEventRecord(ready, one));
    CUDA(cudaStreamWaitEvent(other, ready, 0));
    CUDA(cudaEventDestroy(ready));
    CUDA(cudaStreamDestroy(one));
    CUDA(kernel_scale(x, 5, N, other));
    expect(x, N, 15);
}

// The pool may give one stream what another one has freed: it sees to their order itself.
RIGHT(LIFETIME, reuse_across_streams, 1)
{
    cudaStream_t one = side_stream(), two = side_stream();
    float *x, *y, *out = filled(N, 0);
    CUDA(cudaMallocAsync((void **)&x, N * sizeof *x, one));
    CUDA(kernel_fill(x, 1, N, one));
    CUDA(cudaFreeAsync(x, one));
    CUDA(cudaMallocAsync((void **)&y, N * sizeof *y, two));
    CUDA(kernel_fill(y, 2, N, two));
    CUDA(kernel_add(out, y, N, two));
    CUDA(cudaFreeAsync(y, two));
    expect(out, N, 2);
}

HELPER cudaMemPool_t new_pool(void)
{
    cudaMemPool_t pool;
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {cudaMemLocationTypeDevice, 0}};
    CUDA(cudaMemPoolCreate(&pool, &props));
    return pool;
}

WRONG(LIFETIME, allocated_from_a_destroyed_pool, 1, "0")
{
    cudaMemPool_t pool = new_pool();
    float *x;
    CUDA(cudaMemPoolDestroy(pool));                                        // HERE
    CUDA(cudaMallocFromPoolAsync((void **)&x, N * sizeof *x, pool, NULL)); // HERE
}

WRONG(LIFETIME, pool_destroyed_twice, 1, "0")
{
    cudaMemPool_t pool = new_pool();
    CUDA(cudaMemPoolDestroy(pool)); // HERE
    CUDA(cudaMemPoolDestroy(pool)); // HERE
}

// What a pool has given stays until it is freed.
RIGHT(LIFETIME, memory_outlives_its_pool, 1)
{
    cudaMemPool_t pool = new_pool();
    float *x;
    CUDA(cudaMallocFromPoolAsync((void **)&x, N * sizeof *x, pool, NULL));
    CUDA(cudaMemPoolDestroy(pool));
    CUDA(kernel_fill(x, 3, N, NULL));
    expect(x, N, 3);
    CUDA(cudaFreeAsync(x, NULL));
}
