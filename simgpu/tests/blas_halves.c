/* blas_halves.c: products of half precision and bfloat16 with sums in single precision, bitwise:
 * the product of the widened matrices as cublasSgemm makes it, plus beta·C, rounded once. Numbers
 * are drawn, so that sums are not exact; rounding is by the definition of the formats.
 */
#include "blas_exact.h"

// ---- The formats, by powers of two and nearbyint ----

typedef struct Half {
    cudaDataType type;
    int places, least; // bits of fraction, exponent of the smallest normal number
} Half;
static const Half HALF = {CUDA_R_16F, 10, -14}, BFLOAT = {CUDA_R_16BF, 7, -126};

static float value_of(const Half *h, uint16_t bits)
{
    int field = bits >> h->places & ((1 << (15 - h->places)) - 1);
    int fraction = bits & ((1 << h->places) - 1);
    double size = ldexp(field > 0 ? fraction + (1 << h->places) : fraction,
                        (field > 0 ? field - 1 : 0) + h->least - h->places);
    if (field == (1 << (15 - h->places)) - 1) size = fraction != 0 ? NAN : INFINITY;
    return (float)(bits & 0x8000 ? -size : size);
}

static uint16_t round_to(const Half *h, float x)
{
    int exponent, infinity = 0x7fff >> h->places << h->places;
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return 0x7fff;
    if (x == 0.0f || isinf(x)) return (uint16_t)(sign | (x == 0.0f ? 0 : infinity));
    frexp(x, &exponent);
    exponent = exponent - 1 < h->least ? h->least : exponent - 1;
    double bits =
        nearbyint(ldexp(fabs(x), h->places - exponent)) + ldexp(exponent - h->least, h->places);
    return (uint16_t)(sign | (bits < infinity ? (int)bits : infinity));
}

// ---- A batch of matrices, as halves and as floats ----

typedef struct Batch {
    uint16_t *narrow; // host (n)
    float *wide;      // host (n): the same numbers
    void *on, *wide_on;
    size_t n;
} Batch;

static void *send_bytes(const void *host, size_t bytes)
{
    void *x = NULL;
    need_cuda(cudaMalloc(&x, bytes));
    need_cuda(cudaMemcpy(x, host, bytes, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    return x;
}

// Numbers of about `size`; a few that are special where that is asked for.
static Batch make_batch(const Half *h, size_t n, double size, bool special, unsigned *seed)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN, 6e-8f, 1e-39f, 65504.0f, -0.0f};
    Batch b = {malloc(n * sizeof *b.narrow), malloc(n * sizeof *b.wide), NULL, NULL, n};
    for (size_t i = 0; i < n; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        float x = (float)(size * ((double)*seed / 0x1p31 - 1.0));
        if (special && i % 29 == 3) x = odd[i / 29 % 7];
        b.narrow[i] = round_to(h, x);
        b.wide[i] = value_of(h, b.narrow[i]);
    }
    b.on = send_bytes(b.narrow, n * sizeof *b.narrow);
    b.wide_on = send_bytes(b.wide, n * sizeof *b.wide);
    return b;
}

static void free_batch(Batch *b)
{
    free(b->narrow);
    free(b->wide);
    need_cuda(cudaFree(b->on));
    need_cuda(cudaFree(b->wide_on));
}

// ---- Products ----

typedef struct Product {
    int m, n, k, count; // count: 0 for a product that is no batch
    cublasOperation_t turn_a, turn_b;
    float alpha, beta;
    double size;
    bool special, into_floats;
} Product;

static void multiply_halves(cublasHandle_t handle, const Half *h, const Product *p, const Batch *A,
                            const Batch *B, Batch *C)
{
    int lda = p->turn_a ? p->k : p->m, ldb = p->turn_b ? p->n : p->k;
    cudaDataType c = p->into_floats ? CUDA_R_32F : h->type;
    void *to = p->into_floats ? C->wide_on : C->on;
    if (p->count == 0)
        need_blas(cublasGemmEx(handle, p->turn_a, p->turn_b, p->m, p->n, p->k, &p->alpha, A->on,
                               h->type, lda, B->on, h->type, ldb, &p->beta, to, c, p->m,
                               CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    else
        need_blas(cublasGemmStridedBatchedEx(
            handle, p->turn_a, p->turn_b, p->m, p->n, p->k, &p->alpha, A->on, h->type, lda,
            (long long)p->m * p->k, B->on, h->type, ldb, (long long)p->n * p->k, &p->beta, to, c,
            p->m, (long long)p->m * p->n, p->count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

// The oracle: cublasSgemm of the widened matrices into fresh memory, which is C's own place where C
// is of floats.
static float *multiply_floats(cublasHandle_t handle, const Product *p, const Batch *A,
                              const Batch *B, const Batch *C)
{
    int lda = p->turn_a ? p->k : p->m, ldb = p->turn_b ? p->n : p->k, count = p->count + !p->count;
    float beta = p->into_floats ? p->beta : 0.0f;
    float *x = malloc(C->n * sizeof *x), *on = send_bytes(C->wide, C->n * sizeof *x);
    size_t a = (size_t)p->m * p->k, b = (size_t)p->n * p->k, c = (size_t)p->m * p->n;
    for (int i = 0; i < count; i++)
        need_blas(cublasSgemm(handle, p->turn_a, p->turn_b, p->m, p->n, p->k, &p->alpha,
                              (const float *)A->wide_on + i * a, lda,
                              (const float *)B->wide_on + i * b, ldb, &beta, on + i * c, p->m));
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaMemcpy(x, on, C->n * sizeof *x, cudaMemcpyDeviceToHost));
    need_cuda(cudaFree(on));
    return x;
}

static void check_product(cublasHandle_t handle, const Half *h, const Product *p)
{
    unsigned seed = (unsigned)(p->m * 31 + p->n * 7 + p->k);
    size_t count = (size_t)(p->count + !p->count), m = (size_t)p->m, n = (size_t)p->n;
    Batch A = make_batch(h, count * m * (size_t)p->k, p->size, p->special, &seed);
    Batch B = make_batch(h, count * n * (size_t)p->k, p->size, false, &seed);
    Batch C = make_batch(h, count * m * n, 1.0, false, &seed);
    float *product = multiply_floats(handle, p, &A, &B, &C);
    multiply_halves(handle, h, p, &A, &B, &C);
    need_cuda(cudaDeviceSynchronize());
    size_t one = p->into_floats ? sizeof(float) : sizeof(uint16_t);
    char *got = malloc(C.n * one);
    need_cuda(
        cudaMemcpy(got, p->into_floats ? C.wide_on : C.on, C.n * one, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < C.n; i++) {
        float sum = product[i];
        if (p->beta != 0.0f && !p->into_floats) sum += p->beta * C.wide[i];
        uint16_t want = round_to(h, sum);
        bool same = p->into_floats ? memcmp(got + i * one, &sum, one) == 0
                                   : memcmp(got + i * one, &want, one) == 0;
        check(same || (p->into_floats && isnan(sum)),
              "type %d, %d x %d x %d, alpha %g, beta %g: element %zu is not %.9g rounded once",
              (int)h->type, p->m, p->n, p->k, p->alpha, p->beta, i, sum);
    }
    free(got);
    free(product);
    free_batch(&A);
    free_batch(&B);
    free_batch(&C);
}

RANK_TEST(test_products, 1)
{
    static const cublasOperation_t N = CUBLAS_OP_N, T = CUBLAS_OP_T;
    const Product products[] = {
        {1, 1, 1, 0, N, N, 1.0f, 0.0f, 1.0, false, false},
        {7, 5, 33, 0, T, N, 1.0f, 1.0f, 1.0, false, false},
        {33, 17, 129, 0, N, T, 1.0f, 1.0f, 3.0, false, false},
        {64, 48, 31, 0, N, N, 0.7f, -1.3f, 1.0, false, false},
        {300, 257, 190, 0, T, N, 1.0f, 0.0f, 1.0, false, false},
        {129, 70, 40, 0, N, N, 1.0f, 1.0f, 1.0, true, false},
        {50, 40, 60, 0, T, T, 1.0f, 0.0f, 200.0, false, false}, // past the largest half
        {50, 40, 60, 0, N, N, 1.0f, 0.0f, 2e-4, false, false},  // below the smallest normal half
        {40, 30, 50, 0, N, N, 1.0f, 1.0f, 1.0, false, true},
        {19, 23, 16, 5, T, N, 1.0f, 0.0f, 1.0, false, false},
        {16, 19, 19, 5, N, T, 1.0f, 1.0f, 1.0, false, false},
    };
    cublasHandle_t handle;
    need_blas(cublasCreate(&handle));
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        check_product(handle, &HALF, &products[i]);
        check_product(handle, &BFLOAT, &products[i]);
    }
    need_blas(cublasDestroy(handle));
}
SUITE_MAIN("simgpu blas halves")
