/* transfer.c: vectors and matrices between host and device. They copy as
 * cudaMemcpy2D does, and Async as cudaMemcpy2DAsync on the stream that they name.
 *
 * Interface: cublasSetVector, cublasGetVector, cublasSetMatrix, cublasGetMatrix, and Async of each.
 */
#include "blas.h"
#include "memory/memory.h"

// From where to where, and on which stream.
typedef struct Way {
    enum cudaMemcpyKind kind;
    bool async;
    cudaStream_t stream;
} Way;

// Copies cols columns of `rows` elements between matrices whose columns lie lda and ldb elements
// apart.
static cublasStatus_t copy_matrix(Call call, int rows, int cols, int size, const void *A, int lda,
                                  void *B, int ldb, Way way)
{
    CHECK(simblas_check_size(call, "rows", rows));
    CHECK(simblas_check_size(call, "cols", cols));
    if (size < 1)
        return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE, "elemSize is %d, less than 1.",
                              size);
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
static cublasStatus_t copy_vector(Call call, int n, int size, const void *x, int incx, void *y,
                                  int incy, Way way)
{
    CHECK(simblas_check_size(call, "n", n));
    if (incx < 1 || incy < 1)
        return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                              "incx is %d, incy is %d; both must be at "
                              "least 1.",
                              incx, incy);
    return copy_matrix(call, 1, n, size, x, incx, y, incy, way);
}

#define TO_DEVICE cudaMemcpyHostToDevice
#define TO_HOST cudaMemcpyDeviceToHost

#define TRANSFERS(Set, direction)                                                                  \
    cublasStatus_t cublas##Set##Vector(int n, int elemSize, const void *x, int incx, void *y,      \
                                       int incy)                                                   \
    {                                                                                              \
        Call call = {"cublas" #Set "Vector", SITE};                                                \
        return copy_vector(call, n, elemSize, x, incx, y, incy, (Way){direction, false, NULL});    \
    }                                                                                              \
    cublasStatus_t cublas##Set##VectorAsync(int n, int elemSize, const void *x, int incx, void *y, \
                                            int incy, cudaStream_t stream)                         \
    {                                                                                              \
        Call call = {"cublas" #Set "VectorAsync", SITE};                                           \
        return copy_vector(call, n, elemSize, x, incx, y, incy, (Way){direction, true, stream});   \
    }                                                                                              \
    cublasStatus_t cublas##Set##Matrix(int rows, int cols, int elemSize, const void *A, int lda,   \
                                       void *B, int ldb)                                           \
    {                                                                                              \
        Call call = {"cublas" #Set "Matrix", SITE};                                                \
        return copy_matrix(call, rows, cols, elemSize, A, lda, B, ldb,                             \
                           (Way){direction, false, NULL});                                         \
    }                                                                                              \
    cublasStatus_t cublas##Set##MatrixAsync(int rows, int cols, int elemSize, const void *A,       \
                                            int lda, void *B, int ldb, cudaStream_t stream)        \
    {                                                                                              \
        Call call = {"cublas" #Set "MatrixAsync", SITE};                                           \
        return copy_matrix(call, rows, cols, elemSize, A, lda, B, ldb,                             \
                           (Way){direction, true, stream});                                        \
    }

TRANSFERS(Set, TO_DEVICE)
TRANSFERS(Get, TO_HOST)
