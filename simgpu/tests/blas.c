/* blas.c: cuBLAS on the simulated GPU: right products in every form, the same bits wherever the
 * matrices lie, nothing read that cuBLAS does not read, and the wrong argument named.
 *
 * Matrices hold small whole numbers, so that every sum is exact in float and must be equal.
 */
#include "blas_exact.h"
#include "simgpu.h"

static const float ZERO = 0.0f, ONE = 1.0f;

// ---- Reports: kept here instead of failing the test ----

static char report[4096];
static void keep_report(const SimgpuReport *heard, void *arg)
{
    snprintf(report, sizeof report, "%s", heard->text);
}

static void expect(cublasStatus_t got, cublasStatus_t want, const char *words)
{
    check(got == want, "%s, not %s", cublasGetStatusName(got), cublasGetStatusName(want));
    check(strstr(report, words) != NULL, "the report says\n%snot \"%s\"", report, words);
    check(strstr(report, "blas.c:") != NULL, "the report does not say where:\n%s", report);
    report[0] = 0;
}

// ---- Data ----

// Whole numbers -4 … 4, different for every seed.
static float *whole_numbers(size_t n, unsigned seed)
{
    float *x = malloc((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)((int)(seed >> 20) % 9) - 4.0f;
    }
    return x;
}

static float *on_device(const float *host, size_t n)
{
    void *x = NULL;
    need_cuda(cudaMalloc(&x, n * sizeof *host));
    need_cuda(cudaMemcpy(x, host, n * sizeof *host, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize()); // cudaMemcpy from pageable memory need not wait
    return x;
}

static cublasHandle_t open_handle(const Rank *r)
{
    cublasHandle_t handle = NULL;
    need_blas(cublasCreate(&handle));
    need_blas(cublasSetStream(handle, r->stream));
    return handle;
}

// One product, with leading dimensions `gap` larger than they must be.
typedef struct Product {
    bool turn_a, turn_b;
    int m, n, k, gap;
    float alpha, beta;
} Product;

static int lda_of(const Product *p)
{
    return (p->turn_a ? p->k : p->m) + p->gap;
}
static int ldb_of(const Product *p)
{
    return (p->turn_b ? p->n : p->k) + p->gap;
}

// C = alpha·op(A)·op(B) + beta·C by the definition; the gaps of C stay as they are.
static void multiply_plainly(const Product *p, const float *A, const float *B, float *C)
{
    int lda = lda_of(p), ldb = ldb_of(p), ldc = p->m + p->gap;
    for (int j = 0; j < p->n; j++)
        for (int i = 0; i < p->m; i++) {
            double sum = 0.0;
            for (int l = 0; l < p->k; l++)
                sum += (double)(p->turn_a ? A[i * lda + l] : A[l * lda + i]) *
                       (p->turn_b ? B[l * ldb + j] : B[j * ldb + l]);
            float *c = &C[j * ldc + i];
            *c = (float)(p->alpha * sum + (p->beta == 0.0f ? 0.0 : p->beta * (double)*c));
        }
}

static void check_product(cublasHandle_t handle, const Product *p)
{
    int lda = lda_of(p), ldb = ldb_of(p), ldc = p->m + p->gap;
    size_t a = (size_t)lda * (p->turn_a ? p->m : p->k), b = (size_t)ldb * (p->turn_b ? p->k : p->n);
    size_t c = (size_t)ldc * p->n;
    float *A = whole_numbers(a, 1), *B = whole_numbers(b, 2), *C = whole_numbers(c, 3);
    if (p->beta == 0.0f) // then C must not be read
        for (size_t i = 0; i < c; i++) C[i] = NAN;
    float *dA = on_device(A, a), *dB = on_device(B, b), *dC = on_device(C, c);
    need_blas(cublasSgemm(handle, p->turn_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                          p->turn_b ? CUBLAS_OP_T : CUBLAS_OP_N, p->m, p->n, p->k, &p->alpha, dA,
                          lda, dB, ldb, &p->beta, dC, ldc));
    float *got = fetch(dC, c);
    multiply_plainly(p, A, B, C);
    for (size_t i = 0; i < c; i++) // gaps hold NaN where beta is 0, and NaN is equal to nothing
        check(memcmp(&got[i], &C[i], sizeof *got) == 0 || got[i] == C[i],
              "%c%c m %d n %d k %d gap %d beta %g: element %zu is %g, not %g",
              p->turn_a ? 'T' : 'N', p->turn_b ? 'T' : 'N', p->m, p->n, p->k, p->gap, p->beta, i,
              got[i], C[i]);
    need_cuda(cudaFree(dA));
    need_cuda(cudaFree(dB));
    need_cuda(cudaFree(dC));
    free(A);
    free(B);
    free(C);
    free(got);
}

// Bytes of machine code that this process has had written: executable memory of no file.
static size_t code_written(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], may[8], name[256];
    size_t bytes = 0, from, to;
    while (maps && fgets(line, sizeof line, maps)) {
        int fields = sscanf(line, "%zx-%zx %7s %*s %*s %*s %255s", &from, &to, may, name);
        if (fields == 3 && may[2] == 'x') bytes += to - from;
    }
    if (maps) fclose(maps);
    return bytes;
}

// Of whatever form and size: a rank has what it multiplies with from the process that forked it.
RANK_TEST(test_products, 1)
{
    static const int sizes[][3] = {{1, 1, 1},
                                   {1, 7, 3},
                                   {7, 1, 5},
                                   {5, 3, 1},
                                   {13, 17, 19},
                                   {33, 5, 65},
                                   {64, 64, 64},
                                   {1, 129, 40},
                                   {97, 1, 33},
                                   {70, 130, 257},
                                   // few columns, to which another way leads (multiply.c)
                                   {70, 16, 300},
                                   {33, 32, 256},
                                   {301, 16, 257},
                                   {65, 17, 400},
                                   {40, 31, 500},
                                   {50, 48, 300},
                                   {40, 49, 300},
                                   {300, 24, 260}};
    static const float scalars[][2] = {{1.0f, 0.0f}, {1.0f, 1.0f}, {2.0f, -1.0f}, {0.0f, 2.0f}};
    cublasHandle_t handle = open_handle(r);
    size_t code = code_written();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int form = 0; form < 4; form++)
            for (int gap = 0; gap < 4; gap += 3)
                for (int i = 0; i < 4; i++) {
                    Product p = {form & 1,    form & 2, sizes[s][0],   sizes[s][1],
                                 sizes[s][2], gap,      scalars[i][0], scalars[i][1]};
                    check_product(handle, &p);
                }
    check(code_written() == code, "%zu bytes of code were written", code_written() - code);
    need_blas(cublasDestroy(handle));
}
// With k = 0 only C's scaling is left; with m or n 0 there is nothing to do, and NULL is fine.
RANK_TEST(test_empty, 1)
{
    cublasHandle_t handle = open_handle(r);
    const float host[4] = {1, 2, 3, 4}, twice[4] = {2, 4, 6, 8}, nothing[4] = {0};
    const float two = 2.0f;
    float *C = on_device(host, 4);
    need_blas(
        cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 0, &ONE, NULL, 2, NULL, 1, &two, C, 2));
    float *got = fetch(C, 4);
    check_equal("2·C", got, twice, 4);
    free(got);
    need_blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 0, &ONE, NULL, 2, NULL, 1, &ZERO,
                          C, 2));
    got = fetch(C, 4);
    check_equal("0·C", got, nothing, 4);
    free(got);
    need_blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 0, 2, 2, &ONE, NULL, 1, NULL, 2, &ONE,
                          NULL, 1));
    need_cuda(cudaFree(C));
    need_blas(cublasDestroy(handle));
}
// The same real-valued product must have the same bits at every offset of each operand.
static void check_bits_of(const Rank *r, int M, int N, int K)
{
    enum { ROOM = 32 };
    size_t a = (size_t)(M * K), b = (size_t)(K * N), c = (size_t)(M * N);
    cublasHandle_t handle = open_handle(r);
    float *A = whole_numbers(a, 5), *B = whole_numbers(b, 6), *first = NULL;
    for (size_t i = 0; i < a; i++) A[i] = A[i] * 0.1f + 0.37f;
    for (size_t i = 0; i < b; i++) B[i] = B[i] / 3.0f + 0.11f;
    float *dA = NULL, *dB = NULL, *dC = NULL;
    need_cuda(cudaMalloc((void **)&dA, (a + ROOM) * sizeof(float)));
    need_cuda(cudaMalloc((void **)&dB, (b + ROOM) * sizeof(float)));
    need_cuda(cudaMalloc((void **)&dC, (c + ROOM) * sizeof(float)));
    for (int form = 0; form < 4; form++) {
        int lda = form & 1 ? K : M, ldb = form & 2 ? N : K;
        free(first);
        first = NULL;
        for (int offset = 0; offset < ROOM; offset++) {
            float *atA = dA + offset, *atB = dB + offset * 7 % ROOM, *atC = dC + offset * 11 % ROOM;
            send_to(atA, A, a);
            send_to(atB, B, b);
            need_blas(cublasSgemm(handle, form & 1 ? CUBLAS_OP_T : CUBLAS_OP_N,
                                  form & 2 ? CUBLAS_OP_T : CUBLAS_OP_N, M, N, K, &ONE, atA, lda,
                                  atB, ldb, &ZERO, atC, M));
            float *got = fetch(atC, c);
            if (first == NULL) {
                first = got;
                continue;
            }
            check(memcmp(got, first, c * sizeof *got) == 0,
                  "form %d: the product at offset %d has other bits than at offset 0", form,
                  offset);
            free(got);
        }
    }
    need_cuda(cudaFree(dA));
    need_cuda(cudaFree(dB));
    need_cuda(cudaFree(dC));
    need_blas(cublasDestroy(handle));
    free(A);
    free(B);
    free(first);
}
RANK_TEST(test_bits, 1)
{
    check_bits_of(r, 37, 29, 53);
    check_bits_of(r, 37, 16, 300);
}
// A batch equals its products one by one, also where the matrices lie between each other's columns.
RANK_TEST(test_batch, 1)
{
    enum { M = 5, N = 7, K = 3, COUNT = 4, LDA = M * COUNT, LDC = M * COUNT };
    cublasHandle_t handle = open_handle(r);
    float *A = whole_numbers(LDA * K, 8), *B = whole_numbers(K * N * COUNT, 9);
    float *dA = on_device(A, LDA * K), *dB = on_device(B, K * N * COUNT);
    float *C = whole_numbers(LDC * N, 10), *dC = on_device(C, LDC * N);
    need_blas(cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &ONE, dA, LDA, M,
                                        dB, K, K * N, &ONE, dC, LDC, M, COUNT));
    float *got = fetch(dC, LDC * N);
    for (int i = 0; i < COUNT; i++)
        for (int col = 0; col < N; col++)
            for (int row = 0; row < M; row++)
                for (int l = 0; l < K; l++)
                    C[col * LDC + i * M + row] +=
                        A[l * LDA + i * M + row] * B[i * K * N + col * K + l];
    check_equal("the batch", got, C, LDC * N);
    need_cuda(cudaFree(dA));
    need_cuda(cudaFree(dB));
    need_cuda(cudaFree(dC));
    need_blas(cublasDestroy(handle));
    free(A);
    free(B);
    free(C);
    free(got);
}
RANK_TEST(test_gemm_ex, 1)
{
    cublasHandle_t handle = open_handle(r);
    const float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}, want[4] = {23, 34, 31, 46};
    float *A = on_device(a, 4), *B = on_device(b, 4), *C = on_device(a, 4);
    need_blas(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &ONE, A, CUDA_R_32F, 2, B,
                           CUDA_R_32F, 2, &ZERO, C, CUDA_R_32F, 2, CUBLAS_COMPUTE_32F,
                           CUBLAS_GEMM_DEFAULT));
    float *got = fetch(C, 4);
    check_equal("A·B", got, want, 4);
    simgpu_on_report(keep_report, NULL);
    expect(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &ONE, A, CUDA_R_16F, 2, B,
                        CUDA_R_16F, 2, &ZERO, C, CUDA_R_64F, 2, CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT),
           CUBLAS_STATUS_NOT_SUPPORTED, "cuBLAS has no such product");
    simgpu_on_report(NULL, NULL);
    need_cuda(cudaFree(A));
    need_cuda(cudaFree(B));
    need_cuda(cudaFree(C));
    need_blas(cublasDestroy(handle));
    free(got);
}
// y stays as it is, and x is not read: nobody has written it.
RANK_TEST(test_axpy_by_zero, 1)
{
    cublasHandle_t handle = open_handle(r);
    const float host[6] = {10, 20, 30, 40, 50, 60};
    float *y = on_device(host, 6), *x = NULL, *zero = on_device(&ZERO, 1);
    need_cuda(cudaMalloc((void **)&x, 6 * sizeof *x));
    need_blas(cublasSaxpy(handle, 6, &ZERO, x, 1, y, 1));
    need_blas(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
    need_blas(cublasSaxpy(handle, 6, zero, x, 1, y, 1));
    float *got = fetch(y, 6);
    check_equal("y + 0·x", got, host, 6);
    free(got);
    need_cuda(cudaFree(x));
    need_cuda(cudaFree(y));
    need_cuda(cudaFree(zero));
    need_blas(cublasDestroy(handle));
}
// ---- Mistakes ----

RANK_TEST(test_mistakes, 1)
{
    const cublasStatus_t invalid = CUBLAS_STATUS_INVALID_VALUE;
    const cublasOperation_t as_is = CUBLAS_OP_N, turned = CUBLAS_OP_T;
    cublasHandle_t h = open_handle(r);
    float host[16] = {0}, *x = on_device(host, 16);
    simgpu_on_report(keep_report, NULL);
    expect(cublasSgemm(NULL, as_is, as_is, 2, 2, 2, &ONE, x, 2, x, 2, &ONE, x, 2),
           CUBLAS_STATUS_NOT_INITIALIZED, "cublasCreate was not called");
    expect(cublasSgemm(h, as_is, as_is, 4, 2, 2, &ONE, x, 3, x, 2, &ONE, x, 4), invalid,
           "lda is 3, but the matrix has 4 rows (m");
    expect(cublasSgemm(h, turned, as_is, 2, 2, 4, &ONE, x, 3, x, 4, &ONE, x, 2), invalid,
           "lda is 3, but the matrix has 4 rows (k");
    expect(cublasSgemm(h, as_is, as_is, 2, 2, 4, &ONE, x, 2, x, 3, &ONE, x, 2), invalid,
           "ldb is 3, but the matrix has 4 rows (k");
    expect(cublasSgemm(h, as_is, turned, 2, 4, 2, &ONE, x, 2, x, 3, &ONE, x, 2), invalid,
           "ldb is 3, but the matrix has 4 rows (n");
    expect(cublasSgemm(h, as_is, as_is, 4, 2, 2, &ONE, x, 4, x, 2, &ONE, x, 3), invalid,
           "ldc is 3, but the matrix has 4 rows (m");
    expect(cublasSgemm(h, as_is, as_is, -1, 2, 2, &ONE, x, 2, x, 2, &ONE, x, 2), invalid,
           "m is -1");
    expect(cublasSgemm(h, as_is, as_is, 2, 2, 2, NULL, x, 2, x, 2, &ONE, x, 2), invalid,
           "alpha is NULL");
    expect(cublasSgemm(h, (cublasOperation_t)9, as_is, 2, 2, 2, &ONE, x, 2, x, 2, &ONE, x, 2),
           invalid, "transa is 9");
    expect(cublasSaxpy(h, 2, &ONE, x, 0, x, 1), invalid, "incx is 0");
    expect(cublasSgemmStridedBatched(h, as_is, as_is, 2, 2, 2, &ONE, x, 2, 0, x, 2, 0, &ONE, x, 2,
                                     0, 2),
           invalid, "strideC is 0");
    need_blas(cublasDestroy(h));
    expect(cublasDestroy(h), CUBLAS_STATUS_NOT_INITIALIZED, "destroyed at");
    simgpu_on_report(NULL, NULL);
    need_cuda(cudaFree(x));
}
// A product that runs past its matrix is found, and told with the call's name and place.
static void run_past_the_end(const Rank *r, void *arg)
{
    cublasHandle_t h = open_handle(r);
    float host[16] = {0}, *x = on_device(host, 16), *y = on_device(host, 15);
    need_blas(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &ONE, x, 4, x, 4, &ZERO, y, 4));
}
TEST(test_out_of_bounds)
{
    char *message = run_ranks_message(1, 20.0, run_past_the_end, NULL);
    assert_non_null(message);
    assert_non_null(strstr(message, "cublasSgemm"));
    assert_non_null(strstr(message, "blas.c:"));
    assert_non_null(strstr(message, "run_past_the_end"));
    free(message);
}

// ---- The log ----

// One log entry a call, on the handle's stream, with the bytes of each operand from first to last.
RANK_TEST(test_log, 1)
{
    cublasHandle_t h = open_handle(r);
    float host[64] = {0}, *A = on_device(host, 64), *B = on_device(host, 64),
          *C = on_device(host, 64);
    uint64_t before = gpulog_length();
    need_blas(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &ONE, A, 5, B, 6, &ZERO, C, 7));
    GpuLogEntry e;
    check(gpulog_length() == before + 1 && gpulog_get(before, &e), "the call is not one operation");
    check(e.op == GPU_BLAS && strcmp(e.name, "cublasSgemm") == 0 && e.stream == r->stream,
          "the operation is %s on another stream", e.name);
    check(e.n_ranges == 3, "it has %d ranges", e.n_ranges);
    check(e.range[0].ptr == A && e.range[0].bytes == (5 * 3 + 2) * 4 &&
              e.range[0].access == GPU_READ,
          "A: %zu bytes", e.range[0].bytes);
    check(e.range[1].ptr == B && e.range[1].bytes == (6 * 2 + 4) * 4 &&
              e.range[1].access == GPU_READ,
          "B: %zu bytes", e.range[1].bytes);
    check(e.range[2].ptr == C && e.range[2].bytes == (7 * 2 + 2) * 4 &&
              e.range[2].access == GPU_WRITE,
          "C: %zu bytes", e.range[2].bytes);
    need_blas(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &ONE, A, 5, B, 6, &ONE, C, 7));
    check(gpulog_get(before + 1, &e) && e.range[2].access == GPU_UPDATE,
          "beta = 1 does not read C");
    need_cuda(cudaFree(A));
    need_cuda(cudaFree(B));
    need_cuda(cudaFree(C));
    need_blas(cublasDestroy(h));
}
SUITE_MAIN("cuBLAS")
