/* half_kernels.c: every kernel of bf16 and fp16 against the kernel of floats: bitwise that one's
 * results, rounded by this test; those that do the work of several, against the several. Casts, and
 * the search for what is not finite, by the definition of the types.
 */
#include <stdio.h>

#include "half_table.h"
#include "rounding.h"

// ---- Conversions ----

// Floats at which rounding is decided: every number of the type, the middle to the next one, and
// the floats beside both.
static size_t list_edges(DType type, float *x)
{
    size_t n = 0;
    for (unsigned bits = 0; bits < 0x10000; bits++) {
        double own = half_value(type, (uint16_t)bits);
        double next = half_value(type, (uint16_t)(bits + 1 < 0x10000 ? bits + 1 : bits));
        float middle = isfinite(own) && isfinite(next) ? (float)((own + next) / 2) : (float)own;
        x[n++] = (float)own;
        x[n++] = middle;
        x[n++] = nextafterf(middle, INFINITY);
        x[n++] = nextafterf(middle, -INFINITY);
    }
    static const float others[] = {65519.99f, 65520.0f, 65521.0f, 1e30f,     3.39e38f,  3.4e38f,
                                   1e-45f,    6e-8f,    2.9e-8f,  2.98e-8f,  -65520.0f, -1e-45f,
                                   5.96e-8f,  1e-40f,   INFINITY, -INFINITY, NAN,       -0.0f};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) x[n++] = others[i];
    return n;
}
enum { MOST_EDGES = 4 * 0x10000 + 32 };

RANK_TEST(test_conversions, 1)
{
    float *x = malloc(MOST_EDGES * sizeof *x);
    for (size_t t = 0; t < 2; t++) {
        DType type = HALVES[t];
        size_t n = list_edges(type, x);
        for (size_t i = 0; i < n; i++) {
            uint16_t got = type == DTYPE_BF16 ? bf16_from_float(x[i]) : f16_from_float(x[i]);
            uint16_t want = half_round(type, x[i]);
            check(got == want, "%.9g becomes the %s %04x, not %04x", x[i], type_name(type), got,
                  want);
            float back = type == DTYPE_BF16 ? bf16_to_float(want) : f16_to_float(want);
            check(isnan(x[i]) ? isnan(back) : back == (float)half_value(type, want),
                  "the %s %04x becomes %.9g", type_name(type), want, back);
            check(isnan(x[i]) || round_to(type, x[i]) == back, "round_to %.9g", x[i]);
        }
    }
    free(x);
}

// ---- Arrays ----

#define GUARD 7 // numbers on both sides, which must stay as they are; odd, so nothing is aligned

// A device array of `type` with the values of x (n), and the guards.
static char *array_of(DType type, const float *x, size_t n)
{
    size_t all = n + 2 * GUARD;
    float *wide = malloc(all * sizeof *wide);
    for (size_t i = 0; i < all; i++) wide[i] = i < GUARD || i >= GUARD + n ? -3.0f : x[i - GUARD];
    uint16_t *narrow = round_halves(type == DTYPE_F32 ? DTYPE_F16 : type, wide, all);
    char *on = type == DTYPE_F32 ? bytes_on_device(wide, all * sizeof *wide)
                                 : bytes_on_device(narrow, all * sizeof *narrow);
    free(wide);
    free(narrow);
    return on + GUARD * dtype_bytes(type);
}

static void free_array(DType type, char *x)
{
    need_cuda(cudaFree(x - GUARD * dtype_bytes(type)));
}

// The array's bits, a word each, as an array of floats' or of halves'; the guards are checked.
static uint32_t *fetch_bits(const char *what, DType type, const char *x, size_t n)
{
    size_t one = (size_t)dtype_bytes(type), all = n + 2 * GUARD;
    char *bytes = malloc(all * one);
    uint32_t *bits = calloc(n + 1, sizeof *bits);
    float guard = -3.0f;
    uint16_t narrow = half_round(type == DTYPE_F32 ? DTYPE_F16 : type, guard);
    need_cuda(cudaMemcpy(bytes, x - GUARD * one, all * one, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < all; i++) {
        bool inside = i >= GUARD && i < GUARD + n;
        const void *want = one == 4 ? (const void *)&guard : &narrow;
        if (inside)
            memcpy(&bits[i - GUARD], bytes + i * one, one);
        else
            check(memcmp(bytes + i * one, want, one) == 0, "%s wrote outside of an array", what);
    }
    free(bytes);
    return bits;
}

static float float_at(const uint32_t *bits, size_t i)
{
    float x;
    memcpy(&x, &bits[i], sizeof x);
    return x;
}

// ---- Casts ----

// The same into src itself: bitwise what it was elsewhere.
static void check_cast_in_place(const Rank *r, DType to, DType from, char *src,
                                const uint32_t *want, size_t n)
{
    size_t one = (size_t)dtype_bytes(to);
    if (one != (size_t)dtype_bytes(from)) return;
    char *got = malloc(n * one + 1);
    need_cuda(kernel_cast(to, src, from, src, n, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaMemcpy(got, src, n * one, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++)
        check(memcmp(got + i * one, &want[i], one) == 0, "%s to %s in place: number %zu differs",
              type_name(from), type_name(to), i);
    free(got);
}

static void check_cast(const Rank *r, DType to, DType from, const float *x, size_t n)
{
    char what[64];
    char *src = array_of(from, x, n), *dst = array_of(to, x, n);
    snprintf(what, sizeof what, "%s to %s", type_name(from), type_name(to));
    need_cuda(cudaMemset(dst, 0xff, n * (size_t)dtype_bytes(to)));
    need_cuda(cudaDeviceSynchronize());
    need_cuda(kernel_cast(to, dst, from, src, n, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    uint32_t *got = fetch_bits(what, to, dst, n);
    for (size_t i = 0; i < n; i++) {
        float narrow = half_float(from, x[i]); // what src holds
        uint32_t want = half_round(to, narrow);
        if (to == DTYPE_F32) memcpy(&want, &narrow, sizeof want);
        bool nan = isnan(narrow) && to == DTYPE_F32 && isnan(float_at(got, i));
        check(got[i] == want || nan, "%s: %.9g became %08x, not %08x", what, narrow, got[i], want);
    }
    check_cast_in_place(r, to, from, src, got, n);
    free(got);
    free_array(from, src);
    free_array(to, dst);
}

RANK_TEST_WITHIN(test_casts, 30, 1)
{
    static const DType all[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    float *x = malloc(MOST_EDGES * sizeof *x);
    for (size_t t = 0; t < 9; t++) {
        size_t n = list_edges(t % 2 == 0 ? DTYPE_BF16 : DTYPE_F16, x);
        check_cast(r, all[t / 3], all[t % 3], x, n);
        for (size_t few = 0; few < 4; few++) check_cast(r, all[t / 3], all[t % 3], x + 99, few);
        check_cast(r, all[t / 3], all[t % 3], x + 1000, 1025);
    }
    free(x);
}

static void check_found(const Rank *r, DType type, size_t n, size_t at, float value, int32_t want)
{
    int32_t before[] = {0, 1}, got[2];
    float *x = calloc(n + 1, sizeof *x);
    if (at < n) x[at] = value;
    char *on = array_of(type, x, n);
    int32_t *found = bytes_on_device(before, sizeof before);
    need_cuda(kernel_check_finite(found, type, on, n, r->stream));
    need_cuda(kernel_check_finite(found + 1, type, on, n, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaMemcpy(got, found, sizeof got, cudaMemcpyDeviceToHost));
    check(got[0] == want && got[1] == 1, "%g at %zu of %zu %s: found %d, and %d where it was 1",
          value, at, n, type_name(type), got[0], got[1]);
    need_cuda(cudaFree(found));
    free_array(type, on);
    free(x);
}

RANK_TEST(test_finite, 1)
{
    static const DType all[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int t = 0; t < 3; t++) {
        check_found(r, all[t], 0, 0, NAN, 0);
        for (size_t at = 0; at < 2051; at += 205) {
            check_found(r, all[t], 2051, at, NAN, 1);
            check_found(r, all[t], 2051, at, -INFINITY, 1);
            check_found(r, all[t], 2051, at, -65504.0f, 0);
            check_found(r, all[t], 2051, at, 1e-45f, 0);
            check_found(r, all[t], 2051, at, 1e38f, all[t] == DTYPE_F16);
        }
        check_found(r, all[t], 2051, 2050, INFINITY, 1);
    }
}

// ---- Kernels ----

// An operand twice: for the kernel under test, and for what it is compared with.
typedef struct Pair {
    DType type[2];
    char *x[2];
    size_t n;
} Pair;

static Pair make_pair(const Operand *o, const Sizes *s, DType type, bool floats, uint64_t *seed)
{
    Pair p = {{o->kind == TYPED ? type : DTYPE_F32, DTYPE_F32}, {NULL, NULL}, numel(o->shape, s)};
    if (o->kind == TYPED && !floats) p.type[1] = type;
    float *x = draw_floats(p.n, 2.0, seed);
    for (size_t i = 0; i < p.n; i++) {
        if (o->kind == TYPED) x[i] = half_float(type, x[i]);
        if (o->kind == POSITIVE) x[i] = fabsf(x[i]);
        int32_t token = (int32_t)(fabsf(x[i]) * 1.4999f);
        if (o->kind == TOKENS) memcpy(&x[i], &token, sizeof token);
    }
    for (int i = 0; i < 2; i++) p.x[i] = array_of(p.type[i], x, p.n);
    free(x);
    return p;
}

static void check_pair(const char *what, const Operand *o, const Pair *p, DType type)
{
    uint32_t *got = fetch_bits(what, p->type[0], p->x[0], p->n);
    uint32_t *want = fetch_bits(what, p->type[1], p->x[1], p->n);
    for (size_t i = 0; i < p->n; i++) {
        bool rounded = p->type[0] != p->type[1];
        uint32_t bits = rounded ? half_round(type, float_at(want, i)) : want[i];
        check(got[i] == bits, "%s: %s: number %zu of %zu is %04x, not %04x", what, o->name, i, p->n,
              got[i], bits);
    }
    free(got);
    free(want);
}

static void check_kernel(const Rank *r, const Kernel *k, DType type, const Sizes *s)
{
    char what[160];
    uint64_t seed = 5 + (uint64_t)s->rows * 31 + (uint64_t)s->cols;
    Pair pair[OPERANDS];
    void *x[2][OPERANDS];
    int n = 0;
    snprintf(what, sizeof what, "%s of %s, %d rows, %d columns, T %d", k->name, type_name(type),
             s->rows, s->cols, s->T);
    for (; n < OPERANDS && k->operand[n].name != NULL; n++) {
        pair[n] = make_pair(&k->operand[n], s, type, k->several == NULL, &seed);
        for (int i = 0; i < 2; i++) x[i][n] = pair[n].x[i];
    }
    cudaError_t done = k->run(type, x[0], s, r->stream);
    check(done == cudaSuccess, "%s: %s", what, cudaGetErrorString(done));
    done = k->several != NULL ? k->several(type, x[1], s, r->stream)
                              : k->run(DTYPE_F32, x[1], s, r->stream);
    check(done == cudaSuccess, "%s, to compare with: %s", what, cudaGetErrorString(done));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < n; i++) {
        bool scratch = strcmp(k->operand[i].name, "scratch") == 0;
        if (!scratch) check_pair(what, &k->operand[i], &pair[i], type);
        for (int j = 0; j < 2; j++) free_array(pair[i].type[j], pair[i].x[j]);
    }
}

static void check_kernels(const Rank *r, void *arg)
{
    static const Sizes sizes[] = {
        {.rows = 1, .cols = 3, .T = 1, .heads = 1, .vocab = 3},
        {.rows = 6, .cols = 10, .T = 3, .heads = 2, .vocab = 7},
        {.rows = 35, .cols = 15, .T = 35, .heads = 5, .vocab = 50},
        {.rows = 38, .cols = 64, .T = 19, .heads = 4, .vocab = 5},
        {.rows = 4, .cols = 1031, .T = 2, .heads = 1031, .vocab = 3},
        {.rows = 3, .cols = 258, .T = 1, .heads = 3, .vocab = 3},
        {.rows = 1300, .cols = 9, .T = 1300 / 50, .heads = 1, .vocab = 11},
    };
    const Kernel *k = arg;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t t = 0; t < 2; t++) check_kernel(r, k, HALVES[t], &sizes[s]);
}
TEST(test_kernels)
{
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
        run_ranks(1, check_kernels, (void *)(uintptr_t)&kernels[k]);
}

SUITE_MAIN("nn half kernels")
