/* blas_legacy.c: cuBLAS without handles (cublas.h). What a call does must be bitwise what the call
 * of cublas_v2.h does that it stands for; what those do is compared with loops in the other suites.
 * Then the hidden handle, cublasGetError, and what is reported.
 */
#include <cublas_api.h>
// The harness includes cublas_v2.h, which this file may not have.
#define CUBLAS_V2_H_
#define SIMGPU_CUBLAS_V2
#include "heard.h"
#undef CUBLAS_V2_H_
#include <cublas.h>

#define need_blas(call)                                                                            \
    do {                                                                                           \
        cublasStatus_t need_ = (call);                                                             \
        if (need_ != CUBLAS_STATUS_SUCCESS)                                                        \
            rank_fails(__FILE__, __LINE__, "%s: %s", #call, cublasGetStatusName(need_));           \
    } while (0)

// ---- Each call, and what it stands for ----

enum { N = 5, K = 3, LD = 7, ROOM = LD * LD, PLACES = 3 };
#define UPPER CUBLAS_FILL_MODE_UPPER
#define LOWER CUBLAS_FILL_MODE_LOWER
#define UNIT CUBLAS_DIAG_UNIT
#define PLAIN CUBLAS_DIAG_NON_UNIT
#define LEFT CUBLAS_SIDE_LEFT
#define RIGHT CUBLAS_SIDE_RIGHT
#define ASIS CUBLAS_OP_N
#define TURN CUBLAS_OP_T
#define CONJ CUBLAS_OP_C

// Where a call is made: its operands in device memory, and what it hands back on the host.
typedef struct Stage {
    cublasHandle_t h; // of the second form
    bool old;         // the first form is to be called
    int which;        // the number of the call; it is counted down
    const char *name;
    cublasStatus_t status;
} Stage;

// One call in both forms; `result` is what the first hands back.
#define PAIR(first, ...)                                                                           \
    if (s->which-- == 0) {                                                                         \
        s->name = #first;                                                                          \
        if (s->old)                                                                                \
            first;                                                                                 \
        else                                                                                       \
            s->status = __VA_ARGS__;                                                               \
        return true;                                                                               \
    }

// Of every type. m is a place on the host for numbers of the type, p one for whole numbers.
#define EVERY(L, l, T, R, sum)                                                                     \
    static bool every_##L(Stage *s, T *a, T *b, T *c, T *m, int *p, T u, T v)                      \
    {                                                                                              \
        cublasHandle_t h = s->h;                                                                   \
        R *r = (R *)m;                                                                             \
        PAIR(cublas##L##scal(N, u, a, 2), cublas##L##scal_v2(h, N, &u, a, 2))                      \
        PAIR(cublas##L##axpy(N, u, a, 2, b, -1), cublas##L##axpy_v2(h, N, &u, a, 2, b, -1))        \
        PAIR(cublas##L##copy(N, a, 2, b, -1), cublas##L##copy_v2(h, N, a, 2, b, -1))               \
        PAIR(cublas##L##swap(N, a, 2, b, -1), cublas##L##swap_v2(h, N, a, 2, b, -1))               \
        PAIR(*p = cublasI##l##amax(N, a, 2), cublasI##l##amax_v2(h, N, a, 2, p))                   \
        PAIR(*p = cublasI##l##amin(N, a, 2), cublasI##l##amin_v2(h, N, a, 2, p))                   \
        PAIR(*r = cublas##sum##nrm2(N, a, 2), cublas##sum##nrm2_v2(h, N, a, 2, r))                 \
        PAIR(*r = cublas##sum##asum(N, a, 2), cublas##sum##asum_v2(h, N, a, 2, r))                 \
        PAIR(cublas##L##gemv('n', N, K, u, a, LD, b, 1, v, c, 2),                                  \
             cublas##L##gemv_v2(h, ASIS, N, K, &u, a, LD, b, 1, &v, c, 2))                         \
        PAIR(cublas##L##gemv('C', N, K, u, a, LD, b, 1, v, c, 2),                                  \
             cublas##L##gemv_v2(h, CONJ, N, K, &u, a, LD, b, 1, &v, c, 2))                         \
        PAIR(cublas##L##gbmv('t', N, K, 1, 2, u, a, LD, b, 1, v, c, 2),                            \
             cublas##L##gbmv_v2(h, TURN, N, K, 1, 2, &u, a, LD, b, 1, &v, c, 2))                   \
        PAIR(cublas##L##trmv('U', 'n', 'u', N, a, LD, b, 1),                                       \
             cublas##L##trmv_v2(h, UPPER, ASIS, UNIT, N, a, LD, b, 1))                             \
        PAIR(cublas##L##tbmv('l', 't', 'N', N, 2, a, LD, b, 1),                                    \
             cublas##L##tbmv_v2(h, LOWER, TURN, PLAIN, N, 2, a, LD, b, 1))                         \
        PAIR(cublas##L##tpmv('L', 'c', 'U', N, a, b, 1),                                           \
             cublas##L##tpmv_v2(h, LOWER, CONJ, UNIT, N, a, b, 1))                                 \
        PAIR(cublas##L##trsv('u', 'T', 'n', N, a, LD, b, 1),                                       \
             cublas##L##trsv_v2(h, UPPER, TURN, PLAIN, N, a, LD, b, 1))                            \
        PAIR(cublas##L##tbsv('L', 'N', 'U', N, 2, a, LD, b, 1),                                    \
             cublas##L##tbsv_v2(h, LOWER, ASIS, UNIT, N, 2, a, LD, b, 1))                          \
        PAIR(cublas##L##tpsv('U', 'C', 'N', N, a, b, 1),                                           \
             cublas##L##tpsv_v2(h, UPPER, CONJ, PLAIN, N, a, b, 1))                                \
        PAIR(cublas##L##gemm('N', 't', N, K, 2, u, a, LD, b, N, v, c, N),                          \
             cublas##L##gemm_v2(h, ASIS, TURN, N, K, 2, &u, a, LD, b, N, &v, c, N))                \
        PAIR(cublas##L##gemm('c', 'n', N, K, 2, u, a, LD, b, N, v, c, N),                          \
             cublas##L##gemm_v2(h, CONJ, ASIS, N, K, 2, &u, a, LD, b, N, &v, c, N))                \
        PAIR(cublas##L##symm('r', 'U', N, K, u, a, LD, b, N, v, c, N),                             \
             cublas##L##symm_v2(h, RIGHT, UPPER, N, K, &u, a, LD, b, N, &v, c, N))                 \
        PAIR(cublas##L##syrk('l', 'n', N, K, u, a, LD, v, c, N),                                   \
             cublas##L##syrk_v2(h, LOWER, ASIS, N, K, &u, a, LD, &v, c, N))                        \
        PAIR(cublas##L##syr2k('U', 'T', N, K, u, a, LD, b, N, v, c, N),                            \
             cublas##L##syr2k_v2(h, UPPER, TURN, N, K, &u, a, LD, b, N, &v, c, N))                 \
        PAIR(cublas##L##trmm('L', 'u', 'n', 'N', N, K, u, a, LD, b, N),                            \
             cublas##L##trmm_v2(h, LEFT, UPPER, ASIS, PLAIN, N, K, &u, a, LD, b, N, b, N))         \
        PAIR(cublas##L##trsm('R', 'l', 't', 'u', N, K, u, a, LD, b, N),                            \
             cublas##L##trsm_v2(h, RIGHT, LOWER, TURN, UNIT, N, K, &u, a, LD, b, N))               \
        return false;                                                                              \
    }
EVERY(S, s, float, float, S)
EVERY(D, d, double, double, D)
EVERY(C, c, cuComplex, float, Sc)
EVERY(Z, z, cuDoubleComplex, double, Dz)

#define REAL(L, T)                                                                                 \
    static bool only_##L(Stage *s, T *a, T *b, T *c, T *m, int *p, T u, T v)                       \
    {                                                                                              \
        cublasHandle_t h = s->h;                                                                   \
        T q[5] = {-1, 2, 3, 4, 5};                                                                 \
        PAIR(*m = cublas##L##dot(N, a, 2, b, -1), cublas##L##dot_v2(h, N, a, 2, b, -1, m))         \
        PAIR(cublas##L##rot(N, a, 2, b, -1, u, v), cublas##L##rot_v2(h, N, a, 2, b, -1, &u, &v))   \
        PAIR(cublas##L##rotg(m, m + 1, m + 2, m + 3),                                              \
             cublas##L##rotg_v2(h, m, m + 1, m + 2, m + 3))                                        \
        PAIR(cublas##L##rotm(N, a, 2, b, -1, q), cublas##L##rotm_v2(h, N, a, 2, b, -1, q))         \
        PAIR(cublas##L##rotmg(m, m + 1, m + 2, &v, m + 3),                                         \
             cublas##L##rotmg_v2(h, m, m + 1, m + 2, &v, m + 3))                                   \
        PAIR(cublas##L##symv('U', N, u, a, LD, b, 1, v, c, 2),                                     \
             cublas##L##symv_v2(h, UPPER, N, &u, a, LD, b, 1, &v, c, 2))                           \
        PAIR(cublas##L##sbmv('L', N, 2, u, a, LD, b, 1, v, c, 2),                                  \
             cublas##L##sbmv_v2(h, LOWER, N, 2, &u, a, LD, b, 1, &v, c, 2))                        \
        PAIR(cublas##L##spmv('u', N, u, a, b, 1, v, c, 2),                                         \
             cublas##L##spmv_v2(h, UPPER, N, &u, a, b, 1, &v, c, 2))                               \
        PAIR(cublas##L##ger(N, K, u, a, 2, b, -1, c, LD),                                          \
             cublas##L##ger_v2(h, N, K, &u, a, 2, b, -1, c, LD))                                   \
        PAIR(cublas##L##syr('L', N, u, a, 2, c, LD),                                               \
             cublas##L##syr_v2(h, LOWER, N, &u, a, 2, c, LD))                                      \
        PAIR(cublas##L##spr('U', N, u, a, 2, c), cublas##L##spr_v2(h, UPPER, N, &u, a, 2, c))      \
        PAIR(cublas##L##syr2('u', N, u, a, 2, b, -1, c, LD),                                       \
             cublas##L##syr2_v2(h, UPPER, N, &u, a, 2, b, -1, c, LD))                              \
        PAIR(cublas##L##spr2('l', N, u, a, 2, b, -1, c),                                           \
             cublas##L##spr2_v2(h, LOWER, N, &u, a, 2, b, -1, c))                                  \
        return false;                                                                              \
    }
REAL(S, float)
REAL(D, double)

#define COMPLEX(L, T, R, rscal, rrot)                                                              \
    static bool only_##L(Stage *s, T *a, T *b, T *c, T *m, int *p, T u, T v)                       \
    {                                                                                              \
        cublasHandle_t h = s->h;                                                                   \
        R x = u.x, y = v.x, *r = (R *)(m + 3);                                                     \
        PAIR(*m = cublas##L##dotu(N, a, 2, b, -1), cublas##L##dotu_v2(h, N, a, 2, b, -1, m))       \
        PAIR(*m = cublas##L##dotc(N, a, 2, b, -1), cublas##L##dotc_v2(h, N, a, 2, b, -1, m))       \
        PAIR(cublas##rscal(N, x, a, 2), cublas##rscal##_v2(h, N, &x, a, 2))                        \
        PAIR(cublas##rrot(N, a, 2, b, -1, x, y), cublas##rrot##_v2(h, N, a, 2, b, -1, &x, &y))     \
        PAIR(cublas##L##rot(N, a, 2, b, -1, x, v), cublas##L##rot_v2(h, N, a, 2, b, -1, &x, &v))   \
        PAIR(cublas##L##rotg(m, u, r, m + 2), cublas##L##rotg_v2(h, m, &u, r, m + 2))              \
        PAIR(cublas##L##hemv('U', N, u, a, LD, b, 1, v, c, 2),                                     \
             cublas##L##hemv_v2(h, UPPER, N, &u, a, LD, b, 1, &v, c, 2))                           \
        PAIR(cublas##L##hbmv('L', N, 2, u, a, LD, b, 1, v, c, 2),                                  \
             cublas##L##hbmv_v2(h, LOWER, N, 2, &u, a, LD, b, 1, &v, c, 2))                        \
        PAIR(cublas##L##hpmv('u', N, u, a, b, 1, v, c, 2),                                         \
             cublas##L##hpmv_v2(h, UPPER, N, &u, a, b, 1, &v, c, 2))                               \
        PAIR(cublas##L##geru(N, K, u, a, 2, b, -1, c, LD),                                         \
             cublas##L##geru_v2(h, N, K, &u, a, 2, b, -1, c, LD))                                  \
        PAIR(cublas##L##gerc(N, K, u, a, 2, b, -1, c, LD),                                         \
             cublas##L##gerc_v2(h, N, K, &u, a, 2, b, -1, c, LD))                                  \
        PAIR(cublas##L##her('L', N, x, a, 2, c, LD),                                               \
             cublas##L##her_v2(h, LOWER, N, &x, a, 2, c, LD))                                      \
        PAIR(cublas##L##hpr('U', N, x, a, 2, c), cublas##L##hpr_v2(h, UPPER, N, &x, a, 2, c))      \
        PAIR(cublas##L##her2('u', N, u, a, 2, b, -1, c, LD),                                       \
             cublas##L##her2_v2(h, UPPER, N, &u, a, 2, b, -1, c, LD))                              \
        PAIR(cublas##L##hpr2('l', N, u, a, 2, b, -1, c),                                           \
             cublas##L##hpr2_v2(h, LOWER, N, &u, a, 2, b, -1, c))                                  \
        PAIR(cublas##L##hemm('l', 'L', N, K, u, a, LD, b, N, v, c, N),                             \
             cublas##L##hemm_v2(h, LEFT, LOWER, N, K, &u, a, LD, b, N, &v, c, N))                  \
        PAIR(cublas##L##herk('U', 'c', N, K, x, a, LD, y, c, N),                                   \
             cublas##L##herk_v2(h, UPPER, CONJ, N, K, &x, a, LD, &y, c, N))                        \
        PAIR(cublas##L##her2k('L', 'N', N, K, u, a, LD, b, N, y, c, N),                            \
             cublas##L##her2k_v2(h, LOWER, ASIS, N, K, &u, a, LD, b, N, &y, c, N))                 \
        return false;                                                                              \
    }
COMPLEX(C, cuComplex, float, Csscal, Csrot)
COMPLEX(Z, cuDoubleComplex, double, Zdscal, Zdrot)

// The same operands before every call; what one form makes of them.
typedef struct Outcome {
    char device[PLACES][ROOM * 16], host[8 * 16];
    int place;
} Outcome;

#define RUN(L, T, SCALAR)                                                                          \
    static bool run_##L(Stage *s, bool only, Outcome *o)                                           \
    {                                                                                              \
        T host[PLACES][ROOM], *at[PLACES], *m = (T *)(void *)o->host;                              \
        unsigned seed = 7;                                                                         \
        memset(o, 0, sizeof *o);                                                                   \
        for (size_t i = 0; i < sizeof host / sizeof(SCALAR); i++) {                                \
            seed = seed * 1664525u + 1013904223u;                                                  \
            ((SCALAR *)(void *)host)[i] = (SCALAR)(seed >> 20) / 1024 + 1;                         \
        }                                                                                          \
        memcpy(m, host, sizeof o->host);                                                           \
        for (int i = 0; i < PLACES; i++) {                                                         \
            need_cuda(cudaMalloc((void **)&at[i], sizeof host[i]));                                \
            need_cuda(cudaMemcpy(at[i], host[i], sizeof host[i], cudaMemcpyHostToDevice));         \
        }                                                                                          \
        need_cuda(cudaDeviceSynchronize());                                                        \
        bool known = (only ? only_##L : every_##L)(s, at[0], at[1], at[2], m, &o->place,           \
                                                   host[0][1], host[0][2]);                        \
        need_cuda(cudaDeviceSynchronize());                                                        \
        for (int i = 0; i < PLACES; i++) {                                                         \
            need_cuda(cudaMemcpy(o->device[i], at[i], sizeof host[i], cudaMemcpyDeviceToHost));    \
            need_cuda(cudaFree(at[i]));                                                            \
        }                                                                                          \
        return known;                                                                              \
    }
RUN(S, float, float)
RUN(D, double, double)
RUN(C, cuComplex, float)
RUN(Z, cuDoubleComplex, double)

static void compare_forms(const Rank *r, void *arg)
{
    static bool (*const run[])(Stage *, bool, Outcome *) = {run_S, run_D, run_C, run_Z};
    static Outcome one, other;
    cublasHandle_t h = NULL;
    int calls = 0;
    need_blas(cublasInit());
    need_blas(cublasCreate_v2(&h));
    for (int type = 0; type < 4; type++)
        for (int only = 0; only < 2; only++)
            for (int which = 0;; which++, calls++) {
                Stage s = {h, true, which, "", CUBLAS_STATUS_SUCCESS}, t = {h, false, which, "", 0};
                if (!run[type](&s, only, &one)) break;
                run[type](&t, only, &other);
                check(cublasGetError() == CUBLAS_STATUS_SUCCESS, "%s: an error", s.name);
                need_blas(t.status);
                check(memcmp(&one, &other, sizeof one) == 0,
                      "call %d (%s) of \"SDCZ\"[%d] does something else than its second form",
                      which, s.name, type);
            }
    check(calls == 2 * (24 + 13) + 2 * (24 + 18), "%d calls were compared", calls);
    need_blas(cublasDestroy_v2(h));
    need_blas(cublasShutdown());
}
static void test_both_forms(void **state)
{
    run_ranks(1, compare_forms, NULL);
}

// ---- The hidden handle ----

// Before cublasInit and after cublasShutdown, a wrong letter and a wrong number: the calls do
// nothing, it is reported with their lines, and cublasGetError has it once.
static void check_mistakes(const Rank *r, void *arg)
{
    static Heard heard;
    float *x = NULL, host[4] = {1, 2, 3, 4};
    void *p = NULL;
    int version = 0;
    hear(&heard);
#define WRONG(status, words, ...)                                                                  \
    do {                                                                                           \
        heard.count = 0;                                                                           \
        __VA_ARGS__;                                                                               \
        heard_is(&heard, "a cuBLAS call with a wrong argument", words);                            \
        check(strstr(heard.text, "blas_legacy.c:") != NULL, "no line of mine: %s", heard.text);    \
        cublasStatus_t got = cublasGetError();                                                     \
        check(got == CUBLAS_STATUS_##status, "%s: %s", #__VA_ARGS__, cublasGetStatusName(got));    \
        check(cublasGetError() == CUBLAS_STATUS_SUCCESS, "the error is there twice");              \
    } while (0)
    WRONG(NOT_INITIALIZED, "cublasInit was not called on device", cublasSscal(2, 2.0f, x, 1));
    WRONG(NOT_INITIALIZED, "cublasAlloc, called at", cublasAlloc(4, 4, &p));
    need_blas(cublasInit());
    need_blas(cublasInit()); // again is nothing new
    need_blas(cublasGetVersion(&version));
    check(version == CUBLAS_VERSION, "the version is %d", version);
    need_blas(cublasAlloc(4, sizeof(float), &p));
    x = p;
    need_blas(cublasSetVector(4, sizeof(float), host, 1, x, 1));
    WRONG(INVALID_VALUE, "transb is 88",
          cublasSgemm('N', 'X', 1, 1, 1, 1.0f, x, 1, x, 1, 0.0f, x, 1));
    WRONG(INVALID_VALUE, "uplo is 63", cublasSsyr('?', 1, 1.0f, x, 1, x, 1));
    WRONG(INVALID_VALUE, "lda is 1", cublasSgemv('N', 2, 1, 1.0f, x, 1, x, 1, 0.0f, x, 1));
    WRONG(INVALID_VALUE, "both must be at least 1", cublasAlloc(0, 4, &p));
    check(cublasSdot(4, x, 1, x, 1) == 30.0f, "the dot product is %g", cublasSdot(4, x, 1, x, 1));
    need_blas(cublasFree(x));
    need_blas(cublasShutdown());
    WRONG(NOT_INITIALIZED, "or cublasShutdown was", cublasFree(x));
    simgpu_on_report(NULL, NULL);
}
static void test_mistakes(void **state)
{
    run_ranks(1, check_mistakes, NULL);
}

// The log has the calls by their names, at the program's lines, on the stream that was set; each
// device has a handle of its own.
static void check_log(const Rank *r, void *arg)
{
    cudaStream_t stream = NULL;
    void *p = NULL;
    GpuLogEntry e;
    char where[256];
    need_blas(cublasInit());
    need_cuda(cudaStreamCreate(&stream));
    need_blas(cublasSetKernelStream(stream));
    uint64_t before = gpulog_length();
    need_blas(cublasAlloc(8, sizeof(double), &p));
    check(gpulog_get(before, &e) && e.op == GPU_ALLOC && !strcmp(e.name, "cublasAlloc") &&
              e.bytes == 64,
          "no allocation of 64 bytes by cublasAlloc");
    need_cuda(cudaMemsetAsync(p, 0, 64, stream));
    before = gpulog_length();
    cublasDscal(4, 2.0, p, 2);
    check(gpulog_get(before, &e) && !strcmp(e.name, "cublasDscal") && e.stream == stream,
          "the call is %s", e.name);
    gpulog_where(e.site, where, sizeof where);
    check(strstr(where, "blas_legacy.c:") != NULL, "it is at %s", where);
    need_cuda(cudaStreamSynchronize(stream));
    need_blas(cublasFree(p));
    need_cuda(cudaSetDevice(1));
    need_blas(cublasInit());
    need_blas(cublasAlloc(8, sizeof(double), &p));
    need_cuda(cudaMemset(p, 0, 64));
    before = gpulog_length();
    cublasDscal(4, 2.0, p, 2);
    check(gpulog_get(before, &e) && e.device == 1 && e.stream == NULL, "it is on device %d",
          e.device);
    need_cuda(cudaDeviceSynchronize());
    need_blas(cublasFree(p));
    need_blas(cublasShutdown());
    need_cuda(cudaSetDevice(0));
    need_cuda(cudaStreamDestroy(stream));
}
static void test_log(void **state)
{
    run_ranks(1, check_log, NULL);
}

// Without cublasShutdown the hidden handle is left over, made at the line of cublasInit.
static void leave_open(void)
{
    void *p = NULL;
    cublasInit();
    cublasAlloc(4, 4, &p);
    cublasFree(p);
    exit(0);
}
static void test_left_open(void **state)
{
    int status;
    char *text = stderr_of(leave_open, &status);
    if (!strstr(text, "1 cuBLAS handle, made at ") || !strstr(text, "blas_legacy.c:"))
        fail_msg("it says: %s", text);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_both_forms),
    cmocka_unit_test(test_mistakes),
    cmocka_unit_test(test_log),
    cmocka_unit_test(test_left_open),
};
SUITE_MAIN("cuBLAS without handles", tests)
