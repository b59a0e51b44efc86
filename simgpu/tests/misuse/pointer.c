/* pointer.c: null, host memory where a device's is due, another device's, misaligned, past the
 * end.
 */
#include "program.h"

// The unit was resharded, its full parameter is gone.
WRONG(POINTER, null_parameter, 1, "0")
{
    float *full = NULL, *out = filled(N, 0);
    CUDA(kernel_gelu_forward(out, full, N, NULL)); // HERE
}

// The same, copied to the host.
WRONG(POINTER, copy_from_null, 1, "0")
{
    float *full = NULL, host[N];
    CUDA(cudaMemcpyAsync(host, full, sizeof host, cudaMemcpyDeviceToHost, NULL)); // HERE
}

WRONG(POINTER, kernel_on_host_memory, 1, "0")
{
    static float weights[N];
    CUDA(kernel_fill(weights, 1, N, NULL)); // HERE
}

// The loss is on the host already.
WRONG(POINTER, sum_of_host_memory, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float loss = 2;
    NCCL(ncclAllReduce(&loss, &loss, 1, ncclFloat, ncclSum, comm, NULL)); // HERE
}

WRONG(POINTER, kernel_on_another_device, 1, "0")
{
    float *x = filled(N, 1);
    CUDA(cudaSetDevice(1));
    CUDA(kernel_scale(x, 2, N, NULL)); // HERE
}

// Rank 1 allocates before it chooses its device.
WRONG(POINTER, allocated_too_early, 2, "1")
{
    float *x = filled(N, 1);
    ncclComm_t comm = meet(rank, ranks);
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, NULL)); // HERE
}

WRONG(POINTER, stream_of_another_device, 1, "0")
{
    cudaStream_t stream = side_stream();
    CUDA(cudaSetDevice(1));
    float *x = filled(N, 1);
    CUDA(kernel_scale(x, 2, N, stream)); // HERE
}

// The parameter's offset in the flat buffer was counted in halves.
WRONG(POINTER, misaligned_view, 1, "0")
{
    char *flat = (char *)filled(N, 1);
    CUDA(kernel_scale((float *)(flat + 33 * 2), 2, 10, NULL)); // HERE
}

WRONG(POINTER, one_byte_too_many, 1, "0")
{
    char *x;
    CUDA(cudaMalloc((void **)&x, 1001));
    CUDA(cudaMemset(x, 0, 1002)); // HERE
}

WRONG(POINTER, bytes_as_elements, 1, "0")
{
    float *x = filled(N, 1);
    CUDA(kernel_scale(x, 2, N * sizeof *x, NULL)); // HERE
}

// All shards are to arrive in a buffer of one shard's size.
WRONG(POINTER, room_for_one_shard, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *shard = filled(N, 1), *full = filled(N, 0);
    NCCL(ncclAllGather(shard, full, N, ncclFloat, comm, NULL)); // HERE
}

WRONG(POINTER, copy_the_wrong_way, 1, "0")
{
    float *x = filled(N, 1), host[N];
    CUDA(cudaMemcpy(x, host, sizeof host, cudaMemcpyDeviceToHost)); // HERE
}

// An index that is one too small: the address lies before the first allocation of the device.
WRONG(POINTER, before_the_beginning, 1, "0")
{
    float *x;
    CUDA(cudaMalloc((void **)&x, N * sizeof *x));
    CUDA(kernel_fill(x - 1, 1, N, NULL)); // HERE
}

// The same in what is sent.
WRONG(POINTER, sends_from_before, 2, "0 1")
{
    float *shard;
    CUDA(cudaSetDevice(rank));
    CUDA(cudaMalloc((void **)&shard, N * sizeof *shard));
    ncclComm_t comm = meet(rank, ranks);
    float *full = filled(2 * N, 0);
    CUDA(cudaMemset(shard, 0, N * sizeof *shard));
    NCCL(ncclAllGather(shard - 2, full, N, ncclFloat, comm, NULL)); // HERE
}

// The view's memory is the flat buffer's.
WRONG(POINTER, free_of_a_view, 1, "0")
{
    float *flat = filled(N, 1), *bias = flat + 768;
    CUDA(cudaFree(bias)); // HERE
}

// What free looks at lies in front of the memory.
WRONG(POINTER, free_for_cudaFreeHost, 1, "0")
{
    float *host[2];
    for (int i = 0; i < 2; i++) {
        CUDA(cudaMallocHost((void **)&host[i], 4096));
        memset(host[i], 0, 4096);
    }
    free(host[1]); // HERE
    CUDA(cudaFreeHost(host[0]));
}

// To the last byte; and nothing at all, right behind it.
RIGHT(POINTER, up_to_the_end, 1)
{
    float *x = filled(N, 1);
    CUDA(kernel_scale(x + N - 1, 2, 1, NULL));
    CUDA(kernel_scale(x + N, 2, 0, NULL));
    CUDA(cudaMemset(x + N, 0, 0));
    expect(x, N - 1, 1);
    expect(x + N - 1, 1, 2);
}

// Back and forth again.
RIGHT(POINTER, from_the_beginning, 1)
{
    float *x;
    CUDA(cudaMalloc((void **)&x, N * sizeof *x));
    float *end = x + N;
    CUDA(kernel_fill(end - N, 1, N, NULL));
    expect(x, N, 1);
}

// A float needs 4 bytes of alignment, not 16: an odd offset is slow, and right.
RIGHT(POINTER, odd_offset, 1)
{
    float *flat = filled(N, 1);
    CUDA(kernel_scale(flat + 33, 2, 10, NULL));
    expect(flat, 33, 1);
    expect(flat + 33, 10, 2);
    expect(flat + 43, N - 43, 1);
}

// A kernel reaches pinned host memory by the address that the host has.
RIGHT(POINTER, kernel_on_pinned_memory, 1)
{
    float *x;
    CUDA(cudaMallocHost((void **)&x, N * sizeof *x));
    for (int i = 0; i < N; i++) x[i] = (float)i;
    CUDA(kernel_scale(x, 2, N, NULL));
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < N; i++) CHECK(x[i] == 2 * (float)i);
    CUDA(cudaFreeHost(x));
}

// Copies reach all devices, and kernels do so once they are allowed to.
RIGHT(POINTER, another_device_by_permission, 1)
{
    float *far = filled(N, 3), *near;
    CUDA(cudaSetDevice(1));
    CUDA(cudaDeviceEnablePeerAccess(0, 0));
    near = filled(N, 1);
    CUDA(kernel_add(near, far, N, NULL));
    expect(near, N, 4);
    CUDA(cudaMemcpyPeer(far, 0, near, 1, N * sizeof *near));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaSetDevice(0));
    expect(far, N, 4);
    CUDA(cudaDeviceReset());
    CUDA(cudaSetDevice(1));
}

// NULL where nothing is used, and freed: both are fine.
RIGHT(POINTER, nothing_at_null, 1)
{
    CUDA(cudaSetDevice(0));
    CUDA(kernel_fill(NULL, 1, 0, NULL));
    CUDA(cudaFree(NULL));
    CUDA(cudaFreeHost(NULL));
}
