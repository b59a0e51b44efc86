/* blas_products.c: cuBLAS's products, batches of matrices in factors, and copies between host and
 * device.
 */
#include "blas.h"

// ---- Types that arguments name ----

static Number type_of(cudaDataType type)
{
    switch (type) {
    case CUDA_R_64F: return (Number){8, 1};
    case CUDA_C_64F: return (Number){16, 2};
    case CUDA_C_32F: return (Number){8, 2};
    case CUDA_C_8I: return (Number){2, 2};
    case CUDA_R_16F:
    case CUDA_R_16BF: return (Number){2, 1};
    case CUDA_R_8I: return (Number){1, 1};
    default: return (Number){4, 1};
    }
}

// The type of alpha and beta in a product of such numbers.
static Number scalar_type(cublasComputeType_t compute, Number element)
{
    size_t parts = (size_t)element.parts, part = element.bytes / parts == 8 ? 8 : 4;
    bool half = compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC;
    return (Number){parts * (half ? 2 : part), element.parts};
}

// ---- Products ----

// The formats of A, B and C, and of alpha and beta.
typedef struct Formats {
    Number A, B, C, factor;
} Formats;

static Formats alike(const Types *t)
{
    return (Formats){t->element, t->element, t->element, t->factor};
}

static Formats named(cudaDataType a, cudaDataType b, cudaDataType c, cublasComputeType_t compute)
{
    return (Formats){type_of(a), type_of(b), type_of(c), scalar_type(compute, type_of(a))};
}

// Notes the product's shape and, as far as A's type and the handle's mode tell it, its arithmetic.
static void note_product(Op *op, cublasHandle_t handle, Number A, const GpuLogProduct *p)
{
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
    size_t part = A.bytes / (size_t)A.parts;
    uint64_t batch = (uint64_t)p->count * (A.parts == 2 ? 4 : 1); // of real products
    op->entry.product = (GpuProduct){(uint64_t)p->m, (uint64_t)p->n, (uint64_t)p->k, batch};
    cublasGetMathMode(handle, &math);
    op->entry.type = part == 8                            ? GPU_F64
                     : part == 2                          ? GPU_BF16
                     : part == 1 && A.parts == 1          ? GPU_FP8
                     : math == CUBLAS_TF32_TENSOR_OP_MATH ? GPU_TF32
                                                          : GPU_F32;
}

// `lists`: A, B and C are arrays of addresses.
static bool touch_product(Op *op, cublasHandle_t handle, const Formats *f, GpuLogProduct p,
                          const void *alpha, const void *beta, bool lists)
{
    const void *const list[] = {p.A.ptr, p.B.ptr, p.C.ptr};
    GpuRange operand[3];
    if (p.m == 0 || p.n == 0 || p.count == 0) return false;
    note_product(op, handle, f->A, &p);
    bool adds = blas_scalar(op, alpha, f->factor) && p.k > 0;
    p.keeps = blas_scalar(op, beta, f->factor);
    gpulog_product(&p, operand);
    for (int i = adds ? 0 : 2; i < 3; i++) {
        if (lists)
            blas_list(op, list[i], (int)p.count);
        else
            add_range(&op->entry, operand[i].ptr, operand[i].bytes, operand[i].access);
    }
    return true;
}

// The product of a call's arguments, which have the same names in all calls.
#define PRODUCT(f, stride_a, stride_b, stride_c, count)                                            \
    ((GpuLogProduct){transa != CUBLAS_OP_N,                                                        \
                     transb != CUBLAS_OP_N,                                                        \
                     m,                                                                            \
                     n,                                                                            \
                     k,                                                                            \
                     count,                                                                        \
                     {A, lda, stride_a, (f).A.bytes},                                              \
                     {B, ldb, stride_b, (f).B.bytes},                                              \
                     {C, ldc, stride_c, (f).C.bytes},                                              \
                     false})

static bool touch_gemm(Op *op, const Types *t, cublasHandle_t handle, cublasOperation_t transa,
                       cublasOperation_t transb, int m, int n, int k, const void *alpha,
                       const void *A, int lda, const void *B, int ldb, const void *beta,
                       const void *C, int ldc)
{
    Formats f = alike(t);
    return touch_product(op, handle, &f, PRODUCT(f, 0, 0, 0, 1), alpha, beta, false);
}

static bool touch_strided(Op *op, const Types *t, cublasHandle_t handle, cublasOperation_t transa,
                          cublasOperation_t transb, int m, int n, int k, const void *alpha,
                          const void *A, int lda, long long sa, const void *B, int ldb,
                          long long sb, const void *beta, const void *C, int ldc, long long sc,
                          int count)
{
    Formats f = alike(t);
    return touch_product(op, handle, &f, PRODUCT(f, sa, sb, sc, count), alpha, beta, false);
}

static bool touch_strided_ex(Op *op, const Types *t, cublasHandle_t handle,
                             cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                             int k, const void *alpha, const void *A, cudaDataType a, int lda,
                             long long sa, const void *B, cudaDataType b, int ldb, long long sb,
                             const void *beta, const void *C, cudaDataType c, int ldc, long long sc,
                             int count, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    Formats f = named(a, b, c, compute);
    return touch_product(op, handle, &f, PRODUCT(f, sa, sb, sc, count), alpha, beta, false);
}

static bool touch_gemm_ex(Op *op, const Types *t, cublasHandle_t handle, cublasOperation_t transa,
                          cublasOperation_t transb, int m, int n, int k, const void *alpha,
                          const void *A, cudaDataType a, int lda, const void *B, cudaDataType b,
                          int ldb, const void *beta, const void *C, cudaDataType c, int ldc,
                          cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    Formats f = named(a, b, c, compute);
    return touch_product(op, handle, &f, PRODUCT(f, 0, 0, 0, 1), alpha, beta, false);
}

static bool touch_typed(Op *op, const Types *t, cublasHandle_t handle, cublasOperation_t transa,
                        cublasOperation_t transb, int m, int n, int k, const void *alpha,
                        const void *A, cudaDataType a, int lda, const void *B, cudaDataType b,
                        int ldb, const void *beta, const void *C, cudaDataType c, int ldc)
{
    return touch_gemm_ex(op, t, handle, transa, transb, m, n, k, alpha, A, a, lda, B, b, ldb, beta,
                         C, c, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

static bool touch_batched(Op *op, const Types *t, cublasHandle_t handle, cublasOperation_t transa,
                          cublasOperation_t transb, int m, int n, int k, const void *alpha,
                          const void *A, int lda, const void *B, int ldb, const void *beta,
                          const void *C, int ldc, int count)
{
    Formats f = alike(t);
    return touch_product(op, handle, &f, PRODUCT(f, 0, 0, 0, count), alpha, beta, true);
}

static bool touch_batched_ex(Op *op, const Types *t, cublasHandle_t handle,
                             cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                             int k, const void *alpha, const void *A, cudaDataType a, int lda,
                             const void *B, cudaDataType b, int ldb, const void *beta,
                             const void *C, cudaDataType c, int ldc, int count,
                             cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    Formats f = named(a, b, c, compute);
    return touch_product(op, handle, &f, PRODUCT(f, 0, 0, 0, count), alpha, beta, true);
}

// ---- Matrices in factors ----

static void add_ints(Op *op, const void *ints, int64_t n, GpuAccess access)
{
    if (ints != NULL) add_range(&op->entry, ints, (size_t)n * sizeof(int), access);
}

static bool touch_getrf(Op *op, const Types *t, cublasHandle_t handle, int n, const void *A,
                        int lda, const int *P, const int *info, int count)
{
    if (n == 0 || count == 0) return false;
    blas_list(op, A, count);
    add_ints(op, P, (int64_t)n * count, GPU_WRITE);
    add_ints(op, info, count, GPU_WRITE);
    return true;
}

static bool touch_getri(Op *op, const Types *t, cublasHandle_t handle, int n, const void *A,
                        int lda, const int *P, const void *C, int ldc, const int *info, int count)
{
    if (n == 0 || count == 0) return false;
    blas_list(op, A, count);
    blas_list(op, C, count);
    add_ints(op, P, (int64_t)n * count, GPU_READ);
    add_ints(op, info, count, GPU_WRITE);
    return true;
}

static bool touch_matinv(Op *op, const Types *t, cublasHandle_t handle, int n, const void *A,
                         int lda, const void *C, int ldc, const int *info, int count)
{
    return touch_getri(op, t, handle, n, A, lda, NULL, C, ldc, info, count);
}

// getrs has its info on the host.
static bool touch_getrs(Op *op, const Types *t, cublasHandle_t handle, cublasOperation_t trans,
                        int n, int nrhs, const void *A, int lda, const int *P, const void *B,
                        int ldb, const int *info, int count)
{
    return nrhs != 0 && touch_getri(op, t, handle, n, A, lda, P, B, ldb, NULL, count);
}

SIMGPU_CUBLAS_PRODUCTS(CALL)
SIMGPU_CUBLAS_BATCHES(CALL)
SIMGPU_CUBLAS_FACTORS(CALL)

// ---- Copies between host and device: `height` columns of `width` elements ----

static cublasStatus_t copied(cublasStatus_t status, const char *name, int64_t width, int64_t height,
                             int64_t size, const void *from, int64_t ldfrom, void *to, int64_t ldto,
                             bool async, cudaStream_t stream, const void *site)
{
    size_t bytes = (size_t)size;
    Copy copy = {to,
                 from,
                 (size_t)ldto * bytes,
                 (size_t)ldfrom * bytes,
                 (size_t)width * bytes,
                 (size_t)height,
                 async};
    if (status == CUBLAS_STATUS_SUCCESS) log_copy(name, &copy, stream, site);
    return status;
}

#define TRANSFER(symbol, shape, WAY, async, width, height, ldfrom, ldto, stream, parameters,       \
                 arguments)                                                                        \
    WRAPPED(symbol);                                                                               \
    cublasStatus_t __wrap_##symbol parameters                                                      \
    {                                                                                              \
        const void *site = SITE;                                                                   \
        cublasStatus_t status = WAITING(#symbol, site, __real_##symbol arguments);                 \
        return copied(status, #symbol, width, height, elemSize, x, ldfrom, y, ldto, async, stream, \
                      site);                                                                       \
    }
SIMGPU_CUBLAS_TRANSFERS(TRANSFER)
