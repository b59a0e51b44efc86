/* owed.c: what an allocation owes (memory/owed.h): poison and zeros that are written when somebody
 * reads them. What programs read is what they would have read if each fill had been made at once.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cublas_v2.h"
#include "heard.h"

// All bytes [from, to) of device memory, copied to the host, are `want`.
static void holds(const unsigned char *p, size_t from, size_t to, int want)
{
    unsigned char *host = malloc(to - from);
    need_cuda(cudaMemcpy(host, p + from, to - from, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < to - from; i++)
        check(host[i] == want, "byte %zu of %zu to %zu is %d, not %d", i, from, to, host[i], want);
    free(host);
}

// A kernel that says it writes `bytes` bytes, and writes each second one.
static cudaError_t kernel_comb(unsigned char *p, size_t bytes, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_comb", stream);
    unsigned char *to = simgpu_write(&op, p, bytes);
    for (size_t i = 0; simgpu_ready(&op) && i < bytes; i += 2) to[i] = 1;
    return simgpu_end(&op);
}

// A kernel that promises to write `bytes` bytes, and leaves out [from, to).
static cudaError_t kernel_promise(unsigned char *p, size_t bytes, size_t from, size_t to,
                                  cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_promise", stream);
    unsigned char *all = simgpu_overwrite(&op, p, bytes);
    for (size_t i = 0; simgpu_ready(&op) && i < bytes; i++)
        if (i < from || i >= to) all[i] = 1;
    return simgpu_end(&op);
}

// A kernel that promises to write what it reads; *one is a byte that it read.
static cudaError_t kernel_in_place(unsigned char *p, size_t bytes, int *one, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_in_place", stream);
    unsigned char *to = simgpu_overwrite(&op, p, bytes);
    const unsigned char *from = simgpu_read(&op, p, bytes);
    if (simgpu_ready(&op)) *one = from[100];
    for (size_t i = 0; simgpu_ready(&op) && i < bytes; i++) to[i] = from[i];
    return simgpu_end(&op);
}

// ---- Single cases ----

static void never_written(const Rank *r, void *arg)
{
    static const size_t sizes[] = {1, 255, 4095, 4096, 4097, 8191, 100001, 3 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *p;
        size_t n = sizes[i];
        need_cuda(cudaMalloc((void **)&p, n));
        holds(p, n / 3, n / 3 + 1, 0xff);
        holds(p, 0, n, 0xff);
        need_cuda(cudaMemset(p, 0, n));
        holds(p, n / 2, n, 0);
        holds(p, 0, n, 0);
        need_cuda(cudaFree(p));
    }
}

static void written_in_part(const Rank *r, void *arg)
{
    enum { N = 5 * 4096 + 77, FROM = 4096 + 3, TO = 2 * 4096 + 50 };
    static unsigned char host[N];
    unsigned char *p;
    memset(host, 5, N);
    for (int zeroed = 0; zeroed < 2; zeroed++) {
        int rest = zeroed ? 0 : 0xff;
        need_cuda(cudaMalloc((void **)&p, N));
        if (zeroed) need_cuda(cudaMemset(p, 0, N));
        need_cuda(cudaMemcpy(p + FROM, host, TO - FROM, cudaMemcpyHostToDevice));
        need_cuda(cudaMemset(p + N - 5000, 6, 5000));
        holds(p, 0, FROM, rest);
        holds(p, FROM, TO, 5);
        holds(p, TO, N - 5000, rest);
        holds(p, N - 5000, N, 6);
        need_cuda(cudaFree(p));
    }
}

// What a kernel says it writes, and does not, is as it was.
static void declared_and_not_written(const Rank *r, void *arg)
{
    enum { N = 3 * 4096 };
    unsigned char *p, host[N];
    for (int zeroed = 0; zeroed < 2; zeroed++) {
        need_cuda(cudaMallocAsync((void **)&p, N, r->stream));
        if (zeroed) need_cuda(cudaMemsetAsync(p, 3, N, r->stream));
        need_cuda(kernel_comb(p, N, r->stream));
        need_cuda(cudaMemcpyAsync(host, p, N, cudaMemcpyDeviceToHost, r->stream));
        for (int i = 0; i < N; i++)
            check(host[i] == (i % 2 == 0 ? 1 : zeroed ? 3 : 0xff), "byte %d is %d", i, host[i]);
        need_cuda(cudaFreeAsync(p, r->stream));
    }
}

// How many of the bytes [from, to) are `want`.
static size_t count_of(const unsigned char *p, size_t from, size_t to, int want)
{
    size_t n = 0;
    unsigned char *host = malloc(to - from);
    need_cuda(cudaMemcpy(host, p + from, to - from, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < to - from; i++) n += host[i] == want;
    free(host);
    return n;
}

// What a kernel promises to write, and does not, is found where it is an end, or a page.
static void promised_and_not_written(const Rank *r, void *arg)
{
    enum { N = 10 * 4096 + 100, GAP = 3 * 4096 + 500 };
    unsigned char *p;
    for (int zeroed = 0; zeroed < 2; zeroed++) {
        int was = zeroed ? 3 : 0xff;
        size_t gaps[][2] = {{0, 1}, {N - 1, N}, {GAP, GAP + 4096 + 64}, {0, N}, {N, N}};
        for (size_t i = 0; i < sizeof gaps / sizeof gaps[0]; i++) {
            size_t from = gaps[i][0], to = gaps[i][1];
            need_cuda(cudaMallocAsync((void **)&p, N, r->stream));
            need_cuda(kernel_touch(p, N, 7, r->stream)); // what was there before
            need_cuda(cudaFreeAsync(p, r->stream));
            need_cuda(cudaMallocAsync((void **)&p, N, r->stream));
            if (zeroed) need_cuda(cudaMemsetAsync(p, 3, N, r->stream));
            need_cuda(kernel_promise(p, N, from, to, r->stream));
            if (from > 0) holds(p, 0, from, 1);
            if (to < N) holds(p, to, N, 1);
            check(from == to || count_of(p, from, to, was) > 0, "bytes %zu to %zu do not show",
                  from, to);
            need_cuda(cudaFreeAsync(p, r->stream));
        }
    }
}

static void promised_and_read(const Rank *r, void *arg)
{
    enum { N = 3 * 4096 };
    unsigned char *p;
    int one = -1;
    need_cuda(cudaMallocAsync((void **)&p, N, r->stream));
    need_cuda(kernel_in_place(p, N, &one, r->stream));
    check(one == 0xff, "a kernel in place read %d, not poison", one);
    holds(p, 0, N, 0xff);
    need_cuda(cudaMemsetAsync(p, 4, N, r->stream));
    need_cuda(kernel_in_place(p, N, &one, r->stream));
    check(one == 4, "a kernel in place read %d, not 4", one);
    holds(p, 0, N, 4);
    need_cuda(cudaFreeAsync(p, r->stream));
}

static void used_again(const Rank *r, void *arg)
{
    enum { N = 70001 };
    unsigned char *p, *before = NULL;
    bool again = false;
    for (int round = 0; round < 300; round++) {
        need_cuda(cudaMallocAsync((void **)&p, N, r->stream));
        again |= p == before;
        if (round == 0) before = p;
        if (round % 3 == 0) need_cuda(cudaMemsetAsync(p, 7, N, r->stream)); // owed, and not paid
        if (round % 3 == 1) holds(p, 0, N, 0xff);
        if (round % 3 == 2) need_cuda(kernel_touch(p, N, 1, r->stream));
        need_cuda(cudaFreeAsync(p, r->stream));
    }
    check(again, "no address was used again");
}

// An allocation too large to be filled has poison at its ends, and the middle costs nothing.
static void large(const Rank *r, void *arg)
{
    size_t n = ((size_t)1 << 30) + 4097, ends = (size_t)64 << 20;
    unsigned char *p;
    need_cuda(cudaMalloc((void **)&p, n));
    holds(p, 0, 1, 0xff);
    holds(p, ends - 1, ends, 0xff);
    holds(p, ends, ends + 1, 0);
    holds(p, n - ends - 1, n - ends, 0);
    holds(p, n - ends, n, 0xff);
    check(shared_kilobytes() < 70 << 10, "%ld KiB are touched", shared_kilobytes());
    need_cuda(cudaFree(p));
}

static void touches_nothing(const Rank *r, void *arg)
{
    char *p, *q;
    enum { N = 32 << 20 };
    need_cuda(cudaMalloc((void **)&p, N));
    need_cuda(cudaMalloc((void **)&q, N));
    long before = shared_kilobytes();
    need_cuda(cudaMemset(p, 0, N));
    need_cuda(cudaMemset(q, 1, N));
    need_cuda(cudaMemset(q, 0, N));
    check(shared_kilobytes() <= before + 64, "zeros of fresh memory touched %ld KiB",
          shared_kilobytes() - before);
    holds((unsigned char *)p, N - 9, N, 0);
    need_cuda(cudaMemset(p + 100, 2, N / 2));
    holds((unsigned char *)p, 0, 100, 0);
    holds((unsigned char *)p, 100, 100 + N / 2, 2);
    holds((unsigned char *)p, 100 + N / 2, N, 0);
}

TEST(test_cases)
{
    runs_unheard(1, never_written);
    runs_unheard(1, written_in_part);
    runs_unheard(1, declared_and_not_written);
    runs_unheard(1, promised_and_not_written);
    runs_unheard(1, promised_and_read);
    runs_unheard(1, used_again);
    runs_unheard(1, large);
    runs_unheard(1, touches_nothing);
}

// ---- Other ranks ----

enum { COUNT = 5000 };

static void all_are(const unsigned char *p, size_t n, int want)
{
    holds(p, 0, n, want);
}

RANK_TEST_BETWEEN(test_other_ranks, unheard, heard_again, 1, 2, 3)
{
    unsigned char *send, *recv;
    size_t one = COUNT, all = COUNT * (size_t)r->world;
    int next = (r->rank + 1) % r->world, last = (r->rank + r->world - 1) % r->world;
    for (int value = -1; value < 3; value++) { // -1: poison
        int want = value < 0 ? 0xff : value;
        need_cuda(cudaMallocAsync((void **)&send, one, r->stream));
        need_cuda(cudaMallocAsync((void **)&recv, all, r->stream));
        if (value >= 0) need_cuda(cudaMemsetAsync(send, value, one, r->stream));
        need_cuda(cudaMemsetAsync(recv, 9, all, r->stream)); // owed, and overwritten by others
        need_nccl(ncclAllGather(send, recv, one, ncclUint8, r->comm, r->stream));
        all_are(recv, all, want);
        need_cuda(cudaMemsetAsync(recv, 9, all, r->stream));
        need_nccl(ncclAllReduce(send, recv, one, ncclUint8, ncclMax, r->comm, r->stream));
        all_are(recv, one, want);
        holds(recv, one, all, r->world > 1 ? 9 : want);
        need_cuda(cudaMemsetAsync(recv, 9, all, r->stream));
        need_nccl(ncclBroadcast(send, recv, one, ncclUint8, r->world - 1, r->comm, r->stream));
        all_are(recv, one, want);
        need_cuda(cudaMemsetAsync(recv, 9, all, r->stream));
        need_nccl(ncclReduce(send, recv, one, ncclUint8, ncclMin, 0, r->comm, r->stream));
        all_are(recv, one, r->rank == 0 ? want : 9);
        need_cuda(cudaMemsetAsync(recv, 9, all, r->stream));
        need_nccl(ncclGroupStart());
        need_nccl(ncclSend(send, one, ncclUint8, next, r->comm, r->stream));
        need_nccl(ncclRecv(recv, one, ncclUint8, last, r->comm, r->stream));
        need_nccl(ncclGroupEnd());
        all_are(recv, one, want);
        need_cuda(cudaMemsetAsync(recv, value < 0 ? 0xff : value, all, r->stream));
        need_nccl(ncclReduceScatter(recv, send, one, ncclUint8, ncclMax, r->comm, r->stream));
        all_are(send, one, want);
        need_nccl(ncclAllGather(recv + one * (size_t)r->rank, recv, one, ncclUint8, r->comm,
                                r->stream)); // in place
        all_are(recv, all, want);
        need_cuda(cudaFreeAsync(send, r->stream));
        need_cuda(cudaFreeAsync(recv, r->stream));
    }
}

// ---- Drawn operations, against memory that is filled at once ----

enum { SIZE = 9 * 4096 + 123, STEPS = 1500 };

static uint32_t state_of_draw;
static size_t draw_below(size_t n)
{
    state_of_draw = state_of_draw * 1664525u + 1013904223u;
    return (size_t)(state_of_draw >> 8) % n;
}

typedef struct Both {
    unsigned char *device, host[SIZE];
} Both;

static void fresh(Both *b, const Rank *r)
{
    if (b->device) need_cuda(cudaFreeAsync(b->device, r->stream));
    need_cuda(cudaMallocAsync((void **)&b->device, SIZE, r->stream));
    memset(b->host, 0xff, SIZE);
}

// Zeros by zeros, in place of what is there, or added to it.
static void product_over(Both *b, const Rank *r, cublasHandle_t handle, size_t from, bool add)
{
    enum { SIDE = 48 };
    static const float one = 1.0f, zero = 0.0f;
    float *factor, *to = (float *)(void *)(b->device + from);
    need_cuda(cudaMallocAsync((void **)&factor, SIDE * SIDE * sizeof(float), r->stream));
    need_cuda(cudaMemsetAsync(factor, 0, SIDE * SIDE * sizeof(float), r->stream));
    check(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, SIDE, SIDE, SIDE, &one, factor, SIDE,
                      factor, SIDE, add ? &one : &zero, to, SIDE) == CUBLAS_STATUS_SUCCESS,
          "a product failed");
    if (!add) memset(b->host + from, 0, SIDE * SIDE * sizeof(float));
    need_cuda(cudaFreeAsync(factor, r->stream));
}

static void draw_one(Both *b, Both *other, const Rank *r, cublasHandle_t handle)
{
    static unsigned char bytes[SIZE];
    size_t from = draw_below(SIZE), n = 1 + draw_below(SIZE - from), at = draw_below(SIZE - n + 1);
    size_t width = 1 + draw_below(200), rows = 1 + draw_below(20), pitch = width + draw_below(300);
    int value = (int)draw_below(3);
    switch (draw_below(11)) {
    case 0: fresh(b, r); break;
    case 1:
    case 2:
        need_cuda(cudaMemsetAsync(b->device + from, value, n, r->stream));
        memset(b->host + from, value, n);
        break;
    case 3:
        memset(bytes, value + 10, n);
        need_cuda(cudaMemcpyAsync(b->device + from, bytes, n, cudaMemcpyHostToDevice, r->stream));
        memcpy(b->host + from, bytes, n);
        break;
    case 4:
        need_cuda(cudaMemcpyAsync(b->device + from, other->device + at, n, cudaMemcpyDeviceToDevice,
                                  r->stream));
        memcpy(b->host + from, other->host + at, n);
        break;
    case 5:
        need_cuda(cudaMemset2DAsync(b->device, pitch, value, width, rows, r->stream));
        for (size_t i = 0; i < rows; i++) memset(b->host + i * pitch, value, width);
        break;
    case 6:
        need_cuda(kernel_comb(b->device + from, n, r->stream));
        for (size_t i = 0; i < n; i += 2) b->host[from + i] = 1;
        break;
    case 7:
    case 8: product_over(b, r, handle, 4 * draw_below((SIZE - 48 * 48 * 4) / 4), value > 0); break;
    case 9:
        need_cuda(kernel_promise(b->device + from, n, n, n, r->stream));
        memset(b->host + from, 1, n);
        break;
    default:
        need_cuda(cudaMemcpyAsync(bytes, b->device + from, n, cudaMemcpyDeviceToHost, r->stream));
        for (size_t i = 0; i < n; i++)
            check(bytes[i] == b->host[from + i], "seed %u: byte %zu is %d, not %d", state_of_draw,
                  from + i, bytes[i], b->host[from + i]);
    }
}

RANK_TEST_BETWEEN(test_draws, unheard, heard_again, 2)
{
    static Both both[2];
    cublasHandle_t handle;
    state_of_draw = 8812u + (uint32_t)r->rank;
    check(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "no handle");
    check(cublasSetStream(handle, r->stream) == CUBLAS_STATUS_SUCCESS, "no stream");
    for (int i = 0; i < 2; i++) fresh(&both[i], r);
    for (int step = 0; step < STEPS; step++) {
        int i = (int)draw_below(2);
        draw_one(&both[i], &both[1 - i], r, handle);
    }
    cublasDestroy(handle);
}
// ---- Sums that begin with zeros ----

enum { ROWS = 70, COLS = 65, INNER = 33 }; // of C, and of the sum

typedef struct Sum {
    float alpha, beta;
    int fill;      // a byte that C is filled with before
    bool once;     // else the product is added twice
    size_t behind; // bytes of C at its end that are filled with 1 instead
} Sum;

// alpha·A·B + beta·C, C being filled so that the fill is owed, or written at once.
static void sum_up(const Rank *r, cublasHandle_t handle, const Sum *s, bool owed, float *host)
{
    size_t bytes = ROWS * COLS * sizeof(float);
    float *A, *B, *C, factor[ROWS * INNER];
    for (int i = 0; i < ROWS * INNER; i++) factor[i] = (float)((i * 37) % 101 - 50) / 7.0f;
    need_cuda(cudaMallocAsync((void **)&A, sizeof factor, r->stream));
    need_cuda(cudaMallocAsync((void **)&B, sizeof factor, r->stream));
    need_cuda(cudaMallocAsync((void **)&C, bytes, r->stream));
    need_cuda(cudaMemcpy(A, factor, sizeof factor, cudaMemcpyHostToDevice));
    need_cuda(cudaMemcpy(B, factor, sizeof factor, cudaMemcpyHostToDevice));
    need_cuda(cudaMemsetAsync(C, s->fill, bytes - s->behind, r->stream));
    need_cuda(cudaMemsetAsync((char *)C + bytes - s->behind, 1, s->behind, r->stream));
    if (!owed) holds((unsigned char *)C, 0, bytes - s->behind, s->fill); // a read: it is written
    for (int i = 0; i < (s->once ? 1 : 2); i++)
        check(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, ROWS, COLS, INNER, &s->alpha, A, ROWS,
                          B, INNER, &s->beta, C, ROWS) == CUBLAS_STATUS_SUCCESS,
              "a product failed");
    need_cuda(cudaMemcpy(host, C, bytes, cudaMemcpyDeviceToHost));
    need_cuda(cudaFreeAsync(A, r->stream));
    need_cuda(cudaFreeAsync(B, r->stream));
    need_cuda(cudaFreeAsync(C, r->stream));
}

// A sum is the same, whether the zeros that it begins with have been written or not.
static void sums(const Rank *r, void *arg)
{
    static const Sum cases[] = {{1, 1, 0, true, 0},        {1, 1, 0, false, 0},
                                {1, 1, 1, true, 0},        {1, 1, 0, true, 5000},
                                {2.5f, 1, 0, true, 0},     {-1, 1, 0, true, 0},
                                {0, 1, 0, true, 0},        {1, -1, 0, false, 0},
                                {1, INFINITY, 0, true, 0}, {1, 0.5f, 0, false, 8192}};
    static float owed[ROWS * COLS], written[ROWS * COLS];
    cublasHandle_t handle;
    check(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "no handle");
    check(cublasSetStream(handle, r->stream) == CUBLAS_STATUS_SUCCESS, "no stream");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sum_up(r, handle, &cases[i], true, owed);
        sum_up(r, handle, &cases[i], false, written);
        check(memcmp(owed, written, sizeof owed) == 0, "sum %zu depends on when C was filled", i);
    }
    cublasDestroy(handle);
}

// Each product of a batch may add to what the one before has written.
static void sums_of_one_place(const Rank *r, void *arg)
{
    enum { SIDE = 64 };
    static const float one = 1.0f;
    static float host[2 * SIDE * SIDE];
    float *A, *C;
    size_t bytes = sizeof host;
    cublasHandle_t handle;
    check(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "no handle");
    check(cublasSetStream(handle, r->stream) == CUBLAS_STATUS_SUCCESS, "no stream");
    for (int i = 0; i < SIDE * SIDE; i++) host[i] = i % (SIDE + 1) == 0 ? 1.0f : 0.0f;
    need_cuda(cudaMallocAsync((void **)&A, bytes / 2, r->stream));
    need_cuda(cudaMallocAsync((void **)&C, bytes, r->stream));
    need_cuda(cudaMemcpy(A, host, bytes / 2, cudaMemcpyHostToDevice));
    need_cuda(cudaMemsetAsync(C, 0, bytes, r->stream));
    // C of the second product is half of the first one's, and half of its own: that is reported,
    // and done in order.
    static Heard heard;
    hear(&heard);
    check(cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, SIDE, SIDE, SIDE, &one, A,
                                    SIDE, 0, A, SIDE, 0, &one, C, SIDE, SIDE * SIDE / 2,
                                    2) == CUBLAS_STATUS_SUCCESS,
          "a batch failed");
    heard_is(&heard, "an operation writes the same bytes twice", "cublasSgemmStridedBatched");
    need_cuda(cudaMemcpy(host, C, bytes, cudaMemcpyDeviceToHost));
    for (int half = 0; half < 3; half++) {
        float total = 0.0f;
        for (int i = 0; i < SIDE * SIDE / 2; i++) total += host[half * SIDE * SIDE / 2 + i];
        check(total == (half == 1 ? SIDE : SIDE / 2), "half %d adds up to %g", half, total);
    }
    need_cuda(cudaFreeAsync(A, r->stream));
    need_cuda(cudaFreeAsync(C, r->stream));
    cublasDestroy(handle);
}

TEST(test_sums)
{
    runs_unheard(1, sums);
    runs_unheard(1, sums_of_one_place);
}

// ---- Threads ----

enum { THREADS = 4, EACH = 20000 };

typedef struct Part {
    unsigned char *p;
    int number;
    const Rank *rank;
} Part;

// Each thread has its part of one allocation, whose borders are no page's.
static void *use_part(void *arg)
{
    const Part *part = arg;
    unsigned char *p = part->p + part->number * (size_t)EACH;
    cudaStream_t stream;
    need_cuda(cudaSetDevice(part->rank->device));
    need_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int round = 0; round < 50; round++) {
        unsigned char host[EACH];
        need_cuda(cudaMemsetAsync(p, round, EACH, stream));
        if (round % 2) need_cuda(kernel_comb(p, EACH / 2, stream));
        need_cuda(cudaMemcpyAsync(host, p, EACH, cudaMemcpyDeviceToHost, stream));
        for (int i = 0; i < EACH; i++)
            check(host[i] == (round % 2 && i % 2 == 0 && i < EACH / 2 ? 1 : round),
                  "thread %d, round %d: byte %d is %d", part->number, round, i, host[i]);
    }
    need_cuda(cudaStreamDestroy(stream));
    return NULL;
}

RANK_TEST_BETWEEN(test_threads, unheard, heard_again, 1)
{
    pthread_t thread[THREADS];
    Part part[THREADS];
    unsigned char *p;
    need_cuda(cudaMalloc((void **)&p, (size_t)(THREADS + 1) * EACH));
    for (int i = 0; i < THREADS; i++) {
        part[i] = (Part){p, i, r};
        check(pthread_create(&thread[i], NULL, use_part, &part[i]) == 0, "no thread");
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    holds(p, (size_t)THREADS * EACH, (size_t)(THREADS + 1) * EACH, 0xff);
}
// ---- Reports ----

// With all checks a read of what is owed is reported as one of what was filled at once.
RANK_TEST(test_reported, 1)
{
    enum { N = 3 * 4096 };
    Heard *heard = hear(shared_alloc(sizeof(Heard)));
    unsigned char *p, host[N];
    need_cuda(cudaMalloc((void **)&p, N));
    need_cuda(cudaMemcpy(host, p, N, cudaMemcpyDeviceToHost));
    heard_is(heard, "an uninitialised read of device memory", "reads 12288 uninitialised bytes");
    heard_is(heard, "an uninitialised read of device memory", "tests/owed.c:");
    check(host[0] == 0xff && host[N - 1] == 0xff, "it read no poison");
    need_cuda(cudaFree(p));
    need_cuda(cudaMalloc((void **)&p, N));
    need_cuda(cudaMemset(p, 0, N));
    need_cuda(cudaMemcpy(host, p, N, cudaMemcpyDeviceToHost));
    check(heard->count == 1, "zeros that were set are reported");
}
SUITE_MAIN("owed")
