/* harness.h: cmocka tests whose bodies run on W forked ranks.
 *
 * The cmocka process itself never runs the code under test: run_ranks forks a process per rank, so
 * a crash, an exit() or an endless loop costs one test and is reported with its place. The first
 * thing that goes wrong on any rank is what the test says; what follows from it on other ranks is
 * not shown.
 *
 *   static void body(const Rank *r, void *arg) {
 *       float *x = NULL;
 *       need_cuda(cudaMalloc((void **)&x, 40));
 *       check(r->world > 0, "the world has %d ranks", r->world);
 *   }
 *   static void test_something(void **state) { run_ranks(3, body, NULL); }
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

// Seconds. A program built with a sanitizer is slow by nature.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define RANKS_LIMIT 40
#else
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

// As run_ranks, for a body that fills its device: on devices of 8 MiB.
void run_ranks_small_at(const char *file, int line, int world, RankBody body, void *arg);
#define run_ranks_small(world, body, arg) run_ranks_small_at(__FILE__, __LINE__, world, body, arg)

// A world that cannot be here, on fewer GPUs, is left out, and the result says from which size on. A
// test that looks at what its ranks have done begins with needs_ranks, which leaves out all of it, or
// asks ranks_fit before it goes on.
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

_Noreturn void rank_fails(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
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

// gpulog_ordered, of operations that the log must have.
bool log_ordered(uint64_t a, uint64_t b);

// ---- A suite's main ----

// Runs the tests (cmocka's, or those named after --only), or prints their names for --list. With
// SHARDLAB_RESULTS_FD set, writes one JSON line a test to that descriptor:
//   {"nonce": …, "test": name, "status": "passed|failed|timeout|error", "message": …, "seconds": …}
// (of a test that has drawn also "seed": number; draw.h; of one that told figures "figures": […])
// and {"nonce": …, "end": count} at the end; the nonce is SHARDLAB_NONCE's.
// Numbers that go along with the result of the test that runs, 16 at most; not in a body.
void tell_figures(const int64_t *figures, int n);
int suite_main(int argc, char **argv, const char *name, const struct CMUnitTest *tests, size_t n);
#define SUITE_MAIN(name, tests)                                                                    \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return suite_main(argc, argv, name, tests, sizeof tests / sizeof tests[0]);                \
    }

#endif
