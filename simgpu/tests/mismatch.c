/* Ranks that disagree, and wrong arguments: what simgpu's NCCL says of them. A disagreement ends
 * every rank concerned with a report that names both calls and where they were made.
 */
#include <stdlib.h>
#include <unistd.h>

#include "heard.h"

typedef struct Shared {
    Heard heard[8];
    int which;
} Shared;

static float *buffer(size_t n)
{
    float *x;
    need_cuda(cudaMalloc((void **)&x, n * sizeof *x));
    need_cuda(cudaMemset(x, 0, n * sizeof *x));
    return x;
}

enum { OPERATION, COUNT, TYPE, REDUCTION, ROOT, MESSAGE, SPLIT, DIFFERENCES };

// A call site each, so that a report can be asked for both.
__attribute__((noinline)) static void call_of_rank_zero(int which, float *x, const Rank *r)
{
    if (which == OPERATION)
        ncclAllReduce(x, x, 8, ncclFloat, ncclSum, r->comm, r->stream);
    else if (which == COUNT)
        ncclAllReduce(x, x, 8, ncclFloat, ncclSum, r->comm, r->stream);
    else if (which == TYPE)
        ncclAllReduce(x, x, 8, ncclFloat, ncclSum, r->comm, r->stream);
    else if (which == REDUCTION)
        ncclAllReduce(x, x, 8, ncclFloat, ncclSum, r->comm, r->stream);
    else if (which == ROOT)
        ncclBroadcast(x, x, 8, ncclFloat, 0, r->comm, r->stream);
    else if (which == MESSAGE) {
        ncclSend(x, 8, ncclFloat, 1, r->comm, r->stream);
        cudaStreamSynchronize(r->stream);
    } else
        ncclAllReduce(x, x, 8, ncclFloat, ncclSum, r->comm, r->stream);
}

__attribute__((noinline)) static void call_of_others(int which, float *x, const Rank *r)
{
    ncclComm_t part;
    if (which == OPERATION)
        ncclAllGather(x + 8 * r->rank, x, 8, ncclFloat, r->comm, r->stream);
    else if (which == COUNT)
        ncclAllReduce(x, x, 7, ncclFloat, ncclSum, r->comm, r->stream);
    else if (which == TYPE)
        ncclAllReduce(x, x, 8, ncclInt32, ncclSum, r->comm, r->stream);
    else if (which == REDUCTION)
        ncclAllReduce(x, x, 8, ncclFloat, ncclAvg, r->comm, r->stream);
    else if (which == ROOT)
        ncclBroadcast(x, x, 8, ncclFloat, 1, r->comm, r->stream);
    else if (which == MESSAGE)
        ncclRecv(x, 9, ncclFloat, 0, r->comm, r->stream);
    else
        ncclCommSplit(r->comm, 0, 0, &part, NULL);
}

static void disagree(const Rank *r, void *arg)
{
    Shared *shared = arg;
    float *x = buffer(64);
    need_nccl(ncclAllReduce(x, x, 8, ncclFloat, ncclSum, r->comm, r->stream));
    hear(&shared->heard[r->rank]);
    if (r->rank == 0)
        call_of_rank_zero(shared->which, x, r);
    else
        call_of_others(shared->which, x, r);
    check(false, "rank %d came back from a call on which the ranks disagree", r->rank);
}

static void disagreement(int world, int which, const char *title, const char *words)
{
    Shared *shared = shared_alloc(sizeof *shared);
    shared->which = which;
    char *message = run_ranks_message(world, 10, disagree, shared);
    assert_non_null(message);
    assert_null(strstr(message, "came back"));
    free(message);
    for (int r = 0; r < world; r++) {
        const Heard *heard = &shared->heard[r];
        if (!strstr(heard->title, title) || !strstr(heard->text, words) ||
            !strstr(heard->text, "(call_of_rank_zero)") ||
            !strstr(heard->text, "(call_of_others)") || !strstr(heard->text, "mismatch.c:"))
            fail_msg("rank %d of %d, difference %d, says: %s", r, world, which, heard->text);
    }
}

TEST(test_disagreement)
{
    static const char *const words[] = {
        "rank 0 calls ncclAllReduce, rank 1 calls ncclAllGather",
        "rank 0 has 8, rank 1 has 7",
        "rank 0 has ncclFloat32, rank 1 has ncclInt32",
        "rank 0 has ncclSum, rank 1 has ncclAvg",
        "differ in the root: rank 0 has 0, rank 1 has 1",
    };
    for (int which = OPERATION; which <= ROOT; which++)
        for (int world = 2; world <= 8; world += 3)
            disagreement(world, which, "disagree about call 2 on the communicator", words[which]);
    disagreement(2, MESSAGE, "a send and its receive disagree", "Message 1 from rank 0 to rank 1");
    disagreement(3, SPLIT, "disagree about call 2", "rank 1 calls ncclCommSplit");
}

// One rank differs, in a place where the others come first, or last.
static void late(const Rank *r, void *arg)
{
    Shared *shared = arg;
    float *x = buffer(64);
    hear(&shared->heard[r->rank]);
    for (int i = 0; i < 50; i++) {
        size_t count = i == 37 && r->rank == r->world - 1 ? 5 : 6;
        ncclAllReduce(x, x, count, ncclFloat, ncclSum, r->comm, r->stream);
    }
    check(false, "rank %d came back", r->rank);
}

TEST(test_late)
{
    Shared *shared = shared_alloc(sizeof *shared);
    free(run_ranks_message(4, 10, late, shared));
    for (int r = 0; r < 4; r++) {
        assert_non_null(strstr(shared->heard[r].title, "disagree about call 38"));
        assert_non_null(strstr(shared->heard[r].text, "rank 0 has 6, rank 3 has 5"));
    }
}

// ---- Arguments: reported, returned, and the communicator works on ----

static void arguments(const Rank *r, void *arg)
{
    Heard *heard = hear(&((Shared *)arg)->heard[r->rank]);
    float *x = buffer(64), host[8] = {0};
    int other = (r->rank + 1) % r->world;
#define WRONG(call, result, title, words)                                                          \
    do {                                                                                           \
        ncclResult_t got_ = (call);                                                                \
        check(got_ == (result), "%s returned %s", #call, ncclGetErrorString(got_));                \
        heard_is(heard, title, words);                                                             \
        check(strstr(heard->text, "mismatch.c:"), "no call site in: %s", heard->text);             \
        check(strstr(ncclGetLastError(r->comm), title), "the last error is %s",                    \
              ncclGetLastError(r->comm));                                                          \
        heard->count = 0;                                                                          \
    } while (0)
#define REDUCE(send, recv, type, op, comm)                                                         \
    ncclAllReduce(send, recv, 8, (ncclDataType_t)(type), (ncclRedOp_t)(op), comm, r->stream)
    WRONG(REDUCE(x, x, ncclFloat, ncclSum, NULL), ncclInvalidArgument, "the communicator is NULL",
          "ncclAllReduce");
    WRONG(REDUCE(x, x, ncclFloat, ncclSum, (ncclComm_t)(void *)host), ncclInvalidArgument,
          "not a communicator", "destroyed");
    WRONG(REDUCE(x, x, 77, ncclSum, r->comm), ncclInvalidArgument, "an invalid data type", "77");
    WRONG(REDUCE(x, x, -1, ncclSum, r->comm), ncclInvalidArgument, "an invalid data type", "-1");
    WRONG(REDUCE(x, x, ncclFloat, 99, r->comm), ncclInvalidArgument, "an invalid reduction", "99");
    WRONG(REDUCE(NULL, x, ncclFloat, ncclSum, r->comm), ncclInvalidArgument, "a null pointer",
          "send");
    WRONG(REDUCE(x, NULL, ncclFloat, ncclSum, r->comm), ncclInvalidArgument, "a null pointer",
          "receive");
    WRONG(REDUCE(host, x, ncclFloat, ncclSum, r->comm), ncclInvalidArgument, "a host pointer",
          "send");
    WRONG(REDUCE(x, x + 1, ncclFloat, ncclSum, r->comm), ncclInvalidArgument,
          "send and receive buffer overlap", "sendbuff == recvbuff");
    WRONG(ncclAllGather(x, x + 1, 8, ncclFloat, r->comm, r->stream), ncclInvalidArgument,
          "send and receive buffer overlap", "rank * sendcount");
    WRONG(ncclReduceScatter(x, x + 8 * r->rank + 1, 8, ncclFloat, ncclSum, r->comm, r->stream),
          ncclInvalidArgument, "send and receive buffer overlap", "rank * recvcount");
    WRONG(ncclBroadcast(x, x, 8, ncclFloat, r->world, r->comm, r->stream), ncclInvalidArgument,
          "a root outside the communicator", "0 to 1");
    WRONG(ncclReduce(x, x, 8, ncclFloat, ncclSum, -1, r->comm, r->stream), ncclInvalidArgument,
          "a root outside the communicator", "-1");
    WRONG(ncclSend(x, 8, ncclFloat, 2, r->comm, r->stream), ncclInvalidArgument,
          "a peer outside the communicator", "2");
    WRONG(ncclGroupEnd(), ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart",
          "ncclGroupStart");
    WRONG(ncclRedOpDestroy((ncclRedOp_t)9, r->comm), ncclInvalidArgument, "an invalid reduction",
          "9");

    need_cuda(cudaSetDevice(other));
    float *far = buffer(8);
    need_cuda(cudaSetDevice(r->device));
    WRONG(REDUCE(far, x, ncclFloat, ncclSum, r->comm), ncclInvalidArgument,
          "memory of another device", "on device");

    // A group with a mistake in it runs nothing and returns the mistake.
    need_nccl(ncclGroupStart());
    check(REDUCE(NULL, x, ncclFloat, ncclSum, r->comm) == ncclInvalidArgument, "in a group");
    need_nccl(REDUCE(x, x, ncclFloat, ncclSum, r->comm));
    check(ncclGroupEnd() == ncclInvalidArgument, "the group's end returns the error");

    // After all that the ranks still agree.
    heard->count = 0;
    for (int i = 0; i < 8; i++) host[i] = (float)(r->rank + i);
    send_to(x, host, 8);
    need_nccl(REDUCE(x, x, ncclFloat, ncclSum, r->comm));
    need_cuda(cudaStreamSynchronize(r->stream));
    float *sum = fetch(x, 8);
    for (int i = 0; i < 8; i++)
        check(sum[i] == (float)(1 + 2 * i), "sum %d is %g", i, (double)sum[i]);
    check(heard->count == 0, "%s", heard->text);
    free(sum);
    need_cuda(cudaFree(x));
    need_cuda(cudaSetDevice(other));
    need_cuda(cudaFree(far));
    need_cuda(cudaSetDevice(r->device));
}

TEST(test_arguments)
{
    Shared *shared = shared_alloc(sizeof *shared);
    run_ranks(2, arguments, shared);
}

static void too_small(const Rank *r, void *arg)
{
    Heard *heard = hear(&((Shared *)arg)->heard[r->rank]);
    float *x = buffer(8);
    check(ncclAllReduce(x, x, 9, ncclFloat, ncclSum, r->comm, r->stream) == ncclInvalidArgument,
          "a buffer of 8 elements for 9");
    check(heard->count > 0 && strstr(heard->text, "mismatch.c:"), "says: %s", heard->text);
    ((Shared *)arg)->which = 1;
    _exit(0); // the device is lost, so that the harness could not end the rank in its way
}

TEST(test_too_small)
{
    Shared *shared = shared_alloc(sizeof *shared);
    char *message = run_ranks_message(1, 10, too_small, shared);
    free(message);
    assert_int_equal(shared->which, 1);
}

SUITE_MAIN("mismatch")
