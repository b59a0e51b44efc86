/* uninitialised.c: uninitialised reads of device memory. */
#include "program.h"

HELPER float *fresh(size_t n)
{
    float *x;
    CUDA(cudaMalloc((void **)&x, n * sizeof *x));
    return x;
}

WRONG(UNINITIALISED, weights_never_loaded, 1, "0")
{
    float *weights = fresh(N), *out = fresh(N);
    CUDA(kernel_gelu_forward(out, weights, N, NULL)); // HERE
}

// A backward adds to the gradient; who sets it to zero?
WRONG(UNINITIALISED, gradient_not_zeroed, 1, "0")
{
    float *grad = fresh(N), *dout = filled(N, 1);
    CUDA(kernel_add(grad, dout, N, NULL)); // HERE
}

// cudaMemset counts bytes: three quarters are left as they were.
WRONG(UNINITIALISED, memset_of_elements, 1, "0")
{
    float *grad = fresh(N), *dout = filled(N, 1);
    CUDA(cudaMemset(grad, 0, N));
    CUDA(kernel_add(grad, dout, N, NULL)); // HERE
}

// Half of each shard is gathered, all of the parameter is used.
WRONG(UNINITIALISED, half_of_it_gathered, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *shard = filled(N, 1), *full = fresh(2 * N), *out = fresh(2 * N);
    NCCL(ncclAllGather(shard, full, N / 2, ncclFloat, comm, NULL));
    CUDA(kernel_gelu_forward(out, full, 2 * N, NULL)); // HERE
}

// Rank 1 never fills its shard, and everybody gets what happens to be there.
WRONG(UNINITIALISED, shard_never_filled, 2, "1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *shard = rank == 0 ? filled(N, 1) : fresh(N), *full = fresh(2 * N);
    NCCL(ncclAllGather(shard, full, N, ncclFloat, comm, NULL)); // HERE
}

// The new unit's memory may be the old one's. What was in it is gone all the same.
WRONG(UNINITIALISED, memory_of_the_unit_before, 1, "0")
{
    cudaStream_t stream = side_stream();
    float *x, *out = filled(N, 0);
    CUDA(cudaMallocAsync((void **)&x, N * sizeof *x, stream));
    CUDA(kernel_fill(x, 1, N, stream));
    CUDA(cudaFreeAsync(x, stream));
    CUDA(cudaMallocAsync((void **)&x, N * sizeof *x, stream));
    CUDA(kernel_add(out, x, N, stream)); // HERE
}

// The forward that was to write it is never called.
WRONG(UNINITIALISED, result_never_made, 1, "0")
{
    float *loss = fresh(1), host;
    CUDA(cudaMemcpy(&host, loss, sizeof host, cudaMemcpyDeviceToHost)); // HERE
}

// The last element, which an off-by-one left out.
WRONG(UNINITIALISED, last_element_left_out, 1, "0")
{
    float *x = fresh(N), *mean = fresh(1);
    CUDA(kernel_fill(x, 1, N - 1, NULL));
    CUDA(kernel_mean(mean, x, N, NULL)); // HERE
}

// A reduction's result arrives at the root alone.
WRONG(UNINITIALISED, sum_read_beside_the_root, 2, "1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *norm = filled(1, 3), *sum = fresh(1), host;
    NCCL(ncclReduce(norm, sum, 1, ncclFloat, ncclSum, 0, comm, NULL));
    CUDA(cudaMemcpy(&host, sum, sizeof host, cudaMemcpyDeviceToHost)); // HERE
}

// With beta = 1 a matrix product adds to what is in its result.
WRONG(UNINITIALISED, product_with_beta_1, 1, "0")
{
    cublasHandle_t blas;
    cublasOperation_t no = CUBLAS_OP_N;
    float *a = filled(64, 1), *b = filled(64, 2), *c = fresh(64), one = 1;
    BLAS(cublasCreate(&blas));
    BLAS(cublasSgemm(blas, no, no, 8, 8, 8, &one, a, 8, b, 8, &one, c, 8)); // HERE
    BLAS(cublasDestroy(blas));
}

// The last shard ends in padding that nobody set to zero, and the optimizer steps over all of it.
WRONG(UNINITIALISED, step_over_the_padding, 2, "1")
{
    meet(rank, ranks);
    float *weights = fresh(N), *grad = filled(N, 1);
    CUDA(kernel_fill(weights, 1, rank == 1 ? N - 3 : N, NULL));
    CUDA(kernel_sgd(weights, grad, NULL, N, 0.5f, 0, 0, NULL)); // HERE
}

// Written in pieces, by a kernel, a copy, a memset and a collective.
RIGHT(UNINITIALISED, written_in_pieces, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = fresh(4 * N), *shard = filled(N / 2, 1), *mean = fresh(1);
    CUDA(kernel_fill(x, 1, N, NULL));
    CUDA(cudaMemcpy(x + N, x, N * sizeof *x, cudaMemcpyDeviceToDevice));
    CUDA(cudaMemset(x + 2 * N, 0, N * sizeof *x));
    NCCL(ncclAllGather(shard, x + 3 * N, N / 2, ncclFloat, comm, NULL));
    CUDA(kernel_mean(mean, x, 4 * N, NULL));
    expect(mean, 1, 0.75f);
}

// The flat buffer ends in padding that nobody ever reads.
RIGHT(UNINITIALISED, padding_left_alone, 1)
{
    float *flat = fresh(N + 24), *out = fresh(N);
    CUDA(kernel_fill(flat, 4, N, NULL));
    CUDA(kernel_fill(out, 1, N, NULL));
    CUDA(kernel_add(out, flat, N, NULL));
    expect(out, N, 5);
}

// With beta = 0 a matrix product does not look at what is in its result.
RIGHT(UNINITIALISED, product_with_beta_0, 1)
{
    cublasHandle_t blas;
    cublasOperation_t no = CUBLAS_OP_N;
    float *a = filled(64, 1), *b = filled(64, 2), *c = fresh(64), one = 1, zero = 0;
    BLAS(cublasCreate(&blas));
    BLAS(cublasSgemm(blas, no, no, 8, 8, 8, &one, a, 8, b, 8, &zero, c, 8));
    expect(c, 64, 16);
    BLAS(cublasDestroy(blas));
}

// The first of the micro-batches writes the gradient, the others add to it.
RIGHT(UNINITIALISED, first_write_then_add, 1)
{
    float *grad = fresh(N), *dout = filled(N, 2);
    for (int micro = 0; micro < 3; micro++) {
        if (micro == 0)
            CUDA(cudaMemcpy(grad, dout, N * sizeof *grad, cudaMemcpyDeviceToDevice));
        else
            CUDA(kernel_add(grad, dout, N, NULL));
    }
    expect(grad, N, 6);
}

// Every second column is written and read; the ones between hold anything.
RIGHT(UNINITIALISED, columns_between, 1)
{
    char *grid, host[100];
    CUDA(cudaMalloc((void **)&grid, 10 * 32));
    CUDA(cudaMemset2D(grid, 32, 7, 10, 10)); // 10 rows, 10 bytes of each 32
    CUDA(cudaMemcpy2D(host, 10, grid, 32, 10, 10, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 100; i++) CHECK(host[i] == 7);
}

// In place, a broadcast fills what is not the root's, and an all-gather all but the own shard.
RIGHT(UNINITIALISED, filled_by_collectives, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    float *weights = fresh(N), *full = fresh(2 * N), *message = fresh(N);
    if (rank == 0) CUDA(kernel_fill(weights, 5, N, NULL));
    NCCL(ncclBroadcast(weights, weights, N, ncclFloat, 0, comm, NULL));
    CUDA(kernel_fill(full + rank * N, (float)rank, N, NULL));
    NCCL(ncclAllGather(full + rank * N, full, N, ncclFloat, comm, NULL));
    if (rank == 0) NCCL(ncclSend(weights, N, ncclFloat, 1, comm, NULL));
    if (rank == 1) NCCL(ncclRecv(message, N, ncclFloat, 0, comm, NULL));
    expect(weights, N, 5);
    expect(full, N, 0);
    expect(full + N, N, 1);
    if (rank == 1) expect(message, N, 5);
}

// A matrix with an uninitialised triangle is copied to the host: copying uses no value.
RIGHT(UNINITIALISED, triangle_copied_back, 1)
{
    enum { EDGE = 16 };
    float *a = fresh(EDGE * EDGE), host[EDGE * EDGE];
    for (int j = 0; j < EDGE; j++) CUDA(kernel_fill(a + j * EDGE, (float)j, (size_t)j + 1, NULL));
    CUDA(cudaMemcpy(host, a, sizeof host, cudaMemcpyDeviceToHost));
    for (int j = 0; j < EDGE; j++)
        for (int i = 0; i <= j; i++) CHECK(host[j * EDGE + i] == (float)j);
}

// Rows that are all uninitialised: there is nothing that a copy could be for.
WRONG(UNINITIALISED, rows_never_made, 1, "0")
{
    float *a = fresh(4 * N), host[4 * 8];
    CUDA(kernel_fill(a + 8, 1, N - 8, NULL)); // beside the columns that are copied
    CUDA(cudaMemcpy2D(host, 8 * sizeof *a, a, N * sizeof *a, 8 * sizeof *a, 4, // HERE
                      cudaMemcpyDeviceToHost));
}

// The triangle that came along with a copy is used after it.
WRONG(UNINITIALISED, used_behind_a_copy, 1, "0")
{
    float *a = fresh(2 * N), *b = fresh(2 * N), *out = filled(2 * N, 0);
    CUDA(kernel_fill(a, 1, N, NULL));
    CUDA(cudaMemcpyAsync(b, a, 2 * N * sizeof *a, cudaMemcpyDeviceToDevice, NULL));
    CUDA(kernel_add(out, b, 2 * N, NULL)); // HERE
}
