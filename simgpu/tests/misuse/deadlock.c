/* deadlock.c: ranks that never come, and ranks that wait for each other in a cycle. */
#include <unistd.h>

#include "program.h"

// Rank 2 has no batch left and goes home.
WRONG(DEADLOCK, leaves_early, 3, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *grad = filled(N, 1);
    if (rank == 2) return;
    NCCL(ncclAllReduce(grad, grad, N, ncclFloat, ncclSum, comm, NULL)); // HERE
}

// Nobody cut the data into equal parts: rank 0 has one batch more than the others.
WRONG(DEADLOCK, one_step_more, 3, "0")
{
    ncclComm_t comm = meet(rank, ranks);
    float *grad = filled(3 * N, 1), *shard = filled(N, 0);
    for (int step = 0; step < (rank == 0 ? 4 : 3); step++)
        NCCL(ncclReduceScatter(grad, shard, N, ncclFloat, ncclAvg, comm, NULL)); // HERE
}

// Every layer has the same count, so what follows fits: rank 1 leaves a layer out, and only at the
// end a call is missing.
WRONG(DEADLOCK, skips_a_layer, 2, "0")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(2 * N, 1);
    for (int layer = 0; layer < 2; layer++)
        NCCL(ncclAllGather(x + rank * N, x, N, ncclFloat, comm, NULL));
    if (rank == 0) NCCL(ncclAllGather(x, x, N, ncclFloat, comm, NULL)); // HERE
    NCCL(ncclAllGather(x + rank * N, x, N, ncclFloat, comm, NULL));     // HERE
}

WRONG(DEADLOCK, crashes, 3, "0 2")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(3 * N, 1);
    if (rank == 1) abort();
    NCCL(ncclAllGather(x + rank * N, x, N, ncclFloat, comm, NULL)); // HERE
}

// Rank 1 cannot read its part of the data and gives up, telling nobody.
WRONG(DEADLOCK, gives_up, 2, "0")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1);
    if (rank == 1 && access("/nowhere/data.bin", R_OK) != 0) exit(1);
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, NULL)); // HERE
}

// Rank 2 does not even come to the communicator: it looks for its data for a while, and gives up.
WRONG(DEADLOCK, ends_before_it_joins, 3, "0 1")
{
    ncclComm_t comm;
    CUDA(cudaSetDevice(rank));
    ncclUniqueId id = share_id(rank, ranks);
    if (rank == 2) {
        usleep(200000);
        exit(1);
    }
    NCCL(ncclCommInitRank(&comm, ranks, id, rank)); // HERE
}

// Both send first. On one communicator a call begins when the one before it has ended.
WRONG(DEADLOCK, both_send_first, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *out = filled(N, 1), *in = filled(N, 0);
    NCCL(ncclSend(out, N, ncclFloat, 1 - rank, comm, NULL)); // HERE
    NCCL(ncclRecv(in, N, ncclFloat, 1 - rank, comm, NULL));  // HERE
}

WRONG(DEADLOCK, ring_of_sends, 4, "0 1 2 3")
{
    ncclComm_t comm = meet(rank, ranks);
    float *out = filled(N, 1), *in = filled(N, 0);
    NCCL(ncclSend(out, N, ncclFloat, (rank + 1) % ranks, comm, NULL));        // HERE
    NCCL(ncclRecv(in, N, ncclFloat, (rank + ranks - 1) % ranks, comm, NULL)); // HERE
}

// Rank 1 waits for the new weights before the sum that rank 0 makes before it sends them.
WRONG(DEADLOCK, message_and_sum, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1);
    if (rank == 1) NCCL(ncclRecv(x, N, ncclFloat, 0, comm, NULL)); // HERE
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, NULL));  // HERE
    if (rank == 0) NCCL(ncclSend(x, N, ncclFloat, 1, comm, NULL));
}

// Nobody wants what rank 0 sends.
WRONG(DEADLOCK, nobody_receives, 2, "0")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1);
    if (rank == 0) NCCL(ncclSend(x, N, ncclFloat, 1, comm, NULL)); // HERE
}

// The same, and rank 0 forgets to wait before it leaves.
WRONG(DEADLOCK, nobody_receives_from_who_leaves, 2, "0")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1);
    if (rank == 1) return;
    NCCL(ncclSend(x, N, ncclFloat, 1, comm, NULL)); // HERE
    exit(0);
}

// It is destroyed before anybody has received.
WRONG(DEADLOCK, destroyed_with_a_message_under_way, 2, "0")
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1);
    if (rank == 1) return;
    NCCL(ncclSend(x, N, ncclFloat, 1, comm, NULL)); // HERE
    NCCL(ncclCommDestroy(comm));                    // HERE
}

// One communicator: what is called next begins when the send has ended, whatever its stream.
WRONG(DEADLOCK, exchange_on_two_streams, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks);
    float *out = filled(N, 1), *in = filled(N, 0);
    cudaStream_t sends = side_stream(), receives = side_stream();
    NCCL(ncclSend(out, N, ncclFloat, 1 - rank, comm, sends));   // HERE
    NCCL(ncclRecv(in, N, ncclFloat, 1 - rank, comm, receives)); // HERE
}

// One stream: the receive begins when the send has ended, whatever their communicators.
WRONG(DEADLOCK, exchange_on_one_stream, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks), other;
    NCCL(ncclCommSplit(comm, 0, rank, &other, NULL));
    float *out = filled(N, 1), *in = filled(N, 0);
    NCCL(ncclSend(out, N, ncclFloat, 1 - rank, rank ? other : comm, NULL)); // HERE
    NCCL(ncclRecv(in, N, ncclFloat, 1 - rank, rank ? comm : other, NULL));  // HERE
    NCCL(ncclCommDestroy(other));
}

// Two streams and two communicators, and an event that puts the receive after the send.
WRONG(DEADLOCK, receive_waits_for_the_send, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks), other;
    NCCL(ncclCommSplit(comm, 0, rank, &other, NULL));
    float *out = filled(N, 1), *in = filled(N, 0);
    cudaStream_t sends = side_stream(), receives = side_stream();
    cudaEvent_t sent = new_event();
    NCCL(ncclSend(out, N, ncclFloat, 1 - rank, rank ? other : comm, sends)); // HERE
    CUDA(cudaEventRecord(sent, sends));
    CUDA(cudaStreamWaitEvent(receives, sent, 0));
    NCCL(ncclRecv(in, N, ncclFloat, 1 - rank, rank ? comm : other, receives)); // HERE
    NCCL(ncclCommDestroy(other));
}

// The host waits for the send before it makes the receive.
WRONG(DEADLOCK, host_waits_for_the_send, 2, "0 1")
{
    ncclComm_t comm = meet(rank, ranks), other;
    NCCL(ncclCommSplit(comm, 0, rank, &other, NULL));
    float *out = filled(N, 1), *in = filled(N, 0);
    cudaStream_t sends = side_stream(), receives = side_stream();
    NCCL(ncclSend(out, N, ncclFloat, 1 - rank, rank ? other : comm, sends)); // HERE
    CUDA(cudaStreamSynchronize(sends));                                      // HERE
    NCCL(ncclRecv(in, N, ncclFloat, 1 - rank, rank ? comm : other, receives));
    NCCL(ncclCommDestroy(other));
}

// A send on one communicator and stream, a receive on another one: a GPU can do them in any order.
RIGHT(DEADLOCK, exchange_on_two_communicators, 2)
{
    ncclComm_t comm = meet(rank, ranks), other;
    NCCL(ncclCommSplit(comm, 0, rank, &other, NULL));
    float *out = filled(N, (float)rank), *in = filled(N, -1);
    cudaStream_t sends = side_stream(), receives = side_stream();
    cudaEvent_t sent = new_event();
    NCCL(ncclSend(out, N, ncclFloat, 1 - rank, rank ? other : comm, sends));
    CUDA(cudaEventRecord(sent, sends));
    NCCL(ncclRecv(in, N, ncclFloat, 1 - rank, rank ? comm : other, receives));
    CUDA(cudaStreamWaitEvent(receives, sent, 0));
    CUDA(cudaMemsetAsync(out, 0, N * sizeof *out, receives));
    expect(in, N, (float)(1 - rank));
    expect(out, N, 0);
    NCCL(ncclCommDestroy(other));
    CUDA(cudaEventDestroy(sent));
}

// The receiver is late, and the sender waits for it at its end only.
RIGHT(DEADLOCK, receives_late, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1 - (float)rank);
    if (rank == 0) NCCL(ncclSend(x, N, ncclFloat, 1, comm, NULL));
    if (rank == 1) usleep(60000);
    if (rank == 1) NCCL(ncclRecv(x, N, ncclFloat, 0, comm, NULL));
    expect(x, N, 1);
}

// Send and receive in one group go on together.
RIGHT(DEADLOCK, exchange_in_a_group, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    float *out = filled(N, (float)rank), *in = filled(N, -1);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(out, N, ncclFloat, 1 - rank, comm, NULL));
    NCCL(ncclRecv(in, N, ncclFloat, 1 - rank, comm, NULL));
    NCCL(ncclGroupEnd());
    expect(in, N, (float)(1 - rank));
}

// Even ranks send first, odd ones receive first.
RIGHT(DEADLOCK, ring_by_turns, 4)
{
    ncclComm_t comm = meet(rank, ranks);
    float *out = filled(N, (float)rank), *in = filled(N, -1);
    int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    if (rank % 2 == 0) NCCL(ncclSend(out, N, ncclFloat, next, comm, NULL));
    NCCL(ncclRecv(in, N, ncclFloat, last, comm, NULL));
    if (rank % 2 == 1) NCCL(ncclSend(out, N, ncclFloat, next, comm, NULL));
    expect(in, N, (float)last);
}

// Unequal numbers of batches, but everybody goes on as long as anybody has one.
RIGHT(DEADLOCK, steps_agreed_upon, 3)
{
    ncclComm_t comm = meet(rank, ranks);
    int batches = 1 + rank, steps = 0;
    float more = 1, *any = filled(1, 0);
    for (; more > 0; steps++) {
        more = steps < batches ? 1 : 0;
        CUDA(cudaMemcpy(any, &more, sizeof more, cudaMemcpyHostToDevice));
        NCCL(ncclAllReduce(any, any, 1, ncclFloat, ncclMax, comm, NULL));
        CUDA(cudaMemcpy(&more, any, sizeof more, cudaMemcpyDeviceToHost));
    }
    CHECK(steps == 4);
}

// Rank 2 leaves, and the others go on in a communicator without it.
// Ranks may make one call from different places.
RIGHT(DEADLOCK, layers_by_rank, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(2 * N, 1);
    for (int layer = 0; layer < 3; layer++) {
        if (rank == 0)
            NCCL(ncclAllGather(x, x, N, ncclFloat, comm, NULL));
        else
            NCCL(ncclAllGather(x + N, x, N, ncclFloat, comm, NULL));
    }
    expect(x, 2 * N, 1);
}

RIGHT(DEADLOCK, leaves_in_order, 3)
{
    ncclComm_t comm = meet(rank, ranks), rest;
    NCCL(ncclCommSplit(comm, rank < 2 ? 0 : NCCL_SPLIT_NOCOLOR, rank, &rest, NULL));
    float *x = filled(N, 1);
    if (rank < 2) {
        NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, rest, NULL));
        expect(x, N, 2);
        NCCL(ncclCommDestroy(rest));
    }
}

// Late is not lost.
RIGHT(DEADLOCK, comes_late, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    float *x = filled(N, 1);
    if (rank == 1) usleep(60000);
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, NULL));
    expect(x, N, 2);
}

// Rank 0 waits for a message that is none of NCCL's, say of MPI: it may come, or not.
HANGS(DEADLOCK, a_rank_waits_in_another_library, 3)
{
    ncclComm_t comm = join(rank, ranks);
    float *x = filled(N, 1);
    int pair[2];
    char word;
    new_pair(pair);
    if (rank == 0) CHECK(read(pair[0], &word, 1) == 1);
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, NULL)); // HERE
}
