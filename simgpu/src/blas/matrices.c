/* matrices.c: a matrix and vectors; sums of matrices, scaled rows or columns; and systems of which
 * the matrix is a triangle, one or a batch.
 */
#include "blas.h"

// ---- gemv: y = alpha·op(A)·x + beta·y ----

// Each element of y is summed in the order of x's elements.
static void matrix_vector(const Matrix *A, cublasOperation_t turn, Number alpha, const Vector *x,
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

static cublasStatus_t run_gemv(Call call, cublasHandle_t handle, cublasOperation_t trans, int m,
                               int n, const void *alpha, const void *A, int lda, const void *X,
                               int incx, const void *beta, void *Y, int incy)
{
    bool turned = trans != CUBLAS_OP_N;
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_turn(call, "trans", trans));
    CHECK(simblas_check_size(call, "m", m));
    CHECK(simblas_check_size(call, "n", n));
    CHECK(simblas_check_leading(call, "lda", lda, m, "m"));
    CHECK(simblas_check_increment(call, "incx", incx));
    CHECK(simblas_check_increment(call, "incy", incy));
    CHECK(simblas_check_pointer(call, "alpha", alpha));
    CHECK(simblas_check_pointer(call, "beta", beta));
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Number first = simblas_scalar(&op, handle, alpha, call.factor);
    Number second = simblas_scalar(&op, handle, beta, call.factor);
    Matrix a = simblas_matrix(call.element, A, m, n, lda);
    Vector x = simblas_vector(call.element, X, turned ? m : n, incx);
    Vector y = simblas_vector(call.element, Y, turned ? n : m, incy);
    if (!is_zero(first)) {
        simblas_touch_matrix(&op, &a, GPU_READ);
        simblas_touch_vector(&op, &x, GPU_READ, false);
    }
    simblas_touch_vector(&op, &y, is_zero(second) ? GPU_WRITE : GPU_UPDATE, false);
    if (simgpu_ready(&op)) matrix_vector(&a, trans, first, &x, second, &y);
    return simblas_end(&op);
}

// ---- ger: A = alpha·x·yᵀ + A, or with the conjugate of y ----

static void update(const Matrix *A, bool conjugated, Number alpha, const Vector *x, const Vector *y)
{
    for (int64_t j = 0; j < A->cols; j++) {
        Number right = conjugated ? conjugate(simblas_get(y, j)) : simblas_get(y, j);
        for (int64_t i = 0; i < A->rows; i++)
            simblas_store(
                A, i, j,
                plus(simblas_load(A, i, j), times(times(alpha, simblas_get(x, i)), right)));
    }
}

static cublasStatus_t rank_1(Call call, cublasHandle_t handle, bool conjugated, int m, int n,
                             const void *alpha, const void *X, int incx, const void *Y, int incy,
                             void *A, int lda)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_size(call, "m", m));
    CHECK(simblas_check_size(call, "n", n));
    CHECK(simblas_check_leading(call, "lda", lda, m, "m"));
    CHECK(simblas_check_increment(call, "incx", incx));
    CHECK(simblas_check_increment(call, "incy", incy));
    CHECK(simblas_check_pointer(call, "alpha", alpha));
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Number factor = simblas_scalar(&op, handle, alpha, call.factor);
    if (is_zero(factor)) return simblas_end(&op);
    Matrix a = simblas_matrix(call.element, A, m, n, lda);
    Vector x = simblas_vector(call.element, X, m, incx);
    Vector y = simblas_vector(call.element, Y, n, incy);
    simblas_touch_vector(&op, &x, GPU_READ, false);
    if (X == Y && incx == incy && m == n)
        y.at = x.at;
    else
        simblas_touch_vector(&op, &y, GPU_READ, false);
    simblas_touch_matrix(&op, &a, GPU_UPDATE);
    if (simgpu_ready(&op)) update(&a, conjugated, factor, &x, &y);
    return simblas_end(&op);
}

static cublasStatus_t run_ger(Call call, cublasHandle_t handle, int m, int n, const void *alpha,
                              const void *x, int incx, const void *y, int incy, void *A, int lda)
{
    return rank_1(call, handle, false, m, n, alpha, x, incx, y, incy, A, lda);
}

static cublasStatus_t run_gerc(Call call, cublasHandle_t handle, int m, int n, const void *alpha,
                               const void *x, int incx, const void *y, int incy, void *A, int lda)
{
    return rank_1(call, handle, true, m, n, alpha, x, incx, y, incy, A, lda);
}

// ---- geam: C = alpha·op(A) + beta·op(B) ----

static cublasStatus_t run_geam(Call call, cublasHandle_t handle, cublasOperation_t transa,
                               cublasOperation_t transb, int m, int n, const void *alpha,
                               const void *A, int lda, const void *beta, const void *B, int ldb,
                               void *C, int ldc)
{
    const Format *f = call.element;
    bool turn_a = transa != CUBLAS_OP_N, turn_b = transb != CUBLAS_OP_N;
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_turn(call, "transa", transa));
    CHECK(simblas_check_turn(call, "transb", transb));
    CHECK(simblas_check_size(call, "m", m));
    CHECK(simblas_check_size(call, "n", n));
    CHECK(simblas_check_leading(call, "lda", lda, turn_a ? n : m, turn_a ? "n" : "m"));
    CHECK(simblas_check_leading(call, "ldb", ldb, turn_b ? n : m, turn_b ? "n" : "m"));
    CHECK(simblas_check_leading(call, "ldc", ldc, m, "m"));
    CHECK(simblas_check_pointer(call, "alpha", alpha));
    CHECK(simblas_check_pointer(call, "beta", beta));
    bool in_place_a = C == A && (turn_a || ldc != lda),
         in_place_b = C == B && (turn_b || ldc != ldb);
    if (in_place_a || in_place_b)
        return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                              "C is %s, which then must not be transposed, nor have another "
                              "leading dimension.",
                              in_place_a ? "A" : "B");
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Number first = simblas_scalar(&op, handle, alpha, call.factor);
    Number second = simblas_scalar(&op, handle, beta, call.factor);
    Matrix a = simblas_matrix(f, A, turn_a ? n : m, turn_a ? m : n, lda);
    Matrix b = simblas_matrix(f, B, turn_b ? n : m, turn_b ? m : n, ldb);
    Matrix c = simblas_matrix(f, C, m, n, ldc);
    if (!is_zero(first)) simblas_touch_matrix(&op, &a, GPU_READ);
    if (!is_zero(second)) simblas_touch_matrix(&op, &b, GPU_READ);
    simblas_touch_matrix(&op, &c, GPU_WRITE);
    for (int64_t j = 0; j < n && simgpu_ready(&op); j++)
        for (int64_t i = 0; i < m; i++) {
            Number x = number(0.0);
            if (!is_zero(first)) x = times(first, simblas_element(&a, transa, i, j));
            if (!is_zero(second)) x = plus(x, times(second, simblas_element(&b, transb, i, j)));
            simblas_store(&c, i, j, x);
        }
    return simblas_end(&op);
}

// ---- dgmm: C = diag(x)·A, or A·diag(x) ----

static cublasStatus_t run_dgmm(Call call, cublasHandle_t handle, cublasSideMode_t mode, int m,
                               int n, const void *A, int lda, const void *X, int incx, void *C,
                               int ldc)
{
    bool left = mode == CUBLAS_SIDE_LEFT, one = incx == 0; // one number for all
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_side(call, mode));
    CHECK(simblas_check_size(call, "m", m));
    CHECK(simblas_check_size(call, "n", n));
    CHECK(simblas_check_leading(call, "lda", lda, m, "m"));
    CHECK(simblas_check_leading(call, "ldc", ldc, m, "m"));
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Matrix a = simblas_matrix(call.element, A, m, n, lda);
    Matrix c = simblas_matrix(call.element, C, m, n, ldc);
    Vector x = simblas_vector(call.element, X, one ? 1 : left ? m : n, one ? 1 : incx);
    simblas_touch_matrix(&op, &a, GPU_READ);
    simblas_touch_vector(&op, &x, GPU_READ, false);
    simblas_touch_matrix(&op, &c, GPU_WRITE);
    for (int64_t j = 0; j < n && simgpu_ready(&op); j++)
        for (int64_t i = 0; i < m; i++) {
            Number factor = simblas_get(&x, one ? 0 : left ? i : j);
            simblas_store(&c, i, j, times(simblas_load(&a, i, j), factor));
        }
    return simblas_end(&op);
}

// ---- trsm: op(A)·X = alpha·B, or X·op(A) = alpha·B, of a triangle A, into B ----

// X is found column by column from the left, row by row from the right, where X·op(A) = B is
// op(A)ᵀ·Xᵀ = Bᵀ; op(A) is copied to double first. False: there is no memory.
static bool solve(const Matrix *A, cublasOperation_t turn, cublasSideMode_t side, Number alpha,
                  const Matrix *B)
{
    bool left = side == CUBLAS_SIDE_LEFT;
    int64_t n = A->rows, systems = left ? B->cols : B->rows;
    bool upper = ((A->part == PART_UPPER) == (turn == CUBLAS_OP_N)) == left;
    if (is_zero(alpha)) { // A is not read
        for (int64_t j = 0; j < B->cols; j++)
            for (int64_t i = 0; i < B->rows; i++) simblas_store(B, i, j, number(0.0));
        return true;
    }
    Planes T = simblas_planes(A, turn, n, n);
    Number *x = T.failed ? NULL : calloc((size_t)n, sizeof *x);
    for (int64_t s = 0; s < systems && x != NULL; s++) {
        for (int64_t step = 0; step < n; step++) {
            int64_t i = upper ? n - 1 - step : step;
            Number rest = times(alpha, left ? simblas_load(B, i, s) : simblas_load(B, s, i));
            for (int64_t j = upper ? i + 1 : 0; j < (upper ? n : i); j++)
                rest = minus(rest, times(left ? in_planes(&T, i, j) : in_planes(&T, j, i), x[j]));
            x[i] = A->unit ? rest : simblas_divide(rest, in_planes(&T, i, i));
        }
        for (int64_t i = 0; i < n; i++) simblas_store(B, left ? i : s, left ? s : i, x[i]);
    }
    bool done = x != NULL;
    free(x);
    simblas_free_planes(&T);
    return done;
}

typedef struct Systems {
    cublasSideMode_t side;
    cublasFillMode_t uplo;
    cublasOperation_t turn;
    cublasDiagType_t diag;
    int m, n, lda, ldb, count;
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

static bool solve_one(SimgpuOp *op, const Format *f, const Systems *s, Number alpha, const void *A,
                      const void *B)
{
    int order = s->side == CUBLAS_SIDE_LEFT ? s->m : s->n;
    Matrix triangle = simblas_matrix(f, A, order, order, s->lda);
    Matrix right = simblas_matrix(f, B, s->m, s->n, s->ldb);
    triangle.part = s->uplo == CUBLAS_FILL_MODE_UPPER ? PART_UPPER : PART_LOWER;
    triangle.unit = s->diag == CUBLAS_DIAG_UNIT;
    if (!is_zero(alpha)) simblas_touch_matrix(op, &triangle, GPU_READ);
    simblas_touch_matrix(op, &right, is_zero(alpha) ? GPU_WRITE : GPU_UPDATE);
    return !simgpu_ready(op) || solve(&triangle, s->turn, s->side, alpha, &right);
}

static cublasStatus_t run_trsm(Call call, cublasHandle_t handle, cublasSideMode_t side,
                               cublasFillMode_t uplo, cublasOperation_t trans,
                               cublasDiagType_t diag, int m, int n, const void *alpha,
                               const void *A, int lda, void *B, int ldb)
{
    Systems s = {side, uplo, trans, diag, m, n, lda, ldb, 1};
    CHECK(check_systems(call, handle, &s, alpha));
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Number factor = simblas_scalar(&op, handle, alpha, call.factor);
    bool done = solve_one(&op, call.element, &s, factor, A, B);
    return simblas_finish(call, &op, done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED);
}

static cublasStatus_t run_trsm_batched(Call call, cublasHandle_t handle, cublasSideMode_t side,
                                       cublasFillMode_t uplo, cublasOperation_t trans,
                                       cublasDiagType_t diag, int m, int n, const void *alpha,
                                       const void *A, int lda, const void *B, int ldb, int count)
{
    Systems s = {side, uplo, trans, diag, m, n, lda, ldb, count};
    CHECK(check_systems(call, handle, &s, alpha));
    if (m == 0 || n == 0 || count == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Number factor = simblas_scalar(&op, handle, alpha, call.factor);
    const void *const *a = simblas_pointers(&op, A, count);
    const void *const *b = simblas_pointers(&op, B, count);
    Matrix form = simblas_matrix(call.element, NULL, m, n, ldb);
    simblas_check_pointers(&op, &form, b, count);
    bool done = true, known = a && b; // a dry run may not know them
    for (int i = 0; i < count && known && !op.error && done; i++)
        done = solve_one(&op, call.element, &s, factor, a[i], b[i]);
    return simblas_finish(call, &op, done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED);
}

SIMGPU_CUBLAS_MATRICES(SIMBLAS_DEFINE)
