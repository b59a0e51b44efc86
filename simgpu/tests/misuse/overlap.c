/* overlap.c: buffers of one call that overlap in other ways than the one that is allowed "in
 * place".
 */
#include "program.h"

// In place, an all-gather's shard lies where it will lie in the result: at rank * count.
WRONG(OVERLAP, gather_from_the_beginning, 2, "1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *full = filled(2 * N, 1);
    NCCL(ncclAllGather(full, full, N, ncclFloat, comm, NULL)); // HERE
}

// The offset is counted in elements by C already.
WRONG(OVERLAP, scatter_to_a_byte_offset, 4, "1 2 3")
{
    ncclComm_t comm = meet(rank, ranks);
    float *grad = filled(4 * N, 1), *shard = grad + rank * N / sizeof(float);
    NCCL(ncclReduceScatter(grad, shard, N, ncclFloat, ncclSum, comm, NULL)); // HERE
}

WRONG(OVERLAP, shifted_sum, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(2 * N, 1);
    NCCL(ncclAllReduce(x, x + N / 2, N, ncclFloat, ncclSum, comm, NULL)); // HERE
}

WRONG(OVERLAP, shifted_broadcast, 2, "0")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(2 * N, 1), *from = rank == 0 ? x + 1 : x;
    NCCL(ncclBroadcast(from, x, N, ncclFloat, 0, comm, NULL)); // HERE
}

// "The memory areas may not overlap", says the documentation of cudaMemcpyAsync.
WRONG(OVERLAP, shift_by_a_copy, 1, "0")
{
    float *x = filled(N, 1);
    size_t bytes = (N - 1) * sizeof *x;
    CUDA(cudaMemcpyAsync(x + 1, x, bytes, cudaMemcpyDeviceToDevice, NULL)); // HERE
}

// A message's buffer is received into while it is sent.
WRONG(OVERLAP, exchange_in_one_buffer, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(2 * N, (float)rank);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(x, N, ncclFloat, 1 - rank, comm, NULL));         // HERE
    NCCL(ncclRecv(x + N / 2, N, ncclFloat, 1 - rank, comm, NULL)); // HERE
    NCCL(ncclGroupEnd());
}

RIGHT(OVERLAP, gather_in_place, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    float *full = filled(2 * N, (float)rank);
    NCCL(ncclAllGather(full + rank * N, full, N, ncclFloat, comm, NULL));
    expect(full, N, 0);
    expect(full + N, N, 1);
}

RIGHT(OVERLAP, scatter_in_place, 4)
{
    ncclComm_t comm = meet(rank, ranks);
    float *grad = filled(4 * N, (float)rank);
    NCCL(ncclReduceScatter(grad, grad + rank * N, N, ncclFloat, ncclSum, comm, NULL));
    expect(grad + rank * N, N, 6);
}

RIGHT(OVERLAP, sums_in_place, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, (float)(rank + 1));
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, NULL));
    NCCL(ncclReduce(x, x, N, ncclFloat, ncclSum, 1, comm, NULL));
    NCCL(ncclBroadcast(x, x, N, ncclFloat, 1, comm, NULL));
    expect(x, N, 6);
}

// Side by side is apart.
RIGHT(OVERLAP, neighbours, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(3 * N, (float)(rank + 1));
    NCCL(ncclAllGather(x, x + N, N, ncclFloat, comm, NULL));
    expect(x + N, N, 1);
    expect(x + 2 * N, N, 2);
    CUDA(cudaMemcpy(x, x + N, N * sizeof *x, cudaMemcpyDeviceToDevice));
    expect(x, N, 1);
}

RIGHT(OVERLAP, exchange_in_two_halves, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(2 * N, (float)rank);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(x, N, ncclFloat, 1 - rank, comm, NULL));
    NCCL(ncclRecv(x + N, N, ncclFloat, 1 - rank, comm, NULL));
    NCCL(ncclGroupEnd());
    expect(x, N, (float)rank);
    expect(x + N, N, (float)(1 - rank));
}

// Sends of one buffer to several ranks only read it.
RIGHT(OVERLAP, one_buffer_to_many, 3)
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, (float)rank);
    NCCL(ncclGroupStart());
    for (int to = 1; to < ranks && rank == 0; to++) NCCL(ncclSend(x, N, ncclFloat, to, comm, NULL));
    if (rank > 0) NCCL(ncclRecv(x, N, ncclFloat, 0, comm, NULL));
    NCCL(ncclGroupEnd());
    expect(x, N, 0);
}

// ---- Batches: the matrices that they write lie apart ----

enum { SIDE = 8, BATCH = 3, SQUARE = SIDE * SIDE };
static const float ones = 1, zeros = 0;

// A list of addresses of the matrices of a batch, in device memory.
HELPER float **list_of(float *const *matrices)
{
    float **list;
    CUDA(cudaMalloc((void **)&list, BATCH * sizeof *list));
    CUDA(cudaMemcpy(list, matrices, BATCH * sizeof *list, cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
    return list;
}

// Each matrix of a batch = A·A for a matrix A of ones.
#define MULTIPLY_INTO(handle, a, c, ldc)                                                           \
    BLAS(cublasSgemmBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, SIDE, SIDE, SIDE, &ones,             \
                            (const float *const *)a, SIDE, (const float *const *)a, SIDE, &zeros,  \
                            c, ldc, BATCH))
#define MULTIPLY_APART(handle, a, c, ldc, stride)                                                  \
    BLAS(cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, SIDE, SIDE, SIDE, &ones, a,   \
                                   SIDE, 0, a, SIDE, 0, &zeros, c, ldc, stride, BATCH))

HELPER cublasHandle_t new_handle(void)
{
    cublasHandle_t handle;
    BLAS(cublasCreate(&handle));
    return handle;
}

// One address is twice in the list: a sum was meant, but each product is stored.
WRONG(OVERLAP, two_products_to_one_matrix, 1, "0")
{
    cublasHandle_t handle = new_handle();
    float *c = filled(BATCH * SQUARE, 0), *to[BATCH] = {c, c + SQUARE, c};
    float *a = filled(SQUARE, 1), *from[BATCH] = {a, a, a};
    float **inputs = list_of(from), **results = list_of(to);
    MULTIPLY_INTO(handle, inputs, results, SIDE); // HERE
    BLAS(cublasDestroy(handle));
}

// The last column of each is the first of the next.
WRONG(OVERLAP, products_share_a_column, 1, "0")
{
    cublasHandle_t handle = new_handle();
    float *c = filled(BATCH * SQUARE, 0), *a = filled(SQUARE, 1);
    MULTIPLY_APART(handle, a, c, SIDE, SQUARE - SIDE); // HERE
    BLAS(cublasDestroy(handle));
}

// Beside each other in the columns of one matrix, and one row too close.
WRONG(OVERLAP, products_share_a_row, 1, "0")
{
    cublasHandle_t handle = new_handle();
    float *c = filled(BATCH * SQUARE, 0), *a = filled(SQUARE, 1);
    MULTIPLY_APART(handle, a, c, BATCH * SIDE, SIDE - 1); // HERE
    BLAS(cublasDestroy(handle));
}

WRONG(OVERLAP, one_matrix_is_factored_twice, 1, "0")
{
    cublasHandle_t handle = new_handle();
    float *a = filled(SQUARE, 1), *matrices[2] = {a, a + 1}, **list;
    int *info;
    CUDA(cudaMalloc((void **)&info, 2 * sizeof *info));
    CUDA(cudaMalloc((void **)&list, sizeof matrices));
    CUDA(cudaMemcpy(list, matrices, sizeof matrices, cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
    BLAS(cublasSgetrfBatched(handle, 2, list, 2, NULL, info, 2)); // HERE
    BLAS(cublasDestroy(handle));
}

// Heads of attention: beside each other in the columns of one matrix, in any order of addresses.
RIGHT(OVERLAP, products_beside_each_other, 1)
{
    cublasHandle_t handle = new_handle();
    float *c = filled(BATCH * SQUARE, 0), *to[BATCH] = {c + SIDE, c, c + 2 * SIDE};
    float *a = filled(SQUARE, 1), *from[BATCH] = {a, a, a};
    MULTIPLY_INTO(handle, list_of(from), list_of(to), BATCH * SIDE);
    expect(c, BATCH * SQUARE, SIDE);
    float *d = filled(BATCH * SQUARE, 0);
    MULTIPLY_APART(handle, a, d, BATCH * SIDE, SIDE);
    expect(d, BATCH * SQUARE, SIDE);
    BLAS(cublasDestroy(handle));
}

// One matrix may be read by all products; what they write follows without gaps.
RIGHT(OVERLAP, products_behind_each_other, 1)
{
    cublasHandle_t handle = new_handle();
    float *c = filled(BATCH * SQUARE, 0), *to[BATCH] = {c + 2 * SQUARE, c, c + SQUARE};
    float *a = filled(SQUARE, 1), *from[BATCH] = {a, a, a};
    MULTIPLY_INTO(handle, list_of(from), list_of(to), SIDE);
    expect(c, BATCH * SQUARE, SIDE);
    MULTIPLY_APART(handle, a, c + (BATCH - 1) * SQUARE, SIDE, -SQUARE);
    expect(c, BATCH * SQUARE, SIDE);
    BLAS(cublasDestroy(handle));
}
