/* The launcher program, run as its users run it. The ranks it starts are this very program again,
 * with the name of a part to play behind --play; what is asserted is the launcher's exit status,
 * what it says on standard error, and that nothing of the job is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "launch.h"

static char self[4096], launcher[4200];

// ---- The parts ranks play ----

static _Noreturn void wait_for_ever(void)
{
    for (;;) pause();
}

static int number(const char *name)
{
    const char *text = getenv(name);

    return text ? atoi(text) : -1;
}

static int print_place(void)
{
    printf("rank %d of %d, local %d of %d, %s %s %s\n", number("RANK"), number("WORLD_SIZE"),
           number("LOCAL_RANK"), number("LOCAL_WORLD_SIZE"), getenv("MASTER_ADDR"),
           number("MASTER_PORT") > 0 ? "port" : "none",
           strncmp(getenv("NCCL_COMM_ID"), "127.0.0.1:", 10) == 0 ? "id" : "none");
    return 0;
}

// All ranks meet and sum up their numbers.
static int connect_and_sum(void)
{
    World world;
    ncclComm_t comm;
    float *x, sum = 0, mine;

    TRY(world_from_env(&world));
    TRY(world_connect(&world, &comm));
    mine = (float)(world.rank + 1);
    CUDA_TRY(cudaMalloc((void **)&x, sizeof *x));
    CUDA_TRY(cudaMemcpy(x, &mine, sizeof mine, cudaMemcpyHostToDevice));
    NCCL_TRY(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, comm, NULL));
    CUDA_TRY(cudaMemcpy(&sum, x, sizeof sum, cudaMemcpyDeviceToHost));
    CUDA_TRY(cudaFree(x));
    TRY(world_disconnect(comm));
    printf("sum %g\n", (double)sum);
    return 0;
}

// Every rank frees the same thing twice; rank 1 another, where ranks differ.
static int free_twice(bool differ)
{
    World world;
    ncclComm_t comm;
    float *x;

    TRY(world_from_env(&world));
    TRY(world_connect(&world, &comm));
    CUDA_TRY(cudaMalloc((void **)&x, 4 * (size_t)(world.rank + 1)));
    CUDA_TRY(cudaFree(x));
    if (differ && world.rank == 1)
        (void)cudaFree(x);
    else
        (void)cudaFree(x);
    return 0;
}

// Rank 1 ends before it has made a communicator; the others say so. 0: it ends well.
static int leave_early(int status)
{
    if (number("RANK") == 1) return status;
    return connect_and_sum();
}

static void say_signal(int signal)
{
    static const char words[] = "got the signal\n";
    ssize_t ignored = write(STDOUT_FILENO, words, sizeof words - 1);

    (void)ignored;
    _exit(0);
}

static int play(const char *part)
{
    int rank = number("RANK");

    if (strcmp(part, "place") == 0) return print_place();
    if (strcmp(part, "sum") == 0) return connect_and_sum();
    if (strcmp(part, "twice") == 0) return free_twice(false);
    if (strcmp(part, "differ") == 0) return free_twice(true);
    if (strcmp(part, "leave") == 0) return leave_early(0);
    if (strcmp(part, "leave-badly") == 0) return leave_early(5);
    if (strcmp(part, "fail") == 0 && rank == 2) return 7;
    if (strcmp(part, "kill") == 0 && rank == 1) raise(SIGKILL);
    if (strcmp(part, "stubborn") == 0) signal(SIGTERM, SIG_IGN);
    if (strcmp(part, "listen") == 0) {
        signal(SIGTERM, say_signal);
        if (write(STDOUT_FILENO, "ready\n", 6) != 6) return 1;
    }
    wait_for_ever();
}

// ---- Running the launcher ----

typedef struct Run {
    pid_t pid;
    int out, err; // files in memory
    int status;
    char out_text[8192], err_text[8192];
} Run;

static int scratch(void)
{
    char name[] = "/tmp/shardlab-launch-XXXXXX";
    int fd = mkstemp(name);

    assert_true(fd >= 0);
    unlink(name);
    return fd;
}

static void start(Run *run, const char *const *arguments)
{
    run->out = scratch();
    run->err = scratch();
    fflush(NULL);
    run->pid = fork();
    assert_true(run->pid >= 0);
    if (run->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        unsetenv("SIMGPU_THREADS");
        dup2(run->out, STDOUT_FILENO);
        dup2(run->err, STDERR_FILENO);
        execv(launcher, (char *const *)(uintptr_t)arguments);
        _exit(99);
    }
}

static void read_back(int fd, char *text, size_t size)
{
    ssize_t n = pread(fd, text, size - 1, 0);

    text[n > 0 ? n : 0] = '\0';
}

static void finish(Run *run)
{
    int status;

    while (waitpid(run->pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
    run->status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    read_back(run->out, run->out_text, sizeof run->out_text);
    read_back(run->err, run->err_text, sizeof run->err_text);
    close(run->out);
    close(run->err);
}

#define LAUNCH(run, ...) launch_it(run, (const char *const[]){launcher, __VA_ARGS__, NULL})
#define PLAY(run, n, part) LAUNCH(run, "-n", n, self, "--play", part)
static void launch_it(Run *run, const char *const *arguments)
{
    start(run, arguments);
    finish(run);
}

static int count_of(const char *text, const char *words)
{
    int n = 0;

    for (; (text = strstr(text, words)) != NULL; text++) n++;
    return n;
}

static int lines(const char *text)
{
    return count_of(text, "\n");
}

static void expect(const Run *run, int status, const char *line)
{
    if (run->status != status || (line && !strstr(run->err_text, line)))
        fail_msg("status %d and \"%s\"; must be %d and \"%s\"", run->status, run->err_text, status,
                 line ? line : "");
}

// Whatever this process gets as the reaper of orphans has ended, and nothing is alive.
static void expect_nothing_left(void)
{
    int status;

    while (waitpid(-1, &status, 0) > 0) continue;
    assert_int_equal(errno, ECHILD);
}

// ---- Tests ----

TEST(test_places)
{
    static Run run;
    char line[200];

    needs_ranks(3);
    PLAY(&run, "3", "place");
    expect(&run, 0, NULL);
    assert_string_equal(run.err_text, "");
    assert_int_equal(lines(run.out_text), 3);
    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line, "rank %d of 3, local %d of 3, 127.0.0.1 port id\n", i, i);
        assert_non_null(strstr(run.out_text, line));
    }
}

TEST(test_ranks_connect)
{
    static Run run;

    for (int size = 1; size <= 4 && ranks_fit(size); size++) {
        char count[8], line[32];
        snprintf(count, sizeof count, "%d", size);
        snprintf(line, sizeof line, "sum %d\n", size * (size + 1) / 2);
        PLAY(&run, count, "sum");
        expect(&run, 0, NULL);
        assert_int_equal(count_of(run.out_text, line), size);
    }
}

// Two jobs at the same time, neither of which may meet the other's ranks.
TEST(test_two_jobs)
{
    static Run a, b;

    needs_ranks(3);
    start(&a, (const char *const[]){launcher, "-n", "2", self, "--play", "sum", NULL});
    start(&b, (const char *const[]){launcher, "-n", "3", self, "--play", "sum", NULL});
    finish(&a);
    finish(&b);
    expect(&a, 0, NULL);
    expect(&b, 0, NULL);
    assert_string_equal(a.out_text, "sum 3\nsum 3\n");
    assert_string_equal(b.out_text, "sum 6\nsum 6\nsum 6\n");
}

// A report that ranks share is printed once, though their bytes differ; another rank's is its own.
TEST(test_reports_that_ranks_share)
{
#if defined(BACKEND_CUDA) && !defined(EMULATED_CUDA)
    skip(); // NVIDIA's libraries report nothing
#endif
    static const char title[] = "device memory was freed twice [lifetime]\n";
    static Run run;

    needs_ranks(4);
    unsetenv("SIMGPU_REPORTS");
    PLAY(&run, "4", "twice");
    expect(&run, 0,
           "simgpu: ranks 0 to 3 made this report, printed once: device memory was freed "
           "twice (SIMGPU_REPORTS=all prints each)\n");
    assert_int_equal(count_of(run.err_text, title), 1);
#ifndef BACKEND_CUDA // all calls of the interposer come from one line: no report differs
    PLAY(&run, "4", "differ");
    expect(&run, 0, "simgpu: ranks 0, 2 and 3 made this report, printed once: device memory was ");
    assert_int_equal(count_of(run.err_text, title), 2);
    assert_int_equal(count_of(run.err_text, "printed once"), 1);
#endif
    PLAY(&run, "1", "twice");
    expect(&run, 0, title);
    assert_null(strstr(run.err_text, "printed once"));
    setenv("SIMGPU_REPORTS", "all", 1);
    PLAY(&run, "4", "twice");
    unsetenv("SIMGPU_REPORTS");
    assert_int_equal(count_of(run.err_text, title), 4);
    assert_null(strstr(run.err_text, "printed once"));
}

TEST(test_failing_rank)
{
    static Run run;

    needs_ranks(3);
    PLAY(&run, "3", "fail");
    expect(&run, 7, "launch: rank 2 ended with status 7\n");
    assert_int_equal(lines(run.err_text), 1);
    PLAY(&run, "2", "kill");
    expect(&run, 128 + SIGKILL, "launch: rank 1 was killed by signal 9 (Killed)\n");
    assert_int_equal(lines(run.err_text), 1);
    expect_nothing_left();
}

// A rank that ends before it makes a communicator: the others are told how, though they had no part
// of it; also where what is launched is a shell that starts the program.
TEST(test_leaving_early)
{
    static Run run;
    static char script[4200];

    needs_ranks(3);
    PLAY(&run, "3", "leave");
    expect(&run, 86, "Rank 1 of the launcher's world (process ");
    expect(&run, 86, "exited with status 0\n");
    PLAY(&run, "3", "leave-badly");
    assert_int_not_equal(run.status, 0); // rank 1's, or that of another where both have ended
    expect(&run, run.status, "Rank 1 of the launcher's world (process ");
    expect(&run, run.status, "exited with status 5\n");
    snprintf(script, sizeof script, "'%s' --play leave; exit $?", self);
    LAUNCH(&run, "-n", "3", "sh", "-c", script);
    expect(&run, 86, "exited with status 0\n");
    expect_nothing_left();
}

TEST(test_limit)
{
    static Run run;

    needs_ranks(2);
    LAUNCH(&run, "-n", "2", "--limit", "0.4", self, "--play", "stubborn");
    expect(&run, 124, "launch: the limit of 0.4 s is over and rank 0 was still running\n");
    expect_nothing_left();
}

static void wait_for_text(int fd, const char *text, int times)
{
    const struct timespec moment = {.tv_nsec = 20 * 1000 * 1000};
    char seen[4096];

    for (;;) {
        read_back(fd, seen, sizeof seen);
        if (count_of(seen, text) >= times) return;
        nanosleep(&moment, NULL); // the suite's own limit ends a wait in vain
    }
}

TEST(test_signals_go_on)
{
    static Run run;

    needs_ranks(2);
    start(&run, (const char *const[]){launcher, "-n", "2", self, "--play", "listen", NULL});
    wait_for_text(run.out, "ready\n", 2);
    kill(run.pid, SIGTERM);
    finish(&run);
    expect(&run, 0, NULL);
    assert_int_equal(lines(run.out_text), 4);
    assert_non_null(strstr(run.out_text, "got the signal\ngot the signal\n"));
}

TEST(test_killed_launcher_takes_its_ranks)
{
    static Run run;

    needs_ranks(2);
    start(&run, (const char *const[]){launcher, "-n", "2", self, "--play", "listen", NULL});
    wait_for_text(run.out, "ready\n", 2);
    kill(run.pid, SIGKILL);
    finish(&run);
    assert_int_equal(run.status, -SIGKILL);
    expect_nothing_left();
}

TEST(test_bad_use)
{
    static Run run;
    static const struct {
        const char *arguments[6], *line;
    } rows[] = {
        {{"-n", "0", "true"}, "launch: -n 0: must be a number of ranks"},
        {{"-n", "-2", "true"}, "launch: -n -2: must be a number of ranks"},
        {{"-n", "4x", "true"}, "launch: -n 4x: must be a number of ranks"},
        {{"-n", ""}, "launch: -n : must be a number of ranks"},
        {{"-n"}, "launch: -n needs a number after it"},
        {{"-n", "2"}, "launch: the program is missing"},
        {{"true"}, "launch: -n RANKS is missing"},
        {{"-n", "2", "--limit", "never", "true"},
         "launch: --limit never: must be a number of seconds"},
        {{"-n", "2", "--limit", "-1", "true"}, "launch: --limit -1: must be a number of seconds"},
        {{"-x", "2", "true"}, "launch: no option -x"},
        {{"-n", "2", "/no/such/program"}, "launch: cannot run /no/such/program: No such file"},
        {{"-n", "2", "no-such-program"}, "launch: no program no-such-program in PATH"},
        {{"-n", "2", "/etc/passwd"},
         "launch: cannot run /etc/passwd: it is not an executable file"},
        {{"-n", "2", "/usr"}, "launch: cannot run /usr: it is not an executable file"},
    };

    needs_ranks(2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *const *a = rows[i].arguments;
        LAUNCH(&run, a[0], a[1], a[2], a[3], a[4], a[5]);
        expect(&run, 2, rows[i].line);
        assert_int_equal(lines(run.err_text), 1);
        assert_string_equal(run.out_text, "");
    }
}

TEST(test_more_ranks_than_devices)
{
    static Run run;

#if defined(BACKEND_CUDA) && !defined(EMULATED_CUDA)
    skip(); // GPUs are as many as there are
#endif
    setenv("SIMGPU_DEVICES", "3", 1);
    PLAY(&run, "4", "place");
    expect(&run, 2,
           "launch: -n 4, but there are 3 devices: start fewer ranks, or set SHARE_GPU=1 to let "
           "ranks share (slow: for checking only), or with simgpu SIMGPU_DEVICES=4\n");
    // simgpu has no such number of devices, and a list of visible ones is not made longer by it.
    PLAY(&run, "257", "place");
    expect(&run, 2,
           "launch: -n 257, but there are 3 devices: start fewer ranks, or set SHARE_GPU=1 to let "
           "ranks share (slow: for checking only)\n");
    setenv("CUDA_VISIBLE_DEVICES", "0,2", 1);
    PLAY(&run, "3", "place");
    expect(&run, 2,
           "launch: -n 3, but there are 2 devices: start fewer ranks, or set SHARE_GPU=1 to let "
           "ranks share (slow: for checking only)\n");
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    PLAY(&run, "1", "place");
    expect(&run, 2, "launch: no device can be used: no CUDA-capable device is detected\n");
    unsetenv("CUDA_VISIBLE_DEVICES");
    PLAY(&run, "3", "place");
    expect(&run, 0, NULL);
    // The option stands before or behind the others.
    LAUNCH(&run, "--share-gpu", "-n", "4", self, "--play", "sum");
    expect(&run, 0, "SHARE_GPU=1: 4 ranks share 3 devices: for checking correctness, slow by ");
    assert_string_equal(run.out_text, "sum 10\nsum 10\nsum 10\nsum 10\n");
    assert_int_equal(lines(run.err_text), 1);
    LAUNCH(&run, "-n", "3", "--share-gpu", self, "--play", "sum");
    expect(&run, 0, NULL);
    assert_string_equal(run.err_text, ""); // nobody shares
    setenv("SHARE_GPU", "perhaps", 1);
    PLAY(&run, "2", "sum");
    expect(&run, 2, "SHARE_GPU is \"perhaps\": must be 0 or 1\n");
    assert_int_equal(lines(run.err_text), 1);
    unsetenv("SHARE_GPU");
    unsetenv("SIMGPU_DEVICES");
}

// More ranks than descriptors: one line, and nothing is started.
TEST(test_few_files)
{
    static Run run;
    struct rlimit before, few;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 200;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    PLAY(&run, "256", "place");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    expect(&run, 2,
           "launch: 256 ranks may need 288 open files each, and ulimit -n is 200: raise it with "
           "ulimit -n 288, or start fewer ranks\n");
    assert_int_equal(lines(run.err_text), 1);
}

// build/tests/launch/program knows build/bin/launch.
static bool find_programs(void)
{
    char folder[sizeof self];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (n < 0) return false;
    self[n] = '\0';
    strcpy(folder, self);
    snprintf(launcher, sizeof launcher, "%s/bin/launch", dirname(dirname(dirname(folder))));
    return access(launcher, X_OK) == 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--play") == 0) return play(argv[2]);
    if (!find_programs()) {
        fprintf(stderr, "no launcher at %s: make %s first\n", launcher, "build/bin/launch");
        return 2;
    }
    unsetenv("SHARE_GPU"); // each job here has a device for each of its ranks
    // The launcher's orphans come here, where the tests see that they have ended.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return suite_main(argc, argv, "launch/program");
}
