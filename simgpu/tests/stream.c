/* stream.c: what is ordered before what. A copy into pinned memory is delivered only when the host
 * has waited for it, so whether it arrived shows what simgpu thinks the host knows. To look before
 * it has waited is a race with the host (simgpu/tests/race.c); here nobody minds.
 */
#include <stdlib.h>

#include "heard.h"

static Heard *heard;

#define N 37 // bytes, odd on purpose

typedef struct Box {
    unsigned char *device, *pinned;
} Box;

static Box make_box(void)
{
    Box b;
    need_cuda(cudaMalloc((void **)&b.device, N));
    need_cuda(cudaMallocHost((void **)&b.pinned, N));
    memset(b.pinned, 0, N);
    return b;
}

// On the stream: fill the device memory with `value`, and copy it to the pinned memory.
static void start(Box b, int value, cudaStream_t stream)
{
    need_cuda(cudaMemsetAsync(b.device, value, N, stream));
    need_cuda(cudaMemcpyAsync(b.pinned, b.device, N, cudaMemcpyDeviceToHost, stream));
}

#define arrived(box, value, what)                                                                  \
    do {                                                                                           \
        for (int i_ = 0; i_ < N; i_++)                                                             \
            check((box).pinned[i_] == (value), what ": byte %d is %d", i_, (box).pinned[i_]);      \
    } while (0)

static cudaEvent_t make_event(void)
{
    cudaEvent_t e;
    need_cuda(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    return e;
}

static void every_wait_delivers(const Rank *r, void *arg)
{
    Box b = make_box();
    cudaStream_t s = make_stream(cudaStreamNonBlocking);
    cudaEvent_t e = make_event();
    start(b, 1, s);
    arrived(b, 0xff, "before any wait");
    need_cuda(cudaStreamSynchronize(s));
    arrived(b, 1, "after cudaStreamSynchronize");
    start(b, 2, s);
    need_cuda(cudaDeviceSynchronize());
    arrived(b, 2, "after cudaDeviceSynchronize");
    start(b, 3, s);
    need_cuda(cudaEventRecord(e, s));
    arrived(b, 0xff, "after a record");
    need_cuda(cudaEventSynchronize(e));
    arrived(b, 3, "after cudaEventSynchronize");
    start(b, 4, s);
    check(cudaStreamQuery(s) == cudaErrorNotReady, "the first query of a stream");
    arrived(b, 0xff, "after the first cudaStreamQuery");
    need_cuda(cudaStreamQuery(s));
    arrived(b, 4, "after the second cudaStreamQuery");
    start(b, 5, s);
    need_cuda(cudaEventRecord(e, s));
    check(cudaEventQuery(e) == cudaErrorNotReady, "the first query of a record");
    arrived(b, 0xff, "after the first cudaEventQuery");
    need_cuda(cudaEventQuery(e));
    arrived(b, 5, "after the second cudaEventQuery");
    void *p;
    need_cuda(cudaMalloc(&p, 1));
    start(b, 6, s);
    need_cuda(cudaFree(p));
    arrived(b, 6, "after cudaFree, which waits for the device");
    start(b, 7, s);
    need_cuda(cudaStreamDestroy(s));
    arrived(b, 0xff, "after the stream was destroyed");
    need_cuda(cudaDeviceSynchronize());
    arrived(b, 7, "after cudaDeviceSynchronize, with the stream gone");
}
TEST(test_every_wait_delivers)
{
    setenv("SIMGPU_MACHINE", "none", 1);
    run_ranks(2, every_wait_delivers, NULL);
    unsetenv("SIMGPU_MACHINE");
}

// Without the virtual clock one answer is "not ready": that of the first query of what nobody has
// waited for.
static void queries_answer(const Rank *r, void *arg)
{
    bool off = arg != NULL;
    cudaError_t first = off ? cudaSuccess : cudaErrorNotReady;
    Box b = make_box();
    cudaStream_t s = make_stream(cudaStreamNonBlocking), idle = make_stream(cudaStreamNonBlocking);
    cudaStream_t blocking = make_stream(cudaStreamDefault);
    cudaEvent_t e = make_event(), never = make_event();
    check(cudaStreamQuery(idle) == cudaSuccess, "a stream without work");
    check(cudaEventQuery(never) == cudaSuccess, "an event that was never recorded");
    for (int round = 1; round <= 3; round++) {
        start(b, round, s);
        need_cuda(cudaEventRecord(e, s));
        check(cudaEventQuery(e) == first, "round %d: the record is new", round);
        check(cudaGetLastError() == first, "round %d: the last error is the answer", round);
        check(cudaStreamQuery(s) == first, "round %d: nobody asked for the stream", round);
        need_cuda(cudaEventQuery(e));
        arrived(b, round, "after the event was ready");
        need_cuda(cudaStreamQuery(s));
        need_cuda(cudaEventQuery(e));
        check(cudaGetLastError() == first, "only the stream's first answer was an error");
    }
    start(b, 4, s);
    need_cuda(cudaEventRecord(e, s));
    need_cuda(cudaDeviceSynchronize());
    check(cudaEventQuery(e) == cudaSuccess, "an event that the host has waited for");
    check(cudaStreamQuery(s) == cudaSuccess, "a stream that the host has waited for");
    start(b, 5, blocking);
    check(cudaStreamQuery(NULL) == first, "the default stream waits for a blocking one");
    need_cuda(cudaStreamQuery(NULL));
    arrived(b, 5, "after the default stream was ready");
    start(b, 6, blocking); // it has no work of its own in between
    check(cudaStreamQuery(NULL) == first, "the default stream waits for new work, too");
    need_cuda(cudaDeviceSynchronize());
    cudaGetLastError();
}
TEST(test_queries_answer)
{
    setenv("SIMGPU_MACHINE", "none", 1);
    run_ranks(1, queries_answer, NULL);
    setenv("SIMGPU_CHECK", "off", 1);
    run_ranks(1, queries_answer, "off");
    setenv("SIMGPU_CHECK", "fast", 1);
    unsetenv("SIMGPU_MACHINE");
}

RANK_TEST(test_other_waits_do_not, 1)
{
    Box b = make_box();
    cudaStream_t s = make_stream(cudaStreamNonBlocking), other = make_stream(cudaStreamNonBlocking);
    cudaEvent_t before = make_event();
    void *p;
    need_cuda(cudaEventRecord(before, s));
    start(b, 1, s);
    need_cuda(cudaStreamSynchronize(other));
    arrived(b, 0xff, "after another stream");
    need_cuda(cudaEventSynchronize(before));
    arrived(b, 0xff, "after an event recorded before the copy");
    need_cuda(cudaStreamSynchronize(NULL));
    arrived(b, 0xff, "after the default stream, which leaves non-blocking streams out");
    need_cuda(cudaMallocAsync(&p, 10, s));
    need_cuda(cudaFreeAsync(p, s));
    arrived(b, 0xff, "after operations of the same stream");
    need_cuda(cudaStreamSynchronize(s));
    arrived(b, 1, "after the right stream");
}

// s → event → other → event → third: who waits for the third has waited for the first.
RANK_TEST(test_waits_reach_through, 1)
{
    Box b = make_box();
    cudaStream_t s = make_stream(cudaStreamNonBlocking), other = make_stream(cudaStreamNonBlocking),
                 third = make_stream(cudaStreamNonBlocking);
    cudaEvent_t e = make_event(), f = make_event(), never = make_event();
    start(b, 1, s);
    need_cuda(cudaEventRecord(e, s));
    need_cuda(cudaStreamWaitEvent(other, e, 0));
    need_cuda(cudaEventRecord(f, other));
    need_cuda(cudaStreamWaitEvent(third, f, 0));
    need_cuda(cudaStreamWaitEvent(third, never, 0));
    arrived(b, 0xff, "when only streams wait");
    need_cuda(cudaStreamSynchronize(third));
    arrived(b, 1, "after the third stream");

    // An event stands for its last record, and a wait for the record before the call.
    need_cuda(cudaEventRecord(e, s));
    need_cuda(cudaStreamWaitEvent(other, e, 0));
    start(b, 2, s);
    need_cuda(cudaEventRecord(e, s));
    need_cuda(cudaStreamSynchronize(other));
    arrived(b, 0xff, "after a wait for the event's earlier record");
    need_cuda(cudaEventSynchronize(e));
    arrived(b, 2, "after the event's last record");
}

RANK_TEST(test_default_stream_orders, 1)
{
    Box b = make_box();
    cudaStream_t s = make_stream(cudaStreamDefault), other = make_stream(cudaStreamDefault);
    start(b, 1, s);
    need_cuda(cudaStreamSynchronize(other));
    arrived(b, 0xff, "two blocking streams are not ordered");
    need_cuda(cudaStreamSynchronize(cudaStreamLegacy));
    arrived(b, 1, "the default stream follows blocking streams");
    start(b, 2, NULL);
    arrived(b, 0xff, "before a wait");
    need_cuda(kernel_touch(b.device, 1, 0, s));
    need_cuda(cudaStreamSynchronize(s));
    arrived(b, 2, "a blocking stream follows the default stream");
    start(b, 3, s);
    need_cuda(cudaMemset(b.device, 0, N));
    need_cuda(kernel_touch(b.device, 1, 0, other));
    arrived(b, 0xff, "cudaMemset does not wait");
    need_cuda(cudaStreamSynchronize(other));
    arrived(b, 3, "s, the default stream, other");
    start(b, 4, cudaStreamPerThread);
    need_cuda(cudaStreamSynchronize(cudaStreamPerThread));
    arrived(b, 4, "the thread's own stream");
    start(b, 5, s);
    unsigned char host;
    need_cuda(cudaMemcpy(&host, b.device, 1, cudaMemcpyDeviceToHost));
    arrived(b, 5, "cudaMemcpy to the host waits for blocking streams");
}

static int seen;
static void read_last_pinned(void *arg)
{
    seen = ((Box *)arg)->pinned[N - 1];
}

RANK_TEST(test_host_functions_see_the_stream, 1)
{
    Box b = make_box();
    cudaStream_t s = make_stream(cudaStreamNonBlocking), other = make_stream(cudaStreamNonBlocking);
    start(b, 9, s);
    need_cuda(cudaLaunchHostFunc(other, read_last_pinned, &b));
    check(seen == 0xff, "a function on another stream saw %d", seen);
    need_cuda(cudaLaunchHostFunc(s, read_last_pinned, &b));
    check(seen == 9, "a function on the stream saw %d", seen);
}

RANK_TEST(test_refuses_bad_handles, 1)
{
    cudaStream_t s = make_stream(cudaStreamDefault);
    cudaEvent_t e = make_event();
    int local;
    hear(heard);
    need_cuda(cudaStreamDestroy(s));
    check(cudaStreamSynchronize(s) == cudaErrorInvalidResourceHandle, "a destroyed stream worked");
    heard_is(heard, "there is no such stream", "cudaStreamSynchronize, called at tests/stream.c:");
    check(cudaStreamDestroy(s) == cudaErrorInvalidResourceHandle, "destroyed twice");
    check(cudaMemsetAsync(NULL, 0, 0, (cudaStream_t)&local) == cudaErrorInvalidResourceHandle,
          "a wild stream worked");
    check(cudaEventRecord(e, (cudaStream_t)e) == cudaErrorInvalidResourceHandle,
          "an event as stream");
    check(cudaEventSynchronize((cudaEvent_t)make_stream(0)) == cudaErrorInvalidResourceHandle,
          "a stream as event");
    heard_is(heard, "there is no such event", "cudaEventSynchronize, called at tests/stream.c:");
    need_cuda(cudaEventDestroy(e));
    check(cudaEventDestroy(e) == cudaErrorInvalidResourceHandle, "destroyed twice");
    check(cudaStreamWaitEvent(NULL, e, 0) == cudaErrorInvalidResourceHandle, "a dead event");
    check(cudaEventRecord(e, NULL) == cudaErrorInvalidResourceHandle, "a dead event");
    check(cudaStreamCreateWithFlags(&s, 2) == cudaErrorInvalidValue, "unknown flags");
    check(cudaEventCreateWithFlags(&e, 8) == cudaErrorInvalidValue, "unknown flags");
    check(cudaStreamCreate(NULL) == cudaErrorInvalidValue, "no place for the stream");
    cudaGetLastError();
    need_cuda(cudaDeviceSynchronize()); // none of this is sticky
}

RANK_TEST(test_events_measure, 1)
{
    cudaEvent_t begin, end, untimed = make_event();
    float ms = -1;
    need_cuda(cudaEventCreate(&begin));
    need_cuda(cudaEventCreate(&end));
    check(cudaEventElapsedTime(&ms, begin, end) == cudaErrorInvalidResourceHandle,
          "never recorded");
    need_cuda(cudaEventQuery(begin));
    need_cuda(cudaEventRecord(begin, r->stream));
    need_cuda(cudaEventRecord(end, r->stream));
    need_cuda(cudaEventRecord(untimed, r->stream));
    need_cuda(cudaEventElapsedTime(&ms, begin, end));
    check(ms >= 0, "%g ms went by", ms);
    check(cudaEventElapsedTime(&ms, begin, untimed) == cudaErrorInvalidResourceHandle, "no timing");
}
// Both flags are of stream capture, which simgpu has not.
RANK_TEST(test_flags_of_capture_are_refused, 1)
{
    cudaEvent_t e;
    need_cuda(cudaEventCreate(&e));
    need_cuda(cudaEventRecordWithFlags(e, r->stream, cudaEventRecordDefault));
    need_cuda(cudaStreamWaitEvent(r->stream, e, cudaEventWaitDefault));
    check(cudaEventRecordWithFlags(e, r->stream, cudaEventRecordExternal) == cudaErrorInvalidValue,
          "cudaEventRecordExternal outside of stream capture");
    check(cudaStreamWaitEvent(r->stream, e, cudaEventWaitExternal) == cudaErrorInvalidValue,
          "cudaEventWaitExternal outside of stream capture");
    check(cudaStreamWaitEvent(r->stream, e, 2) == cudaErrorInvalidValue, "an unknown flag");
    need_cuda(cudaEventDestroy(e));
}

RANK_TEST(test_streams_say_what_they_are, 2)
{
    cudaStream_t s;
    unsigned flags;
    int priority, device;
    need_cuda(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -100));
    need_cuda(cudaStreamGetFlags(s, &flags));
    need_cuda(cudaStreamGetPriority(s, &priority));
    need_cuda(cudaStreamGetDevice(s, &device));
    check(flags == cudaStreamNonBlocking && priority == -5 && device == r->device,
          "flags %u, priority %d, device %d", flags, priority, device);
    need_cuda(cudaStreamGetFlags(NULL, &flags));
    check(flags == cudaStreamDefault, "the default stream has flags %u", flags);
}

// Slots and handles are used again; a new stream knows nothing of the one before.
RANK_TEST(test_many_come_and_go, 1)
{
    Box b = make_box();
    cudaStream_t s = make_stream(cudaStreamNonBlocking), last = NULL;
    for (int i = 0; i < 3000; i++) {
        cudaEvent_t e = make_event();
        last = make_stream(i % 2 ? cudaStreamDefault : cudaStreamNonBlocking);
        need_cuda(cudaEventRecord(e, s));
        need_cuda(cudaStreamWaitEvent(last, e, 0));
        need_cuda(cudaStreamDestroy(last));
        need_cuda(cudaEventDestroy(e));
    }
    cudaEvent_t e = make_event();
    start(b, 1, s);
    need_cuda(cudaEventRecord(e, s));
    for (int i = 0; i < 3; i++) { // streams that know of the copy, and are gone
        cudaStream_t gone = make_stream(cudaStreamNonBlocking);
        need_cuda(cudaStreamWaitEvent(gone, e, 0));
        need_cuda(cudaStreamDestroy(gone));
    }
    last = make_stream(cudaStreamNonBlocking);
    need_cuda(cudaStreamSynchronize(last));
    arrived(b, 0xff, "after a stream made later");
    need_cuda(cudaStreamSynchronize(s));
    arrived(b, 1, "after the stream");
}

int main(int argc, char **argv)
{
    setenv("SIMGPU_CHECK", "fast", 1);
    heard = shared_alloc(sizeof *heard);
    return suite_main(argc, argv, "simgpu/stream");
}
