/* legacy.h: a part of cublas.h: the calls without a handle. Of a family there is one macro, which
 * takes what differs in it.
 *
 * Source: cuBLAS 13 headers (names and types).
 */
cublasStatus_t CUBLASWINAPI cublasInit(void);
cublasStatus_t CUBLASWINAPI cublasShutdown(void);
cublasStatus_t CUBLASWINAPI cublasGetError(void); // the last one, which is forgotten then
cublasStatus_t CUBLASWINAPI cublasGetVersion(int *version);
cublasStatus_t CUBLASWINAPI cublasAlloc(int n, int elemSize, void **devicePtr);
cublasStatus_t CUBLASWINAPI cublasFree(void *devicePtr);
cublasStatus_t CUBLASWINAPI cublasSetKernelStream(cudaStream_t stream);

#define SIMGPU_REALS(MACRO) MACRO(S, float) MACRO(D, double)
#define SIMGPU_COMPLEXES(MACRO) MACRO(C, cuComplex) MACRO(Z, cuDoubleComplex)

// ---- Vectors ----

#define SIMGPU_V1(L, T)                                                                            \
    void CUBLASWINAPI cublas##L##scal(int n, T alpha, T *x, int incx);                             \
    void CUBLASWINAPI cublas##L##axpy(int n, T alpha, const T *x, int incx, T *y, int incy);       \
    void CUBLASWINAPI cublas##L##copy(int n, const T *x, int incx, T *y, int incy);                \
    void CUBLASWINAPI cublas##L##swap(int n, T *x, int incx, T *y, int incy);
SIMGPU_REALS(SIMGPU_V1)
SIMGPU_COMPLEXES(SIMGPU_V1)
#undef SIMGPU_V1
void CUBLASWINAPI cublasCsscal(int n, float alpha, cuComplex *x, int incx);
void CUBLASWINAPI cublasZdscal(int n, double alpha, cuDoubleComplex *x, int incx);

#define SIMGPU_V1(R, name, T) R CUBLASWINAPI cublas##name(int n, const T *x, int incx);
SIMGPU_V1(float, Snrm2, float)
SIMGPU_V1(double, Dnrm2, double)
SIMGPU_V1(float, Scnrm2, cuComplex)
SIMGPU_V1(double, Dznrm2, cuDoubleComplex)
SIMGPU_V1(float, Sasum, float)
SIMGPU_V1(double, Dasum, double)
SIMGPU_V1(float, Scasum, cuComplex)
SIMGPU_V1(double, Dzasum, cuDoubleComplex)
SIMGPU_V1(int, Isamax, float)
SIMGPU_V1(int, Idamax, double)
SIMGPU_V1(int, Icamax, cuComplex)
SIMGPU_V1(int, Izamax, cuDoubleComplex)
SIMGPU_V1(int, Isamin, float)
SIMGPU_V1(int, Idamin, double)
SIMGPU_V1(int, Icamin, cuComplex)
SIMGPU_V1(int, Izamin, cuDoubleComplex)
#undef SIMGPU_V1
#define SIMGPU_V1(name, T)                                                                         \
    T CUBLASWINAPI cublas##name(int n, const T *x, int incx, const T *y, int incy);
SIMGPU_V1(Sdot, float)
SIMGPU_V1(Ddot, double)
SIMGPU_V1(Cdotu, cuComplex)
SIMGPU_V1(Cdotc, cuComplex)
SIMGPU_V1(Zdotu, cuDoubleComplex)
SIMGPU_V1(Zdotc, cuDoubleComplex)
#undef SIMGPU_V1
#define SIMGPU_V1(name, T, TC, TS)                                                                 \
    void CUBLASWINAPI cublas##name(int n, T *x, int incx, T *y, int incy, TC c, TS s);
SIMGPU_V1(Srot, float, float, float)
SIMGPU_V1(Drot, double, double, double)
SIMGPU_V1(Crot, cuComplex, float, cuComplex)
SIMGPU_V1(Csrot, cuComplex, float, float)
SIMGPU_V1(Zrot, cuDoubleComplex, double, cuDoubleComplex)
SIMGPU_V1(Zdrot, cuDoubleComplex, double, double)
#undef SIMGPU_V1
void CUBLASWINAPI cublasSrotg(float *a, float *b, float *c, float *s);
void CUBLASWINAPI cublasDrotg(double *a, double *b, double *c, double *s);
void CUBLASWINAPI cublasCrotg(cuComplex *a, cuComplex b, float *c, cuComplex *s);
void CUBLASWINAPI cublasZrotg(cuDoubleComplex *a, cuDoubleComplex b, double *c, cuDoubleComplex *s);
#define SIMGPU_V1(L, T)                                                                            \
    void CUBLASWINAPI cublas##L##rotm(int n, T *x, int incx, T *y, int incy, const T *param);      \
    void CUBLASWINAPI cublas##L##rotmg(T *d1, T *d2, T *x1, const T *y1, T *param);
SIMGPU_REALS(SIMGPU_V1)
#undef SIMGPU_V1

// ---- A matrix and vectors ----

#define SIMGPU_V1(L, T)                                                                            \
    void CUBLASWINAPI cublas##L##gemv(char trans, int m, int n, T alpha, const T *A, int lda,      \
                                      const T *x, int incx, T beta, T *y, int incy);               \
    void CUBLASWINAPI cublas##L##gbmv(char trans, int m, int n, int kl, int ku, T alpha,           \
                                      const T *A, int lda, const T *x, int incx, T beta, T *y,     \
                                      int incy);                                                   \
    void CUBLASWINAPI cublas##L##trmv(char uplo, char trans, char diag, int n, const T *A,         \
                                      int lda, T *x, int incx);                                    \
    void CUBLASWINAPI cublas##L##tbmv(char uplo, char trans, char diag, int n, int k, const T *A,  \
                                      int lda, T *x, int incx);                                    \
    void CUBLASWINAPI cublas##L##tpmv(char uplo, char trans, char diag, int n, const T *AP, T *x,  \
                                      int incx);                                                   \
    void CUBLASWINAPI cublas##L##trsv(char uplo, char trans, char diag, int n, const T *A,         \
                                      int lda, T *x, int incx);                                    \
    void CUBLASWINAPI cublas##L##tbsv(char uplo, char trans, char diag, int n, int k, const T *A,  \
                                      int lda, T *x, int incx);                                    \
    void CUBLASWINAPI cublas##L##tpsv(char uplo, char trans, char diag, int n, const T *AP, T *x,  \
                                      int incx);
SIMGPU_REALS(SIMGPU_V1)
SIMGPU_COMPLEXES(SIMGPU_V1)
#undef SIMGPU_V1

// A symmetric matrix, or a Hermitian one: full, banded, packed.
#define SIMGPU_V1(T, full, banded, packed)                                                         \
    void CUBLASWINAPI cublas##full(char uplo, int n, T alpha, const T *A, int lda, const T *x,     \
                                   int incx, T beta, T *y, int incy);                              \
    void CUBLASWINAPI cublas##banded(char uplo, int n, int k, T alpha, const T *A, int lda,        \
                                     const T *x, int incx, T beta, T *y, int incy);                \
    void CUBLASWINAPI cublas##packed(char uplo, int n, T alpha, const T *AP, const T *x, int incx, \
                                     T beta, T *y, int incy);
SIMGPU_V1(float, Ssymv, Ssbmv, Sspmv)
SIMGPU_V1(double, Dsymv, Dsbmv, Dspmv)
SIMGPU_V1(cuComplex, Chemv, Chbmv, Chpmv)
SIMGPU_V1(cuDoubleComplex, Zhemv, Zhbmv, Zhpmv)
#undef SIMGPU_V1

#define SIMGPU_V1(name, T)                                                                         \
    void CUBLASWINAPI cublas##name(int m, int n, T alpha, const T *x, int incx, const T *y,        \
                                   int incy, T *A, int lda);
SIMGPU_V1(Sger, float)
SIMGPU_V1(Dger, double)
SIMGPU_V1(Cgeru, cuComplex)
SIMGPU_V1(Cgerc, cuComplex)
SIMGPU_V1(Zgeru, cuDoubleComplex)
SIMGPU_V1(Zgerc, cuDoubleComplex)
#undef SIMGPU_V1
// Updates of rank 1 and 2 of a full matrix and a packed one; TR is the type of the first's alpha.
#define SIMGPU_V1(T, TR, full, packed)                                                             \
    void CUBLASWINAPI cublas##full(char uplo, int n, TR alpha, const T *x, int incx, T *A,         \
                                   int lda);                                                       \
    void CUBLASWINAPI cublas##packed(char uplo, int n, TR alpha, const T *x, int incx, T *AP);     \
    void CUBLASWINAPI cublas##full##2(char uplo, int n, T alpha, const T *x, int incx, const T *y, \
                                      int incy, T *A, int lda);                                    \
    void CUBLASWINAPI cublas##packed##2(char uplo, int n, T alpha, const T *x, int incx,           \
                                        const T *y, int incy, T *AP);
SIMGPU_V1(float, float, Ssyr, Sspr)
SIMGPU_V1(double, double, Dsyr, Dspr)
SIMGPU_V1(cuComplex, float, Cher, Chpr)
SIMGPU_V1(cuDoubleComplex, double, Zher, Zhpr)
#undef SIMGPU_V1

// ---- Matrices ----

#define SIMGPU_V1(L, T)                                                                            \
    void CUBLASWINAPI cublas##L##gemm(char transa, char transb, int m, int n, int k, T alpha,      \
                                      const T *A, int lda, const T *B, int ldb, T beta, T *C,      \
                                      int ldc);                                                    \
    void CUBLASWINAPI cublas##L##symm(char side, char uplo, int m, int n, T alpha, const T *A,     \
                                      int lda, const T *B, int ldb, T beta, T *C, int ldc);        \
    void CUBLASWINAPI cublas##L##syrk(char uplo, char trans, int n, int k, T alpha, const T *A,    \
                                      int lda, T beta, T *C, int ldc);                             \
    void CUBLASWINAPI cublas##L##syr2k(char uplo, char trans, int n, int k, T alpha, const T *A,   \
                                       int lda, const T *B, int ldb, T beta, T *C, int ldc);       \
    void CUBLASWINAPI cublas##L##trmm(char side, char uplo, char transa, char diag, int m, int n,  \
                                      T alpha, const T *A, int lda, T *B, int ldb);                \
    void CUBLASWINAPI cublas##L##trsm(char side, char uplo, char transa, char diag, int m, int n,  \
                                      T alpha, const T *A, int lda, T *B, int ldb);
SIMGPU_REALS(SIMGPU_V1)
SIMGPU_COMPLEXES(SIMGPU_V1)
#undef SIMGPU_V1
#define SIMGPU_V1(L, T, TR)                                                                        \
    void CUBLASWINAPI cublas##L##hemm(char side, char uplo, int m, int n, T alpha, const T *A,     \
                                      int lda, const T *B, int ldb, T beta, T *C, int ldc);        \
    void CUBLASWINAPI cublas##L##herk(char uplo, char trans, int n, int k, TR alpha, const T *A,   \
                                      int lda, TR beta, T *C, int ldc);                            \
    void CUBLASWINAPI cublas##L##her2k(char uplo, char trans, int n, int k, T alpha, const T *A,   \
                                       int lda, const T *B, int ldb, TR beta, T *C, int ldc);
SIMGPU_V1(C, cuComplex, float)
SIMGPU_V1(Z, cuDoubleComplex, double)
#undef SIMGPU_V1

#undef SIMGPU_REALS
#undef SIMGPU_COMPLEXES
