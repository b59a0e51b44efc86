/* half_modules.c: modules that compute in bf16 and fp16. A GPT-2, forward and backward, against the
 * policy written down step by step (float kernels and cublasSgemm on widened numbers, every result
 * rounded by this test): bitwise, and on a GPU to a few units in the last place. A linear layer on
 * whole numbers from scratch. Training against the same in float. What is refused.
 */
#include "half_policy.h"

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
