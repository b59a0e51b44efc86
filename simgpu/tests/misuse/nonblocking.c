/* nonblocking.c: communicators that do not block, and what is made of others: a call is over when
 * ncclCommGetAsyncError says so. And communicators that are aborted, revoked and shrunk.
 */
#include <pthread.h>
#include <unistd.h>

#include "program.h"

enum { TWO = 2 };
#define ADD(x, comm, stream) ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, stream)

// Asks until it is over, and says what came of it.
HELPER ncclResult_t outcome(ncclResult_t result, ncclComm_t comm)
{
    while (result == ncclInProgress) NCCL(ncclCommGetAsyncError(comm, &result));
    return result;
}

#define OVER(call, comm) NCCL(outcome(call, comm))

HELPER ncclConfig_t polled(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return config;
}

// Of all ranks, but not yet over.
HELPER ncclComm_t begun(int rank, int ranks)
{
    ncclComm_t comm;
    ncclConfig_t config = polled();
    CUDA(cudaSetDevice(rank));
    CHECK(ncclCommInitRankConfig(&comm, ranks, share_id(rank, ranks), rank, &config) ==
          ncclInProgress);
    return comm;
}

HELPER ncclComm_t settled(int rank, int ranks)
{
    ncclComm_t comm = begun(rank, ranks);
    OVER(ncclInProgress, comm);
    return comm;
}

HELPER void end_settled(ncclComm_t comm)
{
    OVER(ncclCommFinalize(comm), comm);
    NCCL(ncclCommDestroy(comm));
}

// Rank 1 has no id before rank 0's call has come back.
RIGHT(LIFETIME, begun_before_the_other_rank_can_come, 2)
{
    ncclComm_t comm;
    ncclUniqueId id;
    ncclResult_t state;
    ncclConfig_t config = polled();
    float *x;
    CUDA(cudaSetDevice(rank));
    x = filled(N, 1);
    if (rank == 0) NCCL(ncclGetUniqueId(&id));
    if (rank == 1) hand_id(&id, rank, ranks);
    CHECK(ncclCommInitRankConfig(&comm, ranks, id, rank, &config) == ncclInProgress);
    NCCL(ncclCommGetAsyncError(comm, &state));
    if (rank == 0) CHECK(state == ncclInProgress);
    if (rank == 0) hand_id(&id, rank, ranks);
    OVER(state, comm);
    for (int i = 0; i < 3; i++) OVER(ADD(x, comm, NULL), comm);
    expect(x, N, 8);
    end_settled(comm);
}

WRONG(LIFETIME, summed_before_it_is_ready, 2, "0 1")
{
    float *x = filled(N, 1);
    ncclComm_t comm = begun(rank, ranks);
    CHECK(ADD(x, comm, NULL) == ncclInvalidArgument); // HERE
    OVER(ncclInProgress, comm);
    end_settled(comm);
}

WRONG(LIFETIME, asked_for_its_rank_before_it_is_ready, 1, "0")
{
    int mine;
    ncclComm_t comm = begun(rank, ranks);
    CHECK(ncclCommUserRank(comm, &mine) == ncclInvalidArgument); // HERE
    OVER(ncclInProgress, comm);
    end_settled(comm);
}

WRONG(LIFETIME, split_before_it_is_ready, 1, "0")
{
    ncclComm_t part, comm = begun(rank, ranks);
    CHECK(ncclCommSplit(comm, 0, 0, &part, NULL) == ncclInvalidArgument); // HERE
    OVER(ncclInProgress, comm);
    end_settled(comm);
}

WRONG(LIFETIME, second_sum_before_the_first_is_over, 2, "0 1")
{
    ncclComm_t comm = settled(rank, ranks);
    float *x = filled(N, 1);
    CHECK(ADD(x, comm, NULL) == ncclInProgress);
    CHECK(ADD(x, comm, NULL) == ncclInvalidArgument); // HERE
    OVER(ncclInProgress, comm);
    expect(x, N, 2);
    end_settled(comm);
}

WRONG(LIFETIME, destroyed_before_its_end_is_over, 2, "0 1")
{
    ncclComm_t comm = settled(rank, ranks);
    CHECK(ncclCommFinalize(comm) == ncclInProgress);
    CHECK(ncclCommDestroy(comm) == ncclInvalidArgument); // HERE
    OVER(ncclInProgress, comm);
    NCCL(ncclCommDestroy(comm));
}

// ncclInProgress: the sum may not be on the stream yet.
WRONG(GROUP, kernel_before_the_sum_is_on_its_stream, 2, "0 1")
{
    ncclComm_t comm = settled(rank, ranks);
    float *x = filled(N, 1);
    CHECK(ADD(x, comm, NULL) == ncclInProgress); // HERE
    CUDA(kernel_scale(x, 2, N, NULL));           // HERE
    OVER(ncclInProgress, comm);
    end_settled(comm);
}

WRONG(GROUP, waits_before_the_sum_is_on_its_stream, 2, "0 1")
{
    ncclComm_t comm = settled(rank, ranks);
    float *x = filled(N, 1);
    CHECK(ADD(x, comm, NULL) == ncclInProgress); // HERE
    CUDA(cudaStreamSynchronize(NULL));           // HERE
    OVER(ncclInProgress, comm);
    end_settled(comm);
}

WRONG(GROUP, blocking_and_not_in_one_group, 2, "0 1")
{
    ncclComm_t comm = settled(rank, ranks), other = join(rank, ranks);
    float *x = filled(N, 1), *y = filled(N, 1);
    NCCL(ncclGroupStart());
    NCCL(ADD(x, comm, NULL));                          // HERE
    CHECK(ADD(y, other, NULL) == ncclInvalidArgument); // HERE
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    NCCL(ncclCommDestroy(other));
    end_settled(comm);
}

WRONG(GROUP, initialised_blocking_and_not_in_one_group, 1, "0")
{
    ncclUniqueId id;
    ncclComm_t comm[TWO];
    ncclConfig_t config = polled();
    NCCL(ncclGetUniqueId(&id));
    NCCL(ncclGroupStart());
    NCCL(ncclCommInitRank(&comm[0], TWO, id, 0)); // HERE
    CUDA(cudaSetDevice(1));
    CHECK(ncclCommInitRankConfig(&comm[1], TWO, id, 1, &config) == ncclInvalidArgument); // HERE
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
}

// One thread, two devices: a group's end comes back, as does each call without a group, which waits
// for no other device's. Each communicator is asked.
HELPER void devices_polled(bool grouped)
{
    ncclUniqueId id;
    ncclComm_t comm[TWO];
    float *x[TWO];
    ncclConfig_t config = polled();
    ncclResult_t begun = grouped ? ncclSuccess : ncclInProgress;
    NCCL(ncclGetUniqueId(&id));
    if (grouped) NCCL(ncclGroupStart());
    for (int d = 0; d < TWO; d++) {
        CUDA(cudaSetDevice(d));
        x[d] = filled(N, 1);
        CHECK(ncclCommInitRankConfig(&comm[d], TWO, id, d, &config) == begun);
    }
    if (grouped) CHECK(ncclGroupEnd() == ncclInProgress);
    for (int d = 0; d < TWO; d++) OVER(ncclInProgress, comm[d]);
    if (grouped) NCCL(ncclGroupStart());
    for (int d = 0; d < TWO; d++) {
        CUDA(cudaSetDevice(d));
        CHECK(ADD(x[d], comm[d], NULL) == begun);
    }
    if (grouped) CHECK(ncclGroupEnd() == ncclInProgress);
    for (int d = 0; d < TWO; d++) OVER(ncclInProgress, comm[d]);
    for (int d = 0; d < TWO; d++) {
        CUDA(cudaSetDevice(d));
        expect(x[d], N, 2);
        CUDA(cudaFree(x[d]));
        end_settled(comm[d]);
    }
}

RIGHT(GROUP, devices_polled_one_after_the_other, 1)
{
    devices_polled(true);
}

RIGHT(GROUP, devices_begun_without_a_group, 1)
{
    devices_polled(false);
}

// A sum that is in progress goes on while its thread waits in another communicator, whose rank 1
// comes when the first sum is over.
RIGHT(COMM_ORDER, in_progress_while_another_blocks, 2)
{
    ncclComm_t comm = settled(rank, ranks), other = join(rank, ranks);
    cudaStream_t stream = side_stream();
    float *x = filled(N, 1), *y = filled(N, 1);
    ncclResult_t state = ADD(x, comm, stream);
    if (rank == 1) OVER(state, comm);
    NCCL(ADD(y, other, NULL));
    if (rank == 0) OVER(state, comm);
    CUDA(cudaStreamSynchronize(stream));
    expect(x, N, 2);
    expect(y, N, 2);
    NCCL(ncclCommDestroy(other));
    end_settled(comm);
}

RIGHT(LIFETIME, split_without_blocking, 4)
{
    ncclComm_t comm = settled(rank, ranks), half = comm;
    float *x = filled(N, 1);
    ncclResult_t result = ncclCommSplit(comm, rank % 2, rank, &half, NULL);
    CHECK(result == ncclInProgress && half == NULL);
    OVER(result, comm);
    OVER(ADD(x, half, NULL), half);
    expect(x, N, 2);
    end_settled(half);
    end_settled(comm);
}

RIGHT(LIFETIME, messages_without_blocking, 2)
{
    ncclComm_t comm = settled(rank, ranks);
    float *out = filled(N, (float)rank), *in = filled(N, -1);
    for (int i = 0; i < 3; i++) {
        NCCL(ncclGroupStart());
        NCCL(ncclSend(out, N, ncclFloat, 1 - rank, comm, NULL));
        NCCL(ncclRecv(in, N, ncclFloat, 1 - rank, comm, NULL));
        OVER(ncclGroupEnd(), comm);
        expect(in, N, (float)(1 - rank));
    }
    if (rank == 0) OVER(ncclSend(out, N, ncclFloat, 1, comm, NULL), comm);
    if (rank == 1) OVER(ncclRecv(in, N, ncclFloat, 0, comm, NULL), comm);
    OVER(ADD(in, comm, NULL), comm);
    expect(in, N, 1);
    end_settled(comm);
}

// As NCCL's page on threads shows it: one thread begins, another asks and goes on.
HELPER void *begins_a_sum(void *arg)
{
    void **it = arg;
    CUDA(cudaSetDevice(0));
    CHECK(ADD((float *)it[0], (ncclComm_t)it[1], NULL) == ncclInProgress);
    return NULL;
}

RIGHT(COMM_ORDER, one_thread_begins_and_another_asks, 1)
{
    ncclComm_t comm = settled(rank, ranks);
    float *x = filled(N, 1);
    pthread_t thread;
    void *it[] = {x, comm};
    CHECK(pthread_create(&thread, NULL, begins_a_sum, it) == 0);
    pthread_join(thread, NULL);
    OVER(ncclInProgress, comm);
    OVER(ADD(x, comm, NULL), comm);
    expect(x, N, 1);
    end_settled(comm);
}

// Whoever asks and asks is told after a while for whom the others wait.
HANGS(DEADLOCK, asks_for_a_sum_to_which_nobody_comes, 2)
{
    ncclComm_t comm = settled(rank, ranks);
    float *x = filled(N, 1);
    while (rank == 1) pause();
    OVER(ADD(x, comm, NULL), comm); // HERE
}

HANGS(DEADLOCK, asks_for_a_communicator_to_which_nobody_comes, 2)
{
    ncclComm_t comm;
    ncclUniqueId id = share_id(rank, ranks);
    ncclConfig_t config = polled();
    while (rank == 1) pause();
    CHECK(ncclCommInitRankConfig(&comm, ranks, id, rank, &config) == ncclInProgress); // HERE
    OVER(ncclInProgress, comm);
}

// ---- Aborts ----

// The others never come. The process goes on.
RIGHT(DEADLOCK, aborted_while_it_is_made, 1)
{
    ncclUniqueId id;
    ncclComm_t comm, alone;
    ncclResult_t state;
    ncclConfig_t config = polled();
    float *x = filled(N, 1);
    NCCL(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRankConfig(&comm, 3, id, 1, &config) == ncclInProgress);
    for (int i = 0; i < 3; i++) NCCL(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclInProgress);
    NCCL(ncclCommAbort(comm));
    alone = settled(rank, 1);
    OVER(ADD(x, alone, NULL), alone);
    expect(x, N, 1);
    end_settled(alone);
}

// Rank 0 of a place that the environment names: its helper goes, too.
RIGHT(DEADLOCK, aborted_while_nobody_comes_to_its_place, 1)
{
    ncclUniqueId id;
    ncclComm_t comm;
    ncclResult_t state;
    ncclConfig_t config = polled();
    char place[64];
    snprintf(place, sizeof place, "127.0.0.1:%d", (int)getpid());
    setenv("NCCL_COMM_ID", place, 1);
    NCCL(ncclGetUniqueId(&id));
    for (int mine = 0; mine < 2; mine++) {
        CHECK(ncclCommInitRankConfig(&comm, 3, id, mine, &config) == ncclInProgress);
        NCCL(ncclCommGetAsyncError(comm, &state));
        CHECK(state == ncclInProgress);
        NCCL(ncclCommAbort(comm));
    }
}

// Rank 1 gives up the communicator; rank 0 hears of it, and both go on in another one.
RIGHT(DEADLOCK, aborted_while_a_rank_waits, 2)
{
    ncclComm_t comm = settled(rank, ranks);
    float *x = filled(N, 1);
    if (rank == 0) CHECK(outcome(ADD(x, comm, NULL), comm) == ncclRemoteError);
    if (rank == 0) CHECK(ADD(x, comm, NULL) == ncclRemoteError);
    NCCL(ncclCommAbort(comm));
    comm = settled(rank, ranks);
    OVER(ADD(x, comm, NULL), comm);
    end_settled(comm);
}

RIGHT(DEADLOCK, aborted_in_progress, 2)
{
    ncclComm_t comm = settled(rank, ranks);
    float *x = filled(N, 1);
    if (rank == 0) CHECK(ADD(x, comm, NULL) == ncclInProgress);
    NCCL(ncclCommAbort(comm));
    CUDA(cudaDeviceSynchronize());
    comm = settled(rank, ranks);
    OVER(ADD(x, comm, NULL), comm);
    end_settled(comm);
}

// A watchdog: the thread that waits in a call comes out of it.
HELPER void *aborts(void *arg)
{
    usleep(200000);
    NCCL(ncclCommAbort(arg));
    return NULL;
}

HELPER void aborted_by_a_thread(int rank, int ranks, bool sends)
{
    ncclComm_t comm = join(rank, ranks);
    float *x = filled(N, 1);
    pthread_t watchdog;
    CHECK(pthread_create(&watchdog, NULL, aborts, comm) == 0);
    if (rank == 0 && !sends) CHECK(ADD(x, comm, NULL) != ncclSuccess);
    if (rank == 0 && sends) CHECK(ncclRecv(x, N, ncclFloat, 1, comm, NULL) != ncclSuccess);
    pthread_join(watchdog, NULL);
    comm = join(rank, ranks);
    NCCL(ADD(x, comm, NULL));
    NCCL(ncclCommDestroy(comm));
}

RIGHT(DEADLOCK, sum_aborted_by_another_thread, 2)
{
    aborted_by_a_thread(rank, ranks, false);
}

RIGHT(DEADLOCK, message_aborted_by_another_thread, 2)
{
    aborted_by_a_thread(rank, ranks, true);
}

WRONG(LIFETIME, summed_after_an_abort, 1, "0")
{
    ncclComm_t comm = settled(rank, ranks);
    float *x = filled(N, 1);
    NCCL(ncclCommAbort(comm));                // HERE
    CHECK(ADD(x, comm, NULL) != ncclSuccess); // HERE
}

WRONG(LIFETIME, summed_after_a_revoke, 1, "0")
{
    ncclComm_t comm = join(rank, ranks);
    float *x = filled(N, 1);
    NCCL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    CHECK(ADD(x, comm, NULL) == ncclInvalidUsage); // HERE
    NCCL(ncclCommDestroy(comm));
}

RIGHT(LIFETIME, destroyed_after_a_revoke, 2)
{
    ncclComm_t comm = join(rank, ranks);
    NCCL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    NCCL(ncclCommDestroy(comm));
}

// ---- Shrinks ----

// Rank 1 is left out; rank 2 becomes rank 1.
HELPER void sum_of_those_who_stay(ncclComm_t part, int rank)
{
    int mine, size;
    float *x = filled(N, (float)rank);
    NCCL(ncclCommUserRank(part, &mine));
    NCCL(ncclCommCount(part, &size));
    CHECK(mine == rank / 2 && size == 2);
    OVER(ADD(x, part, NULL), part);
    expect(x, N, 2);
}

RIGHT(DEADLOCK, shrunk, 3)
{
    ncclComm_t comm = join(rank, ranks), part;
    int out = 1;
    for (int round = 0; round < 3 && rank != 1; round++) {
        NCCL(ncclCommShrink(comm, &out, 1, &part, NULL, NCCL_SHRINK_DEFAULT));
        sum_of_those_who_stay(part, rank);
        NCCL(ncclCommDestroy(part));
    }
    NCCL(ncclCommDestroy(comm));
}

RIGHT(DEADLOCK, shrunk_without_blocking, 3)
{
    ncclComm_t comm = settled(rank, ranks), part = comm;
    int out = 1;
    if (rank != 1) {
        ncclResult_t result = ncclCommShrink(comm, &out, 1, &part, NULL, NCCL_SHRINK_DEFAULT);
        CHECK(result == ncclInProgress && part == NULL);
        OVER(result, comm);
        sum_of_those_who_stay(part, rank);
        end_settled(part);
    }
    end_settled(comm);
}

// Rank 1 has gone in the middle of a sum.
RIGHT(DEADLOCK, shrunk_after_a_rank_was_lost, 3)
{
    ncclComm_t comm = settled(rank, ranks), part;
    float *x = filled(N, 1);
    int out = 1;
    if (rank != 1) {
        CHECK(outcome(ADD(x, comm, NULL), comm) == ncclRemoteError);
        OVER(ncclCommShrink(comm, &out, 1, &part, NULL, NCCL_SHRINK_ABORT), comm);
        sum_of_those_who_stay(part, rank);
        end_settled(part);
    }
    NCCL(ncclCommAbort(comm));
}

// Two devices of one thread, and a third that is left out.
RIGHT(GROUP, shrunk_in_a_group, 1)
{
    ncclComm_t comm[3], part[3] = {NULL};
    int out = 2;
    NCCL(ncclCommInitAll(comm, 3, NULL));
    NCCL(ncclGroupStart());
    for (int d = 0; d < TWO; d++)
        NCCL(ncclCommShrink(comm[d], &out, 1, &part[d], NULL, NCCL_SHRINK_DEFAULT));
    NCCL(ncclGroupEnd());
    for (int d = 0; d < TWO; d++) NCCL(ncclCommDestroy(part[d]));
    for (int d = 0; d < 3; d++) NCCL(ncclCommDestroy(comm[d]));
}

WRONG(MISMATCH, shrunk_by_different_lists, 4, "0 1")
{
    ncclComm_t comm = meet(rank, ranks), part;
    float *x = filled(N, 1);
    int out = 2 + rank;
    if (rank < 2) NCCL(ncclCommShrink(comm, &out, 1, &part, NULL, NCCL_SHRINK_DEFAULT)); // HERE
    NCCL(ADD(x, comm, NULL));
}

WRONG(DEADLOCK, shrunk_without_a_rank_that_stays, 3, "0")
{
    ncclComm_t comm = join(rank, ranks), part;
    int out = 2;
    if (rank == 0) NCCL(ncclCommShrink(comm, &out, 1, &part, NULL, NCCL_SHRINK_DEFAULT)); // HERE
    NCCL(ncclCommDestroy(comm));
}

WRONG(CALL, shrunk_by_one_who_is_left_out, 2, "1")
{
    ncclComm_t comm = meet(rank, ranks), part = NULL;
    int out = 1;
    if (rank == 0) NCCL(ncclCommShrink(comm, &out, 1, &part, NULL, NCCL_SHRINK_DEFAULT));
    if (rank == 1)
        CHECK(ncclCommShrink(comm, &out, 1, &part, NULL, NCCL_SHRINK_DEFAULT) == // HERE
              ncclInvalidArgument);
    NCCL(ncclCommDestroy(part));
}

WRONG(CALL, shrunk_without_leaving_anybody_out, 1, "0")
{
    ncclComm_t comm = meet(rank, ranks), part;
    int out = 1;
    CHECK(ncclCommShrink(comm, &out, 0, &part, NULL, NCCL_SHRINK_DEFAULT) != ncclSuccess); // HERE
}

WRONG(CALL, configured_to_block_twice, 1, "0")
{
    ncclUniqueId id;
    ncclComm_t comm;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 2;
    NCCL(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument); // HERE
}

WRONG(CALL, simulated_without_its_start_values, 1, "0")
{
    ncclSimInfo_t info = {sizeof info, 0, 0, 0};
    NCCL(ncclGroupStart());
    CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidArgument); // HERE
}

// Nothing begins by it, and the next group is the thread's own.
RIGHT(CALL, group_that_is_only_simulated, 2)
{
    ncclComm_t comm = meet(rank, ranks);
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    float *x = filled(N, 1), time[3];
    for (int calls = 0; calls < 3; calls++) {
        NCCL(ncclGroupStart());
        for (int i = 0; i < calls && rank == 0; i++) NCCL(ADD(x, comm, NULL));
        NCCL(ncclGroupSimulateEnd(&info));
        time[calls] = info.estimatedTime;
    }
    CHECK(time[0] == 0 && (rank == 0 ? time[1] > 0 : time[1] == 0));
    CHECK(rank ? time[2] == 0 : time[1] < time[2] && time[2] < 2 * time[1]); // one latency
    NCCL(ADD(x, comm, NULL));
    expect(x, N, 2);
}

RIGHT(CALL, configured_with_all_switches, 1)
{
    ncclUniqueId id;
    ncclComm_t comm;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = config.splitShare = config.shrinkShare = 1;
    NCCL(ncclGetUniqueId(&id));
    NCCL(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    NCCL(ncclCommDestroy(comm));
}
