/* blas_large.c: calls with sizes of 64 bits, and sizes that need them: elements more than 2³¹ apart
 * (of which only those are touched), and sizes that no memory has, which are reported and not cut
 * off at 32 bits.
 */
#include "blas_exact.h"
#include "heard.h"

static const int64_t FAR = ((int64_t)1 << 31) + 5; // elements: 8 GiB of floats
static const float ONE = 1.0f, TWO = 2.0f, ZERO = 0.0f;

// Element (row, col) of a matrix whose columns lie FAR apart.
static void put(float *matrix, int row, int col, float x)
{
    need_cuda(cudaMemcpy(matrix + col * FAR + row, &x, sizeof x, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
}
static float get(const float *matrix, int row, int col)
{
    float x = NAN;
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaMemcpy(&x, matrix + col * FAR + row, sizeof x, cudaMemcpyDeviceToHost));
    return x;
}
static void is(const char *what, float got, float want)
{
    check(got == want, "%s is %g, not %g", what, got, want);
}

static void far_apart(const Rank *r, void *arg)
{
    cublasHandle_t h = NULL;
    float *p = NULL, result = 0.0f;
    int64_t place = 0;
    need_blas(cublasCreate(&h));
    need_cuda(cudaMalloc((void **)&p, (size_t)(2 * FAR + 8) * sizeof *p));
    for (int i = 0; i < 3; i++) put(p, 0, i, (float)i - 5.0f); // x: -5 -4 -3
    for (int i = 0; i < 3; i++) put(p, 1, i, 10.0f);           // y
    need_blas(cublasSaxpy_64(h, 3, &TWO, p, FAR, p + 1, FAR));
    is("y[0]", get(p, 1, 0), 0.0f);
    is("y[2]", get(p, 1, 2), 4.0f);
    need_blas(cublasSaxpy_64(h, 3, &ONE, p, -FAR, p + 1, FAR));
    is("y[0], with x turned around", get(p, 1, 0), -3.0f);
    need_blas(cublasSasum_64(h, 3, p, FAR, &result));
    is("the sum of magnitudes", result, 12.0f);
    need_blas(cublasIsamin_64(h, 3, p, FAR, &place));
    check(place == 3, "the smallest is at %lld, not 3", (long long)place);
    // A (2,2) = [1 3; 2 4], columns FAR apart; C = A·A
    for (int i = 0; i < 4; i++) put(p + 2, i % 2, i / 2, (float)i + 1.0f);
    need_blas(cublasSgemm_64(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &ONE, p + 2, FAR, p + 2, FAR,
                             &ZERO, p + 4, FAR));
    is("C[0,0]", get(p + 4, 0, 0), 7.0f);
    is("C[1,1]", get(p + 4, 1, 1), 22.0f);
    need_blas(cublasSgemmStridedBatched_64(h, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &ONE, p + 2, 1,
                                           FAR, p + 2, 1, FAR, &ZERO, p + 6, 1, FAR, 2));
    is("the second product", get(p + 6, 0, 1), 9.0f);
    need_blas(cublasSgemv_64(h, CUBLAS_OP_T, 2, 2, &ONE, p + 2, FAR, p + 4, 1, &ZERO, p + 7, -FAR));
    is("y[0] of Aᵀ·x", get(p + 7, 0, 1), 1 * 7.0f + 2 * 10.0f);
    is("y[1] of Aᵀ·x", get(p + 7, 0, 0), 3 * 7.0f + 4 * 10.0f);
    need_cuda(cudaFree(p));
    need_blas(cublasDestroy(h));
}
// A GPU under ThreadSanitizer has 8 GiB.
static void test_far_apart(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    run_ranks(1, far_apart, NULL);
}

// ---- Too large ----

enum { SCAL, GEMV, SYRK, GEMM, STRIDED, TOO_LARGE };
static void too_large(const Rank *r, void *arg)
{
    const int64_t n = (int64_t)1 << 40, huge = INT64_MAX;
    cublasHandle_t h = NULL;
    float *p = NULL;
    need_blas(cublasCreate(&h));
    need_cuda(cudaMalloc((void **)&p, 1024));
    need_cuda(cudaMemset(p, 0, 1024));
    switch (*(int *)arg) {
    case SCAL: cublasSscal_64(h, huge, &ONE, p, huge); break;
    case GEMV: cublasSgemv_64(h, CUBLAS_OP_N, n, n, &ONE, p, n, p, 1, &ONE, p, 1); break;
    case SYRK:
        cublasSsyrk_64(h, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, huge, 1, &ONE, p, huge, &ONE, p,
                       huge);
        break;
    case GEMM:
        cublasSgemm_64(h, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &ONE, p, huge, p, n, &ONE, p, n);
        break;
    default:
        cublasSgemmStridedBatched_64(h, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &ONE, p, 1, huge, p, 1,
                                     0, &ONE, p, 1, 1, huge);
    }
}
static void test_too_large(void **state)
{
    for (int which = 0; which < TOO_LARGE; which++) {
        char *message = run_ranks_message(1, 20, too_large, &which);
        if (!message || !strstr(message, "past the end of an allocation") ||
            !strstr(message, "_64, called at"))
            fail_msg("call %d: %s", which, message ? message : "not a word");
        free(message);
    }
}

// ---- Refused: nothing is cut off ----

static void check_refused(const Rank *r, void *arg)
{
    static Heard heard;
    const int64_t n = ((int64_t)1 << 32) + 1; // 1, cut off at 32 bits
    cublasHandle_t h = NULL;
    float *p = NULL;
    need_blas(cublasCreate(&h));
    need_cuda(cudaMalloc((void **)&p, 1024));
    hear(&heard);
#define REFUSED(words, ...)                                                                        \
    do {                                                                                           \
        heard.count = 0;                                                                           \
        cublasStatus_t got = __VA_ARGS__;                                                          \
        check(got == CUBLAS_STATUS_INVALID_VALUE, "%s: %s", #__VA_ARGS__,                          \
              cublasGetStatusName(got));                                                           \
        heard_is(&heard, "a cuBLAS call with a wrong argument", words);                            \
        check(strstr(heard.text, "_64, called at") != NULL, "another name: %s", heard.text);       \
    } while (0)
    REFUSED("lda is 1, but the matrix has 4294967297 rows",
            cublasSgemm_64(h, CUBLAS_OP_N, CUBLAS_OP_N, n, 1, 1, &ONE, p, 1, p, 1, &ONE, p, n));
    REFUSED("m is -4294967295",
            cublasSgemv_64(h, CUBLAS_OP_N, 2 - n, 1, &ONE, p, n, p, 1, &ONE, p, 1));
    REFUSED("batchCount is -1",
            cublasSgemmStridedBatched_64(h, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &ONE, p, 1, 0, p, 1,
                                         0, &ONE, p, 1, 1, -1));
    simgpu_on_report(NULL, NULL);
    need_cuda(cudaFree(p));
    need_blas(cublasDestroy(h));
}
static void test_refused(void **state)
{
    run_ranks(1, check_refused, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_far_apart),
    cmocka_unit_test(test_too_large),
    cmocka_unit_test(test_refused),
};
SUITE_MAIN("cuBLAS, sizes of 64 bits", tests)
