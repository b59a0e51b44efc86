/* Sends that return before they are received: what the receiver gets, who waits for it when, how
 * much can be on its way, and what becomes of a send that nobody receives.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "heard.h"
#include "kernels.h"

enum { N = 300, MEGABYTE = 1 << 20 };

typedef struct Shared {
    Heard heard[2];
    atomic_int sent, receiving, received;
    int how;
} Shared;

static void moment(void)
{
    struct timespec t = {0, 30000000};
    nanosleep(&t, NULL);
}

static void await(atomic_int *flag)
{
    struct timespec t = {0, 1000000};
    while (!atomic_load(flag)) nanosleep(&t, NULL);
}

static float *filled(size_t n, float value)
{
    float *x;
    need_cuda(cudaMalloc((void **)&x, n * sizeof *x));
    need_cuda(kernel_fill(x, value, n, NULL));
    need_cuda(cudaDeviceSynchronize());
    return x;
}

static void is_all(const float *x, size_t n, float value)
{
    float *host = fetch(x, n);
    for (size_t i = 0; i < n; i++)
        check(host[i] == value, "element %zu is %g, want %g", i, (double)host[i], (double)value);
    free(host);
}

// ---- It returns, and takes its bytes along ----

// The receive is called when the send has returned, and the memory sent is free and something else.
static void returns(const Rank *r, void *arg)
{
    Shared *shared = arg;
    float *x, *y = filled(N, 7);
    if (r->rank == 0) {
        need_cuda(cudaMallocAsync((void **)&x, N * sizeof *x, r->stream));
        need_cuda(kernel_fill(x, 5, N, r->stream));
        need_nccl(ncclSend(x, N, ncclFloat, 1, r->comm, r->stream));
        need_cuda(cudaFreeAsync(x, r->stream));
        atomic_store(&shared->sent, 1);
    } else {
        await(&shared->sent);
        need_nccl(ncclRecv(y, N, ncclFloat, 0, r->comm, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        is_all(y, N, 5);
    }
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaFree(y));
}

TEST(test_returns)
{
    run_ranks(2, returns, shared_alloc(sizeof(Shared)));
}

// ---- What waits ----

enum {
    STREAM_SYNC,
    DEVICE_SYNC,
    EVENT_SYNC,
    STREAM_QUERY,
    EVENT_QUERY,
    KERNEL_BEHIND,
    KERNEL_BEHIND_EVENT,
    BLOCKING_COPY,
    FREE,
    NEXT_CALL,
    NEXT_SPLIT,
    FINALIZE,
    DESTROY,
    WAYS
};

// Something that has to wait for the send on r->stream, or on `comm`.
static void wait_somehow(int how, const Rank *r, ncclComm_t comm, float *x)
{
    cudaStream_t other;
    cudaEvent_t event;
    ncclComm_t part;
    float *unused = NULL;
    if (how == FREE) need_cuda(cudaMalloc((void **)&unused, sizeof *unused));
    need_cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    need_cuda(cudaEventCreate(&event));
    if (how == EVENT_SYNC || how == EVENT_QUERY || how == KERNEL_BEHIND_EVENT)
        need_cuda(cudaEventRecord(event, r->stream));
    switch (how) {
    case STREAM_SYNC: need_cuda(cudaStreamSynchronize(r->stream)); break;
    case DEVICE_SYNC: need_cuda(cudaDeviceSynchronize()); break;
    case EVENT_SYNC: need_cuda(cudaEventSynchronize(event)); break;
    case STREAM_QUERY:
        while (cudaStreamQuery(r->stream) == cudaErrorNotReady) continue;
        break;
    case EVENT_QUERY:
        while (cudaEventQuery(event) == cudaErrorNotReady) continue;
        break;
    case KERNEL_BEHIND: need_cuda(kernel_fill(x, 0, N, r->stream)); break;
    case KERNEL_BEHIND_EVENT:
        need_cuda(cudaStreamWaitEvent(other, event, 0));
        need_cuda(kernel_fill(x, 0, N, other));
        break;
    case BLOCKING_COPY:
        need_cuda(cudaMemcpyAsync(x, x + N / 2, 8, cudaMemcpyDeviceToDevice, r->stream));
        break;
    case FREE: need_cuda(cudaFree(unused)); break;
    case NEXT_CALL: need_nccl(ncclReduce(x, x, N, ncclFloat, ncclSum, 1, comm, other)); break;
    case NEXT_SPLIT: need_nccl(ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &part, NULL)); break;
    case FINALIZE: need_nccl(ncclCommFinalize(comm)); break;
    default: need_nccl(ncclCommDestroy(comm)); break;
    }
    need_cuda(cudaEventDestroy(event));
    need_cuda(cudaStreamDestroy(other));
}

static void waits(const Rank *r, void *arg)
{
    Shared *shared = arg;
    ncclComm_t comm, part;
    float *x = filled(N, 1);
    need_nccl(ncclCommSplit(r->comm, 0, r->rank, &comm, NULL));
    if (r->rank == 0) {
        need_nccl(ncclSend(x, N, ncclFloat, 1, comm, r->stream));
        wait_somehow(shared->how, r, comm, x);
        check(atomic_load(&shared->receiving), "way %d did not wait", shared->how);
    } else {
        moment();
        atomic_store(&shared->receiving, 1);
        need_nccl(ncclRecv(x, N, ncclFloat, 0, comm, r->stream));
        if (shared->how == NEXT_CALL)
            need_nccl(ncclReduce(x, x, N, ncclFloat, ncclSum, 1, comm, r->stream));
        if (shared->how == NEXT_SPLIT)
            need_nccl(ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &part, NULL));
    }
    need_cuda(cudaDeviceSynchronize());
    if (r->rank != 0 || shared->how != DESTROY) need_nccl(ncclCommDestroy(comm));
    need_cuda(cudaFree(x));
}

TEST(test_waits)
{
    for (int how = 0; how < WAYS; how++) {
        Shared *shared = shared_alloc(sizeof *shared);
        shared->how = how;
        run_ranks(2, waits, shared);
    }
}

// The same where nobody will receive it: the report names both calls, the send and what waits.
static const char *const calls[WAYS] = {
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cudaStreamQuery",
    "cudaEventQuery",
    "kernel_fill",
    "kernel_fill",
    "cudaMemcpyAsync",
    "cudaFree",
    "ncclReduce",
    "ncclCommSplit",
    "ncclCommFinalize",
    "ncclCommDestroy",
};

static void waits_in_vain(const Rank *r, void *arg)
{
    Shared *shared = arg;
    ncclComm_t comm;
    float *x = filled(N, 1);
    need_nccl(ncclCommSplit(r->comm, 0, r->rank, &comm, NULL));
    hear(&shared->heard[r->rank]);
    if (r->rank == 1) need_nccl(ncclCommDestroy(comm));
    if (r->rank == 1) exit(0);
    need_nccl(ncclSend(x, N, ncclFloat, 1, comm, r->stream));
    wait_somehow(shared->how, r, comm, x);
    check(false, "way %d came back", shared->how);
}

TEST(test_names_what_waits)
{
    for (int how = 0; how < WAYS; how++) {
        Shared *shared = shared_alloc(sizeof *shared);
        char waits[100];
        shared->how = how;
        free(run_ranks_message(2, 20, waits_in_vain, shared));
        snprintf(waits, sizeof waits,
                 "and its host waits for that in %s at tests/sends.c:", calls[how]);
        const char *text = shared->heard[0].text, *found = strstr(text, waits);
        if (strcmp(shared->heard[0].title, "rank 1 will never arrive") != 0 || !found ||
            !strstr(found, "(wait_somehow)") || !strstr(text, "(waits_in_vain)"))
            fail_msg("way %d, no \"%s\": %s", how, waits, text);
    }
}

// Each waits on its host for the other to receive, and receives after that.
static void wait_for_each_other(const Rank *r, void *arg)
{
    Shared *shared = arg;
    float *x = filled(N, 1);
    hear(&shared->heard[r->rank]);
    need_nccl(ncclSend(x, N, ncclFloat, 1 - r->rank, r->comm, r->stream));
    need_cuda(r->rank ? cudaDeviceSynchronize() : cudaStreamSynchronize(r->stream));
    need_nccl(ncclRecv(x, N, ncclFloat, 1 - r->rank, r->comm, r->stream));
    check(false, "rank %d came back", r->rank);
}

TEST(test_names_what_waits_in_a_cycle)
{
    Shared *shared = shared_alloc(sizeof *shared);
    int told = 0;
    free(run_ranks_message(2, 20, wait_for_each_other, shared));
    for (int r = 0; r < 2; r++) {
        const char *text = shared->heard[r].text;
        if (!strstr(shared->heard[r].title, "deadlock: ranks wait for each other")) continue;
        told++;
        if (!strstr(text, "waits in cudaStreamSynchronize at tests/sends.c:") ||
            !strstr(text, "waits in cudaDeviceSynchronize at tests/sends.c:") ||
            !strstr(text, "for rank 0 to receive ncclSend (count 300, ncclFloat32, to rank 0)") ||
            !strstr(text, "for rank 1 to receive ncclSend (count 300, ncclFloat32, to rank 1)"))
            fail_msg("%s", text);
    }
    assert_true(told > 0);
}

// What has nothing to do with the send goes on: calls on other communicators and streams, in groups
// too, and records, waits and allocations on its stream.
static void goes_on(const Rank *r, void *arg)
{
    Shared *shared = arg;
    ncclComm_t other;
    cudaStream_t stream;
    cudaEvent_t event;
    float *x = filled(N, (float)(1 + r->rank)), *sum = filled(N, 1), *y;
    need_nccl(ncclCommSplit(r->comm, 0, r->rank, &other, NULL));
    need_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    need_cuda(cudaEventCreate(&event));
    if (r->rank == 0) need_nccl(ncclSend(x, N, ncclFloat, 1, r->comm, r->stream));
    need_cuda(cudaEventRecord(event, r->stream));
    need_cuda(cudaStreamWaitEvent(r->stream, event, 0));
    need_cuda(cudaMallocAsync((void **)&y, N, r->stream));
    need_cuda(cudaFreeAsync(y, r->stream));
    for (int i = 0; i < 3; i++) {
        need_nccl(ncclGroupStart());
        need_nccl(ncclAllReduce(sum, sum, N, ncclFloat, ncclSum, other, stream));
        need_nccl(ncclSend(sum, 1, ncclFloat, r->rank, other, stream));
        need_nccl(ncclRecv(sum + 1, 1, ncclFloat, r->rank, other, stream));
        need_nccl(ncclGroupEnd());
        need_cuda(cudaStreamSynchronize(stream));
    }
    if (r->rank == 0) atomic_store(&shared->sent, 1);
    await(&shared->sent);
    if (r->rank == 1) need_nccl(ncclRecv(x, N, ncclFloat, 0, r->comm, r->stream));
    need_cuda(cudaDeviceSynchronize());
    is_all(x, N, 1);
    need_nccl(ncclCommDestroy(other));
    need_cuda(cudaEventDestroy(event));
    need_cuda(cudaStreamDestroy(stream));
    need_cuda(cudaFree(x));
    need_cuda(cudaFree(sum));
}

TEST(test_goes_on)
{
    run_ranks(2, goes_on, shared_alloc(sizeof(Shared)));
}

// ---- How much ----

enum { COMMS = 5 };

// 64 MB can be on their way in all: the fifth message of 15 MB waits in its call, and comes with
// the others in the end. Then there is room again.
static void fills(const Rank *r, void *arg)
{
    Shared *shared = arg;
    ncclComm_t comm[COMMS];
    cudaStream_t stream[COMMS];
    size_t n = 15 * MEGABYTE / sizeof(float);
    float *x = filled(n, (float)r->rank);
    for (int i = 0; i < COMMS; i++) {
        need_nccl(ncclCommSplit(r->comm, 0, r->rank, &comm[i], NULL));
        need_cuda(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
    }
    for (int round = 0; round < 2; round++) {
        if (r->rank == 0) {
            for (int i = 0; i < COMMS; i++) {
                need_nccl(ncclSend(x, n, ncclFloat, 1, comm[i], stream[i]));
                if (i < COMMS - 1) atomic_fetch_add(&shared->sent, 1);
            }
            check(atomic_load(&shared->receiving) > round, "75 MB are on their way");
            need_cuda(cudaDeviceSynchronize());
        }
        for (int i = 0; i < COMMS && r->rank == 1; i++) {
            while (atomic_load(&shared->sent) < (round + 1) * (COMMS - 1)) moment();
            if (i == 0) moment();
            if (i == 0) atomic_fetch_add(&shared->receiving, 1);
            need_nccl(ncclRecv(x, n, ncclFloat, 0, comm[i], stream[i]));
            need_cuda(cudaDeviceSynchronize());
            is_all(x, n, 0);
            need_cuda(kernel_fill(x, 1, n, NULL));
            need_cuda(cudaDeviceSynchronize());
        }
        need_nccl(ncclAllReduce(x, x, 1, ncclFloat, ncclMin, r->comm, r->stream));
        need_cuda(cudaDeviceSynchronize());
    }
    for (int i = 0; i < COMMS; i++) {
        need_nccl(ncclCommDestroy(comm[i]));
        need_cuda(cudaStreamDestroy(stream[i]));
    }
    need_cuda(cudaFree(x));
}

TEST(test_fills)
{
    run_ranks(2, fills, shared_alloc(sizeof(Shared)));
}

// A message that can never have room waits in its call, as all did: so this is a cycle.
static void too_large(const Rank *r, void *arg)
{
    Shared *shared = arg;
    ncclComm_t other;
    cudaStream_t stream;
    size_t n = 65 * MEGABYTE / sizeof(float);
    float *x = filled(n, 1), *y = filled(n, 1);
    need_nccl(ncclCommSplit(r->comm, 0, r->rank, &other, NULL));
    need_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    hear(&shared->heard[r->rank]);
    ncclSend(x, n, ncclFloat, 1 - r->rank, r->rank ? other : r->comm, stream);
    ncclRecv(y, n, ncclFloat, 1 - r->rank, r->rank ? r->comm : other, r->stream);
    check(false, "rank %d came back", r->rank);
}

TEST(test_too_large)
{
    Shared *shared = shared_alloc(sizeof *shared);
    free(run_ranks_message(2, 20, too_large, shared));
    int told = 0;
    for (int r = 0; r < 2; r++)
        if (strstr(shared->heard[r].title, "deadlock: ranks wait for each other")) {
            told++;
            assert_non_null(strstr(shared->heard[r].text, "(too_large)"));
            assert_non_null(strstr(shared->heard[r].text, "this may hang: NCCL promises nothing"));
        }
    assert_true(told > 0);
}

// ---- Ends ----

// A rank that returns with a message under way stays until it is received.
static void leaves(const Rank *r, void *arg)
{
    Shared *shared = arg;
    float *x = filled(N, (float)(5 * (1 - r->rank)));
    if (r->rank == 0) {
        need_nccl(ncclSend(x, N, ncclFloat, 1, r->comm, r->stream));
        exit(0);
    }
    moment();
    need_nccl(ncclRecv(x, N, ncclFloat, 0, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    is_all(x, N, 5);
    atomic_store(&shared->received, 1);
    exit(0);
}

TEST(test_leaves)
{
    Shared *shared = shared_alloc(sizeof *shared);
    free(run_ranks_message(2, 20, leaves, shared));
    assert_true(atomic_load(&shared->received));
}

// What was sent is there, even if its sender is not.
static void is_killed(const Rank *r, void *arg)
{
    Shared *shared = arg;
    float *x = filled(N, (float)(5 * (1 - r->rank)));
    hear(&shared->heard[r->rank]);
    if (r->rank == 0) {
        need_nccl(ncclSend(x, N, ncclFloat, 1, r->comm, r->stream));
        atomic_store(&shared->sent, 1);
        kill(getpid(), SIGKILL);
    }
    await(&shared->sent);
    moment();
    need_nccl(ncclRecv(x, N, ncclFloat, 0, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    is_all(x, N, 5);
    atomic_store(&shared->received, 1 + shared->heard[1].count);
    exit(0);
}

TEST(test_is_killed)
{
    Shared *shared = shared_alloc(sizeof *shared);
    free(run_ranks_message(2, 20, is_killed, shared));
    assert_int_equal(atomic_load(&shared->received), 1); // and nothing was reported before
}

// Aborting a communicator waits for nobody.
static void aborts(const Rank *r, void *arg)
{
    Shared *shared = arg;
    ncclComm_t comm;
    float *x = filled(N, 1);
    need_nccl(ncclCommSplit(r->comm, 0, r->rank, &comm, NULL));
    if (r->rank == 0) need_nccl(ncclSend(x, N, ncclFloat, 1, comm, r->stream));
    if (r->rank == 0) need_nccl(ncclCommAbort(comm));
    if (r->rank == 0) atomic_store(&shared->sent, 1);
    await(&shared->sent);
    if (r->rank == 1) need_nccl(ncclCommDestroy(comm));
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaFree(x));
}

TEST(test_aborts)
{
    run_ranks(2, aborts, shared_alloc(sizeof(Shared)));
}

// The default stream does not wait for the work of a stream that was destroyed; nor does it on the
// virtual clock, where the receive would come after a copy that waits for it.
RANK_TEST_WITHIN(test_outlives_its_stream, 20, 1)
{
    ncclComm_t comm[2];
    cudaStream_t sender, receiver;
    need_nccl(ncclCommInitAll(comm, 2, NULL));
    need_cuda(cudaSetDevice(1));
    float *to = filled(N, 0);
    need_cuda(cudaStreamCreateWithFlags(&receiver, cudaStreamNonBlocking));
    need_cuda(cudaSetDevice(0));
    float *from = filled(N, 1), *other = filled(N, 2);
    need_cuda(cudaStreamCreate(&sender));
    need_cuda(cudaDeviceSynchronize());
    need_nccl(ncclSend(from, N, ncclFloat, 1, comm[0], sender));
    need_cuda(cudaStreamDestroy(sender));
    need_cuda(cudaMemcpy(other, other + N / 2, N / 2 * sizeof *other, cudaMemcpyDeviceToDevice));
    need_cuda(cudaSetDevice(1));
    need_nccl(ncclRecv(to, N, ncclFloat, 0, comm[1], receiver));
    while (cudaStreamQuery(receiver) == cudaErrorNotReady) continue;
    is_all(to, N, 1);
    need_cuda(cudaStreamDestroy(receiver));
    for (int d = 0; d < 2; d++) {
        need_cuda(cudaSetDevice(d));
        need_cuda(cudaDeviceSynchronize());
        need_nccl(ncclCommDestroy(comm[d]));
    }
    need_cuda(cudaFree(to));
    need_cuda(cudaFree(from));
    need_cuda(cudaFree(other));
    need_cuda(cudaSetDevice(0));
}

SUITE_MAIN("sends")
