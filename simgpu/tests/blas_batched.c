/* blas_batched.c: products one by one, in batches, at strides and in groups, of every combination
 * of types that cuBLAS has, by calls of one type's name and by those that name their types (…Ex);
 * matrices and vectors in batches; against loops in long double (blas_exact.h).
 */
#include "blas_exact.h"

// simgpu's headers have these for C++ alone.
typedef struct __half {
    unsigned short bits;
} __half;
typedef struct __nv_bfloat16 {
    unsigned short bits;
} __nv_bfloat16;
#include <simgpu_cublas/half.h>

enum { COUNT = 3 }; // of a batch

static const int SIZES[][3] = {{1, 1, 1}, {5, 3, 7}, {4, 9, 2}, {3, 2, 0}, {13, 6, 19}};
static const int FACTORS[][2] = {{2, 0}, {-1, 3}, {0, 2}, {0, 0}};

// The matrices of a batch in one allocation, each `stride` numbers after the one before; 0: they
// are the first one.
static Operand join(const Operand *first, size_t apart, long stride)
{
    size_t n = first->n + (stride ? (size_t)stride * (COUNT - 1) : 0);
    Operand all = operand(first->type, n);
    for (int i = 0; i < COUNT; i++) {
        const Operand *one = (const Operand *)((const char *)first + (size_t)i * apart);
        size_t bytes = bytes_of(one->type);
        if (i == 0 || stride)
            memcpy((char *)all.host + (size_t)(i * stride) * bytes, one->host, one->n * bytes);
    }
    return all;
}

// An array of three addresses in device memory.
static void *addresses(void *const list[COUNT])
{
    void *at = NULL;
    need_cuda(cudaMalloc(&at, COUNT * sizeof *list));
    need_cuda(cudaMemcpy(at, list, COUNT * sizeof *list, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    return at;
}

// ---- Products ----

typedef struct Combination {
    char ab, c, scale;
    cublasComputeType_t compute;
    const char *named; // what has a call of its own type's name: one, Batched, Strided, Grouped
} Combination;
static const Combination COMBINATIONS[] = {
    {'S', 'S', 'S', CUBLAS_COMPUTE_32F, "1BSG"},
    {'D', 'D', 'D', CUBLAS_COMPUTE_64F, "1BSG"},
    {'C', 'C', 'C', CUBLAS_COMPUTE_32F, "1BS3"},
    {'Z', 'Z', 'Z', CUBLAS_COMPUTE_64F_PEDANTIC, "1BS"},
    {'H', 'H', 'H', CUBLAS_COMPUTE_16F, "1BS"},
    {'H', 'H', 'S', CUBLAS_COMPUTE_32F, "x"},
    {'H', 'S', 'S', CUBLAS_COMPUTE_32F, "x"},
    {'T', 'T', 'S', CUBLAS_COMPUTE_32F, "x"},
    {'T', 'S', 'S', CUBLAS_COMPUTE_32F_PEDANTIC, "x"},
    {'B', 'I', 'I', CUBLAS_COMPUTE_32I, ""},
    {'B', 'S', 'S', CUBLAS_COMPUTE_32F, "x"},
    {'K', 'C', 'C', CUBLAS_COMPUTE_32F, "x3"},
    {'S', 'S', 'S', CUBLAS_COMPUTE_32F_FAST_TF32, "x"},
    {'S', 'S', 'S', CUBLAS_COMPUTE_32F_FAST_16BF, ""},
    {'C', 'C', 'C', CUBLAS_COMPUTE_32F_FAST_16F, "x3"},
};
enum { N_COMBINATIONS = sizeof COMBINATIONS / sizeof *COMBINATIONS };

typedef struct Product {
    int m, n, k;
    cublasOperation_t oa, ob;
    Exact alpha, beta;
} Product;

// How the batch is handed over: by A, B and C, whose strides are in numbers; by arrays of
// addresses.
typedef struct Places {
    void *A, *B, *C;
    long sa, sb, sc;
} Places;

static const void *factors(Session *s, char t, const Exact *x, int n)
{
    static double host[2][2 * COUNT];
    static int next;
    int which = next++ % 2;
    for (int i = 0; i < n; i++) blas_put(t, host[which], (size_t)i, x[i]);
    if (!s->on_device) return host[which];
    char *at = s->room + (size_t)which * sizeof host[0];
    need_cuda(cudaMemcpy(at, host[which], (size_t)n * bytes_of(t), cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    return at;
}

#define HALF_OR(t, name, ...) ((t) == 'H' ? cublasH##name(__VA_ARGS__) : EACH(t, name, __VA_ARGS__))
#define HEAD s->h, p->oa, p->ob, p->m, p->n, p->k, a

static cublasStatus_t call_named(Session *s, char form, char t, const Product *p, const void *a,
                                 const void *b, const Mat *A, const Mat *B, const Mat *C,
                                 const Places *at)
{
    int la = A->ld, lb = B->ld, lc = C->ld;
    if (form == '1') return HALF_OR(t, gemm, HEAD, at->A, la, at->B, lb, b, at->C, lc);
    if (form == 'B')
        return HALF_OR(t, gemmBatched, HEAD, at->A, la, at->B, lb, b, at->C, lc, COUNT);
    return HALF_OR(t, gemmStridedBatched, HEAD, at->A, la, at->sa, at->B, lb, at->sb, b, at->C, lc,
                   at->sc, COUNT);
}

static cublasStatus_t call_3m(Session *s, char form, const Product *p, const void *a, const void *b,
                              const Mat *A, const Mat *B, const Mat *C, const Places *at)
{
    int la = A->ld, lb = B->ld, lc = C->ld;
    cudaDataType ta = data_type(A->type), tc = data_type(C->type);
    if (form == '1')
        return BLAS(cublasCgemm3mEx)(HEAD, at->A, ta, la, at->B, ta, lb, b, at->C, tc, lc);
    if (form == 'B')
        return BLAS(cublasCgemm3mBatched)(HEAD, at->A, la, at->B, lb, b, at->C, lc, COUNT);
    return BLAS(cublasCgemm3mStridedBatched)(HEAD, at->A, la, at->sa, at->B, lb, at->sb, b, at->C,
                                             lc, at->sc, COUNT);
}

static cublasStatus_t call_ex(Session *s, char form, bool old, const Combination *c,
                              const Product *p, const void *a, const void *b, const Mat *A,
                              const Mat *B, const Mat *C, const Places *at)
{
    int la = A->ld, lb = B->ld, lc = C->ld;
    cudaDataType ta = data_type(c->ab), tc = data_type(c->c);
    cublasGemmAlgo_t any = CUBLAS_GEMM_DEFAULT;
#define TAIL c->compute, any
    if (form == '1' && old && c->scale == 'C')
        return BLAS(cublasCgemmEx)(HEAD, at->A, ta, la, at->B, ta, lb, b, at->C, tc, lc);
    if (form == '1' && old)
        return BLAS(cublasSgemmEx)(HEAD, at->A, ta, la, at->B, ta, lb, b, at->C, tc, lc);
    if (form == '1')
        return BLAS(cublasGemmEx)(HEAD, at->A, ta, la, at->B, ta, lb, b, at->C, tc, lc, TAIL);
    if (form == 'B')
        return BLAS(cublasGemmBatchedEx)(HEAD, at->A, ta, la, at->B, ta, lb, b, at->C, tc, lc,
                                         COUNT, TAIL);
    return BLAS(cublasGemmStridedBatchedEx)(HEAD, at->A, ta, la, at->sa, at->B, ta, lb, at->sb, b,
                                            at->C, tc, lc, at->sc, COUNT, TAIL);
#undef TAIL
}
#undef HEAD

static Product choose(const Combination *c, unsigned *number)
{
    const int *size = SIZES[digit(number, 5)], *factor = FACTORS[digit(number, 4)];
    return (Product){size[0],
                     size[1],
                     size[2],
                     OPS[digit(number, 3)],
                     OPS[digit(number, 3)],
                     fit(c->scale, CMPLXL(factor[0], factor[0] ? 1 : 0)),
                     fit(c->scale, CMPLXL(factor[1], factor[1] ? -1 : 0))};
}

static void make(const Combination *c, const Product *p, int gap, Mat *A, Mat *B, Mat *C)
{
    *A = mat_general(c->ab, p->oa ? p->k : p->m, p->oa ? p->m : p->k, gap);
    *B = mat_general(c->ab, p->ob ? p->n : p->k, p->ob ? p->k : p->n, gap);
    *C = mat_general(c->c, p->m, p->n, gap);
    if (p->alpha == 0.0L) mat_poison(A);
    if (p->alpha == 0.0L) mat_poison(B);
    if (p->beta == 0.0L) mat_poison(C);
}

static void want(const Product *p, const Mat *A, const Mat *B, Mat *C)
{
    for (int j = 0; j < p->n; j++)
        for (int i = 0; i < p->m; i++)
            mat_combine(C, i, j, p->alpha * product(A, p->oa, B, p->ob, i, j, p->k), p->beta);
}

// How the product is called: by the type's name, by cublasCgemm3m…, by …Ex, by S- or CgemmEx.
enum { NAMED, THREE_M, EX, OLD_EX, CALLS };

static bool exists(const Combination *c, char form, int call)
{
    if (call == NAMED) return strchr(c->named, form) != NULL;
    if (call == THREE_M) return strchr(c->named, '3') && (form == '1' || c->ab == 'C');
    return call == EX || (form == '1' && strchr(c->named, 'x'));
}

static void check_batch(Session *s, const Combination *c, char form, int call, unsigned number)
{
    char name[80];
    Mat A[COUNT], B[COUNT], C[COUNT];
    snprintf(name, sizeof name, "%c %c, form %c, call %d, case %u", c->ab, c->c, form, call,
             number);
    Product p = choose(c, &number);
    int gap = digit(&number, 2) * 3, shared = digit(&number, 2), count = form == '1' ? 1 : COUNT;
    for (int i = 0; i < COUNT; i++) make(c, &p, gap, &A[i], &B[i], &C[i]);
    Places at = {.sa = shared ? 0 : (long)A->o.n + 2, .sb = (long)B->o.n, .sc = (long)C->o.n + 1};
    Operand a = join(&A->o, sizeof *A, at.sa), b = join(&B->o, sizeof *B, at.sb);
    Operand d = join(&C->o, sizeof *C, at.sc);
    operand_send(&a);
    operand_send(&b);
    operand_send(&d);
    void *list[3][COUNT];
    for (long i = 0; i < COUNT; i++) {
        list[0][i] = (char *)a.device + (size_t)(i * at.sa) * bytes_of(c->ab);
        list[1][i] = (char *)b.device + (size_t)(i * at.sb) * bytes_of(c->ab);
        list[2][i] = (char *)d.device + (size_t)(i * at.sc) * bytes_of(c->c);
    }
    bool lists = form == 'B';
    at.A = lists ? addresses(list[0]) : a.device;
    at.B = lists ? addresses(list[1]) : b.device;
    at.C = lists ? addresses(list[2]) : d.device;
    const void *alpha = factors(s, c->scale, &p.alpha, 1), *beta = factors(s, c->scale, &p.beta, 1);
    if (call == NAMED)
        need_blas(call_named(s, form, c->ab, &p, alpha, beta, A, B, C, &at));
    else if (call == THREE_M)
        need_blas(call_3m(s, form, &p, alpha, beta, A, B, C, &at));
    else
        need_blas(call_ex(s, form, call == OLD_EX, c, &p, alpha, beta, A, B, C, &at));
    for (int i = 0; i < count; i++) want(&p, shared ? A : &A[i], &B[i], &C[i]);
    Operand result = join(&C->o, sizeof *C, at.sc);
    result.device = d.device;
    operand_equal(&result, name);
    operand_equal(&a, name);
    operand_equal(&b, name);
    free(d.host);
    for (int i = 0; i < COUNT; i++) {
        Mat *all[] = {&A[i], &B[i], &C[i]};
        for (int j = 0; j < 3; j++) free(all[j]->o.host);
        for (int j = 0; j < 3; j++) free(all[j]->x);
    }
    if (!lists) return;
    need_cuda(cudaFree(at.A));
    need_cuda(cudaFree(at.B));
    need_cuda(cudaFree(at.C));
}

static void batches(Session *s)
{
    for (int c = 0; c < N_COMBINATIONS; c++)
        for (const char *form = "1BS"; *form; form++)
            for (int call = 0; call < CALLS; call++)
                for (unsigned i = s->on_device; i < 5 * 4 * 3 * 3 * 2 * 2; i += 7)
                    if (exists(&COMBINATIONS[c], *form, call))
                        check_batch(s, &COMBINATIONS[c], *form, call, i);
}
static void test_batches(void **state)
{
    run_session(batches);
}

// Two groups, of one product and of two, each with a shape and factors of its own.
static void check_groups(Session *s, const Combination *c, bool ex, unsigned number)
{
    enum { GROUPS = 2 };
    static const Size size[GROUPS] = {1, COUNT - 1};
    char name[80];
    snprintf(name, sizeof name, "%c %c, groups, ex %d, case %u", c->ab, c->c, ex, number);
    Product p[GROUPS] = {choose(c, &number), choose(c, &number)};
    cublasOperation_t oa[GROUPS], ob[GROUPS];
    Size m[GROUPS], n[GROUPS], k[GROUPS], la[GROUPS], lb[GROUPS], lc[GROUPS];
    Exact alphas[GROUPS], betas[GROUPS];
    Mat A[COUNT], B[COUNT], C[COUNT];
    void *list[3][COUNT];
    for (int i = 0; i < COUNT; i++) {
        int g = i > 0;
        make(c, &p[g], 2 * g, &A[i], &B[i], &C[i]);
        Mat *all[] = {&A[i], &B[i], &C[i]};
        for (int j = 0; j < 3; j++) operand_send(&all[j]->o);
        for (int j = 0; j < 3; j++) list[j][i] = all[j]->o.device;
        oa[g] = p[g].oa, ob[g] = p[g].ob, m[g] = p[g].m, n[g] = p[g].n, k[g] = p[g].k;
        la[g] = A[i].ld, lb[g] = B[i].ld, lc[g] = C[i].ld;
        alphas[g] = p[g].alpha, betas[g] = p[g].beta;
    }
    void *a = addresses(list[0]), *b = addresses(list[1]), *d = addresses(list[2]);
    const void *alpha = factors(s, c->scale, alphas, GROUPS);
    const void *beta = factors(s, c->scale, betas, GROUPS);
    cudaDataType ta = data_type(c->ab), tc = data_type(c->c);
#define HEAD s->h, oa, ob, m, n, k, alpha
    if (ex)
        need_blas(BLAS(cublasGemmGroupedBatchedEx)(HEAD, a, ta, la, b, ta, lb, beta, d, tc, lc,
                                                   GROUPS, size, c->compute));
    else
        need_blas(REALS(c->ab, gemmGroupedBatched, HEAD, a, la, b, lb, beta, d, lc, GROUPS, size));
#undef HEAD
    for (int i = 0; i < COUNT; i++) {
        want(&p[i > 0], &A[i], &B[i], &C[i]);
        mat_equal(&A[i], name);
        mat_equal(&B[i], name);
        mat_equal(&C[i], name);
    }
    need_cuda(cudaFree(a));
    need_cuda(cudaFree(b));
    need_cuda(cudaFree(d));
}

static void groups(Session *s)
{
    for (int c = 0; c < N_COMBINATIONS; c++)
        for (unsigned i = s->on_device; i < 5 * 4 * 9 * 5 * 4 * 9; i += 401) {
            check_groups(s, &COMBINATIONS[c], true, i);
            if (strchr(COMBINATIONS[c].named, 'G')) check_groups(s, &COMBINATIONS[c], false, i);
        }
}
static void test_groups(void **state)
{
    run_session(groups);
}

// ---- Matrices and vectors ----

// The types of A and x, of y, and of the factors, by the letters in the call's name.
static cublasStatus_t call_gemv(Session *s, char from, char to, bool lists, cublasOperation_t op,
                                const void *a, const void *b, const Mat *A, int incx, int incy,
                                const Places *at)
{
#define BATCHED(name)                                                                              \
    (lists ? BLAS(cublas##name##gemvBatched)(s->h, op, A->rows, A->cols, a, at->A, A->ld, at->B,   \
                                             incx, b, at->C, incy, COUNT)                          \
           : BLAS(cublas##name##gemvStridedBatched)(s->h, op, A->rows, A->cols, a, at->A, A->ld,   \
                                                    at->sa, at->B, incx, at->sb, b, at->C, incy,   \
                                                    at->sc, COUNT))
    switch (from) {
    case 'S': return BATCHED(S);
    case 'D': return BATCHED(D);
    case 'C': return BATCHED(C);
    case 'Z': return BATCHED(Z);
    case 'H': return to == 'H' ? BATCHED(HSH) : BATCHED(HSS);
    default: return to == 'T' ? BATCHED(TST) : BATCHED(TSS);
    }
}

static void check_gemv(Session *s, char from, char to, bool lists, unsigned number)
{
    static const int increments[][2] = {{1, 1}, {2, -1}, {-3, 2}};
    char name[80];
    snprintf(name, sizeof name, "%c %c gemv, lists %d, case %u", from, to, lists, number);
    const int *inc = increments[digit(&number, 3)], *size = SIZES[digit(&number, 5)];
    const int *factor = FACTORS[digit(&number, 4)];
    cublasOperation_t op = OPS[digit(&number, 3)];
    int gap = digit(&number, 2);
    char scale = strchr("HT", from) ? 'S' : from;
    Exact alpha = fit(scale, CMPLXL(factor[0], factor[0] ? -1 : 0)), beta = factor[1];
    Mat A[COUNT];
    Vec x[COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++) {
        A[i] = mat_general(from, size[0], size[1], gap);
        x[i] = vec_make(from, op ? size[0] : size[1], inc[0]);
        y[i] = vec_make(to, op ? size[1] : size[0], inc[1]);
        if (beta == 0.0L) vec_poison(&y[i]);
    }
    Places at = {.sa = (long)A->o.n + 1, .sb = (long)x->o.n, .sc = (long)y->o.n + 2};
    Operand a = join(&A->o, sizeof *A, at.sa), b = join(&x->o, sizeof *x, at.sb);
    Operand d = join(&y->o, sizeof *y, at.sc);
    operand_send(&a);
    operand_send(&b);
    operand_send(&d);
    void *list[3][COUNT];
    for (long i = 0; i < COUNT; i++) {
        list[0][i] = (char *)a.device + (size_t)(i * at.sa) * bytes_of(from);
        list[1][i] = (char *)b.device + (size_t)(i * at.sb) * bytes_of(from);
        list[2][i] = (char *)d.device + (size_t)(i * at.sc) * bytes_of(to);
    }
    at.A = lists ? addresses(list[0]) : a.device;
    at.B = lists ? addresses(list[1]) : b.device;
    at.C = lists ? addresses(list[2]) : d.device;
    need_blas(call_gemv(s, from, to, lists, op, scalar(s, scale, alpha), scalar(s, scale, beta), A,
                        inc[0], inc[1], &at));
    for (int l = 0; l < COUNT; l++)
        for (int i = 0; i < y[l].n; i++) {
            Exact sum = 0.0L;
            for (int j = 0; j < x[l].n; j++) sum += mat_at(&A[l], op, i, j) * x[l].x[j];
            vec_want(&y[l], i, alpha * sum + (beta == 0.0L ? 0.0L : beta * y[l].x[i]));
        }
    Operand result = join(&y->o, sizeof *y, at.sc);
    result.device = d.device;
    operand_equal(&result, name);
    operand_equal(&a, name);
    operand_equal(&b, name);
    free(d.host);
    for (int i = 0; i < COUNT; i++) {
        void *all[] = {A[i].o.host, A[i].x, x[i].o.host, x[i].x, y[i].o.host, y[i].x};
        for (int j = 0; j < 6; j++) free(all[j]);
    }
    if (!lists) return;
    need_cuda(cudaFree(at.A));
    need_cuda(cudaFree(at.B));
    need_cuda(cudaFree(at.C));
}

static void gemvs(Session *s)
{
    static const char *const types[] = {"SS", "DD", "CC", "ZZ", "HH", "HS", "TT", "TS"};
    for (int t = 0; t < 8; t++)
        for (unsigned i = 0; i < 3 * 5 * 4 * 3 * 2; i += 7)
            for (int lists = 0; lists < 2; lists++)
                check_gemv(s, types[t][0], types[t][1], lists, i);
}
static void test_gemv(void **state)
{
    run_session(gemvs);
}

// ---- Updates of rank k that name their types ----

static void check_rank_k(Session *s, char t, bool hermitian, bool three, unsigned number)
{
    char name[80];
    snprintf(name, sizeof name, "%c, %s, case %u", t, hermitian ? "herkEx" : "syrkEx", number);
    const int *size = SIZES[digit(&number, 5)], *factor = FACTORS[digit(&number, 4)];
    bool turn = digit(&number, 2), upper = digit(&number, 2);
    cublasOperation_t across = hermitian ? CUBLAS_OP_C : CUBLAS_OP_T;
    cublasOperation_t op = turn ? across : CUBLAS_OP_N, other = turn ? CUBLAS_OP_N : across;
    int n = size[0], k = size[2];
    char scale = hermitian ? 'S' : 'C';
    Exact alpha = fit(scale, CMPLXL(factor[0], factor[0] ? 1 : 0)), beta = factor[1];
    Mat A = mat_general(t, turn ? k : n, turn ? n : k, 1);
    Mat C = mat_square('C', hermitian ? HERMITIAN : SYMMETRIC, n, upper, false, 2);
    if (beta == 0.0L) mat_poison(&C);
    operand_send(&A.o);
    operand_send(&C.o);
    const void *a = scalar(s, scale, alpha), *b = scalar(s, scale, beta);
#define ARGUMENTS                                                                                  \
    s->h, uplo(&C), op, n, k, a, A.o.device, data_type(t), A.ld, b, C.o.device, CUDA_C_32F, C.ld
    if (hermitian)
        need_blas(three ? BLAS(cublasCherk3mEx)(ARGUMENTS) : BLAS(cublasCherkEx)(ARGUMENTS));
    else
        need_blas(three ? BLAS(cublasCsyrk3mEx)(ARGUMENTS) : BLAS(cublasCsyrkEx)(ARGUMENTS));
#undef ARGUMENTS
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++)
            mat_combine(&C, i, j, alpha * product(&A, op, &A, other, i, j, k), beta);
    mat_equal(&A, name);
    mat_equal(&C, name);
}

static void rank_k(Session *s)
{
    for (const char *t = "CK"; *t; t++)
        for (unsigned i = 0; i < 5 * 4 * 2 * 2; i++)
            for (int form = 0; form < 4; form++) check_rank_k(s, *t, form & 1, form & 2, i);
}
static void test_rank_k(void **state)
{
    run_session(rank_k);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_batches), cmocka_unit_test(test_groups), cmocka_unit_test(test_gemv),
    cmocka_unit_test(test_rank_k)};
SUITE_MAIN("cuBLAS, batches and types", tests)
