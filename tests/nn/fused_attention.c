/* Fused attention against the plain one: near it on random numbers, equal to it where the sums are
 * exact; its rows depend on nothing that they do not see; memory of O(T) per head.
 */
#include "kernels.h"
#include "numbers.h"

typedef Module *(*Create)(const char *, int, int, float, float);

// What one pass gave, on the host.
typedef struct Pass {
    float *out, *din, *grad[4]; // (rows, C); of qkv.weight, qkv.bias, proj.weight, proj.bias
    size_t numel[4];
    size_t saved; // bytes alive between forward and backward, the output included
} Pass;

typedef struct Setting {
    int B, T, C, heads;
} Setting;

static void run_pass(const Rank *r, Create create, const Setting *s, const float *x, Pass *pass)
{
    uint64_t seed = 3;
    size_t n = (size_t)s->B * (size_t)s->T * (size_t)s->C;
    NnRun run;
    need(nn_run_create(&run, r->stream));
    run.B = s->B;
    run.T = s->T;
    Module *m = create("attn", s->C, s->heads, 0.02f, 0.02f);
    check(m != NULL, "the layer was not made");
    give_storage(m, 0.5, &seed);
    float *w = draw_floats(n, 1.0, &seed), *in = on_device(x, n), *dout = on_device(w, n);
    float *out = NULL, *din = NULL;
    size_t live = gpulog_live_bytes(r->device);
    need(module_forward(m, &run, in, &out));
    pass->saved = gpulog_live_bytes(r->device) - live;
    pass->out = fetch(out, n);
    need(module_backward(m, &run, dout, &din));
    pass->din = fetch(din, n);
    Param *params[MAX_PARAMS];
    int found = list_params(m, params, 0);
    check(found == 4, "the layer has %d parameters, want 4", found);
    for (int i = 0; i < 4; i++) {
        pass->numel[i] = numel_of(params[i]);
        pass->grad[i] = fetch(params[i]->grad.data, pass->numel[i]);
    }
    need_cuda(cudaFreeAsync(din, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    check(gpulog_live_bytes(r->device) == live, "the passes left %zu bytes",
          gpulog_live_bytes(r->device) - live);
    take_storage(m);
    module_destroy(m);
    need(nn_run_destroy(&run));
    need_cuda(cudaFree(in));
    need_cuda(cudaFree(dout));
    free(w);
}

static void free_pass(Pass *pass)
{
    free(pass->out);
    free(pass->din);
    for (int i = 0; i < 4; i++) free(pass->grad[i]);
}

// The largest difference, of the largest number.
static void check_close(const char *what, const Setting *s, const float *got, const float *want,
                        size_t n)
{
    double most = 0.0, difference = 0.0;
    for (size_t i = 0; i < n; i++) {
        check(isfinite(got[i]), "%s, element %zu is %g", what, i, (double)got[i]);
        most = fmax(most, fabs((double)want[i]));
        difference = fmax(difference, fabs((double)got[i] - (double)want[i]));
    }
    check(difference <= 2e-6 * most,
          "%s of fused attention (B %d, T %d, C %d, %d heads) differs from the plain one's by %g, "
          "where the largest is %g",
          what, s->B, s->T, s->C, s->heads, difference, most);
}

RANK_TEST(test_near_the_plain_one, 1)
{
    static const Setting settings[] = {{1, 2, 16, 1},  {2, 15, 32, 2},  {1, 16, 48, 3},
                                       {1, 17, 80, 2}, {2, 33, 128, 2}, {1, 131, 64, 1},
                                       {1, 61, 128, 1}};
    static const char *const names[] = {"the gradient of qkv.weight", "the gradient of qkv.bias",
                                        "the gradient of proj.weight", "the gradient of proj.bias"};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        const Setting *s = &settings[i];
        uint64_t seed = 5 + i;
        size_t n = (size_t)s->B * (size_t)s->T * (size_t)s->C;
        float *x = draw_floats(n, 0.5, &seed);
        Pass plain, fused;
        run_pass(r, attention_create, s, x, &plain);
        run_pass(r, fused_attention_create, s, x, &fused);
        check_close("the output", s, fused.out, plain.out, n);
        check_close("the input's gradient", s, fused.din, plain.din, n);
        for (int k = 0; k < 4; k++)
            check_close(names[k], s, fused.grad[k], plain.grad[k], plain.numel[k]);
        free_pass(&plain);
        free_pass(&fused);
        free(x);
    }
}

// ---- The kernels alone ----

typedef struct Kernels {
    float *out, *stats, *dqkv, *delta;
} Kernels;

// Both kernels on qkv (B,T,3C) and dout (B,T,C) of the host.
static Kernels run_kernels(const Rank *r, const Setting *s, const float *qkv, const float *dout)
{
    size_t rows = (size_t)s->B * (size_t)s->T, C = (size_t)s->C, heads = (size_t)s->heads;
    float scale = 1.0f / sqrtf((float)(s->C / s->heads));
    float *x = on_device(qkv, rows * 3 * C), *dy = on_device(dout, rows * C);
    float *out = nans_on_device(rows * C), *stats = nans_on_device(rows * heads * 2);
    float *dqkv = nans_on_device(rows * 3 * C), *delta = nans_on_device(rows * heads);
    need_cuda(kernel_attention_forward(out, stats, x, s->B, s->T, s->C, s->heads, s->heads, scale,
                                       r->stream));
    need_cuda(kernel_attention_backward(dqkv, delta, dy, out, stats, x, s->B, s->T, s->C, s->heads,
                                        s->heads, scale, r->stream));
    Kernels k = {fetch(out, rows * C), fetch(stats, rows * heads * 2), fetch(dqkv, rows * 3 * C),
                 fetch(delta, rows * heads)};
    void *device[] = {x, dy, out, stats, dqkv, delta};
    for (int i = 0; i < 6; i++) need_cuda(cudaFree(device[i]));
    return k;
}

static void free_kernels(Kernels *k)
{
    free(k->out);
    free(k->stats);
    free(k->dqkv);
    free(k->delta);
}

// Keys that are all alike are seen in equal parts: of 2, 4, 8 … whole values the mean is exact.
RANK_TEST(test_exact_sums, 1)
{
    enum { T = 64, C = 32, HEADS = 2, HS = C / HEADS };
    static float qkv[T * 3 * C], dout[T * C], qkv_of_first[3 * C];
    uint64_t seed = 9;
    for (int i = 0; i < T * 3 * C; i++) {
        qkv[i] = (float)floor(16.0 * draw(&seed));
        if (i % (3 * C) < C) qkv[i] = 0.0f; // every score is 0
    }
    Setting s = {1, T, C, HEADS};
    Kernels k = run_kernels(r, &s, qkv, dout);
    for (int t = 0; t < T; t = 2 * t + 1)
        for (int c = 0; c < C; c++) {
            float sum = 0.0f;
            for (int j = 0; j <= t; j++) sum += qkv[j * 3 * C + 2 * C + c];
            check(k.out[t * C + c] == sum / (float)(t + 1),
                  "the mean of %d whole values is %.9g, want %.9g", t + 1, (double)k.out[t * C + c],
                  (double)(sum / (float)(t + 1)));
        }
    for (int i = 0; i < T * 3 * C; i++)
        check(k.dqkv[i] == 0.0f, "a gradient of 0 gives %g", (double)k.dqkv[i]);
    free_kernels(&k);

    // One key: the value itself, whose gradient is the output's, and no other.
    s.T = 1;
    for (int i = 0; i < 3 * C; i++) qkv_of_first[i] = (float)draw(&seed);
    for (int c = 0; c < C; c++) dout[c] = (float)draw(&seed);
    k = run_kernels(r, &s, qkv_of_first, dout);
    check(memcmp(k.out, qkv_of_first + 2 * C, sizeof(float) * C) == 0, "one key: not its value");
    check(memcmp(k.dqkv + 2 * C, dout, sizeof(float) * C) == 0, "one key: not the gradient");
    for (int c = 0; c < 2 * C; c++)
        check(fabsf(k.dqkv[c]) < 1e-6f, "one key: its score's gradient is %g", (double)k.dqkv[c]);
    free_kernels(&k);
}

// What comes after a query is not in its result, be it NaN; nor is how long the sequence is, or
// which head and which sequence of the batch it is in.
RANK_TEST(test_rows_see_nothing_else, 1)
{
    enum { T = 45, C = 24, HEADS = 2, CUT = 21 };
    uint64_t seed = 13;
    float *qkv = draw_floats(2 * T * 3 * C, 2.0, &seed), *dout = draw_floats(2 * T * C, 1.0, &seed);
    Setting longer = {1, T, C, HEADS}, shorter = {1, CUT, C, HEADS}, both = {2, T, C, HEADS};
    Kernels all = run_kernels(r, &longer, qkv, dout), part = run_kernels(r, &shorter, qkv, dout);
    check(memcmp(all.out, part.out, CUT * C * sizeof(float)) == 0,
          "the first %d rows depend on how many follow", CUT);
    for (int h = 0; h < HEADS; h++)
        check(memcmp(all.stats + 2 * T * h, part.stats + 2 * CUT * h, 2 * CUT * sizeof(float)) == 0,
              "the first %d rows of head %d: their statistics depend on how many follow", CUT, h);
    free_kernels(&part);

    // Both sequences of a batch, and the second one alone.
    Kernels two = run_kernels(r, &both, qkv, dout);
    part = run_kernels(r, &longer, qkv + T * 3 * C, dout + T * C);
    check(memcmp(two.out, all.out, T * C * sizeof(float)) == 0 &&
              memcmp(two.out + T * C, part.out, T * C * sizeof(float)) == 0 &&
              memcmp(two.dqkv, all.dqkv, T * 3 * C * sizeof(float)) == 0 &&
              memcmp(two.dqkv + T * 3 * C, part.dqkv, T * 3 * C * sizeof(float)) == 0,
          "a sequence's rows depend on the batch that it is in");
    free_kernels(&part);
    free_kernels(&two);

    for (int i = CUT * 3 * C; i < T * 3 * C; i++) qkv[i] = NAN;
    part = run_kernels(r, &longer, qkv, dout);
    check(memcmp(all.out, part.out, CUT * C * sizeof(float)) == 0,
          "a NaN reaches rows in front of it");
    free_kernels(&part);
    free_kernels(&all);
    free(qkv);
    free(dout);
}

// ---- Memory ----

// What a pass holds between forward and backward: qkv (3C), y and the output (C each), and two
// numbers per row and head.
RANK_TEST(test_memory_is_linear, 1)
{
    uint64_t seed = 17;
    for (int T = 32; T <= 256; T *= 2) {
        Setting s = {2, T, 32, 4};
        size_t rows = (size_t)s.B * (size_t)T, n = rows * (size_t)s.C;
        size_t want = sizeof(float) * rows * (5 * (size_t)s.C + 2 * (size_t)s.heads);
        float *x = draw_floats(n, 1.0, &seed);
        Pass fused, plain;
        run_pass(r, fused_attention_create, &s, x, &fused);
        run_pass(r, attention_create, &s, x, &plain);
        check(fused.saved == want, "T %d: fused attention keeps %zu bytes, want %zu", T,
              fused.saved, want);
        check(plain.saved - want == sizeof(float) * rows * (size_t)s.heads * ((size_t)T - 2),
              "T %d: plain attention keeps %zu bytes more than the fused one", T,
              plain.saved - want);
        free_pass(&fused);
        free_pass(&plain);
        free(x);
    }
}

RANK_TEST(test_bad_sizes, 1)
{
    check(fused_attention_create("attn", 12, 5, 0.02f, 0.02f) == NULL &&
              strstr(check_last(), "do not divide") != NULL,
          "12 columns in 5 heads: %s", check_last());
    check(fused_attention_create("attn", 258, 2, 0.02f, 0.02f) == NULL &&
              strstr(check_last(), "takes 128") != NULL,
          "a head of 129 columns: %s", check_last());
}

SUITE_MAIN("fused attention")
