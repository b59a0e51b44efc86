/* blas.c: cuBLAS's handles, vectors and matrices. */
#include <string.h>

#include "blas.h"

WRAPPED(cublasCreate_v2);
WRAPPED(cublasDestroy_v2);

// ---- An operation on the stream of a handle ----

Op blas_begin(const char *name, cublasHandle_t handle, const void *site)
{
    cudaStream_t stream = NULL;
    cublasPointerMode_t mode = CUBLAS_POINTER_MODE_HOST;
    cublasGetStream_v2(handle, &stream);
    cublasGetPointerMode_v2(handle, &mode);
    return (Op){entry_on(GPU_BLAS, name, stream, site), mode == CUBLAS_POINTER_MODE_DEVICE};
}

// Whether all bits but the sign of each part are 0. In a 32-bit integer the "sign" is the most
// negative value, by which nobody scales.
static bool is_zero(const void *scalar, Number type)
{
    unsigned char byte[16] = {0};
    size_t part = type.bytes / (size_t)type.parts;
    memcpy(byte, scalar, type.bytes);
    for (size_t i = 0; i < type.bytes; i++)
        if (byte[i] & (i % part == part - 1 ? 0x7f : 0xff)) return false;
    return true;
}

bool blas_scalar(Op *op, const void *scalar, Number type)
{
    if (!op->on_device) return !is_zero(scalar, type);
    add_range(&op->entry, scalar, type.bytes, GPU_READ);
    return true;
}

// Adds the place for a result. A result on the host is there when the call returns: the call waits.
static void add_result(Op *op, const void *result, size_t bytes)
{
    if (op->on_device)
        add_range(&op->entry, result, bytes, GPU_WRITE);
    else
        op->entry.host_waits = true;
}

static void add(Op *op, GpuRange operand)
{
    add_range(&op->entry, operand.ptr, operand.bytes, operand.access);
}

static void add_vector(Op *op, const void *x, int64_t n, int inc, Number type, GpuAccess access)
{
    add(op, gpulog_vector(x, n, inc, type.bytes, access));
}

// Adds the stored part of a matrix, if there is one.
static void add_part(Op *op, GpuLogStored m, GpuAccess access)
{
    GpuRange stored = gpulog_stored(&m, access);
    if (stored.bytes > 0) add(op, stored);
}

static void add_matrix(Op *op, const void *A, int rows, int cols, int ld, Number type,
                       GpuAccess access)
{
    add_part(op,
             (GpuLogStored){.ptr = A, .rows = rows, .cols = cols, .ld = ld, .element = type.bytes},
             access);
}

void blas_list(Op *op, const void *addresses, int count)
{
    add_range(&op->entry, addresses, (size_t)count * sizeof(void *), GPU_READ);
}

// ---- Vectors ----

static bool touch_scal(Op *op, const Types *t, cublasHandle_t handle, int n, const void *alpha,
                       const void *x, int incx)
{
    if (n <= 0 || incx <= 0) return false;
    blas_scalar(op, alpha, t->factor);
    add_vector(op, x, n, incx, t->element, GPU_UPDATE);
    return true;
}

static bool touch_axpy(Op *op, const Types *t, cublasHandle_t handle, int n, const void *alpha,
                       const void *x, int incx, const void *y, int incy)
{
    if (n <= 0) return false;
    if (!blas_scalar(op, alpha, t->factor)) return true;
    add_vector(op, x, n, incx, t->element, GPU_READ);
    add_vector(op, y, n, incy, t->element, GPU_UPDATE);
    return true;
}

static bool touch_copy(Op *op, const Types *t, cublasHandle_t handle, int n, const void *x,
                       int incx, const void *y, int incy)
{
    if (n <= 0) return false;
    add_vector(op, x, n, incx, t->element, GPU_READ);
    add(op, gpulog_copied_vector(y, n, incy, t->element.bytes));
    return true;
}

static bool touch_swap(Op *op, const Types *t, cublasHandle_t handle, int n, const void *x,
                       int incx, const void *y, int incy)
{
    if (n <= 0) return false;
    add_vector(op, x, n, incx, t->element, GPU_UPDATE);
    add_vector(op, y, n, incy, t->element, GPU_UPDATE);
    return true;
}

static bool touch_rot(Op *op, const Types *t, cublasHandle_t handle, int n, const void *x, int incx,
                      const void *y, int incy, const void *c, const void *s)
{
    if (n <= 0) return false;
    blas_scalar(op, c, t->factor);
    blas_scalar(op, s, t->result);
    add_vector(op, x, n, incx, t->element, GPU_UPDATE);
    add_vector(op, y, n, incy, t->element, GPU_UPDATE);
    return true;
}

static bool touch_sum(Op *op, const Types *t, cublasHandle_t handle, int n, const void *x, int incx,
                      const void *result)
{
    add_vector(op, x, gpulog_sum_length(false, n, incx), incx, t->element, GPU_READ);
    add_result(op, result, t->result.bytes);
    return true;
}
#define touch_nrm2 touch_sum
#define touch_asum touch_sum
#define touch_amax touch_sum
#define touch_amin touch_sum

static bool touch_dot(Op *op, const Types *t, cublasHandle_t handle, int n, const void *x, int incx,
                      const void *y, int incy, const void *result)
{
    int64_t length = gpulog_sum_length(true, n, incx);
    add_vector(op, x, length, incx, t->element, GPU_READ);
    add_vector(op, y, length, incy, t->element, GPU_READ);
    add_result(op, result, t->result.bytes);
    return true;
}
#define touch_dotc touch_dot

// ---- Matrices ----

static bool touch_gemv(Op *op, const Types *t, cublasHandle_t handle, cublasOperation_t trans,
                       int m, int n, const void *alpha, const void *A, int lda, const void *x,
                       int incx, const void *beta, const void *y, int incy)
{
    bool turned = trans != CUBLAS_OP_N;
    if (m == 0 || n == 0) return false;
    bool adds = blas_scalar(op, alpha, t->factor), keeps = blas_scalar(op, beta, t->factor);
    if (adds) {
        add_matrix(op, A, m, n, lda, t->element, GPU_READ);
        add_vector(op, x, turned ? m : n, incx, t->element, GPU_READ);
    }
    add_vector(op, y, turned ? n : m, incy, t->element, keeps ? GPU_UPDATE : GPU_WRITE);
    return true;
}

static bool touch_ger(Op *op, const Types *t, cublasHandle_t handle, int m, int n,
                      const void *alpha, const void *x, int incx, const void *y, int incy,
                      const void *A, int lda)
{
    if (m == 0 || n == 0) return false;
    if (!blas_scalar(op, alpha, t->factor)) return true;
    add_vector(op, x, m, incx, t->element, GPU_READ);
    if (x != y || incx != incy || m != n) add_vector(op, y, n, incy, t->element, GPU_READ);
    add_matrix(op, A, m, n, lda, t->element, GPU_UPDATE);
    return true;
}
#define touch_gerc touch_ger

static bool touch_geam(Op *op, const Types *t, cublasHandle_t handle, cublasOperation_t transa,
                       cublasOperation_t transb, int m, int n, const void *alpha, const void *A,
                       int lda, const void *beta, const void *B, int ldb, const void *C, int ldc)
{
    bool turn_a = transa != CUBLAS_OP_N, turn_b = transb != CUBLAS_OP_N;
    if (m == 0 || n == 0) return false;
    bool first = blas_scalar(op, alpha, t->factor), second = blas_scalar(op, beta, t->factor);
    if (first) add_matrix(op, A, turn_a ? n : m, turn_a ? m : n, lda, t->element, GPU_READ);
    if (second) add_matrix(op, B, turn_b ? n : m, turn_b ? m : n, ldb, t->element, GPU_READ);
    add_matrix(op, C, m, n, ldc, t->element, GPU_WRITE);
    return true;
}

static bool touch_dgmm(Op *op, const Types *t, cublasHandle_t handle, cublasSideMode_t mode, int m,
                       int n, const void *A, int lda, const void *x, int incx, const void *C,
                       int ldc)
{
    int length = incx == 0 ? 1 : mode == CUBLAS_SIDE_LEFT ? m : n;
    if (m == 0 || n == 0) return false;
    add_matrix(op, A, m, n, lda, t->element, GPU_READ);
    add_vector(op, x, length, incx == 0 ? 1 : incx, t->element, GPU_READ);
    add_matrix(op, C, m, n, ldc, t->element, GPU_WRITE);
    return true;
}

static bool touch_trsm(Op *op, const Types *t, cublasHandle_t handle, cublasSideMode_t side,
                       cublasFillMode_t uplo, cublasOperation_t trans, cublasDiagType_t diag, int m,
                       int n, const void *alpha, const void *A, int lda, const void *B, int ldb)
{
    int order = side == CUBLAS_SIDE_LEFT ? m : n;
    if (m == 0 || n == 0) return false;
    bool adds = blas_scalar(op, alpha, t->factor);
    GpuLogStored triangle = {.ptr = A,
                             .rows = order,
                             .cols = order,
                             .ld = lda,
                             .element = t->element.bytes,
                             .upper = uplo == CUBLAS_FILL_MODE_UPPER,
                             .lower = uplo != CUBLAS_FILL_MODE_UPPER,
                             .unit = diag == CUBLAS_DIAG_UNIT};
    if (adds) add_part(op, triangle, GPU_READ);
    add_matrix(op, B, m, n, ldb, t->element, adds ? GPU_UPDATE : GPU_WRITE);
    return true;
}

static bool touch_trsm_batched(Op *op, const Types *t, cublasHandle_t handle, cublasSideMode_t side,
                               cublasFillMode_t uplo, cublasOperation_t trans,
                               cublasDiagType_t diag, int m, int n, const void *alpha,
                               const void *A, int lda, const void *B, int ldb, int count)
{
    if (m == 0 || n == 0 || count == 0) return false;
    blas_scalar(op, alpha, t->factor);
    blas_list(op, A, count);
    blas_list(op, B, count);
    return true;
}

// ---- From a call to the log ----

cublasStatus_t __wrap_cublasCreate_v2(cublasHandle_t *handle)
{
    return WAITING("cublasCreate", SITE, __real_cublasCreate_v2(handle));
}

// Destroying a handle waits for the device, too.
cublasStatus_t __wrap_cublasDestroy_v2(cublasHandle_t handle)
{
    return WAITING("cublasDestroy", SITE, __real_cublasDestroy_v2(handle));
}

SIMGPU_CUBLAS_VECTORS(CALL)
SIMGPU_CUBLAS_SUMS(RESULT)
SIMGPU_CUBLAS_MATRICES(CALL)
