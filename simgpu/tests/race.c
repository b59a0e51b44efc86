/* race.c: what SIMGPU_CHECK=full finds: races between streams and with the host, memory used before
 * its allocation or after its free by the order of streams. Which bytes are touched, and by whom,
 * is race_memory.c's. Beside each mistake is what looks much the same and is right: nothing may be
 * reported there.
 */
#include "race_bench.h"

// ---- Streams and events ----

RANK_TEST(test_two_streams, 2)
{
    Bench t = set_up(r);
    write_x(&t, 0, N, t.a);
    read_x(&t, 0, N, t.a); // one stream: in order
    silent(&t);
    need_cuda(cudaDeviceSynchronize());
    read_x(&t, 0, N, t.a);
    read_x(&t, 0, N, t.a);
    silent(&t);
    need_cuda(cudaDeviceSynchronize());
    write_x(&t, 0, 500, t.a);
    write_x(&t, 500, N, t.b); // neighbours
    silent(&t);
    read_x(&t, 499, 500, t.a);
    silent(&t);
    read_x(&t, 499, 500, t.b); // one byte too early
    race(&t, "byte 499 of t.x, the 1003 bytes allocated at tests/race_bench.h:");
    write_x(&t, 3, 700, t.a);
    write_x(&t, 699, N, t.b);
    race(&t, "writes byte 699 of");
    read_x(&t, 1, 8, t.a);
    write_x(&t, 7, 9, t.b);
    race(&t, "the read may already see what the other writes");
    need_nccl(ncclAllReduce(t.x, t.x, N, ncclUint8, ncclSum, r->comm, t.a));
    write_x(&t, 0, N, t.b);
    race(&t, "Or does ncclAllReduce come too early");
}

RANK_TEST(test_events_order, 1)
{
    Bench t = set_up(r);
    write_x(&t, 0, N, t.a);
    need_cuda(cudaEventRecord(t.e, t.a));
    need_cuda(cudaStreamWaitEvent(t.b, t.e, 0));
    read_x(&t, 0, N, t.b);
    silent(&t);
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaEventRecord(t.e, t.a)); // before the work
    write_x(&t, 0, N, t.a);
    need_cuda(cudaStreamWaitEvent(t.b, t.e, 0));
    read_x(&t, 0, N, t.b);
    race(&t, "before the work it should cover");
    write_x(&t, 0, N, t.a);
    need_cuda(cudaStreamWaitEvent(t.b, t.e, 0)); // before the record
    need_cuda(cudaEventRecord(t.e, t.a));
    read_x(&t, 0, N, t.b);
    race(&t, "a wait covers only records made before it");
    need_cuda(cudaStreamWaitEvent(t.b, t.f, 0)); // never recorded
    write_x(&t, 0, N, t.a);
    need_cuda(cudaEventRecord(t.f, t.a));
    read_x(&t, 0, N, t.b);
    race(&t, "was called before its event was recorded at tests/race.c:");
    check(strstr(heard->text, "be for another event?") != NULL, "no such question");
    write_x(&t, 0, N, t.a);
    need_cuda(cudaEventRecord(t.e, t.blocking)); // on another stream
    need_cuda(cudaStreamWaitEvent(t.b, t.e, 0));
    read_x(&t, 0, N, t.b);
    race(&t, "is for an event that was recorded on stream D");
    check(strstr(heard->text, "should the wait be for another event?") != NULL, "no such question");
    write_x(&t, 0, N, t.a);
    need_cuda(cudaEventRecord(t.e, t.a));
    need_cuda(cudaStreamWaitEvent(t.blocking, t.e, 0)); // the wrong one waits
    read_x(&t, 0, N, t.b);
    race(&t, "but it is stream D that waits for it");
    write_x(&t, 0, N, t.a);
    need_cuda(cudaEventRecord(t.e, t.a));
    read_x(&t, 0, N, t.b);
    race(&t, "Is there a cudaStreamWaitEvent missing?");
    write_x(&t, 0, N, t.a);
    need_cuda(cudaStreamSynchronize(t.b));
    read_x(&t, 0, N, t.b);
    race(&t, "but for stream C.");
    write_x(&t, 0, N, t.a);
    read_x(&t, 0, N, t.b);
    race(&t, "Should an event be recorded on ");
    write_x(&t, 0, N, t.a);
    need_cuda(cudaStreamSynchronize(t.a));
    read_x(&t, 0, N, t.b);
    silent(&t);
}

RANK_TEST(test_default_stream, 1)
{
    Bench t = set_up(r);
    unsigned char host[N];
    memset(host, 3, N);
    write_x(&t, 0, N, NULL);
    read_x(&t, 0, N, t.blocking);
    write_x(&t, 0, N, NULL);
    silent(&t);
    read_x(&t, 0, N, t.a);
    race(&t, "A non-blocking stream does not wait for the default stream");
    need_cuda(cudaMemset(t.x, 0, N));
    read_x(&t, 0, N, t.a);
    race(&t, "cudaMemset returns before it is done");
    need_cuda(cudaMemcpy(t.x, host, N, cudaMemcpyHostToDevice)); // pageable: may return early
    read_x(&t, 0, N, t.blocking);
    silent(&t);
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaMemcpy(t.x, host, N, cudaMemcpyHostToDevice));
    read_x(&t, 0, N, t.a);
    race(&t, "cudaMemcpy from pageable memory may return before the bytes are there");
    need_cuda(cudaMemcpy(t.x, t.pinned, N, cudaMemcpyHostToDevice)); // pinned: does not
    read_x(&t, 0, N, t.a);
    silent(&t);
    need_cuda(cudaDeviceSynchronize());
    write_x(&t, 0, N, t.blocking); // what the copy has waited for is done
    need_cuda(cudaMemcpy(t.y, host, N, cudaMemcpyHostToDevice));
    need_cuda(kernel_touch(t.x, N, 1, t.a));
    silent(&t);
    need_cuda(cudaDeviceSynchronize());
    write_x(&t, 0, N, cudaStreamPerThread);
    read_x(&t, 0, N, NULL);
    silent(&t);
    write_x(&t, 0, N, cudaStreamPerThread);
    read_x(&t, 0, N, t.blocking);
    race(&t, "the thread's own stream");
}

// Each of many operations in turn on two streams, ordered by events, and then one that is not.
RANK_TEST(test_long_chains, 1)
{
    Bench t = set_up(r);
    for (int i = 0; i < 500; i++) {
        cudaStream_t one = i % 2 ? t.a : t.b, other = i % 2 ? t.b : t.a;
        write_x(&t, i, i + 400, one);
        need_cuda(cudaEventRecord(t.e, one));
        need_cuda(cudaStreamWaitEvent(other, t.e, 0));
        read_x(&t, i + 100, i + 300, other);
        need_cuda(cudaEventRecord(t.f, other));
        need_cuda(cudaStreamWaitEvent(one, t.f, 0));
    }
    silent(&t);
    write_x(&t, 10, 11, t.a);
    for (int i = 0; i < 10; i++) read_x(&t, 10, 11, t.b); // told once
    race(&t, "byte 10 of");
}

// A stream made in the place of one that was destroyed has not waited for it.
RANK_TEST(test_streams_come_and_go, 1)
{
    Bench t = set_up(r);
    write_x(&t, 0, N, t.a);
    need_cuda(cudaStreamDestroy(t.a));
    t.a = make_stream(cudaStreamNonBlocking);
    read_x(&t, 0, N, t.a);
    race(&t, "stream B, non-blocking, (made at tests/heard.h:");
    for (int i = 0; i < 50; i++) {
        write_x(&t, 0, N, t.a);
        need_cuda(cudaStreamSynchronize(t.a));
        need_cuda(cudaStreamDestroy(t.a));
        t.a = make_stream(cudaStreamNonBlocking);
    }
    read_x(&t, 0, N, t.a);
    silent(&t);
    need_cuda(cudaSetDevice(1));
    for (int i = 0; i < 3; i++) {
        need_cuda(cudaMalloc((void **)&t.x, N));
        need_cuda(cudaMemsetAsync(t.x, 0, N, NULL));
        need_cuda(kernel_touch(t.x, N, 0, make_stream(cudaStreamDefault)));
        need_cuda(cudaDeviceReset());
    }
    need_cuda(cudaSetDevice(0));
    silent(&t);
}

// ---- Lifetime ----

RANK_TEST(test_lifetimes, 2)
{
    Bench t = set_up(r);
    unsigned char *p;
    need_cuda(cudaMallocAsync((void **)&p, N, t.a));
    need_cuda(kernel_touch(p, N, 1, t.a));
    need_cuda(cudaFreeAsync(p, t.a));
    need_cuda(cudaMallocAsync((void **)&p, N, t.a));
    need_cuda(cudaEventRecord(t.e, t.a));
    need_cuda(cudaStreamWaitEvent(t.b, t.e, 0));
    need_cuda(kernel_touch(p, N, 1, t.b));
    need_cuda(cudaFreeAsync(p, t.b));
    silent(&t);

    need_cuda(cudaMallocAsync((void **)&p, N, t.a));
    need_cuda(kernel_touch(p, N, 1, t.b));
    check(t.heard->count == 1 && t.heard->kind == SIMGPU_LIFETIME, "%d", t.heard->count);
    heard_is(t.heard, "memory is used on a stream that does not wait for its allocation",
             "cudaMallocAsync, called at tests/race.c:");
    need_cuda(cudaDeviceSynchronize());
    hear(t.heard);
    need_cuda(kernel_touch(p, N, 1, t.a));
    need_cuda(cudaFreeAsync(p, t.b));
    check(t.heard->count == 1 && t.heard->kind == SIMGPU_LIFETIME, "%d", t.heard->count);
    heard_is(t.heard, "memory is freed while another stream may still use it",
             "frees bytes 0 to 1002 of p, the 1003 bytes allocated at tests/race.c:");
    hear(t.heard);
    need_cuda(cudaMallocAsync((void **)&p, N, t.a));
    need_cuda(kernel_touch(p, N, 1, t.a));
    need_cuda(cudaStreamSynchronize(t.a));
    need_cuda(cudaFree(p));
    silent(&t);
    need_cuda(cudaMallocAsync((void **)&p, N, t.a));
    need_cuda(cudaFree(p)); // which waits for cudaMalloc's memory only
    heard_is(t.heard, "memory is freed while another stream may still use it",
             "cudaFree of memory of cudaMallocAsync waits for nothing");
    hear(t.heard);
    need_cuda(cudaMalloc((void **)&p, N));
    need_cuda(kernel_touch(p, N, 1, t.a));
    need_cuda(cudaFree(p));
    silent(&t);
}

// ---- Fewer checks ----

// With less than full none of it is looked for.
static void unchecked(const Rank *r, void *arg)
{
    Bench t = set_up(r);
    write_x(&t, 0, N, t.a);
    read_x(&t, 0, N, t.b);
    need_cuda(cudaMemcpyAsync(t.pinned, t.x, N, cudaMemcpyDeviceToHost, t.a));
    check(t.pinned[0] == 0xff, "the copy arrived at once");
    need_cuda(cudaMalloc((void **)&t.x, N));
    read_x(&t, 0, N, t.b);
    silent(&t);
}
TEST(test_unchecked)
{
    setenv("SIMGPU_CHECK", "fast", 1);
    run_ranks(1, unchecked, NULL);
    setenv("SIMGPU_CHECK", "off", 1);
    run_ranks(1, unchecked, NULL);
    unsetenv("SIMGPU_CHECK");
}

int main(int argc, char **argv)
{
    heard = shared_alloc(8 * sizeof *heard);
    return suite_main(argc, argv, "simgpu/race");
}
