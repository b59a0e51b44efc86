/* gemm.c: cublasSgemm and its kin: one product, or a batch of them at equal strides.
 *
 * Floats and narrower formats are multiplied in single precision by the CPU's BLAS (multiply.c),
 * everything else in double by loops. Where beta is 0, C is not read; where alpha or k is 0, A and
 * B are not.
 */
#include <stdatomic.h>
#include <string.h>

#include "blas.h"

Gemm simblas_gemm(Call call, cublasOperation_t turn_a, cublasOperation_t turn_b, int m, int n,
                  int k, int lda, int ldb, int ldc)
{
    const Format *f = call.element;
    bool single = f == &simblas_S || f == &simblas_H;
    return (Gemm){turn_a, turn_b, m, n, k, lda, ldb, ldc, f, f, f, f, single, {0, 0}, {0, 0}};
}

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

// ---- One product ----

static Matrix matrix_at(const void *at, const Format *format, int64_t rows, int64_t cols,
                        int64_t ld)
{
    return (Matrix){.format = format, .rows = rows, .cols = cols, .ld = ld, .at = (char *)at};
}

// C = beta·C; with beta = 0 the old contents do not matter.
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

// Multiplications of a batch that are worth sharing, and of a piece of it: some 20 us and some 5.
// Small products wait for memory longer than they multiply.
#define BATCH_WORK 6e5
#define BATCH_PIECE 9e4
enum { BATCH_LEAST = 4 }; // products of which threads take one each

// The matrices of a batch: each `stride` elements after the one before.
typedef struct Batch {
    const void *A, *B;
    void *C;
    long long stride_a, stride_b, stride_c;
    int64_t count;
} Batch;

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

// Declares a batch of matrices, whose bytes may begin before the first matrix; returns the address
// of the first one. `settled`: settle() decides about the bytes that are owed there.
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

// One product of floats that needs no copies and is added to the old contents.
static bool is_sum(const Gemm *p, int64_t count)
{
    bool floats = p->a == &simblas_S && p->b == &simblas_S && p->c == &simblas_S;
    return floats && count == 1 && p->alpha.re > 0.0 && p->beta.re == 1.0;
}

// Before C is written: settles what it owes (memory/contents.h). If C owes zeros, the sum is the
// product alone, and the zeros are never written: adding 0 changes no bits, except the sign of a
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

static cublasStatus_t run(Call call, cublasHandle_t handle, Gemm *p, const void *alpha,
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
    Matrix first = simblas_matrix(p->c, batch->C, p->m, p->n, p->ldc);
    simblas_check_stride(&op, &first, batch->count, batch->stride_c);
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

// ---- The calls ----

static cublasStatus_t run_gemm(Call call, cublasHandle_t handle, cublasOperation_t transa,
                               cublasOperation_t transb, int m, int n, int k, const void *alpha,
                               const void *A, int lda, const void *B, int ldb, const void *beta,
                               void *C, int ldc)
{
    Gemm p = simblas_gemm(call, transa, transb, m, n, k, lda, ldb, ldc);
    Batch one = {A, B, C, 0, 0, 0, 1};
    CHECK(simblas_check_gemm(call, handle, &p, alpha, beta));
    return run(call, handle, &p, alpha, beta, &one);
}

static cublasStatus_t run_strided(Call call, cublasHandle_t handle, cublasOperation_t transa,
                                  cublasOperation_t transb, int m, int n, int k, const void *alpha,
                                  const void *A, int lda, long long stride_a, const void *B,
                                  int ldb, long long stride_b, const void *beta, void *C, int ldc,
                                  long long stride_c, int count)
{
    Gemm p = simblas_gemm(call, transa, transb, m, n, k, lda, ldb, ldc);
    Batch batch = {A, B, C, stride_a, stride_b, stride_c, count};
    CHECK(simblas_check_gemm(call, handle, &p, alpha, beta));
    CHECK(check_batch(call, &p, &batch));
    return run(call, handle, &p, alpha, beta, &batch);
}

static cublasStatus_t run_strided_ex(Call call, cublasHandle_t handle, cublasOperation_t transa,
                                     cublasOperation_t transb, int m, int n, int k,
                                     const void *alpha, const void *A, cudaDataType a, int lda,
                                     long long stride_a, const void *B, cudaDataType b, int ldb,
                                     long long stride_b, const void *beta, void *C, cudaDataType c,
                                     int ldc, long long stride_c, int count,
                                     cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    Gemm p = simblas_gemm(call, transa, transb, m, n, k, lda, ldb, ldc);
    Batch batch = {A, B, C, stride_a, stride_b, stride_c, count};
    CHECK(simblas_check_gemm(call, handle, &p, alpha, beta));
    CHECK(check_batch(call, &p, &batch));
    CHECK(simblas_gemm_types(call, a, b, c, compute, &p));
    return run(call, handle, &p, alpha, beta, &batch);
}

static cublasStatus_t run_gemm_ex(Call call, cublasHandle_t handle, cublasOperation_t transa,
                                  cublasOperation_t transb, int m, int n, int k, const void *alpha,
                                  const void *A, cudaDataType a, int lda, const void *B,
                                  cudaDataType b, int ldb, const void *beta, void *C,
                                  cudaDataType c, int ldc, cublasComputeType_t compute,
                                  cublasGemmAlgo_t algo)
{
    return run_strided_ex(call, handle, transa, transb, m, n, k, alpha, A, a, lda, 0, B, b, ldb, 0,
                          beta, C, c, ldc, 0, 1, compute, algo);
}

static cublasStatus_t run_typed(Call call, cublasHandle_t handle, cublasOperation_t transa,
                                cublasOperation_t transb, int m, int n, int k, const void *alpha,
                                const void *A, cudaDataType a, int lda, const void *B,
                                cudaDataType b, int ldb, const void *beta, void *C, cudaDataType c,
                                int ldc)
{
    return run_gemm_ex(call, handle, transa, transb, m, n, k, alpha, A, a, lda, B, b, ldb, beta, C,
                       c, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

SIMGPU_CUBLAS_PRODUCTS(SIMBLAS_DEFINE)
SIMGPU_CUBLAS_HALF_PRODUCTS(SIMBLAS_DEFINE)
