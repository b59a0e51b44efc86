/* legacy.c: cuBLAS without handles (cublas.h). cublasInit makes a hidden handle of the current
 * device, and each call is the one of cublas_v2.h by that handle, with scalars and results on the
 * host. What a call is blamed for is the program's line, and its name is the same.
 *
 * Interface: cublasInit, cublasShutdown, cublasGetError, cublasGetVersion, cublasAlloc, cublasFree,
 * cublasSetKernelStream, and the calls of simgpu_cublas/legacy.h.
 */
#include <stdatomic.h>
#include <string.h>

#include "blas.h"
#include "simgpu_cublas/legacy.h"

// ---- The hidden handles, one a device, and the last error ----

enum { MOST_DEVICES = 64 };
static cublasHandle_t hidden[MOST_DEVICES];
static pthread_mutex_t hidden_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int last_error;

static cublasStatus_t note(cublasStatus_t status)
{
    if (status != CUBLAS_STATUS_SUCCESS) atomic_store(&last_error, (int)status);
    return status;
}

// The handle of the current device; NULL: there is none, and that is reported. Until leave, calls
// of cuBLAS take the site for theirs.
static cublasHandle_t enter(const char *name, const void *site)
{
    int device = sim_current_device();
    bool known = device >= 0 && device < MOST_DEVICES;
    pthread_mutex_lock(&hidden_lock);
    cublasHandle_t handle = known ? hidden[device] : NULL;
    pthread_mutex_unlock(&hidden_lock);
    if (handle == NULL)
        note(simblas_refuse((Call){name, site}, CUBLAS_STATUS_NOT_INITIALIZED,
                            "cublasInit was not called on device %d, or cublasShutdown was.",
                            device));
    else
        simblas_caller = site;
    return handle;
}

static cublasStatus_t leave(cublasStatus_t status)
{
    simblas_caller = NULL;
    return note(status);
}

cublasStatus_t cublasInit(void)
{
    Call call = {"cublasInit", SIM_SITE};
    int device = sim_current_device();
    if (device < 0 || device >= MOST_DEVICES)
        return note(
            simblas_refuse(call, CUBLAS_STATUS_NOT_INITIALIZED, "there is no device %d.", device));
    simblas_caller = call.site;
    pthread_mutex_lock(&hidden_lock);
    cublasStatus_t status =
        hidden[device] ? CUBLAS_STATUS_SUCCESS : cublasCreate_v2(&hidden[device]);
    pthread_mutex_unlock(&hidden_lock);
    return leave(status);
}

cublasStatus_t cublasShutdown(void)
{
    simblas_caller = SIM_SITE;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    pthread_mutex_lock(&hidden_lock);
    for (int i = 0; i < MOST_DEVICES && status == CUBLAS_STATUS_SUCCESS; i++) {
        if (hidden[i] != NULL) status = cublasDestroy_v2(hidden[i]);
        hidden[i] = NULL;
    }
    pthread_mutex_unlock(&hidden_lock);
    return leave(status);
}

cublasStatus_t cublasGetError(void)
{
    return (cublasStatus_t)atomic_exchange(&last_error, (int)CUBLAS_STATUS_SUCCESS);
}

cublasStatus_t cublasGetVersion(int *version)
{
    cublasHandle_t h = enter("cublasGetVersion", SIM_SITE);
    return h ? leave(cublasGetVersion_v2(h, version)) : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasAlloc(int n, int elemSize, void **devicePtr)
{
    Call call = {"cublasAlloc", SIM_SITE};
    if (!enter(call.name, call.site)) return CUBLAS_STATUS_NOT_INITIALIZED;
    simblas_caller = NULL;
    if (n <= 0 || elemSize <= 0)
        return note(simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                                   "n is %d, elemSize is %d; both must be at least 1.", n,
                                   elemSize));
    cudaError_t made =
        sim_malloc(call.name, devicePtr, (size_t)n * (size_t)elemSize, false, call.site);
    return note(made == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED);
}

cublasStatus_t cublasFree(void *devicePtr)
{
    const void *site = SIM_SITE;
    if (!enter("cublasFree", site)) return CUBLAS_STATUS_NOT_INITIALIZED;
    simblas_caller = NULL;
    return note(sim_free(devicePtr, site) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                         : CUBLAS_STATUS_INTERNAL_ERROR);
}

cublasStatus_t cublasSetKernelStream(cudaStream_t stream)
{
    cublasHandle_t h = enter("cublasSetKernelStream", SIM_SITE);
    return h ? leave(cublasSetStream_v2(h, stream)) : CUBLAS_STATUS_NOT_INITIALIZED;
}

// ---- Letters ---- Another one is no value of the enum, which the call then says.

static int letter(char is, const char *upper, const int *values)
{
    for (int i = 0; upper[i]; i++)
        if (is == upper[i] || is == upper[i] - 'A' + 'a') return values[i];
    return (unsigned char)is;
}
static cublasOperation_t turn(char is)
{
    return letter(is, "NTC", (int[]){CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C});
}
static cublasFillMode_t fill(char is)
{
    return letter(is, "UL", (int[]){CUBLAS_FILL_MODE_UPPER, CUBLAS_FILL_MODE_LOWER});
}
static cublasDiagType_t diagonal(char is)
{
    return letter(is, "UN", (int[]){CUBLAS_DIAG_UNIT, CUBLAS_DIAG_NON_UNIT});
}
static cublasSideMode_t on(char is)
{
    return letter(is, "LR", (int[]){CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT});
}

// A call with its parameters, and what it is by the handle h; one that hands back a value has it in
// `result`, which is 0 where the call fails.
#define PROCEDURE(name, parameters, ...)                                                           \
    void name parameters                                                                           \
    {                                                                                              \
        cublasHandle_t h = enter(#name, SIM_SITE);                                                 \
        if (h != NULL) leave(__VA_ARGS__);                                                         \
    }
#define FUNCTION(T, name, parameters, ...)                                                         \
    T name parameters                                                                              \
    {                                                                                              \
        T result;                                                                                  \
        memset(&result, 0, sizeof result);                                                         \
        cublasHandle_t h = enter(#name, SIM_SITE);                                                 \
        if (h != NULL) leave(__VA_ARGS__);                                                         \
        return result;                                                                             \
    }
#define V2(name, ...) cublas##name##_v2(h, __VA_ARGS__)

// ---- Vectors ----

#define SCAL(name, T, TA)                                                                          \
    PROCEDURE(cublas##name, (int n, TA alpha, T *x, int incx), V2(name, n, &alpha, x, incx))
SCAL(Sscal, float, float)
SCAL(Dscal, double, double)
SCAL(Cscal, cuComplex, cuComplex)
SCAL(Csscal, cuComplex, float)
SCAL(Zscal, cuDoubleComplex, cuDoubleComplex)
SCAL(Zdscal, cuDoubleComplex, double)

#define VECTORS(L, T)                                                                              \
    PROCEDURE(cublas##L##axpy, (int n, T alpha, const T *x, int incx, T *y, int incy),             \
              V2(L##axpy, n, &alpha, x, incx, y, incy))                                            \
    PROCEDURE(cublas##L##copy, (int n, const T *x, int incx, T *y, int incy),                      \
              V2(L##copy, n, x, incx, y, incy))                                                    \
    PROCEDURE(cublas##L##swap, (int n, T *x, int incx, T *y, int incy),                            \
              V2(L##swap, n, x, incx, y, incy))
EACH_FORMAT(VECTORS)

#define SUM(R, name, T)                                                                            \
    FUNCTION(R, cublas##name, (int n, const T *x, int incx), V2(name, n, x, incx, &result))
SUM(float, Snrm2, float)
SUM(double, Dnrm2, double)
SUM(float, Scnrm2, cuComplex)
SUM(double, Dznrm2, cuDoubleComplex)
SUM(float, Sasum, float)
SUM(double, Dasum, double)
SUM(float, Scasum, cuComplex)
SUM(double, Dzasum, cuDoubleComplex)
SUM(int, Isamax, float)
SUM(int, Idamax, double)
SUM(int, Icamax, cuComplex)
SUM(int, Izamax, cuDoubleComplex)
SUM(int, Isamin, float)
SUM(int, Idamin, double)
SUM(int, Icamin, cuComplex)
SUM(int, Izamin, cuDoubleComplex)

#define DOT(name, T)                                                                               \
    FUNCTION(T, cublas##name, (int n, const T *x, int incx, const T *y, int incy),                 \
             V2(name, n, x, incx, y, incy, &result))
DOT(Sdot, float)
DOT(Ddot, double)
DOT(Cdotu, cuComplex)
DOT(Cdotc, cuComplex)
DOT(Zdotu, cuDoubleComplex)
DOT(Zdotc, cuDoubleComplex)

#define ROT(name, T, TC, TS)                                                                       \
    PROCEDURE(cublas##name, (int n, T *x, int incx, T *y, int incy, TC c, TS s),                   \
              V2(name, n, x, incx, y, incy, &c, &s))
ROT(Srot, float, float, float)
ROT(Drot, double, double, double)
ROT(Crot, cuComplex, float, cuComplex)
ROT(Csrot, cuComplex, float, float)
ROT(Zrot, cuDoubleComplex, double, cuDoubleComplex)
ROT(Zdrot, cuDoubleComplex, double, double)

PROCEDURE(cublasSrotg, (float *a, float *b, float *c, float *s), V2(Srotg, a, b, c, s))
PROCEDURE(cublasDrotg, (double *a, double *b, double *c, double *s), V2(Drotg, a, b, c, s))
PROCEDURE(cublasCrotg, (cuComplex * a, cuComplex b, float *c, cuComplex *s), V2(Crotg, a, &b, c, s))
PROCEDURE(cublasZrotg, (cuDoubleComplex * a, cuDoubleComplex b, double *c, cuDoubleComplex *s),
          V2(Zrotg, a, &b, c, s))
#define ROTM(L, T)                                                                                 \
    PROCEDURE(cublas##L##rotm, (int n, T *x, int incx, T *y, int incy, const T *param),            \
              V2(L##rotm, n, x, incx, y, incy, param))                                             \
    PROCEDURE(cublas##L##rotmg, (T * d1, T * d2, T * x1, const T *y1, T *param),                   \
              V2(L##rotmg, d1, d2, x1, y1, param))
EACH_REAL(ROTM)

// ---- A matrix and vectors ----

#define MATRIX_VECTOR(L, T)                                                                        \
    PROCEDURE(cublas##L##gemv,                                                                     \
              (char trans, int m, int n, T alpha, const T *A, int lda, const T *x, int incx,       \
               T beta, T *y, int incy),                                                            \
              V2(L##gemv, turn(trans), m, n, &alpha, A, lda, x, incx, &beta, y, incy))             \
    PROCEDURE(cublas##L##gbmv,                                                                     \
              (char trans, int m, int n, int kl, int ku, T alpha, const T *A, int lda, const T *x, \
               int incx, T beta, T *y, int incy),                                                  \
              V2(L##gbmv, turn(trans), m, n, kl, ku, &alpha, A, lda, x, incx, &beta, y, incy))
EACH_FORMAT(MATRIX_VECTOR)

#define TRIANGLE(L, T, full, banded, packed)                                                       \
    PROCEDURE(cublas##L##full,                                                                     \
              (char uplo, char trans, char diag, int n, const T *A, int lda, T *x, int incx),      \
              V2(L##full, fill(uplo), turn(trans), diagonal(diag), n, A, lda, x, incx))            \
    PROCEDURE(                                                                                     \
        cublas##L##banded,                                                                         \
        (char uplo, char trans, char diag, int n, int k, const T *A, int lda, T *x, int incx),     \
        V2(L##banded, fill(uplo), turn(trans), diagonal(diag), n, k, A, lda, x, incx))             \
    PROCEDURE(cublas##L##packed,                                                                   \
              (char uplo, char trans, char diag, int n, const T *AP, T *x, int incx),              \
              V2(L##packed, fill(uplo), turn(trans), diagonal(diag), n, AP, x, incx))
#define TRIANGLES(L, T)                                                                            \
    TRIANGLE(L, T, trmv, tbmv, tpmv)                                                               \
    TRIANGLE(L, T, trsv, tbsv, tpsv)
EACH_FORMAT(TRIANGLES)

#define SYMMETRIC(T, full, banded, packed)                                                         \
    PROCEDURE(cublas##full,                                                                        \
              (char uplo, int n, T alpha, const T *A, int lda, const T *x, int incx, T beta, T *y, \
               int incy),                                                                          \
              V2(full, fill(uplo), n, &alpha, A, lda, x, incx, &beta, y, incy))                    \
    PROCEDURE(cublas##banded,                                                                      \
              (char uplo, int n, int k, T alpha, const T *A, int lda, const T *x, int incx,        \
               T beta, T *y, int incy),                                                            \
              V2(banded, fill(uplo), n, k, &alpha, A, lda, x, incx, &beta, y, incy))               \
    PROCEDURE(                                                                                     \
        cublas##packed,                                                                            \
        (char uplo, int n, T alpha, const T *AP, const T *x, int incx, T beta, T *y, int incy),    \
        V2(packed, fill(uplo), n, &alpha, AP, x, incx, &beta, y, incy))
SYMMETRIC(float, Ssymv, Ssbmv, Sspmv)
SYMMETRIC(double, Dsymv, Dsbmv, Dspmv)
SYMMETRIC(cuComplex, Chemv, Chbmv, Chpmv)
SYMMETRIC(cuDoubleComplex, Zhemv, Zhbmv, Zhpmv)

#define GER(name, T)                                                                               \
    PROCEDURE(cublas##name,                                                                        \
              (int m, int n, T alpha, const T *x, int incx, const T *y, int incy, T *A, int lda),  \
              V2(name, m, n, &alpha, x, incx, y, incy, A, lda))
GER(Sger, float)
GER(Dger, double)
GER(Cgeru, cuComplex)
GER(Cgerc, cuComplex)
GER(Zgeru, cuDoubleComplex)
GER(Zgerc, cuDoubleComplex)

#define UPDATE(T, TR, full, packed)                                                                \
    PROCEDURE(cublas##full, (char uplo, int n, TR alpha, const T *x, int incx, T *A, int lda),     \
              V2(full, fill(uplo), n, &alpha, x, incx, A, lda))                                    \
    PROCEDURE(cublas##packed, (char uplo, int n, TR alpha, const T *x, int incx, T *AP),           \
              V2(packed, fill(uplo), n, &alpha, x, incx, AP))                                      \
    PROCEDURE(                                                                                     \
        cublas##full##2,                                                                           \
        (char uplo, int n, T alpha, const T *x, int incx, const T *y, int incy, T *A, int lda),    \
        V2(full##2, fill(uplo), n, &alpha, x, incx, y, incy, A, lda))                              \
    PROCEDURE(cublas##packed##2,                                                                   \
              (char uplo, int n, T alpha, const T *x, int incx, const T *y, int incy, T *AP),      \
              V2(packed##2, fill(uplo), n, &alpha, x, incx, y, incy, AP))
UPDATE(float, float, Ssyr, Sspr)
UPDATE(double, double, Dsyr, Dspr)
UPDATE(cuComplex, float, Cher, Chpr)
UPDATE(cuDoubleComplex, double, Zher, Zhpr)

// ---- Matrices ---- The result of trmm is in B.

#define MATRICES(L, T)                                                                             \
    PROCEDURE(                                                                                     \
        cublas##L##gemm,                                                                           \
        (char transa, char transb, int m, int n, int k, T alpha, const T *A, int lda, const T *B,  \
         int ldb, T beta, T *C, int ldc),                                                          \
        V2(L##gemm, turn(transa), turn(transb), m, n, k, &alpha, A, lda, B, ldb, &beta, C, ldc))   \
    PROCEDURE(cublas##L##syrk,                                                                     \
              (char uplo, char trans, int n, int k, T alpha, const T *A, int lda, T beta, T *C,    \
               int ldc),                                                                           \
              V2(L##syrk, fill(uplo), turn(trans), n, k, &alpha, A, lda, &beta, C, ldc))           \
    PROCEDURE(cublas##L##trmm,                                                                     \
              (char side, char uplo, char transa, char diag, int m, int n, T alpha, const T *A,    \
               int lda, T *B, int ldb),                                                            \
              V2(L##trmm, on(side), fill(uplo), turn(transa), diagonal(diag), m, n, &alpha, A,     \
                 lda, B, ldb, B, ldb))                                                             \
    PROCEDURE(cublas##L##trsm,                                                                     \
              (char side, char uplo, char transa, char diag, int m, int n, T alpha, const T *A,    \
               int lda, T *B, int ldb),                                                            \
              V2(L##trsm, on(side), fill(uplo), turn(transa), diagonal(diag), m, n, &alpha, A,     \
                 lda, B, ldb))
EACH_FORMAT(MATRICES)

// T2: the type of beta in an update of rank 2k.
#define WITH_SYMMETRY(T, T2, mm, r2k)                                                              \
    PROCEDURE(cublas##mm,                                                                          \
              (char side, char uplo, int m, int n, T alpha, const T *A, int lda, const T *B,       \
               int ldb, T beta, T *C, int ldc),                                                    \
              V2(mm, on(side), fill(uplo), m, n, &alpha, A, lda, B, ldb, &beta, C, ldc))           \
    PROCEDURE(cublas##r2k,                                                                         \
              (char uplo, char trans, int n, int k, T alpha, const T *A, int lda, const T *B,      \
               int ldb, T2 beta, T *C, int ldc),                                                   \
              V2(r2k, fill(uplo), turn(trans), n, k, &alpha, A, lda, B, ldb, &beta, C, ldc))
WITH_SYMMETRY(float, float, Ssymm, Ssyr2k)
WITH_SYMMETRY(double, double, Dsymm, Dsyr2k)
WITH_SYMMETRY(cuComplex, cuComplex, Csymm, Csyr2k)
WITH_SYMMETRY(cuDoubleComplex, cuDoubleComplex, Zsymm, Zsyr2k)
WITH_SYMMETRY(cuComplex, float, Chemm, Cher2k)
WITH_SYMMETRY(cuDoubleComplex, double, Zhemm, Zher2k)

#define HERK(L, T, TR)                                                                             \
    PROCEDURE(cublas##L##herk,                                                                     \
              (char uplo, char trans, int n, int k, TR alpha, const T *A, int lda, TR beta, T *C,  \
               int ldc),                                                                           \
              V2(L##herk, fill(uplo), turn(trans), n, k, &alpha, A, lda, &beta, C, ldc))
HERK(C, cuComplex, float)
HERK(Z, cuDoubleComplex, double)
