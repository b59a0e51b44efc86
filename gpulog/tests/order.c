/* gpulog_order.h on short programs of real stream calls whose order is known, with the event that
 * makes them safe and without it. Each program runs on one rank and asks about itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define N 1024 // floats in a buffer
#define BYTES (N * sizeof(float))

typedef struct Bench {
    cudaStream_t a, b; // non-blocking
    cudaStream_t blocking;
    cudaEvent_t event, other;
    float *x, *y;   // device (N)
    uint64_t first; // the log's length when the program began
} Bench;

static Bench set_up(void)
{
    Bench bench;

    need_cuda(cudaStreamCreateWithFlags(&bench.a, cudaStreamNonBlocking));
    need_cuda(cudaStreamCreateWithFlags(&bench.b, cudaStreamNonBlocking));
    need_cuda(cudaStreamCreate(&bench.blocking));
    need_cuda(cudaEventCreateWithFlags(&bench.event, cudaEventDisableTiming));
    need_cuda(cudaEventCreateWithFlags(&bench.other, cudaEventDisableTiming));
    need_cuda(cudaMalloc((void **)&bench.x, BYTES));
    need_cuda(cudaMalloc((void **)&bench.y, BYTES));
    bench.first = gpulog_length();
    return bench;
}

static uint64_t write_x(const Bench *bench, cudaStream_t stream)
{
    need_cuda(cudaMemsetAsync(bench->x, 0, BYTES, stream));
    return gpulog_length() - 1;
}

static uint64_t read_x(const Bench *bench, cudaStream_t stream)
{
    need_cuda(cudaMemcpyAsync(bench->y, bench->x, BYTES, cudaMemcpyDeviceToDevice, stream));
    return gpulog_length() - 1;
}

static void wait_for(cudaStream_t from, cudaEvent_t event, cudaStream_t to)
{
    need_cuda(cudaEventRecord(event, from));
    need_cuda(cudaStreamWaitEvent(to, event, 0));
}

#define expect_order(before, after, want)                                                          \
    check(gpulog_ordered(before, after) == (want), "%s before %s is %s", #before, #after,          \
          (want) ? "certain, and gpulog_ordered says no"                                           \
                 : "not certain, and gpulog_ordered says yes")

static void expect_race_at(int line, const Bench *bench, const char *words)
{
    char text[1000];
    bool found = gpulog_race(bench->first, text, sizeof text);

    if (found != (words != NULL) || (words && !strstr(text, words)))
        rank_fails(__FILE__, line, "gpulog_race says \"%s\", must say \"%s\"",
                   found ? text : "none", words ? words : "none");
}
#define expect_race(bench, words) expect_race_at(__LINE__, bench, words)

// ---- Streams and events ----

RANK_TEST(test_same_stream, 1)
{
    Bench bench = set_up();
    uint64_t w = write_x(&bench, bench.a), read = read_x(&bench, bench.a);
    expect_order(w, read, true);
    expect_order(read, w, false);
    expect_order(w, w, false);
    expect_race(&bench, NULL);
}

RANK_TEST(test_no_event, 1)
{
    Bench bench = set_up();
    uint64_t w = write_x(&bench, bench.a), read = read_x(&bench, bench.b);
    expect_order(w, read, false);
    expect_order(read, w, false);
    expect_race(&bench, "reads 4096 bytes that ");
    expect_race(&bench, "on stream A writes: nothing orders the two");
    expect_race(&bench, "tests/order.c:");
}

RANK_TEST(test_event, 1)
{
    Bench bench = set_up();
    uint64_t w = write_x(&bench, bench.a);
    wait_for(bench.a, bench.event, bench.b);
    uint64_t read = read_x(&bench, bench.b);
    expect_order(w, read, true);
    expect_race(&bench, NULL);
}

// Recorded too early: the write is after the event.
RANK_TEST(test_early_event, 1)
{
    Bench bench = set_up();
    need_cuda(cudaEventRecord(bench.event, bench.a));
    uint64_t w = write_x(&bench, bench.a);
    need_cuda(cudaStreamWaitEvent(bench.b, bench.event, 0));
    uint64_t read = read_x(&bench, bench.b);
    expect_order(w, read, false);
    expect_race(&bench, "nothing orders the two");
}

// A wait on an event that was never recorded is no wait.
RANK_TEST(test_event_without_record, 1)
{
    Bench bench = set_up();
    uint64_t w = write_x(&bench, bench.a);
    need_cuda(cudaStreamWaitEvent(bench.b, bench.event, 0));
    uint64_t read = read_x(&bench, bench.b);
    need_cuda(cudaEventRecord(bench.event, bench.a));
    expect_order(w, read, false);
}

// A wait follows what the event had captured by then. A later record does not change that wait, and
// a wait after the record follows the new capture.
RANK_TEST(test_recorded_again, 1)
{
    Bench bench = set_up();
    uint64_t first = write_x(&bench, bench.a);
    wait_for(bench.a, bench.event, bench.b);
    uint64_t second = write_x(&bench, bench.a);
    need_cuda(cudaEventRecord(bench.event, bench.a));
    uint64_t read = read_x(&bench, bench.b);
    need_cuda(cudaStreamWaitEvent(bench.b, bench.event, 0));
    uint64_t later = read_x(&bench, bench.b);
    expect_order(first, read, true);
    expect_order(second, read, false);
    expect_order(second, later, true);
    expect_race(&bench, "nothing orders the two");
}

// An event that is recorded again on another stream drops its earlier capture.
RANK_TEST(test_recorded_elsewhere, 1)
{
    Bench bench = set_up();
    uint64_t w = write_x(&bench, bench.a);
    need_cuda(cudaEventRecord(bench.event, bench.a));
    need_cuda(cudaEventRecord(bench.event, bench.blocking));
    need_cuda(cudaStreamWaitEvent(bench.b, bench.event, 0));
    uint64_t read = read_x(&bench, bench.b);
    expect_order(w, read, false);
    expect_race(&bench, "nothing orders the two");
}

// Order passes through a third stream.
RANK_TEST(test_two_hops, 1)
{
    Bench bench = set_up();
    uint64_t w = write_x(&bench, bench.a);
    wait_for(bench.a, bench.event, bench.blocking);
    wait_for(bench.blocking, bench.other, bench.b);
    uint64_t read = read_x(&bench, bench.b);
    expect_order(w, read, true);
    expect_race(&bench, NULL);
}

// ---- The default stream ----

RANK_TEST(test_default_stream, 1)
{
    Bench bench = set_up();
    uint64_t w1 = write_x(&bench, bench.blocking), r1 = read_x(&bench, NULL);
    uint64_t w2 = write_x(&bench, NULL), r2 = read_x(&bench, bench.blocking);

    expect_order(w1, r1, true);
    expect_order(w2, r2, true);
    expect_race(&bench, NULL);
}

RANK_TEST(test_default_and_non_blocking, 1)
{
    Bench bench = set_up();
    uint64_t w = write_x(&bench, NULL), read = read_x(&bench, bench.a);
    expect_order(w, read, false);
    expect_race(&bench, "on the default stream writes");
}

// Two blocking streams are not in order with each other, unless the default stream has work in
// between.
RANK_TEST(test_default_in_between, 1)
{
    Bench bench = set_up();
    cudaStream_t second;

    need_cuda(cudaStreamCreate(&second));
    uint64_t w = write_x(&bench, bench.blocking), read = read_x(&bench, second);
    expect_order(w, read, false);
    need_cuda(cudaMemsetAsync(bench.y, 0, 4, NULL));
    uint64_t r2 = read_x(&bench, second);
    expect_order(w, r2, true);
    expect_order(read, r2, true);
}

// ---- The host ----

RANK_TEST(test_stream_sync, 1)
{
    Bench bench = set_up();
    uint64_t w = write_x(&bench, bench.a), other = read_x(&bench, bench.blocking);
    need_cuda(cudaStreamSynchronize(bench.a));
    uint64_t read = read_x(&bench, bench.b);
    expect_order(w, read, true);
    expect_order(other, read, false);
}

RANK_TEST(test_event_sync, 1)
{
    Bench bench = set_up();
    uint64_t w = write_x(&bench, bench.a);
    need_cuda(cudaEventRecord(bench.event, bench.a));
    uint64_t behind = write_x(&bench, bench.a);
    need_cuda(cudaEventSynchronize(bench.event));
    uint64_t read = read_x(&bench, bench.b);
    expect_order(w, read, true);
    expect_order(behind, read, false);
}

RANK_TEST(test_device_sync, 1)
{
    Bench bench = set_up();
    uint64_t w = write_x(&bench, bench.a), r1 = read_x(&bench, bench.blocking);
    need_cuda(cudaDeviceSynchronize());
    uint64_t read = read_x(&bench, bench.b);
    expect_order(w, read, true);
    expect_order(r1, read, true);
    expect_order(w, r1, false);
}

// cudaMemcpy to pageable memory returns when the bytes are there.
RANK_TEST(test_copy_to_host, 1)
{
    Bench bench = set_up();
    static float host[N];
    uint64_t w = write_x(&bench, bench.blocking);

    need_cuda(cudaMemcpy(host, bench.x, BYTES, cudaMemcpyDeviceToHost));
    uint64_t read = write_x(&bench, bench.b);
    expect_order(w, read, true);
    expect_race(&bench, NULL);
}

// ---- What is a race ----

RANK_TEST(test_two_readers, 1)
{
    Bench bench = set_up();
    float *z;
    need_cuda(cudaMalloc((void **)&z, BYTES));
    need_cuda(cudaMemsetAsync(bench.x, 0, BYTES, bench.a));
    need_cuda(cudaDeviceSynchronize());
    uint64_t first = gpulog_length();
    need_cuda(cudaMemcpyAsync(bench.y, bench.x, BYTES, cudaMemcpyDeviceToDevice, bench.a));
    need_cuda(cudaMemcpyAsync(z, bench.x, BYTES, cudaMemcpyDeviceToDevice, bench.b));
    bench.first = first;
    expect_race(&bench, NULL);
}

// Two halves of one allocation do not race; with one shared float they do.
RANK_TEST(test_byte_ranges, 1)
{
    Bench bench = set_up();
    need_cuda(cudaMemsetAsync(bench.x, 0, BYTES / 2, bench.a));
    need_cuda(cudaMemsetAsync(bench.x + N / 2, 0, BYTES / 2, bench.b));
    expect_race(&bench, NULL);
    need_cuda(cudaMemsetAsync(bench.x + N / 2 - 1, 0, 8, bench.b));
    expect_race(&bench, "writes 4 bytes that ");
}

// Only operations from `first` on are compared.
RANK_TEST(test_from, 1)
{
    Bench bench = set_up();
    write_x(&bench, bench.a);
    read_x(&bench, bench.b);
    expect_race(&bench, "nothing orders the two");
    need_cuda(cudaDeviceSynchronize());
    bench.first = gpulog_length();
    read_x(&bench, bench.a);
    expect_race(&bench, NULL);
}

// A stream's read does not hide its own earlier write.
RANK_TEST(test_write_then_read, 1)
{
    Bench bench = set_up();
    float *z;
    need_cuda(cudaMalloc((void **)&z, BYTES));
    write_x(&bench, bench.a);
    read_x(&bench, bench.a);
    need_cuda(cudaMemcpyAsync(z, bench.x, BYTES, cudaMemcpyDeviceToDevice, bench.b));
    expect_race(&bench, "reads 4096 bytes that ");
}

// A read between two writes hides neither from the other.
RANK_TEST(test_last_write_counts, 1)
{
    Bench bench = set_up();
    write_x(&bench, bench.a);
    wait_for(bench.a, bench.event, bench.b);
    read_x(&bench, bench.b);
    expect_race(&bench, NULL);
    write_x(&bench, bench.a); // nothing waits for the reader
    expect_race(&bench, "writes 4096 bytes that ");
}

// ---- Allocations ----

RANK_TEST(test_alloc_on_another_stream, 1)
{
    Bench bench = set_up();
    float *p;
    need_cuda(cudaMallocAsync((void **)&p, BYTES, bench.a));
    wait_for(bench.a, bench.event, bench.b);
    need_cuda(cudaMemsetAsync(p, 0, BYTES, bench.b));
    expect_race(&bench, NULL);

    float *q;
    need_cuda(cudaMallocAsync((void **)&q, BYTES, bench.a));
    need_cuda(cudaMemsetAsync(q, 0, BYTES, bench.b));
    expect_race(&bench, "on stream A allocates: nothing orders the two");
}

RANK_TEST(test_free_too_early, 1)
{
    Bench bench = set_up();
    float *p;
    need_cuda(cudaMallocAsync((void **)&p, BYTES, bench.a));
    wait_for(bench.a, bench.event, bench.b);
    need_cuda(cudaMemsetAsync(p, 0, BYTES, bench.b));
    need_cuda(cudaFreeAsync(p, bench.a));
    expect_race(&bench, "cudaFreeAsync at tests/order.c:");
    expect_race(&bench, "frees 4096 bytes that ");
}

RANK_TEST(test_free_in_order, 1)
{
    Bench bench = set_up();
    float *p;
    for (int i = 0; i < 20; i++) { // the address is used again and again
        cudaStream_t from = i % 2 ? bench.a : bench.b, to = i % 2 ? bench.b : bench.a;
        need_cuda(cudaMallocAsync((void **)&p, BYTES, from));
        need_cuda(cudaMemsetAsync(p, 0, BYTES, from));
        wait_for(from, bench.event, to);
        need_cuda(cudaMemsetAsync(p, 1, BYTES, to));
        wait_for(to, bench.other, from);
        need_cuda(cudaFreeAsync(p, from));
    }
    expect_race(&bench, NULL);
}

// Two allocations have the same address in turn, on streams without an order between them.
RANK_TEST(test_address_used_again, 1)
{
    Bench bench = set_up();
    float *p, *q;
    need_cuda(cudaMalloc((void **)&p, BYTES));
    need_cuda(cudaMemsetAsync(p, 0, BYTES, bench.a));
    need_cuda(cudaFree(p));
    need_cuda(cudaMalloc((void **)&q, BYTES));
    need_cuda(cudaMemsetAsync(q, 0, BYTES, bench.b));
    need_cuda(cudaFree(q));
    expect_race(&bench, NULL);
}

// ---- Collectives, looking things up, long logs ----

RANK_TEST(test_collective, 2)
{
    Bench bench = set_up();
    write_x(&bench, r->stream);
    wait_for(r->stream, bench.event, bench.a);
    float *all;
    need_cuda(cudaMalloc((void **)&all, BYTES * (size_t)r->world));
    need_nccl(ncclAllGather(bench.x, all, N, ncclFloat, r->comm, bench.a));
    expect_race(&bench, NULL);
    need_cuda(cudaMemsetAsync(all, 0, 4, r->stream));
    expect_race(&bench, "writes 4 bytes that ncclAllGather at tests/order.c:");
}

// A hundred thousand operations that overlap in a few buffers, all in order but the last.
RANK_TEST(test_long_log, 1)
{
    Bench bench = set_up();
    for (int i = 0; i < 12500; i++) {
        need_cuda(cudaMemsetAsync(bench.x + i % 7, 0, 64, bench.a));
        need_cuda(cudaMemsetAsync(bench.x + 100 + i % 5, 0, 64, bench.a));
        wait_for(bench.a, bench.event, bench.b);
        need_cuda(cudaMemsetAsync(bench.x + i % 11, 0, 64, bench.b));
        need_cuda(cudaMemsetAsync(bench.x + 100, 0, 64, bench.b));
        wait_for(bench.b, bench.other, bench.a);
    }
    expect_race(&bench, NULL);
    need_cuda(cudaMemsetAsync(bench.x + 15, 0, 8, bench.a));
    need_cuda(cudaMemsetAsync(bench.x + 16, 0, 8, bench.b));
    expect_race(&bench, "writes 4 bytes that ");
}

// An operation that is not in the log has no order, and no search finds it.
RANK_TEST(test_not_in_the_log, 1)
{
    Bench bench = set_up();
    uint64_t w = write_x(&bench, bench.a), next = gpulog_length();
    check(gpulog_has_order(w) && !gpulog_has_order(next), "it knows %d of the last, %d of the next",
          gpulog_has_order(w), gpulog_has_order(next));
    expect_order(w, next, false);
    expect_order(next, w, false);
    expect_order(UINT64_MAX, w, false);
    check(gpulog_find(GPU_MEMSET, NULL, next) == -1, "a memset is found before it is logged");
    write_x(&bench, bench.a);
    check(gpulog_has_order(next), "the next operation is logged, and its order is unknown");
    expect_order(w, next, true);
}

RANK_TEST(test_looking_up, 1)
{
    Bench bench = set_up();
    uint64_t w = write_x(&bench, bench.a), read = read_x(&bench, bench.a);
    uint64_t again = write_x(&bench, bench.b);

    check(gpulog_find(GPU_MEMSET, NULL, bench.first) == (int64_t)w, "the first memset is another");
    check(gpulog_find(GPU_MEMSET, NULL, w + 1) == (int64_t)again, "the second memset is another");
    check(gpulog_find(GPU_COPY, "cudaMemcpyAsync", bench.first) == (int64_t)read,
          "the copy is not there");
    check(gpulog_find(GPU_COPY, "cudaMemcpy", bench.first) == -1, "a copy has another's name");
    check(gpulog_count(GPU_MEMSET, bench.first) == 2, "%llu memsets",
          (unsigned long long)gpulog_count(GPU_MEMSET, bench.first));
    check(gpulog_count(GPU_MEMSET, again) == 1 && gpulog_count(GPU_FREE, bench.first) == 0,
          "an earlier operation is counted, or one that is not in the log");
}

// simgpu's own check for races would end most of these programs.
int main(int argc, char **argv)
{
    setenv("SIMGPU_CHECK", "fast", 1);
    return suite_main(argc, argv, "gpulog/order");
}
