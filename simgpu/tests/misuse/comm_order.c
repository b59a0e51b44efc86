/* comm_order.c: several communicators, used in different orders on different ranks. Each rank
 * waits in one of them for a rank that waits in another.
 */
#include "program.h"

// Rank 1 does not prefetch: it scatters this unit's gradients before it gathers the next unit.
WRONG(COMM_ORDER, prefetch_on_one_rank, 2, "0 1")
{
    ncclComm_t gathers = meet(rank, ranks), scatters;
    NCCL(ncclCommSplit(gathers, 0, rank, &scatters, NULL));
    cudaStream_t gather = side_stream(), scatter = side_stream();
    float *next = filled(2 * N, 1), *grad = filled(2 * N, 1), *shard = filled(N, 0);
    if (rank == 0) {
        NCCL(ncclAllGather(next, next, N, ncclFloat, gathers, gather)); // HERE
        NCCL(ncclReduceScatter(grad, shard, N, ncclFloat, ncclSum, scatters, scatter));
    } else {
        NCCL(ncclReduceScatter(grad, shard, N, ncclFloat, ncclSum, scatters, scatter)); // HERE
        NCCL(ncclAllGather(next + N, next, N, ncclFloat, gathers, gather));
    }
    NCCL(ncclCommDestroy(scatters));
}

// Three pairs around a triangle; everybody begins with the neighbour on the right.
WRONG(COMM_ORDER, around_a_triangle, 3, "0 1 2")
{
    ncclComm_t comm = meet(rank, ranks), pair[3]; // pair[i]: ranks i and i+1
    for (int i = 0; i < 3; i++) {
        int inside = rank == i || rank == (i + 1) % 3;
        NCCL(ncclCommSplit(comm, inside ? 0 : NCCL_SPLIT_NOCOLOR, rank, &pair[i], NULL));
    }
    float *x = filled(N, 1);
    for (int k = 0; k < 2; k++) {
        ncclComm_t with = pair[(rank + 3 - k) % 3];
        NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, with, NULL)); // HERE
    }
}

// Hybrid sharding: rows share their shards, columns hold the same shard. One half of the ranks
// begins with the rows, the other with the columns.
WRONG(COMM_ORDER, rows_and_columns, 4, "0 1 2 3")
{
    ncclComm_t comm = meet(rank, ranks), row, column;
    NCCL(ncclCommSplit(comm, rank / 2, rank, &row, NULL));
    NCCL(ncclCommSplit(comm, rank % 2, rank, &column, NULL));
    float *x = filled(N, 1);
    if (rank == 0 || rank == 3) {
        NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, row, NULL)); // HERE
        NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, column, NULL));
    } else {
        NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, column, NULL)); // HERE
        NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, row, NULL));
    }
    NCCL(ncclCommDestroy(row));
    NCCL(ncclCommDestroy(column));
}

// The whole world's loss and the pair's norm, the other way round on rank 1. Rank 2 is in the
// world alone.
WRONG(COMM_ORDER, world_and_pair, 3, "0 1")
{
    ncclComm_t world = meet(rank, ranks), pair;
    NCCL(ncclCommSplit(world, rank < 2 ? 0 : NCCL_SPLIT_NOCOLOR, rank, &pair, NULL));
    float *loss = filled(1, 1), *norm = filled(1, 1);
    if (rank == 1) NCCL(ncclAllReduce(norm, norm, 1, ncclFloat, ncclSum, pair, NULL)); // HERE
    NCCL(ncclAllReduce(loss, loss, 1, ncclFloat, ncclAvg, world, NULL));               // HERE
    if (rank == 0) NCCL(ncclAllReduce(norm, norm, 1, ncclFloat, ncclSum, pair, NULL));
    if (pair) NCCL(ncclCommDestroy(pair));
}

// Both ranks prefetch.
RIGHT(COMM_ORDER, prefetch_on_all_ranks, 2)
{
    ncclComm_t gathers = meet(rank, ranks), scatters;
    NCCL(ncclCommSplit(gathers, 0, rank, &scatters, NULL));
    cudaStream_t gather = side_stream(), scatter = side_stream();
    float *next = filled(2 * N, (float)rank), *grad = filled(2 * N, 1), *shard = filled(N, 0);
    NCCL(ncclAllGather(next + rank * N, next, N, ncclFloat, gathers, gather));
    NCCL(ncclReduceScatter(grad, shard, N, ncclFloat, ncclSum, scatters, scatter));
    expect(next, N, 0);
    expect(next + N, N, 1);
    expect(shard, N, 2);
    NCCL(ncclCommDestroy(scatters));
}

// The triangle again. Everybody goes through the pairs in the same order and skips the one
// without it.
RIGHT(COMM_ORDER, triangle_in_order, 3)
{
    ncclComm_t comm = meet(rank, ranks), pair[3];
    for (int i = 0; i < 3; i++) {
        int inside = rank == i || rank == (i + 1) % 3;
        NCCL(ncclCommSplit(comm, inside ? 0 : NCCL_SPLIT_NOCOLOR, rank, &pair[i], NULL));
    }
    float *x = filled(N, 1);
    for (int i = 0; i < 3; i++)
        if (pair[i]) NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, pair[i], NULL));
    // 1 1 1, then 2 2 1, then 2 3 3, then 5 3 5
    expect(x, N, rank == 1 ? 3 : 5);
    for (int i = 0; i < 3; i++)
        if (pair[i]) NCCL(ncclCommDestroy(pair[i]));
}

RIGHT(COMM_ORDER, rows_before_columns, 4)
{
    ncclComm_t comm = meet(rank, ranks), row, column;
    NCCL(ncclCommSplit(comm, rank / 2, rank, &row, NULL));
    NCCL(ncclCommSplit(comm, rank % 2, rank, &column, NULL));
    float *x = filled(N, 1);
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, row, NULL));
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, column, NULL));
    expect(x, N, 4);
    NCCL(ncclCommDestroy(row));
    NCCL(ncclCommDestroy(column));
}

// Communicators without a common rank have no order to agree about: the rows go their own ways.
RIGHT(COMM_ORDER, rows_apart, 4)
{
    ncclComm_t comm = meet(rank, ranks), a, b;
    NCCL(ncclCommSplit(comm, rank / 2, rank, &a, NULL));
    NCCL(ncclCommSplit(comm, rank / 2, rank, &b, NULL));
    float *x = filled(N, 1);
    for (int k = 0; k < 4; k++)
        NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, k % 2 == rank / 2 ? a : b, NULL));
    expect(x, N, 16);
    NCCL(ncclCommDestroy(a));
    NCCL(ncclCommDestroy(b));
}
