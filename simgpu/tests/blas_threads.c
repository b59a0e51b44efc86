/* blas_threads.c: a product has the same bits whatever the number of threads (SIMGPU_THREADS), as
 * on a machine of 16 processors, for which it is cut into most blocks, and of two (SIMGPU_CORES).
 *
 * Every case runs in a world of one rank per number of threads (BLAS_THREADS_ALL=1: each from 1 to
 * 16); what comes back is a checksum of the bits, which must be equal. Small outputs with a long
 * sum are among them: there a BLAS splits k.
 */
#include "blas_exact.h"

typedef struct Case {
    int m, n, k;
} Case;
static const Case cases[] = {{64, 64, 8192},   {1, 1, 40000},   {3, 5, 20011},   {17, 129, 5001},
                             {257, 131, 512},  {1000, 64, 512}, {64, 1000, 513}, {768, 257, 129},
                             {96, 2049, 65},   {512, 512, 256}, {33, 33, 33},    {300, 301, 302},
                             {1024, 512, 256}, {512, 16, 1024}, {1025, 32, 300}};
enum { CASES = sizeof cases / sizeof *cases, FORMS = 4 };

enum { MOST = 1 << 20 }; // elements of the largest matrix

// Numbers whose products and sums are rounded: another order of adding has other bits. Made once,
// for the ranks of all worlds: of A and of B, as float and as double.
static float *number[2];
static double *number_twice[2];

static void make_numbers(void)
{
    for (int i = 0; i < 2; i++) {
        unsigned seed = (unsigned)i + 1;
        number[i] = malloc(MOST * sizeof *number[i]);
        number_twice[i] = malloc(MOST * sizeof *number_twice[i]);
        assert_true(number[i] != NULL && number_twice[i] != NULL);
        for (size_t j = 0; j < MOST; j++) {
            seed = seed * 1664525u + 1013904223u;
            number[i][j] = (float)(seed >> 8) / (float)(1 << 24) - 0.5f;
            number_twice[i][j] = (double)number[i][j] / 3.0;
        }
    }
}

// FNV-1a.
static uint64_t checksum(const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++) sum = (sum ^ byte[i]) * 1099511628211u;
    return sum;
}

// What the ranks hand back: shared memory of the test.
typedef struct Sums {
    int threads;
    uint64_t sum[2][CASES][FORMS]; // float, double
    uint64_t batch[2];
} Sums;

static void multiply(cublasHandle_t handle, const Case *c, int form, bool twice, uint64_t *sum)
{
    size_t a = (size_t)c->m * (size_t)c->k, b = (size_t)c->k * (size_t)c->n;
    size_t size = (size_t)c->m * (size_t)c->n, element = twice ? 8 : 4;
    void *dA = NULL, *dB = NULL, *dC = NULL;
    check(a <= MOST && b <= MOST, "there are numbers for %d elements alone", MOST);
    need_cuda(cudaMalloc(&dA, a * element));
    need_cuda(cudaMalloc(&dB, b * element));
    need_cuda(cudaMalloc(&dC, size * element));
    for (int i = 0; i < 2; i++)
        need_cuda(cudaMemcpy(i ? dB : dA, twice ? (void *)number_twice[i] : (void *)number[i],
                             (i ? b : a) * element, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    cublasOperation_t ta = form & 1 ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t tb = form & 2 ? CUBLAS_OP_T : CUBLAS_OP_N;
    int lda = form & 1 ? c->k : c->m, ldb = form & 2 ? c->n : c->k;
    float one = 1.0f, zero = 0.0f;
    double one2 = 1.0, zero2 = 0.0;
    if (twice)
        need_blas(cublasDgemm(handle, ta, tb, c->m, c->n, c->k, &one2, dA, lda, dB, ldb, &zero2, dC,
                              c->m));
    else
        need_blas(
            cublasSgemm(handle, ta, tb, c->m, c->n, c->k, &one, dA, lda, dB, ldb, &zero, dC, c->m));
    void *got = malloc(size * element);
    need_cuda(cudaStreamSynchronize(0));
    need_cuda(cudaMemcpy(got, dC, size * element, cudaMemcpyDeviceToHost));
    *sum = checksum(got, size * element);
    need_cuda(cudaFree(dA));
    need_cuda(cudaFree(dB));
    need_cuda(cudaFree(dC));
    free(got);
}

// Seven products at once, apart from each other (form 0) and between each other's columns (form 1).
static void multiply_batch(cublasHandle_t handle, int form, uint64_t *sum)
{
    enum { M = 65, N = 67, K = 130, COUNT = 7, ALL = COUNT * M * N };
    void *dA = NULL, *dB = NULL, *dC = NULL;
    size_t a = (size_t)COUNT * M * K, b = (size_t)COUNT * K * N, one = sizeof(float);
    need_cuda(cudaMalloc(&dA, a * one));
    need_cuda(cudaMalloc(&dB, b * one));
    need_cuda(cudaMalloc(&dC, ALL * one));
    need_cuda(cudaMemcpy(dA, number[0], a * one, cudaMemcpyHostToDevice));
    need_cuda(cudaMemcpy(dB, number[1], b * one, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    float factor = 1.0f, zero = 0.0f;
    need_blas(cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &factor, dA, M,
                                        M * K, dB, K, K * N, &zero, dC, form ? COUNT * M : M,
                                        form ? M : M * N, COUNT));
    float *got = malloc(ALL * one);
    need_cuda(cudaStreamSynchronize(0));
    need_cuda(cudaMemcpy(got, dC, ALL * one, cudaMemcpyDeviceToHost));
    *sum = checksum(got, ALL * one);
    free(got);
    need_cuda(cudaFree(dA));
    need_cuda(cudaFree(dB));
    need_cuda(cudaFree(dC));
}

static void run_cases(const Rank *r, void *arg)
{
    Sums *sums = arg;
    cublasHandle_t handle = NULL;
    need_blas(cublasCreate(&handle));
    for (int c = 0; c < CASES; c++)
        for (int form = 0; form < FORMS; form++) {
            multiply(handle, &cases[c], form, false, &sums->sum[0][c][form]);
            if (c % 3 == 0) multiply(handle, &cases[c], form, true, &sums->sum[1][c][form]);
        }
    for (int form = 0; form < 2; form++) multiply_batch(handle, form, &sums->batch[form]);
    need_blas(cublasDestroy(handle));
}

// As on a machine of so many processors, with the first `some` numbers of threads, or all.
static void compare_threads(const char *cores, int some)
{
    static const int threads[] = {1, 2, 16, 3, 4, 7, 8, 5, 6, 9, 10, 11, 12, 13, 14, 15};
    enum { WORLDS = sizeof threads / sizeof *threads };
    int worlds = getenv("BLAS_THREADS_ALL") != NULL ? WORLDS : some;
    Sums *sums = shared_alloc(WORLDS * sizeof *sums);
    setenv("SIMGPU_CORES", cores, 1);
    for (int w = 0; w < worlds; w++) {
        char text[8];
        snprintf(text, sizeof text, "%d", threads[w]);
        setenv("SIMGPU_THREADS", text, 1);
        run_ranks(1, run_cases, &sums[w]);
        for (int c = 0; c < CASES; c++)
            for (int form = 0; form < FORMS; form++)
                for (int twice = 0; twice < 2; twice++)
                    if (sums[w].sum[twice][c][form] != sums[0].sum[twice][c][form])
                        fail_msg(
                            "%d x %d x %d, form %d, %s: other bits with %d threads than with 1",
                            cases[c].m, cases[c].n, cases[c].k, form, twice ? "double" : "float",
                            threads[w]);
        for (int form = 0; form < 2; form++)
            if (sums[w].batch[form] != sums[0].batch[form])
                fail_msg("a batch, form %d: other bits with %d threads than with 1", form,
                         threads[w]);
    }
    assert_int_not_equal(sums[0].sum[0][0][0], 0);
    unsetenv("SIMGPU_THREADS");
    unsetenv("SIMGPU_CORES");
}

TEST(test_bits_and_threads)
{
    make_numbers();
    compare_threads("16", 7);
    compare_threads("2", 2);
}

SUITE_MAIN("cuBLAS and threads")
