/* kernel_threads.c: every kernel has the same bits whatever the number of threads (SIMGPU_THREADS).
 *
 * A world of one rank per number of threads, from 1 to 16, runs all kernels on arrays of odd sizes
 * that are large enough to be shared; what comes back is a checksum of all arrays of a call, read
 * or written, which must be equal. (A GPU's kernels must be the same from run to run; emulated
 * ones, which run in the same order each time, are run twice.)
 */
#include <stdio.h>

#include "kernels.h"
#include "numbers.h"
#include "rounding.h"

// ---- Arrays of a call ----

enum { MOST_ARRAYS = 12 };
typedef struct Call {
    cudaStream_t stream;
    DType type;
    uint64_t seed;
    int n;
    void *array[MOST_ARRAYS];
    size_t bytes[MOST_ARRAYS];
} Call;

static void *keep(Call *c, void *array, size_t bytes)
{
    check(c->n < MOST_ARRAYS, "more than %d arrays", MOST_ARRAYS);
    c->array[c->n] = array;
    c->bytes[c->n++] = bytes;
    return array;
}

// n numbers of the type, drawn.
static void *numbers_of(Call *c, DType type, size_t n)
{
    float *x = draw_floats(n, 1.0, &c->seed);
    uint16_t *narrow = malloc((n + 1) * sizeof *narrow);
    check(narrow != NULL, "no host memory for %zu numbers", n);
    for (size_t i = 0; i < n; i++)
        narrow[i] = type == DTYPE_BF16 ? bf16_from_float(x[i]) : f16_from_float(x[i]);
    size_t bytes = n * (size_t)dtype_bytes(type);
    const void *from = type == DTYPE_F32 ? (const void *)x : narrow;
    void *array = keep(c, bytes_on_device(from, bytes), bytes);
    free(narrow);
    free(x);
    return array;
}

static void *numbers(Call *c, size_t n)
{
    return numbers_of(c, c->type, n);
}

static float *floats(Call *c, size_t n)
{
    return numbers_of(c, DTYPE_F32, n);
}

static int32_t *tokens(Call *c, size_t n, int vocab)
{
    int32_t *x = malloc(n * sizeof *x);
    check(x != NULL, "no host memory for %zu tokens", n);
    for (size_t i = 0; i < n; i++) x[i] = (int32_t)((draw(&c->seed) + 1.0) / 2.0 * vocab) % vocab;
    int32_t *array = keep(c, tokens_on_device(x, n), n * sizeof *x);
    free(x);
    return array;
}

// FNV-1a by words of 16 bits, over all arrays, which are freed.
static uint64_t finish(Call *c)
{
    uint64_t sum = 14695981039346656037u;
    need_cuda(cudaStreamSynchronize(c->stream));
    for (int i = 0; i < c->n; i++) {
        uint16_t *x = malloc(c->bytes[i] + 2);
        check(x != NULL, "no host memory for %zu bytes", c->bytes[i]);
        need_cuda(cudaMemcpy(x, c->array[i], c->bytes[i], cudaMemcpyDeviceToHost));
        for (size_t j = 0; j < c->bytes[i] / 2; j++) sum = (sum ^ x[j]) * 1099511628211u;
        free(x);
        need_cuda(cudaFree(c->array[i]));
    }
    return sum;
}

// ---- The kernels ----

// Three pieces and a bit: of an array, of rows, of columns.
enum { N = 3 * 16384 + 1237, R = 83, COLS = 613, ALL = R * COLS, MANY = 5 * 65536 + 77 };

static void fill(Call *c)
{
    need_cuda(kernel_fill(floats(c, N), 0.3f, N, c->stream));
}

static void scale(Call *c)
{
    need_cuda(kernel_scale_ex(c->type, numbers(c, N), 0.7f, N, c->stream));
}

static void add(Call *c)
{
    void *to = numbers(c, N);
    need_cuda(kernel_add_ex(c->type, to, DTYPE_F32, floats(c, N), N, c->stream));
}

static void add_out(Call *c)
{
    void *out = numbers(c, N), *a = numbers(c, N);
    need_cuda(kernel_add_out_ex(c->type, out, a, numbers(c, N), N, c->stream));
}

static void add_divided(Call *c)
{
    float *to = floats(c, N);
    need_cuda(kernel_add_divided_ex(DTYPE_F32, to, c->type, numbers(c, N), 3.0f, N, c->stream));
}

static void cast(Call *c)
{
    void *to = numbers(c, N);
    need_cuda(kernel_cast(c->type, to, DTYPE_F16, numbers_of(c, DTYPE_F16, N), N, c->stream));
}

// The last number alone is not finite.
static void check_finite(Call *c)
{
    int32_t *found = tokens(c, 2, 1);
    char *x = numbers(c, N);
    size_t one = (size_t)dtype_bytes(c->type);
    need_cuda(kernel_check_finite(found, c->type, x, N, c->stream));
    need_cuda(cudaMemsetAsync(x + (N - 1) * one, 0xff, one, c->stream));
    need_cuda(kernel_check_finite(found + 1, c->type, x, N, c->stream));
}

static void adamw(Call *c)
{
    float *p = floats(c, N), *g = floats(c, N), *m = floats(c, N), *v = floats(c, N);
    need_cuda(cudaMemsetAsync(v, 0, N * sizeof *v, c->stream));
    need_cuda(kernel_adamw(p, g, m, v, N, 1e-3f, 0.9f, 0.99f, 1e-8f, 0.1f, 3, c->stream));
}

static void sgd(Call *c)
{
    float *p = floats(c, N), *g = floats(c, N);
    need_cuda(kernel_sgd(p, g, floats(c, N), N, 1e-3f, 0.9f, 0.1f, c->stream));
    need_cuda(kernel_sgd(p, g, NULL, N, 1e-3f, 0.0f, 0.1f, c->stream));
}

static void sum_squares(Call *c)
{
    double *sum = (double *)(void *)floats(c, 2);
    need_cuda(cudaMemsetAsync(sum, 0, sizeof *sum, c->stream));
    need_cuda(kernel_sum_squares(sum, floats(c, MANY), MANY, c->stream));
}

static void mean(Call *c)
{
    float *out = floats(c, 1);
    need_cuda(kernel_mean(out, floats(c, MANY), MANY, c->stream));
}

static void sum_rows(Call *c)
{
    void *out = numbers(c, COLS);
    need_cuda(kernel_sum_rows_ex(c->type, out, numbers(c, ALL), R, COLS, c->stream));
}

static void broadcast_bias(Call *c)
{
    void *out = numbers(c, ALL);
    need_cuda(kernel_broadcast_bias_ex(c->type, out, numbers(c, COLS), R, COLS, c->stream));
}

static void gelu(Call *c)
{
    void *out = numbers(c, N), *in = numbers(c, N);
    need_cuda(kernel_gelu_forward_ex(c->type, out, in, N, c->stream));
    need_cuda(kernel_gelu_backward_ex(c->type, numbers(c, N), out, in, N, c->stream));
}

static void bias_gelu(Call *c)
{
    void *out = numbers(c, ALL), *y = numbers(c, ALL), *bias = numbers(c, COLS);
    need_cuda(kernel_bias_gelu_forward_ex(c->type, out, y, bias, R, COLS, c->stream));
    need_cuda(kernel_bias_gelu_backward_ex(c->type, y, bias, out, y, R, COLS, c->stream));
}

static void layernorm(Call *c)
{
    void *out = numbers(c, ALL), *in = numbers(c, ALL), *residual = numbers(c, ALL);
    void *weight = numbers(c, COLS), *bias = numbers(c, COLS), *din = numbers(c, ALL);
    void *dweight = numbers(c, COLS), *dbias = numbers(c, COLS);
    float *m = floats(c, R), *rstd = floats(c, R);
    need_cuda(
        kernel_layernorm_forward_ex(c->type, out, m, rstd, in, weight, bias, R, COLS, c->stream));
    need_cuda(kernel_residual_layernorm_forward_ex(c->type, out, m, rstd, in, residual, weight,
                                                   bias, R, COLS, c->stream));
    need_cuda(kernel_layernorm_backward_ex(c->type, din, dweight, dbias, out, in, weight, m, rstd,
                                           residual, R, COLS, c->stream));
}

static void rmsnorm(Call *c)
{
    void *out = numbers(c, ALL), *in = numbers(c, ALL), *residual = numbers(c, ALL);
    void *weight = numbers(c, COLS), *din = numbers(c, ALL), *dweight = numbers(c, COLS);
    float *rstd = floats(c, R);
    need_cuda(kernel_rmsnorm_forward_ex(c->type, out, rstd, in, weight, R, COLS, 1e-5f, c->stream));
    need_cuda(kernel_residual_rmsnorm_forward_ex(c->type, out, rstd, in, residual, weight, R, COLS,
                                                 1e-5f, c->stream));
    need_cuda(kernel_rmsnorm_backward_ex(c->type, din, dweight, out, in, weight, rstd, residual, R,
                                         COLS, c->stream));
}

enum { HEADS_OF = 5, LONG = 131, MATRICES = HEADS_OF * LONG * LONG };

static void softmax(Call *c)
{
    void *att = numbers(c, MATRICES), *datt = numbers(c, MATRICES);
    need_cuda(kernel_causal_softmax_forward_ex(c->type, att, HEADS_OF, LONG, 0.3f, c->stream));
    need_cuda(
        kernel_causal_softmax_backward_ex(c->type, datt, att, HEADS_OF, LONG, 0.3f, c->stream));
}

// Heads of 20 columns; three sequences.
static void attend(Call *c, int heads, int kv_heads)
{
    enum { BATCH = 3, T = 77, HS = 20 };
    int C = heads * HS, width = C + 2 * kv_heads * HS;
    size_t rows = BATCH * T, in = rows * (size_t)width, out = rows * (size_t)C;
    void *qkv = numbers(c, in), *dqkv = numbers(c, in), *y = numbers(c, out), *dy = numbers(c, out);
    float *stats = floats(c, 2 * rows * (size_t)heads), *delta = floats(c, rows * (size_t)heads);
    RotaryFrequencies f = {{0}};
    for (int i = 0; i < HS / 2; i++) f.of_pair[i] = 1.0f / (float)(i + 1);
    need_cuda(
        kernel_rotary_ex(c->type, qkv, BATCH, T, width, heads + kv_heads, HS, f, 1, c->stream));
    need_cuda(kernel_attention_forward_ex(c->type, y, stats, qkv, BATCH, T, C, heads, kv_heads,
                                          0.2f, c->stream));
    need_cuda(kernel_attention_backward_ex(c->type, dqkv, delta, dy, y, stats, qkv, BATCH, T, C,
                                           heads, kv_heads, 0.2f, c->stream));
}

static void attention(Call *c)
{
    attend(c, 7, 7);
}

static void grouped_attention(Call *c)
{
    attend(c, 9, 3);
}

static void swiglu(Call *c)
{
    void *out = numbers(c, ALL), *in = numbers(c, 2 * ALL);
    need_cuda(kernel_swiglu_forward_ex(c->type, out, in, R, COLS, c->stream));
    need_cuda(kernel_swiglu_backward_ex(c->type, numbers(c, 2 * ALL), out, in, R, COLS, c->stream));
}

// Few words, so that each has several rows.
static void embedding(Call *c)
{
    enum { BATCH = 5, T = 31, VOCAB = 19, C = 509, ROWS = BATCH * T };
    int32_t *token = tokens(c, ROWS, VOCAB);
    void *out = numbers(c, ROWS * C), *wte = numbers(c, VOCAB * C), *wpe = numbers(c, T * C);
    void *dwte = numbers(c, VOCAB * C), *dwpe = numbers(c, T * C);
    need_cuda(
        kernel_embedding_forward_ex(c->type, out, token, wte, wpe, BATCH, T, C, VOCAB, c->stream));
    need_cuda(kernel_embedding_backward_ex(c->type, dwte, dwpe, out, token, BATCH, T, C, VOCAB,
                                           c->stream));
}

static void cross_entropy_of_rows(Call *c)
{
    float *losses = floats(c, R);
    void *logits = numbers(c, ALL), *grad = numbers(c, ALL);
    int32_t *target = tokens(c, R, COLS);
    need_cuda(
        kernel_cross_entropy_ex(c->type, losses, grad, logits, target, R, COLS, 0.1f, c->stream));
    need_cuda(
        kernel_cross_entropy_ex(c->type, losses, logits, logits, target, R, COLS, 0.1f, c->stream));
}

// ---- All of them ----

static const struct {
    const char *name;
    void (*run)(Call *c);
} kernels[] = {
    {"fill", fill},
    {"scale", scale},
    {"add", add},
    {"add_out", add_out},
    {"add_divided", add_divided},
    {"cast", cast},
    {"check_finite", check_finite},
    {"adamw", adamw},
    {"sgd", sgd},
    {"sum_squares", sum_squares},
    {"mean", mean},
    {"sum_rows", sum_rows},
    {"broadcast_bias", broadcast_bias},
    {"gelu", gelu},
    {"bias_gelu", bias_gelu},
    {"layernorm", layernorm},
    {"rmsnorm", rmsnorm},
    {"causal_softmax", softmax},
    {"attention", attention},
    {"grouped_attention and rotary", grouped_attention},
    {"swiglu", swiglu},
    {"embedding", embedding},
    {"cross_entropy", cross_entropy_of_rows},
};
enum { KERNELS = sizeof kernels / sizeof *kernels, TYPES = 2 };
static const DType types[TYPES] = {DTYPE_F32, DTYPE_BF16};

typedef struct Sums {
    uint64_t of[KERNELS][TYPES];
} Sums;

static void run_kernels(const Rank *r, void *arg)
{
    Sums *sums = arg;
    for (int k = 0; k < KERNELS; k++)
        for (int t = 0; t < TYPES; t++) {
            Call c = {.stream = r->stream, .type = types[t], .seed = (uint64_t)k + 1};
            kernels[k].run(&c);
            sums->of[k][t] = finish(&c);
        }
}

TEST(test_bits_and_threads)
{
#ifdef EMULATED_CUDA
    enum { MOST_THREADS = 2 };
#else
    enum { MOST_THREADS = 16 };
#endif
    Sums *sums = shared_alloc((MOST_THREADS + 1) * sizeof *sums);
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        char text[8];
        snprintf(text, sizeof text, "%d", threads);
        setenv("SIMGPU_THREADS", text, 1);
        run_ranks(1, run_kernels, &sums[threads]);
        for (int k = 0; k < KERNELS; k++)
            for (int t = 0; t < TYPES; t++)
                if (sums[threads].of[k][t] != sums[1].of[k][t])
                    fail_msg("%s of %s: other bits with %d threads than with 1", kernels[k].name,
                             t == 0 ? "floats" : "bf16", threads);
    }
    for (int k = 0; k < KERNELS; k++) assert_int_not_equal(sums[1].of[k][0], 0);
    unsetenv("SIMGPU_THREADS");
}

SUITE_MAIN("kernels and threads")
