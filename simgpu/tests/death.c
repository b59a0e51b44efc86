/* Ranks that end while others wait for them: killed, crashed, by exit() or _exit(), or with the
 * communicator destroyed. The others end at once, with a report that names the rank, how it ended,
 * what it should have called and what it called last; nobody hangs. Cycles of ranks that wait for
 * each other, too.
 */
#include <cublas_v2.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "heard.h"
#include "launch.h" // whose ncclCommDestroy ends the watch of the communicator first

enum { KILL, CRASH, ABORT, EXIT, UNDERSCORE_EXIT, DESTROY, ENDS };

typedef struct Shared {
    Heard heard[8];
    int how, victim;
} Shared;

__attribute__((noinline)) static void last_call_of_victim(float *x, const Rank *r)
{
    need_nccl(ncclAllReduce(x, x, 8, ncclFloat, ncclSum, r->comm, r->stream));
}

__attribute__((noinline)) static void call_that_waits(float *x, const Rank *r)
{
    ncclAllGather(x + 8 * r->rank, x, 8, ncclFloat, r->comm, r->stream);
}

static void end_now(int how, const Rank *r)
{
    struct timespec moment = {0, 50000000}; // so that the others are waiting, mostly
    nanosleep(&moment, NULL);
    signal(SIGABRT, SIG_DFL);
    if (how == KILL)
        kill(getpid(), SIGKILL);
    else if (how == CRASH) {
        signal(SIGSEGV, SIG_DFL);
        kill(getpid(), SIGSEGV);
    } else if (how == ABORT)
        abort();
    else if (how == EXIT)
        exit(3);
    else if (how == UNDERSCORE_EXIT)
        _exit(4);
    else {
        ncclCommDestroy(r->comm);
        nanosleep(&moment, NULL); // still there, and not to come
        _exit(0);
    }
}

static float *buffer(size_t n)
{
    float *x;
    need_cuda(cudaMalloc((void **)&x, n * sizeof *x));
    need_cuda(cudaMemset(x, 0, n * sizeof *x));
    need_cuda(cudaDeviceSynchronize());
    return x;
}

static void die(const Rank *r, void *arg)
{
    Shared *shared = arg;
    float *x = buffer(64);
    hear(&shared->heard[r->rank]);
    last_call_of_victim(x, r);
    if (r->rank == shared->victim) end_now(shared->how, r);
    call_that_waits(x, r);
    check(false, "rank %d came back", r->rank);
}

TEST(test_ends)
{
    static const char *const words[] = {"was killed by signal 9", "was killed by signal 11",
                                        "was killed by signal 6", "exited with status 3",
                                        "exited with status 4",   "destroyed the communicator"};
    for (int how = 0; how < ENDS; how++)
        for (int world = 2; world <= 8; world += 3) {
            Shared *shared = shared_alloc(sizeof *shared);
            shared->how = how;
            shared->victim = world - 1;
            char victim[64];
            snprintf(victim, sizeof victim, "rank %d will never arrive", shared->victim);
            free(run_ranks_message(world, 10, die, shared));
            bool told = false; // whoever sees another's report first says only that
            for (int r = 0; r < world - 1; r++) {
                const Heard *heard = &shared->heard[r];
                bool second = strstr(heard->title, "ended: see its report") != NULL;
                assert_true(heard->count > 0);
                if (second) continue;
                if (!strstr(heard->title, victim) || !strstr(heard->text, words[how]) ||
                    !strstr(heard->text, "without calling ncclAllGather, call 2") ||
                    !strstr(heard->text, "(last_call_of_victim)") ||
                    !strstr(heard->text, "(call_that_waits)"))
                    fail_msg("rank %d of %d, end %d, says: %s", r, world, how, heard->text);
                told = true;
            }
            assert_true(told);
        }
}

// A rank dies while the communicator is made.
static void die_early(const Rank *r, void *arg)
{
    Shared *shared = arg;
    ncclComm_t part;
    hear(&shared->heard[r->rank]);
    if (r->rank == 1) end_now(KILL, r);
    ncclCommSplit(r->comm, 0, r->rank, &part, NULL);
    check(false, "rank %d came back", r->rank);
}

TEST(test_dies_early)
{
    Shared *shared = shared_alloc(sizeof *shared);
    free(run_ranks_message(3, 10, die_early, shared));
    for (int r = 0; r < 3; r += 2)
        assert_true(strstr(shared->heard[r].title, "rank 1 will never arrive") ||
                    strstr(shared->heard[r].title, "ended: see its report"));
}

// A rank that destroys the communicator in good order and exits disturbs nobody.
RANK_TEST(test_leaves_in_order, 3)
{
    ncclComm_t part;
    float *x = buffer(8);
    need_nccl(ncclCommSplit(r->comm, 0, r->rank, &part, NULL));
    need_nccl(ncclAllReduce(x, x, 8, ncclFloat, ncclSum, part, r->stream));
    if (r->rank == 0) {
        need_nccl(ncclCommDestroy(part));
    } else {
        struct timespec moment = {0, 30000000};
        nanosleep(&moment, NULL);
        if (r->rank == 1) need_nccl(ncclSend(x, 8, ncclFloat, 2, part, r->stream));
        if (r->rank == 2) need_nccl(ncclRecv(x, 8, ncclFloat, 1, part, r->stream));
        need_nccl(ncclCommDestroy(part));
    }
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaFree(x));
}

// ---- Cycles ----

enum { TWO_COMMUNICATORS, MESSAGES, MESSAGE_AND_COLLECTIVE, RING, CYCLES };

static void cycle(const Rank *r, void *arg)
{
    Shared *shared = arg;
    float *x = buffer(64);
    ncclComm_t b;
    int next = (r->rank + 1) % r->world;
    need_nccl(ncclCommSplit(r->comm, 0, r->rank, &b, NULL));
    need_nccl(ncclAllReduce(x, x, 8, ncclFloat, ncclSum, b, r->stream));
    hear(&shared->heard[r->rank]);
    switch (shared->how) {
    case TWO_COMMUNICATORS:
        ncclAllReduce(x, x, 8, ncclFloat, ncclSum, r->rank ? b : r->comm, r->stream);
        ncclAllReduce(x, x, 8, ncclFloat, ncclSum, r->rank ? r->comm : b, r->stream);
        break;
    case MESSAGES:
        ncclSend(x, 8, ncclFloat, 1 - r->rank, r->comm, r->stream);
        ncclRecv(x, 8, ncclFloat, 1 - r->rank, r->comm, r->stream);
        break;
    case MESSAGE_AND_COLLECTIVE:
        if (r->rank == 0) ncclSend(x, 8, ncclFloat, 1, r->comm, r->stream);
        ncclAllReduce(x, x, 8, ncclFloat, ncclSum, r->comm, r->stream);
        if (r->rank == 1) ncclRecv(x, 8, ncclFloat, 0, r->comm, r->stream);
        break;
    default:
        ncclSend(x, 8, ncclFloat, next, r->comm, r->stream);
        ncclRecv(x, 8, ncclFloat, (r->rank + r->world - 1) % r->world, r->comm, r->stream);
        break;
    }
    check(false, "rank %d came back", r->rank);
}

TEST(test_cycles)
{
    for (int how = 0; how < CYCLES; how++) {
        Shared *shared = shared_alloc(sizeof *shared);
        int world = how == RING ? 8 : 2;
        shared->how = how;
        double begin = seconds_now();
        free(run_ranks_message(world, 10, cycle, shared));
        assert_true(seconds_now() - begin < 9); // not by the time limit
        int told = 0;
        for (int r = 0; r < world; r++) {
            const char *title = shared->heard[r].title;
            const char *want =
                how == TWO_COMMUNICATORS ? "two communicators in different orders" : "deadlock";
            if (strstr(title, want)) {
                told++;
                assert_non_null(strstr(shared->heard[r].text, "(cycle)"));
            }
        }
        assert_true(told > 0);
    }
}

// The BLAS has threads of its own, which will not help: the cycle is as certain as without them.
static void cycle_after_a_product(const Rank *r, void *arg)
{
    enum { SIDE = 512 };
    float *x = buffer(3 * SIDE * SIDE), one = 1, zero = 0;
    cublasHandle_t blas;
    struct stat st;
    check(cublasCreate(&blas) == CUBLAS_STATUS_SUCCESS, "no handle");
    check(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, SIDE, SIDE, SIDE, &one, x, SIDE,
                      x + SIDE * SIDE, SIDE, &zero, x + 2 * SIDE * SIDE,
                      SIDE) == CUBLAS_STATUS_SUCCESS,
          "no product");
    check(stat("/proc/self/task", &st) == 0 && st.st_nlink - 2 >= 4, "the BLAS has no threads");
    cycle(r, arg);
}

TEST(test_workers)
{
    Shared *shared = shared_alloc(sizeof *shared);
    shared->how = MESSAGES;
    setenv("SIMGPU_THREADS", "4", 1);
    double begin = seconds_now();
    free(run_ranks_message(2, 10, cycle_after_a_product, shared));
    unsetenv("SIMGPU_THREADS");
    assert_true(seconds_now() - begin < 9); // not by the time limit
    assert_true(strstr(shared->heard[0].title, "deadlock") ||
                strstr(shared->heard[1].title, "deadlock"));
}

SUITE_MAIN("death")
