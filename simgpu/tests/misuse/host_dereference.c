/* host_dereference.c: device memory, read or written by the host. */
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "program.h"

WRONG(HOST_DEREFERENCE, prints_the_loss, 1, "0")
{
    float *loss = filled(1, 2);
    printf("loss %g\n", (double)*loss); // HERE
}

WRONG(HOST_DEREFERENCE, fills_in_a_loop, 1, "0")
{
    float *x = filled(N, 1);
    for (int i = 0; i < N; i++) x[i] = (float)i; // HERE
}

WRONG(HOST_DEREFERENCE, memcpy_for_cudaMemcpy, 1, "0")
{
    float *x = filled(N, 1), host[N];
    for (int i = 0; i < N; i++) host[i] = (float)i;
    memcpy(x, host, sizeof host); // HERE
}

// The struct lies on the device, and so do the pointers in it.
typedef struct Layer {
    float *weights;
    int n;
} Layer;

WRONG(HOST_DEREFERENCE, struct_on_the_device, 1, "0")
{
    Layer *layer, host = {filled(N, 1), N};
    CUDA(cudaMalloc((void **)&layer, sizeof *layer));
    CUDA(cudaMemcpy(layer, &host, sizeof host, cudaMemcpyHostToDevice));
    CUDA(kernel_scale(layer->weights, 2, N, NULL)); // HERE
}

// Rank 1 of two looks at its shard after the gather.
WRONG(HOST_DEREFERENCE, looks_at_its_shard, 2, "1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *full = filled(2 * N, (float)rank);
    NCCL(ncclAllGather(full + rank * N, full, N, ncclFloat, comm, NULL));
    CUDA(cudaDeviceSynchronize());
    if (rank == 1 && full[N] != 1) exit(1); // HERE
}

// The device's first allocation: what free looks at lies in front of it.
WRONG(HOST_DEREFERENCE, free_for_cudaFree, 1, "0")
{
    float *x = filled(N, 1);
    free(x); // HERE
}

WRONG(HOST_DEREFERENCE, free_of_the_second_managed_allocation, 1, "0")
{
    float *x[2];
    for (int i = 0; i < 2; i++) {
        CUDA(cudaMallocManaged((void **)&x[i], 4096, cudaMemAttachGlobal));
        memset(x[i], 0, 4096);
    }
    free(x[1]); // HERE
}

// ---- In a system call ----

WRONG(HOST_DEREFERENCE, checkpoint_of_a_device_pointer, 1, "0")
{
    float *x = filled(N, 1);
    int file[2];
    CHECK(pipe(file) == 0);
    CHECK(write(file[1], x, N * sizeof *x) == N * sizeof *x); // HERE
}

// The C library would call the system for so many bytes, or copy fewer into a buffer.
WRONG(HOST_DEREFERENCE, fwrite_of_a_device_pointer, 1, "0")
{
    float *x = filled(N, 1);
    FILE *file = tmpfile();
    CHECK(fwrite(x, sizeof *x, N, file) == N); // HERE
    fclose(file);
}

WRONG(HOST_DEREFERENCE, batch_read_into_a_device_pointer, 1, "0")
{
    float *x = filled(N, 1);
    int file[2];
    CHECK(pipe(file) == 0);
    CHECK(write(file[1], "batch", 5) == 5);
    CHECK(read(file[0], x + 1, 5) == 5); // HERE
}

WRONG(HOST_DEREFERENCE, fread_into_a_device_pointer, 1, "0")
{
    float *x = filled(N, 1);
    FILE *file = tmpfile();
    CHECK(fread(x, sizeof *x, N, file) == N); // HERE
    fclose(file);
}

WRONG(HOST_DEREFERENCE, device_pointer_in_a_message, 1, "0")
{
    float *x = filled(N, 1);
    int pair[2], header = N;
    struct iovec range[2] = {{&header, sizeof header}, {x, 8}};
    struct msghdr message = {.msg_iov = range, .msg_iovlen = 2};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(sendmsg(pair[0], &message, 0) == 12); // HERE
}

// Managed memory is the host's too.
RIGHT(HOST_DEREFERENCE, managed_memory_to_a_file, 1)
{
    float *x;
    int file[2];
    CHECK(pipe(file) == 0);
    CUDA(cudaMallocManaged((void **)&x, N * sizeof *x, cudaMemAttachGlobal));
    for (int i = 0; i < N; i++) x[i] = 1;
    CHECK(write(file[1], x, N * sizeof *x) == N * sizeof *x);
    CUDA(kernel_scale(x, 3, N, NULL));
    CUDA(cudaDeviceSynchronize());
    CHECK(read(file[0], x, N / 2 * sizeof *x) == N / 2 * sizeof *x);
    CHECK(x[0] == 1 && x[N - 1] == 3);
}

// By way of the host, as it should be; a write of no bytes looks at none.
RIGHT(HOST_DEREFERENCE, checkpoint_by_the_host, 1)
{
    float *x = filled(N, 1), *back = filled(N, 0), host[N];
    FILE *file = tmpfile();
    CUDA(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(fwrite(host, sizeof *host, N, file) == N);
    CHECK(fwrite(x, sizeof *x, 0, file) == 0);
    rewind(file);
    memset(host, 0, sizeof host);
    CHECK(fread(host, sizeof *host, N, file) == N);
    CUDA(cudaMemcpy(back, host, sizeof host, cudaMemcpyHostToDevice));
    expect(back, N, 1);
    fclose(file);
}

// The address of an element is no look at it.
RIGHT(HOST_DEREFERENCE, addresses_only, 1)
{
    float *flat = filled(N, 1), *view[4];
    for (int i = 0; i < 4; i++) view[i] = &flat[i * N / 4];
    CHECK(view[3] - view[0] == 3 * N / 4);
    CUDA(kernel_scale(view[2], 2, N / 4, NULL));
    expect(view[2], N / 4, 2);
    expect(view[3], N / 4, 1);
}

// Pinned memory is the host's own.
RIGHT(HOST_DEREFERENCE, pinned_memory, 1)
{
    float *host, *device;
    CUDA(cudaHostAlloc((void **)&host, N * sizeof *host, cudaHostAllocMapped));
    CUDA(cudaHostGetDevicePointer((void **)&device, host, 0));
    for (int i = 0; i < N; i++) host[i] = 1;
    CUDA(kernel_scale(device, 4, N, NULL));
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < N; i++) CHECK(host[i] == 4);
    CUDA(cudaFreeHost(host));
}

// The struct is on the host, what it points to on the device.
RIGHT(HOST_DEREFERENCE, struct_on_the_host, 1)
{
    Layer layer = {filled(N, 1), N}, copy;
    Layer *device;
    CUDA(kernel_scale(layer.weights, 2, (size_t)layer.n, NULL));
    CUDA(cudaMalloc((void **)&device, sizeof layer));
    CUDA(cudaMemcpy(device, &layer, sizeof layer, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(&copy, device, sizeof copy, cudaMemcpyDeviceToHost));
    expect(copy.weights, (size_t)copy.n, 2);
}
