/* blas_calls.h: the calls of cuBLAS that are logged: a table, by families of calls that differ in
 * their types. Whoever includes it says first what a row is:
 *
 *   CALL(base, end, E, KIND, T, TA, TB, TR, arguments, (parameters), (names))
 *       base##end##E is the call; E is _64 where its sizes have 64 bits. T is the type of its
 *       numbers, TA and TB that of alpha and beta (or c and s), TR that of a result; char where an
 *       argument says it. A letter for each argument says what it is (blas.c: read_argument).
 *   TRANSFER(symbol, …)  one of the copies between host and device
 *
 * With CALL_NAMES, which make says, it is the names alone.
 */
#ifdef CALL_NAMES
#define CALL(base, end, E, ...) CALL_NAME(base##end##E)
#define CALL_NAME(symbol) @symbol
#define TRANSFER(symbol, ...) @symbol
#endif

// cuBLAS 12 has sizes of 64 bits.
#if defined(CUBLAS_VER_MAJOR) && CUBLAS_VER_MAJOR < 12
#define FOR_SIZES(FAMILY, ...) FAMILY(int, , ##__VA_ARGS__)
#else
#define FOR_SIZES(FAMILY, ...) FAMILY(int, , ##__VA_ARGS__) FAMILY(int64_t, _64, ##__VA_ARGS__)
#endif
#define FOR_EACH(FAMILY)                                                                           \
    FOR_SIZES(FAMILY, S, float)                                                                    \
    FOR_SIZES(FAMILY, D, double)                                                                   \
    FOR_SIZES(FAMILY, C, cuComplex) FOR_SIZES(FAMILY, Z, cuDoubleComplex)

#define VECTORS(I, E, L, T)                                                                        \
    CALL(cublas##L##scal, _v2, E, SCAL, T, T, T, T, "hnaxi",                                       \
         (cublasHandle_t handle, I n, const T *alpha, T *x, I incx), (handle, n, alpha, x, incx))  \
    CALL(cublas##L##axpy, _v2, E, AXPY, T, T, T, T, "hnaxiyj",                                     \
         (cublasHandle_t handle, I n, const T *alpha, const T *x, I incx, T *y, I incy),           \
         (handle, n, alpha, x, incx, y, incy))                                                     \
    CALL(cublas##L##copy, _v2, E, COPY, T, T, T, T, "hnxiyj",                                      \
         (cublasHandle_t handle, I n, const T *x, I incx, T *y, I incy),                           \
         (handle, n, x, incx, y, incy))                                                            \
    CALL(cublas##L##swap, _v2, E, SWAP, T, T, T, T, "hnxiyj",                                      \
         (cublasHandle_t handle, I n, T * x, I incx, T * y, I incy),                               \
         (handle, n, x, incx, y, incy))
FOR_EACH(VECTORS)
#define SUM(I, E, name, T, R)                                                                      \
    CALL(cublas##name, _v2, E, SUM, T, T, T, R, "hnxir",                                           \
         (cublasHandle_t handle, I n, const T *x, I incx, R *result),                              \
         (handle, n, x, incx, result))
FOR_SIZES(SUM, Snrm2, float, float)
FOR_SIZES(SUM, Dnrm2, double, double)
FOR_SIZES(SUM, Scnrm2, cuComplex, float)
FOR_SIZES(SUM, Dznrm2, cuDoubleComplex, double)
FOR_SIZES(SUM, Sasum, float, float)
FOR_SIZES(SUM, Dasum, double, double)
FOR_SIZES(SUM, Scasum, cuComplex, float)
FOR_SIZES(SUM, Dzasum, cuDoubleComplex, double)
#define SEEK(I, E, name, T)                                                                        \
    CALL(cublas##name, _v2, E, SUM, T, T, T, I, "hnxir",                                           \
         (cublasHandle_t handle, I n, const T *x, I incx, I *result),                              \
         (handle, n, x, incx, result))
FOR_SIZES(SEEK, Isamax, float)
FOR_SIZES(SEEK, Idamax, double)
FOR_SIZES(SEEK, Icamax, cuComplex)
FOR_SIZES(SEEK, Izamax, cuDoubleComplex)
FOR_SIZES(SEEK, Isamin, float)
FOR_SIZES(SEEK, Idamin, double)
FOR_SIZES(SEEK, Icamin, cuComplex)
FOR_SIZES(SEEK, Izamin, cuDoubleComplex)
#define DOT(I, E, name, T)                                                                         \
    CALL(cublas##name, _v2, E, DOT, T, T, T, T, "hnxiyjr",                                         \
         (cublasHandle_t handle, I n, const T *x, I incx, const T *y, I incy, T *result),          \
         (handle, n, x, incx, y, incy, result))
FOR_SIZES(DOT, Sdot, float)
FOR_SIZES(DOT, Ddot, double)
FOR_SIZES(DOT, Cdotu, cuComplex)
FOR_SIZES(DOT, Cdotc, cuComplex)
FOR_SIZES(DOT, Zdotu, cuDoubleComplex)
FOR_SIZES(DOT, Zdotc, cuDoubleComplex)
#define ROT(I, E, name, T, TC, TS)                                                                 \
    CALL(cublas##name, _v2, E, ROT, T, TC, TS, T, "hnxiyjpq",                                      \
         (cublasHandle_t handle, I n, T * x, I incx, T * y, I incy, const TC *c, const TS *s),     \
         (handle, n, x, incx, y, incy, c, s))
FOR_SIZES(ROT, Srot, float, float, float)
FOR_SIZES(ROT, Drot, double, double, double)
FOR_SIZES(ROT, Crot, cuComplex, float, cuComplex)
FOR_SIZES(ROT, Csrot, cuComplex, float, float)
FOR_SIZES(ROT, Zrot, cuDoubleComplex, double, cuDoubleComplex)
FOR_SIZES(ROT, Zdrot, cuDoubleComplex, double, double)
#define ROTM(I, E, L, T)                                                                           \
    CALL(cublas##L##rotm, _v2, E, ROTM, T, T, T, T, "hnxiyjp",                                     \
         (cublasHandle_t handle, I n, T * x, I incx, T * y, I incy, const T *param),               \
         (handle, n, x, incx, y, incy, param))
FOR_SIZES(ROTM, S, float)
FOR_SIZES(ROTM, D, double)
#define CSSCAL(I, E)                                                                               \
    CALL(cublasCsscal, _v2, E, SCAL, cuComplex, float, float, float, "hnaxi",                      \
         (cublasHandle_t handle, I n, const float *alpha, cuComplex *x, I incx),                   \
         (handle, n, alpha, x, incx))
FOR_SIZES(CSSCAL)
#define ZDSCAL(I, E)                                                                               \
    CALL(cublasZdscal, _v2, E, SCAL, cuDoubleComplex, double, double, double, "hnaxi",             \
         (cublasHandle_t handle, I n, const double *alpha, cuDoubleComplex *x, I incx),            \
         (handle, n, alpha, x, incx))
FOR_SIZES(ZDSCAL)
#define DOT_EX(I, E, name)                                                                         \
    CALL(name, , E, DOT, char, char, char, char, "hnxPiyGjrR.",                                    \
         (cublasHandle_t handle, I n, const void *x, cudaDataType xType, I incx, const void *y,    \
          cudaDataType yType, I incy, void *result, cudaDataType resultType,                       \
          cudaDataType executionType),                                                             \
         (handle, n, x, xType, incx, y, yType, incy, result, resultType, executionType))
FOR_SIZES(DOT_EX, cublasDotEx)
FOR_SIZES(DOT_EX, cublasDotcEx)
#define SUM_EX(I, E, name)                                                                         \
    CALL(name, , E, SUM, char, char, char, char, "hnxPirR.",                                       \
         (cublasHandle_t handle, I n, const void *x, cudaDataType xType, I incx, void *result,     \
          cudaDataType resultType, cudaDataType executionType),                                    \
         (handle, n, x, xType, incx, result, resultType, executionType))
FOR_SIZES(SUM_EX, cublasNrm2Ex)
FOR_SIZES(SUM_EX, cublasAsumEx)
#define SEEK_EX(I, E, name)                                                                        \
    CALL(name, , E, SUM, char, char, char, I, "hnxPir",                                            \
         (cublasHandle_t handle, I n, const void *x, cudaDataType xType, I incx, I *result),       \
         (handle, n, x, xType, incx, result))
FOR_SIZES(SEEK_EX, cublasIamaxEx)
FOR_SIZES(SEEK_EX, cublasIaminEx)
#define SCAL_EX(I, E)                                                                              \
    CALL(cublasScalEx, , E, SCAL, char, char, char, char, "hnaUxPi.",                              \
         (cublasHandle_t handle, I n, const void *alpha, cudaDataType alphaType, void *x,          \
          cudaDataType xType, I incx, cudaDataType executionType),                                 \
         (handle, n, alpha, alphaType, x, xType, incx, executionType))
FOR_SIZES(SCAL_EX)
#define AXPY_EX(I, E)                                                                              \
    CALL(cublasAxpyEx, , E, AXPY, char, char, char, char, "hnaUxPiyGj.",                           \
         (cublasHandle_t handle, I n, const void *alpha, cudaDataType alphaType, const void *x,    \
          cudaDataType xType, I incx, void *y, cudaDataType yType, I incy,                         \
          cudaDataType executiontype),                                                             \
         (handle, n, alpha, alphaType, x, xType, incx, y, yType, incy, executiontype))
FOR_SIZES(AXPY_EX)
#define COPY_EX(I, E)                                                                              \
    CALL(cublasCopyEx, , E, COPY, char, char, char, char, "hnxPiyGj",                              \
         (cublasHandle_t handle, I n, const void *x, cudaDataType xType, I incx, void *y,          \
          cudaDataType yType, I incy),                                                             \
         (handle, n, x, xType, incx, y, yType, incy))
FOR_SIZES(COPY_EX)
#define SWAP_EX(I, E)                                                                              \
    CALL(cublasSwapEx, , E, SWAP, char, char, char, char, "hnxPiyGj",                              \
         (cublasHandle_t handle, I n, void *x, cudaDataType xType, I incx, void *y,                \
          cudaDataType yType, I incy),                                                             \
         (handle, n, x, xType, incx, y, yType, incy))
FOR_SIZES(SWAP_EX)
#define ROT_EX(I, E)                                                                               \
    CALL(cublasRotEx, , E, ROT, char, char, char, char, "hnxPiyGjpqU.",                            \
         (cublasHandle_t handle, I n, void *x, cudaDataType xType, I incx, void *y,                \
          cudaDataType yType, I incy, const void *c, const void *s, cudaDataType csType,           \
          cudaDataType executiontype),                                                             \
         (handle, n, x, xType, incx, y, yType, incy, c, s, csType, executiontype))
FOR_SIZES(ROT_EX)
#define ROTM_EX(I, E)                                                                              \
    CALL(cublasRotmEx, , E, ROTM, char, char, char, char, "hnxPiyGjpU.",                           \
         (cublasHandle_t handle, I n, void *x, cudaDataType xType, I incx, void *y,                \
          cudaDataType yType, I incy, const void *param, cudaDataType paramType,                   \
          cudaDataType executiontype),                                                             \
         (handle, n, x, xType, incx, y, yType, incy, param, paramType, executiontype))
FOR_SIZES(ROTM_EX)
#define MATRIX_VECTOR(I, E, L, T)                                                                  \
    CALL(cublas##L##gemv, _v2, E, MV, T, T, T, T, "hTmnaA1xibyj",                                  \
         (cublasHandle_t handle, cublasOperation_t trans, I m, I n, const T *alpha, const T *A,    \
          I lda, const T *x, I incx, const T *beta, T *y, I incy),                                 \
         (handle, trans, m, n, alpha, A, lda, x, incx, beta, y, incy))                             \
    CALL(cublas##L##gbmv, _v2, E, BAND_MV, T, T, T, T, "hTmnKLaA1xibyj",                           \
         (cublasHandle_t handle, cublasOperation_t trans, I m, I n, I kl, I ku, const T *alpha,    \
          const T *A, I lda, const T *x, I incx, const T *beta, T *y, I incy),                     \
         (handle, trans, m, n, kl, ku, alpha, A, lda, x, incx, beta, y, incy))                     \
    CALL(cublas##L##gemvBatched, , E, LIST_MV, T, T, T, T, "hTmnaA1xibyjc",                        \
         (cublasHandle_t handle, cublasOperation_t trans, I m, I n, const T *alpha,                \
          const T *const Aarray[], I lda, const T *const xarray[], I incx, const T *beta,          \
          T *const yarray[], I incy, I batchCount),                                                \
         (handle, trans, m, n, alpha, Aarray, lda, xarray, incx, beta, yarray, incy, batchCount))  \
    CALL(cublas##L##gemvStridedBatched, , E, MV, T, T, T, T, "hTmnaA14xi5byj6c",                   \
         (cublasHandle_t handle, cublasOperation_t trans, I m, I n, const T *alpha, const T *A,    \
          I lda, long long int strideA, const T *x, I incx, long long int stridex, const T *beta,  \
          T *y, I incy, long long int stridey, I batchCount),                                      \
         (handle, trans, m, n, alpha, A, lda, strideA, x, incx, stridex, beta, y, incy, stridey,   \
          batchCount))
FOR_EACH(MATRIX_VECTOR)
#define TRIANGLE(I, E, L, T, full, banded, packed)                                                 \
    CALL(cublas##L##full, _v2, E, SOLVE, T, T, T, T, "hFTDnA1xi",                                  \
         (cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans,                   \
          cublasDiagType_t diag, I n, const T *A, I lda, T *x, I incx),                            \
         (handle, uplo, trans, diag, n, A, lda, x, incx))                                          \
    CALL(cublas##L##banded, _v2, E, BAND_SOLVE, T, T, T, T, "hFTDnkA1xi",                          \
         (cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans,                   \
          cublasDiagType_t diag, I n, I k, const T *A, I lda, T *x, I incx),                       \
         (handle, uplo, trans, diag, n, k, A, lda, x, incx))                                       \
    CALL(cublas##L##packed, _v2, E, PACKED_SOLVE, T, T, T, T, "hFTDnAxi",                          \
         (cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans,                   \
          cublasDiagType_t diag, I n, const T *AP, T *x, I incx),                                  \
         (handle, uplo, trans, diag, n, AP, x, incx))
#define TRIANGLES(I, E, L, T)                                                                      \
    TRIANGLE(I, E, L, T, trmv, tbmv, tpmv) TRIANGLE(I, E, L, T, trsv, tbsv, tpsv)
FOR_EACH(TRIANGLES)
#define SYMV(I, E, name, T)                                                                        \
    CALL(cublas##name, _v2, E, SYMMETRIC_MV, T, T, T, T, "hFnaA1xibyj",                            \
         (cublasHandle_t handle, cublasFillMode_t uplo, I n, const T *alpha, const T *A, I lda,    \
          const T *x, I incx, const T *beta, T *y, I incy),                                        \
         (handle, uplo, n, alpha, A, lda, x, incx, beta, y, incy))
FOR_SIZES(SYMV, Ssymv, float)
FOR_SIZES(SYMV, Dsymv, double)
FOR_SIZES(SYMV, Csymv, cuComplex)
FOR_SIZES(SYMV, Zsymv, cuDoubleComplex)
FOR_SIZES(SYMV, Chemv, cuComplex)
FOR_SIZES(SYMV, Zhemv, cuDoubleComplex)
#define SBMV(I, E, name, T)                                                                        \
    CALL(cublas##name, _v2, E, SYMMETRIC_BAND_MV, T, T, T, T, "hFnkaA1xibyj",                      \
         (cublasHandle_t handle, cublasFillMode_t uplo, I n, I k, const T *alpha, const T *A,      \
          I lda, const T *x, I incx, const T *beta, T *y, I incy),                                 \
         (handle, uplo, n, k, alpha, A, lda, x, incx, beta, y, incy))
FOR_SIZES(SBMV, Ssbmv, float)
FOR_SIZES(SBMV, Dsbmv, double)
FOR_SIZES(SBMV, Chbmv, cuComplex)
FOR_SIZES(SBMV, Zhbmv, cuDoubleComplex)
#define SPMV(I, E, name, T)                                                                        \
    CALL(cublas##name, _v2, E, PACKED_MV, T, T, T, T, "hFnaAxibyj",                                \
         (cublasHandle_t handle, cublasFillMode_t uplo, I n, const T *alpha, const T *AP,          \
          const T *x, I incx, const T *beta, T *y, I incy),                                        \
         (handle, uplo, n, alpha, AP, x, incx, beta, y, incy))
FOR_SIZES(SPMV, Sspmv, float)
FOR_SIZES(SPMV, Dspmv, double)
FOR_SIZES(SPMV, Chpmv, cuComplex)
FOR_SIZES(SPMV, Zhpmv, cuDoubleComplex)
#define GER(I, E, name, T)                                                                         \
    CALL(cublas##name, _v2, E, UPDATE, T, T, T, T, "hmnaxiyjA1",                                   \
         (cublasHandle_t handle, I m, I n, const T *alpha, const T *x, I incx, const T *y, I incy, \
          T *A, I lda),                                                                            \
         (handle, m, n, alpha, x, incx, y, incy, A, lda))
FOR_SIZES(GER, Sger, float)
FOR_SIZES(GER, Dger, double)
FOR_SIZES(GER, Cgeru, cuComplex)
FOR_SIZES(GER, Cgerc, cuComplex)
FOR_SIZES(GER, Zgeru, cuDoubleComplex)
FOR_SIZES(GER, Zgerc, cuDoubleComplex)
#define SYR(I, E, L, T, TA, full)                                                                  \
    CALL(cublas##L##full, _v2, E, SYMMETRIC_UPDATE, T, TA, TA, T, "hFnaxiA1",                      \
         (cublasHandle_t handle, cublasFillMode_t uplo, I n, const TA *alpha, const T *x, I incx,  \
          T *A, I lda),                                                                            \
         (handle, uplo, n, alpha, x, incx, A, lda))                                                \
    CALL(cublas##L##full##2, _v2, E, SYMMETRIC_UPDATE, T, T, T, T, "hFnaxiyjA1",                   \
         (cublasHandle_t handle, cublasFillMode_t uplo, I n, const T *alpha, const T *x, I incx,   \
          const T *y, I incy, T *A, I lda),                                                        \
         (handle, uplo, n, alpha, x, incx, y, incy, A, lda))
FOR_SIZES(SYR, S, float, float, syr)
FOR_SIZES(SYR, D, double, double, syr)
FOR_SIZES(SYR, C, cuComplex, cuComplex, syr)
FOR_SIZES(SYR, Z, cuDoubleComplex, cuDoubleComplex, syr)
FOR_SIZES(SYR, C, cuComplex, float, her)
FOR_SIZES(SYR, Z, cuDoubleComplex, double, her)
#define SPR(I, E, L, T, TA, packed)                                                                \
    CALL(cublas##L##packed, _v2, E, PACKED_UPDATE, T, TA, TA, T, "hFnaxiA",                        \
         (cublasHandle_t handle, cublasFillMode_t uplo, I n, const TA *alpha, const T *x, I incx,  \
          T *AP),                                                                                  \
         (handle, uplo, n, alpha, x, incx, AP))                                                    \
    CALL(cublas##L##packed##2, _v2, E, PACKED_UPDATE, T, T, T, T, "hFnaxiyjA",                     \
         (cublasHandle_t handle, cublasFillMode_t uplo, I n, const T *alpha, const T *x, I incx,   \
          const T *y, I incy, T *AP),                                                              \
         (handle, uplo, n, alpha, x, incx, y, incy, AP))
FOR_SIZES(SPR, S, float, float, spr)
FOR_SIZES(SPR, D, double, double, spr)
FOR_SIZES(SPR, C, cuComplex, float, hpr)
FOR_SIZES(SPR, Z, cuDoubleComplex, double, hpr)
#define GEMM(I, E, name, T)                                                                        \
    CALL(name, , E, GEMM, T, T, T, T, "hTWmnkaA1B2bC3",                                            \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I m, I n,     \
          I k, const T *alpha, const T *A, I lda, const T *B, I ldb, const T *beta, T *C, I ldc),  \
         (handle, transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc))
FOR_SIZES(GEMM, cublasSgemm_v2, float)
FOR_SIZES(GEMM, cublasDgemm_v2, double)
FOR_SIZES(GEMM, cublasCgemm_v2, cuComplex)
FOR_SIZES(GEMM, cublasZgemm_v2, cuDoubleComplex)
FOR_SIZES(GEMM, cublasCgemm3m, cuComplex)
FOR_SIZES(GEMM, cublasZgemm3m, cuDoubleComplex)
#define BATCHED(I, E, name, T)                                                                     \
    CALL(name##Batched, , E, LIST_GEMM, T, T, T, T, "hTWmnkaA1B2bC3c",                             \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I m, I n,     \
          I k, const T *alpha, const T *const Aarray[], I lda, const T *const Barray[], I ldb,     \
          const T *beta, T *const Carray[], I ldc, I batchCount),                                  \
         (handle, transa, transb, m, n, k, alpha, Aarray, lda, Barray, ldb, beta, Carray, ldc,     \
          batchCount))                                                                             \
    CALL(name##StridedBatched, , E, GEMM, T, T, T, T, "hTWmnkaA14B25bC36c",                        \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I m, I n,     \
          I k, const T *alpha, const T *A, I lda, long long int strideA, const T *B, I ldb,        \
          long long int strideB, const T *beta, T *C, I ldc, long long int strideC, I batchCount), \
         (handle, transa, transb, m, n, k, alpha, A, lda, strideA, B, ldb, strideB, beta, C, ldc,  \
          strideC, batchCount))
FOR_SIZES(BATCHED, cublasSgemm, float)
FOR_SIZES(BATCHED, cublasDgemm, double)
FOR_SIZES(BATCHED, cublasCgemm, cuComplex)
FOR_SIZES(BATCHED, cublasZgemm, cuDoubleComplex)
FOR_SIZES(BATCHED, cublasCgemm3m, cuComplex)
#define TYPED(I, E, name, T)                                                                       \
    CALL(name, , E, GEMM, char, T, T, T, "hTWmnkaAP1BQ2bCG3",                                      \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I m, I n,     \
          I k, const T *alpha, const void *A, cudaDataType Atype, I lda, const void *B,            \
          cudaDataType Btype, I ldb, const T *beta, void *C, cudaDataType Ctype, I ldc),           \
         (handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype,    \
          ldc))
FOR_SIZES(TYPED, cublasSgemmEx, float)
FOR_SIZES(TYPED, cublasCgemmEx, cuComplex)
FOR_SIZES(TYPED, cublasCgemm3mEx, cuComplex)
#define GEMM_EX(I, E)                                                                              \
    CALL(cublasGemmEx, , E, GEMM, char, char, char, char, "hTWmnkaAP1BQ2bCG3e.",                   \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I m, I n,     \
          I k, const void *alpha, const void *A, cudaDataType Atype, I lda, const void *B,         \
          cudaDataType Btype, I ldb, const void *beta, void *C, cudaDataType Ctype, I ldc,         \
          cublasComputeType_t computeType, cublasGemmAlgo_t algo),                                 \
         (handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype,    \
          ldc, computeType, algo))
FOR_SIZES(GEMM_EX)
#define GEMM_BATCHED_EX(I, E)                                                                      \
    CALL(cublasGemmBatchedEx, , E, LIST_GEMM, char, char, char, char, "hTWmnkaAP1BQ2bCG3ce.",      \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I m, I n,     \
          I k, const void *alpha, const void *const Aarray[], cudaDataType Atype, I lda,           \
          const void *const Barray[], cudaDataType Btype, I ldb, const void *beta,                 \
          void *const Carray[], cudaDataType Ctype, I ldc, I batchCount,                           \
          cublasComputeType_t computeType, cublasGemmAlgo_t algo),                                 \
         (handle, transa, transb, m, n, k, alpha, Aarray, Atype, lda, Barray, Btype, ldb, beta,    \
          Carray, Ctype, ldc, batchCount, computeType, algo))
FOR_SIZES(GEMM_BATCHED_EX)
#define GEMM_STRIDED_BATCHED_EX(I, E)                                                              \
    CALL(cublasGemmStridedBatchedEx, , E, GEMM, char, char, char, char, "hTWmnkaAP14BQ25bCG36ce.", \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I m, I n,     \
          I k, const void *alpha, const void *A, cudaDataType Atype, I lda, long long int strideA, \
          const void *B, cudaDataType Btype, I ldb, long long int strideB, const void *beta,       \
          void *C, cudaDataType Ctype, I ldc, long long int strideC, I batchCount,                 \
          cublasComputeType_t computeType, cublasGemmAlgo_t algo),                                 \
         (handle, transa, transb, m, n, k, alpha, A, Atype, lda, strideA, B, Btype, ldb, strideB,  \
          beta, C, Ctype, ldc, strideC, batchCount, computeType, algo))
FOR_SIZES(GEMM_STRIDED_BATCHED_EX)
#define SYMM(I, E, name, T)                                                                        \
    CALL(name, _v2, E, SYMM, T, T, T, T, "hSFmnaA1B2bC3",                                          \
         (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, I m, I n,           \
          const T *alpha, const T *A, I lda, const T *B, I ldb, const T *beta, T *C, I ldc),       \
         (handle, side, uplo, m, n, alpha, A, lda, B, ldb, beta, C, ldc))
FOR_SIZES(SYMM, cublasSsymm, float)
FOR_SIZES(SYMM, cublasDsymm, double)
FOR_SIZES(SYMM, cublasCsymm, cuComplex)
FOR_SIZES(SYMM, cublasZsymm, cuDoubleComplex)
FOR_SIZES(SYMM, cublasChemm, cuComplex)
FOR_SIZES(SYMM, cublasZhemm, cuDoubleComplex)
#define TRIANGULAR(I, E, L, T)                                                                     \
    CALL(cublas##L##trmm, _v2, E, TRMM, T, T, T, T, "hSFTDmnaA1B2C3",                              \
         (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,                     \
          cublasOperation_t trans, cublasDiagType_t diag, I m, I n, const T *alpha, const T *A,    \
          I lda, const T *B, I ldb, T *C, I ldc),                                                  \
         (handle, side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb, C, ldc))                   \
    CALL(cublas##L##trsm, _v2, E, TRSM, T, T, T, T, "hSFTDmnaA1B2",                                \
         (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,                     \
          cublasOperation_t trans, cublasDiagType_t diag, I m, I n, const T *alpha, const T *A,    \
          I lda, T *B, I ldb),                                                                     \
         (handle, side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb))                           \
    CALL(cublas##L##trsmBatched, , E, LIST_TRSM, T, T, T, T, "hSFTDmnaA1B2c",                      \
         (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,                     \
          cublasOperation_t trans, cublasDiagType_t diag, I m, I n, const T *alpha,                \
          const T *const A[], I lda, T *const B[], I ldb, I batchCount),                           \
         (handle, side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb, batchCount))               \
    CALL(cublas##L##geam, , E, GEAM, T, T, T, T, "hTWmnaA1bB2C3",                                  \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I m, I n,     \
          const T *alpha, const T *A, I lda, const T *beta, const T *B, I ldb, T *C, I ldc),       \
         (handle, transa, transb, m, n, alpha, A, lda, beta, B, ldb, C, ldc))                      \
    CALL(cublas##L##dgmm, , E, DGMM, T, T, T, T, "hSmnA1xiC3",                                     \
         (cublasHandle_t handle, cublasSideMode_t mode, I m, I n, const T *A, I lda, const T *x,   \
          I incx, T *C, I ldc),                                                                    \
         (handle, mode, m, n, A, lda, x, incx, C, ldc))
FOR_EACH(TRIANGULAR)
#define RANK_K(I, E, name, T, TA, TB)                                                              \
    CALL(name, , E, RANK_K, T, TA, TB, T, "hFTnkaA1bC3",                                           \
         (cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, I n, I k,         \
          const TA *alpha, const T *A, I lda, const TB *beta, T *C, I ldc),                        \
         (handle, uplo, trans, n, k, alpha, A, lda, beta, C, ldc))
FOR_SIZES(RANK_K, cublasSsyrk_v2, float, float, float)
FOR_SIZES(RANK_K, cublasDsyrk_v2, double, double, double)
FOR_SIZES(RANK_K, cublasCsyrk_v2, cuComplex, cuComplex, cuComplex)
FOR_SIZES(RANK_K, cublasZsyrk_v2, cuDoubleComplex, cuDoubleComplex, cuDoubleComplex)
FOR_SIZES(RANK_K, cublasCherk_v2, cuComplex, float, float)
FOR_SIZES(RANK_K, cublasZherk_v2, cuDoubleComplex, double, double)
#define RANK_2K(I, E, name, T, TB)                                                                 \
    CALL(name, , E, RANK_2K, T, T, TB, T, "hFTnkaA1B2bC3",                                         \
         (cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, I n, I k,         \
          const T *alpha, const T *A, I lda, const T *B, I ldb, const TB *beta, T *C, I ldc),      \
         (handle, uplo, trans, n, k, alpha, A, lda, B, ldb, beta, C, ldc))
FOR_SIZES(RANK_2K, cublasSsyr2k_v2, float, float)
FOR_SIZES(RANK_2K, cublasDsyr2k_v2, double, double)
FOR_SIZES(RANK_2K, cublasCsyr2k_v2, cuComplex, cuComplex)
FOR_SIZES(RANK_2K, cublasZsyr2k_v2, cuDoubleComplex, cuDoubleComplex)
FOR_SIZES(RANK_2K, cublasCher2k_v2, cuComplex, float)
FOR_SIZES(RANK_2K, cublasZher2k_v2, cuDoubleComplex, double)
FOR_SIZES(RANK_2K, cublasSsyrkx, float, float)
FOR_SIZES(RANK_2K, cublasDsyrkx, double, double)
FOR_SIZES(RANK_2K, cublasCsyrkx, cuComplex, cuComplex)
FOR_SIZES(RANK_2K, cublasZsyrkx, cuDoubleComplex, cuDoubleComplex)
FOR_SIZES(RANK_2K, cublasCherkx, cuComplex, float)
FOR_SIZES(RANK_2K, cublasZherkx, cuDoubleComplex, double)
#define RANK_K_EX(I, E, name, T)                                                                   \
    CALL(name, , E, RANK_K, char, T, T, T, "hFTnkaAP1bCG3",                                        \
         (cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, I n, I k,         \
          const T *alpha, const void *A, cudaDataType Atype, I lda, const T *beta, void *C,        \
          cudaDataType Ctype, I ldc),                                                              \
         (handle, uplo, trans, n, k, alpha, A, Atype, lda, beta, C, Ctype, ldc))
FOR_SIZES(RANK_K_EX, cublasCsyrkEx, cuComplex)
FOR_SIZES(RANK_K_EX, cublasCsyrk3mEx, cuComplex)
FOR_SIZES(RANK_K_EX, cublasCherkEx, float)
FOR_SIZES(RANK_K_EX, cublasCherk3mEx, float)

// What has no sizes.
#define ROTG(L, T, TC)                                                                             \
    CALL(cublas##L##rotg, _v2, , ROTG, T, TC, T, T, "hABpq",                                       \
         (cublasHandle_t handle, T * a, T * b, TC * c, T * s), (handle, a, b, c, s))
ROTG(S, float, float)
ROTG(D, double, double)
ROTG(C, cuComplex, float)
ROTG(Z, cuDoubleComplex, double)
#define ROTMG(L, T)                                                                                \
    CALL(cublas##L##rotmg, _v2, , ROTMG, T, T, T, T, "hABCxp",                                     \
         (cublasHandle_t handle, T * d1, T * d2, T * x1, const T *y1, T *param),                   \
         (handle, d1, d2, x1, y1, param))
ROTMG(S, float)
ROTMG(D, double)
CALL(cublasRotgEx, , , ROTG, char, char, char, char, "hABPpqU.",
     (cublasHandle_t handle, void *a, void *b, cudaDataType abType, void *c, void *s,
      cudaDataType csType, cudaDataType executiontype),
     (handle, a, b, abType, c, s, csType, executiontype))
CALL(cublasRotmgEx, , , ROTMG, char, char, char, char, "hAPB.C.x.p..",
     (cublasHandle_t handle, void *d1, cudaDataType d1Type, void *d2, cudaDataType d2Type, void *x1,
      cudaDataType x1Type, const void *y1, cudaDataType y1Type, void *param, cudaDataType paramType,
      cudaDataType executiontype),
     (handle, d1, d1Type, d2, d2Type, x1, x1Type, y1, y1Type, param, paramType, executiontype))
#define FACTORS(L, T)                                                                              \
    CALL(cublas##L##getrfBatched, , , FACTOR, T, T, T, T, "hnA1prc",                               \
         (cublasHandle_t handle, int n, T *const A[], int lda, int *P, int *info, int batchSize),  \
         (handle, n, A, lda, P, info, batchSize))                                                  \
    CALL(cublas##L##getrsBatched, , , LIST_SOLVE, T, T, T, T, "hTnkA1pB2ac",                       \
         (cublasHandle_t handle, cublasOperation_t trans, int n, int nrhs,                         \
          const T *const Aarray[], int lda, const int *devIpiv, T *const Barray[], int ldb,        \
          int *info, int batchSize),                                                               \
         (handle, trans, n, nrhs, Aarray, lda, devIpiv, Barray, ldb, info, batchSize))             \
    CALL(cublas##L##getriBatched, , , LIST_INVERT, T, T, T, T, "hnA1pB2rc",                        \
         (cublasHandle_t handle, int n, const T *const A[], int lda, const int *P, T *const C[],   \
          int ldc, int *info, int batchSize),                                                      \
         (handle, n, A, lda, P, C, ldc, info, batchSize))                                          \
    CALL(cublas##L##matinvBatched, , , LIST_INVERT, T, T, T, T, "hnA1B2rc",                        \
         (cublasHandle_t handle, int n, const T *const A[], int lda, T *const Ainv[], int lda_inv, \
          int *info, int batchSize),                                                               \
         (handle, n, A, lda, Ainv, lda_inv, info, batchSize))                                      \
    CALL(cublas##L##geqrfBatched, , , FACTOR, T, T, T, T, "hmnA1Bac",                              \
         (cublasHandle_t handle, int m, int n, T *const Aarray[], int lda, T *const TauArray[],    \
          int *info, int batchSize),                                                               \
         (handle, m, n, Aarray, lda, TauArray, info, batchSize))                                   \
    CALL(cublas##L##gelsBatched, , , LIST_INVERT, T, T, T, T, "hTmnkA1B2arc",                      \
         (cublasHandle_t handle, cublasOperation_t trans, int m, int n, int nrhs,                  \
          T *const Aarray[], int lda, T *const Carray[], int ldc, int *info, int *devInfoArray,    \
          int batchSize),                                                                          \
         (handle, trans, m, n, nrhs, Aarray, lda, Carray, ldc, info, devInfoArray, batchSize))
FACTORS(S, float)
FACTORS(D, double)
FACTORS(C, cuComplex)
FACTORS(Z, cuDoubleComplex)
#define CONVERT(L, T)                                                                              \
    CALL(cublas##L##tpttr, , , UNPACK, T, T, T, T, "hFnBA1",                                       \
         (cublasHandle_t handle, cublasFillMode_t uplo, int n, const T *AP, T *A, int lda),        \
         (handle, uplo, n, AP, A, lda))                                                            \
    CALL(cublas##L##trttp, , , PACK, T, T, T, T, "hFnA1B",                                         \
         (cublasHandle_t handle, cublasFillMode_t uplo, int n, const T *A, int lda, T *AP),        \
         (handle, uplo, n, A, lda, AP))
CONVERT(S, float)
CONVERT(D, double)
CONVERT(C, cuComplex)
CONVERT(Z, cuDoubleComplex)

// Groups of products: arrays of what is alike in a group, on the host.
#define GROUPED(I, E, L, T)                                                                        \
    CALL(cublas##L##gemmGroupedBatched, , E, GROUPS, T, T, T, T, "hxxxxxaAxBxbCxcg",               \
         (cublasHandle_t handle, const cublasOperation_t transa_array[],                           \
          const cublasOperation_t transb_array[], const I m_array[], const I n_array[],            \
          const I k_array[], const T alpha_array[], const T *const Aarray[], const I lda_array[],  \
          const T *const Barray[], const I ldb_array[], const T beta_array[], T *const Carray[],   \
          const I ldc_array[], I group_count, const I group_size[]),                               \
         (handle, transa_array, transb_array, m_array, n_array, k_array, alpha_array, Aarray,      \
          lda_array, Barray, ldb_array, beta_array, Carray, ldc_array, group_count, group_size))
FOR_SIZES(GROUPED, S, float)
FOR_SIZES(GROUPED, D, double)
#define GROUPED_EX(I, E)                                                                           \
    CALL(cublasGemmGroupedBatchedEx, , E, GROUPS, char, char, char, char, "hxxxxxaAPxBQxbCGxcge",  \
         (cublasHandle_t handle, const cublasOperation_t transa_array[],                           \
          const cublasOperation_t transb_array[], const I m_array[], const I n_array[],            \
          const I k_array[], const void *alpha_array, const void *const Aarray[],                  \
          cudaDataType_t Atype, const I lda_array[], const void *const Barray[],                   \
          cudaDataType_t Btype, const I ldb_array[], const void *beta_array, void *const Carray[], \
          cudaDataType_t Ctype, const I ldc_array[], I group_count, const I group_size[],          \
          cublasComputeType_t computeType),                                                        \
         (handle, transa_array, transb_array, m_array, n_array, k_array, alpha_array, Aarray,      \
          Atype, lda_array, Barray, Btype, ldb_array, beta_array, Carray, Ctype, ldc_array,        \
          group_count, group_size, computeType))
FOR_SIZES(GROUPED_EX)

#define TRANSFERS(I, E, Set)                                                                       \
    TRANSFER(cublas##Set##Vector##E, false, 1, n, incx, incy, NULL,                                \
             (I n, I elemSize, const void *x, I incx, void *y, I incy),                            \
             (n, elemSize, x, incx, y, incy))                                                      \
    TRANSFER(cublas##Set##VectorAsync##E, true, 1, n, incx, incy, stream,                          \
             (I n, I elemSize, const void *x, I incx, void *y, I incy, cudaStream_t stream),       \
             (n, elemSize, x, incx, y, incy, stream))                                              \
    TRANSFER(cublas##Set##Matrix##E, false, rows, cols, lda, ldb, NULL,                            \
             (I rows, I cols, I elemSize, const void *x, I lda, void *y, I ldb),                   \
             (rows, cols, elemSize, x, lda, y, ldb))                                               \
    TRANSFER(                                                                                      \
        cublas##Set##MatrixAsync##E, true, rows, cols, lda, ldb, stream,                           \
        (I rows, I cols, I elemSize, const void *x, I lda, void *y, I ldb, cudaStream_t stream),   \
        (rows, cols, elemSize, x, lda, y, ldb, stream))
FOR_SIZES(TRANSFERS, Set)
FOR_SIZES(TRANSFERS, Get)
