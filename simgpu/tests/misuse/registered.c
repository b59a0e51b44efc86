/* registered.c: memory that is registered with NCCL, and windows, which all ranks register. */
#include "program.h"

enum { WINDOW_BYTES = 1 << 16, BOTH = 2 };

HELPER char *shared_memory(void)
{
    char *x;
    NCCL(ncclMemAlloc((void **)&x, WINDOW_BYTES));
    return x;
}

WRONG(POINTER, registered_host_memory, 1, "0")
{
    void *handle;
    static char x[WINDOW_BYTES];
    ncclComm_t comm = meet(rank, ranks);
    CHECK(ncclCommRegister(comm, x, WINDOW_BYTES, &handle) != ncclSuccess); // HERE
}

WRONG(POINTER, registered_past_its_end, 1, "0")
{
    void *handle;
    ncclComm_t comm = meet(rank, ranks);
    char *x = shared_memory();
    CHECK(ncclCommRegister(comm, x + 1, WINDOW_BYTES, &handle) != ncclSuccess); // HERE
}

WRONG(POINTER, registered_after_its_free, 1, "0")
{
    void *handle;
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1);
    CUDA(cudaFree(x));
    CHECK(ncclCommRegister(comm, x, N, &handle) != ncclSuccess); // HERE
}

WRONG(POINTER, window_of_host_memory, 1, "0")
{
    ncclWindow_t window;
    static char x[WINDOW_BYTES];
    ncclComm_t comm = meet(rank, ranks);
    CHECK(ncclCommWindowRegister(comm, x, WINDOW_BYTES, &window, 0) != ncclSuccess); // HERE
}

// Ranks can share memory of ncclMemAlloc alone.
WRONG(POINTER, window_of_plain_memory, 2, "0 1")
{
    ncclWindow_t window;
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1);
    CHECK(ncclCommWindowRegister(comm, x, N, &window, 0) == ncclUnhandledCudaError); // HERE
}

WRONG(POINTER, window_past_its_end, 1, "0")
{
    ncclWindow_t window;
    ncclComm_t comm = meet(rank, ranks);
    char *x = shared_memory();
    CHECK(ncclCommWindowRegister(comm, x, WINDOW_BYTES + 1, &window, 0) != ncclSuccess); // HERE
}

WRONG(POINTER, window_in_the_middle_of_a_page, 1, "0")
{
    ncclWindow_t window;
    ncclComm_t comm = meet(rank, ranks);
    char *x = shared_memory();
    CHECK(ncclCommWindowRegister(comm, x + 256, 256, &window, 0) == ncclInvalidArgument); // HERE
}

WRONG(POINTER, window_of_nothing, 1, "0")
{
    ncclWindow_t window;
    ncclComm_t comm = meet(rank, ranks);
    CHECK(ncclCommWindowRegister(comm, NULL, 16, &window, 0) == ncclInvalidArgument); // HERE
}

WRONG(POINTER, deregistered_by_its_address, 1, "0")
{
    void *handle;
    ncclComm_t comm = meet(rank, ranks);
    char *x = shared_memory();
    NCCL(ncclCommRegister(comm, x, WINDOW_BYTES, &handle));
    CHECK(ncclCommDeregister(comm, x) == ncclInvalidUsage); // HERE
}

WRONG(POINTER, deregistered_by_another_ranks_handle, 1, "0")
{
    void *handle[BOTH];
    ncclComm_t comm[BOTH];
    NCCL(ncclCommInitAll(comm, BOTH, NULL));
    for (int d = 0; d < BOTH; d++) {
        CUDA(cudaSetDevice(d));
        NCCL(ncclCommRegister(comm[d], shared_memory(), WINDOW_BYTES, &handle[d]));
    }
    CHECK(ncclCommDeregister(comm[0], handle[1]) == ncclInvalidUsage); // HERE
    for (int d = 0; d < BOTH; d++) NCCL(ncclCommDestroy(comm[d]));
    CUDA(cudaSetDevice(0));
    CUDA(cudaDeviceReset());
    CUDA(cudaSetDevice(1));
}

WRONG(POINTER, window_that_nobody_registered, 1, "0")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1);
    CHECK(ncclCommWindowDeregister(comm, (ncclWindow_t)(void *)x) == ncclInvalidUsage); // HERE
}

WRONG(LIFETIME, deregistered_twice, 1, "0")
{
    void *handle;
    ncclComm_t comm = meet(rank, ranks);
    NCCL(ncclCommRegister(comm, shared_memory(), WINDOW_BYTES, &handle));
    NCCL(ncclCommDeregister(comm, handle));                      // HERE
    CHECK(ncclCommDeregister(comm, handle) == ncclInvalidUsage); // HERE
}

WRONG(LIFETIME, window_deregistered_twice, 2, "0 1")
{
    ncclWindow_t window;
    ncclComm_t comm = meet(rank, ranks);
    NCCL(ncclCommWindowRegister(comm, shared_memory(), WINDOW_BYTES, &window, 0));
    NCCL(ncclCommWindowDeregister(comm, window));                      // HERE
    CHECK(ncclCommWindowDeregister(comm, window) == ncclInvalidUsage); // HERE
}

WRONG(POINTER, nccls_memory_freed_by_cuda, 1, "0")
{
    char *x = shared_memory();
    CHECK(cudaFree(x) == cudaErrorInvalidValue); // HERE
    NCCL(ncclMemFree(x));
}

WRONG(POINTER, nccls_memory_freed_on_a_stream, 1, "0")
{
    char *x = shared_memory();
    CHECK(cudaFreeAsync(x, NULL) == cudaErrorInvalidValue); // HERE
    NCCL(ncclMemFree(x));
}

// Every rank registers, or none.
WRONG(MISMATCH, window_that_a_rank_leaves_out, 2, "0 1")
{
    ncclWindow_t window;
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1);
    if (rank == 0)
        NCCL(ncclCommWindowRegister(comm, shared_memory(), WINDOW_BYTES, &window, 0)); // HERE
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, NULL));                      // HERE
}

WRONG(DEADLOCK, window_that_a_rank_never_registers, 2, "0")
{
    ncclWindow_t window;
    ncclComm_t comm = meet(rank, ranks);
    if (rank == 0)
        NCCL(ncclCommWindowRegister(comm, shared_memory(), WINDOW_BYTES, &window, 0)); // HERE
}

RIGHT(POINTER, registered_used_and_taken_back, 2)
{
    void *handle, *plain, *pinned_handle;
    ncclWindow_t window;
    ncclComm_t comm = meet(rank, ranks);
    float *x, *y = filled(N, 1), *host = pinned(N, 1);
    NCCL(ncclMemAlloc((void **)&x, WINDOW_BYTES));
    CUDA(kernel_fill(x, 1, N, NULL));
    NCCL(ncclCommRegister(comm, x, WINDOW_BYTES, &handle));
    NCCL(ncclCommRegister(comm, y, N * sizeof *y, &plain));
    NCCL(ncclCommRegister(comm, host, N * sizeof *host, &pinned_handle));
    NCCL(ncclCommWindowRegister(comm, x, WINDOW_BYTES, &window, NCCL_WIN_COLL_SYMMETRIC));
    CHECK(window != NULL);
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, NULL));
    expect(x, N, 2);
    NCCL(ncclCommWindowDeregister(comm, window));
    NCCL(ncclCommWindowDeregister(comm, NULL));
    NCCL(ncclCommDeregister(comm, handle));
    NCCL(ncclCommDeregister(comm, plain));
    NCCL(ncclCommDeregister(comm, pinned_handle));
    NCCL(ncclMemFree(x));
}

// Two parts of one allocation, in a group.
RIGHT(MISMATCH, windows_registered_in_a_group, 2)
{
    ncclWindow_t window[2];
    ncclComm_t comm = meet(rank, ranks);
    char *x = shared_memory();
    NCCL(ncclGroupStart());
    for (int i = 0; i < 2; i++)
        NCCL(ncclCommWindowRegister(comm, x + i * (WINDOW_BYTES / 2), WINDOW_BYTES / 2, &window[i],
                                    0));
    NCCL(ncclGroupEnd());
    for (int i = 0; i < 2; i++) NCCL(ncclCommWindowDeregister(comm, window[i]));
    NCCL(ncclMemFree(x));
}
