/* elementwise.c: kernels that take element by element, optimizers and reductions against plain
 * double-precision ones, on outputs that begin as NaN; the same bits wherever an element stands.
 *
 * What holds of the CPU's kernels alone is left out where the CUDA kernels are built
 * (BACKEND_CUDA).
 */
#include <float.h>

#include "kernels.h"
#include "naive_check.h"
#ifndef BACKEND_CUDA
// Both forms: vm_exp of a machine that rounds a product and its sum once, and twice_exp of one that
// does not.
#undef __FP_FAST_FMAF
#define vm_fma twice_fma
#define vm_exp twice_exp
#define vm_sigmoid twice_sigmoid
#include "../../lib/kernels/vector_math.h"
#undef vm_fma
#undef vm_exp
#undef vm_sigmoid
#undef SHARDLAB_VECTOR_MATH_H
#define __FP_FAST_FMAF 1
#include "../../lib/kernels/vector_math.h"
#endif

// ---- vector_math.h ----

#ifndef BACKEND_CUDA

// Distance of got from want in units of want's last place.
static double ulps(float got, double want)
{
    int exponent;
    frexp(want, &exponent);
    double unit = ldexp(1.0, exponent - 24);
    return fabs(got - want) / fmax(unit, ldexp(1.0, -149));
}

typedef struct Exponential {
    const char *name;
    float (*of)(float x);
} Exponential;

static void check_exp_of(const Exponential *e)
{
    double worst = 0.0;
    for (uint32_t bits = 0; bits < 0x7f800000u; bits += 997) {
        float x;
        memcpy(&x, &bits, sizeof x);
        for (int sign = 0; sign < 2; sign++, x = -x) {
            double want = exp(x), off = ulps(e->of(x), want);
            if (want > FLT_MAX) {
                check(isinf(e->of(x)) || off < 2.0, "%s: e^%g is %g", e->name, x, e->of(x));
                continue;
            }
            worst = fmax(worst, off);
            check(off < 2.0, "%s: e^%.9g is %.9g, not %.9g: off by %g units", e->name, x, e->of(x),
                  want, off);
        }
    }
    check(worst > 0.0, "%s: nothing was compared", e->name);
    check(e->of(0.0f) == 1.0f, "%s: e^0 is %g", e->name, e->of(0.0f));
    check(e->of(INFINITY) == INFINITY, "%s: e^∞ is %g", e->name, e->of(INFINITY));
    check(e->of(-INFINITY) == 0.0f, "%s: e^-∞ is %g", e->name, e->of(-INFINITY));
    check(isnan(e->of(NAN)), "%s: e^NaN is %g", e->name, e->of(NAN));
}

RANK_TEST(test_exp, 1)
{
    check_exp_of(&(Exponential){"rounded once", vm_exp});
    check_exp_of(&(Exponential){"rounded twice", twice_exp});
    const float a = 1.0f + 0x1p-12f, once = vm_fma(a, a, -1.0f), twice = twice_fma(a, a, -1.0f);
    check(once == 0x1p-11f + 0x1p-24f && twice == 0x1p-11f,
          "(1 + 2^-12)^2 - 1 is %a rounded once, and %a rounded twice", once, twice);
}
#endif

// ---- Elementwise ----

RANK_TEST(test_elementwise, 1)
{
    static const size_t sizes[] = {1, 7, 33, 1000};
    uint64_t seed = 1;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s];
        float *a = draw_floats(n, 3.0, &seed), *b = draw_floats(n, 3.0, &seed);
        float *want = draw_floats(n, 0.0, &seed), *da = on_device(a, n), *db = on_device(b, n);
        float *out = nans_on_device(n), *got;

        need_cuda(kernel_fill(out, 1.5f, n, r->stream));
        for (size_t i = 0; i < n; i++) want[i] = 1.5f;
        check_equal("fill", got = fetch(out, n), want, n);
        free(got);
        need_cuda(kernel_add_out(out, da, db, n, r->stream));
        for (size_t i = 0; i < n; i++) want[i] = a[i] + b[i];
        check_equal("sum2", got = fetch(out, n), want, n);
        free(got);
        need_cuda(kernel_scale(out, 1.1f, n, r->stream));
        for (size_t i = 0; i < n; i++) want[i] *= 1.1f;
        check_equal("scale", got = fetch(out, n), want, n);
        free(got);
        need_cuda(kernel_add(out, da, n, r->stream));
        for (size_t i = 0; i < n; i++) want[i] += a[i];
        check_equal("add", got = fetch(out, n), want, n);
        free(got);
        need_cuda(kernel_add_divided(out, db, 3.0f, n, r->stream));
        for (size_t i = 0; i < n; i++) {
            float quotient = b[i] / 3.0f;
            want[i] += quotient;
        }
        check_equal("add_divided", got = fetch(out, n), want, n);
        free(got);

        need_cuda(cudaFree(da));
        need_cuda(cudaFree(db));
        need_cuda(cudaFree(out));
        free(a);
        free(b);
        free(want);
    }
}

// One elementwise kernel on four arrays, of which it changes some.
typedef cudaError_t (*Elementwise)(float *const x[4], size_t n, cudaStream_t stream);

static cudaError_t run_adamw(float *const x[4], size_t n, cudaStream_t stream)
{
    return kernel_adamw(x[0], x[1], x[2], x[3], n, 1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 3, stream);
}
static cudaError_t run_add_divided(float *const x[4], size_t n, cudaStream_t stream)
{
    return kernel_add_divided(x[0], x[1], 3.0f, n, stream);
}
static cudaError_t run_scale(float *const x[4], size_t n, cudaStream_t stream)
{
    return kernel_scale(x[0], 0.3f, n, stream);
}
static cudaError_t run_sgd(float *const x[4], size_t n, cudaStream_t stream)
{
    return kernel_sgd(x[0], x[1], x[2], n, 0.1f, 0.9f, 0.01f, stream);
}
static cudaError_t run_plain_sgd(float *const x[4], size_t n, cudaStream_t stream)
{
    return kernel_sgd(x[0], x[1], NULL, n, 0.1f, 0.0f, 0.01f, stream);
}
static cudaError_t run_gelu_forward(float *const x[4], size_t n, cudaStream_t stream)
{
    return kernel_gelu_forward(x[0], x[1], n, stream);
}
static cudaError_t run_gelu(float *const x[4], size_t n, cudaStream_t stream)
{
    return kernel_gelu_backward(x[0], x[1], x[2], n, stream);
}
// One row of them: every column is an element.
static cudaError_t run_bias_gelu_forward(float *const x[4], size_t n, cudaStream_t stream)
{
    return kernel_bias_gelu_forward(x[0], x[1], x[2], 1, (int)n, stream);
}
static cudaError_t run_bias_gelu(float *const x[4], size_t n, cudaStream_t stream)
{
    return kernel_bias_gelu_backward(x[0], x[1], x[2], x[3], 1, (int)n, stream);
}
static cudaError_t run_bias_gelu_in_place(float *const x[4], size_t n, cudaStream_t stream)
{
    return kernel_bias_gelu_backward(x[0], x[1], x[2], x[0], 1, (int)n, stream);
}

enum { PLACES = 32, LENGTH = 70 };

// Runs the kernel on elements [begin, end) of the data, put `place` elements into each buffer, and
// copies what it left to out (4, LENGTH).
static void run_at(const Rank *r, Elementwise run, float *const device[4], float *const data[4],
                   size_t place, size_t begin, size_t end, float out[4][LENGTH])
{
    float *x[4];
    for (int i = 0; i < 4; i++) {
        x[i] = device[i] + place;
        send_to(x[i], data[i] + begin, end - begin);
    }
    need_cuda(run(x, end - begin, r->stream));
    for (int i = 0; i < 4; i++) {
        float *got = fetch(x[i], end - begin);
        memcpy(&out[i][begin], got, (end - begin) * sizeof *got);
        free(got);
    }
}

static void check_places_of(const Rank *r, const char *name, Elementwise run)
{
    float *device[4], *data[4], alone[4][LENGTH], together[4][LENGTH];
    uint64_t seed = 5;
    for (int i = 0; i < 4; i++) {
        device[i] = nans_on_device(PLACES + LENGTH);
        data[i] = draw_floats(LENGTH, 1.0, &seed);
    }
    for (int i = 0; i < LENGTH; i++) data[3][i] = fabsf(data[3][i]); // AdamW's second moment
    for (size_t i = 0; i < LENGTH; i++) run_at(r, run, device, data, 0, i, i + 1, alone);
    for (size_t place = 0; place < PLACES; place++)
        for (size_t begin = 0; begin < LENGTH; begin += 9) {
            memcpy(together, alone, sizeof together);
            run_at(r, run, device, data, place, begin, LENGTH, together);
            check(memcmp(together, alone, sizeof alone) == 0,
                  "%s: elements %zu to %d at place %zu have other bits than alone", name, begin,
                  LENGTH, place);
        }
    check(memcmp(alone[0], data[0], sizeof alone[0]) != 0, "%s changed nothing", name);
    for (int i = 0; i < 4; i++) {
        need_cuda(cudaFree(device[i]));
        free(data[i]);
    }
}

RANK_TEST(test_places, 1)
{
    check_places_of(r, "adamw", run_adamw);
    check_places_of(r, "add_divided", run_add_divided);
    check_places_of(r, "scale", run_scale);
    check_places_of(r, "sgd", run_sgd);
    check_places_of(r, "sgd without momentum", run_plain_sgd);
    check_places_of(r, "gelu_forward", run_gelu_forward);
    check_places_of(r, "gelu_backward", run_gelu);
    check_places_of(r, "bias_gelu_forward", run_bias_gelu_forward);
    check_places_of(r, "bias_gelu_backward", run_bias_gelu);
    check_places_of(r, "bias_gelu_backward in place", run_bias_gelu_in_place);
}

// ---- Optimizers, several steps, against double precision ----

RANK_TEST(test_adamw, 1)
{
    enum { N = 77, STEPS = 5 };
    const double lr = 0.01f, b1 = 0.9f, b2 = 0.95f, eps = 1e-8f, wd = 0.1f;
    uint64_t seed = 2;
    float *p = draw_floats(N, 1.0, &seed), *zero = draw_floats(N, 0.0, &seed);
    float *dp = on_device(p, N), *dm = on_device(zero, N), *dv = on_device(zero, N);
    float *dg = nans_on_device(N);
    double want[N], m[N] = {0}, v[N] = {0};
    for (int i = 0; i < N; i++) want[i] = p[i];
    for (int t = 1; t <= STEPS; t++) {
        float *g = draw_floats(N, 0.5, &seed);
        need_cuda(cudaStreamSynchronize(r->stream)); // the step before still reads dg
        send_to(dg, g, N);
        need_cuda(kernel_adamw(dp, dg, dm, dv, N, 0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, t, r->stream));
        for (int i = 0; i < N; i++) {
            want[i] -= lr * wd * want[i];
            m[i] = b1 * m[i] + (1 - b1) * g[i];
            v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
            want[i] -= lr * (m[i] / (1 - pow(b1, t))) / (sqrt(v[i] / (1 - pow(b2, t))) + eps);
        }
        free(g);
    }
    float *got = fetch(dp, N), *got_m = fetch(dm, N), *got_v = fetch(dv, N);
    check_close("the parameter", got, want, N, 1e-6);
    check_close("the first moment", got_m, m, N, 2e-7);
    check_close("the second moment", got_v, v, N, 2e-7);
    need_cuda(cudaFree(dp));
    need_cuda(cudaFree(dm));
    need_cuda(cudaFree(dv));
    need_cuda(cudaFree(dg));
    free(p);
    free(zero);
    free(got);
    free(got_m);
    free(got_v);
}

// With the numbers on the device: bitwise what the kernels make of the host's.
RANK_TEST(test_numbers_on_the_device, 1)
{
    enum { N = 77 };
    uint64_t seed = 4;
    static const double SQUARES[] = {6.25, 1e-30, 0.0, 16.0};
    for (int t = 1; t <= 4; t++) {
        const float lr = 1e-3f * (float)t;
        float numbers[] = {lr, (float)(1.0 - pow(0.9f, t)), (float)(1.0 - pow(0.95f, t)), 0};
        double squares = SQUARES[t - 1];
        float *host[4], *x[2][4], *on = on_device(numbers, 4), *got, *want;
        for (int i = 0; i < 4; i++) {
            host[i] = draw_floats(N, 1.0, &seed);
            for (int k = 0; k < N && i == 3; k++) host[i][k] *= host[i][k]; // a second moment
            for (int way = 0; way < 2; way++) x[way][i] = on_device(host[i], N);
            free(host[i]);
        }
        need_cuda(kernel_adamw(x[0][0], x[0][1], x[0][2], x[0][3], N, lr, 0.9f, 0.95f, 1e-8f, 0.1f,
                               t, r->stream));
        need_cuda(kernel_adamw_numbers(x[1][0], x[1][1], x[1][2], x[1][3], N, on, 0.9f, 0.95f,
                                       1e-8f, 0.1f, r->stream));
        for (int i = 0; i < 4; i++) {
            check_equal("AdamW by numbers", got = fetch(x[1][i], N), want = fetch(x[0][i], N), N);
            free(got);
            free(want);
        }
        double *sum;
        need_cuda(cudaMalloc((void **)&sum, sizeof *sum));
        need_cuda(cudaMemcpy(sum, &squares, sizeof squares, cudaMemcpyHostToDevice));
        need_cuda(cudaDeviceSynchronize());
        need_cuda(kernel_clip_factor(on, sum, 2.0f, r->stream));
        need_cuda(kernel_scale_by(x[1][0], on + 1, N, r->stream));
        float norm = (float)sqrt(squares), clip[] = {norm, norm > 2.0f ? 2.0f / norm : 1.0f};
        check_equal("a clip's norm and factor", got = fetch(on, 2), clip, 2);
        free(got);
        if (clip[1] != 1.0f) need_cuda(kernel_scale(x[0][0], clip[1], N, r->stream));
        check_equal("scaled", got = fetch(x[1][0], N), want = fetch(x[0][0], N), N);
        free(got);
        free(want);
        for (int i = 0; i < 8; i++) need_cuda(cudaFree(x[i / 4][i % 4]));
        need_cuda(cudaFree(on));
        need_cuda(cudaFree(sum));
    }
}

RANK_TEST(test_sgd, 1)
{
    enum { N = 35 };
    uint64_t seed = 3;
    float *p = draw_floats(N, 1.0, &seed), *g = draw_floats(N, 1.0, &seed);
    float *buf = draw_floats(N, 1.0, &seed);
    float *dp = on_device(p, N), *dg = on_device(g, N), *dbuf = on_device(buf, N);
    double want[N], want_buf[N];
    need_cuda(kernel_sgd(dp, dg, dbuf, N, 0.25f, 0.5f, 0.125f, r->stream));
    for (int i = 0; i < N; i++) {
        want_buf[i] = 0.5 * buf[i] + g[i] + 0.125 * p[i];
        want[i] = p[i] - 0.25 * want_buf[i];
    }
    float *got = fetch(dp, N), *got_buf = fetch(dbuf, N);
    check_close("the parameter", got, want, N, 2e-7);
    check_close("the velocity", got_buf, want_buf, N, 2e-7);
    send_to(dp, p, N);
    need_cuda(kernel_sgd(dp, dg, NULL, N, 0.25f, 0.0f, 0.125f, r->stream));
    for (int i = 0; i < N; i++) want[i] = p[i] - 0.25 * (g[i] + 0.125 * p[i]);
    free(got);
    got = fetch(dp, N);
    check_close("the parameter without momentum", got, want, N, 2e-7);
    need_cuda(cudaFree(dp));
    need_cuda(cudaFree(dg));
    need_cuda(cudaFree(dbuf));
    free(p);
    free(g);
    free(buf);
    free(got);
    free(got_buf);
}

// ---- Reductions ----

RANK_TEST(test_reductions, 1)
{
    static const size_t sizes[] = {1, 5, 8, 1003};
    uint64_t seed = 4;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s];
        float *x = draw_floats(n, 10.0, &seed), *dx = on_device(x, n), *dmean = nans_on_device(1);
        double start = 2.0, got_sum, squares = 2.0, mean = 0.0, *dsum = NULL;
        for (size_t i = 0; i < n; i++) {
            squares += (double)x[i] * x[i];
            mean += (double)x[i] / n;
        }
        need_cuda(cudaMalloc((void **)&dsum, sizeof *dsum));
        need_cuda(cudaMemcpyAsync(dsum, &start, sizeof start, cudaMemcpyHostToDevice, r->stream));
        need_cuda(kernel_sum_squares(dsum, dx, n, r->stream));
        need_cuda(kernel_mean(dmean, dx, n, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        need_cuda(cudaMemcpy(&got_sum, dsum, sizeof got_sum, cudaMemcpyDeviceToHost));
        float *got_mean = fetch(dmean, 1);
        check(fabs(got_sum - squares) <= 1e-12 * squares,
              "the sum of %zu squares is %.17g, not %.17g", n, got_sum, squares);
        check_close("the mean", got_mean, &mean, 1, 1e-7);
        need_cuda(cudaFree(dx));
        need_cuda(cudaFree(dmean));
        need_cuda(cudaFree(dsum));
        free(x);
        free(got_mean);
    }
}

RANK_TEST(test_rows, 1)
{
    static const int sizes[][2] = {{1, 1}, {3, 7}, {19, 300}, {64, 33}};
    uint64_t seed = 5;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int rows = sizes[s][0], cols = sizes[s][1];
        size_t n = (size_t)rows * cols;
        float *x = draw_floats(n, 1.0, &seed), *base = draw_floats(cols, 1.0, &seed);
        float *dx = on_device(x, n), *dsum = on_device(base, cols), *spread = nans_on_device(n),
              *got;
        double *want = naive_buffer(cols);
        need_cuda(kernel_broadcast_bias(spread, dsum, rows, cols, r->stream));
        got = fetch(spread, n);
        for (int i = 0; i < rows; i++) check_equal("a row of the bias", got + i * cols, base, cols);
        free(got);
        need_cuda(kernel_sum_rows(dsum, dx, rows, cols, r->stream));
        for (int c = 0; c < cols; c++) want[c] = base[c];
        for (size_t i = 0; i < n; i++) want[i % cols] += x[i];
        check_close("the sum of the rows", got = fetch(dsum, cols), want, cols, 2e-6);
        free(got);
        need_cuda(cudaFree(dx));
        need_cuda(cudaFree(dsum));
        need_cuda(cudaFree(spread));
        free(want);
        free(x);
        free(base);
    }
}

SUITE_MAIN("nn elementwise")
