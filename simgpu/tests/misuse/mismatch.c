/* mismatch.c: ranks that disagree about one collective: its operation, count, type, reduction or
 * root.
 */
#include "program.h"

// The last rank has no padding, so its shard is shorter than the others'.
WRONG(MISMATCH, shards_of_two_lengths, 4, "0 1 2 3")
{
    ncclComm_t comm = meet(rank, ranks);
    float *shard = filled(N, (float)rank), *full = filled(4 * N, 0);
    size_t mine = rank == ranks - 1 ? N - 3 : N;
    NCCL(ncclAllGather(shard, full, mine, ncclFloat, comm, NULL)); // HERE
}

// One rank has its gradients in double, the others in float.
WRONG(MISMATCH, precision_on_one_rank, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    ncclDataType_t type = rank == 0 ? ncclFloat : ncclDouble;
    float *grad = filled(2 * N, 1);
    NCCL(ncclAllReduce(grad, grad, N, type, ncclSum, comm, NULL)); // HERE
}

WRONG(MISMATCH, average_and_sum, 3, "0 1 2")
{
    ncclComm_t comm = meet(rank, ranks);
    float *grad = filled(3 * N, 1), *shard = filled(N, 0);
    ncclRedOp_t reduction = rank == 0 ? ncclSum : ncclAvg;
    NCCL(ncclReduceScatter(grad, shard, N, ncclFloat, reduction, comm, NULL)); // HERE
}

// Every rank thinks that it is itself who has the weights.
WRONG(MISMATCH, everybody_is_root, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *weights = filled(N, (float)rank);
    NCCL(ncclBroadcast(weights, weights, N, ncclFloat, rank, comm, NULL)); // HERE
}

// Only rank 0 logs the loss; but averaging it is everybody's business.
WRONG(MISMATCH, rank_0_logs_the_loss, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *grad = filled(2 * N, 1), *shard = filled(N, 0), *loss = filled(1, 2);
    if (rank == 0) NCCL(ncclAllReduce(loss, loss, 1, ncclFloat, ncclAvg, comm, NULL)); // HERE
    NCCL(ncclReduceScatter(grad, shard, N, ncclFloat, ncclSum, comm, NULL));           // HERE
}

// One rank passes bytes where the others pass elements.
WRONG(MISMATCH, bytes_for_elements, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *shard = filled(4 * N, 1), *full = filled(8 * N, 0);
    size_t count = rank == 0 ? N : N * sizeof(float);
    NCCL(ncclAllGather(shard, full, count, ncclFloat, comm, NULL)); // HERE
}

WRONG(MISMATCH, half_of_a_message, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, (float)rank);
    if (rank == 0) NCCL(ncclSend(x, N, ncclFloat, 1, comm, NULL));     // HERE
    if (rank == 1) NCCL(ncclRecv(x, N / 2, ncclFloat, 0, comm, NULL)); // HERE
}

// The ranks have been told different sizes of the world.
WRONG(MISMATCH, worlds_of_two_sizes, 2, "0 1")
{
    ncclComm_t comm;
    CUDA(cudaSetDevice(rank));
    ncclUniqueId id = share_id(rank, ranks);
    NCCL(ncclCommInitRank(&comm, rank == 0 ? 2 : 3, id, rank)); // HERE
}

// The shard's length is padded, so it is the same everywhere.
RIGHT(MISMATCH, padded_shards, 4)
{
    ncclComm_t comm = meet(rank, ranks);
    float *shard = filled(N, (float)rank), *full = filled(4 * N, -1);
    NCCL(ncclAllGather(shard, full, N, ncclFloat, comm, NULL));
    for (int r = 0; r < ranks; r++) expect(full + r * N, N, (float)r);
}

// What a broadcast sends is the root's business, and where a reduction arrives too: the others
// may pass NULL.
RIGHT(MISMATCH, null_where_nothing_is_due, 3)
{
    ncclComm_t comm = meet(rank, ranks);
    float *source = rank == 1 ? filled(N, 7) : NULL, *x = filled(N, 0);
    NCCL(ncclBroadcast(source, x, N, ncclFloat, 1, comm, NULL));
    expect(x, N, 7);
    float *sum = rank == 2 ? filled(N, 0) : NULL;
    NCCL(ncclReduce(x, sum, N, ncclFloat, ncclSum, 2, comm, NULL));
    if (rank == 2) expect(sum, N, 21);
}

// In place on one rank, into another buffer on the next; on the default stream and on one of its
// own.
RIGHT(MISMATCH, in_place_on_one_rank, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, (float)(rank + 1)), *other = filled(N, 0);
    float *out = rank == 0 ? x : other;
    NCCL(ncclAllReduce(x, out, N, ncclFloat, ncclSum, comm, rank == 0 ? NULL : side_stream()));
    expect(out, N, 3);
}

// Two halves of the world do different things, each in a communicator of its own.
RIGHT(MISMATCH, halves_differ, 4)
{
    ncclComm_t comm = meet(rank, ranks), half;
    NCCL(ncclCommSplit(comm, rank / 2, rank, &half, NULL));
    float *x = filled(2 * N, 1);
    if (rank < 2) {
        NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, half, NULL));
        expect(x, N, 2);
    } else {
        NCCL(ncclAllGather(x + (rank - 2) * 10, x, 10, ncclFloat, half, NULL));
        expect(x, 2 * N, 1);
    }
    NCCL(ncclCommDestroy(half));
}

// Reductions of different names that agree: both sum.
RIGHT(MISMATCH, same_call_from_two_lines, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 2);
    if (rank == 0)
        NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, NULL));
    else
        NCCL(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, NULL));
    expect(x, N, 4);
}

// Each rank is shown a GPU of its own, which is its device 0.
RIGHT(MISMATCH, one_visible_device_each, 2)
{
    ncclComm_t comm;
    setenv("CUDA_VISIBLE_DEVICES", rank ? "5" : "2", 1);
    CUDA(cudaSetDevice(0));
    ncclUniqueId id = share_id(rank, ranks);
    NCCL(ncclCommInitRank(&comm, ranks, id, rank));
    float *x = filled(N, 1);
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, NULL));
    expect(x, N, 2);
    NCCL(ncclCommDestroy(comm));
}
