/* calls.h: a part of cublas_api.h, which includes it: the calls that work on numbers, as tables. A
 * table takes the name of a macro, and calls it once for each call:
 *
 *   CALL(name, end, KIND, T, TF, TR, (parameters), (arguments))
 *       name##end is the symbol, which programs know as `name` (cublas_v2.h). KIND is what it does,
 *       T the type of its numbers, TF that of its factors (or c), TR that of its result (or s); a
 *       type is char if the arguments give it, or if there is none. The arguments are the
 *       parameters' names.
 *   TRANSFER(name, shape, WAY, async, width, height, ldfrom, ldto, stream, (parameters),
 *            (arguments))
 *       a copy between host and device of `height` columns of `width` elements
 *
 * From these tables cublas_api.h declares the calls, simgpu defines them (src/blas), gpulog's
 * interposer wraps them (interpose/blas.h), and a test compares NVIDIA's headers with simgpu's.
 *
 * Source: cuBLAS 13 headers (names and types).
 */
#ifndef SIMGPU_CUBLAS_CALLS_H
#define SIMGPU_CUBLAS_CALLS_H

#define SIMGPU_BLAS_EACH(ROW, CALL)                                                                \
    ROW(CALL, S, float)                                                                            \
    ROW(CALL, D, double) ROW(CALL, C, cuComplex) ROW(CALL, Z, cuDoubleComplex)

// ---- Vectors ----

#define SIMGPU_BLAS_SCAL(CALL, L, T, TF)                                                           \
    CALL(cublas##L##scal, _v2, scal, T, TF, char,                                                  \
         (cublasHandle_t handle, int n, const TF *alpha, T *x, int incx),                          \
         (handle, n, alpha, x, incx))
#define SIMGPU_BLAS_AXPY(CALL, L, T)                                                               \
    CALL(cublas##L##axpy, _v2, axpy, T, T, char,                                                   \
         (cublasHandle_t handle, int n, const T *alpha, const T *x, int incx, T *y, int incy),     \
         (handle, n, alpha, x, incx, y, incy))
#define SIMGPU_BLAS_COPY(CALL, L, T)                                                               \
    CALL(cublas##L##copy, _v2, copy, T, char, char,                                                \
         (cublasHandle_t handle, int n, const T *x, int incx, T *y, int incy),                     \
         (handle, n, x, incx, y, incy))
#define SIMGPU_BLAS_SWAP(CALL, L, T)                                                               \
    CALL(cublas##L##swap, _v2, swap, T, char, char,                                                \
         (cublasHandle_t handle, int n, T *x, int incx, T *y, int incy),                           \
         (handle, n, x, incx, y, incy))
#define SIMGPU_BLAS_ROT(CALL, L, T, TC, TS)                                                        \
    CALL(cublas##L##rot, _v2, rot, T, TC, TS,                                                      \
         (cublasHandle_t handle, int n, T *x, int incx, T *y, int incy, const TC *c, const TS *s), \
         (handle, n, x, incx, y, incy, c, s))
#define SIMGPU_CUBLAS_VECTORS(CALL)                                                                \
    SIMGPU_BLAS_SCAL(CALL, S, float, float)                                                        \
    SIMGPU_BLAS_SCAL(CALL, D, double, double)                                                      \
    SIMGPU_BLAS_SCAL(CALL, C, cuComplex, cuComplex)                                                \
    SIMGPU_BLAS_SCAL(CALL, Cs, cuComplex, float)                                                   \
    SIMGPU_BLAS_SCAL(CALL, Z, cuDoubleComplex, cuDoubleComplex)                                    \
    SIMGPU_BLAS_SCAL(CALL, Zd, cuDoubleComplex, double)                                            \
    SIMGPU_BLAS_EACH(SIMGPU_BLAS_AXPY, CALL)                                                       \
    SIMGPU_BLAS_EACH(SIMGPU_BLAS_COPY, CALL)                                                       \
    SIMGPU_BLAS_EACH(SIMGPU_BLAS_SWAP, CALL)                                                       \
    SIMGPU_BLAS_ROT(CALL, S, float, float, float)                                                  \
    SIMGPU_BLAS_ROT(CALL, D, double, double, double)                                               \
    SIMGPU_BLAS_ROT(CALL, C, cuComplex, float, cuComplex)                                          \
    SIMGPU_BLAS_ROT(CALL, Cs, cuComplex, float, float)                                             \
    SIMGPU_BLAS_ROT(CALL, Z, cuDoubleComplex, double, cuDoubleComplex)                             \
    SIMGPU_BLAS_ROT(CALL, Zd, cuDoubleComplex, double, double)

// Calls with a result: a sum, or the index of an element, counted from 1.
#define SIMGPU_BLAS_SUM(CALL, name, KIND, T, TR)                                                   \
    CALL(cublas##name, _v2, KIND, T, char, TR,                                                     \
         (cublasHandle_t handle, int n, const T *x, int incx, TR *result),                         \
         (handle, n, x, incx, result))
#define SIMGPU_BLAS_SUMS(CALL, l, L, T, TR)                                                        \
    SIMGPU_BLAS_SUM(CALL, L##nrm2, nrm2, T, TR)                                                    \
    SIMGPU_BLAS_SUM(CALL, L##asum, asum, T, TR)                                                    \
    SIMGPU_BLAS_SUM(CALL, I##l##amax, amax, T, int)                                                \
    SIMGPU_BLAS_SUM(CALL, I##l##amin, amin, T, int)
#define SIMGPU_BLAS_DOT(CALL, name, KIND, T)                                                       \
    CALL(cublas##name, _v2, KIND, T, char, T,                                                      \
         (cublasHandle_t handle, int n, const T *x, int incx, const T *y, int incy, T *result),    \
         (handle, n, x, incx, y, incy, result))
#define SIMGPU_CUBLAS_SUMS(CALL)                                                                   \
    SIMGPU_BLAS_SUMS(CALL, s, S, float, float)                                                     \
    SIMGPU_BLAS_SUMS(CALL, d, D, double, double)                                                   \
    SIMGPU_BLAS_SUMS(CALL, c, Sc, cuComplex, float)                                                \
    SIMGPU_BLAS_SUMS(CALL, z, Dz, cuDoubleComplex, double)                                         \
    SIMGPU_BLAS_DOT(CALL, Sdot, dot, float)                                                        \
    SIMGPU_BLAS_DOT(CALL, Ddot, dot, double)                                                       \
    SIMGPU_BLAS_DOT(CALL, Cdotu, dot, cuComplex)                                                   \
    SIMGPU_BLAS_DOT(CALL, Cdotc, dotc, cuComplex)                                                  \
    SIMGPU_BLAS_DOT(CALL, Zdotu, dot, cuDoubleComplex)                                             \
    SIMGPU_BLAS_DOT(CALL, Zdotc, dotc, cuDoubleComplex)

// ---- Matrices ----

#define SIMGPU_BLAS_GEMV(CALL, L, T)                                                               \
    CALL(cublas##L##gemv, _v2, gemv, T, T, char,                                                   \
         (cublasHandle_t handle, cublasOperation_t trans, int m, int n, const T *alpha,            \
          const T *A, int lda, const T *x, int incx, const T *beta, T *y, int incy),               \
         (handle, trans, m, n, alpha, A, lda, x, incx, beta, y, incy))
#define SIMGPU_BLAS_GER(CALL, name, KIND, T)                                                       \
    CALL(cublas##name, _v2, KIND, T, T, char,                                                      \
         (cublasHandle_t handle, int m, int n, const T *alpha, const T *x, int incx, const T *y,   \
          int incy, T *A, int lda),                                                                \
         (handle, m, n, alpha, x, incx, y, incy, A, lda))
#define SIMGPU_BLAS_GEAM(CALL, L, T)                                                               \
    CALL(cublas##L##geam, , geam, T, T, char,                                                      \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, \
          const T *alpha, const T *A, int lda, const T *beta, const T *B, int ldb, T *C, int ldc), \
         (handle, transa, transb, m, n, alpha, A, lda, beta, B, ldb, C, ldc))
#define SIMGPU_BLAS_DGMM(CALL, L, T)                                                               \
    CALL(cublas##L##dgmm, , dgmm, T, char, char,                                                   \
         (cublasHandle_t handle, cublasSideMode_t mode, int m, int n, const T *A, int lda,         \
          const T *x, int incx, T *C, int ldc),                                                    \
         (handle, mode, m, n, A, lda, x, incx, C, ldc))
#define SIMGPU_BLAS_TRSM(CALL, L, T)                                                               \
    CALL(cublas##L##trsm, _v2, trsm, T, T, char,                                                   \
         (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,                     \
          cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const T *alpha,            \
          const T *A, int lda, T *B, int ldb),                                                     \
         (handle, side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb))                           \
    CALL(cublas##L##trsmBatched, , trsm_batched, T, T, char,                                       \
         (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,                     \
          cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const T *alpha,            \
          const T *const A[], int lda, T *const B[], int ldb, int batchCount),                     \
         (handle, side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb, batchCount))
#define SIMGPU_CUBLAS_MATRICES(CALL)                                                               \
    SIMGPU_BLAS_EACH(SIMGPU_BLAS_GEMV, CALL)                                                       \
    SIMGPU_BLAS_GER(CALL, Sger, ger, float)                                                        \
    SIMGPU_BLAS_GER(CALL, Dger, ger, double)                                                       \
    SIMGPU_BLAS_GER(CALL, Cgeru, ger, cuComplex)                                                   \
    SIMGPU_BLAS_GER(CALL, Cgerc, gerc, cuComplex)                                                  \
    SIMGPU_BLAS_GER(CALL, Zgeru, ger, cuDoubleComplex)                                             \
    SIMGPU_BLAS_GER(CALL, Zgerc, gerc, cuDoubleComplex)                                            \
    SIMGPU_BLAS_EACH(SIMGPU_BLAS_GEAM, CALL)                                                       \
    SIMGPU_BLAS_EACH(SIMGPU_BLAS_DGMM, CALL)                                                       \
    SIMGPU_BLAS_EACH(SIMGPU_BLAS_TRSM, CALL)

// ---- Products: one, or a batch at equal strides ----

#define SIMGPU_BLAS_GEMM(CALL, L, T, end)                                                          \
    CALL(cublas##L##gemm, end, gemm, T, T, char,                                                   \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, \
          int k, const T *alpha, const T *A, int lda, const T *B, int ldb, const T *beta, T *C,    \
          int ldc),                                                                                \
         (handle, transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc))                   \
    CALL(cublas##L##gemmStridedBatched, , strided, T, T, char,                                     \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, \
          int k, const T *alpha, const T *A, int lda, long long int strideA, const T *B, int ldb,  \
          long long int strideB, const T *beta, T *C, int ldc, long long int strideC,              \
          int batchCount),                                                                         \
         (handle, transa, transb, m, n, k, alpha, A, lda, strideA, B, ldb, strideB, beta, C, ldc,  \
          strideC, batchCount))
#define SIMGPU_BLAS_TYPED(CALL, L, TF)                                                             \
    CALL(cublas##L##gemmEx, , typed, char, TF, char,                                               \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, \
          int k, const TF *alpha, const void *A, cudaDataType Atype, int lda, const void *B,       \
          cudaDataType Btype, int ldb, const TF *beta, void *C, cudaDataType Ctype, int ldc),      \
         (handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype,    \
          ldc))
#define SIMGPU_CUBLAS_PRODUCTS(CALL)                                                               \
    SIMGPU_BLAS_GEMM(CALL, S, float, _v2)                                                          \
    SIMGPU_BLAS_GEMM(CALL, D, double, _v2)                                                         \
    SIMGPU_BLAS_GEMM(CALL, C, cuComplex, _v2)                                                      \
    SIMGPU_BLAS_GEMM(CALL, Z, cuDoubleComplex, _v2)                                                \
    SIMGPU_BLAS_TYPED(CALL, S, float)                                                              \
    SIMGPU_BLAS_TYPED(CALL, C, cuComplex)                                                          \
    CALL(cublasGemmEx, , gemm_ex, char, char, char,                                                \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, \
          int k, const void *alpha, const void *A, cudaDataType Atype, int lda, const void *B,     \
          cudaDataType Btype, int ldb, const void *beta, void *C, cudaDataType Ctype, int ldc,     \
          cublasComputeType_t computeType, cublasGemmAlgo_t algo),                                 \
         (handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype,    \
          ldc, computeType, algo))                                                                 \
    CALL(cublasGemmStridedBatchedEx, , strided_ex, char, char, char,                               \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, \
          int k, const void *alpha, const void *A, cudaDataType Atype, int lda,                    \
          long long int strideA, const void *B, cudaDataType Btype, int ldb,                       \
          long long int strideB, const void *beta, void *C, cudaDataType Ctype, int ldc,           \
          long long int strideC, int batchCount, cublasComputeType_t computeType,                  \
          cublasGemmAlgo_t algo),                                                                  \
         (handle, transa, transb, m, n, k, alpha, A, Atype, lda, strideA, B, Btype, ldb, strideB,  \
          beta, C, Ctype, ldc, strideC, batchCount, computeType, algo))

// ---- Products, whose matrices' addresses are in device memory ----

#define SIMGPU_BLAS_BATCHED(CALL, L, T)                                                            \
    CALL(cublas##L##gemmBatched, , batched, T, T, char,                                            \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, \
          int k, const T *alpha, const T *const Aarray[], int lda, const T *const Barray[],        \
          int ldb, const T *beta, T *const Carray[], int ldc, int batchCount),                     \
         (handle, transa, transb, m, n, k, alpha, Aarray, lda, Barray, ldb, beta, Carray, ldc,     \
          batchCount))
#define SIMGPU_CUBLAS_BATCHES(CALL)                                                                \
    SIMGPU_BLAS_EACH(SIMGPU_BLAS_BATCHED, CALL)                                                    \
    CALL(cublasGemmBatchedEx, , batched_ex, char, char, char,                                      \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, \
          int k, const void *alpha, const void *const Aarray[], cudaDataType Atype, int lda,       \
          const void *const Barray[], cudaDataType Btype, int ldb, const void *beta,               \
          void *const Carray[], cudaDataType Ctype, int ldc, int batchCount,                       \
          cublasComputeType_t computeType, cublasGemmAlgo_t algo),                                 \
         (handle, transa, transb, m, n, k, alpha, Aarray, Atype, lda, Barray, Btype, ldb, beta,    \
          Carray, Ctype, ldc, batchCount, computeType, algo))

// The headers have products of halves only for C++, and gpulog does not log them.
#define SIMGPU_CUBLAS_HALF_PRODUCTS(CALL) SIMGPU_BLAS_GEMM(CALL, H, __half, )
#define SIMGPU_CUBLAS_HALF_BATCHES(CALL) SIMGPU_BLAS_BATCHED(CALL, H, __half)

// ---- Batches of matrices in factors ----

#define SIMGPU_BLAS_FACTORS(CALL, L, T)                                                            \
    CALL(cublas##L##getrfBatched, , getrf, T, char, char,                                          \
         (cublasHandle_t handle, int n, T *const A[], int lda, int *P, int *info, int batchSize),  \
         (handle, n, A, lda, P, info, batchSize))                                                  \
    CALL(cublas##L##getrsBatched, , getrs, T, char, char,                                          \
         (cublasHandle_t handle, cublasOperation_t trans, int n, int nrhs,                         \
          const T *const Aarray[], int lda, const int *devIpiv, T *const Barray[], int ldb,        \
          int *info, int batchSize),                                                               \
         (handle, trans, n, nrhs, Aarray, lda, devIpiv, Barray, ldb, info, batchSize))             \
    CALL(cublas##L##getriBatched, , getri, T, char, char,                                          \
         (cublasHandle_t handle, int n, const T *const A[], int lda, const int *P, T *const C[],   \
          int ldc, int *info, int batchSize),                                                      \
         (handle, n, A, lda, P, C, ldc, info, batchSize))                                          \
    CALL(cublas##L##matinvBatched, , matinv, T, char, char,                                        \
         (cublasHandle_t handle, int n, const T *const A[], int lda, T *const Ainv[], int lda_inv, \
          int *info, int batchSize),                                                               \
         (handle, n, A, lda, Ainv, lda_inv, info, batchSize))
#define SIMGPU_CUBLAS_FACTORS(CALL) SIMGPU_BLAS_EACH(SIMGPU_BLAS_FACTORS, CALL)

// ---- Copies between host and device ----

#define SIMGPU_BLAS_TRANSFERS(TRANSFER, Set, WAY)                                                  \
    TRANSFER(cublas##Set##Vector, vector, WAY, false, 1, n, incx, incy, NULL,                      \
             (int n, int elemSize, const void *x, int incx, void *y, int incy),                    \
             (n, elemSize, x, incx, y, incy))                                                      \
    TRANSFER(                                                                                      \
        cublas##Set##VectorAsync, vector, WAY, true, 1, n, incx, incy, stream,                     \
        (int n, int elemSize, const void *x, int incx, void *y, int incy, cudaStream_t stream),    \
        (n, elemSize, x, incx, y, incy, stream))                                                   \
    TRANSFER(cublas##Set##Matrix, matrix, WAY, false, rows, cols, lda, ldb, NULL,                  \
             (int rows, int cols, int elemSize, const void *x, int lda, void *y, int ldb),         \
             (rows, cols, elemSize, x, lda, y, ldb))                                               \
    TRANSFER(cublas##Set##MatrixAsync, matrix, WAY, true, rows, cols, lda, ldb, stream,            \
             (int rows, int cols, int elemSize, const void *x, int lda, void *y, int ldb,          \
              cudaStream_t stream),                                                                \
             (rows, cols, elemSize, x, lda, y, ldb, stream))
#define SIMGPU_CUBLAS_TRANSFERS(TRANSFER)                                                          \
    SIMGPU_BLAS_TRANSFERS(TRANSFER, Set, TO_DEVICE) SIMGPU_BLAS_TRANSFERS(TRANSFER, Get, TO_HOST)

// All calls on a stream, except those of halves.
#define SIMGPU_CUBLAS_CALLS(CALL)                                                                  \
    SIMGPU_CUBLAS_VECTORS(CALL)                                                                    \
    SIMGPU_CUBLAS_SUMS(CALL)                                                                       \
    SIMGPU_CUBLAS_MATRICES(CALL)                                                                   \
    SIMGPU_CUBLAS_PRODUCTS(CALL) SIMGPU_CUBLAS_BATCHES(CALL) SIMGPU_CUBLAS_FACTORS(CALL)

#ifdef SIMGPU_NAMES // only the symbols, for the linker of the interposer (make/flags.mk)
#define SIMGPU_BLAS_NAME(name, end, ...) @name##end
#define SIMGPU_BLAS_TRANSFER_NAME(name, ...) @name
SIMGPU_CUBLAS_CALLS(SIMGPU_BLAS_NAME)
SIMGPU_CUBLAS_TRANSFERS(SIMGPU_BLAS_TRANSFER_NAME)
#endif

#endif
