/* transfer.c: vectors and matrices between host and device. They copy as
 * cudaMemcpy2D does, and Async as cudaMemcpy2DAsync on the stream that they name.
 *
 * Interface: cublasSetVector, cublasGetVector, cublasSetMatrix, cublasGetMatrix, and Async of each.
 */
#include "blas.h"

// From where to where, and on which stream.
typedef struct Way {
    enum cudaMemcpyKind kind;
    bool async;
    cudaStream_t stream;
} Way;

// Copies cols columns of `rows` elements between matrices whose columns lie lda and ldb elements
// apart.
static cublasStatus_t copy_matrix(Call call, int64_t rows, int64_t cols, int64_t size,
                                  const void *A, int64_t lda, void *B, int64_t ldb, Way way)
{
    CHECK(simblas_check_size(call, "rows", rows));
    CHECK(simblas_check_size(call, "cols", cols));
    if (size < 1)
        return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE, "elemSize is %lld, less than 1.",
                              (long long)size);
    CHECK(simblas_check_leading(call, "lda", lda, rows, "rows"));
    CHECK(simblas_check_leading(call, "ldb", ldb, rows, "rows"));
    if (rows == 0 || cols == 0) return CUBLAS_STATUS_SUCCESS;
    size_t bytes = (size_t)size;
    SimRows all = {
        B,       A, (size_t)ldb * bytes, (size_t)lda * bytes, (size_t)rows * bytes, (size_t)cols,
        way.kind};
    cudaError_t copied = sim_copy_rows(call.name, call.site, all, way.async, way.stream);
    return copied == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

// A vector with gaps is a matrix of one row.
static cublasStatus_t copy_vector(Call call, int64_t n, int64_t size, const void *x, int64_t incx,
                                  void *y, int64_t incy, Way way)
{
    CHECK(simblas_check_size(call, "n", n));
    if (incx < 1 || incy < 1)
        return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                              "incx is %lld, incy is %lld; both must be at least 1.",
                              (long long)incx, (long long)incy);
    return copy_matrix(call, 1, n, size, x, incx, y, incy, way);
}

#define TO_DEVICE cudaMemcpyHostToDevice
#define TO_HOST cudaMemcpyDeviceToHost

#define TRANSFERS(I, E, Set, direction)                                                            \
    cublasStatus_t cublas##Set##Vector##E(I n, I elemSize, const void *x, I incx, void *y, I incy) \
    {                                                                                              \
        Call call = {"cublas" #Set "Vector" #E, SITE};                                             \
        return copy_vector(call, n, elemSize, x, incx, y, incy, (Way){direction, false, NULL});    \
    }                                                                                              \
    cublasStatus_t cublas##Set##VectorAsync##E(I n, I elemSize, const void *x, I incx, void *y,    \
                                               I incy, cudaStream_t stream)                        \
    {                                                                                              \
        Call call = {"cublas" #Set "VectorAsync" #E, SITE};                                        \
        return copy_vector(call, n, elemSize, x, incx, y, incy, (Way){direction, true, stream});   \
    }                                                                                              \
    cublasStatus_t cublas##Set##Matrix##E(I rows, I cols, I elemSize, const void *A, I lda,        \
                                          void *B, I ldb)                                          \
    {                                                                                              \
        Call call = {"cublas" #Set "Matrix" #E, SITE};                                             \
        return copy_matrix(call, rows, cols, elemSize, A, lda, B, ldb,                             \
                           (Way){direction, false, NULL});                                         \
    }                                                                                              \
    cublasStatus_t cublas##Set##MatrixAsync##E(I rows, I cols, I elemSize, const void *A, I lda,   \
                                               void *B, I ldb, cudaStream_t stream)                \
    {                                                                                              \
        Call call = {"cublas" #Set "MatrixAsync" #E, SITE};                                        \
        return copy_matrix(call, rows, cols, elemSize, A, lda, B, ldb,                             \
                           (Way){direction, true, stream});                                        \
    }

FOR_SIZES(TRANSFERS, Set, TO_DEVICE)
FOR_SIZES(TRANSFERS, Get, TO_HOST)
