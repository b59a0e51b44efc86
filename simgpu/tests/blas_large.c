/* blas_large.c: sizes and strides at the end of what they can say: matrices more than 2³¹ elements
 * apart (of which only the elements themselves are touched), and operands that no memory holds,
 * which are reported and not cut off.
 */
#include <limits.h>

#include "blas_exact.h"

static const int64_t FAR = ((int64_t)1 << 31) + 5; // elements: 8 GiB of floats
static const float ONE = 1.0f, ZERO = 0.0f;

// Number i of those that lie FAR apart.
static void put(float *first, int i, float x)
{
    need_cuda(cudaMemcpy(first + i * FAR, &x, sizeof x, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
}
static void is(const float *first, int i, float want)
{
    float x = NAN;
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaMemcpy(&x, first + i * FAR, sizeof x, cudaMemcpyDeviceToHost));
    check(x == want, "number %d is %g, not %g", i, x, want);
}

static void far_apart(const Rank *r, void *arg)
{
    const cublasOperation_t N = CUBLAS_OP_N;
    cublasHandle_t h = NULL;
    float *p = NULL;
    need_blas(cublasCreate(&h));
    need_cuda(cudaMalloc((void **)&p, (size_t)(2 * FAR + 8) * sizeof *p));
    for (int i = 0; i < 3; i++) put(p, i, (float)i + 2.0f); // 2 3 4
    need_blas(cublasSgemmStridedBatched(h, N, N, 1, 1, 1, &ONE, p, 1, FAR, p, 1, FAR, &ZERO, p + 1,
                                        1, FAR, 3));
    for (int i = 0; i < 3; i++) is(p + 1, i, (float)((i + 2) * (i + 2)));
    // The other way round: from the last to the first.
    need_blas(cublasSgemmStridedBatched(h, N, N, 1, 1, 1, &ONE, p + 2 * FAR, 1, -FAR, p, 1, 0, &ONE,
                                        p + 1, 1, FAR, 3));
    for (int i = 0; i < 3; i++) is(p + 1, i, (float)((i + 2) * (i + 2) + 2 * (4 - i)));
    need_cuda(cudaFree(p));
    need_blas(cublasDestroy(h));
}
// A GPU under ThreadSanitizer has 8 GiB.
TEST(test_far_apart)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    run_ranks(1, far_apart, NULL);
}

// ---- Too large ----

enum { SCAL, GEMV, GEMM, STRIDED, TRSM, TOO_LARGE };
static void too_large(const Rank *r, void *arg)
{
    const cublasOperation_t N = CUBLAS_OP_N;
    const int n = INT_MAX;
    cublasHandle_t h = NULL;
    float *p = NULL;
    void *z = NULL;
    need_blas(cublasCreate(&h));
    need_cuda(cudaMalloc((void **)&p, 1024));
    need_cuda(cudaMemset(p, 0, 1024));
    z = p;
    const cuDoubleComplex one = {1.0, 0.0};
    switch (*(int *)arg) {
    case SCAL: cublasZscal(h, n, &one, z, n); break;
    case GEMV: cublasZgemv(h, N, n, n, &one, z, n, z, 1, &one, z, 1); break;
    case GEMM: cublasSgemm(h, N, N, n, n, n, &ONE, p, n, p, n, &ONE, p, n); break;
    case STRIDED:
        cublasSgemmStridedBatched(h, N, N, 1, 1, 1, &ONE, p, 1, INT64_MAX, p, 1, 0, &ONE, p, 1, 1,
                                  n);
        break;
    default:
        cublasZtrsm(h, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER, N, CUBLAS_DIAG_NON_UNIT, n, n,
                    &one, z, n, z, n);
    }
}
TEST(test_too_large)
{
    for (int which = 0; which < TOO_LARGE; which++) {
        char *message = run_ranks_message(1, 20, too_large, &which);
        if (!message || !strstr(message, "past the end of an allocation"))
            fail_msg("call %d: %s", which, message ? message : "not a word");
        free(message);
    }
}

SUITE_MAIN("cuBLAS, large sizes")
