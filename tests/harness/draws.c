/* Drawing (draw.h) seen from outside: the same seed gives the same draws, however a suite is
 * started; a test that fails after it has drawn says what, in every way it can fail, and with the
 * seed that it names it fails the same again. The suite looked at is in this very program, behind
 * --inner.
 */
#define _GNU_SOURCE // memfd_create
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend.h"
#include "draw.h"
#include "harness.h"

// ---- The inner suite: tests that draw, and then fail each in its own way ----

static int draw_some(void)
{
    int number = draw(1, 1000000);
    drawn("the number %d", number);
    printf("drew %d %d %d\n", number, draw(1, 1000000), draw(1, 1000000));
    return number;
}

static void body_wrong(const Rank *rank, void *arg)
{
    check(rank->rank != 1, "what a check says");
}
static void body_slow(const Rank *rank, void *arg)
{
    for (;;) pause();
}
static void body_crash(const Rank *rank, void *arg)
{
    raise(SIGSEGV);
}
static void body_silent(const Rank *rank, void *arg)
{
    _exit(3);
}
static void body_draws(const Rank *rank, void *arg)
{
    draw(1, 6);
}

static void inner_right(void **state)
{
    draw_some();
}
static void inner_other(void **state)
{
    draw_some();
}
static void inner_check(void **state)
{
    draw_some();
    run_ranks(2, body_wrong, NULL);
}
static void inner_limit(void **state)
{
    draw_some();
    run_ranks_limit(1, 0.2, body_slow, NULL);
}
static void inner_crash(void **state)
{
    draw_some();
    run_ranks(1, body_crash, NULL);
}
static void inner_silent(void **state)
{
    draw_some();
    run_ranks(1, body_silent, NULL);
}
static void inner_harness(void **state)
{
    draw_some();
    run_ranks(-1, body_wrong, NULL);
}
static void inner_message(void **state)
{
    draw_some();
    char *message = run_ranks_message(2, 10, body_wrong, NULL);
    fail_msg("of a message: %s", message ? message : "none");
}
static void inner_assertion(void **state)
{
    assert_int_not_equal(draw_some(), 0);
    assert_int_equal(3, 4);
}
static void inner_second_round(void **state)
{
    draw_some();
    drawn("the second round");
    assert_true(false);
}
static void inner_no_words(void **state)
{
    assert_in_range(draw(1, 6), 7, 8);
}
static void inner_nothing(void **state)
{
    run_ranks(2, body_wrong, NULL);
}
static void inner_body_draws(void **state)
{
    run_ranks(1, body_draws, NULL);
}

static const struct CMUnitTest inner[] = {
    cmocka_unit_test(inner_right),      cmocka_unit_test(inner_other),
    cmocka_unit_test(inner_check),      cmocka_unit_test(inner_limit),
    cmocka_unit_test(inner_crash),      cmocka_unit_test(inner_silent),
    cmocka_unit_test(inner_harness),    cmocka_unit_test(inner_message),
    cmocka_unit_test(inner_assertion),  cmocka_unit_test(inner_second_round),
    cmocka_unit_test(inner_no_words),   cmocka_unit_test(inner_nothing),
    cmocka_unit_test(inner_body_draws),
};
#define INNER (sizeof inner / sizeof inner[0])

// ---- Running it ----

typedef struct Outcome {
    int status;
    char results[32768], out[32768], err[32768];
} Outcome;

static int text_file(void)
{
    int fd = memfd_create("text", 0);

    assert_true(fd >= 0);
    return fd;
}

static void read_back(int fd, char *text, size_t size)
{
    ssize_t n = pread(fd, text, size - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    close(fd);
}

// Runs the inner suite, or one test of it, with SEED as given (NULL: none).
static const Outcome *run_inner(const char *seed, const char *only)
{
    static Outcome o;
    int results = text_file(), out = text_file(), err = text_file(), status;
    char number[16];

    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char *argv[] = {"draws", "--inner", only ? "--only" : NULL, (char *)(uintptr_t)only, NULL};
        snprintf(number, sizeof number, "%d", results);
        setenv("SHARDLAB_RESULTS_FD", number, 1);
        setenv("SHARDLAB_NONCE", "sesame", 1);
        if (seed)
            setenv("SEED", seed, 1);
        else
            unsetenv("SEED");
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        alarm(60);
        execv("/proc/self/exe", argv);
        _exit(99);
    }
    while (waitpid(pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
    o.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    read_back(results, o.results, sizeof o.results);
    read_back(out, o.out, sizeof o.out);
    read_back(err, o.err, sizeof o.err);
    return &o;
}

// What the inner test drew, as it printed it: the line is the `which`th of its kind.
static void numbers_of(const Outcome *o, int which, char *text)
{
    const char *at = o->out;

    while ((at = strstr(at, "drew ")) && which-- > 0) at++;
    if (!at) fail_msg("nothing was drawn:\n%s\n%s", o->out, o->err);
    snprintf(text, 64, "%.*s", (int)strcspn(at, "\n"), at);
}

// The test's line of results.
static const char *line_of(const Outcome *o, const char *test)
{
    static char line[8192];
    char mark[100];

    snprintf(mark, sizeof mark, "\"test\": \"%s\"", test);
    const char *at = strstr(o->results, mark);
    if (!at) fail_msg("%s has no result:\n%s%s", test, o->results, o->err);
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    return line;
}

static int times_in(const char *text, const char *words)
{
    int n = 0;

    for (; (text = strstr(text, words)); text++) n++;
    return n;
}

// ---- Tests ----

TEST(test_same_seed_same_draws)
{
    char alone[64], other[64], text[64];

    numbers_of(run_inner("42", "inner_right"), 0, alone);
    numbers_of(run_inner("42", "inner_right"), 0, text);
    assert_string_equal(text, alone);
    numbers_of(run_inner("42", "inner_other"), 0, other);
    assert_string_not_equal(other, alone); // another test, other draws
    const Outcome *all = run_inner("42", NULL);
    numbers_of(all, 0, text);
    assert_string_equal(text, alone);
    numbers_of(all, 1, text);
    assert_string_equal(text, other); // as alone, though another has drawn before
    numbers_of(run_inner("43", "inner_right"), 0, text);
    assert_string_not_equal(text, alone);
    numbers_of(run_inner("18446744073709551615", "inner_right"), 0, text);
    assert_string_not_equal(text, alone);
}

// Without SEED each start draws one; what the message names gives the same again.
TEST(test_drawn_anew_and_taken_back)
{
    char first[64], text[96], seed[64];

    const Outcome *o = run_inner(NULL, "inner_second_round");
    numbers_of(o, 0, first);
    const char *at = strstr(o->results, "SEED=");
    assert_non_null(at);
    snprintf(seed, sizeof seed, "%.*s", (int)strspn(at + 5, "0123456789"), at + 5);
    snprintf(text, sizeof text, "\"seed\": %s,", seed);
    expect_words(o->results, text);
    numbers_of(run_inner("", "inner_second_round"), 0, text); // empty is none
    assert_string_not_equal(text, first);
    numbers_of(run_inner(seed, "inner_second_round"), 0, text);
    assert_string_equal(text, first);
}

TEST(test_every_failure_tells)
{
    static const struct {
        const char *test, *status, *words;
    } table[] = {
        {"inner_check", "failed", "what a check says"},
        {"inner_limit", "timeout", "the test's limit of "},
        {"inner_crash", "failed", "crashed (segmentation fault"},
        {"inner_silent", "failed", "ended with status 3"},
        {"inner_harness", "error", "a test asked for -1 ranks"},
        {"inner_message", "failed", "of a message: rank 1 of 2: what a check says"},
        {"inner_assertion", "failed", "0x3 != 0x4"},
    };

    if (backend_max_world() < 2) skip(); // the inner tests have two ranks
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char numbers[64], note[160];
        const Outcome *o = run_inner("77", table[i].test);
        assert_int_equal(o->status, 1);
        numbers_of(o, 0, numbers);
        snprintf(note, sizeof note, "(drawn: the number %d. The same again: SEED=77)",
                 (int)strtol(numbers + 5, NULL, 10));
        const char *line = line_of(o, table[i].test);
        expect_words(line, table[i].words);
        expect_words(line, table[i].status);
        expect_words(strstr(line, table[i].words), note); // behind the reason
        expect_words(line, ", \"seed\": 77,");
        assert_int_equal(times_in(line, "(drawn"), 1);
        expect_words(o->err, note); // and for people
        assert_int_equal(times_in(o->err, "(drawn"), 1);
    }
}

TEST(test_words)
{
    expect_words(line_of(run_inner("5", "inner_second_round"), "inner_second_round"),
                 "(drawn: the second round. The same again: SEED=5)");
    expect_words(line_of(run_inner("5", NULL), "inner_no_words"), // though others had words
                 "(drawn. The same again: SEED=5)");
    // A test that passes has nothing to say, and its result has the seed.
    const char *line = line_of(run_inner("5", "inner_right"), "inner_right");
    expect_words(line, "\"status\": \"passed\", \"message\": \"\", \"seed\": 5,");
}

TEST(test_nothing_drawn_nothing_said)
{
    if (backend_max_world() < 2) skip();
    const Outcome *o = run_inner("77", "inner_nothing");
    const char *line = line_of(o, "inner_nothing");
    expect_words(line, "what a check says");
    assert_null(strstr(line, "seed"));
    assert_null(strstr(o->results, "drawn"));
    assert_null(strstr(o->err, "drawn"));
    // Nor of what tests before it have drawn.
    line = line_of(run_inner("77", NULL), "inner_nothing");
    assert_null(strstr(line, "drawn"));
    assert_null(strstr(line, "seed"));
}

TEST(test_a_body_may_not_draw)
{
    expect_words(line_of(run_inner("77", "inner_body_draws"), "inner_body_draws"),
                 "a body has drawn: draw in the test's function");
}

TEST(test_bad_seeds)
{
    static const struct {
        const char *seed, *shown;
    } table[] = {
        {"eight", "eight"},
        {"-1", "-1"},
        {" 8", " 8"},
        {"+8", "+8"},
        {"8x", "8x"},
        {"0x10", "0x10"},
        {"8.5", "8.5"},
        {"18446744073709551616", "18446744073709551616"},
        {"1\n\033[2J\377", "1??[2J?"},
        {"99999999999999999999999999999999999999999999999999999999",
         "9999999999999999999999999999999999999999\""},
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char line[200];
        const Outcome *o = run_inner(table[i].seed, "inner_right");
        assert_int_equal(o->status, 2);
        assert_string_equal(o->results, "");
        snprintf(line, sizeof line, "inner: SEED is \"%s", table[i].shown);
        expect_words(o->err, line);
        expect_words(o->err, "must be a whole number from 0 to 18446744073709551615\n");
        assert_int_equal(times_in(o->err, "\n"), 1);
    }
}

// In this very suite: bounds, and every number as often as any other.
TEST(test_numbers)
{
    static const int list[] = {2, 3, 5, 7};
    int count[7] = {0}, of_list[8] = {0}, chance = 0, n = 60000;

    for (int i = 0; i < n; i++) {
        int number = draw(-3, 3);
        assert_true(-3 <= number && number <= 3);
        count[number + 3]++;
        of_list[draw_of(list)]++;
        chance += draw_chance(25);
        assert_false(draw_chance(0));
        assert_true(draw_chance(100));
    }
    // Seven standard errors: chance alone passes them once in 10¹¹ seeds.
    for (int i = 0; i < 7; i++) assert_in_range(count[i], n / 7 - 600, n / 7 + 600);
    for (int i = 0; i < 4; i++) assert_in_range(of_list[list[i]], n / 4 - 743, n / 4 + 743);
    assert_in_range(chance, n / 4 - 743, n / 4 + 743);
    assert_int_equal(draw(7, 7), 7);
    bool low = false, high = false;
    for (int i = 0; i < 200; i++) {
        int number = draw(INT_MIN, INT_MAX);
        low = low || number < -(1 << 30);
        high = high || number > 1 << 30;
    }
    assert_true(low && high);
    assert_true(draw_word() != draw_word());
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--inner") == 0) {
        argv[1] = argv[0];
        return suite_main_of(argc - 1, argv + 1, "inner", inner, INNER);
    }
    return suite_main(argc, argv, "harness/draws");
}
