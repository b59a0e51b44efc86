/* batched.c: many products, systems or matrix-vector products in one call. Where the matrices lie
 * is said by arrays of pointers in device memory, or by strides.
 *
 * Interface: cublas?gemmBatched, cublasCgemm3mBatched, cublasGemmBatchedEx,
 * cublas?gemmGroupedBatched, cublasGemmGroupedBatchedEx, cublas?trsmBatched, cublas?gemvBatched,
 * cublas?gemvStridedBatched.
 */
#include "blas.h"

static Matrix general(const void *ptr, const Format *format, int64_t rows, int64_t cols, int64_t ld)
{
    return (Matrix){.ptr = ptr, .format = format, .rows = rows, .cols = cols, .ld = ld};
}

// ---- Products ----

// The products of one group, whose arrays begin at `from`.
static cublasStatus_t multiply_group(SimgpuOp *op, const Gemm *p, const void *const *A,
                                     const void *const *B, const void *const *C, int64_t count)
{
    bool turn_a = p->turn_a != CUBLAS_OP_N, turn_b = p->turn_b != CUBLAS_OP_N;
    cublasStatus_t done = CUBLAS_STATUS_SUCCESS;
    bool adds = !is_zero(p->alpha) && p->k > 0;
    if (!C || (adds && (!A || !B))) return done; // a dry run may not know them
    for (int64_t i = 0; i < count && done == CUBLAS_STATUS_SUCCESS && !op->error; i++) {
        Matrix a = {0}, b = {0};
        if (adds) {
            a = general(A[i], p->a, turn_a ? p->k : p->m, turn_a ? p->m : p->k, p->lda);
            b = general(B[i], p->b, turn_b ? p->n : p->k, turn_b ? p->k : p->n, p->ldb);
            simblas_touch_matrix(op, &a, GPU_READ);
            simblas_touch_matrix(op, &b, GPU_READ);
        }
        Matrix c = general(C[i], p->c, p->m, p->n, p->ldc);
        simblas_touch_matrix(op, &c, is_zero(p->beta) ? GPU_WRITE : GPU_UPDATE);
        if (simgpu_ready(op)) done = simblas_compute_gemm(p, a.at, b.at, c.at);
    }
    return done;
}

static cublasStatus_t run_batch(Call call, cublasHandle_t handle, Gemm *p, const void *alpha,
                                const void *A, const void *B, const void *beta, const void *C,
                                int64_t count)
{
    CHECK(simblas_check_gemm(call, handle, p, alpha, beta));
    CHECK(simblas_check_size(call, "batchCount", count));
    if (p->m == 0 || p->n == 0 || count == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    simblas_note_product(&op, handle, p, count);
    p->alpha = simblas_scalar(&op, handle, alpha, p->scale);
    p->beta = simblas_scalar(&op, handle, beta, p->scale);
    bool adds = !is_zero(p->alpha) && p->k > 0;
    const void *const *a = adds ? simblas_pointers(&op, A, count) : NULL;
    const void *const *b = adds ? simblas_pointers(&op, B, count) : NULL;
    const void *const *c = simblas_pointers(&op, C, count);
    return simblas_finish(call, &op, multiply_group(&op, p, a, b, c, count));
}

#define BATCHED(I, E, name, T, F, is_single)                                                       \
    cublasStatus_t name##E(cublasHandle_t handle, cublasOperation_t transa,                        \
                           cublasOperation_t transb, I m, I n, I k, const T *alpha,                \
                           const T *const Aarray[], I lda, const T *const Barray[], I ldb,         \
                           const T *beta, T *const Carray[], I ldc, I batchCount)                  \
    {                                                                                              \
        Gemm p = {transa, transb, m,  n,  k,         lda,    ldb,   ldc,                           \
                  &F,     &F,     &F, &F, is_single, {0, 0}, {0, 0}};                              \
        return run_batch((Call){#name #E, SITE}, handle, &p, alpha, Aarray, Barray, beta, Carray,  \
                         batchCount);                                                              \
    }
FOR_SIZES(BATCHED, cublasSgemmBatched, float, simblas_S, true)
FOR_SIZES(BATCHED, cublasDgemmBatched, double, simblas_D, false)
FOR_SIZES(BATCHED, cublasCgemmBatched, cuComplex, simblas_C, false)
FOR_SIZES(BATCHED, cublasZgemmBatched, cuDoubleComplex, simblas_Z, false)
FOR_SIZES(BATCHED, cublasHgemmBatched, __half, simblas_H, true)
FOR_SIZES(BATCHED, cublasCgemm3mBatched, cuComplex, simblas_C, false)

#define BATCHED_EX(I, E)                                                                           \
    cublasStatus_t cublasGemmBatchedEx##E(                                                         \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I m, I n, I k,  \
        const void *alpha, const void *const Aarray[], cudaDataType Atype, I lda,                  \
        const void *const Barray[], cudaDataType Btype, I ldb, const void *beta,                   \
        void *const Carray[], cudaDataType Ctype, I ldc, I batchCount,                             \
        cublasComputeType_t computeType, cublasGemmAlgo_t algo)                                    \
    {                                                                                              \
        Call call = {"cublasGemmBatchedEx" #E, SITE};                                              \
        Gemm p = {.turn_a = transa, .turn_b = transb, m, n, k, lda, ldb, ldc};                     \
        CHECK(simblas_check_handle(call, handle));                                                 \
        CHECK(simblas_gemm_types(call, Atype, Btype, Ctype, computeType, &p));                     \
        return run_batch(call, handle, &p, alpha, Aarray, Barray, beta, Carray, batchCount);       \
    }
FOR_SIZES(BATCHED_EX)

// ---- Groups of products: in a group all are alike ----

// The arrays of a grouped call, which lie on the host; the matrices' addresses in device memory.
typedef struct Groups {
    bool wide; // sizes are of 64 bits
    int64_t count;
    const cublasOperation_t *turn_a, *turn_b;
    const void *m, *n, *k, *lda, *ldb, *ldc, *size;
    const void *alpha, *beta, *A, *B, *C;
} Groups;

static int64_t size_of(const Groups *g, const void *sizes, int64_t i)
{
    return g->wide ? ((const int64_t *)sizes)[i] : ((const int *)sizes)[i];
}

static Gemm group(const Groups *g, const Gemm *formats, int64_t i)
{
    Gemm p = *formats;
    p.turn_a = g->turn_a[i];
    p.turn_b = g->turn_b[i];
    p.m = size_of(g, g->m, i);
    p.n = size_of(g, g->n, i);
    p.k = size_of(g, g->k, i);
    p.lda = size_of(g, g->lda, i);
    p.ldb = size_of(g, g->ldb, i);
    p.ldc = size_of(g, g->ldc, i);
    return p;
}

static cublasStatus_t check_groups(Call call, cublasHandle_t handle, const Groups *g,
                                   const Gemm *formats, int64_t *products)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_size(call, "group_count", g->count));
    *products = 0;
    for (int64_t i = 0; i < g->count; i++) {
        Gemm p = group(g, formats, i);
        CHECK(simblas_check_gemm(call, handle, &p, g->alpha, g->beta));
        CHECK(simblas_check_size(call, "group_size", size_of(g, g->size, i)));
        *products += size_of(g, g->size, i);
    }
    return CUBLAS_STATUS_SUCCESS;
}

static const void *const *part(const void *const *pointers, int64_t from)
{
    return pointers ? pointers + from : NULL;
}

static cublasStatus_t run_groups(Call call, cublasHandle_t handle, const Groups *g,
                                 const Gemm *formats)
{
    int64_t products;
    CHECK(check_groups(call, handle, g, formats, &products));
    if (products == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    const void *const *a = simblas_pointers(&op, g->A, products);
    const void *const *b = simblas_pointers(&op, g->B, products);
    const void *const *c = simblas_pointers(&op, g->C, products);
    cublasStatus_t done = CUBLAS_STATUS_SUCCESS;
    for (int64_t i = 0, from = 0;
         i < g->count && op.error == cudaSuccess && done == CUBLAS_STATUS_SUCCESS;
         from += size_of(g, g->size, i++)) {
        Gemm p = group(g, formats, i);
        size_t offset = (size_t)i * p.scale->bytes;
        p.alpha = simblas_scalar(&op, handle, (const char *)g->alpha + offset, p.scale);
        p.beta = simblas_scalar(&op, handle, (const char *)g->beta + offset, p.scale);
        int64_t size = size_of(g, g->size, i);
        simblas_note_product(&op, handle, &p, size); // for its type
        simgpu_cost(&op, op.entry.flops + 2 * (uint64_t)(p.m * p.n * p.k) * (uint64_t)size,
                    op.entry.type);
        op.entry.product = (GpuProduct){0}; // they are not all alike
        if (p.m > 0 && p.n > 0)
            done = multiply_group(&op, &p, part(a, from), part(b, from), part(c, from), size);
    }
    return simblas_finish(call, &op, done);
}

#define GROUPED(I, E, name, T, F, is_single)                                                       \
    cublasStatus_t name##E(cublasHandle_t handle, const cublasOperation_t transa_array[],          \
                           const cublasOperation_t transb_array[], const I m_array[],              \
                           const I n_array[], const I k_array[], const T alpha_array[],            \
                           const T *const Aarray[], const I lda_array[], const T *const Barray[],  \
                           const I ldb_array[], const T beta_array[], T *const Carray[],           \
                           const I ldc_array[], I group_count, const I group_size[])               \
    {                                                                                              \
        Gemm formats = {.a = &F, .b = &F, .c = &F, .scale = &F, .single = is_single};              \
        Groups g = {sizeof(I) == 8, group_count, transa_array, transb_array,                       \
                    m_array,        n_array,     k_array,      lda_array,                          \
                    ldb_array,      ldc_array,   group_size,   alpha_array,                        \
                    beta_array,     Aarray,      Barray,       Carray};                            \
        return run_groups((Call){#name #E, SITE}, handle, &g, &formats);                           \
    }
FOR_SIZES(GROUPED, cublasSgemmGroupedBatched, float, simblas_S, true)
FOR_SIZES(GROUPED, cublasDgemmGroupedBatched, double, simblas_D, false)

#define GROUPED_EX(I, E)                                                                           \
    cublasStatus_t cublasGemmGroupedBatchedEx##E(                                                  \
        cublasHandle_t handle, const cublasOperation_t transa_array[],                             \
        const cublasOperation_t transb_array[], const I m_array[], const I n_array[],              \
        const I k_array[], const void *alpha_array, const void *const Aarray[],                    \
        cudaDataType_t Atype, const I lda_array[], const void *const Barray[],                     \
        cudaDataType_t Btype, const I ldb_array[], const void *beta_array, void *const Carray[],   \
        cudaDataType_t Ctype, const I ldc_array[], I group_count, const I group_size[],            \
        cublasComputeType_t computeType)                                                           \
    {                                                                                              \
        Call call = {"cublasGemmGroupedBatchedEx" #E, SITE};                                       \
        Gemm formats = {0};                                                                        \
        Groups g = {sizeof(I) == 8, group_count, transa_array, transb_array,                       \
                    m_array,        n_array,     k_array,      lda_array,                          \
                    ldb_array,      ldc_array,   group_size,   alpha_array,                        \
                    beta_array,     Aarray,      Barray,       Carray};                            \
        CHECK(simblas_gemm_types(call, Atype, Btype, Ctype, computeType, &formats));               \
        return run_groups(call, handle, &g, &formats);                                             \
    }
FOR_SIZES(GROUPED_EX)

// ---- Triangular systems ----

typedef struct Systems {
    cublasSideMode_t side;
    cublasFillMode_t uplo;
    cublasOperation_t turn;
    cublasDiagType_t diag;
    int64_t m, n, lda, ldb, count;
    const Format *format;
} Systems;

static cublasStatus_t check_systems(Call call, cublasHandle_t handle, const Systems *s,
                                    const void *alpha)
{
    bool left = s->side == CUBLAS_SIDE_LEFT;
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_side(call, s->side));
    CHECK(simblas_check_fill(call, s->uplo));
    CHECK(simblas_check_turn(call, "trans", s->turn));
    CHECK(simblas_check_diagonal(call, s->diag));
    CHECK(simblas_check_size(call, "m", s->m));
    CHECK(simblas_check_size(call, "n", s->n));
    CHECK(simblas_check_leading(call, "lda", s->lda, left ? s->m : s->n, left ? "m" : "n"));
    CHECK(simblas_check_leading(call, "ldb", s->ldb, s->m, "m"));
    CHECK(simblas_check_size(call, "batchCount", s->count));
    return simblas_check_pointer(call, "alpha", alpha);
}

static cublasStatus_t solve_batch(Call call, cublasHandle_t handle, const Systems *s,
                                  const void *alpha, const void *A, const void *B)
{
    CHECK(check_systems(call, handle, s, alpha));
    if (s->m == 0 || s->n == 0 || s->count == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Number factor = simblas_scalar(&op, handle, alpha, s->format);
    const void *const *a = simblas_pointers(&op, A, s->count);
    const void *const *b = simblas_pointers(&op, B, s->count);
    int64_t order = s->side == CUBLAS_SIDE_LEFT ? s->m : s->n;
    bool done = true;
    bool known = a && b; // a dry run may not know them
    for (int64_t i = 0; i < s->count && known && !op.error && done; i++) {
        Matrix triangle = general(a[i], s->format, order, order, s->lda);
        triangle.part = simblas_part(s->uplo);
        triangle.unit = s->diag == CUBLAS_DIAG_UNIT;
        Matrix right = general(b[i], s->format, s->m, s->n, s->ldb);
        if (!is_zero(factor)) simblas_touch_matrix(&op, &triangle, GPU_READ);
        simblas_touch_matrix(&op, &right, is_zero(factor) ? GPU_WRITE : GPU_UPDATE);
        if (simgpu_ready(&op)) done = simblas_solve(&triangle, s->turn, s->side, factor, &right);
    }
    return simblas_finish(call, &op, done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED);
}

#define TRSM_BATCHED(I, E, L, T)                                                                   \
    cublasStatus_t cublas##L##trsmBatched##E(                                                      \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,                       \
        cublasOperation_t trans, cublasDiagType_t diag, I m, I n, const T *alpha,                  \
        const T *const A[], I lda, T *const B[], I ldb, I batchCount)                              \
    {                                                                                              \
        Systems s = {side, uplo, trans, diag, m, n, lda, ldb, batchCount, &simblas_##L};           \
        return solve_batch((Call){"cublas" #L "trsmBatched" #E, SITE}, handle, &s, alpha, A, B);   \
    }
FOR_EACH(TRSM_BATCHED)

// ---- Matrix times vector ----

typedef struct Gemvs {
    cublasOperation_t turn;
    int64_t m, n, lda, incx, incy, count;
    const Format *from, *to, *scale; // of A and x, of y, of the scalars
    bool pointers;                   // A, x and y are arrays of pointers in device memory
    const void *A, *x, *y;
    long long stride_a, stride_x, stride_y;
} Gemvs;

static cublasStatus_t check_gemvs(Call call, cublasHandle_t handle, const Gemvs *g,
                                  const void *alpha, const void *beta)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_turn(call, "trans", g->turn));
    CHECK(simblas_check_size(call, "m", g->m));
    CHECK(simblas_check_size(call, "n", g->n));
    CHECK(simblas_check_leading(call, "lda", g->lda, g->m, "m"));
    CHECK(simblas_check_increment(call, "incx", g->incx));
    CHECK(simblas_check_increment(call, "incy", g->incy));
    CHECK(simblas_check_size(call, "batchCount", g->count));
    CHECK(simblas_check_pointer(call, "alpha", alpha));
    return simblas_check_pointer(call, "beta", beta);
}

static void run_gemv(SimgpuOp *op, const Gemvs *g, Number alpha, Number beta, const void *A,
                     const void *x, const void *y)
{
    bool turned = g->turn != CUBLAS_OP_N;
    Matrix a = general(A, g->from, g->m, g->n, g->lda);
    Vector in = {x, g->from, turned ? g->m : g->n, g->incx, NULL};
    Vector out = {y, g->to, turned ? g->n : g->m, g->incy, NULL};
    if (!is_zero(alpha)) {
        simblas_touch_matrix(op, &a, GPU_READ);
        simblas_touch_vector(op, &in, GPU_READ, false);
    }
    simblas_touch_vector(op, &out, is_zero(beta) ? GPU_WRITE : GPU_UPDATE, false);
    if (simgpu_ready(op)) simblas_matrix_vector(&a, g->turn, alpha, &in, beta, &out);
}

static const void *strided(const void *first, int64_t i, long long stride, const Format *format)
{
    return (const char *)first + i * stride * (long long)format->bytes;
}

static cublasStatus_t run_gemvs(Call call, cublasHandle_t handle, const Gemvs *g, const void *alpha,
                                const void *beta)
{
    CHECK(check_gemvs(call, handle, g, alpha, beta));
    if (g->m == 0 || g->n == 0 || g->count == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Number a = simblas_scalar(&op, handle, alpha, g->scale);
    Number b = simblas_scalar(&op, handle, beta, g->scale);
    const void *const *A = NULL, *const *x = NULL, *const *y = NULL;
    if (g->pointers) {
        A = simblas_pointers(&op, g->A, g->count);
        x = simblas_pointers(&op, g->x, g->count);
        y = simblas_pointers(&op, g->y, g->count);
    }
    bool known = !g->pointers || (A && x && y); // a dry run may not know them
    for (int64_t i = 0; i < g->count && known && !op.error; i++)
        run_gemv(&op, g, a, b, A ? A[i] : strided(g->A, i, g->stride_a, g->from),
                 x ? x[i] : strided(g->x, i, g->stride_x, g->from),
                 y ? y[i] : strided(g->y, i, g->stride_y, g->to));
    return simblas_end(&op);
}

#define GEMV_BATCHED(I, E, L, T, TY, TS, F, FY, FS)                                                \
    cublasStatus_t cublas##L##gemvBatched##E(cublasHandle_t handle, cublasOperation_t trans, I m,  \
                                             I n, const TS *alpha, const T *const Aarray[], I lda, \
                                             const T *const xarray[], I incx, const TS *beta,      \
                                             TY *const yarray[], I incy, I batchCount)             \
    {                                                                                              \
        Gemvs g = {trans, m,    n,      lda,    incx,   incy, batchCount, &F, &FY,                 \
                   &FS,   true, Aarray, xarray, yarray, 0,    0,          0};                      \
        return run_gemvs((Call){"cublas" #L "gemvBatched" #E, SITE}, handle, &g, alpha, beta);     \
    }                                                                                              \
    cublasStatus_t cublas##L##gemvStridedBatched##E(                                               \
        cublasHandle_t handle, cublasOperation_t trans, I m, I n, const TS *alpha, const T *A,     \
        I lda, long long int strideA, const T *x, I incx, long long int stridex, const TS *beta,   \
        TY *y, I incy, long long int stridey, I batchCount)                                        \
    {                                                                                              \
        Gemvs g = {trans, m,     n, lda, incx, incy,    batchCount, &F,     &FY,                   \
                   &FS,   false, A, x,   y,    strideA, stridex,    stridey};                      \
        return run_gemvs((Call){"cublas" #L "gemvStridedBatched" #E, SITE}, handle, &g, alpha,     \
                         beta);                                                                    \
    }
#define GEMV_BATCHED_ALIKE(I, E, L, T)                                                             \
    GEMV_BATCHED(I, E, L, T, T, T, simblas_##L, simblas_##L, simblas_##L)
FOR_EACH(GEMV_BATCHED_ALIKE)
FOR_SIZES(GEMV_BATCHED, HSH, __half, __half, float, simblas_H, simblas_H, simblas_S)
FOR_SIZES(GEMV_BATCHED, HSS, __half, float, float, simblas_H, simblas_S, simblas_S)
FOR_SIZES(GEMV_BATCHED, TST, __nv_bfloat16, __nv_bfloat16, float, simblas_T, simblas_T, simblas_S)
FOR_SIZES(GEMV_BATCHED, TSS, __nv_bfloat16, float, float, simblas_T, simblas_S, simblas_S)
