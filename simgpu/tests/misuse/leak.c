/* leak.c: what is still alive when the program ends in good order. */
#include "program.h"

WRONG(LEAK, forgotten_memory, 1, "0")
{
    float *x, *y;
    CUDA(cudaMalloc((void **)&x, N * sizeof *x)); // HERE
    CUDA(cudaMalloc((void **)&y, N * sizeof *y));
    CUDA(cudaFree(y));
}

// Each step allocates, and the last one frees.
WRONG(LEAK, memory_of_every_step, 1, "0")
{
    float *activation = NULL;
    for (int step = 0; step < 5; step++) {
        CUDA(cudaMalloc((void **)&activation, N * sizeof *activation)); // HERE
        CUDA(kernel_fill(activation, 1, N, NULL));
    }
    CUDA(cudaFree(activation));
}

WRONG(LEAK, forgotten_stream, 1, "0")
{
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream)); // HERE
    CUDA(cudaStreamSynchronize(stream));
}

WRONG(LEAK, an_event_for_every_unit, 1, "0")
{
    cudaEvent_t ready;
    for (int unit = 0; unit < 3; unit++) {
        CUDA(cudaEventCreate(&ready)); // HERE
        CUDA(cudaEventRecord(ready, NULL));
    }
    CUDA(cudaEventDestroy(ready));
}

// Rank 1 leaves without ncclCommDestroy.
WRONG(LEAK, forgotten_communicator, 2, "1")
{
    ncclComm_t comm;
    CUDA(cudaSetDevice(rank));
    ncclUniqueId id = share_id(rank, ranks);
    NCCL(ncclCommInitRank(&comm, ranks, id, rank)); // HERE
    if (rank == 0) NCCL(ncclCommDestroy(comm));
}

WRONG(LEAK, forgotten_pool_memory, 1, "0")
{
    cudaStream_t stream = side_stream();
    float *full;
    CUDA(cudaMallocAsync((void **)&full, N * sizeof *full, stream)); // HERE
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamDestroy(stream));
}

WRONG(LEAK, forgotten_pinned_memory, 1, "0")
{
    float *host, *x = filled(N, 1);
    CUDA(cudaMallocHost((void **)&host, N * sizeof *host)); // HERE
    CUDA(cudaMemcpy(host, x, N * sizeof *x, cudaMemcpyDeviceToHost));
    CUDA(cudaFree(x));
}

RIGHT(LEAK, all_let_go, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    cudaStream_t stream;
    cudaEvent_t event;
    float *x, *y, *host;
    CUDA(cudaMalloc((void **)&x, N * sizeof *x));
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaEventCreate(&event));
    CUDA(cudaMallocAsync((void **)&y, N * sizeof *y, stream));
    CUDA(cudaMallocHost((void **)&host, N * sizeof *host));
    CUDA(kernel_fill(x, 2, N, stream));
    CUDA(kernel_fill(y, 3, N, stream));
    CUDA(kernel_add(y, x, N, stream));
    CUDA(cudaMemcpyAsync(host, y, N * sizeof *y, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaEventRecord(event, stream));
    CUDA(cudaFreeAsync(y, stream));
    CUDA(cudaEventSynchronize(event));
    for (int i = 0; i < N; i++) CHECK(host[i] == 5);
    CUDA(cudaFreeHost(host));
    CUDA(cudaEventDestroy(event));
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFree(x));
    NCCL(ncclCommDestroy(comm));
}

// cudaDeviceReset frees all that the process has on the device.
RIGHT(LEAK, reset_at_the_end, 1)
{
    cudaStream_t stream = side_stream();
    float *x = filled(N, 1);
    CUDA(kernel_scale(x, 2, N, stream));
    CUDA(cudaEventRecord(new_event(), stream));
    expect(x, N, 2);
    CUDA(cudaDeviceReset());
}

// Freed while another device is current.
RIGHT(LEAK, freed_from_elsewhere, 1)
{
    float *x = filled(N, 1);
    CUDA(cudaSetDevice(1));
    float *y = filled(N, 2);
    expect(x, N, 1);
    expect(y, N, 2);
    CUDA(cudaFree(x));
    CUDA(cudaSetDevice(0));
    CUDA(cudaFree(y));
}

// The pool keeps freed memory for later, which is no leak; nor are the default streams.
RIGHT(LEAK, memory_kept_in_the_pool, 1)
{
    cudaMemPool_t pool;
    unsigned long long keep = ~0ull;
    float *x, host[N];
    CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
    CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    CUDA(cudaMallocAsync((void **)&x, N * sizeof *x, cudaStreamPerThread));
    CUDA(kernel_fill(x, 4, N, cudaStreamPerThread));
    CUDA(cudaMemcpyAsync(host, x, sizeof host, cudaMemcpyDeviceToHost, cudaStreamPerThread));
    CUDA(cudaFreeAsync(x, cudaStreamPerThread));
    CUDA(cudaStreamSynchronize(cudaStreamPerThread));
    for (int i = 0; i < N; i++) CHECK(host[i] == 4);
}

WRONG(LEAK, pool_stays, 1, "0")
{
    cudaMemPool_t pool;
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {cudaMemLocationTypeDevice, 0}};
    CUDA(cudaMemPoolCreate(&pool, &props)); // HERE
}
