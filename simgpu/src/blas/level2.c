/* level2.c: a matrix and vectors: products, triangular systems, and updates of rank 1 and 2.
 *
 * A matrix may be stored in full, as a band or packed, and be general, triangular, symmetric or
 * Hermitian: operand.c knows which element is where, so one loop serves them all.
 *
 * Interface: cublas?gemv, ?gbmv, ?symv, ?sbmv, ?spmv, ?hemv, ?hbmv, ?hpmv; ?trmv, ?tbmv, ?tpmv;
 * ?trsv, ?tbsv, ?tpsv; ?ger, ?geru, ?gerc; ?syr, ?spr, ?her, ?hpr; ?syr2, ?spr2, ?her2, ?hpr2;
 * simblas_matrix_vector.
 */
#include "blas.h"

static Vector vector(const void *x, const Format *f, int64_t n, int64_t inc)
{
    return (Vector){x, f, n, inc, NULL};
}

// A square matrix of which one triangle is stored.
static Matrix triangle(const void *A, const Format *f, int64_t n, int64_t ld, Layout layout,
                       cublasFillMode_t uplo, Others others)
{
    return (Matrix){.ptr = A,
                    .format = f,
                    .rows = n,
                    .cols = n,
                    .ld = ld,
                    .layout = layout,
                    .part = simblas_part(uplo),
                    .others = others};
}

// The same with k diagonals apart from the main one.
static Matrix band(const void *A, const Format *f, int64_t n, int64_t k, int64_t ld,
                   cublasFillMode_t uplo, Others others)
{
    Matrix m = triangle(A, f, n, ld, LAYOUT_BAND, uplo, others);
    if (m.part == PART_UPPER)
        m.above = k;
    else
        m.below = k;
    return m;
}

static cublasStatus_t check_matrix(Call call, const Matrix *A)
{
    CHECK(simblas_check_size(call, "m", A->rows));
    CHECK(simblas_check_size(call, "n", A->cols));
    CHECK(simblas_check_size(call, "k", A->above + A->below));
    if (A->layout == LAYOUT_FULL)
        return simblas_check_leading(call, "lda", A->ld, A->rows, A->part ? "n" : "m");
    if (A->layout == LAYOUT_BAND)
        return simblas_check_leading(call, "lda", A->ld, A->below + A->above + 1,
                                     "one for each diagonal of the band");
    return CUBLAS_STATUS_SUCCESS;
}

// ---- y = alpha·op(A)·x + beta·y ----

// Each element of y is summed in the order of x's elements.
void simblas_matrix_vector(const Matrix *A, cublasOperation_t turn, Number alpha, const Vector *x,
                           Number beta, const Vector *y)
{
    for (int64_t i = 0; i < y->n; i++) {
        Number sum = number(0.0);
        for (int64_t j = 0; j < x->n && !is_zero(alpha); j++)
            sum = plus(sum, times(simblas_element(A, turn, i, j), simblas_get(x, j)));
        sum = is_zero(alpha) ? number(0.0) : times(alpha, sum);
        if (!is_zero(beta)) sum = plus(sum, times(beta, simblas_get(y, i)));
        simblas_put(y, i, sum);
    }
}

static cublasStatus_t multiply(Call call, cublasHandle_t handle, Matrix A, cublasOperation_t turn,
                               const void *alpha, const void *x, int64_t incx, const void *beta,
                               const void *y, int64_t incy)
{
    const Format *f = A.format;
    bool turned = turn != CUBLAS_OP_N;
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_turn(call, "trans", turn));
    CHECK(check_matrix(call, &A));
    CHECK(simblas_check_increment(call, "incx", incx));
    CHECK(simblas_check_increment(call, "incy", incy));
    CHECK(simblas_check_pointer(call, "alpha", alpha));
    CHECK(simblas_check_pointer(call, "beta", beta));
    if (A.rows == 0 || A.cols == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Number a = simblas_scalar(&op, handle, alpha, f), b = simblas_scalar(&op, handle, beta, f);
    Vector from = vector(x, f, turned ? A.rows : A.cols, incx);
    Vector to = vector(y, f, turned ? A.cols : A.rows, incy);
    if (!is_zero(a)) {
        simblas_touch_matrix(&op, &A, GPU_READ);
        simblas_touch_vector(&op, &from, GPU_READ, false);
    }
    simblas_touch_vector(&op, &to, is_zero(b) ? GPU_WRITE : GPU_UPDATE, false);
    if (simgpu_ready(&op)) simblas_matrix_vector(&A, turn, a, &from, b, &to);
    return simblas_end(&op);
}

#define GEMV(I, E, L, T)                                                                           \
    cublasStatus_t cublas##L##gemv_v2##E(cublasHandle_t handle, cublasOperation_t trans, I m, I n, \
                                         const T *alpha, const T *A, I lda, const T *x, I incx,    \
                                         const T *beta, T *y, I incy)                              \
    {                                                                                              \
        Matrix a = {.ptr = A, .format = &simblas_##L, .rows = m, .cols = n, .ld = lda};            \
        return multiply((Call){"cublas" #L "gemv" #E, SITE}, handle, a, trans, alpha, x, incx,     \
                        beta, y, incy);                                                            \
    }                                                                                              \
    cublasStatus_t cublas##L##gbmv_v2##E(cublasHandle_t handle, cublasOperation_t trans, I m, I n, \
                                         I kl, I ku, const T *alpha, const T *A, I lda,            \
                                         const T *x, I incx, const T *beta, T *y, I incy)          \
    {                                                                                              \
        Call call = {"cublas" #L "gbmv" #E, SITE};                                                 \
        Matrix a = {.ptr = A,                                                                      \
                    .format = &simblas_##L,                                                        \
                    .rows = m,                                                                     \
                    .cols = n,                                                                     \
                    .ld = lda,                                                                     \
                    .layout = LAYOUT_BAND,                                                         \
                    .below = kl,                                                                   \
                    .above = ku};                                                                  \
        CHECK(simblas_check_size(call, "kl", kl));                                                 \
        CHECK(simblas_check_size(call, "ku", ku));                                                 \
        return multiply(call, handle, a, trans, alpha, x, incx, beta, y, incy);                    \
    }
FOR_EACH(GEMV)

// A of one triangle; the other one is its mirror.
#define SYMV(I, E, L, T, full, others)                                                             \
    cublasStatus_t cublas##L##full##_v2##E(cublasHandle_t handle, cublasFillMode_t uplo, I n,      \
                                           const T *alpha, const T *A, I lda, const T *x, I incx,  \
                                           const T *beta, T *y, I incy)                            \
    {                                                                                              \
        Call call = {"cublas" #L#full #E, SITE};                                                   \
        Matrix a = triangle(A, &simblas_##L, n, lda, LAYOUT_FULL, uplo, others);                   \
        CHECK(simblas_check_fill(call, uplo));                                                     \
        return multiply(call, handle, a, CUBLAS_OP_N, alpha, x, incx, beta, y, incy);              \
    }
#define SBMV(I, E, L, T, banded, others)                                                           \
    cublasStatus_t cublas##L##banded##_v2##E(cublasHandle_t handle, cublasFillMode_t uplo, I n,    \
                                             I k, const T *alpha, const T *A, I lda, const T *x,   \
                                             I incx, const T *beta, T *y, I incy)                  \
    {                                                                                              \
        Call call = {"cublas" #L#banded #E, SITE};                                                 \
        CHECK(simblas_check_fill(call, uplo));                                                     \
        CHECK(simblas_check_size(call, "k", k));                                                   \
        Matrix a = band(A, &simblas_##L, n, k, lda, uplo, others);                                 \
        return multiply(call, handle, a, CUBLAS_OP_N, alpha, x, incx, beta, y, incy);              \
    }
#define SPMV(I, E, L, T, packed, others)                                                           \
    cublasStatus_t cublas##L##packed##_v2##E(cublasHandle_t handle, cublasFillMode_t uplo, I n,    \
                                             const T *alpha, const T *AP, const T *x, I incx,      \
                                             const T *beta, T *y, I incy)                          \
    {                                                                                              \
        Call call = {"cublas" #L#packed #E, SITE};                                                 \
        Matrix a = triangle(AP, &simblas_##L, n, 0, LAYOUT_PACKED, uplo, others);                  \
        CHECK(simblas_check_fill(call, uplo));                                                     \
        return multiply(call, handle, a, CUBLAS_OP_N, alpha, x, incx, beta, y, incy);              \
    }
#define SYMMETRIC_MV(I, E, L, T) SYMV(I, E, L, T, symv, OTHERS_MIRRORED)
#define SYMMETRIC_BAND_MV(I, E, L, T)                                                              \
    SBMV(I, E, L, T, sbmv, OTHERS_MIRRORED) SPMV(I, E, L, T, spmv, OTHERS_MIRRORED)
#define HERMITIAN_MV(I, E, L, T)                                                                   \
    SYMV(I, E, L, T, hemv, OTHERS_CONJUGATED)                                                      \
    SBMV(I, E, L, T, hbmv, OTHERS_CONJUGATED)                                                      \
    SPMV(I, E, L, T, hpmv, OTHERS_CONJUGATED)
FOR_EACH(SYMMETRIC_MV)
FOR_REAL(SYMMETRIC_BAND_MV)
FOR_COMPLEX(HERMITIAN_MV)

// ---- x = op(A)·x, and x = op(A)⁻¹·x, for a triangle ----

// Whether op(A) is upper: then x is worked off from its first element in a product, from its last
// in a system.
static bool is_upper(const Matrix *A, cublasOperation_t turn)
{
    return (A->part == PART_UPPER) == (turn == CUBLAS_OP_N);
}

static bool multiply_in_place(const Matrix *A, cublasOperation_t turn, const Vector *x)
{
    bool upper = is_upper(A, turn);
    for (int64_t step = 0; step < x->n; step++) {
        int64_t i = upper ? step : x->n - 1 - step;
        Number sum = number(0.0);
        for (int64_t j = upper ? i : 0; j < (upper ? x->n : i + 1); j++)
            sum = plus(sum, times(simblas_element(A, turn, i, j), simblas_get(x, j)));
        simblas_put(x, i, sum);
    }
    return true;
}

// The unknowns are kept in double until all are known. False: there is no memory for them.
static bool solve_in_place(const Matrix *A, cublasOperation_t turn, const Vector *x)
{
    bool upper = is_upper(A, turn);
    Number *known = calloc((size_t)x->n, sizeof *known);
    if (known == NULL) return false;
    for (int64_t step = 0; step < x->n; step++) {
        int64_t i = upper ? x->n - 1 - step : step;
        Number rest = simblas_get(x, i);
        for (int64_t j = upper ? i + 1 : 0; j < (upper ? x->n : i); j++)
            rest = minus(rest, times(simblas_element(A, turn, i, j), known[j]));
        known[i] = A->unit ? rest : simblas_divide(rest, simblas_element(A, turn, i, i));
    }
    for (int64_t i = 0; i < x->n; i++) simblas_put(x, i, known[i]);
    free(known);
    return true;
}

static cublasStatus_t apply_triangle(Call call, cublasHandle_t handle, Matrix A, int64_t k,
                                     cublasFillMode_t uplo, cublasOperation_t turn,
                                     cublasDiagType_t diag, const void *x, int64_t incx, bool solve)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_fill(call, uplo));
    CHECK(simblas_check_turn(call, "trans", turn));
    CHECK(simblas_check_diagonal(call, diag));
    CHECK(simblas_check_size(call, "k", k));
    CHECK(check_matrix(call, &A));
    CHECK(simblas_check_increment(call, "incx", incx));
    if (A.rows == 0) return CUBLAS_STATUS_SUCCESS;
    A.unit = diag == CUBLAS_DIAG_UNIT;
    SimgpuOp op = simblas_begin(call, handle);
    Vector v = vector(x, A.format, A.rows, incx);
    simblas_touch_matrix(&op, &A, GPU_READ);
    simblas_touch_vector(&op, &v, GPU_UPDATE, false);
    bool done = true;
    if (simgpu_ready(&op)) done = (solve ? solve_in_place : multiply_in_place)(&A, turn, &v);
    return simblas_finish(call, &op, done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED);
}

#define TRIANGLE(I, E, L, T, full, banded, packed, solve)                                          \
    cublasStatus_t cublas##L##full##_v2##E(cublasHandle_t handle, cublasFillMode_t uplo,           \
                                           cublasOperation_t trans, cublasDiagType_t diag, I n,    \
                                           const T *A, I lda, T *x, I incx)                        \
    {                                                                                              \
        Matrix a = triangle(A, &simblas_##L, n, lda, LAYOUT_FULL, uplo, OTHERS_ZERO);              \
        return apply_triangle((Call){"cublas" #L#full #E, SITE}, handle, a, 0, uplo, trans, diag,  \
                              x, incx, solve);                                                     \
    }                                                                                              \
    cublasStatus_t cublas##L##banded##_v2##E(cublasHandle_t handle, cublasFillMode_t uplo,         \
                                             cublasOperation_t trans, cublasDiagType_t diag, I n,  \
                                             I k, const T *A, I lda, T *x, I incx)                 \
    {                                                                                              \
        Matrix a = band(A, &simblas_##L, n, k, lda, uplo, OTHERS_ZERO);                            \
        return apply_triangle((Call){"cublas" #L#banded #E, SITE}, handle, a, k, uplo, trans,      \
                              diag, x, incx, solve);                                               \
    }                                                                                              \
    cublasStatus_t cublas##L##packed##_v2##E(cublasHandle_t handle, cublasFillMode_t uplo,         \
                                             cublasOperation_t trans, cublasDiagType_t diag, I n,  \
                                             const T *AP, T *x, I incx)                            \
    {                                                                                              \
        Matrix a = triangle(AP, &simblas_##L, n, 0, LAYOUT_PACKED, uplo, OTHERS_ZERO);             \
        return apply_triangle((Call){"cublas" #L#packed #E, SITE}, handle, a, 0, uplo, trans,      \
                              diag, x, incx, solve);                                               \
    }
#define TRIANGLES(I, E, L, T)                                                                      \
    TRIANGLE(I, E, L, T, trmv, tbmv, tpmv, false)                                                  \
    TRIANGLE(I, E, L, T, trsv, tbsv, tpsv, true)
FOR_EACH(TRIANGLES)

// ---- A = alpha·x·yᵀ + A, and with both vectors in both places ----

// What an update of rank 1 or 2 adds: alpha·x·op(y), and then (second) op'd alpha·y·op(x).
typedef struct Update {
    bool conjugated, second;
} Update;

static Number outer(const Update *u, Number alpha, const Vector *x, const Vector *y, int64_t i,
                    int64_t j)
{
    Number right = simblas_get(y, j);
    return times(times(alpha, simblas_get(x, i)), u->conjugated ? conjugate(right) : right);
}

static void update(const Matrix *A, const Update *u, Number alpha, const Vector *x, const Vector *y)
{
    bool hermitian = A->others == OTHERS_CONJUGATED;
    for (int64_t j = 0; j < A->cols; j++) {
        int64_t first, last;
        simblas_stored(A, j, &first, &last);
        for (int64_t i = first; i < last; i++) {
            Number sum = plus(simblas_load(A, i, j), outer(u, alpha, x, y, i, j));
            if (u->second)
                sum = plus(sum, outer(u, hermitian ? conjugate(alpha) : alpha, y, x, i, j));
            simblas_store(A, i, j, hermitian && i == j ? number(sum.re) : sum);
        }
    }
}

static cublasStatus_t run_update(Call call, cublasHandle_t handle, Matrix A, const Update *u,
                                 const Format *factor, const void *alpha, const void *x,
                                 int64_t incx, const void *y, int64_t incy)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(check_matrix(call, &A));
    CHECK(simblas_check_increment(call, "incx", incx));
    CHECK(simblas_check_increment(call, "incy", incy));
    CHECK(simblas_check_pointer(call, "alpha", alpha));
    if (A.rows == 0 || A.cols == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Number a = simblas_scalar(&op, handle, alpha, factor);
    Vector left = vector(x, A.format, A.rows, incx), right = vector(y, A.format, A.cols, incy);
    if (!is_zero(a)) {
        simblas_touch_vector(&op, &left, GPU_READ, false);
        if (x == y && incx == incy && A.rows == A.cols)
            right.at = left.at;
        else
            simblas_touch_vector(&op, &right, GPU_READ, false);
        simblas_touch_matrix(&op, &A, GPU_UPDATE);
        if (simgpu_ready(&op)) update(&A, u, a, &left, &right);
    }
    return simblas_end(&op);
}

#define GER(I, E, L, T, name, conjugated)                                                          \
    cublasStatus_t cublas##L##name##_v2##E(cublasHandle_t handle, I m, I n, const T *alpha,        \
                                           const T *x, I incx, const T *y, I incy, T *A, I lda)    \
    {                                                                                              \
        Matrix a = {.ptr = A, .format = &simblas_##L, .rows = m, .cols = n, .ld = lda};            \
        return run_update((Call){"cublas" #L#name #E, SITE}, handle, a,                            \
                          &(Update){conjugated, false}, &simblas_##L, alpha, x, incx, y, incy);    \
    }
#define GER_REAL(I, E, L, T) GER(I, E, L, T, ger, false)
#define GER_COMPLEX(I, E, L, T) GER(I, E, L, T, geru, false) GER(I, E, L, T, gerc, true)
FOR_REAL(GER_REAL)
FOR_COMPLEX(GER_COMPLEX)

// Of one triangle. TA is the type of alpha, which a Hermitian update of rank 1 has real.
#define SYR(I, E, L, T, TA, FA, name, others)                                                      \
    cublasStatus_t cublas##L##name##_v2##E(cublasHandle_t handle, cublasFillMode_t uplo, I n,      \
                                           const TA *alpha, const T *x, I incx, T *A, I lda)       \
    {                                                                                              \
        Call call = {"cublas" #L#name #E, SITE};                                                   \
        Matrix a = triangle(A, &simblas_##L, n, lda, LAYOUT_FULL, uplo, others);                   \
        CHECK(simblas_check_fill(call, uplo));                                                     \
        return run_update(call, handle, a, &(Update){(others) == OTHERS_CONJUGATED, false}, &FA,   \
                          alpha, x, incx, x, incx);                                                \
    }
#define SPR(I, E, L, T, TA, FA, name, others)                                                      \
    cublasStatus_t cublas##L##name##_v2##E(cublasHandle_t handle, cublasFillMode_t uplo, I n,      \
                                           const TA *alpha, const T *x, I incx, T *AP)             \
    {                                                                                              \
        Call call = {"cublas" #L#name #E, SITE};                                                   \
        Matrix a = triangle(AP, &simblas_##L, n, 0, LAYOUT_PACKED, uplo, others);                  \
        CHECK(simblas_check_fill(call, uplo));                                                     \
        return run_update(call, handle, a, &(Update){(others) == OTHERS_CONJUGATED, false}, &FA,   \
                          alpha, x, incx, x, incx);                                                \
    }
#define SYR2(I, E, L, T, name, others)                                                             \
    cublasStatus_t cublas##L##name##_v2##E(cublasHandle_t handle, cublasFillMode_t uplo, I n,      \
                                           const T *alpha, const T *x, I incx, const T *y, I incy, \
                                           T *A, I lda)                                            \
    {                                                                                              \
        Call call = {"cublas" #L#name #E, SITE};                                                   \
        Matrix a = triangle(A, &simblas_##L, n, lda, LAYOUT_FULL, uplo, others);                   \
        CHECK(simblas_check_fill(call, uplo));                                                     \
        return run_update(call, handle, a, &(Update){(others) == OTHERS_CONJUGATED, true},         \
                          &simblas_##L, alpha, x, incx, y, incy);                                  \
    }
#define SPR2(I, E, L, T, name, others)                                                             \
    cublasStatus_t cublas##L##name##_v2##E(cublasHandle_t handle, cublasFillMode_t uplo, I n,      \
                                           const T *alpha, const T *x, I incx, const T *y, I incy, \
                                           T *AP)                                                  \
    {                                                                                              \
        Call call = {"cublas" #L#name #E, SITE};                                                   \
        Matrix a = triangle(AP, &simblas_##L, n, 0, LAYOUT_PACKED, uplo, others);                  \
        CHECK(simblas_check_fill(call, uplo));                                                     \
        return run_update(call, handle, a, &(Update){(others) == OTHERS_CONJUGATED, true},         \
                          &simblas_##L, alpha, x, incx, y, incy);                                  \
    }
#define SYMMETRIC_UPDATES(I, E, L, T)                                                              \
    SYR(I, E, L, T, T, simblas_##L, syr, OTHERS_MIRRORED)                                          \
    SYR2(I, E, L, T, syr2, OTHERS_MIRRORED)
#define PACKED_UPDATES(I, E, L, T)                                                                 \
    SPR(I, E, L, T, T, simblas_##L, spr, OTHERS_MIRRORED)                                          \
    SPR2(I, E, L, T, spr2, OTHERS_MIRRORED)
#define HERMITIAN_UPDATES(I, E, L, T, TR, FR)                                                      \
    SYR(I, E, L, T, TR, FR, her, OTHERS_CONJUGATED)                                                \
    SPR(I, E, L, T, TR, FR, hpr, OTHERS_CONJUGATED)                                                \
    SYR2(I, E, L, T, her2, OTHERS_CONJUGATED)                                                      \
    SPR2(I, E, L, T, hpr2, OTHERS_CONJUGATED)
FOR_EACH(SYMMETRIC_UPDATES)
FOR_REAL(PACKED_UPDATES)
FOR_SIZES(HERMITIAN_UPDATES, C, cuComplex, float, simblas_S)
FOR_SIZES(HERMITIAN_UPDATES, Z, cuDoubleComplex, double, simblas_D)
