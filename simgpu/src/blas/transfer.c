/* transfer.c: vectors and matrices between host and device. They copy as
 * cudaMemcpy2D does, and Async as cudaMemcpy2DAsync on the stream that they name.
 */
#include "blas.h"

// A copy: `cols` columns of `rows` elements of `size` bytes, between matrices whose columns are lda
// and ldb elements apart.
typedef struct Transfer {
    enum cudaMemcpyKind kind;
    bool async;
    int rows, cols, size;
    const void *A;
    int lda;
    void *B;
    int ldb;
    cudaStream_t stream;
} Transfer;

static cublasStatus_t copy_matrix(Call call, const Transfer *t)
{
    CHECK(simblas_check_size(call, "rows", t->rows));
    CHECK(simblas_check_size(call, "cols", t->cols));
    if (t->size < 1)
        return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE, "elemSize is %d, less than 1.",
                              t->size);
    CHECK(simblas_check_leading(call, "lda", t->lda, t->rows, "rows"));
    CHECK(simblas_check_leading(call, "ldb", t->ldb, t->rows, "rows"));
    if (t->rows == 0 || t->cols == 0) return CUBLAS_STATUS_SUCCESS;
    size_t bytes = (size_t)t->size;
    SimRows all = {t->B,
                   t->A,
                   (size_t)t->ldb * bytes,
                   (size_t)t->lda * bytes,
                   (size_t)t->rows * bytes,
                   (size_t)t->cols,
                   t->kind};
    cudaError_t copied = sim_copy_rows(call.name, call.site, all, t->async, t->stream);
    return copied == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

// A vector with gaps is a matrix of one row.
static cublasStatus_t copy_vector(Call call, const Transfer *t)
{
    CHECK(simblas_check_size(call, "n", t->cols));
    if (t->lda < 1 || t->ldb < 1)
        return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                              "incx is %d, incy is %d; both must be at least 1.", t->lda, t->ldb);
    return copy_matrix(call, t);
}

#define TO_DEVICE cudaMemcpyHostToDevice
#define TO_HOST cudaMemcpyDeviceToHost
#define DEFINE(name_, shape, WAY, async, rows, cols, lda, ldb, stream, parameters, arguments)      \
    cublasStatus_t name_ parameters                                                                \
    {                                                                                              \
        const Call call = SIMBLAS_CALL(#name_);                                                    \
        const Transfer t = {WAY, async, rows, cols, elemSize, x, lda, y, ldb, stream};             \
        return copy_##shape(call, &t);                                                             \
    }
SIMGPU_CUBLAS_TRANSFERS(DEFINE)
