/* heard.h: what the suites of simgpu/tests share: reports caught as text, and a kernel that
 * touches bytes.
 *
 * A body that provokes a report calls hear(heard) first; from then on the reports go into `heard`,
 * which lies in shared memory, instead of failing the rank.
 *
 * Interface: hear, heard_is, stderr_of, needs_kit, RANK_TEST_BETWEEN, unheard, runs_unheard,
 * make_stream, kilobytes, shared_kilobytes, kernel_touch, kernel_sum_bytes, run_to_illegal_access.
 */
#ifndef SHARDLAB_HEARD_H
#define SHARDLAB_HEARD_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "simgpu.h"

typedef struct Heard {
    volatile int count; // a touch of memory can report, too
    SimgpuClass kind;   // of the last report
    char title[256];    // of the last report
    char text[16384];   // of the last report
} Heard;

static inline void hear_one(const SimgpuReport *report, void *arg)
{
    Heard *heard = arg;
    snprintf(heard->title, sizeof heard->title, "%s", report->title);
    snprintf(heard->text, sizeof heard->text, "%s", report->text);
    heard->kind = report->kind;
    heard->count++;
}

static inline Heard *hear(Heard *heard)
{
    heard->count = 0;
    simgpu_on_report(hear_one, heard);
    return heard;
}

// The last report's title is this, and its text holds the words.
#define heard_is(heard, head, words)                                                               \
    do {                                                                                           \
        check((heard)->count > 0, "nothing was reported");                                         \
        check(strcmp((heard)->title, head) == 0, "the report is \"%s\"", (heard)->title);          \
        check(strstr((heard)->text, words), "no \"%s\" in: %s", words, (heard)->text);             \
    } while (0)

// Runs fn in a process of its own, which _exit(0) ends after it unless fn does so itself. Returns
// what it wrote to standard error, until the next call; *status is waitpid's, unless it is NULL.
static inline char *stderr_of(void (*fn)(void), int *status)
{
    static char text[32768];
    int ends[2];
    size_t used = 0;
    ssize_t n;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(20);
        signal(SIGSEGV, SIG_DFL); // cmocka has one of its own
        close(ends[0]);
        dup2(ends[1], STDERR_FILENO);
        fn();
        _exit(0);
    }
    close(ends[1]);
    while ((n = read(ends[0], text + used, sizeof text - 1 - used)) > 0) used += (size_t)n;
    text[used] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(pid, status, 0), pid);
    return text;
}

// For the begin of a test of what the kit's folder has: it is left out where the file is not there.
static inline void needs_kit(const char *file)
{
    if (access(file, R_OK) == 0) return;
    print_message("not run from the kit's folder\n");
    skip();
}

// RANK_TEST between begin(state) and end(state), as TEST_BETWEEN has them.
#define RANK_TEST_BETWEEN(name, begin, end, ...)                                                   \
    static void name##_body(const Rank *r, void *arg);                                             \
    TEST_BETWEEN(name, begin, end)                                                                 \
    {                                                                                              \
        const int worlds[] = {__VA_ARGS__};                                                        \
        for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++)                              \
            run_ranks(worlds[i], name##_body, NULL);                                               \
    }                                                                                              \
    static void name##_body(const Rank *r, void *arg)

// Around a body that reads what nobody has written, or the like, and is not to hear of it.
static inline int unheard(void **state)
{
    return setenv("SIMGPU_CHECK", "fast", 1);
}
static inline int heard_again(void **state)
{
    return unsetenv("SIMGPU_CHECK");
}
static inline void runs_unheard(int world, RankBody body)
{
    unheard(NULL);
    run_ranks(world, body, NULL);
    heard_again(NULL);
}

static inline cudaStream_t make_stream(unsigned flags)
{
    cudaStream_t s;
    need_cuda(cudaStreamCreateWithFlags(&s, flags));
    return s;
}

// A figure of /proc/self/status by its name there, such as "RssShmem:"; -1: unknown.
static inline long kilobytes(const char *name)
{
    char line[256];
    long figure = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0) figure = atol(line + strlen(name));
    if (f) fclose(f);
    return figure;
}

// Pages of shared memory that this process has touched, devices' memory among them; -1: unknown.
static inline long shared_kilobytes(void)
{
    return kilobytes("RssShmem:");
}

// A kernel must not melt into its caller, which is its call site.
#define KERNEL __attribute__((noinline, unused)) static cudaError_t

// Writes `value` to `bytes` bytes at p.
KERNEL kernel_touch(void *p, size_t bytes, int value, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_touch", stream);
    char *data = simgpu_write(&op, p, bytes);
    if (simgpu_ready(&op) && bytes) memset(data, value, bytes);
    return simgpu_end(&op);
}

// *sum = the sum of the bytes; sum is one unsigned on the device.
KERNEL kernel_sum_bytes(unsigned *sum, const void *p, size_t bytes, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_sum_bytes", stream);
    unsigned *out = simgpu_write(&op, sum, sizeof *sum);
    const unsigned char *data = simgpu_read(&op, p, bytes);
    if (simgpu_ready(&op)) {
        *out = 0;
        for (size_t i = 0; i < bytes; i++) *out += data[i];
    }
    return simgpu_end(&op);
}

// Runs a body that ends in an illegal access. The error stays, so the harness's own wait after the
// body must fail with it; any other message is a failed check.
static inline void run_to_illegal_access(RankBody body, void *arg)
{
    char *message = run_ranks_message(1, 20, body, arg);
    if (!message) fail_msg("the illegal access was forgotten");
    if (!strstr(message, "cudaDeviceSynchronize(): an illegal memory access was encountered"))
        fail_msg("%s", message);
    free(message);
}

#endif
