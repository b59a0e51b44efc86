/* batched.c: many products, systems or matrix-vector products in one call. Where the matrices lie
 * is said by arrays of pointers in device memory, or by strides.
 *
 * Interface: cublas?gemmBatched, cublasCgemm3mBatched, cublasGemmBatchedEx,
 * cublas?gemmGroupedBatched, cublasGemmGroupedBatchedEx, cublas?trsmBatched, cublas?gemvBatched,
 * cublas?gemvStridedBatched.
 */
#include "blas.h"

// An array of pointers in device memory; NULL, where it cannot be read.
static const void *const *read_pointers(SimgpuOp *op, const void *array, int count)
{
    size_t bytes = (size_t)count * sizeof(void *);
    if (!sim_check_aligned(op, array, bytes, sizeof(void *))) return NULL;
    return sim_touch(op, array, bytes, GPU_READ, false);
}

static Matrix general(const void *ptr, const Format *format, int rows, int cols, int ld)
{
    return (Matrix){.ptr = ptr, .format = format, .rows = rows, .cols = cols, .ld = ld};
}

// ---- Products ----

// The products of one group, whose arrays begin at `from`.
static bool multiply_group(SimgpuOp *op, const Gemm *p, const void *const *A, const void *const *B,
                           const void *const *C, int count)
{
    bool turn_a = p->turn_a != CUBLAS_OP_N, turn_b = p->turn_b != CUBLAS_OP_N, done = true;
    bool adds = !is_zero(p->alpha) && p->k > 0;
    for (int i = 0; i < count && done && simgpu_ready(op); i++) {
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

static cublasStatus_t finish(Call call, SimgpuOp *op, bool done)
{
    CHECK(simblas_end(op));
    if (done) return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_INTERNAL_ERROR,
                          "the CPU's BLAS library refused the product, or there is no memory.");
}

static cublasStatus_t run_batch(Call call, cublasHandle_t handle, Gemm *p, const void *alpha,
                                const void *A, const void *B, const void *beta, const void *C,
                                int count)
{
    CHECK(simblas_check_gemm(call, handle, p, alpha, beta));
    CHECK(simblas_check_size(call, "batchCount", count));
    if (p->m == 0 || p->n == 0 || count == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    simblas_note_product(&op, handle, p, count);
    p->alpha = simblas_scalar(&op, handle, alpha, p->scale);
    p->beta = simblas_scalar(&op, handle, beta, p->scale);
    bool adds = !is_zero(p->alpha) && p->k > 0;
    const void *const *a = adds ? read_pointers(&op, A, count) : NULL;
    const void *const *b = adds ? read_pointers(&op, B, count) : NULL;
    const void *const *c = read_pointers(&op, C, count);
    return finish(call, &op, multiply_group(&op, p, a, b, c, count));
}

#define BATCHED(name, T, F, is_single)                                                             \
    cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, \
                        int m, int n, int k, const T *alpha, const T *const Aarray[], int lda,     \
                        const T *const Barray[], int ldb, const T *beta, T *const Carray[],        \
                        int ldc, int batchCount)                                                   \
    {                                                                                              \
        Gemm p = {transa, transb, m,  n,  k,         lda,    ldb,   ldc,                           \
                  &F,     &F,     &F, &F, is_single, {0, 0}, {0, 0}};                              \
        return run_batch((Call){#name, SITE}, handle, &p, alpha, Aarray, Barray, beta, Carray,     \
                         batchCount);                                                              \
    }
BATCHED(cublasSgemmBatched, float, simblas_S, true)
BATCHED(cublasDgemmBatched, double, simblas_D, false)
BATCHED(cublasCgemmBatched, cuComplex, simblas_C, false)
BATCHED(cublasZgemmBatched, cuDoubleComplex, simblas_Z, false)
BATCHED(cublasHgemmBatched, __half, simblas_H, true)
BATCHED(cublasCgemm3mBatched, cuComplex, simblas_C, false)

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                   cublasOperation_t transb, int m, int n, int k, const void *alpha,
                                   const void *const Aarray[], cudaDataType Atype, int lda,
                                   const void *const Barray[], cudaDataType Btype, int ldb,
                                   const void *beta, void *const Carray[], cudaDataType Ctype,
                                   int ldc, int batchCount, cublasComputeType_t computeType,
                                   cublasGemmAlgo_t algo)
{
    Call call = {"cublasGemmBatchedEx", SITE};
    Gemm p = {.turn_a = transa, .turn_b = transb, m, n, k, lda, ldb, ldc};
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_gemm_types(call, Atype, Btype, Ctype, computeType, &p));
    return run_batch(call, handle, &p, alpha, Aarray, Barray, beta, Carray, batchCount);
}

// ---- Groups of products: in a group all are alike ----

// The arrays of a grouped call, which lie on the host; the matrices' addresses in device memory.
typedef struct Groups {
    int count;
    const cublasOperation_t *turn_a, *turn_b;
    const int *m, *n, *k, *lda, *ldb, *ldc, *size;
    const void *alpha, *beta, *A, *B, *C;
} Groups;

static Gemm group(const Groups *g, const Gemm *formats, int i)
{
    Gemm p = *formats;
    p.turn_a = g->turn_a[i];
    p.turn_b = g->turn_b[i];
    p.m = g->m[i];
    p.n = g->n[i];
    p.k = g->k[i];
    p.lda = g->lda[i];
    p.ldb = g->ldb[i];
    p.ldc = g->ldc[i];
    return p;
}

static cublasStatus_t check_groups(Call call, cublasHandle_t handle, const Groups *g,
                                   const Gemm *formats, int *products)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_size(call, "group_count", g->count));
    *products = 0;
    for (int i = 0; i < g->count; i++) {
        Gemm p = group(g, formats, i);
        CHECK(simblas_check_gemm(call, handle, &p, g->alpha, g->beta));
        CHECK(simblas_check_size(call, "group_size", g->size[i]));
        *products += g->size[i];
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t run_groups(Call call, cublasHandle_t handle, const Groups *g,
                                 const Gemm *formats)
{
    int products;
    CHECK(check_groups(call, handle, g, formats, &products));
    if (products == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    const void *const *a = read_pointers(&op, g->A, products);
    const void *const *b = read_pointers(&op, g->B, products);
    const void *const *c = read_pointers(&op, g->C, products);
    bool done = true;
    for (int i = 0, from = 0; i < g->count && simgpu_ready(&op) && done; from += g->size[i++]) {
        Gemm p = group(g, formats, i);
        size_t offset = (size_t)i * p.scale->bytes;
        p.alpha = simblas_scalar(&op, handle, (const char *)g->alpha + offset, p.scale);
        p.beta = simblas_scalar(&op, handle, (const char *)g->beta + offset, p.scale);
        simblas_note_product(&op, handle, &p, g->size[i]); // for its type
        simgpu_cost(&op, op.entry.flops + 2 * (uint64_t)(p.m * p.n * p.k) * (uint64_t)g->size[i],
                    op.entry.type);
        op.entry.product = (GpuProduct){0}; // they are not all alike
        if (p.m > 0 && p.n > 0)
            done = multiply_group(&op, &p, a + from, b + from, c + from, g->size[i]);
    }
    return finish(call, &op, done);
}

#define GROUPED(name, T, F, is_single)                                                             \
    cublasStatus_t name(cublasHandle_t handle, const cublasOperation_t transa_array[],             \
                        const cublasOperation_t transb_array[], const int m_array[],               \
                        const int n_array[], const int k_array[], const T alpha_array[],           \
                        const T *const Aarray[], const int lda_array[], const T *const Barray[],   \
                        const int ldb_array[], const T beta_array[], T *const Carray[],            \
                        const int ldc_array[], int group_count, const int group_size[])            \
    {                                                                                              \
        Gemm formats = {.a = &F, .b = &F, .c = &F, .scale = &F, .single = is_single};              \
        Groups g = {group_count, transa_array, transb_array, m_array,   n_array,                   \
                    k_array,     lda_array,    ldb_array,    ldc_array, group_size,                \
                    alpha_array, beta_array,   Aarray,       Barray,    Carray};                   \
        return run_groups((Call){#name, SITE}, handle, &g, &formats);                              \
    }
GROUPED(cublasSgemmGroupedBatched, float, simblas_S, true)
GROUPED(cublasDgemmGroupedBatched, double, simblas_D, false)

cublasStatus_t cublasGemmGroupedBatchedEx(
    cublasHandle_t handle, const cublasOperation_t transa_array[],
    const cublasOperation_t transb_array[], const int m_array[], const int n_array[],
    const int k_array[], const void *alpha_array, const void *const Aarray[], cudaDataType_t Atype,
    const int lda_array[], const void *const Barray[], cudaDataType_t Btype, const int ldb_array[],
    const void *beta_array, void *const Carray[], cudaDataType_t Ctype, const int ldc_array[],
    int group_count, const int group_size[], cublasComputeType_t computeType)
{
    Call call = {"cublasGemmGroupedBatchedEx", SITE};
    Gemm formats = {0};
    Groups g = {group_count, transa_array, transb_array, m_array,   n_array,
                k_array,     lda_array,    ldb_array,    ldc_array, group_size,
                alpha_array, beta_array,   Aarray,       Barray,    Carray};
    CHECK(simblas_gemm_types(call, Atype, Btype, Ctype, computeType, &formats));
    return run_groups(call, handle, &g, &formats);
}

// ---- Triangular systems ----

typedef struct Systems {
    cublasSideMode_t side;
    cublasFillMode_t uplo;
    cublasOperation_t turn;
    cublasDiagType_t diag;
    int m, n, lda, ldb, count;
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
    const void *const *a = read_pointers(&op, A, s->count);
    const void *const *b = read_pointers(&op, B, s->count);
    int order = s->side == CUBLAS_SIDE_LEFT ? s->m : s->n;
    for (int i = 0; i < s->count && simgpu_ready(&op); i++) {
        Matrix triangle = general(a[i], s->format, order, order, s->lda);
        triangle.part = simblas_part(s->uplo);
        triangle.unit = s->diag == CUBLAS_DIAG_UNIT;
        Matrix right = general(b[i], s->format, s->m, s->n, s->ldb);
        if (!is_zero(factor)) simblas_touch_matrix(&op, &triangle, GPU_READ);
        simblas_touch_matrix(&op, &right, is_zero(factor) ? GPU_WRITE : GPU_UPDATE);
        if (simgpu_ready(&op)) simblas_solve(&triangle, s->turn, s->side, factor, &right);
    }
    return simblas_end(&op);
}

#define TRSM_BATCHED(L, T)                                                                         \
    cublasStatus_t cublas##L##trsmBatched(                                                         \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,                       \
        cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const T *alpha,              \
        const T *const A[], int lda, T *const B[], int ldb, int batchCount)                        \
    {                                                                                              \
        Systems s = {side, uplo, trans, diag, m, n, lda, ldb, batchCount, &simblas_##L};           \
        return solve_batch((Call){"cublas" #L "trsmBatched", SITE}, handle, &s, alpha, A, B);      \
    }
FOR_EACH(TRSM_BATCHED)

// ---- Matrix times vector ----

typedef struct Gemvs {
    cublasOperation_t turn;
    int m, n, lda, incx, incy, count;
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

static const void *strided(const void *first, int i, long long stride, const Format *format)
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
        A = read_pointers(&op, g->A, g->count);
        x = read_pointers(&op, g->x, g->count);
        y = read_pointers(&op, g->y, g->count);
    }
    for (int i = 0; i < g->count && simgpu_ready(&op); i++)
        run_gemv(&op, g, a, b, A ? A[i] : strided(g->A, i, g->stride_a, g->from),
                 x ? x[i] : strided(g->x, i, g->stride_x, g->from),
                 y ? y[i] : strided(g->y, i, g->stride_y, g->to));
    return simblas_end(&op);
}

#define GEMV_BATCHED(L, T, TY, TS, F, FY, FS)                                                      \
    cublasStatus_t cublas##L##gemvBatched(                                                         \
        cublasHandle_t handle, cublasOperation_t trans, int m, int n, const TS *alpha,             \
        const T *const Aarray[], int lda, const T *const xarray[], int incx, const TS *beta,       \
        TY *const yarray[], int incy, int batchCount)                                              \
    {                                                                                              \
        Gemvs g = {trans, m,    n,      lda,    incx,   incy, batchCount, &F, &FY,                 \
                   &FS,   true, Aarray, xarray, yarray, 0,    0,          0};                      \
        return run_gemvs((Call){"cublas" #L "gemvBatched", SITE}, handle, &g, alpha, beta);        \
    }                                                                                              \
    cublasStatus_t cublas##L##gemvStridedBatched(                                                  \
        cublasHandle_t handle, cublasOperation_t trans, int m, int n, const TS *alpha, const T *A, \
        int lda, long long int strideA, const T *x, int incx, long long int stridex,               \
        const TS *beta, TY *y, int incy, long long int stridey, int batchCount)                    \
    {                                                                                              \
        Gemvs g = {trans, m,     n, lda, incx, incy,    batchCount, &F,     &FY,                   \
                   &FS,   false, A, x,   y,    strideA, stridex,    stridey};                      \
        return run_gemvs((Call){"cublas" #L "gemvStridedBatched", SITE}, handle, &g, alpha, beta); \
    }
#define GEMV_BATCHED_ALIKE(L, T) GEMV_BATCHED(L, T, T, T, simblas_##L, simblas_##L, simblas_##L)
FOR_EACH(GEMV_BATCHED_ALIKE)
GEMV_BATCHED(HSH, __half, __half, float, simblas_H, simblas_H, simblas_S)
GEMV_BATCHED(HSS, __half, float, float, simblas_H, simblas_S, simblas_S)
GEMV_BATCHED(TST, __nv_bfloat16, __nv_bfloat16, float, simblas_T, simblas_T, simblas_S)
GEMV_BATCHED(TSS, __nv_bfloat16, float, float, simblas_T, simblas_S, simblas_S)
