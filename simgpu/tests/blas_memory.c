/* blas_memory.c: calls that copy their operands and get no memory for it return
 * CUBLAS_STATUS_ALLOC_FAILED, say so, and leave the result as it was.
 *
 * The suite's own malloc and calloc, which the calls use, give nothing larger than a few pages
 * while `scarce` is set. A sanitizer has its own, and then nothing is tested.
 */
#include <cublas_v2.h>

#include "heard.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MEMORY 0
static bool scarce;
#else
#define OWN_MEMORY 1
static volatile bool scarce;
enum { ENOUGH = 1 << 16 };

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);

void *malloc(size_t size)
{
    return scarce && size > ENOUGH ? NULL : __libc_malloc(size);
}
void *calloc(size_t n, size_t size)
{
    size_t bytes;
    bool fits = !__builtin_mul_overflow(n, size, &bytes) && !(scarce && bytes > ENOUGH);
    return fits ? __libc_calloc(n, size) : NULL;
}
#endif

enum { N = 96 };
static const double ONE = 1.0, ZERO = 0.0;
static const float ONE_S = 1.0f, ZERO_S = 0.0f;

#define U CUBLAS_FILL_MODE_UPPER
#define NN CUBLAS_OP_N, CUBLAS_OP_N
#define LEFT CUBLAS_SIDE_LEFT
#define PLAIN CUBLAS_DIAG_NON_UNIT
#define F32 CUDA_R_32F
#define F16 CUDA_R_16F
// a and b are only read; c is 3 everywhere before. The list has the addresses of a and c.
#define CALLS(X)                                                                                   \
    X(cublasDgemm(h, NN, N, N, N, &ONE, a, N, b, N, &ZERO, c, N))                                  \
    X(cublasGemmEx(h, NN, N, N, 2 * N, &ONE_S, a, F16, N, b, F16, 2 * N, &ZERO_S, c, F32, N,       \
                   CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT))                                       \
    X(cublasDgemmBatched(h, NN, N, N, N, &ONE, (void *)list, N, (void *)list, N, &ZERO, list + 1,  \
                         N, 1))                                                                    \
    X(cublasDtrsm(h, LEFT, U, CUBLAS_OP_N, PLAIN, N, N, &ONE, a, N, c, N))                         \
    X(cublasDtrsmBatched(h, LEFT, U, CUBLAS_OP_N, PLAIN, N, N, &ONE, (void *)list, N,              \
                         (void *)(list + 1), N, 1))
#define COUNT_ONE(call) +1
enum { N_CALLS = 0 CALLS(COUNT_ONE) };

typedef struct Space {
    cublasHandle_t h;
    double *a, *b, *c, **list;
} Space;

static cublasStatus_t make_call(const Space *s, int which, const char **text)
{
    cublasHandle_t h = s->h;
    double *a = s->a, *b = s->b, *c = s->c, **list = s->list;
    int number = 0;
#define MAKE(...)                                                                                  \
    if (which == number++) {                                                                       \
        *text = #__VA_ARGS__;                                                                      \
        return __VA_ARGS__;                                                                        \
    }
    CALLS(MAKE)
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

static void fill(double *device, double x)
{
    static double host[N * N];
    for (int i = 0; i < N * N; i++) host[i] = x;
    need_cuda(cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
}

static bool all_are(const double *device, double x)
{
    static double host[N * N];
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < N * N; i++)
        if (host[i] != x) return false;
    return true;
}

static void check_call(const Space *s, int which)
{
    static Heard heard;
    heard.text[0] = 0;
    const char *text = "";
    fill(s->c, 3.0);
    scarce = true;
    hear(&heard);
    cublasStatus_t got = make_call(s, which, &text);
    simgpu_on_report(NULL, NULL);
    scarce = false;
    check(got == CUBLAS_STATUS_ALLOC_FAILED, "%s: %s; %s", text, cublasGetStatusName(got),
          heard.text);
    heard_is(&heard, "cuBLAS: no memory", "the host has no memory");
    check(strstr(heard.text, "blas_memory.c:") != NULL, "no line of mine in: %s", heard.text);
    check(all_are(s->c, 3.0), "%s has written its result", text);
    got = make_call(s, which, &text);
    check(got == CUBLAS_STATUS_SUCCESS, "%s, with memory: %s", text, cublasGetStatusName(got));
    check(!all_are(s->c, 3.0), "%s, with memory, has written nothing", text);
}

static void check_calls(const Rank *r, void *arg)
{
    Space s = {0};
    const size_t bytes = (size_t)(N * N) * sizeof(double);
    check(cublasCreate(&s.h) == CUBLAS_STATUS_SUCCESS, "no handle");
    need_cuda(cudaMalloc((void **)&s.a, bytes));
    need_cuda(cudaMalloc((void **)&s.b, bytes));
    need_cuda(cudaMalloc((void **)&s.c, bytes));
    need_cuda(cudaMalloc((void **)&s.list, 2 * sizeof *s.list));
    double *list[2] = {s.a, s.c};
    need_cuda(cudaMemcpy(s.list, list, sizeof list, cudaMemcpyHostToDevice));
    fill(s.a, 2.0);
    fill(s.b, 1.0);
    for (int which = 0; which < N_CALLS; which++) check_call(&s, which);
    check(cublasDestroy(s.h) == CUBLAS_STATUS_SUCCESS, "the handle stays");
    need_cuda(cudaFree(s.a));
    need_cuda(cudaFree(s.b));
    need_cuda(cudaFree(s.c));
    need_cuda(cudaFree(s.list));
}
TEST(test_no_memory)
{
    if (!OWN_MEMORY) skip();
    run_ranks(1, check_calls, NULL);
}

SUITE_MAIN("cuBLAS without memory")
