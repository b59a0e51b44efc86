/* blas_level2.c: a matrix and vectors: every storage, triangle, transposition and type, against
 * loops in long double (blas_exact.h).
 */
#include "blas_exact.h"

static const int SIZES[][2] = {{1, 1}, {5, 3}, {4, 9}, {13, 13}};
static const int INCREMENTS[][2] = {{1, 1}, {2, -1}, {-3, 2}};

// One of the sizes, square where the matrix has a structure; a band has as many diagonals as fit,
// or more.
static Mat choose(char t, int kind, int layout, unsigned *number)
{
    int size = digit(number, 4), gap = digit(number, 2) * 3, diagonals = digit(number, 3);
    Mat m = {.type = t, .kind = kind, .layout = layout, .rows = SIZES[size][0]};
    m.cols = kind == GENERAL ? SIZES[size][1] : m.rows;
    m.upper = digit(number, kind == GENERAL ? 1 : 2);
    m.unit = digit(number, kind == TRIANGLE ? 2 : 1);
    if (layout == BAND && kind == GENERAL) {
        m.below = diagonals;
        m.above = 2 * diagonals - 1 < 0 ? 0 : 2 * diagonals - 1;
    } else if (layout == BAND) {
        m.above = m.upper ? 2 * diagonals : 0;
        m.below = m.upper ? 0 : 2 * diagonals;
    }
    return mat_make(m, gap);
}

// ---- y = alpha·op(A)·x + beta·y ----

static cublasStatus_t call_product(Session *s, const Mat *A, cublasOperation_t op, const void *a,
                                   const Vec *x, const void *b, const Vec *y)
{
    const void *M = A->o.device, *X = x->o.device;
    void *Y = y->o.device;
    int n = A->cols, k = A->above + A->below;
#define TAIL X, x->inc, b, Y, y->inc
    if (A->kind == GENERAL && A->layout == FULL)
        return EACH(A->type, gemv, s->h, op, A->rows, n, a, M, A->ld, TAIL);
    if (A->kind == GENERAL)
        return EACH(A->type, gbmv, s->h, op, A->rows, n, A->below, A->above, a, M, A->ld, TAIL);
    if (A->kind == SYMMETRIC && A->layout == FULL)
        return EACH(A->type, symv, s->h, uplo(A), n, a, M, A->ld, TAIL);
    if (A->kind == SYMMETRIC && A->layout == BAND)
        return REALS(A->type, sbmv, s->h, uplo(A), n, k, a, M, A->ld, TAIL);
    if (A->kind == SYMMETRIC) return REALS(A->type, spmv, s->h, uplo(A), n, a, M, TAIL);
    if (A->layout == FULL) return COMPLEXES(A->type, hemv, s->h, uplo(A), n, a, M, A->ld, TAIL);
    if (A->layout == BAND) return COMPLEXES(A->type, hbmv, s->h, uplo(A), n, k, a, M, A->ld, TAIL);
    return COMPLEXES(A->type, hpmv, s->h, uplo(A), n, a, M, TAIL);
#undef TAIL
}

static void check_product(Session *s, char t, int kind, int layout, unsigned number)
{
    static const int factors[][2] = {{2, 0}, {-1, 3}, {0, 2}, {0, 0}};
    char what[80];
    snprintf(what, sizeof what, "%c, kind %d, layout %d, case %u", t, kind, layout, number);
    const int *inc = INCREMENTS[digit(&number, 3)], *factor = factors[digit(&number, 4)];
    cublasOperation_t op = OPS[digit(&number, kind == GENERAL ? 3 : 1)];
    Mat A = choose(t, kind, layout, &number);
    Vec x = vec_make(t, op ? A.rows : A.cols, inc[0]),
        y = vec_make(t, op ? A.cols : A.rows, inc[1]);
    Exact alpha = fit(t, CMPLXL(factor[0], factor[0] ? 1 : 0)), beta = factor[1];
    if (beta == 0.0L) vec_poison(&y);
    if (alpha == 0.0L) mat_poison(&A);
    operand_send(&A.o);
    operand_send(&x.o);
    operand_send(&y.o);
    need_blas(call_product(s, &A, op, scalar(s, t, alpha), &x, scalar(s, t, beta), &y));
    for (int i = 0; i < y.n; i++) {
        Exact sum = 0.0L;
        for (int j = 0; j < x.n; j++) sum += mat_at(&A, op, i, j) * x.x[j];
        vec_want(&y, i, alpha * sum + (beta == 0.0L ? 0.0L : beta * y.x[i]));
    }
    mat_equal(&A, what);
    vec_equal(&x, what);
    vec_equal(&y, what);
}

static void products(Session *s)
{
    for (const char *t = "SDCZ"; *t; t++)
        for (unsigned i = 0; i < 3 * 4 * 3 * 4 * 2 * 3 * 2; i += 5) {
            check_product(s, *t, GENERAL, FULL, i);
            check_product(s, *t, GENERAL, BAND, i);
            check_product(s, *t, SYMMETRIC, FULL, i);
            for (int layout = is_complex(*t) ? FULL : BAND; layout <= PACKED; layout++)
                check_product(s, *t, is_complex(*t) ? HERMITIAN : SYMMETRIC, layout, i);
        }
}
static void test_products(void **state)
{
    run_session(products);
}

// ---- x = op(A)·x, and its inverse, for a triangle ----

static cublasStatus_t call_triangle(Session *s, const Mat *A, cublasOperation_t op, bool solve,
                                    const Vec *x)
{
#define HEAD s->h, uplo(A), op, diagonal(A), A->rows
    const void *M = A->o.device;
    void *X = x->o.device;
    int k = A->above + A->below;
    if (A->layout == FULL)
        return solve ? EACH(A->type, trsv, HEAD, M, A->ld, X, x->inc)
                     : EACH(A->type, trmv, HEAD, M, A->ld, X, x->inc);
    if (A->layout == BAND)
        return solve ? EACH(A->type, tbsv, HEAD, k, M, A->ld, X, x->inc)
                     : EACH(A->type, tbmv, HEAD, k, M, A->ld, X, x->inc);
    return solve ? EACH(A->type, tpsv, HEAD, M, X, x->inc)
                 : EACH(A->type, tpmv, HEAD, M, X, x->inc);
#undef HEAD
}

// A system starts with the product, which is exact, and must end with the vector.
static void check_triangle(Session *s, char t, int layout, bool solve, unsigned number)
{
    char what[80];
    snprintf(what, sizeof what, "%c, layout %d, %s, case %u", t, layout,
             solve ? "system" : "product", number);
    int inc = INCREMENTS[digit(&number, 3)][0];
    cublasOperation_t op = OPS[digit(&number, 3)];
    Mat A = choose(t, TRIANGLE, layout, &number);
    Vec x = vec_make(t, A.rows, inc);
    Exact *image = calloc((size_t)x.n + 1, sizeof *image);
    for (int i = 0; i < x.n; i++)
        for (int j = 0; j < x.n; j++) image[i] += mat_at(&A, op, i, j) * x.x[j];
    for (int i = 0; i < x.n; i++) vec_want(&x, i, solve ? image[i] : x.x[i]);
    operand_send(&A.o);
    operand_send(&x.o);
    need_blas(call_triangle(s, &A, op, solve, &x));
    for (int i = 0; i < x.n; i++) vec_want(&x, i, solve ? x.x[i] : image[i]);
    mat_equal(&A, what);
    vec_equal(&x, what);
    free(image);
}

static void triangles(Session *s)
{
    for (const char *t = "SDCZ"; *t; t++)
        for (int layout = FULL; layout <= PACKED; layout++)
            for (unsigned i = s->on_device; i < 3 * 3 * 4 * 2 * 3 * 2 * 2; i += 5) {
                check_triangle(s, *t, layout, false, i);
                check_triangle(s, *t, layout, true, i);
            }
}
static void test_triangles(void **state)
{
    run_session(triangles);
}

// ---- Updates: A += alpha·x·yᵀ, and with both in both places ----

// ger, geru (u) and gerc (c); syr, spr, syr2, spr2; her, hpr, her2, hpr2.
static cublasStatus_t call_update(Session *s, Mat *A, bool twice, bool conjugated, const void *a,
                                  const Vec *x, const Vec *y)
{
#define ONE s->h, uplo(A), A->rows, a, X, x->inc
#define TWO ONE, Y, y->inc
    const void *X = x->o.device, *Y = y->o.device;
    void *M = A->o.device;
    char t = A->type;
    if (A->kind == GENERAL && !is_complex(t))
        return REALS(t, ger, s->h, A->rows, A->cols, a, X, x->inc, Y, y->inc, M, A->ld);
    if (A->kind == GENERAL && conjugated)
        return COMPLEXES(t, gerc, s->h, A->rows, A->cols, a, X, x->inc, Y, y->inc, M, A->ld);
    if (A->kind == GENERAL)
        return COMPLEXES(t, geru, s->h, A->rows, A->cols, a, X, x->inc, Y, y->inc, M, A->ld);
    if (A->kind == SYMMETRIC && A->layout == FULL)
        return twice ? EACH(t, syr2, TWO, M, A->ld) : EACH(t, syr, ONE, M, A->ld);
    if (A->kind == SYMMETRIC) return twice ? REALS(t, spr2, TWO, M) : REALS(t, spr, ONE, M);
    if (A->layout == FULL)
        return twice ? COMPLEXES(t, her2, TWO, M, A->ld) : COMPLEXES(t, her, ONE, M, A->ld);
    return twice ? COMPLEXES(t, hpr2, TWO, M) : COMPLEXES(t, hpr, ONE, M);
#undef ONE
#undef TWO
}

static void check_update(Session *s, char t, int kind, int layout, bool twice, unsigned number)
{
    char what[80];
    snprintf(what, sizeof what, "%c, kind %d, layout %d, update %d, case %u", t, kind, layout,
             1 + twice, number);
    const int *inc = INCREMENTS[digit(&number, 3)];
    bool turned = digit(&number, 2), zero = digit(&number, 5) == 4;
    bool conjugated = kind == HERMITIAN || (kind == GENERAL && turned);
    bool alone = kind != GENERAL && !twice, real = kind == HERMITIAN && !twice;
    Mat A = choose(t, kind, layout, &number);
    Vec x = vec_make(t, A.rows, inc[0]), y = vec_make(t, A.cols, inc[1]);
    Exact alpha = zero ? 0.0L : fit(real ? real_of(t) : t, CMPLXL(-2, 1));
    operand_send(&A.o);
    operand_send(&x.o);
    operand_send(&y.o);
    need_blas(
        call_update(s, &A, twice, conjugated, scalar(s, real ? real_of(t) : t, alpha), &x, &y));
    for (int j = 0; j < A.cols; j++)
        for (int i = 0; i < A.rows && !zero; i++) {
            Exact xj = conjugated ? conjl(x.x[j < x.n ? j : 0]) : x.x[j < x.n ? j : 0];
            Exact yj = conjugated ? conjl(y.x[j]) : y.x[j];
            Exact sum = alpha * x.x[i] * (alone ? xj : yj);
            if (twice) sum += (kind == HERMITIAN ? conjl(alpha) : alpha) * y.x[i] * xj;
            mat_combine(&A, i, j, sum, 1.0L);
        }
    mat_equal(&A, what);
    vec_equal(&x, what);
    vec_equal(&y, what);
}

static void updates(Session *s)
{
    for (const char *t = "SDCZ"; *t; t++)
        for (unsigned i = 0; i < 3 * 2 * 5 * 4 * 2 * 3 * 2; i += 7) {
            check_update(s, *t, GENERAL, FULL, false, i);
            for (int twice = 0; twice < 2; twice++) {
                check_update(s, *t, SYMMETRIC, FULL, twice, i);
                if (is_complex(*t)) check_update(s, *t, HERMITIAN, FULL, twice, i);
                check_update(s, *t, is_complex(*t) ? HERMITIAN : SYMMETRIC, PACKED, twice, i);
            }
        }
}
static void test_updates(void **state)
{
    run_session(updates);
}

// One vector in both places is read as far as both need it.
static void shared_vector(Session *s)
{
    Mat A = mat_general('S', 3, 5, 1);
    Vec x = vec_make('S', 9, 1);
    operand_send(&A.o);
    operand_send(&x.o);
    need_blas(BLAS(cublasSger)(s->h, 3, 5, scalar(s, 'S', 2), x.o.device, 1, x.o.device, 2,
                               A.o.device, A.ld));
    for (int j = 0; j < 5; j++)
        for (int i = 0; i < 3; i++) mat_combine(&A, i, j, 2.0L * x.x[i] * x.x[2 * j], 1.0L);
    mat_equal(&A, "x in both places");
    vec_equal(&x, "x in both places");
}
static void test_shared_vector(void **state)
{
    run_session(shared_vector);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_products), cmocka_unit_test(test_triangles),
    cmocka_unit_test(test_updates), cmocka_unit_test(test_shared_vector)};
SUITE_MAIN("cuBLAS, level 2", tests)
