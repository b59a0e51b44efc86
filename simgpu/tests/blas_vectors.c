/* blas_vectors.c: every call on vectors alone, in every type, against loops in long double
 * (blas_exact.h).
 */
#include <float.h>

#include "blas_exact.h"

static const int SIZES[] = {0, 1, 2, 17};
static const int INCREMENTS[][2] = {{1, 1}, {2, -1}, {-3, 2}, {-1, -2}};

static long double epsilon(char t)
{
    return real_of(t) == 'D' ? DBL_EPSILON : FLT_EPSILON;
}

// ---- Vectors that change ----

enum { SCAL, REAL_SCAL, AXPY, COPY, SWAP, ROT, REAL_ROT, MOVES };

static cublasStatus_t call_move(Session *s, char t, int what, const Vec *x, const Vec *y,
                                const void *a, const void *b)
{
    void *X = x->o.device, *Y = y->o.device;
    switch (what) {
    case SCAL: return EACH(t, scal, s->h, x->n, a, X, x->inc);
    case REAL_SCAL:
        return t == 'C' ? cublasCsscal(s->h, x->n, a, X, x->inc)
                        : cublasZdscal(s->h, x->n, a, X, x->inc);
    case AXPY: return EACH(t, axpy, s->h, x->n, a, X, x->inc, Y, y->inc);
    case COPY: return EACH(t, copy, s->h, x->n, X, x->inc, Y, y->inc);
    case SWAP: return EACH(t, swap, s->h, x->n, X, x->inc, Y, y->inc);
    case ROT: return EACH(t, rot, s->h, x->n, X, x->inc, Y, y->inc, a, b);
    default:
        return t == 'C' ? cublasCsrot(s->h, x->n, X, x->inc, Y, y->inc, a, b)
                        : cublasZdrot(s->h, x->n, X, x->inc, Y, y->inc, a, b);
    }
}

static void want_move(int what, Vec *x, Vec *y, Exact a, Exact b)
{
    for (int i = 0; i < x->n; i++) {
        Exact p = x->x[i], q = y->x[i], to_x = p, to_y = q;
        if (what == SCAL || what == REAL_SCAL) to_x = a * p;
        if (what == AXPY) to_y = a * p + q;
        if (what == COPY) to_y = p;
        if (what == SWAP) to_x = q;
        if (what == SWAP) to_y = p;
        if (what == ROT || what == REAL_ROT) to_x = a * p + b * q;
        if (what == ROT || what == REAL_ROT) to_y = a * q - conjl(b) * p;
        vec_want(x, i, to_x);
        vec_want(y, i, to_y);
    }
}

static void check_move(Session *s, char t, int what, unsigned number)
{
    char name[80];
    snprintf(name, sizeof name, "%c, call %d, case %u", t, what, number);
    const int *inc = INCREMENTS[digit(&number, 4)];
    bool scales = what == SCAL || what == REAL_SCAL, turns = what == ROT || what == REAL_ROT;
    Vec x = vec_make(t, SIZES[digit(&number, 4)], scales ? abs(inc[0]) : inc[0]);
    Vec y = vec_make(t, x.n, inc[1]);
    char ta = what == REAL_SCAL || turns ? real_of(t) : t, tb = what == REAL_ROT ? real_of(t) : t;
    Exact a = fit(ta, CMPLXL(3, -1)), b = fit(tb, CMPLXL(-2, 2));
    operand_send(&x.o);
    operand_send(&y.o);
    need_blas(call_move(s, t, what, &x, &y, scalar(s, ta, a), scalar(s, tb, b)));
    want_move(what, &x, &y, a, b);
    vec_equal(&x, name);
    vec_equal(&y, name);
}

SESSION_TEST(test_moves)
{
    for (const char *t = "SDCZ"; *t; t++)
        for (int what = 0; what < MOVES; what++)
            for (unsigned i = 0; i < 4 * 4; i++)
                if (is_complex(*t) || (what != REAL_SCAL && what != REAL_ROT))
                    check_move(s, *t, what, i);
}

// A copy moves bits: every NaN comes through as it is.
SESSION_TEST(test_bits)
{
    unsigned char host[256], got[256], *x = NULL, *y = NULL;
    for (int i = 0; i < 256; i++) host[i] = (unsigned char)(i < 128 ? ~i : i - 128);
    host[0] = host[4] = 1; // a signalling NaN in float
    host[2] = 0x81, host[3] = 0x7f;
    need_cuda(cudaMalloc((void **)&x, 256));
    need_cuda(cudaMalloc((void **)&y, 256));
    for (const char *t = "SDCZ"; *t; t++) {
        int n = 256 / (int)bytes_of(*t);
        void *from = x, *to = y, *half = y + 128;
        need_cuda(cudaMemcpy(x, host, 256, cudaMemcpyHostToDevice));
        need_cuda(cudaMemset(y, 0, 256));
        need_blas(EACH(*t, copy, s->h, n, from, 1, to, 1));
        need_blas(EACH(*t, swap, s->h, n / 2, to, 1, half, 1));
        need_cuda(cudaMemcpy(got, y, 256, cudaMemcpyDeviceToHost));
        check(memcmp(got, host + 128, 128) == 0 && memcmp(got + 128, host, 128) == 0,
              "type %c: other bits", *t);
    }
    need_cuda(cudaFree(x));
    need_cuda(cudaFree(y));
}

// A vector copied to where it is stays as it is.
SESSION_TEST(test_onto_itself)
{
    Vec x = vec_make('S', 3, 2);
    operand_send(&x.o);
    need_blas(cublasScopy(s->h, 3, x.o.device, 2, x.o.device, 2));
    vec_equal(&x, "a copy onto itself");
}

// A real factor scales both parts by themselves: infinity in one is no NaN in the other.
SESSION_TEST(test_infinite_parts)
{
    Vec x = vec_make('C', 1, 1);
    vec_want(&x, 0, CMPLXL(INFINITY, 1));
    operand_send(&x.o);
    need_blas(cublasCsscal(s->h, 1, scalar(s, 'S', 2), x.o.device, 1));
    vec_want(&x, 0, CMPLXL(INFINITY, 2));
    vec_equal(&x, "2·(inf, 1)");
}

// ---- Sums, and the largest and smallest ----

enum { DOT, DOTC, NRM2, ASUM, SUMS };

static cublasStatus_t call_sum(Session *s, char t, int what, const Vec *x, const Vec *y, void *to)
{
    const void *X = x->o.device, *Y = y->o.device;
#define PAIR s->h, x->n, X, x->inc, Y, y->inc, to
#define SINGLE s->h, x->n, X, x->inc, to
    if (what == DOTC) return COMPLEXES(t, dotc, PAIR);
    if (what == DOT) return is_complex(t) ? COMPLEXES(t, dotu, PAIR) : REALS(t, dot, PAIR);
    if (what == NRM2 && !is_complex(t)) return REALS(t, nrm2, SINGLE);
    if (what == ASUM && !is_complex(t)) return REALS(t, asum, SINGLE);
    if (what == NRM2) return t == 'C' ? cublasScnrm2(SINGLE) : cublasDznrm2(SINGLE);
    return t == 'C' ? cublasScasum(SINGLE) : cublasDzasum(SINGLE);
}

static Exact want_sum(int what, const Vec *x, const Vec *y)
{
    Exact sum = 0.0L;
    for (int i = 0; i < x->n && (what <= DOTC || x->inc > 0); i++) {
        Exact a = x->x[i];
        if (what <= DOTC) sum += (what == DOTC ? conjl(a) : a) * y->x[i];
        if (what == NRM2) sum += creall(a) * creall(a) + cimagl(a) * cimagl(a);
        if (what == ASUM) sum += fabsl(creall(a)) + fabsl(cimagl(a));
    }
    return what == NRM2 ? sqrtl(creall(sum)) : sum;
}

static void check_sum(Session *s, char t, int what, unsigned number)
{
    const int *inc = INCREMENTS[digit(&number, 4)];
    Vec x = vec_make(t, SIZES[digit(&number, 4)], inc[0]), y = vec_make(t, x.n, inc[1]);
    char result = what <= DOTC ? t : real_of(t);
    operand_send(&x.o);
    operand_send(&y.o);
    void *to = scalar(s, result, 55);
    need_blas(call_sum(s, t, what, &x, &y, to));
    Exact got = scalar_value(s, result, to), want = want_sum(what, &x, &y);
    long double within = what == NRM2 ? epsilon(t) : 0.0L;
    check(same(creall(got), creall(want), within) && same(cimagl(got), cimagl(want), within),
          "%c, sum %d, n %d, inc %d: %Lg + %Lgi, not %Lg + %Lgi", t, what, x.n, x.inc, creall(got),
          cimagl(got), creall(want), cimagl(want));
    vec_equal(&x, "a sum");
    vec_equal(&y, "a sum");
}

SESSION_TEST(test_sums)
{
    for (const char *t = "SDCZ"; *t; t++)
        for (int what = 0; what < SUMS; what++)
            for (unsigned i = 0; i < 4 * 4; i++)
                if (what != DOTC || is_complex(*t)) check_sum(s, *t, what, i);
}

// The squares of these overflow, or vanish, in their own type.
SESSION_TEST(test_extreme_norms)
{
    static const struct {
        char type;
        double x;
    } cases[] = {{'S', 3e37},   {'S', 3e-38}, {'D', 3e307},
                 {'D', 3e-300}, {'C', 3e37},  {'Z', 3e-300}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char t = cases[i].type;
        Vec x = vec_make(t, 2, 1);
        vec_want(&x, 0, cases[i].x);
        vec_want(&x, 1, fit(t, is_complex(t) ? CMPLXL(0, cases[i].x) : (Exact)cases[i].x));
        operand_send(&x.o);
        void *to = scalar(s, real_of(t), 0);
        need_blas(call_sum(s, t, NRM2, &x, &x, to));
        long double got = creall(scalar_value(s, real_of(t), to)), want = cases[i].x * sqrtl(2);
        check(fabsl(got / want - 1) < 4 * epsilon(t), "%c: %Lg, not %Lg", t, got, want);
        vec_equal(&x, "a norm");
    }
}

static void check_place(Session *s, char t, bool largest, int n, int inc)
{
    Vec x = vec_make(t, n, inc);
    int want = 0, got = -1;
    long double best = 0;
    for (int i = 0; i < n && inc > 0; i++) {
        long double size = fabsl(creall(x.x[i])) + fabsl(cimagl(x.x[i]));
        if (i == 0 || (largest ? size > best : size < best)) {
            best = size;
            want = i + 1;
        }
    }
    operand_send(&x.o);
    int *to = s->on_device ? (int *)(void *)s->room : &got;
    const void *X = x.o.device;
#define PLACE(name)                                                                                \
    (t == 'S'   ? cublasIs##name(s->h, n, X, inc, to)                                              \
     : t == 'D' ? cublasId##name(s->h, n, X, inc, to)                                              \
     : t == 'C' ? cublasIc##name(s->h, n, X, inc, to)                                              \
                : cublasIz##name(s->h, n, X, inc, to))
    need_blas(largest ? PLACE(amax) : PLACE(amin));
    need_cuda(cudaDeviceSynchronize());
    if (s->on_device) need_cuda(cudaMemcpy(&got, to, sizeof got, cudaMemcpyDeviceToHost));
    check(got == want, "%c, n %d, inc %d: the %s is at %d, not %d", t, n, inc,
          largest ? "largest" : "smallest", got, want);
    vec_equal(&x, "a place");
}

SESSION_TEST(test_places)
{
    for (const char *t = "SDCZ"; *t; t++)
        for (unsigned i = 0; i < 2 * 4 * 3; i++) {
            unsigned number = i;
            bool largest = digit(&number, 2);
            int n = SIZES[digit(&number, 4)], inc = digit(&number, 3) * 2 - 1;
            check_place(s, *t, largest, n, inc);
        }
}

SUITE_MAIN("cuBLAS, vectors")
