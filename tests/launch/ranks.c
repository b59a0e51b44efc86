/* launch_ranks: how each way to end is told, that limits hold, and that no process is left behind.
 * The rank functions here touch no device.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "launch.h"

// The parent has no child, dead or alive.
static void expect_no_child(void)
{
    int status;

    assert_int_equal(waitpid(-1, &status, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void expect_end(const RankEnd *end, int how, int code)
{
    if ((int)end->how != how || end->code != code)
        fail_msg("a rank ended in way %d with code %d, must be way %d with code %d", (int)end->how,
                 end->code, how, code);
}

static _Noreturn void wait_for_ever(void)
{
    for (;;) pause();
}

// ---- Ends ----

static int note_place(const World *world, void *arg)
{
    World *seen = arg;

    seen[world->rank] = *world;
    return 0;
}

TEST(test_all_return)
{
    for (int size = 1; size <= 8; size++) {
        World *seen = shared_alloc(8 * sizeof *seen);
        RankEnd ends[8];
        assert_int_equal(launch_ranks(size, 20, note_place, seen, ends), OK);
        for (int i = 0; i < size; i++) {
            expect_end(&ends[i], RANK_RETURNED, 0);
            assert_true(ends[i].pid > 0);
            assert_int_equal(seen[i].rank, i);
            assert_int_equal(seen[i].size, size);
            assert_int_equal(seen[i].local_rank, i);
            assert_int_equal(seen[i].local_size, size);
            assert_non_null(seen[i].rendezvous);
        }
        expect_no_child();
    }
}

static int end_in_many_ways(const World *world, void *arg)
{
    switch (world->rank) {
    case 0: return 0;
    case 1: return 7;
    case 2: exit(0);
    case 3: _exit(9);
    case 4: return 256; // an exit status of 0, if nobody looked
    case 5: raise(SIGKILL); break;
    default: signal(SIGSEGV, SIG_DFL); raise(SIGSEGV);
    }
    wait_for_ever();
}

TEST(test_ends_are_told)
{
    RankEnd ends[7];

    assert_int_equal(launch_ranks(7, 20, end_in_many_ways, NULL, ends), ERR_IO);
    expect_end(&ends[0], RANK_RETURNED, 0);
    expect_end(&ends[1], RANK_RETURNED, 7);
    expect_end(&ends[2], RANK_EXITED, 0);
    expect_end(&ends[3], RANK_EXITED, 9);
    expect_end(&ends[4], RANK_RETURNED, 256);
    expect_end(&ends[5], RANK_SIGNALLED, SIGKILL);
    expect_end(&ends[6], RANK_SIGNALLED, SIGSEGV);
    expect_no_child();
}

// How often handlers of exit ran in ranks.
static struct {
    int inherited, own;
} * handlers;
static pid_t suite;

static void note_inherited(void)
{
    if (getpid() != suite) handlers->inherited++;
}

static void note_own(void)
{
    handlers->own++;
}

static int print_and_return(const World *world, void *arg)
{
    if (dup2(*(int *)arg, STDOUT_FILENO) < 0) return 1;
    printf("still in the buffer");
    atexit(note_own);
    return 3;
}

void simgpu_quick_end(void) __attribute__((weak));

TEST(test_a_rank_runs_its_own_handlers)
{
    RankEnd ends[1];
    int text_pipe[2];
    char text[64] = "";

    handlers = shared_alloc(sizeof *handlers);
    suite = getpid();
    atexit(note_inherited);
    assert_int_equal(pipe(text_pipe), 0);
    assert_int_equal(launch_ranks(1, 20, print_and_return, &text_pipe[1], ends), ERR_IO);
    close(text_pipe[1]);
    expect_end(&ends[0], RANK_RETURNED, 3);
    assert_int_equal(handlers->own, 1);
    assert_true(read(text_pipe[0], text, sizeof text - 1) > 0);
    assert_string_equal(text, "still in the buffer");
    close(text_pipe[0]);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (simgpu_quick_end) assert_int_equal(handlers->inherited, 0);
#endif
}

static int return_nothing(const World *world, void *arg)
{
    return 0;
}

TEST(test_bad_sizes)
{
    RankEnd ends[1];

    assert_int_equal(launch_ranks(0, 1, return_nothing, NULL, ends), ERR_ARGUMENT);
    assert_non_null(strstr(check_last(), "a world of 0 ranks"));
    assert_int_equal(launch_ranks(-3, 1, return_nothing, NULL, ends), ERR_ARGUMENT);
    assert_int_equal(launch_ranks(100000, 1, return_nothing, NULL, ends), ERR_ARGUMENT);
}

// ---- Limits ----

static void tell_and_exit(int signal)
{
    _exit(40);
}

// Rank 0 returns; 1 takes SIGTERM as it comes; 2 says something first; 3 does not listen.
static int outstay(const World *world, void *arg)
{
    if (world->rank == 0) return 0;
    if (world->rank == 2) signal(SIGTERM, tell_and_exit);
    if (world->rank == 3) signal(SIGTERM, SIG_IGN);
    wait_for_ever();
}

TEST(test_limit)
{
    RankEnd ends[4];

    assert_int_equal(launch_ranks(4, 0.5, outstay, NULL, ends), ERR_IO);
    expect_end(&ends[0], RANK_RETURNED, 0);
    expect_end(&ends[1], RANK_TIMED_OUT, SIGTERM);
    expect_end(&ends[2], RANK_TIMED_OUT, 40);
    expect_end(&ends[3], RANK_TIMED_OUT, SIGKILL);
    expect_no_child();
}

static int fail_and_leave_waiting(const World *world, void *arg)
{
    if (world->rank == 1) return 3;
    wait_for_ever();
}

// The limit is far away: it is the failure of rank 1 that ends the others.
TEST(test_failure_stops_the_others)
{
    RankEnd ends[3];

    assert_int_equal(launch_ranks(3, 500, fail_and_leave_waiting, NULL, ends), ERR_IO);
    expect_end(&ends[0], RANK_STOPPED, SIGTERM);
    expect_end(&ends[1], RANK_RETURNED, 3);
    expect_end(&ends[2], RANK_STOPPED, SIGTERM);
    expect_no_child();
}

// ---- Grandchildren ----

// Every rank starts a process that would live forever: one rank returns, one crashes, one hangs.
static int leave_a_child(const World *world, void *arg)
{
    pid_t *pids = arg, pid = fork();

    if (pid == 0) {
        signal(SIGTERM, SIG_IGN);
        wait_for_ever();
    }
    pids[world->rank] = pid;
    if (world->rank == 0) return 0;
    if (world->rank == 1) raise(SIGKILL);
    wait_for_ever();
}

TEST(test_grandchildren_end)
{
    pid_t *pids = shared_alloc(3 * sizeof *pids);
    RankEnd ends[3];

    // Orphans come to this process, so that it can see how they ended.
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    assert_int_equal(launch_ranks(3, 1, leave_a_child, pids, ends), ERR_IO);
    for (int i = 0; i < 3; i++) {
        int status;
        assert_true(pids[i] > 0);
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    expect_no_child();
}

// A parent that is killed takes its ranks with it. The parent here is a rank itself.
static int be_a_parent(const World *world, void *arg)
{
    RankEnd ends[2];

    IGNORE_STATUS(launch_ranks(2, 500, leave_a_child, arg, ends));
    return 1;
}

TEST(test_ranks_die_with_the_parent)
{
    pid_t *pids = shared_alloc(4 * sizeof *pids); // rank 0 and 1: they are the "children" of pids[]
    RankEnd ends[1];
    int status;

    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    IGNORE_STATUS(launch_ranks(1, 1, be_a_parent, pids, ends));
    while (waitpid(-1, &status, 0) > 0 || errno == EINTR)
        continue; // ends, or the suite's limit does
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    expect_no_child();
}

// ---- The rendezvous ----

static int meet(const World *world, void *arg)
{
    ncclComm_t comm;
    int rank = -1, count = 0;

    for (int i = 0; i < 3; i++) { // one communicator after another, each with an id of its own
        TRY(world_connect(world, &comm));
        NCCL_TRY(ncclCommUserRank(comm, &rank));
        NCCL_TRY(ncclCommCount(comm, &count));
        if (rank != world->rank || count != world->size) return 50;
        TRY(world_disconnect(comm));
    }
    return 0;
}

TEST(test_ranks_meet)
{
    for (int size = 1; size <= 5 && ranks_fit(size); size++) {
        RankEnd ends[5];
        if (launch_ranks(size, 20, meet, NULL, ends) != OK)
            fail_msg("%d ranks do not meet: rank 0 ended in way %d, code %d", size,
                     (int)ends[0].how, ends[0].code);
    }
}

// Rank 0 leaves without having come to the rendezvous.
static int stand_up(const World *world, void *arg)
{
    ncclComm_t comm;

    if (world->rank == 0) return 0;
    return world_connect(world, &comm) == ERR_NCCL ? 60 : 61;
}

TEST(test_nobody_to_meet)
{
    RankEnd ends[3];

    needs_ranks(3);
    assert_int_equal(launch_ranks(3, 20, stand_up, NULL, ends), ERR_IO);
    expect_end(&ends[0], RANK_RETURNED, 0);
    expect_end(&ends[1], RANK_RETURNED, 60);
    expect_end(&ends[2], RANK_RETURNED, 60);
}

static int fail_at_once(const World *world, void *arg)
{
    return world->rank == 2 ? 1 : 0;
}

static int open_descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        if (fcntl(fd, F_GETFD) >= 0) n++;
    return n;
}

TEST(test_fifty_times)
{
    int before = open_descriptors();

    for (int i = 0; i < 50; i++) {
        RankEnd ends[4];
        IGNORE_STATUS(launch_ranks(4, 20, i % 2 ? fail_at_once : return_nothing, NULL, ends));
        expect_no_child();
    }
    assert_int_equal(open_descriptors(), before);
}

SUITE_MAIN("launch/ranks")
