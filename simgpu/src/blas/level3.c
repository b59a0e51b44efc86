/* level3.c: products and systems of matrices of which one is symmetric, Hermitian or triangular.
 *
 * Computed in double (multiply.c) and rounded once. Of a result that is symmetric, one triangle is
 * written.
 *
 * Interface: cublas?symm, ?hemm; ?trmm, ?trsm; ?syrk, ?herk, cublasC…Ex; ?syr2k, ?her2k; ?syrkx,
 * ?herkx; simblas_solve.
 */
#include "blas.h"

static Matrix general(const void *A, const Format *f, int64_t rows, int64_t cols, int64_t ld)
{
    return (Matrix){.ptr = A, .format = f, .rows = rows, .cols = cols, .ld = ld};
}

static Matrix triangle(const void *A, const Format *f, int64_t n, int64_t ld, cublasFillMode_t uplo,
                       Others others)
{
    Matrix m = general(A, f, n, n, ld);
    m.part = simblas_part(uplo);
    m.others = others;
    return m;
}

// C = alpha·P + other·Q + beta·C, of the elements that C stores; P and Q may be NULL. False: one of
// them has failed, and C stays as it is.
static bool combine(const Matrix *C, Number alpha, const Planes *P, Number other, const Planes *Q,
                    Number beta)
{
    if ((P && P->failed) || (Q && Q->failed)) return false;
    for (int64_t j = 0; j < C->cols; j++) {
        int64_t first, last;
        simblas_stored(C, j, &first, &last);
        for (int64_t i = first; i < last; i++) {
            Number x = P ? times(alpha, in_planes(P, i, j)) : number(0.0);
            if (Q != NULL) x = plus(x, times(other, in_planes(Q, i, j)));
            if (!is_zero(beta)) x = plus(x, times(beta, simblas_element(C, CUBLAS_OP_N, i, j)));
            if (C->others == OTHERS_CONJUGATED && i == j) x.im = 0.0;
            simblas_store(C, i, j, x);
        }
    }
    return true;
}

static cublasStatus_t finish(Call call, SimgpuOp *op, bool done)
{
    return simblas_finish(call, op, done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED);
}

// ---- C = alpha·A·B + beta·C, or B·A, with a symmetric or Hermitian A ----

static cublasStatus_t multiply_symmetric(Call call, cublasHandle_t handle, cublasSideMode_t side,
                                         cublasFillMode_t uplo, const void *alpha, Matrix A,
                                         Matrix B, const void *beta, Matrix C)
{
    bool left = side == CUBLAS_SIDE_LEFT;
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_side(call, side));
    CHECK(simblas_check_fill(call, uplo));
    CHECK(simblas_check_size(call, "m", C.rows));
    CHECK(simblas_check_size(call, "n", C.cols));
    CHECK(simblas_check_leading(call, "lda", A.ld, A.rows, left ? "m" : "n"));
    CHECK(simblas_check_leading(call, "ldb", B.ld, B.rows, "m"));
    CHECK(simblas_check_leading(call, "ldc", C.ld, C.rows, "m"));
    CHECK(simblas_check_pointer(call, "alpha", alpha));
    CHECK(simblas_check_pointer(call, "beta", beta));
    if (C.rows == 0 || C.cols == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Number a = simblas_scalar(&op, handle, alpha, C.format);
    Number b = simblas_scalar(&op, handle, beta, C.format);
    if (!is_zero(a)) {
        simblas_touch_matrix(&op, &A, GPU_READ);
        simblas_touch_matrix(&op, &B, GPU_READ);
    }
    simblas_touch_matrix(&op, &C, is_zero(b) ? GPU_WRITE : GPU_UPDATE);
    bool done = true;
    if (simgpu_ready(&op)) {
        Planes product = {0};
        if (!is_zero(a))
            product = left ? simblas_product(&A, CUBLAS_OP_N, &B, CUBLAS_OP_N, A.cols)
                           : simblas_product(&B, CUBLAS_OP_N, &A, CUBLAS_OP_N, A.cols);
        done = combine(&C, a, is_zero(a) ? NULL : &product, a, NULL, b);
        simblas_free_planes(&product);
    }
    return finish(call, &op, done);
}

#define SYMM(I, E, L, T, name, others)                                                             \
    cublasStatus_t cublas##L##name##_v2##E(                                                        \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, I m, I n,             \
        const T *alpha, const T *A, I lda, const T *B, I ldb, const T *beta, T *C, I ldc)          \
    {                                                                                              \
        const Format *f = &simblas_##L;                                                            \
        return multiply_symmetric(                                                                 \
            (Call){"cublas" #L#name #E, SITE}, handle, side, uplo, alpha,                          \
            triangle(A, f, side == CUBLAS_SIDE_LEFT ? m : n, lda, uplo, others),                   \
            general(B, f, m, n, ldb), beta, general(C, f, m, n, ldc));                             \
    }
#define SYMMETRIC_MM(I, E, L, T) SYMM(I, E, L, T, symm, OTHERS_MIRRORED)
#define HERMITIAN_MM(I, E, L, T) SYMM(I, E, L, T, hemm, OTHERS_CONJUGATED)
FOR_EACH(SYMMETRIC_MM)
FOR_COMPLEX(HERMITIAN_MM)

// ---- Triangles: C = alpha·op(A)·B, and op(A)·X = alpha·B ----

// X is found column by column from the left, row by row from the right, where X·op(A) = B is
// op(A)ᵀ·Xᵀ = Bᵀ; op(A) is copied to double first.
bool simblas_solve(const Matrix *A, cublasOperation_t turn, cublasSideMode_t side, Number alpha,
                   const Matrix *B)
{
    bool left = side == CUBLAS_SIDE_LEFT;
    int64_t n = A->rows, systems = left ? B->cols : B->rows;
    bool upper = ((A->part == PART_UPPER) == (turn == CUBLAS_OP_N)) == left;
    if (is_zero(alpha)) { // A is not read
        return combine(B, alpha, NULL, alpha, NULL, number(0.0));
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

// What trmm and trsm have in common; C is B where they solve.
typedef struct Triangular {
    cublasSideMode_t side;
    cublasFillMode_t uplo;
    cublasOperation_t turn;
    cublasDiagType_t diag;
    Matrix A, B, C;
    bool solve;
} Triangular;

static cublasStatus_t check_triangular(Call call, cublasHandle_t handle, const Triangular *t,
                                       const void *alpha)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_side(call, t->side));
    CHECK(simblas_check_fill(call, t->uplo));
    CHECK(simblas_check_turn(call, "trans", t->turn));
    CHECK(simblas_check_diagonal(call, t->diag));
    CHECK(simblas_check_size(call, "m", t->B.rows));
    CHECK(simblas_check_size(call, "n", t->B.cols));
    CHECK(simblas_check_leading(call, "lda", t->A.ld, t->A.rows,
                                t->side == CUBLAS_SIDE_LEFT ? "m" : "n"));
    CHECK(simblas_check_leading(call, "ldb", t->B.ld, t->B.rows, "m"));
    CHECK(simblas_check_leading(call, "ldc", t->C.ld, t->C.rows, "m"));
    return simblas_check_pointer(call, "alpha", alpha);
}

static bool multiply_triangle(const Triangular *t, Number alpha)
{
    Planes product = {0};
    if (!is_zero(alpha))
        product = t->side == CUBLAS_SIDE_LEFT
                      ? simblas_product(&t->A, t->turn, &t->B, CUBLAS_OP_N, t->A.rows)
                      : simblas_product(&t->B, CUBLAS_OP_N, &t->A, t->turn, t->A.rows);
    bool done = combine(&t->C, alpha, is_zero(alpha) ? NULL : &product, alpha, NULL, number(0.0));
    simblas_free_planes(&product);
    return done;
}

static cublasStatus_t run_triangular(Call call, cublasHandle_t handle, Triangular t,
                                     const void *alpha)
{
    CHECK(check_triangular(call, handle, &t, alpha));
    if (t.B.rows == 0 || t.B.cols == 0) return CUBLAS_STATUS_SUCCESS;
    t.A.unit = t.diag == CUBLAS_DIAG_UNIT;
    SimgpuOp op = simblas_begin(call, handle);
    Number a = simblas_scalar(&op, handle, alpha, t.A.format);
    if (!is_zero(a)) simblas_touch_matrix(&op, &t.A, GPU_READ);
    if (!is_zero(a) && !t.solve) simblas_touch_matrix(&op, &t.B, GPU_READ);
    simblas_touch_matrix(&op, &t.C, t.solve && !is_zero(a) ? GPU_UPDATE : GPU_WRITE);
    bool done = true;
    if (simgpu_ready(&op))
        done = t.solve ? simblas_solve(&t.A, t.turn, t.side, a, &t.C) : multiply_triangle(&t, a);
    return finish(call, &op, done);
}

#define TRMM(I, E, L, T)                                                                           \
    cublasStatus_t cublas##L##trmm_v2##E(cublasHandle_t handle, cublasSideMode_t side,             \
                                         cublasFillMode_t uplo, cublasOperation_t trans,           \
                                         cublasDiagType_t diag, I m, I n, const T *alpha,          \
                                         const T *A, I lda, const T *B, I ldb, T *C, I ldc)        \
    {                                                                                              \
        const Format *f = &simblas_##L;                                                            \
        I order = side == CUBLAS_SIDE_LEFT ? m : n;                                                \
        Triangular t = {side,                                                                      \
                        uplo,                                                                      \
                        trans,                                                                     \
                        diag,                                                                      \
                        triangle(A, f, order, lda, uplo, OTHERS_ZERO),                             \
                        general(B, f, m, n, ldb),                                                  \
                        general(C, f, m, n, ldc),                                                  \
                        false};                                                                    \
        return run_triangular((Call){"cublas" #L "trmm" #E, SITE}, handle, t, alpha);              \
    }                                                                                              \
    cublasStatus_t cublas##L##trsm_v2##E(cublasHandle_t handle, cublasSideMode_t side,             \
                                         cublasFillMode_t uplo, cublasOperation_t trans,           \
                                         cublasDiagType_t diag, I m, I n, const T *alpha,          \
                                         const T *A, I lda, T *B, I ldb)                           \
    {                                                                                              \
        const Format *f = &simblas_##L;                                                            \
        I order = side == CUBLAS_SIDE_LEFT ? m : n;                                                \
        Triangular t = {side,                                                                      \
                        uplo,                                                                      \
                        trans,                                                                     \
                        diag,                                                                      \
                        triangle(A, f, order, lda, uplo, OTHERS_ZERO),                             \
                        general(B, f, m, n, ldb),                                                  \
                        general(B, f, m, n, ldb),                                                  \
                        true};                                                                     \
        return run_triangular((Call){"cublas" #L "trsm" #E, SITE}, handle, t, alpha);              \
    }
FOR_EACH(TRMM)

// ---- C = alpha·op(A)·op(B)ᵀ + beta·C of one triangle, and with both in both places ----

typedef struct RankK {
    cublasFillMode_t uplo;
    cublasOperation_t turn;
    int64_t n, k;
    Matrix A, B, C;
    const Format *alpha_format, *beta_format;
    bool second; // and conj(alpha)·op(B)·op(A)ᵀ (her2k), or alpha·… (syr2k)
} RankK;

static cublasStatus_t check_rank_k(Call call, cublasHandle_t handle, const RankK *r,
                                   const void *alpha, const void *beta)
{
    bool hermitian = r->C.others == OTHERS_CONJUGATED, as_is = r->turn == CUBLAS_OP_N;
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_fill(call, r->uplo));
    CHECK(simblas_check_turn(call, "trans", r->turn));
    if (r->turn == (hermitian ? CUBLAS_OP_T : CUBLAS_OP_C) && r->C.format->complex)
        return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE, "trans is %s; it must be %s.",
                              hermitian ? "CUBLAS_OP_T" : "CUBLAS_OP_C",
                              hermitian ? "CUBLAS_OP_N or CUBLAS_OP_C"
                                        : "CUBLAS_OP_N or CUBLAS_OP_T");
    CHECK(simblas_check_size(call, "n", r->n));
    CHECK(simblas_check_size(call, "k", r->k));
    CHECK(simblas_check_leading(call, "lda", r->A.ld, r->A.rows, as_is ? "n" : "k"));
    CHECK(simblas_check_leading(call, "ldb", r->B.ld, r->B.rows, as_is ? "n" : "k"));
    CHECK(simblas_check_leading(call, "ldc", r->C.ld, r->n, "n"));
    CHECK(simblas_check_pointer(call, "alpha", alpha));
    return simblas_check_pointer(call, "beta", beta);
}

static bool compute_rank_k(const RankK *r, Number alpha, Number beta)
{
    bool adds = !is_zero(alpha) && r->k > 0, as_is = r->turn == CUBLAS_OP_N;
    bool hermitian = r->C.others == OTHERS_CONJUGATED;
    cublasOperation_t across = hermitian ? CUBLAS_OP_C : CUBLAS_OP_T;
    cublasOperation_t left = as_is ? CUBLAS_OP_N : across, right = as_is ? across : CUBLAS_OP_N;
    Planes P = {0}, Q = {0};
    if (adds) P = simblas_product(&r->A, left, &r->B, right, r->k);
    if (adds && r->second) Q = simblas_product(&r->B, left, &r->A, right, r->k);
    bool done = combine(&r->C, alpha, adds ? &P : NULL, hermitian ? conjugate(alpha) : alpha,
                        adds && r->second ? &Q : NULL, beta);
    simblas_free_planes(&P);
    simblas_free_planes(&Q);
    return done;
}

static cublasStatus_t run_rank_k(Call call, cublasHandle_t handle, RankK r, const void *alpha,
                                 const void *beta)
{
    CHECK(check_rank_k(call, handle, &r, alpha, beta));
    if (r.n == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Number a = simblas_scalar(&op, handle, alpha, r.alpha_format);
    Number b = simblas_scalar(&op, handle, beta, r.beta_format);
    bool same = r.A.ptr == r.B.ptr && r.A.ld == r.B.ld;
    if (!is_zero(a) && r.k > 0) {
        simblas_touch_matrix(&op, &r.A, GPU_READ);
        if (same)
            r.B.at = r.A.at;
        else
            simblas_touch_matrix(&op, &r.B, GPU_READ);
    }
    simblas_touch_matrix(&op, &r.C, is_zero(b) ? GPU_WRITE : GPU_UPDATE);
    bool done = true;
    if (simgpu_ready(&op)) done = compute_rank_k(&r, a, b);
    return finish(call, &op, done);
}

static RankK rank_k(const Format *in, const Format *out, cublasFillMode_t uplo,
                    cublasOperation_t turn, int64_t n, int64_t k, const void *A, int64_t lda,
                    const void *B, int64_t ldb, const void *C, int64_t ldc, Others others)
{
    bool as_is = turn == CUBLAS_OP_N;
    int64_t rows = as_is ? n : k, cols = as_is ? k : n;
    return (RankK){uplo,
                   turn,
                   n,
                   k,
                   general(A, in, rows, cols, lda),
                   general(B, in, rows, cols, ldb),
                   triangle(C, out, n, ldc, uplo, others),
                   out,
                   out,
                   false};
}

// name, the symbol's end, and the types and formats of alpha and beta.
#define RANK_K(I, E, L, T, name, suffix, TA, FA, TB, FB, others)                                   \
    cublasStatus_t cublas##L##name##suffix##E(cublasHandle_t handle, cublasFillMode_t uplo,        \
                                              cublasOperation_t trans, I n, I k, const TA *alpha,  \
                                              const T *A, I lda, const TB *beta, T *C, I ldc)      \
    {                                                                                              \
        RankK r =                                                                                  \
            rank_k(&simblas_##L, &simblas_##L, uplo, trans, n, k, A, lda, A, lda, C, ldc, others); \
        r.alpha_format = &FA;                                                                      \
        r.beta_format = &FB;                                                                       \
        return run_rank_k((Call){"cublas" #L#name #E, SITE}, handle, r, alpha, beta);              \
    }
#define RANK_2K(I, E, L, T, name, suffix, TB, FB, others, twice)                                   \
    cublasStatus_t cublas##L##name##suffix##E(                                                     \
        cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, I n, I k,           \
        const T *alpha, const T *A, I lda, const T *B, I ldb, const TB *beta, T *C, I ldc)         \
    {                                                                                              \
        RankK r =                                                                                  \
            rank_k(&simblas_##L, &simblas_##L, uplo, trans, n, k, A, lda, B, ldb, C, ldc, others); \
        r.beta_format = &FB;                                                                       \
        r.second = twice;                                                                          \
        return run_rank_k((Call){"cublas" #L#name #E, SITE}, handle, r, alpha, beta);              \
    }
#define SYMMETRIC_RANK_K(I, E, L, T)                                                               \
    RANK_K(I, E, L, T, syrk, _v2, T, simblas_##L, T, simblas_##L, OTHERS_MIRRORED)                 \
    RANK_2K(I, E, L, T, syr2k, _v2, T, simblas_##L, OTHERS_MIRRORED, true)                         \
    RANK_2K(I, E, L, T, syrkx, , T, simblas_##L, OTHERS_MIRRORED, false)
#define HERMITIAN_RANK_K(I, E, L, T, TR, FR)                                                       \
    RANK_K(I, E, L, T, herk, _v2, TR, FR, TR, FR, OTHERS_CONJUGATED)                               \
    RANK_2K(I, E, L, T, her2k, _v2, TR, FR, OTHERS_CONJUGATED, true)                               \
    RANK_2K(I, E, L, T, herkx, , TR, FR, OTHERS_CONJUGATED, false)
FOR_EACH(SYMMETRIC_RANK_K)
FOR_SIZES(HERMITIAN_RANK_K, C, cuComplex, float, simblas_S)
FOR_SIZES(HERMITIAN_RANK_K, Z, cuDoubleComplex, double, simblas_D)

// A of bytes or floats, complex; C of floats.
#define RANK_K_EX(I, E, name, TA, FA, others)                                                      \
    cublasStatus_t name##E(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans,  \
                           I n, I k, const TA *alpha, const void *A, cudaDataType Atype, I lda,    \
                           const TA *beta, void *C, cudaDataType Ctype, I ldc)                     \
    {                                                                                              \
        Call call = {#name #E, SITE};                                                              \
        if ((Atype != CUDA_C_8I && Atype != CUDA_C_32F) || Ctype != CUDA_C_32F)                    \
            return simblas_refuse(call, CUBLAS_STATUS_NOT_SUPPORTED,                               \
                                  "A of type %d and C of type %d: A must be of CUDA_C_8I or "      \
                                  "CUDA_C_32F, C of CUDA_C_32F.",                                  \
                                  (int)Atype, (int)Ctype);                                         \
        RankK r = rank_k(simblas_format(Atype), &simblas_C, uplo, trans, n, k, A, lda, A, lda, C,  \
                         ldc, others);                                                             \
        r.alpha_format = r.beta_format = &FA;                                                      \
        return run_rank_k(call, handle, r, alpha, beta);                                           \
    }
FOR_SIZES(RANK_K_EX, cublasCsyrkEx, cuComplex, simblas_C, OTHERS_MIRRORED)
FOR_SIZES(RANK_K_EX, cublasCsyrk3mEx, cuComplex, simblas_C, OTHERS_MIRRORED)
FOR_SIZES(RANK_K_EX, cublasCherkEx, float, simblas_S, OTHERS_CONJUGATED)
FOR_SIZES(RANK_K_EX, cublasCherk3mEx, float, simblas_S, OTHERS_CONJUGATED)
