/* least_squares.c: batches of matrices A = Q·R, and least squares by them. Computed in double, in
 * the order of LAPACK's unblocked routines, and rounded once.
 *
 * Q is a product of reflections H = I - tau·v·vᴴ, one a column. In A, R takes the upper triangle
 * and each v what is below the diagonal; its first number is 1 and not stored.
 *
 * Interface: cublas?geqrfBatched, cublas?gelsBatched.
 */
#include <math.h>
#include <string.h>

#include "blas.h"

static Matrix general(const void *A, const Format *f, int64_t rows, int64_t cols, int64_t ld)
{
    return (Matrix){.ptr = A, .format = f, .rows = rows, .cols = cols, .ld = ld};
}

// ---- Q·R ----

// The length of a column from a row on, by its largest part, so that no square overflows.
static double length(const Work *w, int64_t row, int64_t col)
{
    double largest = 0.0, sum = 0.0;
    for (int64_t i = row; i < w->rows; i++) {
        Number x = *in_work(w, i, col);
        largest = fmax(largest, fmax(fabs(x.re), fabs(x.im)));
    }
    if (largest == 0.0 || isinf(largest)) return largest;
    for (int64_t i = row; i < w->rows; i++) {
        Number x = *in_work(w, i, col);
        sum += x.re / largest * (x.re / largest) + x.im / largest * (x.im / largest);
    }
    return largest * sqrt(sum);
}

// The reflection that makes column k zero below the diagonal; the diagonal becomes real. Its v goes
// below the diagonal; handed back is tau.
static Number reflection(const Work *w, int64_t k)
{
    Number *diagonal = in_work(w, k, k), alpha = *diagonal;
    if (alpha.im == 0.0 && length(w, k + 1, k) == 0.0) return number(0.0);
    double beta = -copysign(length(w, k, k), alpha.re);
    for (int64_t i = k + 1; i < w->rows; i++)
        *in_work(w, i, k) = simblas_divide(*in_work(w, i, k), (Number){alpha.re - beta, alpha.im});
    *diagonal = number(beta);
    return (Number){(beta - alpha.re) / beta, -alpha.im / beta};
}

// A column times Hᴴ = I - conj(tau)·v·vᴴ, where v is in column k of w.
static void reflect(const Work *w, int64_t k, Number tau, Number *column)
{
    Number sum = column[k];
    for (int64_t i = k + 1; i < w->rows; i++)
        sum = plus(sum, times(conjugate(*in_work(w, i, k)), column[i]));
    sum = times(conjugate(tau), sum);
    column[k] = minus(column[k], sum);
    for (int64_t i = k + 1; i < w->rows; i++)
        column[i] = minus(column[i], times(*in_work(w, i, k), sum));
}

static void factor(const Work *w, Number *tau)
{
    int64_t least = w->rows < w->cols ? w->rows : w->cols;
    for (int64_t k = 0; k < least; k++) {
        tau[k] = reflection(w, k);
        for (int64_t j = k + 1; j < w->cols; j++) reflect(w, k, tau[k], in_work(w, 0, j));
    }
}

static Number *taus(const Matrix *A)
{
    return calloc((size_t)(A->rows < A->cols ? A->rows : A->cols) + 1, sizeof(Number));
}

static bool factor_one(const Matrix *A, const Vector *to)
{
    Work w;
    Number *tau = taus(A);
    bool done = simblas_take(&w, A) && tau != NULL;
    if (done) {
        factor(&w, tau);
        simblas_give(&w, A);
        for (int64_t i = 0; i < to->n; i++) simblas_put(to, i, tau[i]);
    }
    free(w.x);
    free(tau);
    return done;
}

// C's first rows become the solution, the others what is left over; where R has a 0 on its
// diagonal, *info is its place from 1 on, and C is Qᴴ·C.
static bool solve_one(const Matrix *A, const Matrix *C, int *info)
{
    Work w, right = {0};
    Number *tau = taus(A);
    bool done = simblas_take(&w, A) && simblas_take(&right, C) && tau != NULL;
    if (done) factor(&w, tau);
    *info = 0;
    for (int64_t j = A->cols; j-- > 0 && done;)
        if (is_zero(*in_work(&w, j, j))) *info = (int)j + 1;
    for (int64_t j = 0; j < C->cols && done; j++) {
        Number *column = in_work(&right, 0, j);
        for (int64_t k = 0; k < A->cols; k++) reflect(&w, k, tau[k], column);
        if (*info == 0) simblas_solve_triangle(&w, A->cols, true, false, column);
    }
    if (done) {
        simblas_give(&w, A);
        simblas_give(&right, C);
    }
    free(w.x);
    free(right.x);
    free(tau);
    return done;
}

// ---- A batch ----

typedef struct Squares {
    Call call;
    const Format *format;
    cublasOperation_t turn;
    int m, n, columns, lda, ldc, count; // columns of C
    const void *A, *C;                  // C: the right-hand sides, or tau
    int *info;                          // in device memory, or NULL
} Squares;

static cublasStatus_t run_batch(cublasHandle_t handle, const Squares *s, bool solve)
{
    int least = s->m < s->n ? s->m : s->n;
    if (least == 0 || s->count == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(s->call, handle);
    const void *const *A = simblas_pointers(&op, s->A, s->count);
    const void *const *C = simblas_pointers(&op, s->C, s->count);
    int *info =
        s->info ? sim_touch(&op, s->info, (size_t)s->count * sizeof *info, GPU_WRITE, false) : NULL;
    bool done = true;
    bool known = A && C; // a dry run may not know them
    for (int i = 0; i < s->count && known && done && !op.error; i++) {
        int own_info = 0;
        Matrix a = general(A[i], s->format, s->m, s->n, s->lda);
        Matrix c = general(C[i], s->format, s->m, s->columns, s->ldc);
        Vector tau = {C[i], s->format, least, 1, NULL};
        simblas_touch_matrix(&op, &a, GPU_UPDATE);
        if (solve)
            simblas_touch_matrix(&op, &c, GPU_UPDATE);
        else
            simblas_touch_vector(&op, &tau, GPU_WRITE, false);
        if (!simgpu_ready(&op)) continue;
        done = solve ? solve_one(&a, &c, info ? &info[i] : &own_info) : factor_one(&a, &tau);
    }
    return simblas_finish(s->call, &op, done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED);
}

// ---- The calls ----
//
// `info` on the host is the place of a wrong argument, counted without the handle and negative.

static cublasStatus_t run_geqrf(cublasHandle_t handle, const Squares *s, int *info)
{
    CHECK(simblas_check_handle(s->call, handle));
    CHECK(simblas_check_pointer(s->call, "info", info));
    bool leading = s->lda >= (s->m > 1 ? s->m : 1);
    *info = s->m < 0 ? -1 : s->n < 0 ? -2 : !leading ? -4 : s->count < 0 ? -7 : 0;
    CHECK(simblas_check_size(s->call, "m", s->m));
    CHECK(simblas_check_size(s->call, "n", s->n));
    CHECK(simblas_check_leading(s->call, "lda", s->lda, s->m, "m"));
    CHECK(simblas_check_size(s->call, "batchSize", s->count));
    return run_batch(handle, s, false);
}

static int wrong_in_gels(const Squares *s)
{
    int least = s->m > 1 ? s->m : 1;
    if (s->turn != CUBLAS_OP_N) return 1;
    if (s->m < 0) return 2;
    if (s->n < 0 || s->n > s->m) return 3;
    if (s->columns < 0) return 4;
    if (s->lda < least) return 6;
    if (s->ldc < least) return 8;
    return s->count < 0 ? 11 : 0;
}

static cublasStatus_t run_gels(cublasHandle_t handle, const Squares *s, int *info)
{
    CHECK(simblas_check_handle(s->call, handle));
    CHECK(simblas_check_pointer(s->call, "info", info));
    *info = -wrong_in_gels(s);
    CHECK(simblas_check_turn(s->call, "trans", s->turn));
    CHECK(simblas_check_size(s->call, "m", s->m));
    CHECK(simblas_check_size(s->call, "n", s->n));
    CHECK(simblas_check_size(s->call, "nrhs", s->columns));
    if (s->turn != CUBLAS_OP_N || s->m < s->n)
        return simblas_refuse(s->call, CUBLAS_STATUS_NOT_SUPPORTED,
                              "trans is %d, m is %d and n is %d: cuBLAS solves systems with trans "
                              "CUBLAS_OP_N and at least as many rows as columns.",
                              (int)s->turn, s->m, s->n);
    CHECK(simblas_check_leading(s->call, "lda", s->lda, s->m, "m"));
    CHECK(simblas_check_leading(s->call, "ldc", s->ldc, s->m, "m"));
    CHECK(simblas_check_size(s->call, "batchSize", s->count));
    return run_batch(handle, s, true);
}

#define SQUARES(L, T)                                                                              \
    cublasStatus_t cublas##L##geqrfBatched(cublasHandle_t handle, int m, int n, T *const Aarray[], \
                                           int lda, T *const TauArray[], int *info, int batchSize) \
    {                                                                                              \
        Squares s = {.call = {"cublas" #L "geqrfBatched", SITE},                                   \
                     .format = &simblas_##L,                                                       \
                     .m = m,                                                                       \
                     .n = n,                                                                       \
                     .lda = lda,                                                                   \
                     .count = batchSize,                                                           \
                     .A = Aarray,                                                                  \
                     .C = TauArray};                                                               \
        return run_geqrf(handle, &s, info);                                                        \
    }                                                                                              \
    cublasStatus_t cublas##L##gelsBatched(                                                         \
        cublasHandle_t handle, cublasOperation_t trans, int m, int n, int nrhs, T *const Aarray[], \
        int lda, T *const Carray[], int ldc, int *info, int *devInfoArray, int batchSize)          \
    {                                                                                              \
        Squares s = {.call = {"cublas" #L "gelsBatched", SITE},                                    \
                     .format = &simblas_##L,                                                       \
                     .turn = trans,                                                                \
                     .m = m,                                                                       \
                     .n = n,                                                                       \
                     .columns = nrhs,                                                              \
                     .lda = lda,                                                                   \
                     .ldc = ldc,                                                                   \
                     .count = batchSize,                                                           \
                     .A = Aarray,                                                                  \
                     .C = Carray,                                                                  \
                     .info = devInfoArray};                                                        \
        return run_gels(handle, &s, info);                                                         \
    }
EACH_FORMAT(SQUARES)
