/* kernels.c: the kernels of layers against plain double-precision ones, on outputs that begin as
 * NaN; exact equality where the arithmetic is exact. Others are elementwise.c's.
 *
 * What holds of the CPU's kernels alone is left out where the CUDA kernels are built
 * (BACKEND_CUDA).
 */
#include <float.h>

#include "kernels.h"
#include "naive_check.h"

// gelu'(x) by the product rule on the definition
static double gelu_slope(double x)
{
    double k = sqrt(2.0 / M_PI), t = tanh(k * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * k * (1.0 + 3.0 * 0.044715 * x * x);
}

RANK_TEST(test_gelu, 1)
{
    enum { N = 2003 };
    uint64_t seed = 6;
    float *x = draw_floats(N, 12.0, &seed), *dy = draw_floats(N, 1.0, &seed);
    const float extreme[] = {0.0f, -0.0f, 1e-20f, -1e-20f, 60.0f, -60.0f, 1e4f, -1e4f};
    memcpy(x, extreme, sizeof extreme);
    float *in = on_device(x, N), *dout = on_device(dy, N), *out = nans_on_device(N);
    float *din = nans_on_device(N);
    double want[N], slope[N];
    for (int i = 0; i < N; i++) {
        want[i] = naive_gelu_of(x[i]);
        slope[i] = dy[i] * gelu_slope(x[i]);
    }
    need_cuda(kernel_gelu_forward(out, in, N, r->stream));
    need_cuda(kernel_gelu_backward(din, dout, in, N, r->stream));
    float *got = fetch(out, N), *got_slope = fetch(din, N);
    check_close("gelu", got, want, N, 5e-7);
    check_close("its gradient", got_slope, slope, N, 1e-6);
    need_cuda(cudaFree(in));
    need_cuda(cudaFree(dout));
    need_cuda(cudaFree(out));
    need_cuda(cudaFree(din));
    free(x);
    free(dy);
    free(got);
    free(got_slope);
}

static void check_bias_gelu_of(const Rank *r, int rows, int cols, uint64_t *seed)
{
    size_t n = (size_t)rows * cols;
    float *x = draw_floats(n, 12.0, seed), *b = draw_floats(cols, 1.0, seed);
    float *dy = draw_floats(n, 1.0, seed), *base = draw_floats(cols, 1.0, seed);
    float *sum = draw_floats(n, 0.0, seed), *got, *apart;
    double *want = naive_buffer(n), *dx = naive_buffer(n), *db = naive_buffer(cols);
    for (int c = 0; c < cols; c++) db[c] = base[c];
    for (size_t i = 0; i < n; i++) {
        if (i % 31 == 30) x[i] *= 1000.0f; // where the function is flat, or the identity
        sum[i] = x[i] + b[i % cols];
        want[i] = naive_gelu_of(sum[i]);
        dx[i] = dy[i] * gelu_slope(sum[i]);
        db[i % cols] += dx[i];
    }
    float *y = on_device(x, n), *bias = on_device(b, cols), *dout = on_device(dy, n);
    float *dbias = on_device(base, cols), *out = nans_on_device(n), *din = nans_on_device(n);
    need_cuda(kernel_bias_gelu_forward(out, y, bias, rows, cols, r->stream));
    check_equal("the sum with the bias", got = fetch(y, n), sum, n);
    free(got);
    check_close("gelu of the sum", got = fetch(out, n), want, n, 5e-7);
    free(got);
    need_cuda(kernel_bias_gelu_backward(din, dbias, dout, y, rows, cols, r->stream));
    check_close("the gradient by the sum", apart = fetch(din, n), dx, n, 1e-6);
    float *dbias_apart = fetch(dbias, cols);
    check_close("the bias's gradient", dbias_apart, db, cols, 3e-6);
    check_equal("y behind the backward", got = fetch(y, n), sum, n);
    free(got);
    send_to(dbias, base, cols);
    need_cuda(kernel_bias_gelu_backward(y, dbias, dout, y, rows, cols, r->stream));
    check_equal("the gradient in place of y", got = fetch(y, n), apart, n);
    free(got);
    check_equal("the bias's gradient, in place", got = fetch(dbias, cols), dbias_apart, cols);
    free(got);
    float *device[] = {y, bias, dout, dbias, out, din};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++) need_cuda(cudaFree(device[i]));
    float *host[] = {x, b, dy, base, sum, apart, dbias_apart};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++) free(host[i]);
    free(want);
    free(dx);
    free(db);
}

RANK_TEST(test_bias_gelu, 1)
{
    static const int sizes[][2] = {{1, 1}, {3, 7}, {19, 300}, {64, 33}, {2, 1025}, {3, 4096 + 37}};
    uint64_t seed = 11;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        check_bias_gelu_of(r, sizes[s][0], sizes[s][1], &seed);
}

// What the layer norm and its backward make of x (rows, C), in double: out, dx (rows, C); dw and db
// (C) are added to.
static void naive_norm_pass(const float *x, const float *w, const float *b, const float *dy,
                            int rows, int C, double *out, double *dx, double *dw, double *db)
{
    for (int i = 0; i < rows; i++, x += C, dy += C, out += C, dx += C) {
        double mean = 0.0, variance = 0.0, mean_g = 0.0, mean_gx = 0.0;
        for (int c = 0; c < C; c++) mean += (double)x[c] / C;
        for (int c = 0; c < C; c++) variance += (x[c] - mean) * (x[c] - mean) / C;
        double scale = 1.0 / sqrt(variance + 1e-5);
        for (int c = 0; c < C; c++) {
            double hat = (x[c] - mean) * scale, g = (double)dy[c] * w[c];
            out[c] = hat * w[c] + b[c];
            dw[c] += dy[c] * hat;
            db[c] += dy[c];
            mean_g += g / C;
            mean_gx += g * hat / C;
        }
        for (int c = 0; c < C; c++) {
            double hat = (x[c] - mean) * scale, g = (double)dy[c] * w[c];
            dx[c] = scale * (g - mean_g - hat * mean_gx);
        }
    }
}

// A row whose mean is large against its spread is where a variance computed as E[x²] - E[x]² fails:
// row 0 is one. With `residual` the kernels add one in the forward, and another in the backward.
static void check_layernorm_of(const Rank *r, int C, bool residual, uint64_t *seed)
{
    enum { ROWS = 5 };
    size_t n = (size_t)ROWS * C;
    float *x = draw_floats(n, 1.0, seed), *w = draw_floats(C, 1.0, seed);
    float *b = draw_floats(C, 1.0, seed), *dy = draw_floats(n, 1.0, seed);
    float *more = draw_floats(n, 1.0, seed), *dmore = draw_floats(n, 1.0, seed), *got;
    for (int c = 0; c < C; c++) x[c] += 100.0f;
    float *in = on_device(x, n), *weight = on_device(w, C), *bias = on_device(b, C);
    float *dout = on_device(dy, n), *out = nans_on_device(n), *din = nans_on_device(n);
    float *mean = nans_on_device(ROWS), *rstd = nans_on_device(ROWS);
    float *dweight = on_device(w, C), *dbias = on_device(b, C);
    float *added = on_device(more, n), *dadded = on_device(dmore, n);
    double *want = naive_buffer(n), *dx = naive_buffer(n), *dw = naive_buffer(C),
           *db = naive_buffer(C);
    for (int c = 0; c < C; c++) {
        dw[c] = w[c];
        db[c] = b[c];
    }
    if (residual) {
        need_cuda(kernel_residual_layernorm_forward(out, mean, rstd, in, added, weight, bias, ROWS,
                                                    C, r->stream));
        for (size_t i = 0; i < n; i++) x[i] += more[i];
    } else {
        need_cuda(kernel_layernorm_forward(out, mean, rstd, in, weight, bias, ROWS, C, r->stream));
    }
    check_equal("what was normalised", got = fetch(in, n), x, n);
    free(got);
    need_cuda(kernel_layernorm_backward(din, dweight, dbias, dout, in, weight, mean, rstd,
                                        residual ? dadded : NULL, ROWS, C, r->stream));
    naive_norm_pass(x, w, b, dy, ROWS, C, want, dx, dw, db);
    for (size_t i = 0; residual && i < n; i++) dx[i] += dmore[i];
    // Row 0 is near 100, where a float's last place is 8e-6; the others are held to far less.
    check_close("row 0", got = fetch(out, n), want, C, 1e-4);
    check_close("the other rows", got + C, want + C, n - C, 2e-6);
    free(got);
    // One column has no spread: its gradient is 0 times 1/√eps, and that 0 only up to rounding.
    check_close("row 0 of din", got = fetch(din, n), dx, C, C > 1 ? 1e-4 : 2e-3);
    check_close("din", got + C, dx + C, n - C, C > 1 ? 1e-5 : 2e-3);
    free(got);
    check_close("dweight", got = fetch(dweight, C), dw, C, 1e-4);
    free(got);
    check_close("dbias", got = fetch(dbias, C), db, C, 2e-6);
    free(got);
    float *device[] = {in, weight, bias, dout, out, din, mean, rstd, dweight, dbias, added, dadded};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++) need_cuda(cudaFree(device[i]));
    float *host[] = {x, w, b, dy, more, dmore};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++) free(host[i]);
    double *wide[] = {want, dx, dw, db};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) free(wide[i]);
}

RANK_TEST(test_layernorm, 1)
{
    static const int widths[] = {1, 3, 16, 33, 200, 1031};
    uint64_t seed = 7;
    for (size_t s = 0; s < sizeof widths / sizeof *widths; s++) {
        check_layernorm_of(r, widths[s], false, &seed);
        check_layernorm_of(r, widths[s], true, &seed);
    }
}

// A fused kernel does the arithmetic of the plain ones, in the same order: the same bits.
RANK_TEST(test_fused, 1)
{
    enum { ROWS = 13, C = 301, N = ROWS * C };
    uint64_t seed = 12;
    float *data[8], *x[8], *y[8]; // x for the fused kernels, y for the plain ones
    for (int i = 0; i < 8; i++) {
        data[i] = draw_floats(N, 2.0, &seed);
        x[i] = on_device(data[i], N);
        y[i] = on_device(data[i], N);
    }
    need_cuda(kernel_bias_gelu_forward(x[0], x[1], x[2], ROWS, C, r->stream));
    need_cuda(kernel_bias_gelu_backward(x[4], x[5], x[6], x[1], ROWS, C, r->stream));
    need_cuda(kernel_broadcast_bias(y[3], y[2], ROWS, C, r->stream));
    need_cuda(kernel_add(y[1], y[3], N, r->stream));
    need_cuda(kernel_gelu_forward(y[0], y[1], N, r->stream));
    need_cuda(kernel_gelu_backward(y[4], y[6], y[1], N, r->stream));
    need_cuda(kernel_sum_rows(y[5], y[4], ROWS, C, r->stream));
    static const char *const gelu[] = {[0] = "gelu", [1] = "its input", [4] = "din", [5] = "dbias"};
    static const char *const norm[] = {
        [0] = "out", [3] = "the sum", [5] = "din", [6] = "dweight", [7] = "dbias"};
    for (int i = 0; i < 6; i++) {
        if (gelu[i] == NULL) continue;
        float *got = fetch(x[i], N), *want = fetch(y[i], N);
        check_equal(gelu[i], got, want, N);
        free(got);
        free(want);
    }

    float *mean = nans_on_device(ROWS), *rstd = nans_on_device(ROWS);
    for (int i = 0; i < 8; i++) {
        send_to(x[i], data[i], N);
        send_to(y[i], data[i], N);
    }
    need_cuda(kernel_residual_layernorm_forward(x[0], mean, rstd, x[3], x[4], x[1], x[2], ROWS, C,
                                                r->stream));
    need_cuda(kernel_layernorm_backward(x[5], x[6], x[7], x[4], x[3], x[1], mean, rstd, x[2], ROWS,
                                        C, r->stream));
    need_cuda(kernel_add(y[3], y[4], N, r->stream));
    need_cuda(kernel_layernorm_forward(y[0], mean, rstd, y[3], y[1], y[2], ROWS, C, r->stream));
    need_cuda(kernel_layernorm_backward(y[5], y[6], y[7], y[4], y[3], y[1], mean, rstd, NULL, ROWS,
                                        C, r->stream));
    need_cuda(kernel_add(y[5], y[2], N, r->stream));
    for (int i = 0; i < 8; i++) {
        if (norm[i] == NULL) continue;
        float *got = fetch(x[i], N), *want = fetch(y[i], N);
        check_equal(norm[i], got, want, N);
        free(got);
        free(want);
    }
    need_cuda(cudaFree(mean));
    need_cuda(cudaFree(rstd));
    for (int i = 0; i < 8; i++) {
        need_cuda(cudaFree(x[i]));
        need_cuda(cudaFree(y[i]));
        free(data[i]);
    }
}

// What stands behind the diagonal must not matter, so it is NaN here.
RANK_TEST(test_softmax, 1)
{
    static const int lengths[] = {1, 2, 17, 40};
    enum { N = 3 };
    uint64_t seed = 8;
    for (size_t s = 0; s < sizeof lengths / sizeof *lengths; s++) {
        int T = lengths[s];
        size_t n = (size_t)N * T * T;
        float *x = draw_floats(n, 30.0, &seed), *dp = draw_floats(n, 1.0, &seed), *got;
        double *want = naive_buffer(n), *dx = naive_buffer(n);
        for (size_t row = 0; row < (size_t)N * T; row++) {
            int seen = (int)(row % T) + 1;
            double *p = want + row * T, *d = dx + row * T, dot = 0.0;
            for (int i = 0; i < T; i++) p[i] = i < seen ? x[row * T + i] : 0.0;
            naive_softmax(p, p, seen, 0.25);
            for (int i = 0; i < seen; i++) dot += p[i] * dp[row * T + i];
            for (int i = 0; i < seen; i++) d[i] = 0.25 * p[i] * (dp[row * T + i] - dot);
            for (int i = seen; i < T; i++) x[row * T + i] = dp[row * T + i] = NAN;
        }
        float *att = on_device(x, n), *datt = on_device(dp, n);
        need_cuda(kernel_causal_softmax_forward(att, N, T, 0.25f, r->stream));
        need_cuda(kernel_causal_softmax_backward(datt, att, N, T, 0.25f, r->stream));
        check_close("softmax", got = fetch(att, n), want, n, 1e-6);
        free(got);
        check_close("its gradient", got = fetch(datt, n), dx, n, 1e-6);
        free(got);
        need_cuda(cudaFree(att));
        need_cuda(cudaFree(datt));
        free(x);
        free(dp);
        free(want);
        free(dx);
    }
}

RANK_TEST(test_embedding, 1)
{
    enum { SEQUENCES = 3, T = 5, C = 19, VOCAB = 7, ROWS = SEQUENCES * T };
    uint64_t seed = 9;
    int32_t tokens[ROWS];
    float *wte = draw_floats(VOCAB * C, 1.0, &seed), *wpe = draw_floats(T * C, 1.0, &seed);
    float *dy = draw_floats(ROWS * C, 1.0, &seed), want[ROWS * C], *got;
    double dwte[VOCAB * C], dwpe[T * C];
    for (int i = 0; i < VOCAB * C; i++) dwte[i] = wte[i];
    for (int i = 0; i < T * C; i++) dwpe[i] = wpe[i];
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = i * i % VOCAB;
        for (int c = 0; c < C; c++) {
            want[i * C + c] = wte[tokens[i] * C + c] + wpe[i % T * C + c];
            dwte[tokens[i] * C + c] += dy[i * C + c];
            dwpe[i % T * C + c] += dy[i * C + c];
        }
    }
    int32_t *in = tokens_on_device(tokens, ROWS);
    float *words = on_device(wte, VOCAB * C), *places = on_device(wpe, T * C);
    float *out = nans_on_device(ROWS * C), *dout = on_device(dy, ROWS * C);
    need_cuda(kernel_embedding_forward(out, in, words, places, SEQUENCES, T, C, VOCAB, r->stream));
    check_equal("the embedding", got = fetch(out, ROWS * C), want, ROWS * C);
    free(got);
    need_cuda(
        kernel_embedding_backward(words, places, dout, in, SEQUENCES, T, C, VOCAB, r->stream));
    check_close("dwte", got = fetch(words, VOCAB * C), dwte, VOCAB * C, 1e-6);
    free(got);
    check_close("dwpe", got = fetch(places, T * C), dwpe, T * C, 1e-6);
    free(got);
    float *device[] = {words, places, out, dout};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++) need_cuda(cudaFree(device[i]));
    need_cuda(cudaFree(in));
    free(wte);
    free(wpe);
    free(dy);
}

#ifndef BACKEND_CUDA
// What a failed kernel was to write to must be as before.
static void check_untouched(const char *what, const float *device, const float *before, size_t n)
{
    float *now = fetch(device, n);
    check_equal(what, now, before, n);
    free(now);
}

// A token or a target outside the vocabulary is an error, and nothing is written.
RANK_TEST(test_outside, 1)
{
    enum { ROWS = 3, C = 5, VOCAB = 4 };
    static const int32_t bad[][ROWS] = {{0, 4, 1}, {-1, 2, 3}};
    uint64_t seed = 13;
    float *data = draw_floats(VOCAB * C, 1.0, &seed), *words = on_device(data, VOCAB * C);
    float *places = on_device(data, ROWS * C), *rows = on_device(data, ROWS * C);
    float *losses = on_device(data, ROWS);
    for (int i = 0; i < 2; i++) {
        int32_t *tokens = tokens_on_device(bad[i], ROWS);
        check(kernel_embedding_forward(rows, tokens, words, places, 1, ROWS, C, VOCAB, r->stream) ==
                  cudaErrorIllegalAddress,
              "a token outside the vocabulary was looked up");
        check_untouched("the output", rows, data, ROWS * C);
        check(kernel_embedding_backward(words, places, rows, tokens, 1, ROWS, C, VOCAB,
                                        r->stream) == cudaErrorIllegalAddress,
              "a token outside the vocabulary got a gradient");
        check_untouched("dwte", words, data, VOCAB * C);
        check_untouched("dwpe", places, data, ROWS * C);
        check(kernel_cross_entropy(losses, rows, rows, tokens, ROWS, VOCAB, 1.0f, r->stream) ==
                  cudaErrorIllegalAddress,
              "a target outside the vocabulary has a loss");
        check_untouched("the losses", losses, data, ROWS);
        check_untouched("the logits", rows, data, ROWS * C);
        need_cuda(cudaFree(tokens));
    }
    need_cuda(cudaFree(words));
    need_cuda(cudaFree(places));
    need_cuda(cudaFree(rows));
    need_cuda(cudaFree(losses));
    free(data);
}
#endif

RANK_TEST(test_cross_entropy, 1)
{
    static const int widths[] = {1, 2, 37, 300};
    enum { ROWS = 7 };
    uint64_t seed = 10;
    for (size_t s = 0; s < sizeof widths / sizeof *widths; s++) {
        int V = widths[s];
        size_t n = (size_t)ROWS * V;
        float *x = draw_floats(n, 20.0, &seed), *got;
        double loss[ROWS], *dx = naive_buffer(n);
        int32_t targets[ROWS];
        for (int i = 0; i < ROWS; i++) {
            double *p = dx + i * V;
            targets[i] = (i * 5 + 1) % V;
            for (int c = 0; c < V; c++) p[c] = x[i * V + c];
            naive_softmax(p, p, V, 1.0);
            loss[i] = -log(p[targets[i]]);
            p[targets[i]] -= 1.0;
            for (int c = 0; c < V; c++) p[c] *= 0.5;
        }
        float *logits = on_device(x, n), *losses = nans_on_device(ROWS),
              *dlogits = nans_on_device(n);
        int32_t *target = tokens_on_device(targets, ROWS);
        need_cuda(kernel_cross_entropy(losses, NULL, logits, target, ROWS, V, 0.5f, r->stream));
        check_close("the loss alone", got = fetch(losses, ROWS), loss, ROWS, 1e-6);
        free(got);
        poison(losses, ROWS);
        need_cuda(kernel_cross_entropy(losses, dlogits, logits, target, ROWS, V, 0.5f, r->stream));
        check_close("the loss", got = fetch(losses, ROWS), loss, ROWS, 1e-6);
        free(got);
        float *apart = fetch(dlogits, n);
        check_close("the gradient", apart, dx, n, 2e-6);
        need_cuda(kernel_cross_entropy(losses, logits, logits, target, ROWS, V, 0.5f, r->stream));
        check_equal("the gradient in place", got = fetch(logits, n), apart, n);
        free(got);
        need_cuda(cudaFree(logits));
        need_cuda(cudaFree(losses));
        need_cuda(cudaFree(dlogits));
        need_cuda(cudaFree(target));
        free(apart);
        free(x);
        free(dx);
    }
}

SUITE_MAIN("kernels")
