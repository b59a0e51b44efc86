/* log.c: the operation log: what an entry holds, the order, the ring, and call sites. */
#include <stdlib.h>

#include "heard.h"

static GpuLogEntry last(void)
{
    GpuLogEntry e;
    check(gpulog_get(gpulog_length() - 1, &e), "the last entry is not there");
    return e;
}

static bool is_range(GpuRange got, const void *ptr, size_t bytes, GpuAccess access)
{
    return got.ptr == ptr && got.bytes == bytes && got.access == access;
}

// The last entry is of this kind, was made in this file, and has these properties.
#define logged(kind, call, on, waits, condition)                                                   \
    do {                                                                                           \
        GpuLogEntry e = last();                                                                    \
        char where[256];                                                                           \
        gpulog_where(e.site, where, sizeof where);                                                 \
        check(e.op == (kind) && strcmp(e.name, call) == 0, "%s was logged as %s", call, e.name);   \
        check(e.stream == (on) && e.device == r->device, "%s: wrong stream or device", call);        \
        check(e.host_waits == (waits), "%s: host_waits is %d", call, e.host_waits);                \
        check(strncmp(where, "simgpu/log.c:", 13) == 0, "%s was called at %s", call, where);       \
        check(condition, "%s: not %s", call, #condition);                                          \
    } while (0)

static void logs_every_call(const Rank *r, void *arg)
{
    char *p, *q, *pinned, host[100];
    cudaEvent_t event;
    cudaStream_t s = r->stream, blocking;
    need_cuda(cudaEventCreate(&event));
    need_cuda(cudaStreamCreate(&blocking));
    need_cuda(cudaMallocHost((void **)&pinned, 100));
    uint64_t first = gpulog_length();

    need_cuda(cudaMalloc((void **)&p, 100));
    logged(GPU_ALLOC, "cudaMalloc", NULL, true,
           e.bytes == 100 && is_range(e.range[0], p, 100, GPU_WRITE));
    need_cuda(cudaMallocAsync((void **)&q, 50, s));
    logged(GPU_ALLOC, "cudaMallocAsync", s, false, !e.blocking_stream && e.range[0].ptr == q);
    need_cuda(cudaMemsetAsync(p, 0, 99, s));
    logged(GPU_MEMSET, "cudaMemsetAsync", s, false, is_range(e.range[0], p, 99, GPU_WRITE));
    need_cuda(cudaMemset(p, 0, 98));
    logged(GPU_MEMSET, "cudaMemset", NULL, false, e.blocking_stream && e.bytes == 98);
    need_cuda(cudaMemcpyAsync(q, p + 1, 49, cudaMemcpyDeviceToDevice, blocking));
    logged(GPU_COPY, "cudaMemcpyAsync", blocking, false,
           e.n_ranges == 2 && e.blocking_stream && is_range(e.range[0], q, 49, GPU_WRITE) &&
               is_range(e.range[1], p + 1, 49, GPU_READ));
    need_cuda(cudaMemcpyAsync(host, p, 7, cudaMemcpyDeviceToHost, s));
    logged(GPU_COPY, "cudaMemcpyAsync", s, true, e.bytes == 7);
    need_cuda(cudaMemcpyAsync(pinned, p, 7, cudaMemcpyDeviceToHost, s));
    logged(GPU_COPY, "cudaMemcpyAsync", s, false, e.range[0].ptr == pinned);
    need_cuda(cudaMemcpyAsync(p, host, 7, cudaMemcpyHostToDevice, s));
    logged(GPU_COPY, "cudaMemcpyAsync", s, false, e.range[1].ptr == host);
    need_cuda(cudaMemcpy(host, p, 7, cudaMemcpyDeviceToHost));
    logged(GPU_COPY, "cudaMemcpy", NULL, true, e.bytes == 7);
    need_cuda(cudaMemcpy(q, p, 7, cudaMemcpyDeviceToDevice));
    logged(GPU_COPY, "cudaMemcpy", NULL, false, e.bytes == 7);
    need_cuda(kernel_touch(p, 3, 1, s));
    logged(GPU_KERNEL, "kernel_touch", s, false, is_range(e.range[0], p, 3, GPU_WRITE));
    need_cuda(cudaEventRecord(event, s));
    logged(GPU_EVENT_RECORD, "cudaEventRecord", s, false, e.event == event);
    need_cuda(cudaStreamWaitEvent(blocking, event, 0));
    logged(GPU_STREAM_WAIT, "cudaStreamWaitEvent", blocking, false, e.event == event);
    need_cuda(cudaEventSynchronize(event));
    logged(GPU_EVENT_SYNC, "cudaEventSynchronize", NULL, true, e.event == event);
    need_cuda(cudaStreamSynchronize(s));
    logged(GPU_STREAM_SYNC, "cudaStreamSynchronize", s, true, !e.blocking_stream);
    need_cuda(cudaDeviceSynchronize());
    logged(GPU_DEVICE_SYNC, "cudaDeviceSynchronize", NULL, true, e.n_ranges == 0);
    need_cuda(cudaFreeAsync(q, s));
    logged(GPU_FREE, "cudaFreeAsync", s, false, is_range(e.range[0], q, 50, GPU_WRITE));
    need_cuda(cudaFree(p));
    logged(GPU_FREE, "cudaFree", NULL, true, is_range(e.range[0], p, 100, GPU_WRITE));

    check(gpulog_length() - first == 18, "%lu operations",
          (unsigned long)(gpulog_length() - first));
    for (uint64_t i = 0; i < gpulog_length(); i++) {
        GpuLogEntry e;
        check(gpulog_get(i, &e) && e.index == i, "entry %lu is not in its place", (unsigned long)i);
    }
}
static void test_logs_every_call(void **state)
{
    run_ranks(3, logs_every_call, NULL);
}

static void lets_old_entries_go(const Rank *r, void *arg)
{
    GpuLogEntry e;
    char *p;
    need_cuda(cudaMalloc((void **)&p, 100));
    for (size_t i = 1; i <= 50; i++) need_cuda(kernel_touch(p, i, 0, r->stream));
    uint64_t length = gpulog_length();
    for (uint64_t back = 1; back <= 16; back++) {
        check(gpulog_get(length - back, &e), "entry %lu from the end is gone", (unsigned long)back);
        check(e.range[0].bytes == 51 - back, "entry %lu from the end is another",
              (unsigned long)back);
    }
    check(!gpulog_get(length - 17, &e), "17 entries are in a log of 16");
    check(!gpulog_get(length, &e), "an entry that is not yet made is there");
}
static void test_lets_old_entries_go(void **state)
{
    setenv("SIMGPU_LOG", "16", 1);
    run_ranks(1, lets_old_entries_go, NULL);
    unsetenv("SIMGPU_LOG");
}

static void names_places(const Rank *r, void *arg)
{
    char *p, want[64], where[256];
    need_cuda(cudaMalloc((void **)&p, 100));
    int line = __LINE__ + 1;
    cudaError_t error = kernel_touch(p, 1, 0, r->stream);
    GpuLogEntry e = last();
    snprintf(want, sizeof want, "simgpu/log.c:%d (names_places)", line);
    gpulog_where(e.site, where, sizeof where);
    check(error == cudaSuccess && strcmp(where, want) == 0, "the call is at %s, not %s", want,
          where);
    gpulog_where(e.site, where, 7);
    check(strcmp(where, "simgpu") == 0, "a short text holds %s", where);
    gpulog_where((void *)8, where, sizeof where);
    check(strcmp(where, "0x8") == 0, "nothing is known of 8, but: %s", where);
    for (int op = 0; op < GPU_OP_KINDS; op++)
        for (int other = 0; other < op; other++)
            check(strcmp(gpulog_op_name((GpuOp)op), gpulog_op_name((GpuOp)other)) != 0,
                  "operations %d and %d are both %s", op, other, gpulog_op_name((GpuOp)op));
}
static void test_names_places(void **state)
{
    run_ranks(1, names_places, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_logs_every_call),
    cmocka_unit_test(test_lets_old_entries_go),
    cmocka_unit_test(test_names_places),
};
SUITE_MAIN("simgpu/log", tests)
