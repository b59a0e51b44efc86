/* log.c: the operation log, the same on every backend: what an entry holds, the order, the ring,
 * and call sites.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cublas_v2.h>
#include <nccl.h>

#include "harness.h"
#include "kernels.h"
#include "nn.h"

int main(int argc, char **argv);

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

// The entry is of this kind, was made in this file, and has these properties.
#define is_logged(entry, kind, call, on, waits, condition)                                         \
    do {                                                                                           \
        GpuLogEntry e = (entry);                                                                   \
        char where[256];                                                                           \
        gpulog_where(e.site, where, sizeof where);                                                 \
        check(e.op == (kind) && strcmp(e.name, call) == 0, "%s was logged as %s", call, e.name);   \
        check(e.stream == (on) && e.device == r->device, "%s: wrong stream or device", call);      \
        check(e.host_waits == (waits), "%s: host_waits is %d", call, e.host_waits);                \
        check(strncmp(where, "tests/log.c:", 12) == 0, "%s was called at %s", call, where);        \
        check(condition, "%s: not %s", call, #condition);                                          \
    } while (0)
#define logged(kind, call, on, waits, condition) is_logged(last(), kind, call, on, waits, condition)

RANK_TEST(test_logs_every_call, 1, 3)
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
    need_cuda(cudaEventRecord(event, s));
    logged(GPU_EVENT_RECORD, "cudaEventRecord", s, false, e.event == event);
    need_cuda(cudaStreamWaitEvent(blocking, event, 0));
    logged(GPU_STREAM_WAIT, "cudaStreamWaitEvent", blocking, false, e.event == event);
    need_cuda(cudaMemcpyAsync(q, p + 1, 49, cudaMemcpyDeviceToDevice, blocking));
    logged(GPU_COPY, "cudaMemcpyAsync", blocking, false,
           e.n_ranges == 2 && e.blocking_stream && is_range(e.range[0], q, 49, GPU_WRITE) &&
               is_range(e.range[1], p + 1, 49, GPU_READ));
    need_cuda(cudaMemset(p, 0, 98));
    logged(GPU_MEMSET, "cudaMemset", NULL, false, e.blocking_stream && e.bytes == 98);
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
    need_cuda(cudaMemcpy2DAsync(p, 10, host, 20, 3, 4, cudaMemcpyHostToDevice, s));
    logged(GPU_COPY, "cudaMemcpy2DAsync", s, false,
           e.bytes == 12 && is_range(e.range[0], p, 33, GPU_WRITE) &&
               is_range(e.range[1], host, 63, GPU_READ));
    need_cuda(kernel_fill((float *)(void *)p, 1.0f, 3, s));
    logged(GPU_KERNEL, "kernel_fill", s, false, is_range(e.range[0], p, 12, GPU_WRITE));
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

    check(gpulog_length() - first == 19, "%lu operations",
          (unsigned long)(gpulog_length() - first));
    for (uint64_t i = 0; i < gpulog_length(); i++) {
        GpuLogEntry e;
        check(gpulog_get(i, &e) && e.index == i, "entry %lu is not in its place", (unsigned long)i);
    }
    need_cuda(cudaFreeHost(pinned));
    need_cuda(cudaStreamDestroy(blocking));
    need_cuda(cudaEventDestroy(event));
}

// A call that has nothing to do, or is refused, is not logged.
RANK_TEST(test_logs_nothing, 1)
{
    char *p, *none, host[8];
    need_cuda(cudaMalloc((void **)&p, 100));
    uint64_t before = gpulog_length();
    need_cuda(cudaMalloc((void **)&none, 0));
    need_cuda(cudaFree(NULL));
    need_cuda(cudaMemcpy(p, host, 0, cudaMemcpyHostToDevice));
    need_cuda(cudaMemsetAsync(p, 0, 0, r->stream));
    check(cudaMemcpy2D(p, 2, host, 2, 4, 2, cudaMemcpyHostToDevice) != cudaSuccess,
          "a pitch below the width is not refused");
    check(gpulog_length() == before, "%lu entries were written",
          (unsigned long)(gpulog_length() - before));
    cudaGetLastError();
    need_cuda(cudaFree(p));
}

RANK_TEST(test_logs_products, 1)
{
    const float zero = 0.0f, one = 1.0f;
    cublasHandle_t handle;
    float *x, sum;
    need_cuda(cudaMalloc((void **)&x, 400));
    need_cuda(cudaMemsetAsync(x, 0, 400, r->stream));
    check(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "no handle");
    check(cublasSetStream(handle, r->stream) == CUBLAS_STATUS_SUCCESS, "no stream");
    // A (2,3) with 4 floats from column to column, B (3,2) and C (2,2).
    check(!cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 3, &one, x, 4, x + 20, 3, &zero,
                       x + 40, 2),
          "no product");
    logged(GPU_BLAS, "cublasSgemm", r->stream, false,
           e.n_ranges == 3 && is_range(e.range[0], x, 40, GPU_READ) &&
               is_range(e.range[1], x + 20, 24, GPU_READ) &&
               is_range(e.range[2], x + 40, 16, GPU_WRITE));
    check(!cublasSgemv(handle, CUBLAS_OP_T, 2, 3, &one, x, 4, x + 20, 2, &one, x + 40, 1),
          "no product");
    logged(GPU_BLAS, "cublasSgemv", r->stream, false,
           e.n_ranges == 3 && is_range(e.range[0], x, 40, GPU_READ) &&
               is_range(e.range[1], x + 20, 12, GPU_READ) &&
               is_range(e.range[2], x + 40, 12, GPU_UPDATE));
    // Two products; the second A lies 8 floats in front of the first, and B is the same for both.
    check(!cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_T, 2, 2, 1, &one, x + 8, 2, -8,
                                     x + 20, 2, 0, &one, x + 40, 2, 4, 2),
          "no product");
    logged(GPU_BLAS, "cublasSgemmStridedBatched", r->stream, false,
           e.n_ranges == 3 && is_range(e.range[0], x, 40, GPU_READ) &&
               is_range(e.range[1], x + 20, 8, GPU_READ) &&
               is_range(e.range[2], x + 40, 32, GPU_UPDATE));
    // The gaps between the elements keep their values.
    check(!cublasScopy(handle, 3, x, 1, x + 20, 2), "no copy");
    logged(GPU_BLAS, "cublasScopy", r->stream, false,
           is_range(e.range[0], x, 12, GPU_READ) && is_range(e.range[1], x + 20, 20, GPU_UPDATE));
    check(!cublasScopy(handle, 3, x, 2, x + 20, 1), "no copy");
    logged(GPU_BLAS, "cublasScopy", r->stream, false,
           is_range(e.range[0], x, 20, GPU_READ) && is_range(e.range[1], x + 20, 12, GPU_WRITE));
    check(!cublasSdot(handle, 5, x, 2, x + 20, 1, &sum), "no product");
    logged(GPU_BLAS, "cublasSdot", r->stream, true,
           e.n_ranges == 2 && is_range(e.range[0], x, 36, GPU_READ) &&
               is_range(e.range[1], x + 20, 20, GPU_READ));
    check(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS, "the handle stays");
    need_cuda(cudaFree(x));
}

RANK_TEST(test_logs_collectives, 1, 2)
{
    float *x;
    size_t world = (size_t)r->world;
    cudaStream_t s = r->stream;
    need_cuda(cudaMalloc((void **)&x, 4000));
    need_cuda(cudaMemset(x, 0, 4000));
    need_cuda(cudaDeviceSynchronize());
    need_nccl(ncclAllGather(x + 10 * r->rank, x, 10, ncclFloat, r->comm, s));
    logged(GPU_ALL_GATHER, "ncclAllGather", s, false,
           e.bytes == 40 * world && e.sent == 40 * (world - 1) && e.n_ranges == 2 &&
               is_range(e.range[0], x + 10 * r->rank, 40, GPU_READ) &&
               is_range(e.range[1], x, 40 * world, GPU_WRITE));
    uint64_t before = gpulog_length();
    need_nccl(ncclGroupStart());
    need_nccl(ncclReduceScatter(x, x + 500, 5, ncclFloat, ncclSum, r->comm, s));
    need_nccl(ncclAllReduce(x + 200, x + 200, 6, ncclFloat, ncclSum, r->comm, s));
    check(gpulog_length() == before, "a call of a group is logged before the group's end");
    need_nccl(ncclGroupEnd());
    check(gpulog_length() == before + 2, "a group of two calls is not two entries");
    GpuLogEntry first;
    check(gpulog_get(before, &first), "the group's first call is not there");
    is_logged(first, GPU_REDUCE_SCATTER, "ncclReduceScatter", s, false,
              e.bytes == 20 * world && e.sent == 20 * (world - 1) &&
                  is_range(e.range[0], x, 20 * world, GPU_READ) &&
                  is_range(e.range[1], x + 500, 20, GPU_WRITE));
    logged(GPU_ALL_REDUCE, "ncclAllReduce", s, false,
           e.bytes == 24 && e.sent == 2 * (world - 1) * 24 / world);
    need_cuda(cudaFree(x));
}

static void lets_old_entries_go(const Rank *r, void *arg)
{
    GpuLogEntry e;
    float *p;
    need_cuda(cudaMalloc((void **)&p, 400));
    for (size_t i = 1; i <= 50; i++) need_cuda(kernel_fill(p, 0, i, r->stream));
    uint64_t length = gpulog_length();
    for (uint64_t back = 1; back <= 16; back++) {
        check(gpulog_get(length - back, &e), "entry %lu from the end is gone", (unsigned long)back);
        check(e.range[0].bytes == 4 * (51 - back), "entry %lu from the end is another",
              (unsigned long)back);
    }
    check(!gpulog_get(length - 17, &e), "17 entries are in a log of 16");
    check(!gpulog_get(length, &e), "an entry that is not yet made is there");
    need_cuda(cudaFree(p));
}
TEST(test_lets_old_entries_go)
{
    setenv("SIMGPU_LOG", "16", 1);
    setenv("GPULOG_ENTRIES", "16", 1);
    run_ranks(1, lets_old_entries_go, NULL);
    unsetenv("SIMGPU_LOG");
    unsetenv("GPULOG_ENTRIES");
}

static void is_called_at(const void *site, int line, const char *function)
{
    char want[128], where[256];
    snprintf(want, sizeof want, "tests/log.c:%d (%s)", line, function);
    gpulog_where(site, where, sizeof where);
    check(strcmp(where, want) == 0, "the call is at %s, and said to be at %s", want, where);
}

RANK_TEST(test_names_places, 1)
{
    float *p;
    char where[256];
    need_cuda(cudaMalloc((void **)&p, 100));
    int line = __LINE__ + 1;
    need_cuda(kernel_fill(p, 0, 1, r->stream));
    GpuLogEntry e = last();
    is_called_at(e.site, line, "test_names_places_body");
    line = __LINE__ + 1;
    need_cuda(cudaFree(p));
    is_called_at(last().site, line, "test_names_places_body");
    gpulog_where(last().site, where, 7);
    check(strcmp(where, "tests/") == 0, "a short text holds %s", where);
    gpulog_where((void *)8, where, sizeof where);
    check(strcmp(where, "0x8") == 0, "nothing is known of 8, but: %s", where);
    for (int op = 0; op < GPU_OP_KINDS; op++)
        for (int other = 0; other < op; other++)
            check(strcmp(gpulog_op_name((GpuOp)op), gpulog_op_name((GpuOp)other)) != 0,
                  "operations %d and %d are both %s", op, other, gpulog_op_name((GpuOp)op));
}
// A call in given code counts as given code's, until this file is declared the program's own.
Status run_alloc(NnRun *run, float **x, size_t n);
RANK_TEST(test_names_the_programs_places, 1)
{
    NnRun run;
    float *x, *y;
    char where[256];
    need(nn_run_create(&run, r->stream));
    need(run_alloc(&run, &x, 4));
    gpulog_where(last().site, where, sizeof where);
    check(strstr(where, "nn/run.c:") == where, "the call is at %s", where);
    gpulog_own_code((const void *)main);
    gpulog_own_code(NULL);
    gpulog_where(last().site, where, sizeof where);
    check(strstr(where, "tests/log.c:") == where, "the call is at %s", where);
    int line = __LINE__ + 1;
    need(run_alloc(&run, &y, 4));
    is_called_at(last().site, line, "test_names_the_programs_places_body");
    need_cuda(cudaFreeAsync(x, r->stream));
    need_cuda(cudaFreeAsync(y, r->stream));
    need(nn_run_destroy(&run));
}
// Names are for reports: they do not change the log.
RANK_TEST(test_names_change_nothing, 1)
{
    cudaStream_t stream;
    void *p;
    need_cuda(cudaMalloc(&p, 4));
    for (int i = 0; i < 600; i++) { // more than can have a name at one time
        need_cuda(cudaStreamCreate(&stream));
        gpulog_name_stream(stream, "streams[%d]", i);
        need_cuda(cudaMemsetAsync(p, 0, 4, stream));
        logged(GPU_MEMSET, "cudaMemsetAsync", stream, false, e.blocking_stream);
        need_cuda(cudaStreamSynchronize(stream));
        need_cuda(cudaStreamDestroy(stream));
        gpulog_name_stream(stream, "gone"); // a destroyed stream's handle
    }
    gpulog_name_stream(NULL, "the default stream");
    gpulog_name_stream(cudaStreamPerThread, "the thread's stream");
    gpulog_name_elements(NULL, NULL);
    need_cuda(cudaMemset(p, 0, 4));
    check(last().stream == NULL && last().op == GPU_MEMSET, "the default stream has another name");
    need_cuda(cudaFree(p));
}

// The logged operations need no order, so simgpu does not look for races.
int main(int argc, char **argv)
{
    setenv("SIMGPU_CHECK", "fast", 1);
    return suite_main(argc, argv, "gpulog/log");
}
