/* blas_bounds.c: an operand that is one element too short is reported, in every family of calls:
 * with the call's name, the line and "past the end"; with operands of exactly the right size
 * nothing is said. And arguments and combinations of types that cuBLAS refuses.
 */
#include "blas_exact.h"
#include "heard.h"

static const double ONE = 1.0;

// A call, how many doubles its operands have, and which ones the last element makes a difference
// to.
typedef struct Bounds {
    const char *name;
    size_t size[3];
    cublasStatus_t (*call)(cublasHandle_t h, double *a, double *b, double *c);
} Bounds;

#define L CUBLAS_FILL_MODE_LOWER
#define U CUBLAS_FILL_MODE_UPPER
#define LEFT CUBLAS_SIDE_LEFT
#define RIGHT CUBLAS_SIDE_RIGHT
#define N CUBLAS_OP_N
#define T CUBLAS_OP_T
#define PLAIN CUBLAS_DIAG_NON_UNIT
#define UNIT CUBLAS_DIAG_UNIT
#define BODY(id, ...)                                                                              \
    static cublasStatus_t id(cublasHandle_t h, double *a, double *b, double *c)                    \
    {                                                                                              \
        double result[5] = {-1.0, 1.0, 0.0, 0.0, 1.0};                                             \
        int place;                                                                                 \
        (void)a, (void)b, (void)c, (void)result, (void)place;                                      \
        return __VA_ARGS__;                                                                        \
    }
// id, the call's name, the sizes of a, b and c, and its arguments
#define CASES(X)                                                                                   \
    X(axpy, cublasDaxpy, 7, 10, 0, h, 4, &ONE, a, 2, b, -3)                                        \
    X(copy, cublasDcopy, 7, 10, 0, h, 4, a, 2, b, -3)                                              \
    X(swap, cublasDswap, 7, 10, 0, h, 4, a, -2, b, 3)                                              \
    X(scal, cublasDscal, 7, 0, 0, h, 4, &ONE, a, 2)                                                \
    X(dot, cublasDdot, 7, 10, 0, h, 4, a, 2, b, -3, result)                                        \
    X(nrm2, cublasDnrm2, 7, 0, 0, h, 4, a, 2, result)                                              \
    X(asum, cublasDasum, 7, 0, 0, h, 4, a, 2, result)                                              \
    X(amax, cublasIdamax, 7, 0, 0, h, 4, a, 2, &place)                                             \
    X(amin, cublasIdamin, 4, 0, 0, h, 4, a, 1, &place)                                             \
    X(rot, cublasDrot, 7, 10, 0, h, 4, a, 2, b, -3, &ONE, &ONE)                                    \
    X(gemv, cublasDgemv, 18, 7, 7, h, N, 3, 4, &ONE, a, 5, b, 2, &ONE, c, -3)                      \
    X(gemv_t, cublasDgemv, 18, 5, 10, h, T, 3, 4, &ONE, a, 5, b, 2, &ONE, c, -3)                   \
    X(ger, cublasDger, 3, 3, 9, h, 3, 2, &ONE, a, 1, b, 2, c, 6)                                   \
    X(ger_one, cublasDger, 5, 14, 0, h, 2, 5, &ONE, a, 1, a, 1, b, 3)                              \
    X(gemm, cublasDgemm, 18, 17, 13, h, N, N, 3, 2, 4, &ONE, a, 5, b, 13, &ONE, c, 10)             \
    X(gemm_t, cublasDgemm, 14, 17, 13, h, T, T, 3, 2, 4, &ONE, a, 5, b, 5, &ONE, c, 10)            \
    X(strided, cublasDgemmStridedBatched, 26, 12, 15, h, N, N, 2, 2, 2, &ONE, a, 2, 11, b, 2, 4,   \
      &ONE, c, 3, 5, 3)                                                                            \
    X(trsm, cublasDtrsm, 13, 18, 0, h, LEFT, U, N, PLAIN, 3, 4, &ONE, a, 5, b, 5)                  \
    X(geam, cublasDgeam, 18, 14, 15, h, N, T, 3, 4, &ONE, a, 5, &ONE, b, 5, c, 4)                  \
    X(dgmm, cublasDdgmm, 18, 7, 15, h, RIGHT, 3, 4, a, 5, b, -2, c, 4)                             \
    X(trsm_unit, cublasDtrsm, 12, 18, 0, h, LEFT, U, T, UNIT, 3, 4, &ONE, a, 5, b, 5)
#define ONE_BODY(id, name, a, b, c, ...) BODY(id, name(__VA_ARGS__))
CASES(ONE_BODY)

// An array of addresses in device memory, freed at the end of the try.
static double **lists[3];
static int n_lists;
static double *const *listed(double *matrix)
{
    double *list[2] = {matrix, matrix + 2}, **at = NULL;
    need_cuda(cudaMalloc((void **)&at, sizeof list));
    need_cuda(cudaMemcpy(at, list, sizeof list, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    return lists[n_lists++] = at;
}
#define LIST(matrix) (const double *const *)listed(matrix)
BODY(batched,
     cublasDgemmBatched(h, N, T, 3, 2, 4, &ONE, LIST(a), 5, LIST(b), 2, &ONE, listed(c), 3, 1))
BODY(solve_batched,
     cublasDtrsmBatched(h, LEFT, U, N, PLAIN, 3, 2, &ONE, LIST(a), 4, listed(b), 5, 1))
// Three products of an array of two addresses.
BODY(short_list, cublasDgemmBatched(h, N, N, 2, 1, 1, &ONE, LIST(b), 2, LIST(b), 1, &ONE, listed(b),
                                    2, a == NULL ? 3 : 2))

#define ENTRY(id, name, a, b, c, ...) {#name, {a, b, c}, id},
static const Bounds bounds[] = {CASES(ENTRY){"cublasDgemmBatched", {18, 8, 6}, batched},
                                {"cublasDtrsmBatched", {11, 8, 0}, solve_batched},
                                {"cublasDgemmBatched", {1, 4, 0}, short_list}};
enum { N_BOUNDS = sizeof bounds / sizeof *bounds };

typedef struct Try {
    const Bounds *bounds;
    int too_short; // which operand; -1: none
} Try;

static void try_bounds(const Rank *r, void *arg)
{
    const Try *t = arg;
    double *at[3] = {NULL};
    for (int i = 0; i < 3; i++) {
        size_t n = t->bounds->size[i] - (i == t->too_short);
        double host[32] = {0};
        if (n == 0 || t->bounds->size[i] == 0) continue;
        for (size_t j = 0; j < n; j++) host[j] = 1.0;
        need_cuda(cudaMalloc((void **)&at[i], n * sizeof(double)));
        need_cuda(cudaMemcpy(at[i], host, n * sizeof(double), cudaMemcpyHostToDevice));
    }
    need_cuda(cudaDeviceSynchronize());
    cublasHandle_t h = NULL;
    need_blas(cublasCreate(&h));
    need_blas(t->bounds->call(h, at[0], at[1], at[2]));
    need_cuda(cudaDeviceSynchronize());
    need_blas(cublasDestroy(h));
    for (int i = 0; i < 3; i++) need_cuda(cudaFree(at[i]));
    while (n_lists > 0) need_cuda(cudaFree(lists[--n_lists]));
}

TEST(test_bounds)
{
    for (int i = 0; i < N_BOUNDS; i++)
        for (int short_one = -1; short_one < 3; short_one++) {
            Try t = {&bounds[i], short_one};
            if (short_one >= 0 && bounds[i].size[short_one] == 0) continue;
            char *message = run_ranks_message(1, 20, try_bounds, &t);
            char call[64];
            snprintf(call, sizeof call, "%s, called at ", bounds[i].name);
            bool told = message && strstr(message, "past the end of an allocation") &&
                        strstr(message, call) && strstr(message, "blas_bounds.c:") &&
                        strstr(message, "that is 8 bytes too many");
            if (short_one >= 0 && !told)
                fail_msg("%s with operand %d one too short: %s", bounds[i].name, short_one,
                         message ? message : "not a word");
            if (short_one < 0 && message) fail_msg("%s: %s", bounds[i].name, message);
            free(message);
        }
}

// ---- Refused ----

RANK_TEST(test_refused, 1)
{
    const cublasStatus_t invalid = CUBLAS_STATUS_INVALID_VALUE;
    const cublasStatus_t unsupported = CUBLAS_STATUS_NOT_SUPPORTED;
    static Heard heard;
    cublasHandle_t h = NULL;
    double *a = NULL, result;
    void *p = NULL;
    need_cuda(cudaMalloc(&p, 1024));
    need_blas(cublasCreate(&h));
    a = p;
    hear(&heard);
#define REFUSED(status, words, ...)                                                                \
    do {                                                                                           \
        heard.count = 0;                                                                           \
        cublasStatus_t got = __VA_ARGS__;                                                          \
        check(got == (status), "%s: %s", #__VA_ARGS__, cublasGetStatusName(got));                  \
        heard_is(&heard, "a cuBLAS call with a wrong argument", words);                            \
        check(strstr(heard.text, "blas_bounds.c:"), "no line of mine in: %s", heard.text);         \
    } while (0)
    REFUSED(invalid, "uplo is 7",
            cublasDtrsm(h, LEFT, (cublasFillMode_t)7, N, UNIT, 2, 2, &ONE, a, 2, a, 2));
    REFUSED(invalid, "diag is 3",
            cublasDtrsm(h, LEFT, U, N, (cublasDiagType_t)3, 2, 2, &ONE, a, 2, a, 2));
    REFUSED(invalid, "lda is 2", cublasDgemv(h, N, 3, 3, &ONE, a, 2, a, 1, &ONE, a, 1));
    REFUSED(invalid, "incy is 0", cublasDger(h, 2, 2, &ONE, a, 1, a, 0, a, 2));
    REFUSED(invalid, "side is 5", cublasDdgmm(h, (cublasSideMode_t)5, 2, 2, a, 2, a, 1, a, 2));
    REFUSED(invalid, "ldc is 1", cublasDgeam(h, N, N, 2, 2, &ONE, a, 2, &ONE, a + 8, 2, a, 1));
    REFUSED(invalid, "C is A", cublasDgeam(h, T, N, 2, 2, &ONE, a, 2, &ONE, a + 8, 2, a, 2));
    REFUSED(invalid, "result is NULL", cublasDnrm2(h, 2, a, 1, NULL));
    REFUSED(invalid, "batchCount is -1",
            cublasDgemmStridedBatched(h, N, N, 2, 2, 2, &ONE, a, 2, 4, a, 2, 4, &ONE, a, 2, 4, -1));
    REFUSED(unsupported, "goes with CUDA_R_32F",
            cublasGemmEx(h, N, N, 2, 2, 2, &ONE, a, CUDA_R_16F, 2, a, CUDA_R_16BF, 2, &ONE, a,
                         CUDA_R_32F, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    REFUSED(unsupported, "are cublasLtMatmul's alone",
            cublasGemmEx(h, N, N, 2, 2, 2, &ONE, a, CUDA_R_8F_E4M3, 2, a, CUDA_R_8F_E4M3, 2, &ONE,
                         a, CUDA_R_32F, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    REFUSED(unsupported, "CUDA_R_8F_E5M2",
            cublasGemmStridedBatchedEx(h, N, N, 2, 2, 2, &ONE, a, CUDA_R_8F_E5M2, 2, 0, a,
                                       CUDA_R_8F_E4M3, 2, 0, &ONE, a, CUDA_R_16BF, 2, 4, 1,
                                       CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    REFUSED(invalid, "elemSize is 0", cublasSetVector(2, 0, &result, 1, a, 1));
    REFUSED(invalid, "incx is 0", cublasGetVector(2, 8, a, 0, &result, 1));
    REFUSED(invalid, "lda is 1", cublasSetMatrix(2, 1, 8, &result, 1, a, 2));
    simgpu_on_report(NULL, NULL);
    need_blas(cublasDestroy(h));
    need_cuda(cudaFree(p));
}
SUITE_MAIN("cuBLAS, out of bounds and refused")
