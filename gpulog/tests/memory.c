/* memory.c: live and peak bytes on every backend; and what only the interposer of real GPUs does: a
 * limit to a device's memory, NaNs in fresh memory, and the refusal of invalid settings.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nccl.h>

#include "harness.h"

#define holds(live, peak)                                                                          \
    do {                                                                                           \
        size_t live_ = gpulog_live_bytes(r->device) - base, peak_ = gpulog_peak_bytes(r->device);  \
        check(live_ == (live) && peak_ == base + (peak), "%zu live bytes and a peak of %zu",       \
              live_, peak_ - base);                                                                \
    } while (0)

// Bytes count as requested, whatever the device makes of them.
static void counts_bytes(const Rank *r, void *arg)
{
    char *a, *b, *c;
    size_t base = gpulog_live_bytes(r->device);
    gpulog_reset_peak(r->device);
    need_cuda(cudaMalloc((void **)&a, 101));
    holds(101, 101);
    need_cuda(cudaMallocAsync((void **)&b, 50, r->stream));
    holds(151, 151);
    need_cuda(cudaFree(a));
    holds(50, 151);
    need_nccl(ncclMemAlloc((void **)&c, 7));
    holds(57, 151);
    gpulog_reset_peak(r->device);
    holds(57, 57);
    need_cuda(cudaFreeAsync(b, r->stream));
    need_nccl(ncclMemFree(c));
    need_cuda(cudaFree(NULL));
    holds(0, 57);
}

static void counts_many(const Rank *r, void *arg)
{
    enum { MANY = 500 };
    static void *ptr[MANY];
    size_t base = gpulog_live_bytes(r->device), live = 0;
    gpulog_reset_peak(r->device);
    for (size_t i = 0; i < MANY; i++) {
        need_cuda(cudaMalloc(&ptr[i], i + 1));
        live += i + 1;
    }
    holds(live, live);
    for (size_t i = 0; i < MANY; i++) { // in another order than they came
        size_t j = i * 7 % MANY;
        need_cuda(cudaFree(ptr[j]));
        live -= j + 1;
        check(gpulog_live_bytes(r->device) == base + live, "wrong after %zu frees", i + 1);
    }
}

TEST(test_counts_bytes)
{
    run_ranks(2, counts_bytes, NULL);
    run_ranks(1, counts_many, NULL);
}

#ifdef BACKEND_CUDA
static void stays_within_its_limit(const Rank *r, void *arg)
{
    char *a, *b;
    size_t left, total;
    need_cuda(cudaMalloc((void **)&a, 40000));
    uint64_t before = gpulog_length();
    check(cudaMalloc((void **)&b, 30000) == cudaErrorMemoryAllocation && b == NULL,
          "70000 bytes fit into 65536");
    check(cudaPeekAtLastError() == cudaErrorMemoryAllocation, "the error cannot be peeked at");
    check(cudaGetLastError() == cudaErrorMemoryAllocation, "the error is forgotten");
    check(cudaGetLastError() == cudaSuccess, "the error stays");
    check(cudaMallocAsync((void **)&b, 30000, r->stream) == cudaErrorMemoryAllocation,
          "70000 bytes fit into 65536 on a stream");
    check(ncclMemAlloc((void **)&b, 30000) != ncclSuccess, "70000 bytes fit by way of NCCL");
    check(gpulog_length() == before && gpulog_live_bytes(r->device) == 40000,
          "an allocation that failed is in the log");
    need_cuda(cudaMemGetInfo(&left, &total));
    check(total == 65536 && left <= 25536, "%zu of %zu bytes are said to be free", left, total);
    need_cuda(cudaMallocAsync((void **)&b, 25536, r->stream));
    need_cuda(cudaFree(a));
    need_cuda(cudaMalloc((void **)&a, 40000));
    need_cuda(cudaFreeAsync(b, r->stream));
    need_cuda(cudaFree(a));
    cudaGetLastError();
}
TEST(test_limits_memory)
{
    setenv("GPULOG_MEMORY", "64K", 1);
    run_ranks(1, stays_within_its_limit, NULL);
    unsetenv("GPULOG_MEMORY");
}

static bool all_nan(const void *device, size_t bytes)
{
    unsigned char host[4096];
    need_cuda(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < bytes; i++)
        if (host[i] != 0xff) return false;
    return true;
}

static void gets_nans(const Rank *r, void *arg)
{
    char *a, *b, *c;
    uint64_t before = gpulog_length();
    need_cuda(cudaMalloc((void **)&a, 1001));
    need_cuda(cudaMallocAsync((void **)&b, 2003, r->stream));
    need_nccl(ncclMemAlloc((void **)&c, 4001));
    check(gpulog_length() == before + 3, "the filling of fresh memory is in the log");
    need_cuda(cudaStreamSynchronize(r->stream));
    check(all_nan(a, 1001) && all_nan(b, 2003) && all_nan(c, 4001), "fresh memory is no NaN");
    need_cuda(cudaFree(a));
    need_cuda(cudaFree(b));
    need_nccl(ncclMemFree(c));
}
TEST(test_fills_fresh_memory)
{
    setenv("GPULOG_POISON", "1", 1);
    setenv("SIMGPU_POISON", "0", 1); // on emulated CUDA simgpu's NaNs would hide those
    run_ranks(1, gets_nans, NULL);
    unsetenv("GPULOG_POISON");
    unsetenv("SIMGPU_POISON");
}

// Runs a child with this setting that allocates 100000 bytes twice. Gives what it writes to stderr,
// and its exit status: 0, unless it is ended.
static int run_child(const char *name, const char *value, char text[1024])
{
    int ends[2], status;
    assert_return_code(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        void *p;
        dup2(ends[1], STDERR_FILENO);
        setenv(name, value, 1);
        cudaMalloc(&p, 100000);
        cudaMalloc(&p, 100000);
        _exit(0);
    }
    assert_true(child > 0);
    close(ends[1]);
    ssize_t n = read(ends[0], text, 1023);
    text[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(test_tells_of_its_limit_once)
{
    static const char begins[] = "gpulog: out of device memory: cudaMalloc of 100000 bytes at "
                                 "tests/memory.c:",
                      ends[] = " (run_child) on device 0, where 0 of the 65536 bytes that "
                               "GPULOG_MEMORY allows are in use\n";
    char text[1024];
    assert_int_equal(run_child("GPULOG_MEMORY", "64K", text), 0);
    assert_memory_equal(text, begins, sizeof begins - 1);
    assert_true(strlen(text) > sizeof ends);
    assert_string_equal(strchr(text, '\n') + 2 - sizeof ends, ends);
}

static void must_refuse(const char *name, const char *value, const char *line)
{
    char text[1024];
    assert_int_equal(run_child(name, value, text), 86);
    assert_string_equal(text, line);
}

TEST(test_refuses_bad_settings)
{
    must_refuse("GPULOG_MEMORY", "many",
                "gpulog: GPULOG_MEMORY is \"many\": must be a number from 4096 to "
                "1125899906842624, with K, M, G or T after it\n");
    must_refuse("GPULOG_MEMORY", "64Q",
                "gpulog: GPULOG_MEMORY is \"64Q\": must be a number from 4096 to "
                "1125899906842624, with K, M, G or T after it\n");
    must_refuse("GPULOG_POISON", "yes",
                "gpulog: GPULOG_POISON is \"yes\": must be a number from 0 to 1\n");
    must_refuse("GPULOG_ENTRIES", "-1",
                "gpulog: GPULOG_ENTRIES is \"-1\": must be a number from 16 to 67108864, with K, "
                "M, G or T after it\n");
}
#endif

SUITE_MAIN("gpulog/memory")
