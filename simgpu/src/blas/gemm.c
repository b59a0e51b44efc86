/* gemm.c: cublasSgemm and its kin: one product, or a batch of them at equal strides.
 *
 * Floats and narrower formats are multiplied in single precision by the CPU's BLAS (multiply.c),
 * everything else in double by loops. Where beta is 0, C is not read; where alpha or k is 0, A and
 * B are not.
 *
 * Interface: cublas?gemm, cublas?gemmStridedBatched, cublasCgemm3m, cublasZgemm3m, cublasGemmEx,
 * cublasGemmStridedBatchedEx, cublasSgemmEx, cublasCgemmEx, cublasCgemm3mEx; simblas_check_gemm,
 * simblas_gemm_types, simblas_run_gemm, simblas_compute_gemm.
 */
#include <stdatomic.h>
#include <string.h>

#include "blas.h"

cublasStatus_t simblas_check_gemm(Call call, cublasHandle_t handle, const Gemm *p,
                                  const void *alpha, const void *beta)
{
    bool a_as_is = p->turn_a == CUBLAS_OP_N, b_as_is = p->turn_b == CUBLAS_OP_N;
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_turn(call, "transa", p->turn_a));
    CHECK(simblas_check_turn(call, "transb", p->turn_b));
    CHECK(simblas_check_size(call, "m", p->m));
    CHECK(simblas_check_size(call, "n", p->n));
    CHECK(simblas_check_size(call, "k", p->k));
    CHECK(simblas_check_leading(call, "lda", p->lda, a_as_is ? p->m : p->k,
                                a_as_is ? "m, as transa is N" : "k, as transa is T"));
    CHECK(simblas_check_leading(call, "ldb", p->ldb, b_as_is ? p->k : p->n,
                                b_as_is ? "k, as transb is N" : "n, as transb is T"));
    CHECK(simblas_check_leading(call, "ldc", p->ldc, p->m, "m"));
    CHECK(simblas_check_pointer(call, "alpha", alpha));
    CHECK(simblas_check_pointer(call, "beta", beta));
    return CUBLAS_STATUS_SUCCESS;
}

// ---- Which formats go together ----

// What cuBLAS computes as which compute type (its table for cublasGemmEx): the formats of A and B,
// of C, and of the scalars.
typedef struct Combination {
    cudaDataType a, c, scale;
    cublasComputeType_t compute;
} Combination;
static const Combination combinations[] = {
    {CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_16F},
    {CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I},
    {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_16F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_8I, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_C_8I, CUDA_C_32F, CUDA_C_32F, CUBLAS_COMPUTE_32F},
    {CUDA_C_32F, CUDA_C_32F, CUDA_C_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
    {CUDA_C_32F, CUDA_C_32F, CUDA_C_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
    {CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F},
    {CUDA_C_64F, CUDA_C_64F, CUDA_C_64F, CUBLAS_COMPUTE_64F},
};

// Types of the same precision count as one: simgpu always computes with all bits.
static cublasComputeType_t family(cublasComputeType_t compute)
{
    switch (compute) {
    case CUBLAS_COMPUTE_16F_PEDANTIC: return CUBLAS_COMPUTE_16F;
    case CUBLAS_COMPUTE_32I_PEDANTIC: return CUBLAS_COMPUTE_32I;
    case CUBLAS_COMPUTE_32F_PEDANTIC: return CUBLAS_COMPUTE_32F;
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_EMULATED_16BFX9: return CUBLAS_COMPUTE_32F_FAST_TF32;
    case CUBLAS_COMPUTE_64F_PEDANTIC:
    case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT: return CUBLAS_COMPUTE_64F;
    default: return compute;
    }
}

static const char *type_name(cudaDataType type)
{
    const Format *format = simblas_format(type);
    return format ? format->name : "an unknown type";
}

// Floating point of 8 bits.
static bool is_fp8(cudaDataType type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

cublasStatus_t simblas_gemm_types(Call call, cudaDataType a, cudaDataType b, cudaDataType c,
                                  cublasComputeType_t compute, Gemm *p)
{
    for (size_t i = 0; i < sizeof combinations / sizeof *combinations; i++) {
        const Combination *known = &combinations[i];
        if (known->a != a || a != b || known->c != c || known->compute != family(compute)) continue;
        p->a = simblas_format(a);
        p->b = simblas_format(b);
        p->c = simblas_format(c);
        p->scale = simblas_format(known->scale);
        p->single = !p->a->complex && known->compute != CUBLAS_COMPUTE_64F &&
                    known->compute != CUBLAS_COMPUTE_32I;
        return CUBLAS_STATUS_SUCCESS;
    }
    return simblas_refuse(
        call, CUBLAS_STATUS_NOT_SUPPORTED,
        "A of %s (%d), B of %s (%d), C of %s (%d), computed as type %d:\n"
        "cuBLAS has no such product. %s",
        type_name(a), (int)a, type_name(b), (int)b, type_name(c), (int)c, (int)compute,
        is_fp8(a) || is_fp8(b) || is_fp8(c)
            ? "Products of floating point of 8 bits are cublasLtMatmul's alone (cuBLASLt,\n"
              "which simgpu does not have): convert to CUDA_R_16BF or CUDA_R_16F first."
            : "CUBLAS_COMPUTE_32F, for instance, goes with CUDA_R_32F,\n"
              "CUDA_R_16F or CUDA_R_16BF in A and B, and the same or CUDA_R_32F in C.");
}

// ---- One product ----

static Matrix matrix_at(const void *at, const Format *format, int64_t rows, int64_t cols,
                        int64_t ld)
{
    return (Matrix){.format = format, .rows = rows, .cols = cols, .ld = ld, .at = (char *)at};
}

// C = beta·C, where beta = 0 forgets whatever was there.
static void scale_matrix(const Matrix *C, Number beta)
{
    for (int64_t j = 0; j < C->cols; j++)
        for (int64_t i = 0; i < C->rows; i++) {
            Number was = is_zero(beta) ? number(0.0) : simblas_load(C, i, j);
            simblas_store(C, i, j, times(beta, was));
        }
}

static cublasStatus_t compute_double(const Gemm *p, const Matrix *A, const Matrix *B,
                                     const Matrix *C)
{
    Planes product = simblas_product(A, p->turn_a, B, p->turn_b, p->k);
    if (product.failed) return CUBLAS_STATUS_ALLOC_FAILED;
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t i = 0; i < p->m; i++) {
            Number x = times(p->alpha, in_planes(&product, i, j));
            if (!is_zero(p->beta)) x = plus(x, times(p->beta, simblas_load(C, i, j)));
            simblas_store(C, i, j, x);
        }
    simblas_free_planes(&product);
    return CUBLAS_STATUS_SUCCESS;
}

static void *column_of(const Matrix *m, int64_t col)
{
    return m->at + (size_t)col * (size_t)m->ld * m->format->bytes;
}

// Column `col` as floats.
static void load_column(const Matrix *m, int64_t col, float *x)
{
    if (simblas_widen(m->format, x, column_of(m, col), (size_t)m->rows)) return;
    for (int64_t i = 0; i < m->rows; i++) x[i] = (float)simblas_load(m, i, col).re;
}

// Rounds floats to the matrix's format.
static void store_column(const Matrix *m, int64_t col, const float *x)
{
    if (simblas_narrow(m->format, column_of(m, col), x, (size_t)m->rows)) return;
    for (int64_t i = 0; i < m->rows; i++) simblas_store(m, i, col, number(x[i]));
}

// The matrix as floats, column by column; floats themselves are where they are.
static float *as_floats(const Matrix *m, int64_t *ld)
{
    *ld = m->ld;
    if (m->format == &simblas_S) return (float *)(void *)m->at;
    *ld = m->rows > 1 ? m->rows : 1;
    float *x = malloc((size_t)*ld * (size_t)m->cols * sizeof *x);
    for (int64_t j = 0; j < m->cols && x != NULL; j++)
        load_column(m, j, x + (size_t)j * (size_t)*ld);
    return x;
}

// C = the product + beta·C, in C's format; `product` is C's size, column by column. False: there is
// no memory.
static bool round_product(const Gemm *p, const Matrix *C, float *product)
{
    float *was = malloc((size_t)C->rows * sizeof *was);
    for (int64_t j = 0; j < p->n && was != NULL; j++) {
        float *x = product + (size_t)j * (size_t)C->rows;
        if (!is_zero(p->beta)) {
            load_column(C, j, was);
            for (int64_t i = 0; i < p->m; i++) x[i] += (float)p->beta.re * was[i];
        }
        store_column(C, j, x);
    }
    free(was);
    return was != NULL;
}

// [Note: halves] A and B are widened to floats, which is exact, and multiplied as floats; the
// product plus beta·C is a float too, and is rounded to C's format once.
static cublasStatus_t compute_single(const Gemm *p, const Matrix *A, const Matrix *B,
                                     const Matrix *C)
{
    Sgemm s = {p->turn_a != CUBLAS_OP_N, p->turn_b != CUBLAS_OP_N, p->m, p->n, p->k,
               (float)p->alpha.re,       (float)p->beta.re,        0,    0,    0};
    float *a = as_floats(A, &s.lda), *b = as_floats(B, &s.ldb);
    bool convert = C->format != &simblas_S;
    s.ldc = convert ? C->rows : C->ld;
    float *c =
        convert ? calloc((size_t)C->rows * (size_t)C->cols, sizeof *c) : (float *)(void *)C->at;
    if (convert) s.beta = 0.0f;
    cublasStatus_t done = a && b && c ? simblas_sgemm(&s, a, b, c) : CUBLAS_STATUS_ALLOC_FAILED;
    if (convert && done == CUBLAS_STATUS_SUCCESS && !round_product(p, C, c))
        done = CUBLAS_STATUS_ALLOC_FAILED;
    if (A->format != &simblas_S) free(a);
    if (B->format != &simblas_S) free(b);
    if (convert) free(c);
    return done;
}

cublasStatus_t simblas_compute_gemm(const Gemm *p, const void *A, const void *B, void *C)
{
    bool turn_a = p->turn_a != CUBLAS_OP_N, turn_b = p->turn_b != CUBLAS_OP_N;
    Matrix a = matrix_at(A, p->a, turn_a ? p->k : p->m, turn_a ? p->m : p->k, p->lda);
    Matrix b = matrix_at(B, p->b, turn_b ? p->n : p->k, turn_b ? p->k : p->n, p->ldb);
    Matrix c = matrix_at(C, p->c, p->m, p->n, p->ldc);
    if (A != NULL && B != NULL)
        return p->single ? compute_single(p, &a, &b, &c) : compute_double(p, &a, &b, &c);
    scale_matrix(&c, p->beta);
    return CUBLAS_STATUS_SUCCESS;
}

// ---- A batch at equal strides ----

// Multiplications of a batch that are worth sharing, and of a piece of it: some 20 us and some 5,
// as small products wait for their numbers longer than they multiply.
#define BATCH_WORK 6e5
#define BATCH_PIECE 9e4
enum { BATCH_LEAST = 4 }; // products of which threads take one each

static GpuLogProduct as_logged(const Gemm *p, const Batch *batch)
{
    return (GpuLogProduct){.turn_a = p->turn_a != CUBLAS_OP_N,
                           .turn_b = p->turn_b != CUBLAS_OP_N,
                           .m = p->m,
                           .n = p->n,
                           .k = p->k,
                           .count = batch->count,
                           .A = {batch->A, p->lda, batch->stride_a, p->a->bytes},
                           .B = {batch->B, p->ldb, batch->stride_b, p->b->bytes},
                           .C = {batch->C, p->ldc, batch->stride_c, p->c->bytes},
                           .keeps = !is_zero(p->beta)};
}

// Declares a batch of matrices, the first of which may not be where its bytes begin; hands back
// where the first one is. `settled`: settle() says what becomes of what is owed there.
static char *touch_batch(SimgpuOp *op, const GpuLogMatrix *matrix, int64_t rows, int64_t cols,
                         int64_t count, size_t align, GpuRange operand, bool settled)
{
    size_t one = matrix->element;
    SimShape shape = sim_shape((size_t)rows * one, (size_t)cols, (size_t)matrix->ld * one,
                               (size_t)count, (size_t)llabs(matrix->stride) * one);
    if (!sim_check_aligned(op, operand.ptr, operand.bytes, align)) return NULL;
    bool over = settled && !sim_shape_has_gaps(&shape);
    char *usable;
    if (operand.access == GPU_READ)
        usable = (char *)sim_touch_read_only(op, operand, &shape);
    else if (over)
        usable = sim_touch_overwrite(op, operand, false);
    else
        usable = sim_touch_shape(op, operand, &shape, operand.access, false);
    if (op->error != cudaSuccess) return NULL;
    return usable + ((const char *)matrix->ptr - (const char *)operand.ptr);
}

// The matrices that a range spans lie in it without gaps: what overlaps the range overlaps them.
static bool is_dense(const GpuRange *range, size_t rows, size_t cols, int64_t count, size_t element)
{
    size_t one = rows * cols * element;
    return range->bytes > 0 && (range->bytes == one || range->bytes == one * (size_t)count);
}

static void check_overlap(const SimgpuOp *op, const Gemm *p, int64_t count,
                          const GpuRange operand[3])
{
    size_t m = (size_t)p->m, n = (size_t)p->n, k = (size_t)p->k;
    const GpuRange *C = &operand[2];
    const char *c = C->ptr;
    if (sim_config()->check == CHECK_OFF || !is_dense(C, m, n, count, p->c->bytes)) return;
    for (int64_t i = 0; i < 2; i++) {
        const char *from = operand[i].ptr;
        if (!is_dense(&operand[i], i ? k : m, i ? n : k, count, i ? p->b->bytes : p->a->bytes))
            continue;
        if (c >= from + operand[i].bytes || from >= c + C->bytes) continue;
        sim_report_overlap(op, C, &operand[i], "cuBLAS: C may not overlap A or B.");
        return;
    }
}

// One product of floats, for which no copies are needed, that is added to what was there.
static bool is_sum(const Gemm *p, int64_t count)
{
    bool floats = p->a == &simblas_S && p->b == &simblas_S && p->c == &simblas_S;
    return floats && count == 1 && p->alpha.re > 0.0 && p->beta.re == 1.0;
}

// Before C is written: what it owes (memory/contents.h). A sum that begins with zeros which nobody has
// written yet is the product alone, and they never are: adding 0 changes no bits, but the sign of a
// product that is rounded to -0.
static void settle(Gemm *p, const GpuRange *C)
{
    if (C->access == GPU_WRITE)
        sim_overwritten(C->ptr, C->bytes);
    else if (sim_zeros_overwritten(C->ptr, C->bytes))
        p->beta = number(0.0);
}

typedef struct BatchJob {
    const Gemm *p;
    const Batch *batch;
    const char *A, *B; // NULL where there is no product to add
    char *C;
    atomic_int failed; // a cublasStatus_t
} BatchJob;

static void compute_products(void *arg, size_t begin, size_t end)
{
    BatchJob *job = arg;
    const Gemm *p = job->p;
    const Batch *batch = job->batch;
    for (long long i = (long long)begin; i < (long long)end; i++) {
        cublasStatus_t status = simblas_compute_gemm(
            p, job->A != NULL ? job->A + i * batch->stride_a * (long long)p->a->bytes : NULL,
            job->B != NULL ? job->B + i * batch->stride_b * (long long)p->b->bytes : NULL,
            job->C + i * batch->stride_c * (long long)p->c->bytes);
        if (status != CUBLAS_STATUS_SUCCESS) atomic_store(&job->failed, (int)status);
    }
}

// Whether no two products of a batch write the same numbers: each C follows the one before, or is
// beside it within the columns that all share.
static bool lie_apart(const Gemm *p, const Batch *batch)
{
    long long stride = llabs(batch->stride_c);
    return stride >= p->ldc * p->n || (stride >= p->m && stride * batch->count <= p->ldc);
}

// How many of `count` products a thread takes at once: small ones in 2, 4, 8 … equal parts, so that
// two threads have as much to do.
static size_t at_once(const Gemm *p, size_t count)
{
    double work = (double)p->m * (double)p->n * (double)p->k, all = work * (double)count;
    size_t parts = 1;
    if (all < BATCH_WORK) return count;
    if (work >= BATCH_PIECE) return 1;
    while (2 * parts <= count && all >= BATCH_PIECE * (double)(2 * parts)) parts *= 2;
    return (count + parts - 1) / parts;
}

// Threads share the products of a batch, or the blocks of each product (multiply.c).
static cublasStatus_t compute_batch(BatchJob *job)
{
    size_t count = (size_t)job->batch->count;
    if (count >= BATCH_LEAST && lie_apart(job->p, job->batch))
        simgpu_parallel(count, at_once(job->p, count), compute_products, job);
    else
        compute_products(job, 0, count);
    return (cublasStatus_t)atomic_load(&job->failed);
}

cublasStatus_t simblas_run_gemm(Call call, cublasHandle_t handle, Gemm *p, const void *alpha,
                                const void *beta, const Batch *batch)
{
    if (p->m == 0 || p->n == 0 || batch->count == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    simblas_note_product(&op, handle, p, batch->count);
    p->alpha = simblas_scalar(&op, handle, alpha, p->scale);
    p->beta = simblas_scalar(&op, handle, beta, p->scale);
    GpuLogProduct product = as_logged(p, batch);
    GpuRange operand[3];
    gpulog_product(&product, operand);
    const char *A = NULL, *B = NULL;
    if (!is_zero(p->alpha) && p->k > 0) {
        A = touch_batch(&op, &product.A, product.turn_a ? p->k : p->m, product.turn_a ? p->m : p->k,
                        batch->count, p->a->align, operand[0], false);
        B = touch_batch(&op, &product.B, product.turn_b ? p->n : p->k, product.turn_b ? p->k : p->n,
                        batch->count, p->b->align, operand[1], false);
    }
    bool settled = operand[2].access == GPU_WRITE || is_sum(p, batch->count);
    char *C =
        touch_batch(&op, &product.C, p->m, p->n, batch->count, p->c->align, operand[2], settled);
    if (op.error == cudaSuccess && A != NULL) check_overlap(&op, p, batch->count, operand);
    if (settled && simgpu_ready(&op)) settle(p, &operand[2]);
    cublasStatus_t done = CUBLAS_STATUS_SUCCESS;
    BatchJob job = {p, batch, A, B, C, CUBLAS_STATUS_SUCCESS};
    if (simgpu_ready(&op)) done = compute_batch(&job);
    return simblas_finish(call, &op, done);
}

static GpuType arithmetic_of(cublasHandle_t handle, const Gemm *p)
{
    switch (simblas_real(p->a)->type) {
    case CUDA_R_64F: return GPU_F64;
    case CUDA_R_16F:
    case CUDA_R_16BF: return GPU_BF16;
    case CUDA_R_8I: return GPU_FP8; // as fast
    default: return handle->math == CUBLAS_TF32_TENSOR_OP_MATH ? GPU_TF32 : GPU_F32;
    }
}

void simblas_note_product(SimgpuOp *op, cublasHandle_t handle, const Gemm *p, int64_t count)
{
    uint64_t batch = (uint64_t)count * (p->a->complex ? 4 : 1); // of real products
    op->entry.product = (GpuProduct){(uint64_t)p->m, (uint64_t)p->n, (uint64_t)p->k, batch};
    op->entry.type = arithmetic_of(handle, p);
}

static cublasStatus_t check_batch(Call call, const Gemm *p, const Batch *batch)
{
    CHECK(simblas_check_size(call, "batchCount", batch->count));
    if (batch->count <= 1 || batch->stride_c != 0 || p->m == 0 || p->n == 0)
        return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                          "strideC is 0, so all %lld products would be written to one matrix.",
                          (long long)batch->count);
}

// ---- The calls of one format ----

#define GEMM(I, E, name, symbol, T, F, is_single)                                                  \
    cublasStatus_t symbol##E(cublasHandle_t handle, cublasOperation_t transa,                      \
                             cublasOperation_t transb, I m, I n, I k, const T *alpha, const T *A,  \
                             I lda, const T *B, I ldb, const T *beta, T *C, I ldc)                 \
    {                                                                                              \
        Call call = {name #E, SITE};                                                               \
        Gemm p = {transa, transb, m,  n,  k,         lda,    ldb,   ldc,                           \
                  &F,     &F,     &F, &F, is_single, {0, 0}, {0, 0}};                              \
        Batch one = {A, B, C, 0, 0, 0, 1};                                                         \
        CHECK(simblas_check_gemm(call, handle, &p, alpha, beta));                                  \
        return simblas_run_gemm(call, handle, &p, alpha, beta, &one);                              \
    }
FOR_SIZES(GEMM, "cublasSgemm", cublasSgemm_v2, float, simblas_S, true)
FOR_SIZES(GEMM, "cublasDgemm", cublasDgemm_v2, double, simblas_D, false)
FOR_SIZES(GEMM, "cublasCgemm", cublasCgemm_v2, cuComplex, simblas_C, false)
FOR_SIZES(GEMM, "cublasZgemm", cublasZgemm_v2, cuDoubleComplex, simblas_Z, false)
FOR_SIZES(GEMM, "cublasHgemm", cublasHgemm, __half, simblas_H, true)
FOR_SIZES(GEMM, "cublasCgemm3m", cublasCgemm3m, cuComplex, simblas_C, false)
FOR_SIZES(GEMM, "cublasZgemm3m", cublasZgemm3m, cuDoubleComplex, simblas_Z, false)

#define STRIDED(I, E, name, T, F, is_single)                                                       \
    cublasStatus_t name##E(cublasHandle_t handle, cublasOperation_t transa,                        \
                           cublasOperation_t transb, I m, I n, I k, const T *alpha, const T *A,    \
                           I lda, long long int strideA, const T *B, I ldb, long long int strideB, \
                           const T *beta, T *C, I ldc, long long int strideC, I batchCount)        \
    {                                                                                              \
        Call call = {#name #E, SITE};                                                              \
        Gemm p = {transa, transb, m,  n,  k,         lda,    ldb,   ldc,                           \
                  &F,     &F,     &F, &F, is_single, {0, 0}, {0, 0}};                              \
        Batch batch = {A, B, C, strideA, strideB, strideC, batchCount};                            \
        CHECK(simblas_check_gemm(call, handle, &p, alpha, beta));                                  \
        CHECK(check_batch(call, &p, &batch));                                                      \
        return simblas_run_gemm(call, handle, &p, alpha, beta, &batch);                            \
    }
FOR_SIZES(STRIDED, cublasSgemmStridedBatched, float, simblas_S, true)
FOR_SIZES(STRIDED, cublasDgemmStridedBatched, double, simblas_D, false)
FOR_SIZES(STRIDED, cublasCgemmStridedBatched, cuComplex, simblas_C, false)
FOR_SIZES(STRIDED, cublasZgemmStridedBatched, cuDoubleComplex, simblas_Z, false)
FOR_SIZES(STRIDED, cublasHgemmStridedBatched, __half, simblas_H, true)
FOR_SIZES(STRIDED, cublasCgemm3mStridedBatched, cuComplex, simblas_C, false)

// ---- The calls that name their formats ----

#define STRIDED_EX(I, E)                                                                           \
    cublasStatus_t cublasGemmStridedBatchedEx##E(                                                  \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I m, I n, I k,  \
        const void *alpha, const void *A, cudaDataType Atype, I lda, long long int strideA,        \
        const void *B, cudaDataType Btype, I ldb, long long int strideB, const void *beta,         \
        void *C, cudaDataType Ctype, I ldc, long long int strideC, I batchCount,                   \
        cublasComputeType_t computeType, cublasGemmAlgo_t algo)                                    \
    {                                                                                              \
        Call call = {"cublasGemmStridedBatchedEx" #E, SITE};                                       \
        Gemm p = {.turn_a = transa, .turn_b = transb, m, n, k, lda, ldb, ldc};                     \
        Batch batch = {A, B, C, strideA, strideB, strideC, batchCount};                            \
        CHECK(simblas_check_gemm(call, handle, &p, alpha, beta));                                  \
        CHECK(check_batch(call, &p, &batch));                                                      \
        CHECK(simblas_gemm_types(call, Atype, Btype, Ctype, computeType, &p));                     \
        return simblas_run_gemm(call, handle, &p, alpha, beta, &batch);                            \
    }
FOR_SIZES(STRIDED_EX)

static cublasStatus_t run_ex(Call call, cublasHandle_t handle, Gemm *p, const void *alpha,
                             const void *beta, const Batch *one, cudaDataType a, cudaDataType b,
                             cudaDataType c, cublasComputeType_t compute)
{
    CHECK(simblas_check_gemm(call, handle, p, alpha, beta));
    CHECK(simblas_gemm_types(call, a, b, c, compute, p));
    return simblas_run_gemm(call, handle, p, alpha, beta, one);
}

#define GEMM_EX(I, E)                                                                              \
    cublasStatus_t cublasGemmEx##E(                                                                \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I m, I n, I k,  \
        const void *alpha, const void *A, cudaDataType Atype, I lda, const void *B,                \
        cudaDataType Btype, I ldb, const void *beta, void *C, cudaDataType Ctype, I ldc,           \
        cublasComputeType_t computeType, cublasGemmAlgo_t algo)                                    \
    {                                                                                              \
        Gemm p = {.turn_a = transa, .turn_b = transb, m, n, k, lda, ldb, ldc};                     \
        Batch one = {A, B, C, 0, 0, 0, 1};                                                         \
        return run_ex((Call){"cublasGemmEx" #E, SITE}, handle, &p, alpha, beta, &one, Atype,       \
                      Btype, Ctype, computeType);                                                  \
    }
FOR_SIZES(GEMM_EX)

#define TYPED(I, E, name, T)                                                                       \
    cublasStatus_t name##E(cublasHandle_t handle, cublasOperation_t transa,                        \
                           cublasOperation_t transb, I m, I n, I k, const T *alpha, const void *A, \
                           cudaDataType Atype, I lda, const void *B, cudaDataType Btype, I ldb,    \
                           const T *beta, void *C, cudaDataType Ctype, I ldc)                      \
    {                                                                                              \
        Gemm p = {.turn_a = transa, .turn_b = transb, m, n, k, lda, ldb, ldc};                     \
        Batch one = {A, B, C, 0, 0, 0, 1};                                                         \
        return run_ex((Call){#name #E, SITE}, handle, &p, alpha, beta, &one, Atype, Btype, Ctype,  \
                      CUBLAS_COMPUTE_32F);                                                         \
    }
FOR_SIZES(TYPED, cublasSgemmEx, float)
FOR_SIZES(TYPED, cublasCgemmEx, cuComplex)
FOR_SIZES(TYPED, cublasCgemm3mEx, cuComplex)
