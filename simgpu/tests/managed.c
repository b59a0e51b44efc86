/* Managed memory: one pointer for the host, kernels of every device, copies and collectives; what
 * is freed, or lies behind its pages, is device memory to the host. Hints change nothing and check
 * their arguments. What simgpu does not do says so.
 */
#include <cuda_profiler_api.h>
#include <string.h>
#include <unistd.h>

#include "heard.h"

enum { COUNT = 1000 };

RANK_TEST(test_one_pointer_for_all, 1, 2, 3)
{
    unsigned char *p;
    unsigned *sum;
    need_cuda(cudaMallocManaged((void **)&p, COUNT, cudaMemAttachGlobal));
    need_cuda(cudaMallocManaged((void **)&sum, sizeof *sum, cudaMemAttachHost));
    check((uintptr_t)p % (uintptr_t)sysconf(_SC_PAGESIZE) == 0, "%p begins no page", (void *)p);
    for (int i = 0; i < COUNT; i++) p[i] = (unsigned char)(r->rank + 1); // the host writes
    need_cuda(kernel_sum_bytes(sum, p, COUNT, r->stream));               // a kernel reads
    need_cuda(cudaStreamSynchronize(r->stream));
    check(*sum == (unsigned)(r->rank + 1) * COUNT, "the sum is %u", *sum);
    need_nccl(ncclAllReduce(p, p, COUNT, ncclUint8, ncclSum, r->comm, r->stream)); // so does NCCL
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < COUNT; i++)
        check(p[i] == r->world * (r->world + 1) / 2, "byte %d is %d", i, p[i]);

    unsigned char host[COUNT];
    need_cuda(cudaMemcpy(host, p, COUNT, cudaMemcpyDeviceToHost)); // either kind will do
    need_cuda(cudaMemcpy(p, host, COUNT, cudaMemcpyHostToHost));
    need_cuda(cudaMemcpy(p, host, COUNT, cudaMemcpyDefault));
    struct cudaPointerAttributes a;
    need_cuda(cudaPointerGetAttributes(&a, p + 7));
    check(a.type == cudaMemoryTypeManaged && a.device == r->device && a.hostPointer == p + 7 &&
              a.devicePointer == p + 7,
          "type %d, device %d", (int)a.type, a.device);
    need_cuda(cudaFree(p));
    need_cuda(cudaFree(sum));
}

// Memory that was made while one device was current, on another one: no peer access is needed.
RANK_TEST(test_on_every_device, 1)
{
    unsigned char *p;
    need_cuda(cudaMallocManaged((void **)&p, COUNT, cudaMemAttachGlobal));
    need_cuda(cudaSetDevice(r->device + 1));
    need_cuda(kernel_touch(p, COUNT, 5, NULL));
    need_cuda(cudaDeviceSynchronize());
    check(p[0] == 5 && p[COUNT - 1] == 5, "the kernel wrote %d and %d", p[0], p[COUNT - 1]);
    need_cuda(cudaSetDevice(r->device));
    need_cuda(cudaFree(p));
}

// Plain allocations between managed ones stay closed, and pages are given back.
RANK_TEST(test_among_others, 1)
{
    enum { N = 200 };
    char *p[N];
    size_t before = gpulog_live_bytes(r->device), asked = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            size_t bytes = 1 + (size_t)(i * 977 % 9000);
            asked += bytes;
            if (i % 2)
                need_cuda(cudaMalloc((void **)&p[i], bytes));
            else
                need_cuda(cudaMallocManaged((void **)&p[i], bytes, cudaMemAttachGlobal));
            if (i % 2 == 0) memset(p[i], i, bytes);
        }
        check(gpulog_live_bytes(r->device) == before + asked, "%zu bytes are in use",
              gpulog_live_bytes(r->device));
        for (int i = 0; i < N; i += 2)
            check(p[i][i * 977 % 9000] == (char)i, "allocation %d was written by another", i);
        for (int i = 0; i < N; i++) need_cuda(cudaFree(p[i]));
        asked = 0;
    }
}

// ---- The host where it may not be ----

typedef struct Touch {
    Heard heard;
    int freed, neighbour;
} Touch;

static void touch_wrongly(const Rank *r, void *arg)
{
    Touch *t = arg;
    char *p, *q;
    need_cuda(cudaMallocManaged((void **)&p, COUNT, cudaMemAttachGlobal));
    need_cuda(cudaMalloc((void **)&q, COUNT));
    *(volatile char *)p = 1;
    if (t->freed) need_cuda(cudaFree(p));
    hear(&t->heard);
    *(volatile char *)(t->neighbour ? q : p) = 2;
    check(false, "the write went through");
}

TEST(test_the_host_where_it_may_not_be)
{
    for (int freed = 0; freed < 2; freed++) {
        Touch *t = shared_alloc(sizeof *t);
        t->freed = freed;
        t->neighbour = !freed;
        free(run_ranks_message(1, 10, touch_wrongly, t));
        assert_int_equal(t->heard.count, 1);
        assert_string_equal(t->heard.title, "host code touches device memory");
        if (freed && !strstr(t->heard.text, "and freed at")) fail_msg("%s", t->heard.text);
    }
}

// ---- Arguments ----

RANK_TEST(test_hints, 1)
{
    char *p, *plain;
    struct cudaMemLocation here = {cudaMemLocationTypeDevice, r->device},
                           host = {cudaMemLocationTypeHost, 0},
                           nowhere = {cudaMemLocationTypeDevice, 99};
    need_cuda(cudaMalloc((void **)&plain, COUNT));
    need_cuda(cudaMallocManaged((void **)&p, COUNT, cudaMemAttachGlobal));
    need_cuda(cudaMemAdvise(p, COUNT, cudaMemAdviseSetPreferredLocation, here));
    need_cuda(cudaMemPrefetchAsync(p, COUNT, here, 0, r->stream));
    need_cuda(cudaMemPrefetchAsync(p + 10, 5, host, 0, r->stream));
    need_cuda(cudaStreamAttachMemAsync(r->stream, p, 0, cudaMemAttachSingle));
    need_cuda(cudaProfilerStart());
    need_cuda(cudaProfilerStop());
    check(cudaMemPrefetchAsync(p, COUNT, nowhere, 0, r->stream) == cudaErrorInvalidDevice, "where");
    check(cudaMemPrefetchAsync(p, COUNT, here, 1, r->stream) == cudaErrorInvalidValue, "flags");
    check(cudaMallocManaged((void **)&p, 0, cudaMemAttachGlobal) == cudaErrorInvalidValue, "size");
    check(cudaMallocManaged((void **)&p, 8, 9) == cudaErrorInvalidValue, "flags");
    Heard *heard = hear(shared_alloc(sizeof(Heard)));
    check(cudaMemPrefetchAsync(plain, COUNT, here, 0, r->stream) == cudaErrorInvalidValue, "plain");
    heard_is(heard, "a hint for memory that is not managed", "cudaMemPrefetchAsync");
    need_cuda(cudaFree(p));
    need_cuda(cudaFree(plain));
    cudaGetLastError();
}

RANK_TEST(test_pitch, 1)
{
    char *p, *other;
    size_t row;
    need_cuda(cudaMallocPitch((void **)&p, &row, 700, 3));
    check(row >= 700 && row % 256 == 0, "a row has %zu bytes", row);
    need_cuda(cudaMemset2D(p, row, 1, 700, 3));
    check(cudaMallocPitch((void **)&other, &row, SIZE_MAX / 2, 3) == cudaErrorMemoryAllocation,
          "it is too large");
    need_cuda(cudaFree(p));
    cudaGetLastError();
}

RANK_TEST(test_refused, 1)
{
    cudaIpcMemHandle_t handle;
    Heard *heard = hear(shared_alloc(sizeof(Heard)));
    check(cudaIpcGetMemHandle(&handle, r->comm) == cudaErrorNotSupported, "another process");
    heard_is(heard, "simgpu does not implement this call", "NCCL");
    check(cudaGetLastError() == cudaErrorNotSupported, "the last error");
}

SUITE_MAIN("managed")
