/* extra.c: what cuBLAS has beyond BLAS: sums of matrices, scaled rows or columns, and the two ways
 * to store a triangle.
 *
 * Interface: cublas?geam, cublas?dgmm, cublas?tpttr, cublas?trttp.
 */
#include "blas.h"

static Matrix general(const void *A, const Format *f, int64_t rows, int64_t cols, int64_t ld)
{
    return (Matrix){.ptr = A, .format = f, .rows = rows, .cols = cols, .ld = ld};
}

// ---- geam: C = alpha·op(A) + beta·op(B) ----

typedef struct Geam {
    cublasOperation_t turn_a, turn_b;
    Matrix A, B, C;
} Geam;

static cublasStatus_t check_geam(Call call, cublasHandle_t handle, const Geam *g, const void *alpha,
                                 const void *beta)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_turn(call, "transa", g->turn_a));
    CHECK(simblas_check_turn(call, "transb", g->turn_b));
    CHECK(simblas_check_size(call, "m", g->C.rows));
    CHECK(simblas_check_size(call, "n", g->C.cols));
    CHECK(simblas_check_leading(call, "lda", g->A.ld, g->A.rows, g->turn_a ? "n" : "m"));
    CHECK(simblas_check_leading(call, "ldb", g->B.ld, g->B.rows, g->turn_b ? "n" : "m"));
    CHECK(simblas_check_leading(call, "ldc", g->C.ld, g->C.rows, "m"));
    CHECK(simblas_check_pointer(call, "alpha", alpha));
    CHECK(simblas_check_pointer(call, "beta", beta));
    bool in_place_a = g->C.ptr == g->A.ptr && (g->turn_a != CUBLAS_OP_N || g->C.ld != g->A.ld);
    bool in_place_b = g->C.ptr == g->B.ptr && (g->turn_b != CUBLAS_OP_N || g->C.ld != g->B.ld);
    if (!in_place_a && !in_place_b) return CUBLAS_STATUS_SUCCESS;
    return simblas_refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                          "C is %s, which then must not be transposed, nor have another leading "
                          "dimension.",
                          in_place_a ? "A" : "B");
}

static cublasStatus_t run_geam(Call call, cublasHandle_t handle, Geam g, const void *alpha,
                               const void *beta)
{
    CHECK(check_geam(call, handle, &g, alpha, beta));
    if (g.C.rows == 0 || g.C.cols == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    Number a = simblas_scalar(&op, handle, alpha, g.C.format);
    Number b = simblas_scalar(&op, handle, beta, g.C.format);
    if (!is_zero(a)) simblas_touch_matrix(&op, &g.A, GPU_READ);
    if (!is_zero(b)) simblas_touch_matrix(&op, &g.B, GPU_READ);
    simblas_touch_matrix(&op, &g.C, GPU_WRITE);
    for (int64_t j = 0; j < g.C.cols && simgpu_ready(&op); j++)
        for (int64_t i = 0; i < g.C.rows; i++) {
            Number x = number(0.0);
            if (!is_zero(a)) x = times(a, simblas_element(&g.A, g.turn_a, i, j));
            if (!is_zero(b)) x = plus(x, times(b, simblas_element(&g.B, g.turn_b, i, j)));
            simblas_store(&g.C, i, j, x);
        }
    return simblas_end(&op);
}

#define GEAM(I, E, L, T)                                                                           \
    cublasStatus_t cublas##L##geam##E(                                                             \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I m, I n,       \
        const T *alpha, const T *A, I lda, const T *beta, const T *B, I ldb, T *C, I ldc)          \
    {                                                                                              \
        const Format *f = &simblas_##L;                                                            \
        bool a = transa != CUBLAS_OP_N, b = transb != CUBLAS_OP_N;                                 \
        Geam g = {transa, transb, general(A, f, a ? n : m, a ? m : n, lda),                        \
                  general(B, f, b ? n : m, b ? m : n, ldb), general(C, f, m, n, ldc)};             \
        return run_geam((Call){"cublas" #L "geam" #E, SITE}, handle, g, alpha, beta);              \
    }
FOR_EACH(GEAM)

// ---- dgmm: C = diag(x)·A, or A·diag(x) ----

static cublasStatus_t run_dgmm(Call call, cublasHandle_t handle, cublasSideMode_t side, Matrix A,
                               Vector x, Matrix C)
{
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_side(call, side));
    CHECK(simblas_check_size(call, "m", C.rows));
    CHECK(simblas_check_size(call, "n", C.cols));
    CHECK(simblas_check_leading(call, "lda", A.ld, A.rows, "m"));
    CHECK(simblas_check_leading(call, "ldc", C.ld, C.rows, "m"));
    if (C.rows == 0 || C.cols == 0) return CUBLAS_STATUS_SUCCESS;
    if (x.inc == 0) { // one number for all
        x.n = 1;
        x.inc = 1;
    }
    SimgpuOp op = simblas_begin(call, handle);
    simblas_touch_matrix(&op, &A, GPU_READ);
    simblas_touch_vector(&op, &x, GPU_READ, false);
    simblas_touch_matrix(&op, &C, GPU_WRITE);
    for (int64_t j = 0; j < C.cols && simgpu_ready(&op); j++)
        for (int64_t i = 0; i < C.rows; i++) {
            int64_t at = x.n == 1 ? 0 : side == CUBLAS_SIDE_LEFT ? i : j;
            simblas_store(&C, i, j, times(simblas_load(&A, i, j), simblas_get(&x, at)));
        }
    return simblas_end(&op);
}

#define DGMM(I, E, L, T)                                                                           \
    cublasStatus_t cublas##L##dgmm##E(cublasHandle_t handle, cublasSideMode_t mode, I m, I n,      \
                                      const T *A, I lda, const T *x, I incx, T *C, I ldc)          \
    {                                                                                              \
        const Format *f = &simblas_##L;                                                            \
        return run_dgmm((Call){"cublas" #L "dgmm" #E, SITE}, handle, mode,                         \
                        general(A, f, m, n, lda),                                                  \
                        (Vector){x, f, mode == CUBLAS_SIDE_LEFT ? m : n, incx, NULL},              \
                        general(C, f, m, n, ldc));                                                 \
    }
FOR_EACH(DGMM)

// ---- A triangle, packed and in full ----

static cublasStatus_t convert(Call call, cublasHandle_t handle, cublasFillMode_t uplo, Matrix from,
                              Matrix to)
{
    int64_t ld = from.layout == LAYOUT_FULL ? from.ld : to.ld;
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_check_fill(call, uplo));
    CHECK(simblas_check_size(call, "n", to.rows));
    CHECK(simblas_check_leading(call, "lda", ld, to.rows, "n"));
    if (to.rows == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    simblas_touch_matrix(&op, &from, GPU_READ);
    simblas_touch_matrix(&op, &to, GPU_WRITE);
    for (int64_t j = 0; j < to.cols && simgpu_ready(&op); j++) {
        int64_t first, last;
        simblas_stored(&to, j, &first, &last);
        for (int64_t i = first; i < last; i++) simblas_store(&to, i, j, simblas_load(&from, i, j));
    }
    return simblas_end(&op);
}

static Matrix triangle(const void *A, const Format *f, int64_t n, int64_t ld, cublasFillMode_t uplo,
                       Layout layout)
{
    Matrix m = general(A, f, n, n, ld);
    m.part = simblas_part(uplo);
    m.layout = layout;
    return m;
}

#define CONVERT(L, T)                                                                              \
    cublasStatus_t cublas##L##tpttr(cublasHandle_t handle, cublasFillMode_t uplo, int n,           \
                                    const T *AP, T *A, int lda)                                    \
    {                                                                                              \
        const Format *f = &simblas_##L;                                                            \
        return convert((Call){"cublas" #L "tpttr", SITE}, handle, uplo,                            \
                       triangle(AP, f, n, 0, uplo, LAYOUT_PACKED),                                 \
                       triangle(A, f, n, lda, uplo, LAYOUT_FULL));                                 \
    }                                                                                              \
    cublasStatus_t cublas##L##trttp(cublasHandle_t handle, cublasFillMode_t uplo, int n,           \
                                    const T *A, int lda, T *AP)                                    \
    {                                                                                              \
        const Format *f = &simblas_##L;                                                            \
        return convert((Call){"cublas" #L "trttp", SITE}, handle, uplo,                            \
                       triangle(A, f, n, lda, uplo, LAYOUT_FULL),                                  \
                       triangle(AP, f, n, 0, uplo, LAYOUT_PACKED));                                \
    }
EACH_FORMAT(CONVERT)
