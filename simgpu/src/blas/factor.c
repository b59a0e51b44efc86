/* factor.c: factorises batches of square matrices, P·A = L·U, and solves systems with the factors.
 * Each is computed in double, in the order of LAPACK's unblocked routines, and rounded once.
 *
 * For a wrong argument, `info` on the host is its negative place among the arguments, without the
 * handle. `info` in device memory has for each matrix the first column whose pivot is 0, counted
 * from 1, or 0.
 */
#include <math.h>
#include <string.h>

#include "blas.h"

// ---- Matrices to work on ----

// A matrix in double, to be worked on: (rows, cols), column by column.
typedef struct Work {
    int64_t rows, cols;
    Number *x;
} Work;

static inline Number *in_work(const Work *w, int64_t row, int64_t col)
{
    return &w->x[col * w->rows + row];
}

// False: there is no memory.
static bool take(Work *w, const Matrix *m)
{
    *w = (Work){m->rows, m->cols, calloc((size_t)m->rows * (size_t)m->cols + 1, sizeof(Number))};
    for (int64_t j = 0; j < m->cols && w->x != NULL; j++)
        for (int64_t i = 0; i < m->rows; i++) *in_work(w, i, j) = simblas_load(m, i, j);
    return w->x != NULL;
}

static void give(const Work *w, const Matrix *m)
{
    for (int64_t j = 0; j < m->cols; j++)
        for (int64_t i = 0; i < m->rows; i++) simblas_store(m, i, j, *in_work(w, i, j));
}

// Solves T·x = b into b, of a triangle of w; its diagonal counts as ones where `unit`.
static void solve_triangle(const Work *w, bool upper, bool unit, Number *b)
{
    int64_t n = w->rows;
    for (int64_t step = 0; step < n; step++) {
        int64_t j = upper ? n - 1 - step : step;
        if (!unit) b[j] = simblas_divide(b[j], *in_work(w, j, j));
        for (int64_t i = upper ? 0 : j + 1; i < (upper ? j : n); i++)
            b[i] = minus(b[i], times(*in_work(w, i, j), b[j]));
    }
}

// The same with the transpose of the triangle, or its conjugate.
static void solve_transposed(const Work *w, bool upper, bool unit, bool conjugated, Number *b)
{
    for (int64_t step = 0; step < w->rows; step++) {
        int64_t j = upper ? step : w->rows - 1 - step;
        Number rest = b[j], diagonal = *in_work(w, j, j);
        for (int64_t i = upper ? 0 : j + 1; i < (upper ? j : w->rows); i++) {
            Number x = *in_work(w, i, j);
            rest = minus(rest, times(conjugated ? conjugate(x) : x, b[i]));
        }
        b[j] = unit ? rest : simblas_divide(rest, conjugated ? conjugate(diagonal) : diagonal);
    }
}

static void swap_numbers(Number *a, Number *b)
{
    Number was = *a;
    *a = *b;
    *b = was;
}

// ---- P·A = L·U ----

// In place; without pivots, rows stay where they are. Pivots are counted from 1, as is the first
// column without one, which is handed back; 0: all have one.
static int factor(const Work *w, int *pivots)
{
    int64_t n = w->rows;
    int singular = 0;
    for (int64_t j = 0; j < n; j++) {
        int64_t pivot = j;
        for (int64_t i = j + 1; i < n && pivots != NULL; i++) {
            Number x = *in_work(w, i, j), best = *in_work(w, pivot, j);
            if (fabs(x.re) + fabs(x.im) > fabs(best.re) + fabs(best.im)) pivot = i;
        }
        if (pivots != NULL) pivots[j] = (int)pivot + 1;
        if (is_zero(*in_work(w, pivot, j))) {
            if (singular == 0) singular = (int)j + 1;
            continue;
        }
        for (int64_t c = 0; c < n && pivot != j; c++)
            swap_numbers(in_work(w, j, c), in_work(w, pivot, c));
        for (int64_t i = j + 1; i < n; i++) {
            Number *x = in_work(w, i, j);
            *x = simblas_divide(*x, *in_work(w, j, j));
            for (int64_t c = j + 1; c < n; c++) {
                Number *y = in_work(w, i, c);
                *y = minus(*y, times(*x, *in_work(w, j, c)));
            }
        }
    }
    return singular;
}

static void exchange(const int *pivots, int64_t n, bool back, Number *b)
{
    for (int64_t step = 0; step < n && pivots != NULL; step++) {
        int64_t i = back ? n - 1 - step : step;
        if (pivots[i] - 1 != i) swap_numbers(&b[i], &b[pivots[i] - 1]);
    }
}

static int first_zero(const Work *w)
{
    for (int64_t j = 0; j < w->rows; j++)
        if (is_zero(*in_work(w, j, j))) return (int)j + 1;
    return 0;
}

// Column by column; `out` is another matrix. The number of the first column without a pivot, which
// leaves `out` as it is.
static int invert(const Work *w, const int *pivots, const Work *out)
{
    int singular = first_zero(w);
    for (int64_t j = 0; j < w->rows && singular == 0; j++) {
        Number *column = in_work(out, 0, j);
        for (int64_t i = 0; i < w->rows; i++) column[i] = number(i == j ? 1.0 : 0.0);
        exchange(pivots, w->rows, false, column);
        solve_triangle(w, false, true, column);
        solve_triangle(w, true, false, column);
    }
    return singular;
}

// ---- A batch ----

// The arguments of a call; B is the right-hand side of getrs, or the place for an inverse. The
// arrays are in device memory.
typedef struct Factors {
    Call call;
    int n, columns, lda, ldb, count; // columns of B
    const void *A, *B;
    int *pivots, *info;
    cublasOperation_t turn;
    bool in_factors; // what is to be inverted
    // What is done to one matrix; false: there is no memory.
    bool (*work)(const struct Factors *f, const Matrix *A, const Matrix *B, int *pivots, int *info);
    GpuAccess a_access, b_access, pivot_access;
} Factors;

static bool factor_one(const Factors *f, const Matrix *A, const Matrix *B, int *pivots, int *info)
{
    Work w;
    if (!take(&w, A)) return false;
    *info = factor(&w, pivots);
    give(&w, A);
    free(w.x);
    return true;
}

static bool invert_one(const Factors *f, const Matrix *A, const Matrix *B, int *pivots, int *info)
{
    Work w, out = {A->rows, A->cols, calloc((size_t)(A->rows * A->cols) + 1, sizeof(Number))};
    int *own = NULL;
    bool done = take(&w, A) && out.x != NULL;
    if (done && !f->in_factors) {
        own = pivots = calloc((size_t)A->rows + 1, sizeof *own);
        done = own != NULL;
        if (done) factor(&w, own);
    }
    if (done) *info = invert(&w, pivots, &out);
    if (done && *info == 0) give(&out, B);
    free(own);
    free(w.x);
    free(out.x);
    return done;
}

static bool solve_one(const Factors *f, const Matrix *A, const Matrix *B, int *pivots, int *info)
{
    Work w, right = {0};
    bool done = take(&w, A) && take(&right, B), as_is = f->turn == CUBLAS_OP_N;
    bool conjugated = f->turn == CUBLAS_OP_C;
    for (int64_t j = 0; j < B->cols && done; j++) {
        Number *x = in_work(&right, 0, j);
        if (as_is) {
            exchange(pivots, A->rows, false, x);
            solve_triangle(&w, false, true, x);
            solve_triangle(&w, true, false, x);
        } else {
            solve_transposed(&w, true, false, conjugated, x);
            solve_transposed(&w, false, true, conjugated, x);
            exchange(pivots, A->rows, true, x);
        }
    }
    if (done) give(&right, B);
    free(w.x);
    free(right.x);
    return done;
}

static cublasStatus_t check_pivots(const Factors *f, const int *pivots)
{
    for (int i = 0; i < f->count; i++)
        for (int j = 0; j < f->n; j++) {
            int pivot = pivots[(size_t)i * (size_t)f->n + (size_t)j];
            if (pivot > j && pivot <= f->n) continue;
            return simblas_refuse(f->call, CUBLAS_STATUS_EXECUTION_FAILED,
                                  "pivot %d of matrix %d is %d; it must be a row from %d to %d.\n"
                                  "Was it made by getrfBatched, with the same n?",
                                  j + 1, i, pivot, j + 1, f->n);
        }
    return CUBLAS_STATUS_SUCCESS;
}

static void *touch_ints(SimgpuOp *op, const int *ints, size_t n, GpuAccess access)
{
    if (!sim_check_aligned(op, ints, n * sizeof *ints, sizeof *ints)) return NULL;
    return sim_touch(op, ints, n * sizeof *ints, access, false);
}

static cublasStatus_t run_batch(cublasHandle_t handle, const Factors *f)
{
    if (f->n == 0 || f->count == 0 || f->columns == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(f->call, handle);
    size_t n = (size_t)f->n, count = (size_t)f->count;
    const void *const *A = simblas_pointers(&op, f->A, f->count);
    const void *const *B = f->B ? simblas_pointers(&op, f->B, f->count) : A;
    int *pivots = f->pivots ? touch_ints(&op, f->pivots, n * count, f->pivot_access) : NULL;
    int *info = f->info ? touch_ints(&op, f->info, count, GPU_WRITE) : NULL;
    cublasStatus_t done = CUBLAS_STATUS_SUCCESS;
    if (pivots != NULL && f->pivot_access == GPU_READ && simgpu_ready(&op))
        done = check_pivots(f, pivots);
    Matrix form = simblas_matrix(f->call.element, NULL, f->n, f->B ? f->columns : f->n,
                                 f->B ? f->ldb : f->lda);
    simblas_check_pointers(&op, &form, B, f->count);
    bool known = A && B; // a dry run may not know them
    for (size_t i = 0; i < count && known && done == CUBLAS_STATUS_SUCCESS && !op.error; i++) {
        int own_info = 0;
        Matrix a = simblas_matrix(f->call.element, A[i], f->n, f->n, f->lda);
        Matrix b = simblas_matrix(f->call.element, B[i], f->n, f->columns, f->ldb);
        simblas_touch_matrix(&op, &a, f->a_access);
        if (f->B) simblas_touch_matrix(&op, &b, f->b_access);
        if (!simgpu_ready(&op)) continue;
        if (!f->work(f, &a, &b, pivots ? pivots + i * n : NULL, info ? &info[i] : &own_info))
            done = CUBLAS_STATUS_ALLOC_FAILED;
    }
    return simblas_finish(f->call, &op, done);
}

// ---- The calls ----

static cublasStatus_t check_order(const Factors *f, cublasHandle_t handle, const char *ld,
                                  const char *ldb)
{
    CHECK(simblas_check_handle(f->call, handle));
    CHECK(simblas_check_size(f->call, "n", f->n));
    CHECK(simblas_check_leading(f->call, ld, f->lda, f->n, "n"));
    if (ldb != NULL) CHECK(simblas_check_leading(f->call, ldb, f->ldb, f->n, "n"));
    return simblas_check_size(f->call, "batchSize", f->count);
}

static cublasStatus_t run_getrf(Call call, cublasHandle_t handle, int n, const void *A, int lda,
                                int *P, int *info, int count)
{
    Factors f = {.call = call, .n = n, .columns = n, .lda = lda, .count = count};
    f.A = A;
    f.pivots = P;
    f.info = info;
    f.work = factor_one;
    f.a_access = GPU_UPDATE;
    f.pivot_access = GPU_WRITE;
    CHECK(check_order(&f, handle, "lda", NULL));
    CHECK(simblas_check_pointer(call, "info", info));
    return run_batch(handle, &f);
}

static cublasStatus_t run_getri(Call call, cublasHandle_t handle, int n, const void *A, int lda,
                                const int *P, const void *C, int ldc, int *info, int count)
{
    Factors f = {.call = call, .n = n, .columns = n, .lda = lda, .ldb = ldc, .count = count};
    f.A = A;
    f.B = C;
    f.pivots = (int *)P;
    f.info = info;
    f.in_factors = true;
    f.work = invert_one;
    f.a_access = f.pivot_access = GPU_READ;
    f.b_access = GPU_WRITE;
    CHECK(check_order(&f, handle, "lda", "ldc"));
    CHECK(simblas_check_pointer(call, "info", info));
    return run_batch(handle, &f);
}

enum { MOST_TO_INVERT = 32 };
static cublasStatus_t run_matinv(Call call, cublasHandle_t handle, int n, const void *A, int lda,
                                 const void *inverse, int lda_inv, int *info, int count)
{
    Factors f = {.call = call, .n = n, .columns = n, .lda = lda, .ldb = lda_inv, .count = count};
    f.A = A;
    f.B = inverse;
    f.info = info;
    f.work = invert_one;
    f.a_access = GPU_READ;
    f.b_access = GPU_WRITE;
    CHECK(check_order(&f, handle, "lda", "lda_inv"));
    CHECK(simblas_check_pointer(call, "info", info));
    if (n > MOST_TO_INVERT)
        return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                              "n is %d, more than %d: larger matrices are inverted by getrfBatched "
                              "and getriBatched.",
                              n, MOST_TO_INVERT);
    return run_batch(handle, &f);
}

// The place of the first wrong argument among those after the handle; 0: there is none.
static int wrong_in_getrs(const Factors *f)
{
    int least = f->n > 1 ? f->n : 1;
    if (f->turn != CUBLAS_OP_N && f->turn != CUBLAS_OP_T && f->turn != CUBLAS_OP_C) return 1;
    if (f->n < 0) return 2;
    if (f->columns < 0) return 3;
    if (f->lda < least) return 5;
    if (f->ldb < least) return 8;
    return f->count < 0 ? 10 : 0;
}

static cublasStatus_t run_getrs(Call call, cublasHandle_t handle, cublasOperation_t trans, int n,
                                int nrhs, const void *A, int lda, const int *P, const void *B,
                                int ldb, int *info, int count)
{
    Factors f = {.call = call, .n = n, .columns = nrhs, .lda = lda, .ldb = ldb, .count = count};
    f.A = A;
    f.B = B;
    f.pivots = (int *)P;
    f.turn = trans;
    f.work = solve_one;
    f.a_access = f.pivot_access = GPU_READ;
    f.b_access = GPU_UPDATE;
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_pointer(call, "info", info));
    *info = -wrong_in_getrs(&f);
    CHECK(simblas_check_turn(call, "trans", trans));
    CHECK(simblas_check_size(call, "nrhs", nrhs));
    CHECK(check_order(&f, handle, "lda", "ldb"));
    return run_batch(handle, &f);
}

SIMGPU_CUBLAS_FACTORS(SIMBLAS_DEFINE)
