/* half_modules.c: modules that compute in bf16 and fp16. A GPT-2, forward and backward, against the
 * policy written down step by step (float kernels and cublasSgemm on widened numbers, every result
 * rounded by this test): bitwise, and on a GPU to a few units in the last place. A linear layer on
 * whole numbers from scratch. Training against the same in float. What is refused.
 */
#include <cublas_v2.h>
#include <stdio.h>

#include "halves.h"
#include "kernels.h"

// ---- Operations of the policy, on host arrays of floats that the type has ----

typedef struct Policy {
    DType type;
    cublasHandle_t blas;
    cudaStream_t stream;
    float *sent[12]; // device copies of the operation in progress
    int n;
} Policy;

#define need_blas(call) check((call) == CUBLAS_STATUS_SUCCESS, "%s failed", #call)

static float *send_floats(Policy *p, const float *x, size_t n)
{
    return p->sent[p->n++] = on_device(x, n);
}

static void receive(const Policy *p, float *x, const float *device, size_t n, bool rounded)
{
    need_cuda(cudaStreamSynchronize(p->stream));
    need_cuda(cudaMemcpy(x, device, n * sizeof *x, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n && rounded; i++) x[i] = half_float(p->type, x[i]);
}

static void free_sent(Policy *p)
{
    while (p->n > 0) need_cuda(cudaFree(p->sent[--p->n]));
}

// C = round(A·B + beta·C) column-major, a batch of them; `size` is that of a whole array.
typedef struct Side {
    cublasOperation_t turn;
    const float *x;
    size_t size, first;
    int ld;
    size_t stride;
} Side;

static void multiply(Policy *p, int m, int n, int k, Side A, Side B, float beta, Side C, float *c,
                     int count)
{
    static const float one = 1.0f, zero = 0.0f;
    float *a = send_floats(p, A.x, A.size), *b = send_floats(p, B.x, B.size);
    float *to = send_floats(p, c, C.size), *product = malloc(C.size * sizeof *product);
    for (int i = 0; i < count; i++)
        need_blas(cublasSgemm(p->blas, A.turn, B.turn, m, n, k, &one, a + A.first + i * A.stride,
                              A.ld, b + B.first + i * B.stride, B.ld, &zero,
                              to + C.first + i * C.stride, C.ld));
    receive(p, product, to, C.size, false);
    for (size_t i = 0; i < (size_t)count * m * n; i++) {
        size_t at = C.first + i / ((size_t)m * n) * C.stride + i / m % n * C.ld + i % m;
        float sum = product[at];
        if (beta != 0.0f) sum += beta * c[at];
        c[at] = half_float(p->type, sum);
    }
    free(product);
    free_sent(p);
}

static Side whole(cublasOperation_t turn, const float *x, size_t size, int ld)
{
    return (Side){turn, x, size, 0, ld, 0};
}

static const cublasOperation_t NO = CUBLAS_OP_N, YES = CUBLAS_OP_T;

// y (rows,O) = x (rows,I)·Wᵀ + beta·y
static void linear(Policy *p, float *y, const float *x, const float *W, float beta, int rows, int I,
                   int O)
{
    multiply(p, O, rows, I, whole(YES, W, (size_t)I * O, I), whole(NO, x, (size_t)rows * I, I),
             beta, whole(NO, NULL, (size_t)rows * O, O), y, 1);
}

static void lay_bias(float *y, const float *b, int rows, int O)
{
    for (size_t i = 0; i < (size_t)rows * O; i++) y[i] = b[i % (size_t)O];
}

// dx = dy·W, dW += dyᵀ·x, and db += Σ dy unless it is NULL
static void linear_back(Policy *p, float *dx, float *dW, float *db, const float *dy, const float *x,
                        const float *W, int rows, int I, int O)
{
    size_t of_x = (size_t)rows * I, of_y = (size_t)rows * O, of_w = (size_t)I * O;
    multiply(p, I, rows, O, whole(NO, W, of_w, I), whole(NO, dy, of_y, O), 0.0f,
             whole(NO, NULL, of_x, I), dx, 1);
    multiply(p, I, O, rows, whole(NO, x, of_x, I), whole(YES, dy, of_y, O), 1.0f,
             whole(NO, NULL, of_w, I), dW, 1);
    if (db == NULL) return;
    float *to = send_floats(p, db, (size_t)O);
    need_cuda(kernel_sum_rows(to, send_floats(p, dy, of_y), rows, O, p->stream));
    receive(p, db, to, (size_t)O, true);
    free_sent(p);
}

typedef struct Norm {
    float *mean, *rstd;
} Norm;

static void norm(Policy *p, float *y, Norm *s, const float *x, const float *w, const float *b,
                 int rows, int C)
{
    size_t n = (size_t)rows * C;
    float *to = send_floats(p, y, n), *mean = send_floats(p, s->mean, rows);
    float *rstd = send_floats(p, s->rstd, rows);
    need_cuda(kernel_layernorm_forward(to, mean, rstd, send_floats(p, x, n), send_floats(p, w, C),
                                       send_floats(p, b, C), rows, C, p->stream));
    receive(p, y, to, n, true);
    receive(p, s->mean, mean, rows, false);
    receive(p, s->rstd, rstd, rows, false);
    free_sent(p);
}

// dx, and the residual, unless it is NULL, added to what was rounded
static void norm_back(Policy *p, float *dx, float *dw, float *db, const float *dy, const float *x,
                      const float *w, const Norm *s, const float *residual, int rows, int C)
{
    size_t n = (size_t)rows * C;
    float *to = send_floats(p, dx, n), *to_w = send_floats(p, dw, C), *to_b = send_floats(p, db, C);
    need_cuda(kernel_layernorm_backward(to, to_w, to_b, send_floats(p, dy, n), send_floats(p, x, n),
                                        send_floats(p, w, C), send_floats(p, s->mean, rows),
                                        send_floats(p, s->rstd, rows), NULL, rows, C, p->stream));
    receive(p, dx, to, n, true);
    receive(p, dw, to_w, C, true);
    receive(p, db, to_b, C, true);
    for (size_t i = 0; i < n && residual != NULL; i++)
        dx[i] = half_float(p->type, dx[i] + residual[i]);
    free_sent(p);
}

static void add(const Policy *p, float *to, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = half_float(p->type, to[i] + x[i]);
}

// ---- GPT-2 by the policy ----

enum { VOCAB = 11, T = 5, B = 2, ROWS = B * T, C = 6, HEADS = 2, HS = C / HEADS, LAYERS = 2 };
static const Gpt2Config SMALL = {
    .vocab = VOCAB, .max_T = 7, .layers = LAYERS, .heads = HEADS, .dim = C};
enum { WTE, WPE, BLOCK, LN_F = BLOCK + 12 * LAYERS, PARAMS = LN_F + 2 }; // as list_params has them
enum { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, FC_W, FC_B, OUT_W, OUT_B };

// Activations of a block; its input, too.
typedef struct Block {
    float x[ROWS * C], n1[ROWS * C], qkv[ROWS * 3 * C], att[B * HEADS * T * T], y[ROWS * C];
    float mid[ROWS * C], n2[ROWS * C], sum[ROWS * 4 * C], g[ROWS * 4 * C];
    float stats[4][ROWS];
    Norm s1, s2;
} Block;

#define SIDE(turn, x, first, ld, stride)                                                           \
    (Side)                                                                                         \
    {                                                                                              \
        turn, x, sizeof(x) / sizeof *(x), first, ld, stride                                        \
    }

static void attend(Policy *p, Block *k)
{
    for (size_t b = 0; b < B; b++) {
        size_t at = b * T * 3 * C, square = b * HEADS * T * T;
        multiply(p, T, T, HS, SIDE(YES, k->qkv, at + C, 3 * C, HS), SIDE(NO, k->qkv, at, 3 * C, HS),
                 0.0f, SIDE(NO, k->att, square, T, T * T), k->att, HEADS);
    }
    float *to = send_floats(p, k->att, B * HEADS * T * T);
    need_cuda(kernel_causal_softmax_forward(to, B * HEADS, T, 1.0f / sqrtf(HS), p->stream));
    receive(p, k->att, to, B * HEADS * T * T, true);
    free_sent(p);
    for (size_t b = 0; b < B; b++)
        multiply(p, HS, T, T, SIDE(NO, k->qkv, b * T * 3 * C + 2 * C, 3 * C, HS),
                 SIDE(NO, k->att, b * HEADS * T * T, T, T * T), 0.0f,
                 SIDE(NO, k->y, b * T * C, C, HS), k->y, HEADS);
}

static void block_forward(Policy *p, Block *k, float *const *w, float *out)
{
    k->s1 = (Norm){k->stats[0], k->stats[1]};
    k->s2 = (Norm){k->stats[2], k->stats[3]};
    norm(p, k->n1, &k->s1, k->x, w[LN1_W], w[LN1_B], ROWS, C);
    lay_bias(k->qkv, w[QKV_B], ROWS, 3 * C);
    linear(p, k->qkv, k->n1, w[QKV_W], 1.0f, ROWS, C, 3 * C);
    attend(p, k);
    lay_bias(k->mid, w[PROJ_B], ROWS, C);
    linear(p, k->mid, k->y, w[PROJ_W], 1.0f, ROWS, C, C);
    add(p, k->mid, k->x, ROWS * C);
    norm(p, k->n2, &k->s2, k->mid, w[LN2_W], w[LN2_B], ROWS, C);
    linear(p, k->sum, k->n2, w[FC_W], 0.0f, ROWS, C, 4 * C);
    lay_bias(k->g, w[FC_B], ROWS, 4 * C);
    add(p, k->sum, k->g, ROWS * 4 * C);
    float *to = send_floats(p, k->g, ROWS * 4 * C);
    need_cuda(
        kernel_gelu_forward(to, send_floats(p, k->sum, ROWS * 4 * C), ROWS * 4 * C, p->stream));
    receive(p, k->g, to, ROWS * 4 * C, true);
    free_sent(p);
    lay_bias(out, w[OUT_B], ROWS, C);
    linear(p, out, k->g, w[OUT_W], 1.0f, ROWS, 4 * C, C);
    add(p, out, k->mid, ROWS * C);
}

static void attend_back(Policy *p, const Block *k, float *dy, float *dqkv)
{
    float datt[HEADS * T * T];
    for (size_t b = 0; b < B; b++) {
        size_t at = b * T * 3 * C, square = b * HEADS * T * T;
        Side of_y = {NO, dy, ROWS * C, b * T * C, C, HS};
        Side of_dqkv = {NO, NULL, ROWS * 3 * C, at, 3 * C, HS}, of_dk = of_dqkv, of_dv = of_dqkv;
        of_dk.first += C;
        of_dv.first += 2 * C;
        memset(datt, 0, sizeof datt);
        multiply(p, T, T, HS, SIDE(YES, k->qkv, at + 2 * C, 3 * C, HS), of_y, 0.0f,
                 SIDE(NO, datt, 0, T, T * T), datt, HEADS);
        multiply(p, HS, T, T, of_y, SIDE(YES, k->att, square, T, T * T), 0.0f, of_dv, dqkv, HEADS);
        float *to = send_floats(p, datt, HEADS * T * T);
        need_cuda(kernel_causal_softmax_backward(to, send_floats(p, k->att + square, HEADS * T * T),
                                                 HEADS, T, 1.0f / sqrtf(HS), p->stream));
        receive(p, datt, to, HEADS * T * T, true);
        free_sent(p);
        multiply(p, HS, T, T, SIDE(NO, k->qkv, at + C, 3 * C, HS), SIDE(NO, datt, 0, T, T * T),
                 0.0f, of_dqkv, dqkv, HEADS);
        multiply(p, HS, T, T, SIDE(NO, k->qkv, at, 3 * C, HS), SIDE(YES, datt, 0, T, T * T), 0.0f,
                 of_dk, dqkv, HEADS);
    }
}

// dx (ROWS, C) is the gradient by the output, and becomes that by the input.
static void block_backward(Policy *p, const Block *k, float *const *w, float *const *d, float *dx)
{
    float dg[ROWS * 4 * C] = {0}, dn[ROWS * C] = {0}, dmid[ROWS * C] = {0}, dy[ROWS * C] = {0};
    float dqkv[ROWS * 3 * C] = {0};
    linear_back(p, dg, d[OUT_W], d[OUT_B], dx, k->g, w[OUT_W], ROWS, 4 * C, C);
    float *to = send_floats(p, dg, ROWS * 4 * C), *from = send_floats(p, dg, ROWS * 4 * C);
    need_cuda(kernel_gelu_backward(to, from, send_floats(p, k->sum, ROWS * 4 * C), ROWS * 4 * C,
                                   p->stream));
    receive(p, dg, to, ROWS * 4 * C, true);
    free_sent(p);
    linear_back(p, dn, d[FC_W], d[FC_B], dg, k->n2, w[FC_W], ROWS, C, 4 * C);
    norm_back(p, dmid, d[LN2_W], d[LN2_B], dn, k->mid, w[LN2_W], &k->s2, dx, ROWS, C);
    linear_back(p, dy, d[PROJ_W], d[PROJ_B], dmid, k->y, w[PROJ_W], ROWS, C, C);
    attend_back(p, k, dy, dqkv);
    linear_back(p, dn, d[QKV_W], d[QKV_B], dqkv, k->n1, w[QKV_W], ROWS, C, 3 * C);
    norm_back(p, dx, d[LN1_W], d[LN1_B], dn, k->x, w[LN1_W], &k->s1, dmid, ROWS, C);
}

static void look_up(Policy *p, float *x, const int32_t *tokens, float *const *w)
{
    float *to = send_floats(p, x, ROWS * C);
    float *wte = send_floats(p, w[WTE], VOCAB * C), *wpe = send_floats(p, w[WPE], 7 * C);
    need_cuda(kernel_embedding_forward(to, tokens, wte, wpe, B, T, C, VOCAB, p->stream));
    receive(p, x, to, ROWS * C, true);
    free_sent(p);
}

static void look_up_back(Policy *p, const float *dx, const int32_t *tokens, float *const *d)
{
    float *dwte = send_floats(p, d[WTE], VOCAB * C), *dwpe = send_floats(p, d[WPE], 7 * C);
    need_cuda(kernel_embedding_backward(dwte, dwpe, send_floats(p, dx, ROWS * C), tokens, B, T, C,
                                        VOCAB, p->stream));
    receive(p, d[WTE], dwte, VOCAB * C, true);
    receive(p, d[WPE], dwpe, 7 * C, true);
    free_sent(p);
}

// The mean loss; d (PARAMS) += the gradients.
static float policy_pass(Policy *p, float *const *w, float *const *d, const int32_t *tokens,
                         const int32_t *targets)
{
    static Block block[LAYERS];
    float x[ROWS * C] = {0}, n[ROWS * C] = {0}, dn[ROWS * C], dx[ROWS * C] = {0};
    float logits[ROWS * VOCAB] = {0}, mean[ROWS] = {0}, rstd[ROWS] = {0}, losses[ROWS] = {0};
    float loss = NAN;
    Norm s = {mean, rstd};
    look_up(p, block[0].x, tokens, w);
    for (int l = 0; l < LAYERS; l++)
        block_forward(p, &block[l], w + BLOCK + 12 * l, l + 1 < LAYERS ? block[l + 1].x : x);
    norm(p, n, &s, x, w[LN_F], w[LN_F + 1], ROWS, C);
    linear(p, logits, n, w[WTE], 0.0f, ROWS, C, VOCAB);
    float *of_loss = send_floats(p, losses, ROWS), *on = send_floats(p, logits, ROWS * VOCAB);
    need_cuda(kernel_cross_entropy(of_loss, on, on, targets, ROWS, VOCAB, 1.0f / ROWS, p->stream));
    float *of_mean = send_floats(p, &loss, 1);
    need_cuda(kernel_mean(of_mean, of_loss, ROWS, p->stream));
    receive(p, &loss, of_mean, 1, false);
    receive(p, logits, on, ROWS * VOCAB, true); // their gradient by now
    free_sent(p);
    linear_back(p, dn, d[WTE], NULL, logits, n, w[WTE], ROWS, C, VOCAB);
    norm_back(p, dx, d[LN_F], d[LN_F + 1], dn, x, w[LN_F], &s, NULL, ROWS, C);
    for (int l = LAYERS - 1; l >= 0; l--)
        block_backward(p, &block[l], w + BLOCK + 12 * l, d + BLOCK + 12 * l, dx);
    look_up_back(p, dx, tokens, d);
    return loss;
}

// ---- The module ----

// Gives the parameters values that the type has, and gradients of GRAD_BASE; w and d hold the same.
static int give_halves(Module *m, DType type, Param **params, float **w, float **d)
{
    uint64_t seed = 3;
    int n = list_params(m, params, 0);
    for (int i = 0; i < n; i++) {
        size_t size = numel_of(params[i]);
        w[i] = draw_floats(size, 0.5, &seed);
        d[i] = draw_floats(size, 0.0, &seed);
        for (size_t j = 0; j < size; j++) {
            w[i][j] = half_float(type, w[i][j] + (params[i]->init == INIT_ONE));
            d[i][j] = GRAD_BASE;
        }
        uint16_t *data = round_halves(type, w[i], size), *grad = round_halves(type, d[i], size);
        int64_t numel = (int64_t)size;
        params[i]->data = (Buffer){bytes_on_device(data, 2 * size), type, numel};
        params[i]->grad = (Buffer){bytes_on_device(grad, 2 * size), type, numel};
        free(data);
        free(grad);
    }
    return n;
}

// Whether a number is the policy's, bit for bit. On a GPU a product of halves adds in another order
// than the policy's, which is of floats: a sum between two neighbours may be rounded to the other.
static bool agrees(DType type, double got, double want)
{
#if defined(BACKEND_CUDA) && !defined(EMULATED_CUDA)
    double neighbour = type == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    return fabs(got - want) <= 4.0 * neighbour * fmax(fabs(want), GRAD_BASE);
#else
    return memcmp(&got, &want, sizeof got) == 0;
#endif
}

static void check_gradient(const Param *param, DType type, const float *want)
{
    size_t n = numel_of(param);
    uint16_t *got = malloc(2 * n);
    need_cuda(cudaMemcpy(got, param->grad.data, 2 * n, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++)
        check(agrees(type, half_value(type, got[i]), half_float(type, want[i])),
              "%s: gradient %zu of %zu is the %s %.9g, not %.9g", param->name, i, n,
              type_name(type), half_value(type, got[i]), want[i]);
    free(got);
}

static void check_gpt2(const Rank *r, void *arg)
{
    Gpt2Config config = SMALL;
    Policy p = {.type = config.dtype = *(const DType *)arg, .stream = r->stream};
    Param *params[MAX_PARAMS];
    float *w[MAX_PARAMS], *d[MAX_PARAMS], *logits = NULL, *dlogits = NULL, loss = NAN;
    int32_t host[ROWS], goals[ROWS];
    for (int i = 0; i < ROWS; i++) host[i] = (i * i + 3) % 10, goals[i] = (3 * i + 1) % 10;
    int32_t *tokens = tokens_on_device(host, ROWS), *targets = tokens_on_device(goals, ROWS);
    Module *m = gpt2_create(&config);
    NnRun run;
    need(nn_run_create(&run, r->stream));
    run.B = B;
    run.T = T;
    p.blas = run.blas;
    int n = give_halves(m, p.type, params, w, d);
    check(n == PARAMS, "%d parameters", n);
    for (int step = 0; step < 2; step++) { // the second adds to the gradients of the first
        need(module_forward(m, &run, tokens, &logits));
        need(cross_entropy(&run, logits, targets, ROWS, VOCAB, &loss, &dlogits));
        need(module_backward(m, &run, dlogits, NULL));
        need_cuda(cudaFreeAsync(dlogits, run.stream));
        need_cuda(cudaStreamSynchronize(run.stream));
        float want = policy_pass(&p, w, d, tokens, targets);
        check(agrees(p.type, loss, want), "the loss is %.9g, not %.9g", loss, want);
        for (int i = 0; i < n; i++) check_gradient(params[i], p.type, d[i]);
    }
    for (int i = 0; i < n; i++) free(w[i]), free(d[i]);
    take_storage(m);
    module_destroy(m);
    need_cuda(cudaFree(tokens));
    need_cuda(cudaFree(targets));
    need(nn_run_destroy(&run));
}
TEST(test_gpt2)
{
    for (size_t t = 0; t < 2; t++)
        run_ranks_limit(1, 30, check_gpt2, (void *)(uintptr_t)&HALVES[t]);
}

// ---- Whole numbers ----

// Sums are exact in a float and need more bits than the type has: only the rounding can differ.
static void check_linear(const Rank *r, void *arg)
{
    enum { I = 37, O = 19, R = 23 };
    DType type = *(const DType *)arg;
    Module *m = linear_create("fc", I, O, true, 0.1f);
    Param *params[2];
    float *w[2], *d[2], x[R * I], dy[R * O];
    NnRun run;
    need(nn_run_create(&run, r->stream));
    run.B = 1;
    run.T = R;
    module_set_type(m, type);
    give_halves(m, type, params, w, d);
    for (int i = 0; i < I * O; i++) w[0][i] = (float)(i * 7 % 31 - 15);
    for (int i = 0; i < O; i++) w[1][i] = (float)(i - 5);
    for (int i = 0; i < R * I; i++) x[i] = (float)(i * 5 % 29 - 11);
    for (int i = 0; i < R * O; i++) dy[i] = (float)(i * 11 % 27 - 13);
    for (int i = 0; i < 2; i++) {
        uint16_t *bits = round_halves(type, w[i], numel_of(params[i]));
        need_cuda(cudaMemcpy(params[i]->data.data, bits, 2 * numel_of(params[i]),
                             cudaMemcpyHostToDevice));
        need_cuda(cudaDeviceSynchronize());
        free(bits);
    }
    uint16_t *bits_x = round_halves(type, x, R * I), *bits_dy = round_halves(type, dy, R * O);
    void *on_x = bytes_on_device(bits_x, 2 * R * I), *on_dy = bytes_on_device(bits_dy, 2 * R * O);
    uint16_t y[R * O], dx[R * I];
    Buffer out, din;
    need(module_forward_typed(m, &run, on_x, &out));
    check(out.dtype == type && out.numel == R * O, "the output is another");
    need_cuda(cudaStreamSynchronize(run.stream));
    need_cuda(cudaMemcpy(y, out.data, sizeof y, cudaMemcpyDeviceToHost));
    need(module_backward_typed(m, &run, on_dy, &din));
    check(din.dtype == type && din.numel == R * I, "the input's gradient is another");
    need_cuda(cudaStreamSynchronize(run.stream));
    need_cuda(cudaMemcpy(dx, din.data, sizeof dx, cudaMemcpyDeviceToHost));
    need_cuda(cudaFreeAsync(din.data, run.stream));
    for (int i = 0; i < R * O; i++) {
        double sum = w[1][i % O];
        for (int j = 0; j < I; j++) sum += (double)x[i / O * I + j] * w[0][i % O * I + j];
        check(y[i] == half_round(type, sum), "y[%d] is not %g rounded", i, sum);
    }
    for (int i = 0; i < R * I; i++) {
        double sum = 0.0;
        for (int j = 0; j < O; j++) sum += (double)dy[i / I * O + j] * w[0][j * I + i % I];
        check(dx[i] == half_round(type, sum), "dx[%d] is not %g rounded", i, sum);
    }
    for (int i = 0; i < I * O; i++) {
        double sum = GRAD_BASE;
        for (int j = 0; j < R; j++) sum += (double)dy[j * O + i / I] * x[j * I + i % I];
        d[0][i] = (float)sum;
    }
    for (int i = 0; i < O; i++)
        for (int j = 0; j < R; j++) d[1][i] += dy[j * O + i];
    for (int i = 0; i < 2; i++) check_gradient(params[i], type, d[i]);
    for (int i = 0; i < 2; i++) free(w[i]), free(d[i]);
    free(bits_x);
    free(bits_dy);
    need_cuda(cudaFree(on_x));
    need_cuda(cudaFree(on_dy));
    take_storage(m);
    module_destroy(m);
    need(nn_run_destroy(&run));
}
TEST(test_linear)
{
    for (size_t t = 0; t < 2; t++) run_ranks(1, check_linear, (void *)(uintptr_t)&HALVES[t]);
}

// ---- Training ----

enum { STEPS = 150, LAST = 20, SEQ = 8, BATCH = 4 };

// A master copy and the moments of each parameter, in float.
typedef struct Master {
    float *p, *g, *m, *v;
} Master;

static float *zeros(size_t n)
{
    float *x = calloc(n + 1, sizeof *x), *on = on_device(x, n);
    free(x);
    return on;
}

static int give_masters(Module *m, DType type, Param **params, Master *master)
{
    uint64_t seed = 9;
    int n = list_params(m, params, 0);
    for (int i = 0; i < n; i++) {
        size_t size = numel_of(params[i]);
        float *x = draw_floats(size, params[i]->ndim > 1 ? 0.1 : 0.0, &seed);
        for (size_t j = 0; j < size; j++) x[j] += params[i]->init == INIT_ONE ? 1.0f : 0.0f;
        master[i] = (Master){on_device(x, size), zeros(size), zeros(size), zeros(size)};
        params[i]->data = (Buffer){zeros(size), type, (int64_t)size};
        params[i]->grad = (Buffer){zeros(size), type, (int64_t)size};
        free(x);
    }
    return n;
}

// The mean loss of the last steps; gradients are scaled by `scale` on their way.
static double train(const Rank *r, DType type, float scale)
{
    Gpt2Config config = {.vocab = 16,
                         .max_T = SEQ,
                         .layers = 2,
                         .heads = 2,
                         .dim = 16,
                         .attention = type == DTYPE_F16 ? ATTENTION_FUSED : ATTENTION_PLAIN,
                         .dtype = type};
    Module *m = gpt2_create(&config);
    Param *params[MAX_PARAMS];
    Master master[MAX_PARAMS];
    NnRun run;
    double last = 0.0;
    need(nn_run_create(&run, r->stream));
    run.B = BATCH;
    run.T = SEQ;
    int n = give_masters(m, type, params, master);
    int32_t host[BATCH * SEQ], goals[BATCH * SEQ];
    int32_t *tokens = tokens_on_device(host, BATCH * SEQ),
            *targets = tokens_on_device(host, BATCH * SEQ);
    for (int step = 1; step <= STEPS; step++) {
        float *logits, *dlogits, loss = NAN;
        for (int i = 0; i < BATCH * SEQ; i++) { // the next token is mostly 3 times this one, plus 1
            int start = i % SEQ == 0 ? (step * 7 + i) % 16 : goals[i - 1];
            host[i] = start;
            goals[i] = (start * 3 + 1 + ((step + i) % 11 == 0)) % 16;
        }
        send_tokens(tokens, host, BATCH * SEQ);
        send_tokens(targets, goals, BATCH * SEQ);
        for (int i = 0; i < n; i++) {
            size_t size = numel_of(params[i]);
            need_cuda(
                kernel_cast(type, params[i]->data.data, DTYPE_F32, master[i].p, size, run.stream));
            need_cuda(cudaMemsetAsync(params[i]->grad.data, 0, buffer_bytes(&params[i]->grad),
                                      run.stream));
        }
        need(module_forward(m, &run, tokens, &logits));
        need(cross_entropy(&run, logits, targets, BATCH * SEQ, 16, &loss, &dlogits));
        need_cuda(kernel_scale(dlogits, scale, BATCH * SEQ * 16, run.stream));
        need(module_backward(m, &run, dlogits, NULL));
        need_cuda(cudaFreeAsync(dlogits, run.stream));
        for (int i = 0; i < n; i++) {
            size_t size = numel_of(params[i]);
            need_cuda(
                kernel_cast(DTYPE_F32, master[i].g, type, params[i]->grad.data, size, run.stream));
            need_cuda(kernel_scale(master[i].g, 1.0f / scale, size, run.stream));
            need_cuda(kernel_adamw(master[i].p, master[i].g, master[i].m, master[i].v, size, 3e-3f,
                                   0.9f, 0.95f, 1e-8f, 0.01f, step, run.stream));
        }
        need_cuda(cudaStreamSynchronize(run.stream));
        if (step > STEPS - LAST) last += loss / LAST;
    }
    for (int i = 0; i < n; i++) {
        need_cuda(cudaFree(master[i].p));
        need_cuda(cudaFree(master[i].g));
        need_cuda(cudaFree(master[i].m));
        need_cuda(cudaFree(master[i].v));
    }
    take_storage(m);
    module_destroy(m);
    need_cuda(cudaFree(tokens));
    need_cuda(cudaFree(targets));
    need(nn_run_destroy(&run));
    return last;
}

RANK_TEST_WITHIN(test_training, 60, 1)
{
    double want = train(r, DTYPE_F32, 1.0f);
    check(want < 1.5, "the loss in float is still %g", want);
    for (size_t t = 0; t < 2; t++) {
        double got = train(r, HALVES[t], HALVES[t] == DTYPE_F16 ? 1024.0f : 1.0f);
        check(fabs(got - want) <= 0.01 * want, "the loss in %s is %g, and in float %g",
              type_name(HALVES[t]), got, want);
    }
}

// ---- What is refused ----

RANK_TEST(test_refused, 1)
{
    Module *m = linear_create("fc", 3, 2, true, 0.1f);
    Param *params[2];
    float *w[2], *d[2], *out;
    NnRun run;
    need(nn_run_create(&run, r->stream));
    run.B = run.T = 1;
    give_halves(m, DTYPE_BF16, params, w, d);
    void *x = zeros(3);
    Buffer typed;
    check(module_forward(m, &run, x, &out) == ERR_ARGUMENT, "a float layer took bf16 parameters");
    need(module_discard(m, &run));
    module_set_type(m, DTYPE_F16);
    check(module_forward_typed(m, &run, x, &typed) == ERR_ARGUMENT, "fp16 took bf16 parameters");
    need(module_discard(m, &run));
    module_set_type(m, DTYPE_BF16);
    check(module_forward(m, &run, x, &out) == ERR_ARGUMENT, "a bf16 output came as floats");
    need(module_forward_typed(m, &run, x, &typed));
    check(module_backward(m, &run, x, &out) == ERR_ARGUMENT, "a bf16 gradient came as floats");
    need(module_discard(m, &run));
    Module *parts[] = {gelu_create("a", 3), gelu_create("b", 3)};
    module_set_type(parts[1], DTYPE_BF16);
    check(sequence_create("s", 2, parts) == NULL, "a sequence of two types without a cast");
    for (int i = 0; i < 2; i++) free(w[i]), free(d[i]);
    need_cuda(cudaFree(x));
    take_storage(m);
    module_destroy(m);
    need(nn_run_destroy(&run));
}

SUITE_MAIN("nn half modules")
