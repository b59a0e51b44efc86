/* blas_matrices.c: matrices, and vectors with them: products, systems of a triangle, sums, in every
 * type, side, triangle and transposition, against loops in long double (blas_exact.h).
 */
#include "blas_exact.h"

static const int SIZES[][3] = {{1, 1, 1}, {5, 3, 7}, {4, 9, 2}, {3, 2, 0}, {17, 6, 19}};
static const int FACTORS[][2] = {{2, 0}, {-1, 3}, {0, 2}, {0, 0}};

typedef struct Case {
    char type, name[64];
    int m, n, k, gap;
    Exact alpha, beta;
} Case;

static Case choose(char t, const char *what, unsigned *number)
{
    Case c = {.type = t};
    snprintf(c.name, sizeof c.name, "%c%s, case %u", t, what, *number);
    const int *size = SIZES[digit(number, 5)], *factor = FACTORS[digit(number, 4)];
    c.m = size[0], c.n = size[1], c.k = size[2];
    c.gap = digit(number, 2) * 3;
    c.alpha = fit(t, CMPLXL(factor[0], factor[0] ? 1 : 0));
    c.beta = fit(t, CMPLXL(factor[1], factor[1] ? -1 : 0));
    return c;
}

static Mat turned(const Case *c, cublasOperation_t op, int rows, int cols)
{
    return mat_general(c->type, op ? cols : rows, op ? rows : cols, c->gap);
}

// Nothing is read whose factor is 0.
static void send_three(const Case *c, Mat *A, Mat *B, Mat *C)
{
    if (c->alpha == 0.0L && A != NULL) mat_poison(A);
    if (c->alpha == 0.0L && B != NULL) mat_poison(B);
    if (c->beta == 0.0L) mat_poison(C);
    if (A != NULL) operand_send(&A->o);
    if (B != NULL) operand_send(&B->o);
    operand_send(&C->o);
}

// ---- Products ----

static void check_gemm(Session *s, char t, unsigned number)
{
    Case c = choose(t, "gemm", &number);
    cublasOperation_t oa = OPS[digit(&number, 3)], ob = OPS[digit(&number, 3)];
    Mat A = turned(&c, oa, c.m, c.k), B = turned(&c, ob, c.k, c.n);
    Mat C = mat_general(t, c.m, c.n, c.gap);
    send_three(&c, &A, &B, &C);
    const void *a = scalar(s, t, c.alpha), *b = scalar(s, t, c.beta);
#define ARGUMENTS                                                                                  \
    s->h, oa, ob, c.m, c.n, c.k, a, A.o.device, A.ld, B.o.device, B.ld, b, C.o.device, C.ld
    need_blas(EACH(t, gemm, ARGUMENTS));
#undef ARGUMENTS
    for (int j = 0; j < c.n; j++)
        for (int i = 0; i < c.m; i++)
            mat_combine(&C, i, j, c.alpha * product(&A, oa, &B, ob, i, j, c.k), c.beta);
    mat_equal(&A, c.name);
    mat_equal(&B, c.name);
    mat_equal(&C, c.name);
}

SESSION_TEST(test_gemm)
{
    for (const char *t = "SDCZ"; *t; t++)
        for (unsigned i = 0; i < 5 * 4 * 2 * 3 * 3; i++) check_gemm(s, *t, i);
}

// ---- A matrix and vectors ----

static const int INCREMENTS[][2] = {{1, 1}, {2, -1}, {-3, 2}};

static void check_gemv(Session *s, char t, unsigned number)
{
    const int *inc = INCREMENTS[digit(&number, 3)];
    cublasOperation_t op = OPS[digit(&number, 3)];
    Case c = choose(t, "gemv", &number);
    Mat A = mat_general(t, c.m, c.n, c.gap);
    Vec x = vec_make(t, op ? c.m : c.n, inc[0]), y = vec_make(t, op ? c.n : c.m, inc[1]);
    if (c.beta == 0.0L) vec_poison(&y);
    if (c.alpha == 0.0L) mat_poison(&A);
    operand_send(&A.o);
    operand_send(&x.o);
    operand_send(&y.o);
    const void *a = scalar(s, t, c.alpha), *b = scalar(s, t, c.beta);
    need_blas(EACH(t, gemv, s->h, op, c.m, c.n, a, A.o.device, A.ld, x.o.device, x.inc, b,
                   y.o.device, y.inc));
    for (int i = 0; i < y.n; i++) {
        Exact sum = 0.0L;
        for (int j = 0; j < x.n; j++) sum += mat_at(&A, op, i, j) * x.x[j];
        vec_want(&y, i, c.alpha * sum + (c.beta == 0.0L ? 0.0L : c.beta * y.x[i]));
    }
    mat_equal(&A, c.name);
    vec_equal(&x, c.name);
    vec_equal(&y, c.name);
}

// A += alpha·x·yᵀ, or with y's conjugate.
static void check_ger(Session *s, char t, unsigned number)
{
    const int *inc = INCREMENTS[digit(&number, 3)];
    bool conjugated = digit(&number, 2);
    Case c = choose(t, "ger", &number);
    Mat A = mat_general(t, c.m, c.n, c.gap);
    Vec x = vec_make(t, c.m, inc[0]), y = vec_make(t, c.n, inc[1]);
    operand_send(&A.o);
    operand_send(&x.o);
    operand_send(&y.o);
    const void *a = scalar(s, t, c.alpha);
#define ARGUMENTS s->h, c.m, c.n, a, x.o.device, x.inc, y.o.device, y.inc, A.o.device, A.ld
    if (!is_complex(t))
        need_blas(REALS(t, ger, ARGUMENTS));
    else
        need_blas(conjugated ? COMPLEXES(t, gerc, ARGUMENTS) : COMPLEXES(t, geru, ARGUMENTS));
#undef ARGUMENTS
    for (int j = 0; j < c.n; j++)
        for (int i = 0; i < c.m; i++)
            mat_combine(&A, i, j, c.alpha * x.x[i] * (conjugated ? conjl(y.x[j]) : y.x[j]), 1.0L);
    mat_equal(&A, c.name);
    vec_equal(&x, c.name);
    vec_equal(&y, c.name);
}

SESSION_TEST(test_vectors)
{
    for (const char *t = "SDCZ"; *t; t++) {
        for (unsigned i = 0; i < 3 * 3 * 5 * 4 * 2; i++) check_gemv(s, *t, i);
        for (unsigned i = 0; i < 3 * 2 * 5 * 4 * 2; i++) check_ger(s, *t, i);
    }
}

// One vector in both places is read as far as both need it.
SESSION_TEST(test_shared_vector)
{
    Mat A = mat_general('S', 3, 5, 1);
    Vec x = vec_make('S', 9, 1);
    operand_send(&A.o);
    operand_send(&x.o);
    need_blas(
        cublasSger(s->h, 3, 5, scalar(s, 'S', 2), x.o.device, 1, x.o.device, 2, A.o.device, A.ld));
    for (int j = 0; j < 5; j++)
        for (int i = 0; i < 3; i++) mat_combine(&A, i, j, 2.0L * x.x[i] * x.x[2 * j], 1.0L);
    mat_equal(&A, "x in both places");
    vec_equal(&x, "x in both places");
}

// ---- Systems ----

static cublasStatus_t solve(Session *s, const Case *c, bool batched, cublasSideMode_t side,
                            cublasOperation_t op, const Mat *A, const Mat *B, const Mat *C)
{
    const void *a = scalar(s, c->type, c->alpha), *M = A->o.device;
    void *right = B->o.device, *lists = NULL;
#define HEAD s->h, side, uplo(A), op, diagonal(A), c->m, c->n, a
    if (!batched) return EACH(c->type, trsm, HEAD, M, A->ld, right, B->ld);
    // The batch holds the matrix twice, in two copies of which the second is C.
    const void *list[4] = {M, M, right, C->o.device};
    need_cuda(cudaMalloc(&lists, sizeof list));
    need_cuda(cudaMemcpy(lists, list, sizeof list, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    void **rights = (void **)lists + 2;
    cublasStatus_t status =
        EACH(c->type, trsmBatched, HEAD, lists, A->ld, (void *)rights, B->ld, 2);
    need_cuda(cudaFree(lists));
    return status;
#undef HEAD
}

// The solution is chosen, and the right-hand side computed; both are exact.
static void check_system(Session *s, char t, bool batched, unsigned number)
{
    Case c = choose(t, batched ? "trsmBatched" : "trsm", &number);
    bool left = digit(&number, 2), upper = digit(&number, 2), unit = digit(&number, 2);
    bool nothing = c.alpha == 0.0L;
    cublasSideMode_t side = left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT;
    cublasOperation_t op = OPS[digit(&number, 3)];
    if (!nothing) c.alpha = 2.0L;
    c.m %= 8, c.n %= 8; // what is small stays exact
    Mat A = mat_triangle(t, left ? c.m : c.n, upper, unit, c.gap);
    Mat B = mat_general(t, c.m, c.n, c.gap), C = mat_general(t, c.m, c.n, c.gap);
    for (int j = 0; j < c.n; j++)
        for (int i = 0; i < c.m; i++) {
            Exact sum = left ? product(&A, op, &B, OPS[0], i, j, c.m)
                             : product(&B, OPS[0], &A, op, i, j, c.n);
            mat_want(&B, i, j, nothing ? CMPLXL(NAN, NAN) : sum / 2);
            mat_want(&C, i, j, nothing ? CMPLXL(NAN, NAN) : sum / 2);
        }
    if (nothing) mat_poison(&A);
    operand_send(&A.o);
    operand_send(&B.o);
    operand_send(&C.o);
    need_blas(solve(s, &c, batched, side, op, &A, &B, &C));
    for (int j = 0; j < c.n; j++)
        for (int i = 0; i < c.m; i++) {
            Exact want = nothing ? 0.0L : *mat_ref(&B, i, j);
            mat_want(&B, i, j, want);
            if (batched) mat_want(&C, i, j, want);
        }
    mat_equal(&A, c.name);
    mat_equal(&B, c.name);
    mat_equal(&C, c.name);
}

// Where two logs are compared (same_blas_matrices.c), no batch: the interposer logs its addresses
// alone.
#ifdef SCALARS_ON_HOST
enum { FORMS = 1 };
#else
enum { FORMS = 2 };
#endif
SESSION_TEST(test_systems)
{
    for (const char *t = "SDCZ"; *t; t++)
        for (int batched = 0; batched < FORMS; batched++)
            for (unsigned i = 0; i < 5 * 4 * 2 * 8 * 3; i++) check_system(s, *t, batched, i);
}

// ---- Beyond BLAS ----

// C may be A or B where that one is not transposed.
static void check_geam(Session *s, char t, unsigned number)
{
    Case c = choose(t, "geam", &number);
    cublasOperation_t oa = OPS[digit(&number, 3)], ob = OPS[digit(&number, 3)];
    int place = digit(&number, 3); // C is of its own, A, or B
    if (place == 1) oa = CUBLAS_OP_N;
    if (place == 2) ob = CUBLAS_OP_N;
    Mat A = turned(&c, oa, c.m, c.n), B = turned(&c, ob, c.m, c.n);
    Mat own = mat_general(t, c.m, c.n, c.gap), *C = place == 0 ? &own : place == 1 ? &A : &B;
    if (c.alpha == 0.0L) mat_poison(&A);
    if (c.beta == 0.0L) mat_poison(&B);
    mat_poison(&own);
    operand_send(&A.o);
    operand_send(&B.o);
    operand_send(&own.o);
    const void *a = scalar(s, t, c.alpha), *b = scalar(s, t, c.beta);
    need_blas(EACH(t, geam, s->h, oa, ob, c.m, c.n, a, A.o.device, A.ld, b, B.o.device, B.ld,
                   C->o.device, C->ld));
    for (int j = 0; j < c.n; j++)
        for (int i = 0; i < c.m; i++)
            mat_want(C, i, j, c.alpha * mat_at(&A, oa, i, j) + c.beta * mat_at(&B, ob, i, j));
    mat_equal(&A, c.name);
    mat_equal(&B, c.name);
    mat_equal(&own, c.name);
}

static void check_dgmm(Session *s, char t, unsigned number)
{
    static const int increments[] = {1, 2, -3, 0};
    Case c = choose(t, "dgmm", &number);
    bool left = digit(&number, 2), in_place = digit(&number, 2);
    int inc = increments[digit(&number, 4)];
    Mat A = mat_general(t, c.m, c.n, c.gap), C = mat_general(t, c.m, c.n, c.gap);
    Vec x = vec_make(t, inc == 0 ? 1 : left ? c.m : c.n, inc == 0 ? 1 : inc);
    mat_poison(&C);
    operand_send(&A.o);
    operand_send(&C.o);
    operand_send(&x.o);
    Mat *to = in_place ? &A : &C;
    need_blas(EACH(t, dgmm, s->h, left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT, c.m, c.n, A.o.device,
                   A.ld, x.o.device, inc, to->o.device, to->ld));
    for (int j = 0; j < c.n; j++)
        for (int i = 0; i < c.m; i++)
            mat_want(to, i, j, *mat_ref(&A, i, j) * x.x[inc == 0 ? 0 : left ? i : j]);
    mat_equal(&A, c.name);
    mat_equal(&C, c.name);
    vec_equal(&x, c.name);
}

SESSION_TEST(test_extras)
{
    for (const char *t = "SDCZ"; *t; t++) {
        for (unsigned i = 0; i < 5 * 4 * 2 * 27; i++) check_geam(s, *t, i);
        for (unsigned i = 0; i < 5 * 4 * 2 * 16; i++) check_dgmm(s, *t, i);
    }
}

// One of the matrices may be missing altogether where there is nothing to do with it.
SESSION_TEST(test_nothing_to_do)
{
    cublasOperation_t N = CUBLAS_OP_N;
    const void *one = scalar(s, 'D', 1);
    need_blas(cublasDgemm(s->h, N, N, 0, 2, 2, one, NULL, 1, NULL, 2, one, NULL, 1));
    need_blas(cublasDgemm(s->h, N, N, 2, 0, 2, one, NULL, 2, NULL, 2, one, NULL, 2));
    need_blas(cublasDtrsm(s->h, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, N, CUBLAS_DIAG_UNIT, 2, 0,
                          one, NULL, 2, NULL, 2));
    need_blas(cublasDgeam(s->h, N, N, 0, 0, one, NULL, 1, one, NULL, 1, NULL, 1));
    need_blas(cublasDgemv(s->h, N, 0, 2, one, NULL, 1, NULL, 1, one, NULL, 1));
    need_blas(cublasDger(s->h, 2, 0, one, NULL, 1, NULL, 1, NULL, 2));
}

SUITE_MAIN("cuBLAS, matrices")
