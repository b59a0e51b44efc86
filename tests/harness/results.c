/* suite_main seen from outside: --list, --only, the exit status, and the lines of results that the
 * grader reads. The suite looked at is in this very program, behind --inner; it is run as a program
 * of its own with a pipe for its results.
 */
#define _GNU_SOURCE // memmem
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend.h"
#include "fsdp.h"
#include "harness.h"

// ---- The inner suite ----

static void body_right(const Rank *rank, void *arg)
{
    fprintf(stderr, "words of a rank that is right\n");
    check(rank->world == 2, "the world has %d ranks", rank->world);
}

static void body_wrong(const Rank *rank, void *arg)
{
    fprintf(stderr, "words of rank %d\n", rank->rank);
    check(rank->rank != 1, "a \"quote\", a \\, a\ttab and\nhalf a character \xc3");
}

static void body_slow(const Rank *rank, void *arg)
{
    for (;;) pause();
}

// What hostile code would try: to find the nonce, and to write a line of its own.
static void body_forger(const Rank *rank, void *arg)
{
    char environment[65536], path[64];
    int fd = open("/proc/self/environ", O_RDONLY);
    ssize_t n = read(fd, environment, sizeof environment);

    close(fd);
    check(n > 0, "no /proc/self/environ");
    check(!memmem(environment, (size_t)n, "sesame", 6), "the nonce is in /proc/self/environ");
    check(!getenv("SHARDLAB_NONCE") && !getenv("SHARDLAB_RESULTS_FD"), "the variables are there");
    const char *pipe_inode = getenv("INNER_PIPE");
    for (fd = 3; fd < 1024 && pipe_inode; fd++) {
        struct stat info;
        if (fstat(fd, &info) != 0) continue;
        check(info.st_ino != strtoul(pipe_inode, NULL, 10), "descriptor %d is for the results", fd);
    }
    if (!pipe_inode || geteuid() == 0) return; // nothing to hide; root may open everything
    snprintf(path, sizeof path, "/proc/%d/fd", (int)getppid());
    check(access(path, R_OK) != 0, "the parent's descriptors can be opened");
}

static void inner_right(void **state)
{
    run_ranks(2, body_right, NULL);
}
static void inner_wrong(void **state)
{
    run_ranks(2, body_wrong, NULL);
}
static void inner_slow(void **state)
{
    run_ranks_limit(2, 0.3, body_slow, NULL);
}
static void inner_forger(void **state)
{
    run_ranks(2, body_forger, NULL);
}
static void inner_assertion(void **state)
{
    assert_int_equal(3, 4);
}
static void inner_harness(void **state)
{
    run_ranks(-1, body_right, NULL);
}
static void rule_two_are_right(RankBody body)
{
    run_ranks(2, body, NULL);
}

static void rule_three_is_four(void)
{
    fail_msg("3 != 4");
}

static void inner_rule(void **state)
{
    RULE(two_are_right, body_right);
    RULE(two_are_right, body_wrong);
}
static void inner_rule_of_its_own(void **state)
{
    RULE(two_are_right, body_right);
    RULE(three_is_four);
}
static void inner_behind_a_rule(void **state)
{
    RULE(two_are_right, body_right);
    run_ranks(2, body_wrong, NULL);
}
static void inner_skipped(void **state)
{
    skip();
}

// On whatever machine, a world that is too large for it.
static void inner_left_out(void **state)
{
    if (ranks_fit(backend_max_world() + 1)) abort();
}
static void inner_one_fits(void **state)
{
    RULE(two_are_right, body_right);
    if (ranks_fit(backend_max_world() + 1)) abort();
}

static int bad_teardown(void **state)
{
    return -1;
}

static int set_state(void **state)
{
    static char word[] = "a state";

    *state = word;
    return 0;
}

static void inner_state(void **state)
{
    assert_string_equal(*state, "a state");
}

static const struct CMUnitTest inner[] = {
    cmocka_unit_test(inner_right),
    cmocka_unit_test(inner_wrong),
    cmocka_unit_test(inner_slow),
    cmocka_unit_test(inner_forger),
    cmocka_unit_test(inner_assertion),
    cmocka_unit_test(inner_harness),
    cmocka_unit_test(inner_rule),
    cmocka_unit_test(inner_rule_of_its_own),
    cmocka_unit_test(inner_behind_a_rule),
    cmocka_unit_test(inner_skipped),
    cmocka_unit_test(inner_left_out),
    cmocka_unit_test(inner_one_fits),
    cmocka_unit_test_setup(inner_state, set_state),
    cmocka_unit_test_teardown(inner_right, bad_teardown),
};
#define INNER (sizeof inner / sizeof inner[0])

// ---- Running it ----

typedef struct Outcome {
    int status;
    char results[32768], out[32768], err[32768];
} Outcome;

static int scratch(void)
{
    char name[] = "/tmp/shardlab-results-XXXXXX";
    int fd = mkstemp(name);

    assert_true(fd >= 0);
    unlink(name);
    return fd;
}

static void read_back(int fd, char *text, size_t size)
{
    ssize_t n = pread(fd, text, size - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    close(fd);
}

// Runs the inner suite with up to four arguments (NULL: no more). The results go through a pipe, as
// the grader's do.
static void run_inner(Outcome *outcome, bool with_results, const char *const *arguments)
{
    int out = scratch(), err = scratch(), results[2], status;
    char number[16], inode[24];
    struct stat info;
    size_t length = 0;
    ssize_t n;

    assert_int_equal(pipe(results), 0);
    snprintf(number, sizeof number, "%d", results[1]);
    assert_int_equal(fstat(results[1], &info), 0);
    snprintf(inode, sizeof inode, "%lu", (unsigned long)info.st_ino);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char *argv[8] = {"results", "--inner"};
        for (int i = 0; arguments[i]; i++) argv[i + 2] = (char *)(uintptr_t)arguments[i];
        if (with_results) {
            setenv("SHARDLAB_RESULTS_FD", number, 1);
            setenv("SHARDLAB_NONCE", "sesame", 1);
            setenv("INNER_PIPE", inode, 1);
        } else {
            close(results[1]);
        }
        setenv("SHARDLAB_TIME_FACTOR", "1", 1); // a message has a limit in it
        close(results[0]);
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        close(out);
        close(err);
        alarm(60);
        execv("/proc/self/exe", argv);
        _exit(99);
    }
    close(results[1]);
    while (length < sizeof outcome->results - 1 &&
           (n = read(results[0], outcome->results + length, sizeof outcome->results - 1 - length)) >
               0)
        length += (size_t)n;
    outcome->results[length] = '\0';
    close(results[0]);
    while (waitpid(pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
    outcome->status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    read_back(out, outcome->out, sizeof outcome->out);
    read_back(err, outcome->err, sizeof outcome->err);
}
#define RUN_INNER(outcome, with_results, ...)                                                      \
    run_inner(outcome, with_results, (const char *const[]){__VA_ARGS__, NULL})

// Line number `which` of the results, from 0.
static const char *line_of(const char *text, int which)
{
    static char line[8192];

    while (which-- > 0 && text) {
        text = strchr(text, '\n');
        if (text) text++;
    }
    if (!text) return "";
    snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
    return line;
}

// ---- Tests ----

TEST(test_list)
{
    static Outcome o;

    RUN_INNER(&o, true, "--list");
    assert_int_equal(o.status, 0);
    assert_string_equal(o.results, "");
    assert_string_equal(o.out,
                        "inner_right\ninner_wrong\ninner_slow\ninner_forger\ninner_assertion\n"
                        "inner_harness\ninner_rule\ninner_rule_of_its_own\n"
                        "inner_behind_a_rule\ninner_skipped\n"
                        "inner_left_out\ninner_one_fits\ninner_state\ninner_right\n");
}

TEST(test_only)
{
    static Outcome o;

    RUN_INNER(&o, false, "--only", "inner_state", "--only", "inner_forger");
    assert_int_equal(o.status, 0);
    expect_words(o.out, "Running 2 test(s).\n[ RUN      ] inner_state\n");
    expect_words(o.out, "[       OK ] inner_state\n[ RUN      ] inner_forger\n");
    expect_words(o.err, "[  PASSED  ] 2 test(s).");
}

TEST(test_bad_arguments)
{
    static Outcome o;

    RUN_INNER(&o, true, "--only", "inner_nothing");
    assert_int_equal(o.status, 2);
    assert_string_equal(o.results, "");
    expect_words(o.err, "no test is called inner_nothing");
    RUN_INNER(&o, true, "--only");
    assert_int_equal(o.status, 2);
    expect_words(o.err, "usage: ");
}

TEST(test_all_results)
{
    static Outcome o;
    char slow[200];
    snprintf(slow, sizeof slow,
             "{\"nonce\": \"sesame\", \"test\": \"inner_slow\", \"status\": \"timeout\", "
             "\"message\": \"the test's limit of %g s is over: rank 0 was still running at ",
             0.3 * backend_time_factor(2));
    const char *const heads[] = {
        "{\"nonce\": \"sesame\", \"test\": \"inner_right\", \"status\": \"passed\", \"message\": "
        "\"\", ",
        // Escaped, whole, and the broken byte replaced.
        "{\"nonce\": \"sesame\", \"test\": \"inner_wrong\", \"status\": \"failed\", \"message\": "
        "\"rank "
        "1 of 2: a \\\"quote\\\", a \\\\, a\\ttab and\\nhalf a character \\ufffd "
        "(tests/harness/results.c:",
        slow,
        "{\"nonce\": \"sesame\", \"test\": \"inner_forger\", \"status\": \"passed\", \"message\": "
        "\"\", ",
        "{\"nonce\": \"sesame\", \"test\": \"inner_assertion\", \"status\": \"failed\", "
        "\"message\": "
        "\"0x3 != 0x4 (tests/harness/results.c:",
        "{\"nonce\": \"sesame\", \"test\": \"inner_harness\", \"status\": \"error\", \"message\": "
        "\"a "
        "test asked for -1 ranks",
        "{\"nonce\": \"sesame\", \"test\": \"inner_rule\", \"status\": \"failed\", \"message\": "
        "\"in rule two_are_right: rank 1 of 2: a \\\"quote",
        "{\"nonce\": \"sesame\", \"test\": \"inner_rule_of_its_own\", \"status\": \"failed\", "
        "\"message\": \"in rule three_is_four: 3 != 4 (tests/harness/results.c:",
        "{\"nonce\": \"sesame\", \"test\": \"inner_behind_a_rule\", \"status\": \"failed\", "
        "\"message\": \"rank 1 of 2: a ",
        "{\"nonce\": \"sesame\", \"test\": \"inner_skipped\", \"status\": \"skipped\", ",
        "{\"nonce\": \"sesame\", \"test\": \"inner_left_out\", \"status\": \"skipped\", "
        "\"message\": \"left out from W = ",
        "{\"nonce\": \"sesame\", \"test\": \"inner_one_fits\", \"status\": \"passed\", ",
        "{\"nonce\": \"sesame\", \"test\": \"inner_state\", \"status\": \"passed\", ",
        "{\"nonce\": \"sesame\", \"test\": \"inner_right\", \"status\": \"error\", ",
        "{\"nonce\": \"sesame\", \"end\": 14}",
    };

    if (backend_max_world() < 2) skip(); // the inner tests have two ranks
    run_inner(&o, true, (const char *const[]){NULL});
    assert_int_equal(o.status, 1);
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        const char *line = line_of(o.results, (int)i);
        if (strncmp(line, heads[i], strlen(heads[i])) != 0)
            fail_msg("result %zu is\n%s\nmust begin with\n%s", i, line, heads[i]);
        if (i < INNER && !strstr(line, ", \"seconds\": "))
            fail_msg("result %zu has no seconds: %s", i, line);
    }
    assert_string_equal(line_of(o.results, INNER + 1), "");
    // What people read is there all the same.
    expect_words(o.err, "0x3 != 0x4");
    expect_words(o.err, "rank 1 of 2: a \"quote\"");
    expect_words(o.err, "in rule two_are_right: rank 1 of 2: a \"quote\"");
    expect_words(o.err, "in rule three_is_four: 3 != 4");
    expect_words(o.err, "[  FAILED  ] ");
}

// Without a grader the same suite just runs.
TEST(test_without_results)
{
    static Outcome o;

    run_inner(&o, false, (const char *const[]){NULL});
    assert_int_equal(o.status, 1);
    assert_string_equal(o.results, "");
    expect_words(o.err, "0x3 != 0x4");
}

TEST(test_verbose)
{
    needs_ranks(2);
    static Outcome o;

    RUN_INNER(&o, false, "--only", "inner_wrong", "--only", "inner_right");
    assert_null(strstr(o.err, "words of rank"));
    setenv("SHARDLAB_VERBOSE", "1", 1);
    RUN_INNER(&o, false, "--only", "inner_wrong", "--only", "inner_right");
    unsetenv("SHARDLAB_VERBOSE");
    expect_words(o.err, "---- what rank 0 of 2 wrote to standard error ----\nwords of rank 0\n");
    expect_words(o.err, "---- what rank 1 of 2 wrote to standard error ----\nwords of rank 1\n");
    assert_null(strstr(o.err, "words of a rank that is right"));
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--inner") == 0) {
        argv[1] = argv[0];
        return suite_main_of(argc - 1, argv + 1, "inner", inner, INNER);
    }
    return suite_main(argc, argv, "harness/results");
}
