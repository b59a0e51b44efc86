/* race_memory.c: races as race.c has them, by which bytes of memory an operation touches, and who:
 * uninitialised bytes, collectives, rows and columns, products, the host, other devices, threads.
 */
#include <cublas_v2.h>
#include <pthread.h>

#include "race_bench.h"

// ---- Uninitialised bytes ----

static void unwritten(const Rank *r, void *arg)
{
    Bench t = set_up(r);
    unsigned char *p, host[N];
    unsigned *sum;
    need_cuda(cudaMalloc((void **)&p, N));
    need_cuda(cudaMalloc((void **)&sum, sizeof *sum));
    need_cuda(cudaMemsetAsync(p, 1, 1000, t.a));
    need_cuda(kernel_sum_bytes(sum, p, 1000, t.a));
    silent(&t);
    need_cuda(kernel_sum_bytes(sum, p, N, t.a));
    check(t.heard->count == 1 && t.heard->kind == SIMGPU_UNINITIALISED, "%d", t.heard->count);
    heard_is(t.heard, "an uninitialised read of device memory",
             "reads 3 uninitialised bytes, the first of them\n"
             "simgpu: rank 0 |   byte 1000 of p, ");
    // The remedy is asked, not told: here a part of the memory is written.
    heard_is(t.heard, "an uninitialised read of device memory", "Only cudaMemset gives them.");
    need_cuda(kernel_sum_bytes(sum, p, N, t.a));
    check(t.heard->count == 1, "told %d times", t.heard->count);
    need_cuda(cudaFree(p));

    // A copy takes uninitialised bytes along with others; a kernel reads them.
    hear(t.heard);
    need_cuda(cudaMalloc((void **)&p, N));
    need_cuda(cudaMemsetAsync(p + 7, 1, 500, t.a));
    need_cuda(cudaMemcpyAsync(t.x, p, N, cudaMemcpyDeviceToDevice, t.a));
    need_cuda(kernel_sum_bytes(sum, t.x + 7, 500, t.a));
    silent(&t);
    need_cuda(cudaMemcpyAsync(host, t.x + 6, 10, cudaMemcpyDeviceToHost, t.a));
    silent(&t);
    need_cuda(kernel_sum_bytes(sum, t.x + 6, 10, t.a));
    heard_is(t.heard, "an uninitialised read of device memory", "byte 6 of t.x");
    need_cuda(cudaFree(p));
    hear(t.heard);
    need_cuda(cudaMalloc((void **)&p, N));
    need_cuda(cudaMemcpyAsync(t.x, p, N, cudaMemcpyDeviceToDevice, t.a));
    heard_is(t.heard, "an uninitialised read of device memory", "reads 1003 uninitialised bytes");
    need_cuda(cudaFree(p));

    // Freed and allocated again: written no more.
    hear(t.heard);
    need_cuda(cudaMallocAsync((void **)&p, N, t.a));
    need_cuda(kernel_touch(p, N, 1, t.a));
    need_cuda(cudaFreeAsync(p, t.a));
    need_cuda(cudaMallocAsync((void **)&p, N, t.a));
    need_cuda(kernel_sum_bytes(sum, p, 1, t.a));
    heard_is(t.heard, "an uninitialised read of device memory", "reads 1 uninitialised bytes");
}

TEST(test_unwritten)
{
    run_ranks(1, unwritten, NULL);
    setenv("SIMGPU_POISON", "0", 1);
    run_ranks(1, unwritten, NULL);
    unsetenv("SIMGPU_POISON");
}

// What a collective writes into its receive buffer is written; its send buffer is read.
static void collectives(const Rank *r, void *arg)
{
    enum { COUNT = 5 };
    size_t w = (size_t)r->world;
    float *shard, *all, *host = malloc(w * COUNT * sizeof *host);
    need_cuda(cudaMallocAsync((void **)&shard, COUNT * sizeof *shard, r->stream));
    need_cuda(cudaMallocAsync((void **)&all, w * COUNT * sizeof *all, r->stream));
    need_cuda(cudaMemsetAsync(shard, 0, COUNT * sizeof *shard, r->stream));
    need_nccl(ncclAllGather(shard, all, COUNT, ncclFloat, r->comm, r->stream));
    need_cuda(
        cudaMemcpyAsync(host, all, w * COUNT * sizeof *all, cudaMemcpyDeviceToHost, r->stream));
    need_nccl(ncclReduceScatter(all, shard, COUNT, ncclFloat, ncclSum, r->comm, r->stream));
    need_cuda(cudaFreeAsync(all, r->stream));
    Bench t = set_up(r);
    // A group is one operation on all of its streams.
    need_nccl(ncclGroupStart());
    need_nccl(ncclAllReduce(t.x, t.x, 7, ncclChar, ncclSum, r->comm, t.b));
    need_nccl(ncclAllReduce(shard, shard, COUNT, ncclFloat, ncclSum, r->comm, t.a));
    need_nccl(ncclGroupEnd());
    need_cuda(kernel_touch(t.x, N, 0, t.a));
    need_cuda(kernel_touch(shard, 4, 0, t.b));
    silent(&t);
    need_cuda(cudaDeviceSynchronize());
    need_nccl(ncclAllReduce(shard, shard, COUNT, ncclFloat, ncclSum, r->comm, t.a));
    silent(&t);
    need_nccl(ncclAllReduce(shard, shard, COUNT, ncclFloat, ncclSum, r->comm, t.b));
    race(&t, "ncclAllReduce, called at tests/race_memory.c:");
    need_cuda(cudaMalloc((void **)&all, w * COUNT * sizeof *all));
    need_cuda(cudaMemsetAsync(all, 0, (w * COUNT - 1) * sizeof *all, t.a));
    need_nccl(ncclReduceScatter(all, shard, COUNT, ncclFloat, ncclSum, r->comm, t.a));
    check(t.heard->kind == SIMGPU_UNINITIALISED, "kind %d", (int)t.heard->kind);
    heard_is(t.heard, "an uninitialised read of device memory", "reads 4 uninitialised bytes");
    need_cuda(cudaDeviceSynchronize());
    free(host);
}

TEST(test_collectives)
{
    static const int worlds[] = {1, 2, 3, 8};
    for (int i = 0; i < 4; i++) run_ranks(worlds[i], collectives, NULL);
}

// ---- Rows and columns ----

RANK_TEST(test_gaps, 1)
{
    enum { PITCH = 29, WIDTH = 9, ROWS = 11 };
    Bench t = set_up(r);
    unsigned char *p, host[N];
    unsigned *sum;
    need_cuda(cudaMalloc((void **)&p, PITCH * ROWS));
    need_cuda(cudaMalloc((void **)&sum, sizeof *sum));
    need_cuda(cudaMemset2DAsync(p, PITCH, 1, WIDTH, ROWS, t.a));
    need_cuda(cudaMemset2DAsync(p + WIDTH, PITCH, 2, WIDTH, ROWS, t.b)); // the columns beside
    silent(&t);
    need_cuda(cudaMemcpy2DAsync(t.x, WIDTH, p, PITCH, WIDTH, ROWS, cudaMemcpyDeviceToDevice, t.a));
    silent(&t);
    need_cuda(cudaMemset2DAsync(p + 2 * WIDTH - 1, PITCH, 3, 2, ROWS, t.a)); // one column too far
    race(&t, "byte 17 of p");
    need_cuda(kernel_touch(p + PITCH, WIDTH, 1, t.a)); // one row, without gaps
    need_cuda(cudaMemset2DAsync(p + WIDTH, PITCH, 2, WIDTH, ROWS, t.b));
    silent(&t);
    need_cuda(cudaMemset2DAsync(p + 2, PITCH, 2, 1, ROWS, t.b));
    race(&t, "byte 31 of p");

    // Byte 28 of each row was never written.
    need_cuda(cudaMemcpy2D(host, WIDTH, p + 2 * WIDTH, PITCH, 1, ROWS, cudaMemcpyDeviceToHost));
    silent(&t);
    need_cuda(cudaMemcpy2D(host, 2, p + 27, PITCH, 2, ROWS, cudaMemcpyDeviceToHost));
    check(t.heard->kind == SIMGPU_UNINITIALISED, "kind %d", (int)t.heard->kind);
    heard_is(t.heard, "an uninitialised read of device memory", "byte 27 of p");
}

// Heads of an attention lie side by side in one row; products of them go to other heads' gaps.
RANK_TEST(test_products, 1)
{
    enum { T = 5, HEADS = 3, SIZE = 4, C = HEADS * SIZE };
    const float one = 1, zero = 0;
    Bench t = set_up(r);
    cublasHandle_t first, second;
    float *x, *y;
    check(cublasCreate(&first) == CUBLAS_STATUS_SUCCESS, "no handle");
    check(cublasCreate(&second) == CUBLAS_STATUS_SUCCESS, "no handle");
    cublasSetStream(first, t.a);
    cublasSetStream(second, t.b);
    need_cuda(cudaMalloc((void **)&x, 2 * T * C * sizeof *x));
    need_cuda(cudaMalloc((void **)&y, 2 * T * C * sizeof *y));
    need_cuda(cudaMemset(x, 0, 2 * T * C * sizeof *x));
    need_cuda(cudaMemset(y, 0, 2 * T * C * sizeof *y));
    need_cuda(cudaDeviceSynchronize());
    // Two sequences of T rows: head h of all rows, batched over sequences.
    for (int h = 0; h < 2; h++)
        check(cublasSgemmStridedBatched(h ? second : first, CUBLAS_OP_N, CUBLAS_OP_N, SIZE, T, SIZE,
                                        &one, x, C, T * C, x, C, T * C, &zero, y + h * SIZE, C,
                                        T * C, 2) == CUBLAS_STATUS_SUCCESS,
              "refused");
    silent(&t);
    // Heads batched, a head 2 among them that the other stream wrote.
    check(cublasSgemmStridedBatched(first, CUBLAS_OP_N, CUBLAS_OP_N, SIZE, T, SIZE, &one, x, C, 0,
                                    x, C, 0, &zero, y, C, SIZE, 2) == CUBLAS_STATUS_SUCCESS,
          "refused");
    race(&t, "cublasSgemmStridedBatched, called at tests/race_memory.c:");
    check(cublasSaxpy(first, 9, &one, x, 2, y, 2) == CUBLAS_STATUS_SUCCESS, "refused");
    check(cublasSaxpy(second, 9, &one, x + 1, 2, y + 1, 2) == CUBLAS_STATUS_SUCCESS, "refused");
    check(cublasScopy(second, 3, x, 1, y + 19, 2) == CUBLAS_STATUS_SUCCESS, "refused");
    silent(&t);
    check(cublasScopy(second, 4, x, 1, y + 4, 3) == CUBLAS_STATUS_SUCCESS, "refused");
    race(&t, "byte 16 of y");
}

// ---- The host ----

static const char *const READS_EARLY = "the host reads pinned memory that is still being written";
static const char *const WRITES_EARLY = "the host writes pinned memory that is still being read";

RANK_TEST(test_host_touches, 2)
{
    Bench t = set_up(r);
    volatile unsigned char *pinned = t.pinned;
    need_cuda(cudaMemcpyAsync(t.pinned, t.x, N, cudaMemcpyDeviceToHost, t.a));
    need_cuda(cudaStreamSynchronize(t.a));
    check(pinned[1002] == 0, "%d", pinned[1002]);
    silent(&t);
    need_cuda(cudaMemcpyAsync(t.pinned, t.x, N, cudaMemcpyDeviceToHost, t.a));
    need_cuda(cudaStreamSynchronize(t.b));
    check(pinned[1002] == 0xff, "%d", pinned[1002]);
    check(t.heard->count == 1 && t.heard->kind == SIMGPU_HOST_RACE, "%d", t.heard->count);
    heard_is(t.heard, READS_EARLY, "reads byte 1002 of the 1003 bytes of pinned memory allocated");
    check(pinned[0] == 0xff && t.heard->count == 1, "told %d times", t.heard->count);
    need_cuda(cudaStreamSynchronize(t.a));
    check(pinned[1002] == 0 && pinned[0] == 0, "the copy was lost");

    hear(t.heard);
    need_cuda(cudaMemcpyAsync(t.x, t.pinned, N, cudaMemcpyHostToDevice, t.a));
    check(pinned[5] == 0, "%d", pinned[5]); // the host may read what a copy reads
    silent(&t);
    pinned[5] = 9;
    heard_is(t.heard, WRITES_EARLY, "cudaMemcpyAsync, called at tests/race_memory.c:");
    check(pinned[5] == 9 && t.heard->count == 1, "the program does not go on");
    need_cuda(cudaDeviceSynchronize());
    hear(t.heard);
    pinned[5] = 0;

    // Beside the copy's bytes nothing is wrong.
    need_cuda(cudaMemcpyAsync(t.pinned + 100, t.x, 3, cudaMemcpyDeviceToHost, t.a));
    pinned[99] = pinned[103] = 4;
    silent(&t);
    need_cuda(cudaEventRecord(t.e, t.a));
    need_cuda(cudaEventSynchronize(t.e));
    check(pinned[99] == 4 && pinned[100] == 0 && pinned[103] == 4, "the bytes are mixed up");
    silent(&t);

    // Operations see what is under way, and the host is watched all the same.
    need_cuda(cudaMemcpyAsync(t.pinned, t.x, N, cudaMemcpyDeviceToHost, t.a));
    need_cuda(cudaMemcpyAsync(t.y, t.pinned, N, cudaMemcpyHostToDevice, t.a));
    silent(&t);
    check(pinned[7] == 0, "%d", pinned[7]);
    heard_is(t.heard, READS_EARLY, "reads byte 7 of");
    need_cuda(cudaDeviceSynchronize());

    hear(t.heard);
    need_cuda(kernel_touch(t.pinned, N, 8, t.a)); // a kernel may use pinned memory, too
    need_cuda(cudaStreamSynchronize(t.a));
    check(pinned[7] == 8, "%d", pinned[7]);
    silent(&t);
    need_cuda(kernel_touch(t.pinned, N, 9, t.a));
    check(pinned[7] == 9, "%d", pinned[7]);
    heard_is(t.heard, READS_EARLY, "kernel_touch, called at tests/race_memory.c:");
    need_cuda(cudaDeviceSynchronize());

    hear(t.heard);
    need_cuda(cudaMemcpyAsync(t.pinned, t.x, N, cudaMemcpyDeviceToHost, t.a));
    need_cuda(cudaMemcpyAsync(t.pinned + N - 1, t.y, 1, cudaMemcpyDeviceToHost, t.b));
    race(&t,
         "writes byte 1002 of the 1003 bytes of pinned memory allocated at tests/race_bench.h:");
    need_cuda(cudaMemcpyAsync(t.pinned, t.x, N, cudaMemcpyDeviceToHost, t.a));
    need_cuda(cudaFreeHost(t.pinned));
    check(t.heard->kind == SIMGPU_HOST_RACE, "kind %d", (int)t.heard->kind);
    heard_is(t.heard, "pinned memory is freed while a copy is in flight", "cudaFreeHost, called");
}

// Registered memory: only whole pages are watched, and simgpu's own copies go through.
RANK_TEST(test_registered, 1)
{
    enum { PAGE = 4096, BYTES = 3 * PAGE };
    Bench t = set_up(r);
    unsigned char *memory = malloc(BYTES + 1), *device;
    check(memory != NULL, "no memory");
    memset(memory, 7, BYTES + 1);
    need_cuda(cudaHostRegister(memory + 1, BYTES, 0));
    need_cuda(cudaMalloc((void **)&device, BYTES));
    need_cuda(cudaMemcpyAsync(device, memory + 1, BYTES, cudaMemcpyHostToDevice, t.a));
    need_cuda(cudaMemcpyAsync(memory + 1, device, BYTES, cudaMemcpyDeviceToHost, t.a));
    memory[0] = 1;
    need_cuda(cudaMemcpyAsync(device, memory + 1, BYTES, cudaMemcpyHostToDevice, t.a));
    need_cuda(cudaStreamSynchronize(t.a));
    for (int i = 1; i <= BYTES; i++) check(memory[i] == 7, "byte %d is %d", i, memory[i]);
    silent(&t);
    need_cuda(cudaMemcpyAsync(memory + 1, device, BYTES, cudaMemcpyDeviceToHost, t.a));
    check(((volatile unsigned char *)memory)[2 * PAGE] == 0xff, "the copy arrived at once");
    heard_is(t.heard, READS_EARLY, "bytes of pinned memory registered at tests/race_memory.c:");
    need_cuda(cudaStreamSynchronize(t.a));
    need_cuda(cudaHostUnregister(memory + 1));
    memset(memory, 0, BYTES + 1);
    check(t.heard->count == 1, "%d reports", t.heard->count);
    free(memory);
}

static volatile int seen;
static void read_pinned(void *arg)
{
    seen = ((volatile unsigned char *)arg)[3];
}

// A function of the stream may touch what the stream has copied.
RANK_TEST(test_host_functions, 1)
{
    Bench t = set_up(r);
    write_x(&t, 0, N, t.a);
    need_cuda(cudaMemcpyAsync(t.pinned, t.x, N, cudaMemcpyDeviceToHost, t.a));
    need_cuda(cudaLaunchHostFunc(t.a, read_pinned, t.pinned));
    check(seen == 1, "it saw %d", seen);
    silent(&t);
    need_cuda(cudaMemcpyAsync(t.pinned, t.x, N, cudaMemcpyDeviceToHost, t.a));
    need_cuda(cudaLaunchHostFunc(t.b, read_pinned, t.pinned));
    heard_is(t.heard, READS_EARLY, "(read_pinned)");
}

// ---- Devices and threads ----

RANK_TEST(test_devices, 1)
{
    Bench t = set_up(r);
    unsigned char *far;
    need_cuda(cudaSetDevice(1));
    need_cuda(cudaMalloc((void **)&far, N));
    cudaStream_t there = make_stream(cudaStreamNonBlocking);
    need_cuda(cudaMemsetAsync(far, 1, N, there));
    need_cuda(cudaStreamSynchronize(there));
    need_cuda(cudaMemcpyPeerAsync(t.x, 0, far, 1, N, there));
    need_cuda(kernel_touch(far, 1, 2, there)); // behind the copy
    silent(&t);
    need_cuda(cudaSetDevice(0));
    need_cuda(kernel_touch(t.x, N, 2, t.a));
    race(&t, "cudaMemcpyPeerAsync, called at tests/race_memory.c:");
    need_cuda(cudaSetDevice(1));
    need_cuda(cudaStreamSynchronize(there));
    cudaEvent_t e;
    need_cuda(cudaEventCreate(&e));
    need_cuda(cudaMemcpyPeerAsync(t.x, 0, far, 1, N, there));
    need_cuda(cudaEventRecord(e, there));
    need_cuda(cudaSetDevice(0));
    need_cuda(cudaStreamWaitEvent(t.a, e, 0));
    need_cuda(kernel_touch(t.x, N, 2, t.a));
    need_cuda(kernel_touch(t.y, N, 2, t.b));
    need_cuda(cudaMemcpyPeer(t.x, 0, far, 1, N)); // after all work of both, and before the rest
    need_cuda(kernel_touch(t.x, N, 2, t.b));
    need_cuda(kernel_touch(t.y, N, 2, make_stream(cudaStreamNonBlocking)));
    silent(&t);
}

typedef struct Worker {
    int device;
    unsigned char *x, *pinned;
    cudaError_t error;
} Worker;

static void *work(void *arg)
{
    Worker *w = arg;
    cudaStream_t s[2];
    cudaEvent_t e;
    w->error = cudaSetDevice(w->device);
    for (int i = 0; i < 2 && w->error == cudaSuccess; i++)
        w->error = cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking);
    if (w->error == cudaSuccess) w->error = cudaEventCreate(&e);
    if (w->error == cudaSuccess) w->error = cudaMalloc((void **)&w->x, N);
    if (w->error == cudaSuccess) w->error = cudaMallocHost((void **)&w->pinned, N);
    for (int i = 0; i < 300 && w->error == cudaSuccess; i++) {
        w->error = cudaMemsetAsync(w->x, i, N, s[i % 2]);
        if (w->error == cudaSuccess)
            w->error = cudaMemcpyAsync(w->pinned, w->x, N, cudaMemcpyDeviceToHost, s[i % 2]);
        if (w->error == cudaSuccess) w->error = cudaEventRecord(e, s[i % 2]);
        if (w->error == cudaSuccess) w->error = cudaStreamWaitEvent(s[1 - i % 2], e, 0);
        if (w->error == cudaSuccess && i % 7 == 0) w->error = cudaEventSynchronize(e);
        if (i % 7 == 0 && w->pinned[i] != (unsigned char)i) w->error = cudaErrorUnknown;
    }
    if (w->error == cudaSuccess) w->error = cudaDeviceSynchronize();
    return NULL;
}

RANK_TEST(test_threads, 1)
{
    enum { WORKERS = 4 };
    Worker worker[WORKERS];
    pthread_t thread[WORKERS];
    hear(heard);
    for (int i = 0; i < WORKERS; i++) {
        worker[i] = (Worker){.device = i};
        check(pthread_create(&thread[i], NULL, work, &worker[i]) == 0, "no thread");
    }
    for (int i = 0; i < WORKERS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < WORKERS; i++)
        check(worker[i].error == cudaSuccess, "thread %d: %s", i,
              cudaGetErrorString(worker[i].error));
    check(heard->count == 0, "a false alarm: %s", heard->text);
}

int main(int argc, char **argv)
{
    heard = shared_alloc(8 * sizeof *heard);
    return suite_main(argc, argv, "simgpu/race_memory");
}
