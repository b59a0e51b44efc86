/* What the harness says of each way in which a rank can fail: the right sentence, about the right
 * rank, with the right place. Every case runs a body that goes wrong on purpose.
 *
 * A body that goes wrong notes its line, so that the expected place is exact.
 */
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend.h"
#include "fsdp.h"
#include "harness.h"
#include "host_memory.h"

// The line on which a body goes wrong, in memory that the parent sees too.
static int *bad_line;
#define HERE (*bad_line = __LINE__)

static int share_line(void **state)
{
    if (!bad_line) bad_line = shared_alloc(sizeof *bad_line);
    *bad_line = 0;
    return 0;
}

// Runs the body and wants a message that has all the parts; each "@" in a part stands for the line.
static void expect_at(int test_line, int world, double limit, RankBody body,
                      const char *const *parts)
{
    char *message =
        run_ranks_message_at("tests/harness/failures.c", test_line, world, limit, body, NULL);

    for (; *parts && world <= backend_max_world(); parts++) {
        char part[400], *at;
        snprintf(part, sizeof part, "%s", *parts);
        if ((at = strchr(part, '@'))) {
            char tail[400];
            snprintf(tail, sizeof tail, "%s", at + 1);
            snprintf(at, sizeof part - (size_t)(at - part), "%d%s", *bad_line, tail);
        }
        if (!message || !strstr(message, part))
            fail_msg("the harness said:\n%s\nmust have: %s", message ? message : "nothing", part);
    }
    free(message);
}
#define EXPECT(world, limit, body, ...)                                                            \
    expect_at(__LINE__, world, limit, body, (const char *const[]){__VA_ARGS__, NULL})

// ---- Nothing wrong ----

static void body_right(const Rank *rank, void *arg)
{
    int device = -1;
    float *x, host[5] = {1, 2, 3, 4, 5}, *back, sum[5];

    need_cuda(cudaGetDevice(&device));
    check(device == rank->device, "rank %d has device %d, not %d", rank->rank, device,
          rank->device);
    need_cuda(cudaMalloc((void **)&x, sizeof host));
    send_to(x, host, 5);
    need_nccl(ncclAllReduce(x, x, 5, ncclFloat, ncclSum, rank->comm, rank->stream));
    back = fetch(x, 5);
    for (int i = 0; i < 5; i++) sum[i] = (float)((i + 1) * rank->world);
    check_equal("the sum", back, sum, 5);
    free(back);
    need_cuda(cudaFree(x));
}

TEST_BETWEEN(test_nothing_wrong, share_line, NULL)
{
    for (int world = 1; world <= 8; world++) {
        char *message = run_ranks_message(world, 20, body_right, NULL);
        if (message) fail_msg("a right body on %d ranks gave: %s", world, message);
    }
}

// ---- Checks ----

// Returns when every rank has come.
static void meet_all(const Rank *rank)
{
    float *x;

    need_cuda(cudaMalloc((void **)&x, 4));
    need_cuda(cudaMemsetAsync(x, 0, 4, rank->stream));
    need_nccl(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, rank->comm, rank->stream));
}

static void body_check(const Rank *rank, void *arg)
{
    // The others wait for rank 1, who never comes; what they then say is not what went wrong.
    if (rank->rank == 1) HERE, rank_fails(__FILE__, __LINE__, "%d apples, must be %d", 3, 4);
    meet_all(rank);
}

static void body_equal(const Rank *rank, void *arg)
{
    float got[4] = {1, -0.0f, 3, NAN}, want[4] = {1, 0.0f, 3.5f, NAN};

    HERE, check_equal("the bias", got, want, 2);
    HERE, check_equal("the bias", got, want, 4);
}

static void body_near(const Rank *rank, void *arg)
{
    float got[3] = {1.25f, 2, 3}, want[3] = {1, 2, 4};

    check_near("the loss", got, want, 3, 1.0);
    HERE, check_near("the loss", got, want, 3, 0.25);
}

static void body_near_nan(const Rank *rank, void *arg)
{
    float got[2] = {1, NAN}, want[2] = {1, NAN};

    check_near("the loss", got, want, 2, 1e30);
}

TEST_BETWEEN(test_checks, share_line, NULL)
{
    EXPECT(3, 20, body_check, "rank 1 of 3: 3 apples, must be 4 (tests/harness/failures.c:@)");
}

// Rank 1's shard of the 11 elements of p0 and p1, which two ranks pad to 12: never divided.
static void body_cause(const Rank *rank, void *arg)
{
    Param p0 = {.name = "h.0.bias", .ndim = 1, .shape = {7}};
    Param p1 = {.name = "h.0.weight", .ndim = 2, .shape = {2, 2}};
    Param *params[] = {&p0, &p1};
    float got[6] = {2, 4, 6, 8, 0, 0}, want[6] = {1, 2, 3, 4, 0, 0};
    Layout layout;
    Clues clues = {.layout = &layout, .world = 2, .average = true};

    layout_params(&layout, params, 2, 2, 1);
    if (rank->rank == 1) HERE, check_equal_in(&clues, "the gradient shard", got, want, 6);
    got[0] = 5;
    if (rank->rank == 0) check_near("the sum", got, want, 1, 5.0);
    meet_all(rank);
}

static void body_no_cause(const Rank *rank, void *arg)
{
    float got[6] = {2, 4, 6, 9, 1, 7}, want[6] = {1, 2, 3, 4, 0, 0};

    HERE, check_near("the gradient", got, want, 6, 0.5);
}

TEST_BETWEEN(test_causes, share_line, NULL)
{
    EXPECT(2, 20, body_cause,
           "rank 1 of 2: the gradient shard: element 0 of rank 1's shard (element 6 of the flat "
           "parameter: h.0.bias[6]) is 2, must be 1; 4 of 6 differ (tests/harness/failures.c:@)\n"
           "Likely cause: every element is 2 times what it must be, and there are 2 ranks: ");
    char *message = run_ranks_message(1, 20, body_no_cause, NULL);
    assert_non_null(message);
    assert_null(strstr(message, "Likely"));
    free(message);
}

TEST_BETWEEN(test_comparisons, share_line, NULL)
{
    EXPECT(1, 20, body_equal,
           "rank 0 of 1: the bias: element 2 is 3, must be 3.5; 2 of 4 differ "
           "(tests/harness/failures.c:@)");
    EXPECT(1, 20, body_near,
           "rank 0 of 1: the loss: element 2 is 3, must be within 0.25 of 4; 1 of 3 are not");
    EXPECT(1, 20, body_near_nan, "element 1 is nan, must be a number; 1 of 2 are not");
}

// ---- Errors that travel ----

static int fail_line;

static Status inner(void)
{
    fail_line = __LINE__ + 1;
    return fail(ERR_ARGUMENT, "the shard has %d elements", -1);
}

static Status outer(void)
{
    TRY(inner());
    return OK;
}

static void body_need(const Rank *rank, void *arg)
{
    *bad_line = 0;
    Status status = outer();
    *bad_line = fail_line;
    check(status == ERR_ARGUMENT, "the status is %d", (int)status);
    need(outer());
}

static Status allocate_too_much(void)
{
    void *p;

    HERE, (void)0;
    CUDA_TRY(cudaMalloc(&p, (size_t)1 << 50));
    return OK;
}

static void body_need_cuda_error(const Rank *rank, void *arg)
{
    need(allocate_too_much());
}

TEST_BETWEEN(test_errors_travel, share_line, NULL)
{
    // The innermost line, not that of the caller.
    EXPECT(2, 20, body_need,
           "outer() failed (tests/harness/failures.c:@: the shard has -1 elements) "
           "(tests/harness/failures.c:");
    EXPECT(1, 20, body_need_cuda_error,
           "rank 0 of 1: allocate_too_much() failed (tests/harness/failures.c:",
           "cudaMalloc(&p, (size_t)1 << 50): out of memory (cudaErrorMemoryAllocation))");
}

// ---- Calls that must be refused ----

static Status refuse_silently(void)
{
    return ERR_ARGUMENT;
}

static Status refuse_twice(void)
{
    return outer() == OK ? OK : fail(ERR_ARGUMENT, "so it has -1 elements");
}

static Status take(void)
{
    return OK;
}

static const struct Refusal {
    Status (*call)(void);
    const char *words, *wrong; // what its line must have, and what is wrong with it
} REFUSALS[] = {
    {refuse_silently, "-1 elements", "(): ERR_ARGUMENT, and no line"},
    {refuse_twice, "-1 elements", "(): 2 lines for one failure, the last of them \""},
    {take, "-1 elements", "(): status 0 and \"\" (OK), want ERR_ARGUMENT and a line with: -1"},
    {take, "", "(OK), want ERR_ARGUMENT"},
    {take, "-1 elements", "Likely cause: a check is missing, or a call that fails here"},
    {allocate_too_much, "of memory", "of memory (cudaErrorMemoryAllocation)\" (ERR_MEMORY), want"},
    {inner, "-2 elements",
     "has -1 elements\" (ERR_ARGUMENT), want ERR_ARGUMENT and a line with: -2 elements"},
};

static void body_refused(const Rank *rank, void *arg)
{
    const struct Refusal *refusal = arg;
    need_refused(inner(), "-1 elements"); // and its line is not that of a later call
    need_refused(outer(), "-1 elements");
    need_failure(allocate_too_much(), ERR_MEMORY, "out of memory");
    need_refused(refusal->call(), refusal->words);
}

TEST_BETWEEN(test_refusals, share_line, NULL)
{
    for (size_t i = 0; i < sizeof REFUSALS / sizeof *REFUSALS; i++) {
        char *message = run_ranks_message(1, 20, body_refused, (void *)&REFUSALS[i]);
        expect_words(message, REFUSALS[i].wrong);
        if (REFUSALS[i].words[0] == '\0') expect_no_words(message, "a line with");
        free(message);
    }
}

// ---- Reports of simgpu, which alone explains a misuse ----

#ifndef BACKEND_CUDA
static void body_double_free(const Rank *rank, void *arg)
{
    void *p;

    need_cuda(cudaMalloc(&p, 40));
    need_cuda(cudaFree(p));
    HERE, cudaFree(p);
    cudaGetLastError();
}

static void body_device_pointer(const Rank *rank, void *arg)
{
    float *p;

    need_cuda(cudaMalloc((void **)&p, 40));
    HERE, p[1] = 1;
}

TEST_BETWEEN(test_reports, share_line, NULL)
{
    // A report fails the test although the body went on as if nothing had been.
    EXPECT(1, 20, body_double_free, "rank 0 of 1: simgpu: rank 0, device 0: ", "freed twice",
           "harness/failures.c:@ (body_double_free)", "(tests/harness/failures.c:");
    EXPECT(1, 20, body_device_pointer, "rank 0 of 1: simgpu: rank 0, device 0: host code touches",
           "harness/failures.c:@ (body_device_pointer)");
}
#endif

// ---- Crashes ----

static volatile int zero; // not known to the compiler
static atomic_int never;

static __attribute__((noinline)) void crash_here(volatile int *p)
{
    HERE, *p = 1;
    zero = 0;
}

static void body_segv(const Rank *rank, void *arg)
{
    if (rank->rank == 1) crash_here((volatile int *)(uintptr_t)(16 + zero));
    while (!zero) pause();
}

// On purpose, and none of UBSan's business.
__attribute__((no_sanitize("undefined"))) static void body_divide(const Rank *rank, void *arg)
{
    HERE, zero = 7 / zero;
}

// Deep enough for any stack; the volatile array keeps the frames large and alive.
static __attribute__((noinline)) int recurse(int depth)
{
    volatile char room[4096];

    room[0] = (char)depth;
    return depth < 0 ? 0 : recurse(depth + 1) + room[0];
}

static void body_overflow(const Rank *rank, void *arg)
{
    zero = recurse(zero);
}

static void body_abort(const Rank *rank, void *arg)
{
    fprintf(stderr, "some words\nfree(): the heap is broken\n");
    HERE, abort();
}

// A pointer in memory that is freed.
__attribute__((no_sanitize("undefined"))) static void body_freed(const Rank *rank, void *arg)
{
    volatile int **volatile block = malloc(64 * sizeof *block), **volatile kept = block;
    host_fill(true);
    free(block);
    HERE, *kept[32] = 1;
}

TEST_BETWEEN(test_crashes, share_line, NULL)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
    EXPECT(1, 20, body_freed, "at harness/failures.c:@ (body_freed)",
           "Likely cause: a value was read from host memory that is freed");
#endif
    EXPECT(3, 20, body_segv,
           "rank 1 of 3: crashed (segmentation fault, address 0x10) at harness/failures.c:@ "
           "(crash_here) (tests/harness/failures.c:");
    EXPECT(1, 20, body_overflow, "rank 0 of 1: crashed (segmentation fault, address 0x",
           "(recurse)");
    EXPECT(1, 20, body_abort,
           "rank 0 of 1: crashed (abort) at harness/failures.c:@ (body_abort); its last words: "
           "free(): the heap is broken");
#if defined(__x86_64__) // a division by zero is no fault on other machines
    EXPECT(1, 20, body_divide,
           "rank 0 of 1: crashed (integer division by zero) at harness/failures.c:@ (body_divide)");
#endif
}

// ---- Ends that nobody asked for ----

static void body_exit(const Rank *rank, void *arg)
{
    if (rank->rank == 2) HERE, exit(0);
    meet_all(rank);
}

static void body_quick_exit(const Rank *rank, void *arg)
{
    if (rank->rank == 2) _exit(0);
    meet_all(rank);
}

static void body_killed(const Rank *rank, void *arg)
{
    if (rank->rank == 0) raise(SIGKILL);
    meet_all(rank);
}

TEST_BETWEEN(test_early_ends, share_line, NULL)
{
    EXPECT(3, 20, body_exit,
           "rank 2 of 3: called exit(0) at harness/failures.c:@ (body_exit): a function of a task "
           "must return to its caller (tests/harness/failures.c:");
    EXPECT(3, 20, body_quick_exit, "rank 2 of 3: ended with status 0, by _exit() or the like");
    EXPECT(3, 20, body_killed, "rank 0 of 3: was killed by signal 9 (Killed)");
}

static void body_not_yet(const Rank *rank, void *arg)
{
    check_not_yet("2.1", "skeleton/flat_param.c", 41, "flat_layout");
}

TEST_BETWEEN(test_not_yet, share_line, NULL)
{
    needs_ranks(3);
    char *message = run_ranks_message(3, 20, body_not_yet, NULL);

    assert_non_null(message);
    assert_string_equal(
        message, "skeleton/flat_param.c:41: part 2.1 of flat_layout is not written yet (NOT_YET)");
    free(message);
}

// ---- Limits ----

static __attribute__((noinline)) void loop_for_ever(void)
{
    HERE, (void)0;
    // Atomic: in a loop of nothing else, ThreadSanitizer would keep the signal for itself forever.
    while (!atomic_load(&never)) continue;
}

static void body_loop(const Rank *rank, void *arg)
{
    if (rank->rank == 0) loop_for_ever();
    meet_all(rank);
}

static void body_deaf(const Rank *rank, void *arg)
{
    signal(SIGTERM, SIG_IGN);
    while (!zero) pause();
}

// "the test's limit of 3 s is over", for a limit of so many seconds on simgpu.
static const char *over(double limit, int world)
{
    static char text[2][80];
    static int which;

    which = !which;
    snprintf(text[which], sizeof text[which], "the test's limit of %g s is over",
             limit * backend_time_factor(world));
    return text[which];
}

TEST_BETWEEN(test_limits, share_line, NULL)
{
    setenv("SHARDLAB_TIME_FACTOR", "1", 1); // the messages below have limits in them
    EXPECT(2, 1, body_loop, over(1, 2),
           ": rank 0 was still running at harness/failures.c:", "(loop_for_ever); it ",
           "\nrank 1 was waiting in ", "(meet_all)", "(tests/harness/failures.c:");
    EXPECT(1, 0.5, body_deaf, over(0.5, 1), ": rank 0 did not answer when asked where it is");
}

static void body_sleep(const Rank *rank, void *arg)
{
    double seconds = *(const double *)arg;

    nanosleep(&(struct timespec){.tv_sec = (time_t)seconds,
                                 .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)},
              NULL);
}

// The factor stretches a limit for slow machines.
TEST_BETWEEN(test_time_factor, share_line, NULL)
{
    setenv("SHARDLAB_TIME_FACTOR", "100", 1);
    char *message = run_ranks_message(1, 0.2, body_sleep, &(double){0.5});
    if (message) fail_msg("with SHARDLAB_TIME_FACTOR=100: %s", message);
    setenv("SHARDLAB_TIME_FACTOR", "0.5", 1);
    message = run_ranks_message(1, 0.6, body_deaf, NULL);
    assert_non_null(message);
    assert_non_null(strstr(message, over(0.3, 1)));
    free(message);
    unsetenv("SHARDLAB_TIME_FACTOR");
}

// With SHARDLAB_LIMIT a test has its time for all of its runs together, whatever each may take.
TEST_BETWEEN(test_limit_of_a_whole_test, share_line, NULL)
{
    setenv("SHARDLAB_LIMIT", "2.5", 1);
    char *first = run_ranks_message(1, 0.01, body_sleep, &(double){0.6});
    char *second = run_ranks_message(1, 100, body_sleep, &(double){2.3});
    unsetenv("SHARDLAB_LIMIT");
    if (first) fail_msg("0.6 of 2.5 s: %s", first);
    assert_non_null(second);
    assert_non_null(strstr(second, "the test's limit of 2.5 s is over"));
    free(second);
}

// ---- What a rank leaves to its parent ----

static void body_noise(const Rank *rank, void *arg)
{
    for (int i = 0; i < 100000; i++) fprintf(stderr, "line %d of far too many\n", i);
    check(false, "after the noise");
}

TEST_BETWEEN(test_noise_is_no_hang, share_line, NULL)
{
    EXPECT(2, 20, body_noise, "after the noise");
}

static void body_share(const Rank *rank, void *arg)
{
    ((float *)arg)[rank->rank] = (float)(rank->rank + 1);
}

TEST_BETWEEN(test_shared_memory, share_line, NULL)
{
    needs_ranks(4);
    float *values = shared_alloc(4 * sizeof *values);

    assert_true(values[3] == 0);
    run_ranks(4, body_share, values);
    for (int i = 0; i < 4; i++) assert_true(values[i] == (float)(i + 1));
}

TEST_BETWEEN(test_bad_world, share_line, NULL)
{
    char *message = run_ranks_message(0, 20, body_share, NULL);

    assert_non_null(message);
    assert_non_null(strstr(message, "a test asked for 0 ranks"));
    free(message);
}

SUITE_MAIN("harness/failures")
