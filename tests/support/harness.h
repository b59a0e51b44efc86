/* harness.h: cmocka tests whose bodies run on W forked ranks.
 *
 * The cmocka process itself never runs the code under test: run_ranks forks a process per rank, so
 * a crash, an exit() or an endless loop costs one test and is reported with its place. The first
 * thing that goes wrong on any rank is what the test says; what follows from it on other ranks is
 * not shown.
 *
 *   RANK_TEST(has_memory, 3)
 *   {
 *       float *x = NULL;
 *       need_cuda(cudaMalloc((void **)&x, 40));
 *       check(r->world == 3, "the world has %d ranks", r->world);
 *   }
 *   SUITE_MAIN("example")
 *
 * A test whose ranks take an argument, or that looks at what they left, is a TEST that calls
 * run_ranks.
 */
#ifndef SHARDLAB_HARNESS_H
#define SHARDLAB_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef fail // check.h has a macro of this name too, and here it is check.h's
#undef fail_msg
#define fail_msg(...)                                                                              \
    do {                                                                                           \
        print_rule();                                                                              \
        print_error(__VA_ARGS__);                                                                  \
        print_error("\n");                                                                         \
        _fail(__FILE__, __LINE__);                                                                 \
    } while (0)

#include "check.h"
#include "gpulog.h"
#include "gpulog_order.h"
#include "pattern.h"
#undef fail // once more, for a file that includes check.h before this one
#define fail(status, ...) check_fail((status), __FILE__, __LINE__, __VA_ARGS__)

typedef struct Rank {
    int rank, world;
    int device;          // the one this rank uses; with SHARE_GPU=1 others may use it too
    ncclComm_t comm;     // of all ranks
    cudaStream_t stream; // a stream of this rank's device, the compute stream
} Rank;
typedef void (*RankBody)(const Rank *rank, void *arg);

// A program built with a sanitizer is slow by nature: so many times, at most.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLOWER 8
#define RANKS_LIMIT 40 // seconds
#else
#define SLOWER 1
#define RANKS_LIMIT 10
#endif

// Runs body(rank, arg) on `world` ranks, each on a device of its own, and fails the cmocka test
// with the first failure of any rank. The limit is RANKS_LIMIT or `limit`, times
// SHARDLAB_TIME_FACTOR; where that is not set, times as many processes as want each processor. With
// SHARDLAB_LIMIT, which the grader sets, it is that many seconds for all runs of a test together.
#define run_ranks(world, body, arg) run_ranks_limit(world, RANKS_LIMIT, body, arg)
#define run_ranks_limit(world, limit, body, arg)                                                   \
    run_ranks_at(__FILE__, __LINE__, world, limit, body, arg)
void run_ranks_at(const char *file, int line, int world, double limit, RankBody body, void *arg);

// run_worlds(body, &in, 1, 4): on one rank, then on four.
#define run_worlds(body, arg, ...)                                                                 \
    run_worlds_at(__FILE__, __LINE__, body, arg, (const int[]){__VA_ARGS__, 0})
void run_worlds_at(const char *file, int line, RankBody body, void *arg, const int *worlds);

// As run_ranks, for a body that fills its device: on devices of 8 MiB.
void run_ranks_small_at(const char *file, int line, int world, RankBody body, void *arg);
#define run_ranks_small(world, body, arg) run_ranks_small_at(__FILE__, __LINE__, world, body, arg)

// As run_ranks, in a dry run (simgpu/pages/dry.md) on devices of 1 TiB: for sizes that no machine
// here holds. Real GPUs have none, and nothing runs.
void run_ranks_dry_at(const char *file, int line, int world, RankBody body, void *arg);
#define run_ranks_dry(world, body, arg) run_ranks_dry_at(__FILE__, __LINE__, world, body, arg)

// A world that cannot be here, on fewer GPUs, is left out, and the result says from which size on.
// A test that looks at what its ranks have done begins with needs_ranks, which leaves out all of
// it, or asks ranks_fit before it goes on.
void needs_ranks(int world);
bool ranks_fit(int world);

// As run_ranks, but returns the first failure's text (free it; NULL: no failure) instead of failing
// the test: for tests of what a failure says.
#define run_ranks_message(world, limit, body, arg)                                                 \
    run_ranks_message_at(__FILE__, __LINE__, world, limit, body, arg)
char *run_ranks_message_at(const char *file, int line, int world, double limit, RankBody body,
                           void *arg);

// ---- Inside a body. A failed check ends the rank; its message has rank, file and line. ----

// For the beginning of a body that frees all that it makes: an event, a stream or memory that is
// there when the rank ends is its failure, on simulated GPUs.
void check_leaks(void);

// What the code under test got wrong, in a sentence.
#define check(ok, ...)                                                                             \
    do {                                                                                           \
        if (!(ok)) rank_fails(__FILE__, __LINE__, __VA_ARGS__);                                    \
    } while (0)
// A call that must work: need(flat_create(&f, …)).
#define need(call)                                                                                 \
    do {                                                                                           \
        Status need_ = (call);                                                                     \
        if (need_ != OK) rank_fails(__FILE__, __LINE__, "%s failed (%s)", #call, last_error());    \
    } while (0)
#define need_cuda(call)                                                                            \
    do {                                                                                           \
        cudaError_t need_ = (call);                                                                \
        if (need_ != cudaSuccess)                                                                  \
            rank_fails(__FILE__, __LINE__, "%s: %s", #call, cudaGetErrorString(need_));            \
    } while (0)
#define need_nccl(call)                                                                            \
    do {                                                                                           \
        ncclResult_t need_ = (call);                                                               \
        if (need_ != ncclSuccess)                                                                  \
            rank_fails(__FILE__, __LINE__, "%s: %s", #call, ncclGetErrorString(need_));            \
    } while (0)
// A call that must be refused: by ERR_ARGUMENT and one line, which has these words.
#define need_refused(call, words) need_failure(call, ERR_ARGUMENT, words)
// A call that must fail: by this status and a line that has these words. Who passes on another
// status than ERR_ARGUMENT may say more.
#define need_failure(call, want, words)                                                            \
    do {                                                                                           \
        unsigned begun_ = failure_begins();                                                        \
        Status need_ = (call);                                                                     \
        failed_at(__FILE__, __LINE__, #call, begun_, need_, want, words);                          \
    } while (0)
unsigned failure_begins(void); // silence; how many errors there were
void failed_at(const char *file, int line, const char *call, unsigned before, Status status,
               Status want, const char *words);

extern bool device_is_filled; // by the test: that it is full is then no news, and no question
_Noreturn void rank_fails(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// What was checked so far is this part ("1.1"): where the rank meets one that is not written, its
// message says that this one looks right.
void part_holds(const char *part);
// The innermost line that check.h printed on this rank, for need().
const char *last_error(void);

// Compare n floats in host memory; the message names `what`, the index, got and want. `near` bounds
// the absolute difference. +0 and -0 are equal; a NaN is neither equal nor near to anything.
#define check_equal(what, got, want, n) check_equal_in(NULL, what, got, want, n)
#define check_near(what, got, want, n, bound) check_near_in(NULL, what, got, want, n, bound)
// The same where the test knows what the array is of, and what could be wrong with it (pattern.h):
// the message names the parameter, and the likely cause where there is a plain one.
#define check_equal_in(clues, what, got, want, n)                                                  \
    check_in_at(__FILE__, __LINE__, clues, what, got, want, n, 0.0)
#define check_near_in(clues, what, got, want, n, bound)                                            \
    check_in_at(__FILE__, __LINE__, clues, what, got, want, n, bound)
void check_in_at(const char *file, int line, const Clues *clues, const char *what, const float *got,
                 const float *want, size_t n, double bound);
// For the end of a check's message: LIKELY and the cause, or "".
const char *cause_of(const Clues *clues, const float *got, const float *want, size_t n);

// Zeroed memory that the cmocka process and all ranks share; freed when the test program ends.
void *shared_alloc(size_t bytes);

// Device to host and back, waiting: fetch returns malloc'ed host memory.
#define fetch(device, n) fetch_at(__FILE__, __LINE__, device, n)
#define send_to(device, host, n) send_to_at(__FILE__, __LINE__, device, host, n)
float *fetch_at(const char *file, int line, const float *device, size_t n);
void send_to_at(const char *file, int line, float *device, const float *host, size_t n);

// Fails the test, in its own process, unless the text has the words, or because it has them.
void expect_words(const char *text, const char *words);
void expect_no_words(const char *text, const char *words);

// Seconds of a clock that nobody sets; and a pause of so many.
double seconds_now(void);
void pause_for(double seconds);
// How much slower the machine is than usual: as SHARDLAB_TIME_FACTOR says, else as it seems.
double time_factor(void);
// A whole number from the environment.
uint64_t setting(const char *name, uint64_t otherwise);

// gpulog_ordered, of operations that the log must have.
bool log_ordered(uint64_t a, uint64_t b);

// ---- A suite and its tests ----

typedef struct Test {
    struct CMUnitTest test;
    const char *file;
    int line;
} Test;

// TEST(adds_up) { … }: a test of the suite, which needs no list of them: it has those of all its
// files, by file and line.
#define TEST(name) TEST_BETWEEN(name, NULL, NULL)
// The same between begin(state) and end(state), cmocka's setup and teardown.
#define TEST_BETWEEN(name, begin, end)                                                             \
    static void name(void **state);                                                                \
    static const Test name##_test = {{#name, name, begin, end, NULL}, __FILE__, __LINE__};         \
    __attribute__((section("suite_tests"), used)) static const Test *const name##_listed =         \
        &name##_test;                                                                              \
    static void name(void **state)
// RANK_TEST(adds_up, 2, 3) { … }: a test whose body runs on two ranks, then on three; r is the
// Rank.
#define RANK_TEST(name, ...) RANK_TEST_WITHIN(name, RANKS_LIMIT, __VA_ARGS__)
// The same where each world may take so many seconds (run_ranks_limit).
#define RANK_TEST_WITHIN(name, seconds, ...)                                                       \
    static void name##_body(const Rank *r, void *arg);                                             \
    TEST(name)                                                                                     \
    {                                                                                              \
        const int worlds[] = {__VA_ARGS__};                                                        \
        for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++)                              \
            run_ranks_limit(worlds[i], seconds, name##_body, NULL);                                \
    }                                                                                              \
    static void name##_body(const Rank *r, void *arg)

// RULE(nothing_grows, …): calls rule_nothing_grows(…), a part of the test. What fails in it begins
// with "in rule nothing_grows: ".
#define RULE(name, ...)                                                                            \
    do {                                                                                           \
        begin_rule(#name);                                                                         \
        rule_##name(__VA_ARGS__);                                                                  \
        begin_rule(NULL);                                                                          \
    } while (0)
void begin_rule(const char *name); // NULL: it has ended
void print_rule(void);             // the beginning of what cmocka prints of a failure

// Runs the tests of the suite, or those named after --only, in that order; or prints their names
// for --list. With SHARDLAB_RESULTS_FD set, writes one JSON line a test to that descriptor:
//   {"nonce": …, "test": name, "status": "passed|failed|timeout|error", "message": …, "seconds": …}
// (of a test that has drawn also "seed": number; draw.h; of one that told figures "figures": […])
// and {"nonce": …, "end": count} at the end; the nonce is SHARDLAB_NONCE's.
int suite_main(int argc, char **argv, const char *name);
// The same of a list: for a suite inside a suite.
int suite_main_of(int argc, char **argv, const char *name, const struct CMUnitTest *tests,
                  size_t n);
#define SUITE_MAIN(name)                                                                           \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return suite_main(argc, argv, name);                                                       \
    }

// Numbers that go along with the result of the test that runs, 16 at most; not in a body.
void tell_figures(const int64_t *figures, int n);

#endif
