/* large.h: a part of cublas_api.h, which includes it: every call with sizes once more with sizes of
 * 64 bits, under its name and _64. Of a family there is one macro, which takes what differs in it;
 * what the calls are is said in level1.h … extra.h and transfer.h. Those of halves are in half.h.
 *
 * Source: cuBLAS 13 headers (names and types).
 */
#define SIMGPU_STATUS cublasStatus_t CUBLASWINAPI
#define SIMGPU_SCALARS(MACRO)                                                                      \
    MACRO(S, float) MACRO(D, double) MACRO(C, cuComplex) MACRO(Z, cuDoubleComplex)

// ---- Vectors ----

#define SIMGPU_64(L, T)                                                                            \
    SIMGPU_STATUS cublas##L##scal_v2_64(cublasHandle_t handle, int64_t n, const T *alpha, T *x,    \
                                        int64_t incx);                                             \
    SIMGPU_STATUS cublas##L##axpy_v2_64(cublasHandle_t handle, int64_t n, const T *alpha,          \
                                        const T *x, int64_t incx, T *y, int64_t incy);             \
    SIMGPU_STATUS cublas##L##copy_v2_64(cublasHandle_t handle, int64_t n, const T *x,              \
                                        int64_t incx, T *y, int64_t incy);                         \
    SIMGPU_STATUS cublas##L##swap_v2_64(cublasHandle_t handle, int64_t n, T *x, int64_t incx,      \
                                        T *y, int64_t incy);
SIMGPU_SCALARS(SIMGPU_64)
#undef SIMGPU_64

// Names whose letters say a second type, or a place: that of c and s, of a factor, of a result.
#define SIMGPU_64(name, T, R)                                                                      \
    SIMGPU_STATUS cublas##name##_v2_64(cublasHandle_t handle, int64_t n, const T *x, int64_t incx, \
                                       R *result);
SIMGPU_64(Snrm2, float, float)
SIMGPU_64(Dnrm2, double, double)
SIMGPU_64(Scnrm2, cuComplex, float)
SIMGPU_64(Dznrm2, cuDoubleComplex, double)
SIMGPU_64(Sasum, float, float)
SIMGPU_64(Dasum, double, double)
SIMGPU_64(Scasum, cuComplex, float)
SIMGPU_64(Dzasum, cuDoubleComplex, double)
SIMGPU_64(Isamax, float, int64_t)
SIMGPU_64(Idamax, double, int64_t)
SIMGPU_64(Icamax, cuComplex, int64_t)
SIMGPU_64(Izamax, cuDoubleComplex, int64_t)
SIMGPU_64(Isamin, float, int64_t)
SIMGPU_64(Idamin, double, int64_t)
SIMGPU_64(Icamin, cuComplex, int64_t)
SIMGPU_64(Izamin, cuDoubleComplex, int64_t)
#undef SIMGPU_64
#define SIMGPU_64(name, T)                                                                         \
    SIMGPU_STATUS cublas##name##_v2_64(cublasHandle_t handle, int64_t n, const T *x, int64_t incx, \
                                       const T *y, int64_t incy, T *result);
SIMGPU_64(Sdot, float)
SIMGPU_64(Ddot, double)
SIMGPU_64(Cdotu, cuComplex)
SIMGPU_64(Cdotc, cuComplex)
SIMGPU_64(Zdotu, cuDoubleComplex)
SIMGPU_64(Zdotc, cuDoubleComplex)
#undef SIMGPU_64
#define SIMGPU_64(name, T, TC, TS)                                                                 \
    SIMGPU_STATUS cublas##name##_v2_64(cublasHandle_t handle, int64_t n, T *x, int64_t incx, T *y, \
                                       int64_t incy, const TC *c, const TS *s);
SIMGPU_64(Srot, float, float, float)
SIMGPU_64(Drot, double, double, double)
SIMGPU_64(Crot, cuComplex, float, cuComplex)
SIMGPU_64(Csrot, cuComplex, float, float)
SIMGPU_64(Zrot, cuDoubleComplex, double, cuDoubleComplex)
SIMGPU_64(Zdrot, cuDoubleComplex, double, double)
#undef SIMGPU_64
#define SIMGPU_64(L, T)                                                                            \
    SIMGPU_STATUS cublas##L##rotm_v2_64(cublasHandle_t handle, int64_t n, T *x, int64_t incx,      \
                                        T *y, int64_t incy, const T *param);
SIMGPU_64(S, float)
SIMGPU_64(D, double)
#undef SIMGPU_64
SIMGPU_STATUS cublasCsscal_v2_64(cublasHandle_t handle, int64_t n, const float *alpha, cuComplex *x,
                                 int64_t incx);
SIMGPU_STATUS cublasZdscal_v2_64(cublasHandle_t handle, int64_t n, const double *alpha,
                                 cuDoubleComplex *x, int64_t incx);

#define SIMGPU_64(name)                                                                            \
    SIMGPU_STATUS name##_64(cublasHandle_t handle, int64_t n, const void *x, cudaDataType xType,   \
                            int64_t incx, const void *y, cudaDataType yType, int64_t incy,         \
                            void *result, cudaDataType resultType, cudaDataType executionType);
SIMGPU_64(cublasDotEx)
SIMGPU_64(cublasDotcEx)
#undef SIMGPU_64
#define SIMGPU_64(name)                                                                            \
    SIMGPU_STATUS name##_64(cublasHandle_t handle, int64_t n, const void *x, cudaDataType xType,   \
                            int64_t incx, void *result, cudaDataType resultType,                   \
                            cudaDataType executionType);
SIMGPU_64(cublasNrm2Ex)
SIMGPU_64(cublasAsumEx)
#undef SIMGPU_64
#define SIMGPU_64(name)                                                                            \
    SIMGPU_STATUS name##_64(cublasHandle_t handle, int64_t n, const void *x, cudaDataType xType,   \
                            int64_t incx, int64_t *result);
SIMGPU_64(cublasIamaxEx)
SIMGPU_64(cublasIaminEx)
#undef SIMGPU_64
SIMGPU_STATUS cublasScalEx_64(cublasHandle_t handle, int64_t n, const void *alpha,
                              cudaDataType alphaType, void *x, cudaDataType xType, int64_t incx,
                              cudaDataType executionType);
SIMGPU_STATUS cublasAxpyEx_64(cublasHandle_t handle, int64_t n, const void *alpha,
                              cudaDataType alphaType, const void *x, cudaDataType xType,
                              int64_t incx, void *y, cudaDataType yType, int64_t incy,
                              cudaDataType executiontype);
SIMGPU_STATUS cublasCopyEx_64(cublasHandle_t handle, int64_t n, const void *x, cudaDataType xType,
                              int64_t incx, void *y, cudaDataType yType, int64_t incy);
SIMGPU_STATUS cublasSwapEx_64(cublasHandle_t handle, int64_t n, void *x, cudaDataType xType,
                              int64_t incx, void *y, cudaDataType yType, int64_t incy);
SIMGPU_STATUS cublasRotEx_64(cublasHandle_t handle, int64_t n, void *x, cudaDataType xType,
                             int64_t incx, void *y, cudaDataType yType, int64_t incy,
                             const void *c, const void *s, cudaDataType csType,
                             cudaDataType executiontype);
SIMGPU_STATUS cublasRotmEx_64(cublasHandle_t handle, int64_t n, void *x, cudaDataType xType,
                              int64_t incx, void *y, cudaDataType yType, int64_t incy,
                              const void *param, cudaDataType paramType,
                              cudaDataType executiontype);

// ---- A matrix and vectors ----

#define SIMGPU_64(L, T)                                                                            \
    SIMGPU_STATUS cublas##L##gemv_v2_64(cublasHandle_t handle, cublasOperation_t trans, int64_t m, \
                                        int64_t n, const T *alpha, const T *A, int64_t lda,        \
                                        const T *x, int64_t incx, const T *beta, T *y,             \
                                        int64_t incy);                                             \
    SIMGPU_STATUS cublas##L##gbmv_v2_64(cublasHandle_t handle, cublasOperation_t trans, int64_t m, \
                                        int64_t n, int64_t kl, int64_t ku, const T *alpha,         \
                                        const T *A, int64_t lda, const T *x, int64_t incx,         \
                                        const T *beta, T *y, int64_t incy);                        \
    SIMGPU_STATUS cublas##L##gemvBatched_64(                                                       \
        cublasHandle_t handle, cublasOperation_t trans, int64_t m, int64_t n, const T *alpha,      \
        const T *const Aarray[], int64_t lda, const T *const xarray[], int64_t incx,               \
        const T *beta, T *const yarray[], int64_t incy, int64_t batchCount);                       \
    SIMGPU_STATUS cublas##L##gemvStridedBatched_64(                                                \
        cublasHandle_t handle, cublasOperation_t trans, int64_t m, int64_t n, const T *alpha,      \
        const T *A, int64_t lda, long long int strideA, const T *x, int64_t incx,                  \
        long long int stridex, const T *beta, T *y, int64_t incy, long long int stridey,           \
        int64_t batchCount);
SIMGPU_SCALARS(SIMGPU_64)
#undef SIMGPU_64

#define SIMGPU_64(L, T, full, banded, packed)                                                      \
    SIMGPU_STATUS cublas##L##full##_v2_64(cublasHandle_t handle, cublasFillMode_t uplo,            \
                                          cublasOperation_t trans, cublasDiagType_t diag,          \
                                          int64_t n, const T *A, int64_t lda, T *x, int64_t incx); \
    SIMGPU_STATUS cublas##L##banded##_v2_64(                                                       \
        cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans,                     \
        cublasDiagType_t diag, int64_t n, int64_t k, const T *A, int64_t lda, T *x, int64_t incx); \
    SIMGPU_STATUS cublas##L##packed##_v2_64(cublasHandle_t handle, cublasFillMode_t uplo,          \
                                            cublasOperation_t trans, cublasDiagType_t diag,        \
                                            int64_t n, const T *AP, T *x, int64_t incx);
#define SIMGPU_64_TRIANGLES(L, T)                                                                  \
    SIMGPU_64(L, T, trmv, tbmv, tpmv) SIMGPU_64(L, T, trsv, tbsv, tpsv)
SIMGPU_SCALARS(SIMGPU_64_TRIANGLES)
#undef SIMGPU_64_TRIANGLES
#undef SIMGPU_64

#define SIMGPU_64(name, T)                                                                         \
    SIMGPU_STATUS cublas##name##_v2_64(cublasHandle_t handle, cublasFillMode_t uplo, int64_t n,    \
                                       const T *alpha, const T *A, int64_t lda, const T *x,        \
                                       int64_t incx, const T *beta, T *y, int64_t incy);
SIMGPU_64(Ssymv, float)
SIMGPU_64(Dsymv, double)
SIMGPU_64(Csymv, cuComplex)
SIMGPU_64(Zsymv, cuDoubleComplex)
SIMGPU_64(Chemv, cuComplex)
SIMGPU_64(Zhemv, cuDoubleComplex)
#undef SIMGPU_64
#define SIMGPU_64(name, T)                                                                         \
    SIMGPU_STATUS cublas##name##_v2_64(cublasHandle_t handle, cublasFillMode_t uplo, int64_t n,    \
                                       int64_t k, const T *alpha, const T *A, int64_t lda,         \
                                       const T *x, int64_t incx, const T *beta, T *y,              \
                                       int64_t incy);
SIMGPU_64(Ssbmv, float)
SIMGPU_64(Dsbmv, double)
SIMGPU_64(Chbmv, cuComplex)
SIMGPU_64(Zhbmv, cuDoubleComplex)
#undef SIMGPU_64
#define SIMGPU_64(name, T)                                                                         \
    SIMGPU_STATUS cublas##name##_v2_64(cublasHandle_t handle, cublasFillMode_t uplo, int64_t n,    \
                                       const T *alpha, const T *AP, const T *x, int64_t incx,      \
                                       const T *beta, T *y, int64_t incy);
SIMGPU_64(Sspmv, float)
SIMGPU_64(Dspmv, double)
SIMGPU_64(Chpmv, cuComplex)
SIMGPU_64(Zhpmv, cuDoubleComplex)
#undef SIMGPU_64

#define SIMGPU_64(name, T)                                                                         \
    SIMGPU_STATUS cublas##name##_v2_64(cublasHandle_t handle, int64_t m, int64_t n,                \
                                       const T *alpha, const T *x, int64_t incx, const T *y,       \
                                       int64_t incy, T *A, int64_t lda);
SIMGPU_64(Sger, float)
SIMGPU_64(Dger, double)
SIMGPU_64(Cgeru, cuComplex)
SIMGPU_64(Cgerc, cuComplex)
SIMGPU_64(Zgeru, cuDoubleComplex)
SIMGPU_64(Zgerc, cuDoubleComplex)
#undef SIMGPU_64
// TA: the type of alpha, where there is one vector.
#define SIMGPU_64(L, T, TA, full)                                                                  \
    SIMGPU_STATUS cublas##L##full##_v2_64(cublasHandle_t handle, cublasFillMode_t uplo, int64_t n, \
                                          const TA *alpha, const T *x, int64_t incx, T *A,         \
                                          int64_t lda);                                            \
    SIMGPU_STATUS cublas##L##full##2_v2_64(                                                        \
        cublasHandle_t handle, cublasFillMode_t uplo, int64_t n, const T *alpha, const T *x,       \
        int64_t incx, const T *y, int64_t incy, T *A, int64_t lda);
SIMGPU_64(S, float, float, syr)
SIMGPU_64(D, double, double, syr)
SIMGPU_64(C, cuComplex, cuComplex, syr)
SIMGPU_64(Z, cuDoubleComplex, cuDoubleComplex, syr)
SIMGPU_64(C, cuComplex, float, her)
SIMGPU_64(Z, cuDoubleComplex, double, her)
#undef SIMGPU_64
#define SIMGPU_64(L, T, TA, packed)                                                                \
    SIMGPU_STATUS cublas##L##packed##_v2_64(cublasHandle_t handle, cublasFillMode_t uplo,          \
                                            int64_t n, const TA *alpha, const T *x, int64_t incx,  \
                                            T *AP);                                                \
    SIMGPU_STATUS cublas##L##packed##2_v2_64(cublasHandle_t handle, cublasFillMode_t uplo,         \
                                             int64_t n, const T *alpha, const T *x, int64_t incx,  \
                                             const T *y, int64_t incy, T *AP);
SIMGPU_64(S, float, float, spr)
SIMGPU_64(D, double, double, spr)
SIMGPU_64(C, cuComplex, float, hpr)
SIMGPU_64(Z, cuDoubleComplex, double, hpr)
#undef SIMGPU_64

// ---- Matrices ----

#define SIMGPU_64(name, T)                                                                         \
    SIMGPU_STATUS name##_64(cublasHandle_t handle, cublasOperation_t transa,                       \
                            cublasOperation_t transb, int64_t m, int64_t n, int64_t k,             \
                            const T *alpha, const T *A, int64_t lda, const T *B, int64_t ldb,      \
                            const T *beta, T *C, int64_t ldc);
SIMGPU_64(cublasSgemm_v2, float)
SIMGPU_64(cublasDgemm_v2, double)
SIMGPU_64(cublasCgemm_v2, cuComplex)
SIMGPU_64(cublasZgemm_v2, cuDoubleComplex)
SIMGPU_64(cublasCgemm3m, cuComplex)
SIMGPU_64(cublasZgemm3m, cuDoubleComplex)
#undef SIMGPU_64
#define SIMGPU_64(name, T)                                                                         \
    SIMGPU_STATUS name##Batched_64(                                                                \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int64_t m,      \
        int64_t n, int64_t k, const T *alpha, const T *const Aarray[], int64_t lda,                \
        const T *const Barray[], int64_t ldb, const T *beta, T *const Carray[], int64_t ldc,       \
        int64_t batchCount);                                                                       \
    SIMGPU_STATUS name##StridedBatched_64(                                                         \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int64_t m,      \
        int64_t n, int64_t k, const T *alpha, const T *A, int64_t lda, long long int strideA,      \
        const T *B, int64_t ldb, long long int strideB, const T *beta, T *C, int64_t ldc,          \
        long long int strideC, int64_t batchCount);
SIMGPU_64(cublasSgemm, float)
SIMGPU_64(cublasDgemm, double)
SIMGPU_64(cublasCgemm, cuComplex)
SIMGPU_64(cublasZgemm, cuDoubleComplex)
SIMGPU_64(cublasCgemm3m, cuComplex)
#undef SIMGPU_64
#define SIMGPU_64(L, T)                                                                            \
    SIMGPU_STATUS cublas##L##gemmGroupedBatched_64(                                                \
        cublasHandle_t handle, const cublasOperation_t transa_array[],                             \
        const cublasOperation_t transb_array[], const int64_t m_array[], const int64_t n_array[],  \
        const int64_t k_array[], const T alpha_array[], const T *const Aarray[],                   \
        const int64_t lda_array[], const T *const Barray[], const int64_t ldb_array[],             \
        const T beta_array[], T *const Carray[], const int64_t ldc_array[], int64_t group_count,   \
        const int64_t group_size[]);
SIMGPU_64(S, float)
SIMGPU_64(D, double)
#undef SIMGPU_64
#define SIMGPU_64(name, T)                                                                         \
    SIMGPU_STATUS name##_64(cublasHandle_t handle, cublasOperation_t transa,                       \
                            cublasOperation_t transb, int64_t m, int64_t n, int64_t k,             \
                            const T *alpha, const void *A, cudaDataType Atype, int64_t lda,        \
                            const void *B, cudaDataType Btype, int64_t ldb, const T *beta,         \
                            void *C, cudaDataType Ctype, int64_t ldc);
SIMGPU_64(cublasSgemmEx, float)
SIMGPU_64(cublasCgemmEx, cuComplex)
SIMGPU_64(cublasCgemm3mEx, cuComplex)
#undef SIMGPU_64
SIMGPU_STATUS cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t transa,
                              cublasOperation_t transb, int64_t m, int64_t n, int64_t k,
                              const void *alpha, const void *A, cudaDataType Atype, int64_t lda,
                              const void *B, cudaDataType Btype, int64_t ldb, const void *beta,
                              void *C, cudaDataType Ctype, int64_t ldc,
                              cublasComputeType_t computeType, cublasGemmAlgo_t algo);
SIMGPU_STATUS cublasGemmBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int64_t m, int64_t n,
    int64_t k, const void *alpha, const void *const Aarray[], cudaDataType Atype, int64_t lda,
    const void *const Barray[], cudaDataType Btype, int64_t ldb, const void *beta,
    void *const Carray[], cudaDataType Ctype, int64_t ldc, int64_t batchCount,
    cublasComputeType_t computeType, cublasGemmAlgo_t algo);
SIMGPU_STATUS cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int64_t m, int64_t n,
    int64_t k, const void *alpha, const void *A, cudaDataType Atype, int64_t lda,
    long long int strideA, const void *B, cudaDataType Btype, int64_t ldb, long long int strideB,
    const void *beta, void *C, cudaDataType Ctype, int64_t ldc, long long int strideC,
    int64_t batchCount, cublasComputeType_t computeType, cublasGemmAlgo_t algo);
SIMGPU_STATUS cublasGemmGroupedBatchedEx_64(
    cublasHandle_t handle, const cublasOperation_t transa_array[],
    const cublasOperation_t transb_array[], const int64_t m_array[], const int64_t n_array[],
    const int64_t k_array[], const void *alpha_array, const void *const Aarray[],
    cudaDataType_t Atype, const int64_t lda_array[], const void *const Barray[],
    cudaDataType_t Btype, const int64_t ldb_array[], const void *beta_array, void *const Carray[],
    cudaDataType_t Ctype, const int64_t ldc_array[], int64_t group_count,
    const int64_t group_size[], cublasComputeType_t computeType);

#define SIMGPU_64(name, T)                                                                         \
    SIMGPU_STATUS name##_v2_64(cublasHandle_t handle, cublasSideMode_t side,                       \
                               cublasFillMode_t uplo, int64_t m, int64_t n, const T *alpha,        \
                               const T *A, int64_t lda, const T *B, int64_t ldb, const T *beta,    \
                               T *C, int64_t ldc);
SIMGPU_64(cublasSsymm, float)
SIMGPU_64(cublasDsymm, double)
SIMGPU_64(cublasCsymm, cuComplex)
SIMGPU_64(cublasZsymm, cuDoubleComplex)
SIMGPU_64(cublasChemm, cuComplex)
SIMGPU_64(cublasZhemm, cuDoubleComplex)
#undef SIMGPU_64
#define SIMGPU_64(L, T)                                                                            \
    SIMGPU_STATUS cublas##L##trmm_v2_64(                                                           \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,                       \
        cublasOperation_t trans, cublasDiagType_t diag, int64_t m, int64_t n, const T *alpha,      \
        const T *A, int64_t lda, const T *B, int64_t ldb, T *C, int64_t ldc);                      \
    SIMGPU_STATUS cublas##L##trsm_v2_64(                                                           \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,                       \
        cublasOperation_t trans, cublasDiagType_t diag, int64_t m, int64_t n, const T *alpha,      \
        const T *A, int64_t lda, T *B, int64_t ldb);                                               \
    SIMGPU_STATUS cublas##L##trsmBatched_64(                                                       \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,                       \
        cublasOperation_t trans, cublasDiagType_t diag, int64_t m, int64_t n, const T *alpha,      \
        const T *const A[], int64_t lda, T *const B[], int64_t ldb, int64_t batchCount);           \
    SIMGPU_STATUS cublas##L##geam_64(cublasHandle_t handle, cublasOperation_t transa,              \
                                     cublasOperation_t transb, int64_t m, int64_t n,               \
                                     const T *alpha, const T *A, int64_t lda, const T *beta,       \
                                     const T *B, int64_t ldb, T *C, int64_t ldc);                  \
    SIMGPU_STATUS cublas##L##dgmm_64(cublasHandle_t handle, cublasSideMode_t mode, int64_t m,      \
                                     int64_t n, const T *A, int64_t lda, const T *x, int64_t incx, \
                                     T *C, int64_t ldc);
SIMGPU_SCALARS(SIMGPU_64)
#undef SIMGPU_64

// TA, TB: the types of alpha and beta.
#define SIMGPU_64(name, T, TA, TB)                                                                 \
    SIMGPU_STATUS name##_64(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, \
                            int64_t n, int64_t k, const TA *alpha, const T *A, int64_t lda,        \
                            const TB *beta, T *C, int64_t ldc);
SIMGPU_64(cublasSsyrk_v2, float, float, float)
SIMGPU_64(cublasDsyrk_v2, double, double, double)
SIMGPU_64(cublasCsyrk_v2, cuComplex, cuComplex, cuComplex)
SIMGPU_64(cublasZsyrk_v2, cuDoubleComplex, cuDoubleComplex, cuDoubleComplex)
SIMGPU_64(cublasCherk_v2, cuComplex, float, float)
SIMGPU_64(cublasZherk_v2, cuDoubleComplex, double, double)
#undef SIMGPU_64
#define SIMGPU_64(name, T, TB)                                                                     \
    SIMGPU_STATUS name##_64(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, \
                            int64_t n, int64_t k, const T *alpha, const T *A, int64_t lda,         \
                            const T *B, int64_t ldb, const TB *beta, T *C, int64_t ldc);
SIMGPU_64(cublasSsyr2k_v2, float, float)
SIMGPU_64(cublasDsyr2k_v2, double, double)
SIMGPU_64(cublasCsyr2k_v2, cuComplex, cuComplex)
SIMGPU_64(cublasZsyr2k_v2, cuDoubleComplex, cuDoubleComplex)
SIMGPU_64(cublasCher2k_v2, cuComplex, float)
SIMGPU_64(cublasZher2k_v2, cuDoubleComplex, double)
SIMGPU_64(cublasSsyrkx, float, float)
SIMGPU_64(cublasDsyrkx, double, double)
SIMGPU_64(cublasCsyrkx, cuComplex, cuComplex)
SIMGPU_64(cublasZsyrkx, cuDoubleComplex, cuDoubleComplex)
SIMGPU_64(cublasCherkx, cuComplex, float)
SIMGPU_64(cublasZherkx, cuDoubleComplex, double)
#undef SIMGPU_64
#define SIMGPU_64(name, T)                                                                         \
    SIMGPU_STATUS name##_64(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, \
                            int64_t n, int64_t k, const T *alpha, const void *A,                   \
                            cudaDataType Atype, int64_t lda, const T *beta, void *C,               \
                            cudaDataType Ctype, int64_t ldc);
SIMGPU_64(cublasCsyrkEx, cuComplex)
SIMGPU_64(cublasCsyrk3mEx, cuComplex)
SIMGPU_64(cublasCherkEx, float)
SIMGPU_64(cublasCherk3mEx, float)
#undef SIMGPU_64

// ---- Copies between host and device ----

#define SIMGPU_64(Set)                                                                             \
    SIMGPU_STATUS cublas##Set##Vector_64(int64_t n, int64_t elemSize, const void *x, int64_t incx, \
                                         void *y, int64_t incy);                                   \
    SIMGPU_STATUS cublas##Set##VectorAsync_64(int64_t n, int64_t elemSize, const void *x,          \
                                              int64_t incx, void *y, int64_t incy,                 \
                                              cudaStream_t stream);                                \
    SIMGPU_STATUS cublas##Set##Matrix_64(int64_t rows, int64_t cols, int64_t elemSize,             \
                                         const void *A, int64_t lda, void *B, int64_t ldb);        \
    SIMGPU_STATUS cublas##Set##MatrixAsync_64(int64_t rows, int64_t cols, int64_t elemSize,        \
                                              const void *A, int64_t lda, void *B, int64_t ldb,    \
                                              cudaStream_t stream);
SIMGPU_64(Set)
SIMGPU_64(Get)
#undef SIMGPU_64

#undef SIMGPU_SCALARS
#undef SIMGPU_STATUS
