/* blas.c: cuBLAS. Which bytes a call touches is said by gpulog/log/operands.c.
 *
 * Where alpha is 0 the factors are not read, and where beta is 0 the result is only written.
 * Scalars in device memory cannot be looked at without waiting for the device; they count as not 0.
 *
 * Interface: the wrapped cublasS*, cublasGemmEx, cublasSetVector … cublasGetMatrix.
 */
#include <cublas_v2.h>
#include <string.h>

#include "interpose.h"

WRAPPED(cublasCreate_v2);
WRAPPED(cublasDestroy_v2);
WRAPPED(cublasSgemm_v2);
WRAPPED(cublasSgemmStridedBatched);
WRAPPED(cublasGemmEx);
WRAPPED(cublasSgemv_v2);
WRAPPED(cublasSscal_v2);
WRAPPED(cublasSaxpy_v2);
WRAPPED(cublasScopy_v2);
WRAPPED(cublasSdot_v2);
WRAPPED(cublasSnrm2_v2);
WRAPPED(cublasSasum_v2);
WRAPPED(cublasSetVector);
WRAPPED(cublasGetVector);
WRAPPED(cublasSetMatrix);
WRAPPED(cublasGetMatrix);

// ---- An operation on the stream of a handle ----

static GpuLogEntry begin(const char *name, cublasHandle_t handle, const void *site)
{
    cudaStream_t stream = NULL;
    cublasGetStream_v2(handle, &stream);
    return entry_on(GPU_BLAS, name, stream, site);
}

static bool scalars_on_device(cublasHandle_t handle)
{
    cublasPointerMode_t mode = CUBLAS_POINTER_MODE_HOST;
    cublasGetPointerMode_v2(handle, &mode);
    return mode == CUBLAS_POINTER_MODE_DEVICE;
}

static size_t scalar_bytes(cublasComputeType_t compute)
{
    switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC: return 2;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC: return 8;
    default: return 4;
    }
}

// All bits but the sign of a floating-point number are 0. For a 32-bit integer the "sign" is its
// most negative value, which nobody scales by.
static bool is_zero(const void *scalar, size_t bytes)
{
    unsigned char byte[8] = {0};
    memcpy(byte, scalar, bytes);
    byte[bytes - 1] &= 0x7f;
    for (size_t i = 0; i < bytes; i++)
        if (byte[i]) return false;
    return true;
}

// Notes a scalar that is read from device memory; true: it may be other than 0.
static bool add_scalar(GpuLogEntry *entry, cublasHandle_t handle, const void *scalar, size_t bytes)
{
    if (!scalars_on_device(handle)) return !is_zero(scalar, bytes);
    add_range(entry, scalar, bytes, GPU_READ);
    return true;
}

static void add(GpuLogEntry *entry, GpuRange operand)
{
    add_range(entry, operand.ptr, operand.bytes, operand.access);
}

// ---- Handles: making and ending one waits for the device ----

cublasStatus_t __wrap_cublasCreate_v2(cublasHandle_t *handle)
{
    return WAITING("cublasCreate", SITE, __real_cublasCreate_v2(handle));
}

cublasStatus_t __wrap_cublasDestroy_v2(cublasHandle_t handle)
{
    return WAITING("cublasDestroy", SITE, __real_cublasDestroy_v2(handle));
}

// ---- Products ----

static cublasStatus_t multiplied(cublasStatus_t status, const char *name, cublasHandle_t handle,
                                 SimLogProduct *product, const void *alpha, const void *beta,
                                 size_t scalar, const void *site)
{
    if (status != CUBLAS_STATUS_SUCCESS || product->m == 0 || product->n == 0 ||
        product->count == 0)
        return status;
    GpuRange operand[3];
    GpuLogEntry entry = begin(name, handle, site);
    bool adds = add_scalar(&entry, handle, alpha, scalar) && product->k > 0;
    product->keeps = add_scalar(&entry, handle, beta, scalar);
    sim_log_product(product, operand);
    for (int i = adds ? 0 : 2; i < 3; i++) add(&entry, operand[i]);
    write_entry(&entry);
    return status;
}

cublasStatus_t __wrap_cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa,
                                     cublasOperation_t transb, int m, int n, int k,
                                     const float *alpha, const float *A, int lda, const float *B,
                                     int ldb, const float *beta, float *C, int ldc)
{
    SimLogProduct p = {
        transa != CUBLAS_OP_N,  transb != CUBLAS_OP_N,  m,    n, k, 1, {A, lda, 0, sizeof *A},
        {B, ldb, 0, sizeof *B}, {C, ldc, 0, sizeof *C}, false};
    cublasStatus_t status =
        __real_cublasSgemm_v2(handle, transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
    return multiplied(status, "cublasSgemm", handle, &p, alpha, beta, sizeof *alpha, SITE);
}

cublasStatus_t __wrap_cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa,
                                                cublasOperation_t transb, int m, int n, int k,
                                                const float *alpha, const float *A, int lda,
                                                long long int strideA, const float *B, int ldb,
                                                long long int strideB, const float *beta, float *C,
                                                int ldc, long long int strideC, int batchCount)
{
    SimLogProduct p = {transa != CUBLAS_OP_N,
                      transb != CUBLAS_OP_N,
                      m,
                      n,
                      k,
                      batchCount,
                      {A, lda, strideA, sizeof *A},
                      {B, ldb, strideB, sizeof *B},
                      {C, ldc, strideC, sizeof *C},
                      false};
    cublasStatus_t status =
        __real_cublasSgemmStridedBatched(handle, transa, transb, m, n, k, alpha, A, lda, strideA, B,
                                         ldb, strideB, beta, C, ldc, strideC, batchCount);
    return multiplied(status, "cublasSgemmStridedBatched", handle, &p, alpha, beta, sizeof *alpha,
                      SITE);
}

static size_t element_bytes(cudaDataType type)
{
    switch (type) {
    case CUDA_R_64F: return 8;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    case CUDA_R_8I:
    case CUDA_R_8U:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2: return 1;
    default: return 4;
    }
}

cublasStatus_t __wrap_cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                                   cublasOperation_t transb, int m, int n, int k, const void *alpha,
                                   const void *A, cudaDataType Atype, int lda, const void *B,
                                   cudaDataType Btype, int ldb, const void *beta, void *C,
                                   cudaDataType Ctype, int ldc, cublasComputeType_t computeType,
                                   cublasGemmAlgo_t algo)
{
    SimLogProduct p = {transa != CUBLAS_OP_N,
                      transb != CUBLAS_OP_N,
                      m,
                      n,
                      k,
                      1,
                      {A, lda, 0, element_bytes(Atype)},
                      {B, ldb, 0, element_bytes(Btype)},
                      {C, ldc, 0, element_bytes(Ctype)},
                      false};
    cublasStatus_t status =
        __real_cublasGemmEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb,
                            beta, C, Ctype, ldc, computeType, algo);
    return multiplied(status, "cublasGemmEx", handle, &p, alpha, beta, scalar_bytes(computeType),
                      SITE);
}

cublasStatus_t __wrap_cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n,
                                     const float *alpha, const float *A, int lda, const float *x,
                                     int incx, const float *beta, float *y, int incy)
{
    cublasStatus_t status =
        __real_cublasSgemv_v2(handle, trans, m, n, alpha, A, lda, x, incx, beta, y, incy);
    if (status != CUBLAS_STATUS_SUCCESS || m == 0 || n == 0) return status;
    GpuRange operand[3];
    GpuLogEntry entry = begin("cublasSgemv", handle, SITE);
    bool adds = add_scalar(&entry, handle, alpha, sizeof *alpha);
    bool keeps = add_scalar(&entry, handle, beta, sizeof *beta);
    sim_log_matrix_vector(trans != CUBLAS_OP_N, m, n, A, lda, x, incx, y, incy, keeps, operand);
    for (int i = adds ? 0 : 2; i < 3; i++) add(&entry, operand[i]);
    write_entry(&entry);
    return status;
}

// ---- Vectors ----

cublasStatus_t __wrap_cublasSscal_v2(cublasHandle_t handle, int n, const float *alpha, float *x,
                                     int incx)
{
    cublasStatus_t status = __real_cublasSscal_v2(handle, n, alpha, x, incx);
    if (status != CUBLAS_STATUS_SUCCESS || n <= 0 || incx <= 0) return status;
    GpuLogEntry entry = begin("cublasSscal", handle, SITE);
    add_scalar(&entry, handle, alpha, sizeof *alpha);
    add(&entry, sim_log_vector(x, n, incx, GPU_UPDATE));
    write_entry(&entry);
    return status;
}

cublasStatus_t __wrap_cublasSaxpy_v2(cublasHandle_t handle, int n, const float *alpha,
                                     const float *x, int incx, float *y, int incy)
{
    cublasStatus_t status = __real_cublasSaxpy_v2(handle, n, alpha, x, incx, y, incy);
    if (status != CUBLAS_STATUS_SUCCESS || n <= 0) return status;
    GpuLogEntry entry = begin("cublasSaxpy", handle, SITE);
    if (add_scalar(&entry, handle, alpha, sizeof *alpha)) {
        add(&entry, sim_log_vector(x, n, incx, GPU_READ));
        add(&entry, sim_log_vector(y, n, incy, GPU_UPDATE));
    }
    write_entry(&entry);
    return status;
}

cublasStatus_t __wrap_cublasScopy_v2(cublasHandle_t handle, int n, const float *x, int incx,
                                     float *y, int incy)
{
    cublasStatus_t status = __real_cublasScopy_v2(handle, n, x, incx, y, incy);
    if (status != CUBLAS_STATUS_SUCCESS || n <= 0) return status;
    GpuLogEntry entry = begin("cublasScopy", handle, SITE);
    add(&entry, sim_log_vector(x, n, incx, GPU_READ));
    add(&entry, sim_log_copied_vector(y, n, incy));
    write_entry(&entry);
    return status;
}

// A sum over a vector or, where `pair`, over the products of two. On the host the result is there
// when the call returns, so the call waits.
static cublasStatus_t summed(cublasStatus_t status, const char *name, cublasHandle_t handle, int n,
                             const float *x, int incx, const float *y, int incy, bool pair,
                             const float *result, const void *site)
{
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    GpuLogEntry entry = begin(name, handle, site);
    n = sim_log_sum_length(pair, n, incx);
    add(&entry, sim_log_vector(x, n, incx, GPU_READ));
    if (pair) add(&entry, sim_log_vector(y, n, incy, GPU_READ));
    if (scalars_on_device(handle))
        add_range(&entry, result, sizeof *result, GPU_WRITE);
    else
        entry.host_waits = true;
    write_entry(&entry);
    return status;
}

cublasStatus_t __wrap_cublasSdot_v2(cublasHandle_t handle, int n, const float *x, int incx,
                                    const float *y, int incy, float *result)
{
    const char *name = "cublasSdot";
    cublasStatus_t status =
        WAITING(name, SITE, __real_cublasSdot_v2(handle, n, x, incx, y, incy, result));
    return summed(status, name, handle, n, x, incx, y, incy, true, result, SITE);
}

cublasStatus_t __wrap_cublasSnrm2_v2(cublasHandle_t handle, int n, const float *x, int incx,
                                     float *result)
{
    const char *name = "cublasSnrm2";
    cublasStatus_t status = WAITING(name, SITE, __real_cublasSnrm2_v2(handle, n, x, incx, result));
    return summed(status, name, handle, n, x, incx, NULL, 1, false, result, SITE);
}

cublasStatus_t __wrap_cublasSasum_v2(cublasHandle_t handle, int n, const float *x, int incx,
                                     float *result)
{
    const char *name = "cublasSasum";
    cublasStatus_t status = WAITING(name, SITE, __real_cublasSasum_v2(handle, n, x, incx, result));
    return summed(status, name, handle, n, x, incx, NULL, 1, false, result, SITE);
}

// ---- Copies between host and device ----

static cublasStatus_t copied(cublasStatus_t status, const char *name, int rows, int cols,
                             int elemSize, const void *from, int ldfrom, void *to, int ldto,
                             const void *site)
{
    size_t bytes = (size_t)elemSize;
    Copy copy = {
        to,           from, (size_t)ldto * bytes, (size_t)ldfrom * bytes, (size_t)rows * bytes,
        (size_t)cols, false};
    if (status == CUBLAS_STATUS_SUCCESS) log_copy(name, &copy, NULL, site);
    return status;
}

cublasStatus_t __wrap_cublasSetVector(int n, int elemSize, const void *x, int incx, void *devicePtr,
                                      int incy)
{
    cublasStatus_t status = WAITING("cublasSetVector", SITE,
                                    __real_cublasSetVector(n, elemSize, x, incx, devicePtr, incy));
    return copied(status, "cublasSetVector", 1, n, elemSize, x, incx, devicePtr, incy, SITE);
}

cublasStatus_t __wrap_cublasGetVector(int n, int elemSize, const void *x, int incx, void *y,
                                      int incy)
{
    cublasStatus_t status =
        WAITING("cublasGetVector", SITE, __real_cublasGetVector(n, elemSize, x, incx, y, incy));
    return copied(status, "cublasGetVector", 1, n, elemSize, x, incx, y, incy, SITE);
}

cublasStatus_t __wrap_cublasSetMatrix(int rows, int cols, int elemSize, const void *A, int lda,
                                      void *B, int ldb)
{
    cublasStatus_t status = WAITING("cublasSetMatrix", SITE,
                                    __real_cublasSetMatrix(rows, cols, elemSize, A, lda, B, ldb));
    return copied(status, "cublasSetMatrix", rows, cols, elemSize, A, lda, B, ldb, SITE);
}

cublasStatus_t __wrap_cublasGetMatrix(int rows, int cols, int elemSize, const void *A, int lda,
                                      void *B, int ldb)
{
    cublasStatus_t status = WAITING("cublasGetMatrix", SITE,
                                    __real_cublasGetMatrix(rows, cols, elemSize, A, lda, B, ldb));
    return copied(status, "cublasGetMatrix", rows, cols, elemSize, A, lda, B, ldb, SITE);
}
