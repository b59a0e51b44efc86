/* blas.c: cuBLAS on the CPU's own BLAS: oneDNN (SIMGPU_DNNL) or a CBLAS such as OpenBLAS.
 *
 * Every call checks its arguments as cuBLAS does and says which one is wrong, declares the bytes it
 * reads and writes (gpulog/log/operands.c) like any other operation on a stream, and then runs.
 *
 * Handles live in a table, so that a destroyed or invented handle is told from a good one without a
 * look at what it points to.
 *
 * Interface: the calls of cublas_v2.h.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SIMGPU_DNNL
#include <dnnl.h>
#include <omp.h>
#else
#include <cblas.h>
#endif

#include "check/check.h"
#include "check/shadow.h"
#include "cublas_v2.h"
#include "report/report.h"
#include "streams/streams.h"

#define SITE SIM_SITE

struct cublasContext {
    bool alive;
    const void *site; // cublasCreate's
    int device; // current when it was created; cuBLAS keeps to it
    cudaStream_t stream;
    cublasPointerMode_t pointers;
    cublasMath_t math;
    cublasAtomicsMode_t atomics;
};

#define MAX_HANDLES 4096
static struct cublasContext handles[MAX_HANDLES];
static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;

// ---- What is wrong, in words ----

// A call in progress: what it is called and where from.
typedef struct Call {
    const char *name;
    const void *site;
} Call;

static cublasStatus_t refuse(Call call, cublasStatus_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static cublasStatus_t refuse(Call call, cublasStatus_t status, const char *format, ...)
{
    char what[512], where[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    gpulog_where(call.site, where, sizeof where);
    sim_facts_call(call.name, call.site, SIM_NO_STREAM);
    sim_report(SIMGPU_CALL, "a cuBLAS call with a wrong argument",
               "%s, called at %s:\n%s\n"
               "On a GPU nothing is computed, and it returns %s, as now.\n"
               "Is the status of every cuBLAS call looked at, and is this argument what you meant?",
               call.name, where, what, cublasGetStatusName(status));
    return status;
}

static bool is_handle(const struct cublasContext *handle)
{
    return handle >= handles && handle < handles + MAX_HANDLES && handle->alive;
}

static cublasStatus_t check_handle(Call call, cublasHandle_t handle)
{
    if (is_handle(handle)) return CUBLAS_STATUS_SUCCESS;
    return refuse(call, CUBLAS_STATUS_NOT_INITIALIZED, "the handle %p %s.", (void *)handle,
                  handle == NULL ? "is NULL: cublasCreate was not called, or failed"
                                 : "was never created, or is destroyed already");
}

static cublasStatus_t check_pointer(Call call, const char *argument, const void *ptr)
{
    if (ptr != NULL) return CUBLAS_STATUS_SUCCESS;
    return refuse(call, CUBLAS_STATUS_INVALID_VALUE, "%s is NULL.", argument);
}

static cublasStatus_t check_size(Call call, const char *argument, long long n)
{
    if (n >= 0) return CUBLAS_STATUS_SUCCESS;
    return refuse(call, CUBLAS_STATUS_INVALID_VALUE, "%s is %lld, less than 0.", argument, n);
}

static cublasStatus_t check_increment(Call call, const char *argument, int inc)
{
    if (inc != 0) return CUBLAS_STATUS_SUCCESS;
    return refuse(call, CUBLAS_STATUS_INVALID_VALUE, "%s is 0.", argument);
}

static cublasStatus_t check_turn(Call call, const char *argument, cublasOperation_t turn)
{
    if (turn == CUBLAS_OP_N || turn == CUBLAS_OP_T || turn == CUBLAS_OP_C)
        return CUBLAS_STATUS_SUCCESS;
    return refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                  "%s is %d; it must be CUBLAS_OP_N, CUBLAS_OP_T or CUBLAS_OP_C.", argument,
                  (int)turn);
}

// `rows` is what the matrix has as it lies in memory; `rows_are` says which argument that is.
static cublasStatus_t check_leading(Call call, const char *argument, int ld, int rows,
                                    const char *rows_are)
{
    if (ld >= (rows > 1 ? rows : 1)) return CUBLAS_STATUS_SUCCESS;
    return refuse(
        call, CUBLAS_STATUS_INVALID_VALUE,
        "%s is %d, but the matrix has %d rows (%s) as it lies in memory.\n"
        "Matrices are column-major here: a row-major (R,C) matrix looks like C rows of R columns,\n"
        "with leading dimension C.",
        argument, ld, rows, rows_are);
}

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cublasStatus_t check_status_ = (call);                                                     \
        if (check_status_ != CUBLAS_STATUS_SUCCESS) return check_status_;                          \
    } while (0)

const char *cublasGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
    }
    return "a cuBLAS status that does not exist";
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE: return "an invalid value was used as an argument";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "the device lacks a feature that the call needs";
    case CUBLAS_STATUS_MAPPING_ERROR: return "an access to GPU memory space failed";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the GPU program failed to execute";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality is not supported";
    case CUBLAS_STATUS_LICENSE_ERROR: return "the license check failed";
    }
    return "unknown status";
}

// ---- Handles ----

static void visit_handles(SimLeaks *leaks)
{
    if (pthread_mutex_trylock(&handles_lock)) return;
    for (int i = 0; i < MAX_HANDLES; i++)
        if (handles[i].alive) sim_leak_note(leaks, THING_BLAS, &handles[i], 0, handles[i].site);
    pthread_mutex_unlock(&handles_lock);
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    static SimHooks hooks = {.visit = visit_handles};
    Call call = {"cublasCreate", SITE};
    CHECK(check_pointer(call, "handle", handle));
    sim_hooks_add(&hooks);
    *handle = NULL;
    pthread_mutex_lock(&handles_lock);
    for (int i = 0; i < MAX_HANDLES && *handle == NULL; i++) {
        if (handles[i].alive) continue;
        handles[i] = (struct cublasContext){
            .alive = true, .site = SITE, .device = sim_current_device()};
        *handle = &handles[i];
    }
    pthread_mutex_unlock(&handles_lock);
    if (*handle != NULL) return CUBLAS_STATUS_SUCCESS;
    return refuse(call, CUBLAS_STATUS_ALLOC_FAILED,
                  "%d handles are alive already. Is there a cublasDestroy missing?", MAX_HANDLES);
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    CHECK(check_handle((Call){"cublasDestroy", SITE}, handle));
    pthread_mutex_lock(&handles_lock);
    handle->alive = false;
    pthread_mutex_unlock(&handles_lock);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version)
{
    Call call = {"cublasGetVersion", SITE};
    CHECK(check_pointer(call, "version", version));
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

// No product here needs a workspace, so it is only looked at.
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace,
                                     size_t workspaceSizeInBytes)
{
    Call call = {"cublasSetWorkspace", SITE};
    size_t offset;
    CHECK(check_handle(call, handle));
    if (workspaceSizeInBytes == 0 || sim_device_of(workspace, &offset) != NULL)
        return CUBLAS_STATUS_SUCCESS;
    return refuse(call, CUBLAS_STATUS_INVALID_VALUE, "workspace %p is no device memory.",
                  workspace);
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t streamId)
{
    CHECK(check_handle((Call){"cublasSetStream", SITE}, handle));
    handle->stream = streamId;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *streamId)
{
    Call call = {"cublasGetStream", SITE};
    CHECK(check_handle(call, handle));
    CHECK(check_pointer(call, "streamId", streamId));
    *streamId = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode)
{
    Call call = {"cublasGetPointerMode", SITE};
    CHECK(check_handle(call, handle));
    CHECK(check_pointer(call, "mode", mode));
    *mode = handle->pointers;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode)
{
    Call call = {"cublasSetPointerMode", SITE};
    CHECK(check_handle(call, handle));
    if (mode != CUBLAS_POINTER_MODE_HOST && mode != CUBLAS_POINTER_MODE_DEVICE)
        return refuse(call, CUBLAS_STATUS_INVALID_VALUE, "mode %d does not exist.", (int)mode);
    handle->pointers = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t *mode)
{
    Call call = {"cublasGetAtomicsMode", SITE};
    CHECK(check_handle(call, handle));
    CHECK(check_pointer(call, "mode", mode));
    *mode = handle->atomics;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode)
{
    CHECK(check_handle((Call){"cublasSetAtomicsMode", SITE}, handle));
    handle->atomics = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode)
{
    Call call = {"cublasGetMathMode", SITE};
    CHECK(check_handle(call, handle));
    CHECK(check_pointer(call, "mode", mode));
    *mode = handle->math;
    return CUBLAS_STATUS_SUCCESS;
}

// Remembered and otherwise without effect: products are always in full single precision.
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    CHECK(check_handle((Call){"cublasSetMathMode", SITE}, handle));
    handle->math = mode;
    return CUBLAS_STATUS_SUCCESS;
}

// ---- An operation, from its begin to its end ----

// Begins the operation on the handle's stream.
static SimgpuOp begin(Call call, cublasHandle_t handle)
{
    SimgpuOp op = sim_begin(GPU_BLAS, call.name, handle->stream, call.site);
    if (op.error != cudaSuccess || op.entry.device == handle->device) return op;
    refuse(call, CUBLAS_STATUS_EXECUTION_FAILED,
           "the handle was created on device %d, but its stream belongs to device %d.\n"
           "A handle serves the device that was current when it was created.",
           handle->device, op.entry.device);
    op.error = cudaErrorInvalidResourceHandle;
    return op;
}

static cublasStatus_t end(SimgpuOp *op)
{
    return simgpu_end(op) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

// A scalar argument, wherever the pointer mode says that it is.
static float read_scalar(SimgpuOp *op, cublasHandle_t handle, const float *scalar)
{
    if (handle->pointers == CUBLAS_POINTER_MODE_HOST) return *scalar;
    const float *value = sim_touch(op, scalar, sizeof *scalar, GPU_READ, false);
    return simgpu_ready(op) ? *value : 0.0f;
}

// The place for a scalar result. On the host it is there when the call returns, so the call waits.
static float *write_scalar(SimgpuOp *op, cublasHandle_t handle, float *scalar)
{
    if (handle->pointers == CUBLAS_POINTER_MODE_DEVICE)
        return sim_touch(op, scalar, sizeof *scalar, GPU_WRITE, false);
    op->entry.host_waits = true;
    return scalar;
}

// Declares an operand and which of its bytes are touched; hands back where it is to be read or
// written.
static float *touch(SimgpuOp *op, GpuRange operand, SimShape shape, GpuAccess access)
{
    if (!sim_check_aligned(op, operand.ptr, operand.bytes, sizeof(float))) return NULL;
    return sim_touch_shape(op, operand, &shape, access, false);
}

// The same for a vector of n elements.
static float *touch_vector(SimgpuOp *op, const float *x, int n, int inc, GpuAccess access)
{
    size_t count = n > 0 ? (size_t)n : 0, apart = (size_t)llabs(inc) * sizeof *x;
    SimShape shape = sim_shape(sizeof *x, count, apart, 1, 0);
    return touch(op, sim_log_vector(x, n, inc, access), shape, access);
}

// ---- The product itself ----

// One product's arguments, as cublasSgemm names them; pointers are usable ones.
typedef struct Product {
    cublasOperation_t turn_a, turn_b;
    int m, n, k;
    float alpha, beta;
    int lda, ldb, ldc;
} Product;

// C = beta·C, where beta = 0 forgets whatever was there.
static void scale_matrix(const Product *p, float *C)
{
    for (int j = 0; j < p->n; j++) {
        float *column = C + (size_t)j * (size_t)p->ldc;
        for (int i = 0; i < p->m; i++) column[i] = p->beta == 0.0f ? 0.0f : p->beta * column[i];
    }
}

#ifdef SIMGPU_DNNL
// oneDNN is row-major, and a column-major matrix read by rows is its transpose:
// Cᵀ = op(B)ᵀ·op(A)ᵀ, so the two factors change places.
static bool multiply(const Product *p, const float *A, const float *B, float *C)
{
    int before = omp_get_max_threads();
    omp_set_num_threads(sim_config()->threads);
    dnnl_status_t done =
        dnnl_sgemm(p->turn_b == CUBLAS_OP_N ? 'N' : 'T', p->turn_a == CUBLAS_OP_N ? 'N' : 'T', p->n,
                   p->m, p->k, p->alpha, B, p->ldb, A, p->lda, p->beta, C, p->ldc);
    omp_set_num_threads(before);
    return done == dnnl_success;
}
#else
static void set_threads(void)
{
    openblas_set_num_threads(sim_config()->threads);
}

static bool multiply(const Product *p, const float *A, const float *B, float *C)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_threads);
    // Not every CBLAS keeps its hands off C where beta is 0.
    if (p->beta == 0.0f) scale_matrix(p, C);
    cblas_sgemm(CblasColMajor, p->turn_a == CUBLAS_OP_N ? CblasNoTrans : CblasTrans,
                p->turn_b == CUBLAS_OP_N ? CblasNoTrans : CblasTrans, p->m, p->n, p->k, p->alpha, A,
                p->lda, B, p->ldb, p->beta, C, p->ldc);
    return true;
}
#endif

// C = alpha·op(A)·op(B) + beta·C. Without a product to add (alpha = 0, k = 0) A and B are not read.
static bool compute(const Product *p, const float *A, const float *B, float *C)
{
    if (p->alpha != 0.0f && p->k > 0) return multiply(p, A, B, C);
    scale_matrix(p, C);
    return true;
}

// ---- Matrix products ----

static cublasStatus_t check_product(Call call, cublasHandle_t handle, const Product *p,
                                    const void *alpha, const void *beta)
{
    bool a_as_is = p->turn_a == CUBLAS_OP_N, b_as_is = p->turn_b == CUBLAS_OP_N;
    CHECK(check_handle(call, handle));
    CHECK(check_turn(call, "transa", p->turn_a));
    CHECK(check_turn(call, "transb", p->turn_b));
    CHECK(check_size(call, "m", p->m));
    CHECK(check_size(call, "n", p->n));
    CHECK(check_size(call, "k", p->k));
    CHECK(check_leading(call, "lda", p->lda, a_as_is ? p->m : p->k,
                        a_as_is ? "m, as transa is N" : "k, as transa is T"));
    CHECK(check_leading(call, "ldb", p->ldb, b_as_is ? p->k : p->n,
                        b_as_is ? "k, as transb is N" : "n, as transb is T"));
    CHECK(check_leading(call, "ldc", p->ldc, p->m, "m"));
    CHECK(check_pointer(call, "alpha", alpha));
    CHECK(check_pointer(call, "beta", beta));
    return CUBLAS_STATUS_SUCCESS;
}

// The matrices of a batch: each `stride` elements after the one before.
typedef struct Batch {
    const float *A, *B;
    float *C;
    long long stride_a, stride_b, stride_c;
    int count;
} Batch;

static SimLogProduct in_log(const Product *p, const Batch *batch)
{
    return (SimLogProduct){.turn_a = p->turn_a != CUBLAS_OP_N,
                          .turn_b = p->turn_b != CUBLAS_OP_N,
                          .m = p->m,
                          .n = p->n,
                          .k = p->k,
                          .count = batch->count,
                          .A = {batch->A, p->lda, batch->stride_a, sizeof(float)},
                          .B = {batch->B, p->ldb, batch->stride_b, sizeof(float)},
                          .C = {batch->C, p->ldc, batch->stride_c, sizeof(float)},
                          .keeps = p->beta != 0.0f};
}

// Declares a batch of matrices, the first of which may not be where its bytes begin; hands back
// where the first one is.
static float *touch_batch(SimgpuOp *op, const SimLogMatrix *matrix, int rows, int cols, int count,
                          GpuRange operand)
{
    const float *from = matrix->ptr;
    SimShape shape = sim_shape((size_t)rows * sizeof *from, (size_t)cols,
                               (size_t)matrix->ld * sizeof *from, (size_t)count,
                               (size_t)llabs(matrix->stride) * sizeof *from);
    float *usable = touch(op, operand, shape, operand.access);
    return simgpu_ready(op) ? usable + (from - (const float *)operand.ptr) : NULL;
}

// The matrices that a range spans lie in it without gaps: what overlaps the range overlaps them.
static bool is_dense(const GpuRange *range, int rows, int cols, int count)
{
    size_t one = (size_t)rows * (size_t)cols * sizeof(float);
    return range->bytes > 0 && (range->bytes == one || range->bytes == one * (size_t)count);
}

static void check_overlap(const SimgpuOp *op, const Product *p, int count,
                          const GpuRange operand[3])
{
    const GpuRange *C = &operand[2];
    const char *c = C->ptr;
    if (sim_config()->check == CHECK_OFF || !is_dense(C, p->m, p->n, count)) return;
    for (int i = 0; i < 2; i++) {
        const char *from = operand[i].ptr;
        if (!is_dense(&operand[i], i ? p->k : p->m, i ? p->n : p->k, count)) continue;
        if (c >= from + operand[i].bytes || from >= c + C->bytes) continue;
        sim_report_overlap(op, C, &operand[i], "cuBLAS: C may not overlap A or B.");
        return;
    }
}

static cublasStatus_t run_products(Call call, cublasHandle_t handle, Product *p, const float *alpha,
                                   const float *beta, const Batch *batch)
{
    if (p->m == 0 || p->n == 0 || batch->count == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = begin(call, handle);
    p->alpha = read_scalar(&op, handle, alpha);
    p->beta = read_scalar(&op, handle, beta);
    SimLogProduct product = in_log(p, batch);
    GpuRange operand[3];
    sim_log_product(&product, operand);
    const float *A = NULL, *B = NULL;
    if (p->alpha != 0.0f && p->k > 0) {
        A = touch_batch(&op, &product.A, product.turn_a ? p->k : p->m,
                        product.turn_a ? p->m : p->k, batch->count, operand[0]);
        B = touch_batch(&op, &product.B, product.turn_b ? p->n : p->k,
                        product.turn_b ? p->k : p->n, batch->count, operand[1]);
    }
    float *C = touch_batch(&op, &product.C, p->m, p->n, batch->count, operand[2]);
    if (simgpu_ready(&op) && A != NULL) check_overlap(&op, p, batch->count, operand);
    bool done = true;
    for (int i = 0; i < batch->count && done && simgpu_ready(&op); i++)
        done = compute(p, A != NULL ? A + i * batch->stride_a : NULL,
                       B != NULL ? B + i * batch->stride_b : NULL, C + i * batch->stride_c);
    CHECK(end(&op));
    if (done) return CUBLAS_STATUS_SUCCESS;
    return refuse(call, CUBLAS_STATUS_INTERNAL_ERROR,
                  "the CPU's BLAS library refused the product.");
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa,
                              cublasOperation_t transb, int m, int n, int k, const float *alpha,
                              const float *A, int lda, const float *B, int ldb, const float *beta,
                              float *C, int ldc)
{
    Call call = {"cublasSgemm", SITE};
    Product p = {transa, transb, m, n, k, 0.0f, 0.0f, lda, ldb, ldc};
    Batch one = {A, B, C, 0, 0, 0, 1};
    CHECK(check_product(call, handle, &p, alpha, beta));
    return run_products(call, handle, &p, alpha, beta, &one);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa,
                                         cublasOperation_t transb, int m, int n, int k,
                                         const float *alpha, const float *A, int lda,
                                         long long int strideA, const float *B, int ldb,
                                         long long int strideB, const float *beta, float *C,
                                         int ldc, long long int strideC, int batchCount)
{
    Call call = {"cublasSgemmStridedBatched", SITE};
    Product p = {transa, transb, m, n, k, 0.0f, 0.0f, lda, ldb, ldc};
    Batch batch = {A, B, C, strideA, strideB, strideC, batchCount};
    CHECK(check_product(call, handle, &p, alpha, beta));
    CHECK(check_size(call, "batchCount", batchCount));
    if (batchCount > 1 && strideC == 0 && m > 0 && n > 0)
        return refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                      "strideC is 0, so all %d products would be written to one matrix.",
                      batchCount);
    return run_products(call, handle, &p, alpha, beta, &batch);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void *alpha,
                            const void *A, cudaDataType Atype, int lda, const void *B,
                            cudaDataType Btype, int ldb, const void *beta, void *C,
                            cudaDataType Ctype, int ldc, cublasComputeType_t computeType,
                            cublasGemmAlgo_t algo)
{
    Call call = {"cublasGemmEx", SITE};
    Product p = {transa, transb, m, n, k, 0.0f, 0.0f, lda, ldb, ldc};
    Batch one = {A, B, C, 0, 0, 0, 1};
    CHECK(check_product(call, handle, &p, alpha, beta));
    bool single = Atype == CUDA_R_32F && Btype == CUDA_R_32F && Ctype == CUDA_R_32F;
    bool computes_single =
        computeType == CUBLAS_COMPUTE_32F || computeType == CUBLAS_COMPUTE_32F_PEDANTIC ||
        computeType == CUBLAS_COMPUTE_32F_FAST_16F || computeType == CUBLAS_COMPUTE_32F_FAST_16BF ||
        computeType == CUBLAS_COMPUTE_32F_FAST_TF32;
    if (!single || !computes_single)
        return refuse(
            call, CUBLAS_STATUS_NOT_SUPPORTED,
            "types %d, %d, %d computed as %d. The simulated GPU multiplies CUDA_R_32F matrices\n"
            "with CUBLAS_COMPUTE_32F only; a real GPU may do more.",
            (int)Atype, (int)Btype, (int)Ctype, (int)computeType);
    return run_products(call, handle, &p, alpha, beta, &one);
}

// ---- Matrix times vector ----

// Element i of a vector of n: with a negative increment a vector is walked from its end.
static size_t at(int i, int n, int inc)
{
    return (size_t)(inc > 0 ? i : n - 1 - i) * (size_t)llabs(inc);
}

// y = alpha·op(A)·x + beta·y, where each element of y is summed in the order of x's elements.
static void multiply_vector(const Product *p, const float *A, const float *x, int incx, float *y,
                            int incy)
{
    bool turn = p->turn_a != CUBLAS_OP_N;
    int rows = turn ? p->n : p->m, cols = turn ? p->m : p->n;
    for (int i = 0; i < rows; i++) {
        double sum = 0.0;
        if (p->alpha != 0.0f)
            for (int j = 0; j < cols; j++) {
                size_t row = (size_t)(turn ? j : i), col = (size_t)(turn ? i : j);
                sum += (double)A[col * (size_t)p->lda + row] * x[at(j, cols, incx)];
            }
        float *out = y + at(i, rows, incy);
        float product = (float)(p->alpha * sum);
        *out = p->beta == 0.0f ? product : product + p->beta * *out;
    }
}

cublasStatus_t cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n,
                              const float *alpha, const float *A, int lda, const float *x, int incx,
                              const float *beta, float *y, int incy)
{
    Call call = {"cublasSgemv", SITE};
    Product p = {.turn_a = trans, .m = m, .n = n, .lda = lda};
    CHECK(check_handle(call, handle));
    CHECK(check_turn(call, "trans", trans));
    CHECK(check_size(call, "m", m));
    CHECK(check_size(call, "n", n));
    CHECK(check_leading(call, "lda", lda, m, "m"));
    CHECK(check_increment(call, "incx", incx));
    CHECK(check_increment(call, "incy", incy));
    CHECK(check_pointer(call, "alpha", alpha));
    CHECK(check_pointer(call, "beta", beta));
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = begin(call, handle);
    p.alpha = read_scalar(&op, handle, alpha);
    p.beta = read_scalar(&op, handle, beta);
    GpuRange operand[3];
    sim_log_matrix_vector(trans != CUBLAS_OP_N, m, n, A, lda, x, incx, y, incy, p.beta != 0.0f,
                        operand);
    const float *from = NULL, *factor = NULL;
    if (p.alpha != 0.0f) {
        SimShape shape = sim_shape((size_t)m * sizeof *A, (size_t)n, (size_t)lda * sizeof *A, 1, 0);
        from = touch(&op, operand[0], shape, GPU_READ);
        factor = touch_vector(&op, x, trans != CUBLAS_OP_N ? m : n, incx, GPU_READ);
    }
    float *to = touch_vector(&op, y, trans != CUBLAS_OP_N ? n : m, incy, operand[2].access);
    if (simgpu_ready(&op)) multiply_vector(&p, from, factor, incx, to, incy);
    return end(&op);
}

// ---- Vectors ----

cublasStatus_t cublasSscal_v2(cublasHandle_t handle, int n, const float *alpha, float *x, int incx)
{
    Call call = {"cublasSscal", SITE};
    CHECK(check_handle(call, handle));
    CHECK(check_pointer(call, "alpha", alpha));
    if (n <= 0 || incx <= 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = begin(call, handle);
    float factor = read_scalar(&op, handle, alpha);
    float *data = touch_vector(&op, x, n, incx, GPU_UPDATE);
    for (int i = 0; i < n && simgpu_ready(&op); i++) data[at(i, n, incx)] *= factor;
    return end(&op);
}

cublasStatus_t cublasSaxpy_v2(cublasHandle_t handle, int n, const float *alpha, const float *x,
                              int incx, float *y, int incy)
{
    Call call = {"cublasSaxpy", SITE};
    CHECK(check_handle(call, handle));
    CHECK(check_pointer(call, "alpha", alpha));
    CHECK(check_increment(call, "incx", incx));
    CHECK(check_increment(call, "incy", incy));
    if (n <= 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = begin(call, handle);
    float factor = read_scalar(&op, handle, alpha);
    const float *from = touch_vector(&op, x, n, incx, GPU_READ);
    float *to = touch_vector(&op, y, n, incy, GPU_UPDATE);
    for (int i = 0; i < n && simgpu_ready(&op); i++)
        to[at(i, n, incy)] += factor * from[at(i, n, incx)];
    return end(&op);
}

cublasStatus_t cublasScopy_v2(cublasHandle_t handle, int n, const float *x, int incx, float *y,
                              int incy)
{
    Call call = {"cublasScopy", SITE};
    CHECK(check_handle(call, handle));
    CHECK(check_increment(call, "incx", incx));
    CHECK(check_increment(call, "incy", incy));
    if (n <= 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = begin(call, handle);
    const float *from = touch_vector(&op, x, n, incx, GPU_READ);
    SimShape shape = sim_shape(sizeof *y, (size_t)n, (size_t)llabs(incy) * sizeof *y, 1, 0);
    float *to = touch(&op, sim_log_copied_vector(y, n, incy), shape, GPU_WRITE);
    for (int i = 0; i < n && simgpu_ready(&op); i++) to[at(i, n, incy)] = from[at(i, n, incx)];
    return end(&op);
}

// Which sum over a vector (or two) a call makes.
typedef enum Sum { SUM_PRODUCTS, SUM_SQUARES, SUM_MAGNITUDES } Sum;

// The sum in double, element by element; y is x's partner in SUM_PRODUCTS.
static float sum_up(Sum kind, int n, const float *x, int incx, const float *y, int incy)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        double value = x[at(i, n, incx)];
        if (kind == SUM_PRODUCTS) sum += value * y[at(i, n, incy)];
        if (kind == SUM_SQUARES) sum += value * value;
        if (kind == SUM_MAGNITUDES) sum += fabs(value);
    }
    return (float)(kind == SUM_SQUARES ? sqrt(sum) : sum);
}

static cublasStatus_t run_sum(Call call, cublasHandle_t handle, Sum kind, int n, const float *x,
                              int incx, const float *y, int incy, float *result)
{
    CHECK(check_handle(call, handle));
    CHECK(check_pointer(call, "result", result));
    if (kind == SUM_PRODUCTS) {
        CHECK(check_increment(call, "incx", incx));
        CHECK(check_increment(call, "incy", incy));
    }
    n = sim_log_sum_length(kind == SUM_PRODUCTS, n, incx);
    SimgpuOp op = begin(call, handle);
    const float *first = touch_vector(&op, x, n, incx, GPU_READ);
    const float *second = NULL;
    if (kind == SUM_PRODUCTS) second = touch_vector(&op, y, n, incy, GPU_READ);
    float *to = write_scalar(&op, handle, result);
    if (simgpu_ready(&op)) *to = sum_up(kind, n, first, incx, second, incy);
    return end(&op);
}

cublasStatus_t cublasSdot_v2(cublasHandle_t handle, int n, const float *x, int incx, const float *y,
                             int incy, float *result)
{
    Call call = {"cublasSdot", SITE};
    return run_sum(call, handle, SUM_PRODUCTS, n, x, incx, y, incy, result);
}

cublasStatus_t cublasSnrm2_v2(cublasHandle_t handle, int n, const float *x, int incx, float *result)
{
    Call call = {"cublasSnrm2", SITE};
    return run_sum(call, handle, SUM_SQUARES, n, x, incx, NULL, 1, result);
}

cublasStatus_t cublasSasum_v2(cublasHandle_t handle, int n, const float *x, int incx, float *result)
{
    Call call = {"cublasSasum", SITE};
    return run_sum(call, handle, SUM_MAGNITUDES, n, x, incx, NULL, 1, result);
}

// ---- Copies between host and device ----

// Copies cols columns of `rows` elements between matrices whose columns lie lda and ldb elements
// apart.
static cublasStatus_t copy_matrix(Call call, int rows, int cols, int size, const void *A, int lda,
                                  void *B, int ldb, enum cudaMemcpyKind kind)
{
    CHECK(check_size(call, "rows", rows));
    CHECK(check_size(call, "cols", cols));
    if (size < 1)
        return refuse(call, CUBLAS_STATUS_INVALID_VALUE, "elemSize is %d, less than 1.", size);
    CHECK(check_leading(call, "lda", lda, rows, "rows"));
    CHECK(check_leading(call, "ldb", ldb, rows, "rows"));
    if (rows == 0 || cols == 0) return CUBLAS_STATUS_SUCCESS;
    size_t bytes = (size_t)size;
    cudaError_t copied = cudaMemcpy2D(B, (size_t)ldb * bytes, A, (size_t)lda * bytes,
                                      (size_t)rows * bytes, (size_t)cols, kind);
    return copied == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

// A vector with gaps is a matrix of one row.
static cublasStatus_t copy_vector(Call call, int n, int size, const void *x, int incx, void *y,
                                  int incy, enum cudaMemcpyKind kind)
{
    CHECK(check_size(call, "n", n));
    if (incx < 1 || incy < 1)
        return refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                      "incx is %d, incy is %d; both must be at "
                      "least 1.",
                      incx, incy);
    return copy_matrix(call, 1, n, size, x, incx, y, incy, kind);
}

cublasStatus_t cublasSetVector(int n, int elemSize, const void *x, int incx, void *devicePtr,
                               int incy)
{
    Call call = {"cublasSetVector", SITE};
    return copy_vector(call, n, elemSize, x, incx, devicePtr, incy, cudaMemcpyHostToDevice);
}

cublasStatus_t cublasGetVector(int n, int elemSize, const void *x, int incx, void *y, int incy)
{
    Call call = {"cublasGetVector", SITE};
    return copy_vector(call, n, elemSize, x, incx, y, incy, cudaMemcpyDeviceToHost);
}

cublasStatus_t cublasSetMatrix(int rows, int cols, int elemSize, const void *A, int lda, void *B,
                               int ldb)
{
    Call call = {"cublasSetMatrix", SITE};
    return copy_matrix(call, rows, cols, elemSize, A, lda, B, ldb, cudaMemcpyHostToDevice);
}

cublasStatus_t cublasGetMatrix(int rows, int cols, int elemSize, const void *A, int lda, void *B,
                               int ldb)
{
    Call call = {"cublasGetMatrix", SITE};
    return copy_matrix(call, rows, cols, elemSize, A, lda, B, ldb, cudaMemcpyDeviceToHost);
}
