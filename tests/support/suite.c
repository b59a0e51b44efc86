/* A suite's main: cmocka runs the tests and prints what it always prints; beside it every test
 * leaves one line of JSON for the grader, on a descriptor that the code under test never holds.
 *
 * A test that fails by run_ranks hands its message over here. For one that fails by an assertion of
 * cmocka's own, the message is what cmocka prints on standard error after the test, so while
 * results are wanted standard error goes through a file in memory and on to where it belongs after
 * each test.
 *
 * Each test draws a sequence of its own (draw.h). One that fails after it has drawn says what, at
 * the end of its message however it failed, and its result has the seed.
 *
 * simgpu appends what it reports to the file that SIMGPU_REPORT names; what a test added there goes
 * along with its result, as text: the code under test may have written it.
 *
 * A test may tell figures (tell_figures): they go along with its result.
 */
#define _GNU_SOURCE // memfd_create, asprintf
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint.h"
#include "draw.h"
#include "fp8_gather.h"
#include "offload.h"
#include "per_parameter.h"
#include "pipeline.h"
#include "precision.h"
#include "prefetch.h"
#include "print_json.h"
#include "recompute.h"
#include "report.h"
#include "run.h"
#include "step_graph.h"

#define MOST_FIGURES 16
#define MOST_REPORTS 32768 // bytes of reports that go along with a result

typedef struct Case {
    const struct CMUnitTest *test;
    void *state; // the test's own
    bool passed;
    const char *status;
    char *message;   // of the first failure; NULL: none told yet
    int ran;         // worlds run
    char *left_out;  // which worlds were not, and why; NULL: none
    bool needs_them; // and the test is nothing without them
    bool drew;       // has drawn something (draw.h)
    char *drawn;     // what, where it has failed; NULL: nothing to say
    int64_t figure[MOST_FIGURES];
    int figures;
    double began, seconds;
} Case;

static struct Results {
    int fd; // -1: nobody wants results
    char nonce[128];
    int written;
    int captured; // the file in memory that stands for standard error
    int real_stderr;
    int reports;   // SIMGPU_REPORT's file, to read; -1: none
    off_t told;    // how much of it has gone along
    Case *pending; // has failed, and cmocka has yet to print why
} results = {.fd = -1, .captured = -1, .real_stderr = -1, .reports = -1};

// What --world and --rank ask for: worlds of so many ranks alone, 0: of any number; and the rank
// that waits for a debugger, -1: none.
static int only_world, debug_rank = -1;

static Case *current;
static const char *rule; // of it, that runs

// ---- JSON ----

static void write_all(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t written = write(fd, data, n);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return; // whoever reads has gone; the missing end marker says so
        data += written;
        n -= (size_t)written;
    }
}

// The whole lines that came to the file of reports since the last call, as many as one result takes
// (free it); NULL: none.
static char *new_reports(void)
{
    struct stat file;

    if (results.reports < 0 || fstat(results.reports, &file) != 0) return NULL;
    char *text = file.st_size > results.told ? malloc(MOST_REPORTS + 1) : NULL;
    ssize_t n = text ? pread(results.reports, text, MOST_REPORTS, results.told) : 0;
    results.told = file.st_size;
    while (n > 0 && text[n - 1] != '\n') n--;
    if (n > 0) {
        text[n] = 0;
        return text;
    }
    free(text);
    return NULL;
}

static void write_result(const Case *c)
{
    char *line = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&line, &length);

    if (!out) return;
    char *reports = new_reports();
    fputs("{\"nonce\": ", out);
    print_json_string(out, results.nonce);
    fputs(", \"test\": ", out);
    print_json_string(out, c->test->name);
    fputs(", \"status\": ", out);
    print_json_string(out, c->passed ? "passed" : c->status ? c->status : "failed");
    fputs(", \"message\": ", out);
    print_json_string(out, c->message ? c->message : "");
    if (reports) {
        fputs(", \"reports\": ", out);
        print_json_string(out, reports);
    }
    if (c->drew) fprintf(out, ", \"seed\": %" PRIu64, draw_seed());
    for (int i = 0; i < c->figures; i++)
        fprintf(out, "%s%" PRId64, i ? ", " : ", \"figures\": [", c->figure[i]);
    if (c->figures) fputc(']', out);
    fprintf(out, ", \"seconds\": %.3f}\n", c->seconds);
    fclose(out);
    write_all(results.fd, line, length);
    free(line);
    free(reports);
    results.written++;
}

static void write_end(void)
{
    char *line = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&line, &length);

    if (!out) return;
    fputs("{\"nonce\": ", out);
    print_json_string(out, results.nonce);
    fprintf(out, ", \"end\": %d}\n", results.written);
    fclose(out);
    write_all(results.fd, line, length);
    free(line);
}

// ---- Standard error while results are wanted ----

// What cmocka prints of a failure, less its own decoration and its summary after the last test; the
// place, which it prints as `FILE:LINE: error: Failure!`, is in parentheses, as in all messages.
static char *plain_message(const char *printed)
{
    static const char *const marks[] = {"[  ERROR   ] --- ", "[   LINE   ] --- "};
    static const char failure[] = ": error: Failure!";
    char *text = calloc(1, strlen(printed) + 1), *to = text;

    if (!text) return NULL;
    while (*printed && strncmp(printed, "[  PASSED  ] ", 13) != 0) {
        size_t length = strcspn(printed, "\n");
        for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
            if (strncmp(printed, marks[i], strlen(marks[i])) == 0) {
                printed += strlen(marks[i]);
                length -= strlen(marks[i]);
            }
        bool place = length > strlen(failure) && to > text &&
                     memcmp(printed + length - strlen(failure), failure, strlen(failure)) == 0;
        if (place)
            to += sprintf(to, " (%.*s)", (int)(length - strlen(failure)), printed);
        else if (length > 0)
            to += sprintf(to, "%s%.*s", to > text ? "\n" : "", (int)length, printed);
        printed += length;
        if (*printed == '\n') printed++;
    }
    return text;
}

// Passes on what was printed since the last call; returns it (free it).
static char *drain_stderr(void)
{
    off_t length = lseek(results.captured, 0, SEEK_CUR);
    char *text = calloc(1, length > 0 ? (size_t)length + 1 : 1);

    fflush(stderr);
    if (text && length > 0 && pread(results.captured, text, (size_t)length, 0) == length)
        write_all(results.real_stderr, text, (size_t)length);
    // Back to the beginning: the descriptor and standard error share one position.
    lseek(results.captured, 0, SEEK_SET);
    if (ftruncate(results.captured, 0) != 0) perror("suite: ftruncate");
    return text;
}

// What the test had drawn, and how to see the same again, at the end of its message.
static void add_drawn(Case *c)
{
    char *whole = NULL;

    if (!c->drawn || !c->message || asprintf(&whole, "%s\n%s", c->message, c->drawn) < 0) return;
    free(c->message);
    c->message = whole;
}

// Completes the test whose failure cmocka has printed in the meantime.
static void settle(void)
{
    if (results.fd < 0) return;
    char *printed = drain_stderr();
    Case *c = results.pending;
    if (c && printed) {
        // cmocka prints nothing there of a test that has skipped itself.
        bool skipped = !strstr(printed, "[  ERROR   ]");
        if (skipped) c->status = "skipped";
        c->message = plain_message(printed);
        if (!skipped) add_drawn(c);
        if (!skipped && c->drawn) dprintf(results.real_stderr, "%s\n", c->drawn);
    }
    if (c) write_result(c);
    results.pending = NULL;
    free(printed);
}

// In everything that this process forks: the results are none of its business.
static void leave_results(void)
{
    if (results.fd < 0) return;
    close(results.fd);
    close(results.captured);
    close(results.real_stderr);
    if (results.reports >= 0) close(results.reports);
    memset(&results, 0, sizeof results);
    results.fd = results.reports = -1;
    prctl(PR_SET_DUMPABLE, 1);
}

static void open_results(void)
{
    char *fd_text = getenv("SHARDLAB_RESULTS_FD"), *nonce = getenv("SHARDLAB_NONCE"), *end;
    const char *reports = getenv("SIMGPU_REPORT");

    if (!fd_text) return;
    long fd = strtol(fd_text, &end, 10);
    if (end == fd_text || *end || fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0) {
        fprintf(stderr, "SHARDLAB_RESULTS_FD is \"%s\": that is no open descriptor\n", fd_text);
        exit(2);
    }
    results.fd = (int)fd;
    if (nonce) {
        snprintf(results.nonce, sizeof results.nonce, "%s", nonce);
        memset(nonce, 0, strlen(nonce)); // /proc/self/environ shows this very memory
    }
    unsetenv("SHARDLAB_RESULTS_FD");
    unsetenv("SHARDLAB_NONCE");
    // Nobody may open this process's descriptors by /proc/PID/fd. Whatever it forks undoes that for
    // itself: ranks do open each other's.
    prctl(PR_SET_DUMPABLE, 0);
    pthread_atfork(NULL, NULL, leave_results);
    results.real_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    results.captured = memfd_create("stderr", MFD_CLOEXEC);
    if (reports) results.reports = open(reports, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (results.real_stderr < 0 || results.captured < 0) {
        perror("suite: standard error");
        exit(2);
    }
    fflush(stderr);
    dup2(results.captured, STDERR_FILENO);
}

// ---- Around each test ----

void suite_failed(const char *status, const char *message)
{
    if (!current || current->message) return;
    current->status = status;
    current->message = strdup(message);
}

void begin_rule(const char *name)
{
    rule = name;
}

const char *suite_rule(void)
{
    return rule;
}

void print_rule(void)
{
    if (rule) print_error("in rule %s: ", rule);
}

void tell_figures(const int64_t *figures, int n)
{
    for (int i = 0; current && i < n && i < MOST_FIGURES; i++) current->figure[i] = figures[i];
    if (current) current->figures = n < MOST_FIGURES ? n : MOST_FIGURES;
}

void suite_ran(void)
{
    if (current) current->ran++;
}

void suite_left_out(int world, const char *why)
{
    char text[400];

    if (!current || current->left_out) return;
    snprintf(text, sizeof text, "left out from W = %d on: %s", world, why);
    current->left_out = strdup(text);
}

void suite_skip(void)
{
    if (current) current->needs_them = true;
    skip();
}

// A number above zero from the environment.
static bool read_limit(double *limit)
{
    const char *text = getenv("SHARDLAB_LIMIT");
    char *end;

    if (!text) return false;
    *limit = strtod(text, &end);
    return end != text && !*end && *limit > 0 && *limit < 1e9;
}

bool suite_limit(double *whole, double *left)
{
    if (!current || !read_limit(whole)) return false;
    *left = current->began + *whole - seconds_now();
    if (*left < 0.01) *left = 0.01;
    return true;
}

static int begin_case(void **state)
{
    Case *c = *state;

    settle();
    current = c;
    rule = NULL; // the test before may have failed in one
    draw_begin(c->test->name);
    c->began = seconds_now();
    return c->test->setup_func ? c->test->setup_func(&c->state) : 0;
}

static void run_case(void **state)
{
    Case *c = *state;

    c->test->test_func(&c->state);
    c->passed = true;
}

static int end_case(void **state)
{
    Case *c = *state;
    int result = c->test->teardown_func ? c->test->teardown_func(&c->state) : 0;

    c->seconds = seconds_now() - c->began;
    if (c->needs_them) c->passed = true; // as far as that goes
    if (c->ran == 0 && (only_world > 0 || debug_rank >= 0))
        print_message("| %s: it has no such world, or no such rank\n", c->test->name);
    if (c->passed && c->left_out) print_message("| %s: %s\n", c->test->name, c->left_out);
    if (c->passed && c->left_out && (c->ran == 0 || c->needs_them)) {
        c->passed = false;
        c->status = "skipped";
        c->message = strdup(c->left_out);
    }
    if (result != 0) {
        c->passed = false;
        c->status = "error";
    }
    c->drew = draw_used();
    if (c->drew && !c->passed && (!c->status || strcmp(c->status, "skipped") != 0)) {
        c->drawn = strdup(draw_again());
        if (c->message || results.fd < 0) print_error("%s\n", c->drawn); // for people
        add_drawn(c);
    }
    current = NULL;
    if (results.fd < 0) return result;
    if (c->passed || c->message)
        write_result(c);
    else
        results.pending = c;
    return result;
}

// ---- main ----

// The files of the labs: the suite, and a function that each defines.
#define LAB_FILES(X)                                                                               \
    X(strategies, strategy_apply)                                                                  \
    X(strategies, ddp_buckets)                                                                     \
    X(strategies, strategy_all_gather)                                                             \
    X(mixed_precision, precision_apply)                                                            \
    X(mixed_precision, loss_scaler_step)                                                           \
    X(prefetch, prefetch_apply)                                                                    \
    X(memory, recompute_modules)                                                                   \
    X(memory, offload_all_gather)                                                                  \
    X(checkpoints, checkpoint_save)                                                                \
    X(per_parameter, per_parameter_layout)                                                         \
    X(per_parameter, fp8_place)                                                                    \
    X(pipeline, pipeline_step)                                                                     \
    X(pipeline, pipeline_transfer)                                                                 \
    X(pipeline, pipeline_sum_ties)                                                                 \
    X(graph, step_numbers)                                                                         \
    X(graph, regroup_gather)

// Most suites of the kit's own are linked without the task files: then these are NULL.
#define WEAK(name, function) extern __typeof__(function) function __attribute__((weak));
TASK_FILES(WEAK)
LAB_FILES(WEAK)

// A task's or lab's suite grades its files, `together` all six; hidden suites are named like them.
static void own_code(const char *suite)
{
    static const TaskFile files[] = {TASK_FILES(TASK_FILE_ROW){NULL, NULL}};
    static const TaskFile of_labs[] = {LAB_FILES(TASK_FILE_ROW){NULL, NULL}};

    if (strncmp(suite, "hidden_", 7) == 0) suite += 7;
    if (!report_own_code(of_labs, suite))
        report_own_code(files, strcmp(suite, "together") == 0 ? NULL : suite);
}

bool suite_wants_world(int world)
{
    return (only_world == 0 || world == only_world) && world > debug_rank;
}

int suite_debug_rank(void)
{
    return debug_rank;
}

// --world N, --rank N: false where `option` is another, or the number is none.
static bool take_number(const char *option, const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);
    bool world = strcmp(option, "--world") == 0;

    if ((!world && strcmp(option, "--rank") != 0) || end == text || *end || number < world ||
        number > 255)
        return false;
    *(world ? &only_world : &debug_rank) = (int)number;
    return true;
}

static int list_tests(const struct CMUnitTest *tests, size_t n)
{
    for (size_t i = 0; i < n; i++) printf("%s\n", tests[i].name);
    return 0;
}

// Which tests the command line wants, in its order; their number, or -1 after it has said what it
// does not understand.
static int choose_tests(int argc, char **argv, const struct CMUnitTest *tests, size_t n,
                        size_t *chosen)
{
    int count = 0;
    bool named_one = false;

    for (int a = 1; a < argc; a += 2) {
        bool found = false;
        if (a + 1 < argc && take_number(argv[a], argv[a + 1])) continue;
        if (a + 1 >= argc || strcmp(argv[a], "--only") != 0) {
            fprintf(stderr,
                    "usage: %s [--list] [--only TEST]... [--world RANKS] [--rank RANK]\n"
                    "  --world  worlds of so many ranks alone; --rank  this one waits for gdb\n",
                    argv[0]);
            return -1;
        }
        for (size_t i = 0; i < n; i++) {
            bool again = false;
            if (strcmp(argv[a + 1], tests[i].name) != 0) continue;
            for (int k = 0; k < count; k++) again |= chosen[k] == i;
            if (!again) chosen[count++] = i;
            found = named_one = true;
        }
        if (!found) {
            fprintf(stderr, "%s: no test is called %s; --list shows them\n", argv[0], argv[a + 1]);
            return -1;
        }
    }
    for (size_t i = 0; i < n && !named_one; i++) chosen[count++] = i;
    return count;
}

int suite_main_of(int argc, char **argv, const char *name, const struct CMUnitTest *tests, size_t n)
{
    sanitize_linked();
    own_code(name);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) return list_tests(tests, n);

    struct CMUnitTest *wrapped = calloc(n + 1, sizeof *wrapped);
    Case *cases = calloc(n + 1, sizeof *cases);
    size_t *chosen = calloc(n + 1, sizeof *chosen);

    if (!wrapped || !cases || !chosen) abort();
    int status = 2, count = choose_tests(argc, argv, tests, n, chosen);
    if (count >= 0 && draw_seed_wanted(name)) {
        for (int i = 0; i < count; i++) {
            const struct CMUnitTest *test = &tests[chosen[i]];
            cases[i] = (Case){.test = test, .state = test->initial_state};
            wrapped[i] = (struct CMUnitTest){test->name, run_case, begin_case, end_case, &cases[i]};
        }
        open_results();
        status = _cmocka_run_group_tests(name, wrapped, (size_t)count, NULL, NULL) != 0;
        settle();
        if (results.fd >= 0) write_end();
    }
    for (size_t i = 0; i < n; i++) {
        free(cases[i].message);
        free(cases[i].left_out);
        free(cases[i].drawn);
    }
    free(chosen);
    free(cases);
    free(wrapped);
    return status;
}

// ---- The tests that the suite's files have ----

// The section that TEST fills; the linker makes the two names. Weak: a suite of a list has none.
extern const Test *const __start_suite_tests[] __attribute__((weak));
extern const Test *const __stop_suite_tests[] __attribute__((weak));

static int by_file_and_line(const void *a, const void *b)
{
    const Test *one = *(const Test *const *)a, *other = *(const Test *const *)b;
    int files = strcmp(one->file, other->file);

    return files ? files : one->line - other->line;
}

int suite_main(int argc, char **argv, const char *name)
{
    size_t n = (size_t)(__stop_suite_tests - __start_suite_tests);
    const Test **in_order = malloc(n * sizeof *in_order);
    struct CMUnitTest *tests = malloc(n * sizeof *tests);

    if (!in_order || !tests) abort();
    memcpy(in_order, __start_suite_tests, n * sizeof *in_order);
    qsort(in_order, n, sizeof *in_order, by_file_and_line);
    for (size_t i = 0; i < n; i++) tests[i] = in_order[i]->test;
    int status = suite_main_of(argc, argv, name, tests, n);
    free(tests);
    free(in_order);
    return status;
}
