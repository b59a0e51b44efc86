/* blas_products.c: products one by one, in batches and at strides, of every combination of types
 * that cuBLAS has, by calls of one type's name and by those that name their types (…Ex); against
 * loops in long double (blas_exact.h).
 */
#include "blas_exact.h"

// simgpu's headers have these for C++ alone.
typedef struct __half {
    unsigned short bits;
} __half;
SIMGPU_CUBLAS_HALF_PRODUCTS(SIMGPU_DECLARE)
SIMGPU_CUBLAS_HALF_BATCHES(SIMGPU_DECLARE)

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
    const char
        *named; // what has a call of its own type's name: one, Batched, Strided; x: S- or CgemmEx
} Combination;
static const Combination COMBINATIONS[] = {
    {'S', 'S', 'S', CUBLAS_COMPUTE_32F, "1BS"},
    {'D', 'D', 'D', CUBLAS_COMPUTE_64F, "1BS"},
    {'C', 'C', 'C', CUBLAS_COMPUTE_32F, "1BS"},
    {'Z', 'Z', 'Z', CUBLAS_COMPUTE_64F_PEDANTIC, "1BS"},
    {'H', 'H', 'H', CUBLAS_COMPUTE_16F, "1BS"},
    {'H', 'H', 'S', CUBLAS_COMPUTE_32F, "x"},
    {'H', 'S', 'S', CUBLAS_COMPUTE_32F, "x"},
    {'T', 'T', 'S', CUBLAS_COMPUTE_32F, "x"},
    {'T', 'S', 'S', CUBLAS_COMPUTE_32F_PEDANTIC, "x"},
    {'B', 'I', 'I', CUBLAS_COMPUTE_32I, ""},
    {'B', 'S', 'S', CUBLAS_COMPUTE_32F, "x"},
    {'K', 'C', 'C', CUBLAS_COMPUTE_32F, "x"},
    {'S', 'S', 'S', CUBLAS_COMPUTE_32F_FAST_TF32, "x"},
    {'S', 'S', 'S', CUBLAS_COMPUTE_32F_FAST_16BF, ""},
    {'C', 'C', 'C', CUBLAS_COMPUTE_32F_FAST_16F, "x"},
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

static cublasStatus_t call_ex(Session *s, char form, bool old, const Combination *c,
                              const Product *p, const void *a, const void *b, const Mat *A,
                              const Mat *B, const Mat *C, const Places *at)
{
    int la = A->ld, lb = B->ld, lc = C->ld;
    cudaDataType ta = data_type(c->ab), tc = data_type(c->c);
    cublasGemmAlgo_t any = CUBLAS_GEMM_DEFAULT;
#define TAIL c->compute, any
    if (form == '1' && old && c->scale == 'C')
        return cublasCgemmEx(HEAD, at->A, ta, la, at->B, ta, lb, b, at->C, tc, lc);
    if (form == '1' && old)
        return cublasSgemmEx(HEAD, at->A, ta, la, at->B, ta, lb, b, at->C, tc, lc);
    if (form == '1')
        return cublasGemmEx(HEAD, at->A, ta, la, at->B, ta, lb, b, at->C, tc, lc, TAIL);
    if (form == 'B')
        return cublasGemmBatchedEx(HEAD, at->A, ta, la, at->B, ta, lb, b, at->C, tc, lc, COUNT,
                                   TAIL);
    return cublasGemmStridedBatchedEx(HEAD, at->A, ta, la, at->sa, at->B, ta, lb, at->sb, b, at->C,
                                      tc, lc, at->sc, COUNT, TAIL);
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

// How the product is called: by the type's name, by …Ex, by S- or CgemmEx.
enum { NAMED, EX, OLD_EX, CALLS };

// Where two logs are compared (same_blas_products.c): of lists the interposer logs the addresses
// alone, and calls of halves by their own name not at all.
#ifdef SCALARS_ON_HOST
static const char FORMS[] = "1S", UNNAMED[] = "H";
#else
static const char FORMS[] = "1BS", UNNAMED[] = "";
#endif

static bool exists(const Combination *c, char form, int call)
{
    if (call == NAMED && strchr(UNNAMED, c->ab)) return false;
    if (call == NAMED) return strchr(c->named, form) != NULL;
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
    const void *alpha = scalar(s, c->scale, p.alpha), *beta = scalar(s, c->scale, p.beta);
    if (call == NAMED)
        need_blas(call_named(s, form, c->ab, &p, alpha, beta, A, B, C, &at));
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

SESSION_TEST(test_batches)
{
    for (int c = 0; c < N_COMBINATIONS; c++)
        for (const char *form = FORMS; *form; form++)
            for (int call = 0; call < CALLS; call++)
                for (unsigned i = s->on_device; i < 5 * 4 * 3 * 3 * 2 * 2; i += 7)
                    if (exists(&COMBINATIONS[c], *form, call))
                        check_batch(s, &COMBINATIONS[c], *form, call, i);
}

SUITE_MAIN("cuBLAS, products and types")
