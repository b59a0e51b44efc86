/* blas_oracle.h: the checks of blas_levels.c for one type of number, included once for each.
 *
 * The includer defines L (cuBLAS's letter), T (its type), REAL (of its parts), COMPLEX (0 or 1) and
 * READ(x), MAKE(re, im), PART(x): to long double complex and back. Everything is computed here by its
 * definition, from matrices that are written out in full.
 */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define MY(name) JOIN(JOIN(name, _), L)
#define CALL_(l, name) cublas##l##name
#define CALL__(l, name) CALL_(l, name)
#define CALL(name) CALL__(L, name)

static T *MY(numbers)(size_t n, unsigned seed)
{
    T *x = calloc(n + 1, sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = MAKE(small(&seed), small(&seed));
    return x;
}

static T *MY(send)(const T *host, size_t n)
{
    void *x = NULL;
    need_cuda(cudaMalloc(&x, (n + 1) * sizeof *host));
    need_cuda(cudaMemcpy(x, host, n * sizeof *host, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    return x;
}

// Compares what is on the device with what it must be; frees it.
static void MY(compare)(const char *what, T *device, const T *want, size_t n, double within)
{
    T *got = calloc(n + 1, sizeof *got);
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaMemcpy(got, device, n * sizeof *got, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++) {
        Exact a = READ(got[i]), b = READ(want[i]);
        check(cabsl(a - b) <= within * (1.0L + cabsl(b)),
              "%s: element %zu is %Lg + %Lgi, not %Lg + %Lgi", what, i, creall(a), cimagl(a),
              creall(b), cimagl(b));
    }
    need_cuda(cudaFree(device));
    free(got);
}

// op(A) at (i, j), by the definition; `kind` says which elements of A mean what.
static Exact MY(at)(const T *A, int ld, const Shape *s, int i, int j)
{
    bool turn = s->op != CUBLAS_OP_N;
    int r = turn ? j : i, c = turn ? i : j;
    bool stored = s->kind == GENERAL || (s->upper ? r <= c : r >= c), flip = false;
    Exact x = 0.0L;
    if (s->kind == TRIANGLE && s->unit && r == c) return 1.0L;
    if (!stored && s->kind == TRIANGLE) return 0.0L;
    if (!stored) {
        int swap = r;
        r = c;
        c = swap;
        flip = s->kind == HERMITIAN;
    }
    x = READ(A[(size_t)c * (size_t)ld + (size_t)r]);
    if (s->kind == HERMITIAN && r == c) x = creall(x);
    if (flip) x = conjl(x);
    return s->op == CUBLAS_OP_C ? conjl(x) : x;
}

static Exact MY(dot)(const T *A, int lda, const Shape *a, const T *B, int ldb, const Shape *b,
                     int i, int j, int k)
{
    Exact sum = 0.0L;
    for (int l = 0; l < k; l++) sum += MY(at)(A, lda, a, i, l) * MY(at)(B, ldb, b, l, j);
    return sum;
}

// Writes alpha·x + beta·c to c; where beta is 0, c holds NaN and must not count.
static void MY(put)(T *c, Exact alpha, Exact x, Exact beta)
{
    Exact sum = alpha * x;
    if (beta != 0.0L) sum += beta * READ(*c);
    *c = MAKE((REAL)creall(sum), (REAL)cimagl(sum));
}

static void MY(poison)(T *C, size_t n, Exact beta)
{
    for (size_t i = 0; i < n && beta == 0.0L; i++) C[i] = MAKE(777, 777);
}

static void MY(check_gemm)(cublasHandle_t h, int m, int n, int k, int gap, cublasOperation_t ta,
                           cublasOperation_t tb, T alpha, T beta)
{
    Shape a = {GENERAL, ta, false, false}, b = {GENERAL, tb, false, false};
    int lda = (ta ? k : m) + gap, ldb = (tb ? n : k) + gap, ldc = m + gap;
    size_t na = (size_t)lda * (size_t)(ta ? m : k), nb = (size_t)ldb * (size_t)(tb ? k : n);
    size_t nc = (size_t)ldc * (size_t)n;
    T *A = MY(numbers)(na, 1), *B = MY(numbers)(nb, 2), *C = MY(numbers)(nc, 3);
    MY(poison)(C, nc, READ(beta));
    T *dA = MY(send)(A, na), *dB = MY(send)(B, nb), *dC = MY(send)(C, nc), *dD = MY(send)(C, nc);
    need_blas(CALL(gemm)(h, ta, tb, m, n, k, &alpha, dA, lda, dB, ldb, &beta, dC, ldc));
    const T *list[3] = {dA, dB, dD};
    void *lists = NULL;
    need_cuda(cudaMalloc(&lists, sizeof list));
    need_cuda(cudaMemcpy(lists, list, sizeof list, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    T **first = lists;
    need_blas(CALL(gemmBatched)(h, ta, tb, m, n, k, &alpha, (const T *const *)first, lda,
                                (const T *const *)first + 1, ldb, &beta, first + 2, ldc, 1));
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++)
            MY(put)
            (&C[j * ldc + i], READ(alpha), MY(dot)(A, lda, &a, B, ldb, &b, i, j, k), READ(beta));
    MY(compare)("gemm", dC, C, nc, 0.0);
    MY(compare)("gemmBatched", dD, C, nc, 0.0);
    need_cuda(cudaFree(lists));
    need_cuda(cudaFree(dA));
    need_cuda(cudaFree(dB));
    free(A);
    free(B);
    free(C);
}

// A is square and structured; B and C are m x n.
static void MY(check_sided)(cublasHandle_t h, int m, int n, int gap, bool left, Shape s, T alpha,
                            T beta)
{
    cublasSideMode_t side = left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT;
    cublasFillMode_t uplo = s.upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
    cublasDiagType_t diag = s.unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
    Shape plain = {GENERAL, CUBLAS_OP_N, false, false};
    int order = left ? m : n, lda = order + gap, ld = m + gap;
    size_t na = (size_t)lda * (size_t)order, nc = (size_t)ld * (size_t)n;
    T *A = MY(numbers)(na, 4), *B = MY(numbers)(nc, 5), *C = MY(numbers)(nc, 6);
    if (s.kind == TRIANGLE)
        for (int i = 0; i < order; i++) A[i * lda + i] = MAKE(i % 2 ? 2 : -2, 0);
    T *dA = MY(send)(A, na), *dB = MY(send)(B, nc), *dC = MY(send)(C, nc);
    if (s.kind == TRIANGLE) beta = MAKE(0, 0);
    if (s.kind == TRIANGLE)
        need_blas(CALL(trmm)(h, side, uplo, s.op, diag, m, n, &alpha, dA, lda, dB, ld, dC, ld));
#if COMPLEX
    else if (s.kind == HERMITIAN)
        need_blas(CALL(hemm)(h, side, uplo, m, n, &alpha, dA, lda, dB, ld, &beta, dC, ld));
#endif
    else
        need_blas(CALL(symm)(h, side, uplo, m, n, &alpha, dA, lda, dB, ld, &beta, dC, ld));
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            Exact x = left ? MY(dot)(A, lda, &s, B, ld, &plain, i, j, m)
                           : MY(dot)(B, ld, &plain, A, lda, &s, i, j, n);
            MY(put)(&C[j * ld + i], READ(alpha), x, READ(beta));
        }
    if (s.kind == TRIANGLE) { // the solution of the system is the B that was multiplied
        T one = MAKE(1, 0), *dX = MY(send)(C, nc);
        Exact inverse = 1.0L / READ(alpha);
        for (size_t i = 0; i < nc; i++) {
            Exact x = READ(C[i]) * inverse;
            T y = MAKE((REAL)creall(x), (REAL)cimagl(x));
            need_cuda(cudaMemcpy(dX + i, &y, sizeof y, cudaMemcpyHostToDevice));
        }
        need_cuda(cudaDeviceSynchronize());
        need_blas(CALL(trsm)(h, side, uplo, s.op, diag, m, n, &one, dA, lda, dX, ld));
        for (int j = 0; j < n; j++)
            for (int i = m; i < ld; i++) { // the gaps were scaled above, and not solved
                Exact x = READ(C[j * ld + i]) * inverse;
                B[j * ld + i] = MAKE((REAL)creall(x), (REAL)cimagl(x));
            }
        MY(compare)("trsm", dX, B, nc, sizeof(REAL) == 4 ? 1e-3 : 1e-11);
    }
    MY(compare)(s.kind == TRIANGLE ? "trmm" : "symm or hemm", dC, C, nc, 0.0);
    need_cuda(cudaFree(dA));
    need_cuda(cudaFree(dB));
    free(A);
    free(B);
    free(C);
}

// y = alpha·op(A)·x + beta·y, and the products and systems of a triangle in place.
static void MY(check_vector)(cublasHandle_t h, int m, int n, int gap, Shape s, int inc, T alpha,
                             T beta)
{
    int lda = m + gap, rows = s.op ? n : m, cols = s.op ? m : n, step = abs(inc);
    size_t na = (size_t)lda * (size_t)n, nx = (size_t)(step * cols), ny = (size_t)(step * rows);
    cublasFillMode_t uplo = s.upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
    cublasDiagType_t diag = s.unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
    T *A = MY(numbers)(na, 7), *x = MY(numbers)(nx, 8), *y = MY(numbers)(ny, 9);
    if (s.kind == TRIANGLE)
        for (int i = 0; i < m; i++) A[i * lda + i] = MAKE(i % 2 ? 2 : -2, 0);
    T *dA = MY(send)(A, na), *dx = MY(send)(x, nx), *dy = MY(send)(y, ny);
    if (s.kind == GENERAL)
        need_blas(CALL(gemv)(h, s.op, m, n, &alpha, dA, lda, dx, inc, &beta, dy, inc));
    else if (s.kind == SYMMETRIC)
        need_blas(CALL(symv)(h, uplo, n, &alpha, dA, lda, dx, inc, &beta, dy, inc));
#if COMPLEX
    else if (s.kind == HERMITIAN)
        need_blas(CALL(hemv)(h, uplo, n, &alpha, dA, lda, dx, inc, &beta, dy, inc));
#endif
    else {
        need_blas(CALL(copy)(h, n, dx, inc, dy, inc));
        need_blas(CALL(trmv)(h, uplo, s.op, diag, n, dA, lda, dy, inc));
        alpha = MAKE(1, 0);
        beta = MAKE(0, 0);
    }
    for (int i = 0; i < rows; i++) {
        Exact sum = 0.0L;
        for (int j = 0; j < cols; j++)
            sum += MY(at)(A, lda, &s, i, j) * READ(x[step * (inc > 0 ? j : cols - 1 - j)]);
        MY(put)(&y[step * (inc > 0 ? i : rows - 1 - i)], READ(alpha), sum, READ(beta));
    }
    if (s.kind == TRIANGLE) {
        T *dz = MY(send)(y, ny);
        need_blas(CALL(trsv)(h, uplo, s.op, diag, n, dA, lda, dz, inc));
        for (size_t i = 0; i < nx; i++)
            if (i % (size_t)step != 0) x[i] = y[i];
        MY(compare)("trsv", dz, x, nx, sizeof(REAL) == 4 ? 1e-3 : 1e-11);
    }
    MY(compare)("a product with a vector", dy, y, ny, 0.0);
    need_cuda(cudaFree(dA));
    need_cuda(cudaFree(dx));
    free(A);
    free(x);
    free(y);
}

// C = alpha·op(A)·op(A)ᵀ + beta·C (syrk), with B and twice (syr2k): one triangle, and no more.
static void MY(check_rank_k)(cublasHandle_t h, int n, int k, int gap, bool upper, bool turn,
                             T alpha, T beta)
{
    cublasFillMode_t uplo = upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
    cublasOperation_t op = turn ? CUBLAS_OP_T : CUBLAS_OP_N;
    int ld = (turn ? k : n) + gap, ldc = n + gap;
    Shape left = {GENERAL, op, false, false};
    Shape right = {GENERAL, turn ? CUBLAS_OP_N : CUBLAS_OP_T, false, false};
    size_t na = (size_t)ld * (size_t)(turn ? n : k), nc = (size_t)ldc * (size_t)n;
    T *A = MY(numbers)(na, 10), *B = MY(numbers)(na, 11), *C = MY(numbers)(nc, 12);
    T *D = MY(numbers)(nc, 12), *dA = MY(send)(A, na), *dB = MY(send)(B, na), *dC = MY(send)(C, nc);
    T *dD = MY(send)(C, nc);
    need_blas(CALL(syrk)(h, uplo, op, n, k, &alpha, dA, ld, &beta, dC, ldc));
    need_blas(CALL(syr2k)(h, uplo, op, n, k, &alpha, dA, ld, dB, ld, &beta, dD, ldc));
    for (int j = 0; j < n; j++)
        for (int i = upper ? 0 : j; i < (upper ? j + 1 : n); i++) {
            Exact once = MY(dot)(A, ld, &left, A, ld, &right, i, j, k);
            Exact twice = MY(dot)(A, ld, &left, B, ld, &right, i, j, k) +
                          MY(dot)(B, ld, &left, A, ld, &right, i, j, k);
            MY(put)(&C[j * ldc + i], READ(alpha), once, READ(beta));
            MY(put)(&D[j * ldc + i], READ(alpha), twice, READ(beta));
        }
    MY(compare)("syrk", dC, C, nc, 0.0);
    MY(compare)("syr2k", dD, D, nc, 0.0);
    need_cuda(cudaFree(dA));
    need_cuda(cudaFree(dB));
    free(A);
    free(B);
    free(C);
    free(D);
}

static void MY(check_vectors)(cublasHandle_t h, int n)
{
    T *x = MY(numbers)((size_t)n, 13), *y = MY(numbers)((size_t)n, 14), alpha = MAKE(3, 2);
    T *dx = MY(send)(x, (size_t)n), *dy = MY(send)(y, (size_t)n);
    int most = 0, want = 0;
    long double best = -1.0L;
    for (int i = 0; i < n; i++) {
        Exact v = READ(x[i]);
        long double size = fabsl(creall(v)) + fabsl(cimagl(v));
        if (size > best) want = i + 1;
        if (size > best) best = size;
    }
    need_blas(AMAX(h, n, dx, 1, &most));
    check(most == want, "amax is %d, not %d", most, want);
    need_blas(CALL(axpy)(h, n, &alpha, dx, 1, dy, 1));
    need_blas(CALL(scal)(h, n, &alpha, dx, 1));
    need_blas(CALL(swap)(h, n, dx, 1, dy, 1));
    for (int i = 0; i < n; i++) {
        MY(put)(&y[i], READ(alpha), READ(x[i]), 1.0L);
        MY(put)(&x[i], READ(alpha), READ(x[i]), 0.0L);
    }
    MY(compare)("axpy", dx, y, (size_t)n, 0.0);
    MY(compare)("scal", dy, x, (size_t)n, 0.0);
    free(x);
    free(y);
}

static void MY(check_all)(const Rank *r, void *arg)
{
    static const int sizes[][3] = {{1, 1, 1}, {5, 3, 7}, {17, 4, 16}, {3, 33, 5}, {16, 21, 1}};
    static const cublasOperation_t ops[] = {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C};
    cublasHandle_t h = NULL;
    need_blas(cublasCreate(&h));
    T alpha = MAKE(2, 1), betas[] = {MAKE(0, 0), MAKE(-1, 3)};
    for (int z = 0; z < 5; z++)
        for (int form = 0; form < 36; form++) {
            int m = sizes[z][0], n = sizes[z][1], k = sizes[z][2], gap = form % 2 * 3;
            cublasOperation_t a = ops[form / 2 % 3], b = ops[form / 6 % 3];
            T beta = betas[form / 18];
            MY(check_gemm)(h, m, n, k, gap, a, b, alpha, beta);
            for (int kind = SYMMETRIC; kind <= TRIANGLE; kind++) {
                Shape s = {kind, kind == TRIANGLE ? a : CUBLAS_OP_N, form / 6 % 2, form / 12 % 2};
                if (kind == HERMITIAN && !COMPLEX) continue;
                MY(check_sided)(h, n % 9 + 1, m % 9 + 1, gap, form / 3 % 2, s, MAKE(2, 0), beta);
                MY(check_vector)
                (h, m % 9 + 1, m % 9 + 1, gap, s, form % 4 < 2 ? 2 : -1, alpha, beta);
            }
            MY(check_vector)
            (h, m, n, gap, (Shape){GENERAL, a, false, false}, form % 4 < 2 ? 1 : -3, alpha, beta);
            if (form < 8)
                MY(check_rank_k)(h, n, k, gap, form / 2 % 2, form / 4, alpha, betas[z % 2]);
        }
    MY(check_vectors)(h, 37);
    need_blas(cublasDestroy(h));
}

#undef L
#undef T
#undef REAL
#undef COMPLEX
#undef READ
#undef MAKE
#undef AMAX
#undef JOIN_
#undef JOIN
#undef MY
#undef CALL_
#undef CALL__
#undef CALL
