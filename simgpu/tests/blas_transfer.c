/* blas_transfer.c: vectors and matrices between host and device by cublasSet… and cublasGet…,
 * waiting and not: every gap and size; what is in flight stays in flight; mistakes are told with
 * the call's name and line.
 */
#include "blas_exact.h"
#include "heard.h"

enum { ROOM = 4096, UNTOUCHED = 0xa5 };

// Elements of `size` bytes: rows x cols, columns lda apart in `from` and ldb apart in `to`.
static void move(unsigned char *to, const unsigned char *from, int rows, int cols, int size,
                 int lda, int ldb)
{
    for (int j = 0; j < cols; j++)
        memcpy(to + j * ldb * size, from + j * lda * size, (size_t)(rows * size));
}

// To the device with other gaps than back, by the waiting calls or the others.
static void check_way(const Rank *r, bool async, bool vector, int rows, int cols, int size)
{
    int lda = vector ? 3 : rows + 2, ldb = vector ? 2 : rows + 1,
        ldc = vector || rows == 0 ? 1 : rows;
    unsigned char *host = NULL, *back = NULL, *device = NULL, want[ROOM], middle[ROOM];
    need_cuda(cudaMallocHost((void **)&host, ROOM));
    need_cuda(cudaMallocHost((void **)&back, ROOM));
    need_cuda(cudaMalloc((void **)&device, ROOM));
    for (int i = 0; i < ROOM; i++) host[i] = (unsigned char)(i * 7 + i / 256);
    memset(back, UNTOUCHED, ROOM);
    memset(want, UNTOUCHED, ROOM);
    memset(middle, UNTOUCHED, ROOM);
    need_cuda(cudaMemset(device, UNTOUCHED, ROOM));
    need_cuda(cudaDeviceSynchronize());
    if (vector && async) {
        need_blas(cublasSetVectorAsync(cols, size, host, lda, device, ldb, r->stream));
        need_blas(cublasGetVectorAsync(cols, size, device, ldb, back, ldc, r->stream));
    } else if (vector) {
        need_blas(cublasSetVector(cols, size, host, lda, device, ldb));
        need_blas(cublasGetVector(cols, size, device, ldb, back, ldc));
    } else if (async) {
        need_blas(cublasSetMatrixAsync(rows, cols, size, host, lda, device, ldb, r->stream));
        need_blas(cublasGetMatrixAsync(rows, cols, size, device, ldb, back, ldc, r->stream));
    } else {
        need_blas(cublasSetMatrix(rows, cols, size, host, lda, device, ldb));
        need_blas(cublasGetMatrix(rows, cols, size, device, ldb, back, ldc));
    }
    if (async) need_cuda(cudaStreamSynchronize(r->stream));
    move(middle, host, vector ? 1 : rows, cols, size, lda, ldb);
    move(want, middle, vector ? 1 : rows, cols, size, ldb, ldc);
    check(memcmp(back, want, ROOM) == 0,
          "async %d, vector %d, %d x %d of %d bytes: came back wrong", async, vector, rows, cols,
          size);
    need_cuda(cudaMemcpy(want, device, ROOM, cudaMemcpyDeviceToHost));
    check(memcmp(middle, want, ROOM) == 0, "async %d, vector %d, %d x %d of %d bytes: went wrong",
          async, vector, rows, cols, size);
    need_cuda(cudaFreeHost(host));
    need_cuda(cudaFreeHost(back));
    need_cuda(cudaFree(device));
}

RANK_TEST(test_ways, 1)
{
    static const int shapes[][2] = {{1, 1}, {5, 3}, {3, 0}, {0, 3}, {2, 11}};
    static const int sizes[] = {1, 2, 4, 8, 16, 12};
    for (int i = 0; i < 5; i++)
        for (int z = 0; z < 6; z++)
            for (int form = 0; form < 4; form++)
                if (shapes[i][0] > 0 || form < 2)
                    check_way(r, form & 1, form & 2, shapes[i][0], shapes[i][1], sizes[z]);
}
// What an Async call brings is not there before somebody waits, and to look is a race.
static void look_too_early(const Rank *r, void *arg)
{
    float *host = NULL, *device = NULL;
    need_cuda(cudaMallocHost((void **)&host, 64));
    need_cuda(cudaMalloc((void **)&device, 64));
    need_cuda(cudaMemset(device, 0, 64));
    need_cuda(cudaDeviceSynchronize());
    need_blas(cublasGetVectorAsync(16, 4, device, 1, host, 1, r->stream));
    volatile float early = host[3];
    (void)early;
    need_cuda(cudaStreamSynchronize(r->stream));
}

// One element more than there is.
static void too_many(const Rank *r, void *arg)
{
    float host[16] = {0}, *device = NULL;
    need_cuda(cudaMalloc((void **)&device, 15 * sizeof *device));
    need_blas(cublasSetMatrix(4, 4, 4, host, 4, device, 4));
}

static void wrong_way(const Rank *r, void *arg)
{
    float host[16] = {0}, *device = NULL;
    need_cuda(cudaMalloc((void **)&device, 64));
    need_blas(cublasSetVector(16, 4, device, 1, host, 1));
}

TEST(test_mistakes)
{
    static const struct {
        RankBody body;
        const char *call, *words;
    } cases[] = {{look_too_early, "cublasGetVectorAsync", "look_too_early"},
                 {too_many, "cublasSetMatrix", "that is 4 bytes too many"},
                 {wrong_way, "cublasSetVector", "the wrong way round"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *message = run_ranks_message(1, 20, cases[i].body, NULL);
        if (!message) fail_msg("%s: not a word", cases[i].call);
        if (!strstr(message, cases[i].call) || !strstr(message, cases[i].words) ||
            !strstr(message, "blas_transfer.c:") || strstr(message, "blas/transfer.c:"))
            fail_msg("no \"%s\", \"%s\" and line of the test in: %s", cases[i].call, cases[i].words,
                     message);
        free(message);
    }
}

SUITE_MAIN("cuBLAS, transfers")
