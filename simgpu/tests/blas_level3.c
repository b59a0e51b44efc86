/* blas_level3.c: matrices: products, structured and triangular ones, systems, updates of rank k,
 * sums and conversions, in every type, side, triangle and transposition, against loops in long
 * double (blas_exact.h).
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
    if (is_complex(t) && digit(&number, 2))
        need_blas(COMPLEXES(t, gemm3m, ARGUMENTS));
    else
        need_blas(EACH(t, gemm, ARGUMENTS));
#undef ARGUMENTS
    for (int j = 0; j < c.n; j++)
        for (int i = 0; i < c.m; i++)
            mat_combine(&C, i, j, c.alpha * product(&A, oa, &B, ob, i, j, c.k), c.beta);
    mat_equal(&A, c.name);
    mat_equal(&B, c.name);
    mat_equal(&C, c.name);
}

static void gemms(Session *s)
{
    for (const char *t = "SDCZ"; *t; t++)
        for (unsigned i = 0; i < 5 * 4 * 2 * 3 * 3 * 2; i++) check_gemm(s, *t, i);
}
static void test_gemm(void **state)
{
    run_session(gemms);
}

// symm and hemm.
static void check_symmetric(Session *s, char t, int kind, unsigned number)
{
    Case c = choose(t, kind == SYMMETRIC ? "symm" : "hemm", &number);
    bool left = digit(&number, 2);
    cublasSideMode_t side = left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT;
    Mat A = mat_square(t, kind, left ? c.m : c.n, digit(&number, 2), false, c.gap);
    Mat B = mat_general(t, c.m, c.n, c.gap), C = mat_general(t, c.m, c.n, c.gap);
    send_three(&c, &A, &B, &C);
    const void *a = scalar(s, t, c.alpha), *b = scalar(s, t, c.beta);
#define ARGUMENTS                                                                                  \
    s->h, side, uplo(&A), c.m, c.n, a, A.o.device, A.ld, B.o.device, B.ld, b, C.o.device, C.ld
    need_blas(kind == SYMMETRIC ? EACH(t, symm, ARGUMENTS) : COMPLEXES(t, hemm, ARGUMENTS));
#undef ARGUMENTS
    for (int j = 0; j < c.n; j++)
        for (int i = 0; i < c.m; i++) {
            Exact sum = left ? product(&A, OPS[0], &B, OPS[0], i, j, c.m)
                             : product(&B, OPS[0], &A, OPS[0], i, j, c.n);
            mat_combine(&C, i, j, c.alpha * sum, c.beta);
        }
    mat_equal(&A, c.name);
    mat_equal(&B, c.name);
    mat_equal(&C, c.name);
}

static void symmetric(Session *s)
{
    for (const char *t = "SDCZ"; *t; t++)
        for (unsigned i = 0; i < 5 * 4 * 2 * 2 * 2; i++) {
            check_symmetric(s, *t, SYMMETRIC, i);
            if (is_complex(*t)) check_symmetric(s, *t, HERMITIAN, i);
        }
}
static void test_symmetric(void **state)
{
    run_session(symmetric);
}

// ---- Triangles ----

enum { TRMM, TRMM_IN_PLACE, TRSM, TRSM_BATCHED };

static cublasStatus_t call_triangle(Session *s, const Case *c, int what, cublasSideMode_t side,
                                    cublasOperation_t op, const Mat *A, const Mat *B, const Mat *C)
{
    const void *a = scalar(s, c->type, c->alpha), *M = A->o.device;
    void *from = B->o.device, *to = what == TRMM ? C->o.device : from, *lists = NULL;
#define HEAD s->h, side, uplo(A), op, diagonal(A), c->m, c->n, a
    if (what <= TRMM_IN_PLACE)
        return EACH(c->type, trmm, HEAD, M, A->ld, from, B->ld, to, what == TRMM ? C->ld : B->ld);
    if (what == TRSM) return EACH(c->type, trsm, HEAD, M, A->ld, from, B->ld);
    // The batch holds the matrix twice, in two copies of which the second is C.
    const void *list[4] = {M, M, from, C->o.device};
    need_cuda(cudaMalloc(&lists, sizeof list));
    need_cuda(cudaMemcpy(lists, list, sizeof list, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    void **right = (void **)lists + 2;
    cublasStatus_t status = EACH(c->type, trsmBatched, HEAD, lists, A->ld, (void *)right, B->ld, 2);
    need_cuda(cudaFree(lists));
    return status;
#undef HEAD
}

// Of a system the solution is chosen, and the right-hand side computed; both are exact.
static void check_triangle(Session *s, char t, int what, unsigned number)
{
    static const char *names[] = {"trmm", "trmm in place", "trsm", "trsmBatched"};
    Case c = choose(t, names[what], &number);
    bool left = digit(&number, 2), upper = digit(&number, 2), unit = digit(&number, 2);
    bool solves = what >= TRSM, nothing = c.alpha == 0.0L;
    cublasSideMode_t side = left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT;
    cublasOperation_t op = OPS[digit(&number, 3)];
    if (solves && !nothing) c.alpha = 2.0L;
    c.m %= 8, c.n %= 8; // what is small stays exact
    Mat A = mat_square(t, TRIANGLE, left ? c.m : c.n, upper, unit, c.gap);
    Mat B = mat_general(t, c.m, c.n, c.gap), C = mat_general(t, c.m, c.n, c.gap);
    Exact *image = calloc((size_t)(c.m * c.n) + 1, sizeof *image);
    for (int j = 0; j < c.n; j++)
        for (int i = 0; i < c.m; i++) {
            Exact sum = left ? product(&A, op, &B, OPS[0], i, j, c.m)
                             : product(&B, OPS[0], &A, op, i, j, c.n);
            image[j * c.m + i] = solves ? sum / 2 : c.alpha * sum;
            if (solves) mat_want(&B, i, j, nothing ? CMPLXL(NAN, NAN) : sum / 2);
            if (solves) mat_want(&C, i, j, nothing ? CMPLXL(NAN, NAN) : sum / 2);
        }
    if (nothing) mat_poison(&A);
    if (!solves) mat_poison(&C);
    operand_send(&A.o);
    operand_send(&B.o);
    operand_send(&C.o);
    need_blas(call_triangle(s, &c, what, side, op, &A, &B, &C));
    for (int j = 0; j < c.n; j++)
        for (int i = 0; i < c.m; i++) {
            Exact want = nothing ? 0.0L : solves ? *mat_ref(&B, i, j) : image[j * c.m + i];
            if (what != TRMM) mat_want(&B, i, j, want);
            if (what == TRMM || what == TRSM_BATCHED) mat_want(&C, i, j, want);
        }
    mat_equal(&A, c.name);
    mat_equal(&B, c.name);
    mat_equal(&C, c.name);
    free(image);
}

static void triangles(Session *s)
{
    for (const char *t = "SDCZ"; *t; t++)
        for (int what = TRMM; what <= TRSM_BATCHED; what++)
            for (unsigned i = 0; i < 5 * 4 * 2 * 8 * 3; i++) check_triangle(s, *t, what, i);
}
static void test_triangles(void **state)
{
    run_session(triangles);
}

// ---- C = alpha·op(A)·op(B)ᵀ + beta·C of one triangle ----

enum { RANK_K, RANK_2K, RANK_KX };

static cublasStatus_t call_rank_k(Session *s, const Case *c, int what, cublasOperation_t op,
                                  const void *a, const void *b, const Mat *A, const Mat *B,
                                  const Mat *C)
{
    char t = c->type;
#define ONE s->h, uplo(C), op, c->n, c->k, a, A->o.device, A->ld, b, C->o.device, C->ld
#define TWO                                                                                        \
    s->h, uplo(C), op, c->n, c->k, a, A->o.device, A->ld, B->o.device, B->ld, b, C->o.device, C->ld
    if (C->kind == HERMITIAN && what == RANK_K) return COMPLEXES(t, herk, ONE);
    if (C->kind == HERMITIAN && what == RANK_2K) return COMPLEXES(t, her2k, TWO);
    if (C->kind == HERMITIAN) return COMPLEXES(t, herkx, TWO);
    if (what == RANK_K) return EACH(t, syrk, ONE);
    return what == RANK_2K ? EACH(t, syr2k, TWO) : EACH(t, syrkx, TWO);
#undef ONE
#undef TWO
}

static void check_rank_k(Session *s, char t, int kind, int what, unsigned number)
{
    static const char *names[] = {"rank k", "rank 2k", "rank k of two"};
    Case c = choose(t, names[what], &number);
    bool turn = digit(&number, 2), upper = digit(&number, 2), hermitian = kind == HERMITIAN;
    cublasOperation_t across =
        hermitian || (turn && !is_complex(t) && digit(&number, 2)) ? CUBLAS_OP_C : CUBLAS_OP_T;
    cublasOperation_t op = turn ? across : CUBLAS_OP_N, other = turn ? CUBLAS_OP_N : across;
    char ta = hermitian && what == RANK_K ? real_of(t) : t, tb = hermitian ? real_of(t) : t;
    if (hermitian) c.beta = creall(c.beta);
    if (ta != t) c.alpha = creall(c.alpha);
    // herkx promises a Hermitian result only where the factors give one; its diagonal is made real.
    Mat A = turned(&c, op, c.n, c.k), B = turned(&c, op, c.n, c.k);
    Mat C = mat_square(t, kind, c.n, upper, false, c.gap);
    send_three(&c, &A, &B, &C);
    need_blas(
        call_rank_k(s, &c, what, op, scalar(s, ta, c.alpha), scalar(s, tb, c.beta), &A, &B, &C));
    const Mat *second = what == RANK_K ? &A : &B;
    for (int j = 0; j < c.n; j++)
        for (int i = 0; i < c.n; i++) {
            Exact sum = c.alpha * product(&A, op, second, other, i, j, c.k);
            if (what == RANK_2K)
                sum +=
                    (hermitian ? conjl(c.alpha) : c.alpha) * product(&B, op, &A, other, i, j, c.k);
            mat_combine(&C, i, j, sum, c.beta);
        }
    mat_equal(&A, c.name);
    mat_equal(&B, c.name);
    mat_equal(&C, c.name);
}

static void rank_k(Session *s)
{
    for (const char *t = "SDCZ"; *t; t++)
        for (int what = RANK_K; what <= RANK_KX; what++)
            for (unsigned i = 0; i < 5 * 4 * 2 * 2 * 2 * 2; i++) {
                check_rank_k(s, *t, SYMMETRIC, what, i);
                if (is_complex(*t)) check_rank_k(s, *t, HERMITIAN, what, i);
            }
}
static void test_rank_k(void **state)
{
    run_session(rank_k);
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

// tpttr and trttp.
static void check_conversion(Session *s, char t, unsigned number)
{
    Case c = choose(t, "tpttr or trttp", &number);
    Mat m = {.type = t, .rows = c.m, .cols = c.m, .kind = TRIANGLE, .upper = digit(&number, 2)};
    Mat full = mat_make(m, c.gap);
    m.layout = PACKED;
    Mat packed = mat_make(m, 0);
    bool unpack = digit(&number, 2);
    Mat *from = unpack ? &packed : &full, *to = unpack ? &full : &packed;
    mat_poison(to);
    operand_send(&full.o);
    operand_send(&packed.o);
    if (unpack)
        need_blas(EACH_ONE(t, tpttr, s->h, uplo(&m), c.m, packed.o.device, full.o.device, full.ld));
    else
        need_blas(EACH_ONE(t, trttp, s->h, uplo(&m), c.m, full.o.device, full.ld, packed.o.device));
    for (int j = 0; j < c.m; j++)
        for (int i = 0; i < c.m; i++) mat_want(to, i, j, *mat_ref(from, i, j));
    mat_equal(&full, c.name);
    mat_equal(&packed, c.name);
}

static void extras(Session *s)
{
    for (const char *t = "SDCZ"; *t; t++) {
        for (unsigned i = 0; i < 5 * 4 * 2 * 27; i++) check_geam(s, *t, i);
        for (unsigned i = 0; i < 5 * 4 * 2 * 16; i++) check_dgmm(s, *t, i);
        for (unsigned i = 0; i < 5 * 4 * 2 * 4; i++) check_conversion(s, *t, i);
    }
}
static void test_extras(void **state)
{
    run_session(extras);
}

// One of the matrices may be missing altogether where there is nothing to do with it.
static void nothing_to_do(Session *s)
{
    cublasOperation_t N = CUBLAS_OP_N;
    const void *one = scalar(s, 'D', 1);
    need_blas(BLAS(cublasDgemm)(s->h, N, N, 0, 2, 2, one, NULL, 1, NULL, 2, one, NULL, 1));
    need_blas(BLAS(cublasDgemm)(s->h, N, N, 2, 0, 2, one, NULL, 2, NULL, 2, one, NULL, 2));
    need_blas(BLAS(cublasDsymm)(s->h, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, 0, 2, one, NULL, 1,
                                NULL, 1, one, NULL, 1));
    need_blas(BLAS(cublasDtrsm)(s->h, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, N, CUBLAS_DIAG_UNIT,
                                2, 0, one, NULL, 2, NULL, 2));
    need_blas(BLAS(cublasDsyrk)(s->h, CUBLAS_FILL_MODE_LOWER, N, 0, 3, one, NULL, 1, one, NULL, 1));
    need_blas(BLAS(cublasDgeam)(s->h, N, N, 0, 0, one, NULL, 1, one, NULL, 1, NULL, 1));
    need_blas(BLAS(cublasDgemv)(s->h, N, 0, 2, one, NULL, 1, NULL, 1, one, NULL, 1));
    need_blas(BLAS(cublasDger)(s->h, 2, 0, one, NULL, 1, NULL, 1, NULL, 2));
    need_blas(
        BLAS(cublasDtrmv)(s->h, CUBLAS_FILL_MODE_UPPER, N, CUBLAS_DIAG_UNIT, 0, NULL, 1, NULL, 1));
    need_blas(cublasDtpttr(s->h, CUBLAS_FILL_MODE_UPPER, 0, NULL, NULL, 1));
}
static void test_nothing_to_do(void **state)
{
    run_session(nothing_to_do);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_gemm),      cmocka_unit_test(test_symmetric),
    cmocka_unit_test(test_triangles), cmocka_unit_test(test_rank_k),
    cmocka_unit_test(test_extras),    cmocka_unit_test(test_nothing_to_do)};
SUITE_MAIN("cuBLAS, level 3", tests)
