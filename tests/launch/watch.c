/* The watch of a communicator, with answers of the test's own in place of NCCL's: what it says of
 * an error, that it leaves the rest of the process alone, and that it ends when it should. And the
 * line of check.h for an error of NCCL or cuBLAS.
 */
#include <cublas_v2.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../lib/launch/cuda/comm_watch.h"
#include "harness.h"
#include "run.h" // rank_done

static atomic_int asked;
static atomic_int answer; // an ncclResult_t

static ncclResult_t give_answer(ncclComm_t comm, ncclResult_t *error)
{
    *error = (ncclResult_t)atomic_load(&answer);
    atomic_fetch_add(&asked, 1);
    return ncclSuccess;
}

static ncclResult_t refuse(ncclComm_t comm, ncclResult_t *error)
{
    return ncclInvalidArgument;
}

// Until the watch has asked n times more.
static void wait_for_questions(int n)
{
    int end = atomic_load(&asked) + n;

    while (atomic_load(&asked) < end) usleep(10000);
}

// Long enough for some questions, if any came.
static void wait_a_while(void)
{
    usleep(700000);
}

// ---- An error ----

static void lose_a_peer(const Rank *r, void *arg)
{
    float *x;

    need_cuda(cudaMalloc((void **)&x, sizeof *x));
    need_cuda(cudaMemsetAsync(x, 0, sizeof *x, r->stream));
    need_nccl(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, r->comm, r->stream));
    atomic_store(&answer, ncclInProgress); // which is none
    wait_for_questions(2);
    if (r->rank == 1) atomic_store(&answer, ncclRemoteError);
    for (;;) pause();
}

TEST(test_an_error_ends_the_rank)
{
    needs_ranks(2);
    comm_watch_ask = give_answer;
    char *message = run_ranks_message(2, 60, lose_a_peer, NULL);
    comm_watch_ask = ncclCommGetAsyncError;
    if (!message || !strstr(message, "rank 1 of 2: ") || !strstr(message, "comm_watch.c:") ||
        !strstr(message, "ncclCommGetAsyncError (this rank last did ncclAllReduce at ") ||
        !strstr(message, "(lose_a_peer)): remote process exited or there was a network error"))
        fail_msg("it said: %s", message ? message : "nothing");
    free(message);
}

static int hang(const World *world, void *arg)
{
    ncclComm_t comm;

    if (!freopen("/dev/null", "w", stderr)) return 50;
    TRY(world_connect(world, &comm));
    if (world->rank == 0) printf("what was said before\n");
    for (;;) pause();
}

// Also where asking is refused. What the program had printed is not lost.
TEST(test_the_status_is_not_zero)
{
    needs_ranks(2);
    RankEnd ends[2];
    char text[64] = "";
    FILE *file = tmpfile();
    int out = dup(STDOUT_FILENO);

    assert_non_null(file);
    fflush(stdout);
    dup2(fileno(file), STDOUT_FILENO);
    comm_watch_ask = refuse;
    IGNORE_STATUS(launch_ranks(2, 60, hang, NULL, ends));
    comm_watch_ask = ncclCommGetAsyncError;
    dup2(out, STDOUT_FILENO);
    close(out);
    for (int i = 0; i < 2; i++)
        if (ends[i].how != RANK_EXITED || ends[i].code != WORLD_LOST_EXIT)
            fail_msg("rank %d ended in way %d with %d", i, (int)ends[i].how, ends[i].code);
    rewind(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    assert_string_equal(text, "what was said before\n");
    fclose(file);
}

// ---- No error ----

static int end_in_each_way(const World *world, void *arg)
{
    int way = *(int *)arg;
    ncclComm_t comm[2];

    for (int i = 0; i < 2; i++) TRY(world_connect(world, &comm[i]));
    wait_for_questions(4);
    if (way == 0) { // as it should be
        TRY(world_disconnect(comm[0]));
        wait_for_questions(2); // the other one is watched as before
        TRY(world_disconnect(comm[1]));
    } else if (way == 1) { // NCCL's own functions
        NCCL_TRY(ncclCommDestroy(comm[1]));
        NCCL_TRY(ncclCommAbort(comm[0]));
    } else { // not at all
        if (way == 3) exit(0);
        return 0;
    }
    int before = atomic_load(&asked);
    wait_a_while();
    if (atomic_load(&asked) != before) return 60;
    TRY(world_connect(world, &comm[0])); // and again
    wait_for_questions(1);
    return world_disconnect(comm[0]) == OK ? 0 : 61;
}

TEST(test_each_end)
{
    needs_ranks(2);
    RankEnd ends[2];

    comm_watch_ask = give_answer;
    for (int way = 0; way < 4; way++) {
        IGNORE_STATUS(launch_ranks(2, 60, end_in_each_way, &way, ends));
        for (int i = 0; i < 2; i++)
            if (ends[i].how != (way == 3 ? RANK_EXITED : RANK_RETURNED) || ends[i].code != 0)
                fail_msg("way %d: rank %d ended in way %d with %d", way, i, (int)ends[i].how,
                         ends[i].code);
    }
    comm_watch_ask = ncclCommGetAsyncError;
}

// simgpu's own answers, while the ranks are busy.
RANK_TEST(test_beside_collectives, 3)
{
    float *x;

    need_cuda(cudaMalloc((void **)&x, sizeof *x));
    need_cuda(cudaMemsetAsync(x, 0, sizeof *x, r->stream));
    for (int i = 0; i < 100; i++) {
        need_nccl(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, r->comm, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        usleep(10000);
    }
    need_cuda(cudaFree(x));
}

TEST(test_disconnect_without_a_communicator)
{
    assert_int_equal(world_disconnect(NULL), ERR_ARGUMENT);
    assert_non_null(strstr(check_last(), "world_disconnect without a communicator"));
}

// ---- The rest of the process ----

// A signal that the program waits for does not go to the watch instead.
static void takes_a_signal(const Rank *r, void *arg)
{
    const struct timespec limit = {.tv_sec = 20};
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    check(sigprocmask(SIG_BLOCK, &set, NULL) == 0, "the signal cannot be blocked");
    wait_for_questions(1);
    check(kill(getpid(), SIGUSR1) == 0, "no signal");
    check(sigtimedwait(&set, NULL, &limit) == SIGUSR1, "the signal did not come to the program");
}

// A forked child has no watch, and may end in its own way.
static void forks(const Rank *r, void *arg)
{
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        int status;
        if (pid == 0) {
            rank_done = true;
            world_unwatch(r->comm);
            exit(7);
        }
        check(pid > 0 && waitpid(pid, &status, 0) == pid, "no child");
        check(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the child ended with %d", status);
        usleep(20000);
    }
    wait_for_questions(1);
}

TEST(test_signals_and_children)
{
    comm_watch_ask = give_answer;
    run_ranks(2, takes_a_signal, NULL);
    run_ranks(2, forks, NULL);
    comm_watch_ask = ncclCommGetAsyncError;
}

// ---- The line of an error ----

TEST(test_lines_of_errors)
{
    check_set_silent(true);
    assert_int_equal(check_nccl(ncclInternalError, "call(x)", "file.c", 7), ERR_NCCL);
    assert_true(strncmp(check_last(), "file.c:7: call(x): internal error", 33) == 0);
    assert_int_equal(check_cublas(CUBLAS_STATUS_NOT_INITIALIZED, "call(y)", "file.c", 8),
                     ERR_CUBLAS);
    assert_true(strncmp(check_last(), "file.c:8: call(y): ", 19) == 0);
    assert_non_null(strstr(check_last(), " (CUBLAS_STATUS_NOT_INITIALIZED)"));
    check_set_silent(false);
}

SUITE_MAIN("launch/watch")
