/* blas_level1.c: vectors: every call of level 1 in every type, the forms that name their types
 * (…Ex), and rotations, against loops in long double (blas_exact.h).
 */
#include <float.h>

#include "blas_exact.h"

static const int SIZES[] = {0, 1, 2, 17};
static const int INCREMENTS[][2] = {{1, 1}, {2, -1}, {-3, 2}, {-1, -2}};

static long double epsilon(char t)
{
    return real_of(t) == 'D'   ? DBL_EPSILON
           : real_of(t) == 'S' ? FLT_EPSILON
           : t == 'H'          ? 0x1p-10L
                               : 0x1p-7L;
}

// What a narrow type is computed in.
static char computed_in(char t)
{
    return t == 'H' || t == 'T' ? 'S' : t;
}

// ---- Vectors that change ----

enum { SCAL, REAL_SCAL, AXPY, COPY, SWAP, ROT, REAL_ROT, ROTM, MOVES };

// The call of the type's own name; false: it has none.
static bool call_named(Session *s, char t, int what, const Vec *x, const Vec *y, const void *a,
                       const void *b)
{
    void *X = x->o.device, *Y = y->o.device;
    if (strchr("HT", t)) return false;
    switch (what) {
    case SCAL: need_blas(EACH(t, scal, s->h, x->n, a, X, x->inc)); break;
    case REAL_SCAL:
        if (!is_complex(t)) return false;
        need_blas(t == 'C' ? BLAS(cublasCsscal)(s->h, x->n, a, X, x->inc)
                           : BLAS(cublasZdscal)(s->h, x->n, a, X, x->inc));
        break;
    case AXPY: need_blas(EACH(t, axpy, s->h, x->n, a, X, x->inc, Y, y->inc)); break;
    case COPY: need_blas(EACH(t, copy, s->h, x->n, X, x->inc, Y, y->inc)); break;
    case SWAP: need_blas(EACH(t, swap, s->h, x->n, X, x->inc, Y, y->inc)); break;
    case ROT: need_blas(EACH(t, rot, s->h, x->n, X, x->inc, Y, y->inc, a, b)); break;
    case REAL_ROT:
        if (!is_complex(t)) return false;
        need_blas(t == 'C' ? BLAS(cublasCsrot)(s->h, x->n, X, x->inc, Y, y->inc, a, b)
                           : BLAS(cublasZdrot)(s->h, x->n, X, x->inc, Y, y->inc, a, b));
        break;
    default:
        if (is_complex(t)) return false;
        need_blas(REALS(t, rotm, s->h, x->n, X, x->inc, Y, y->inc, a));
    }
    return true;
}

static bool call_ex(Session *s, char t, int what, const Vec *x, const Vec *y, const void *a,
                    const void *b)
{
    void *X = x->o.device, *Y = y->o.device;
    cudaDataType type = data_type(t), in = data_type(computed_in(t)), real = data_type(real_of(t));
    switch (what) {
    case SCAL: need_blas(BLAS(cublasScalEx)(s->h, x->n, a, in, X, type, x->inc, in)); break;
    case AXPY:
        need_blas(BLAS(cublasAxpyEx)(s->h, x->n, a, in, X, type, x->inc, Y, type, y->inc, in));
        break;
    case COPY: need_blas(BLAS(cublasCopyEx)(s->h, x->n, X, type, x->inc, Y, type, y->inc)); break;
    case SWAP: need_blas(BLAS(cublasSwapEx)(s->h, x->n, X, type, x->inc, Y, type, y->inc)); break;
    case ROT:
    case REAL_ROT:
        need_blas(BLAS(cublasRotEx)(s->h, x->n, X, type, x->inc, Y, type, y->inc, a, b,
                                    what == ROT ? type : real, in));
        break;
    case ROTM:
        if (is_complex(t)) return false;
        need_blas(BLAS(cublasRotmEx)(s->h, x->n, X, type, x->inc, Y, type, y->inc, a, type, in));
        break;
    default: return false;
    }
    return true;
}

// The five numbers of a modified rotation, where the mode says; the implied ones are NaN.
static const void *modified(Session *s, char t, int flag, Exact h[4])
{
    static double host[10]; // for complex numbers, too, which have no such call
    static const int stored[4][4] = {{0, 0, 0, 0}, {1, 1, 1, 1}, {0, 1, 1, 0}, {1, 0, 0, 1}};
    static const int implied[4][4] = {{1, 0, 0, 1}, {0, 0, 0, 0}, {1, 0, 0, 1}, {0, -1, 1, 0}};
    for (int i = 0; i < 4; i++) {
        bool is_stored = stored[flag + 2][i];
        h[i] = is_stored ? i - 2 : implied[flag + 2][i];
        blas_put(t, host, (size_t)i + 1, is_stored ? h[i] : CMPLXL(NAN, NAN));
    }
    blas_put(t, host, 0, flag);
    if (!s->on_device) return host;
    need_cuda(cudaMemcpy(s->room, host, 5 * bytes_of(t), cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    s->used = 3; // the slots after it
    return s->room;
}

static void want_move(int what, Vec *x, Vec *y, Exact a, Exact b, const Exact h[4])
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
        if (what == ROTM) to_x = h[0] * p + h[2] * q;
        if (what == ROTM) to_y = h[1] * p + h[3] * q;
        vec_want(x, i, to_x);
        vec_want(y, i, to_y);
    }
}

static void check_move(Session *s, char t, int what, bool ex, unsigned number)
{
    char name[80];
    snprintf(name, sizeof name, "%c, call %d, ex %d, case %u", t, what, ex, number);
    const int *inc = INCREMENTS[digit(&number, 4)];
    bool scales = what == SCAL || what == REAL_SCAL;
    Vec x = vec_make(t, SIZES[digit(&number, 4)], scales ? abs(inc[0]) : inc[0]);
    Vec y = vec_make(t, x.n, inc[1]);
    Exact h[4] = {0}, a = fit(t, CMPLXL(3, -1)), b = fit(t, CMPLXL(-2, 2));
    char ta = computed_in(t), tb = ta;
    if (what == REAL_SCAL || what == ROT || what == REAL_ROT) a = creall(a);
    if (what == REAL_SCAL || what == ROT || what == REAL_ROT) ta = real_of(t);
    if (what == ROT || what == REAL_ROT) tb = t;
    if (what == REAL_ROT) b = creall(b);
    if (what == REAL_ROT) tb = real_of(t);
    const void *first = what == ROTM ? modified(s, t, digit(&number, 4) - 2, h) : scalar(s, ta, a);
    operand_send(&x.o);
    operand_send(&y.o);
    bool called = (ex ? call_ex : call_named)(s, t, what, &x, &y, first, scalar(s, tb, b));
    if (called) want_move(what, &x, &y, a, b, h);
    vec_equal(&x, name);
    vec_equal(&y, name);
}

static void moves(Session *s)
{
    for (const char *t = "SDCZHT"; *t; t++)
        for (int what = 0; what < MOVES; what++)
            for (unsigned i = 0; i < 4 * 4 * 4; i++) {
                if (what == REAL_ROT && !is_complex(*t)) continue;
                check_move(s, *t, what, false, i);
                check_move(s, *t, what, true, i);
            }
}
static void test_moves(void **state)
{
    run_session(moves);
}

// A copy moves bits: every NaN, of every format, comes through as it is.
static void bits(Session *s)
{
    static const cudaDataType types[] = {CUDA_R_32F,     CUDA_R_64F,     CUDA_R_16F, CUDA_R_16BF,
                                         CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_8I,  CUDA_C_32F};
    static const int sizes[] = {4, 8, 2, 2, 1, 1, 1, 8};
    unsigned char host[256], got[256], *x = NULL, *y = NULL;
    for (int i = 0; i < 256; i++) host[i] = (unsigned char)(i < 128 ? ~i : i - 128);
    host[0] = host[4] = 1; // a signalling NaN in float
    host[2] = 0x81, host[3] = 0x7f;
    need_cuda(cudaMalloc((void **)&x, 256));
    need_cuda(cudaMalloc((void **)&y, 256));
    for (int i = 0; i < 8; i++) {
        need_cuda(cudaMemcpy(x, host, 256, cudaMemcpyHostToDevice));
        need_cuda(cudaMemset(y, 0, 256));
        need_blas(BLAS(cublasCopyEx)(s->h, 256 / sizes[i], x, types[i], 1, y, types[i], 1));
        need_blas(BLAS(cublasSwapEx)(s->h, 128 / sizes[i], y, types[i], 1, y + 128, types[i], 1));
        need_cuda(cudaMemcpy(got, y, 256, cudaMemcpyDeviceToHost));
        check(memcmp(got, host + 128, 128) == 0 && memcmp(got + 128, host, 128) == 0,
              "type %d: other bits", (int)types[i]);
    }
    need_cuda(cudaFree(x));
    need_cuda(cudaFree(y));
}
static void test_bits(void **state)
{
    run_session(bits);
}

// A real factor scales both parts by themselves: infinity in one is no NaN in the other.
static void infinite_parts(Session *s)
{
    Vec x = vec_make('C', 1, 1);
    vec_want(&x, 0, CMPLXL(INFINITY, 1));
    operand_send(&x.o);
    need_blas(BLAS(cublasCsscal)(s->h, 1, scalar(s, 'S', 2), x.o.device, 1));
    vec_want(&x, 0, CMPLXL(INFINITY, 2));
    vec_equal(&x, "2·(inf, 1)");
}
static void test_infinite_parts(void **state)
{
    run_session(infinite_parts);
}

// ---- Sums, and the largest and smallest ----

enum { DOT, DOTC, NRM2, ASUM, SUMS };

static bool call_sum(Session *s, char t, int what, bool ex, const Vec *x, const Vec *y, void *to)
{
    const void *X = x->o.device, *Y = y->o.device;
    cudaDataType type = data_type(t), in = data_type(computed_in(t));
    cudaDataType real = data_type(real_of(t)), real_in = data_type(computed_in(real_of(t)));
#define PAIR s->h, x->n, X, x->inc, Y, y->inc, to
#define PAIR_EX s->h, x->n, X, type, x->inc, Y, type, y->inc, to, type, in
#define SINGLE s->h, x->n, X, x->inc, to
#define SINGLE_EX s->h, x->n, X, type, x->inc, to, real, real_in
    if (!ex && strchr("HT", t)) return false;
    if (what == DOT && ex) need_blas(BLAS(cublasDotEx)(PAIR_EX));
    if (what == DOTC && ex) need_blas(BLAS(cublasDotcEx)(PAIR_EX));
    if (what == NRM2 && ex) need_blas(BLAS(cublasNrm2Ex)(SINGLE_EX));
    if (what == ASUM && ex) need_blas(BLAS(cublasAsumEx)(SINGLE_EX));
    if (ex) return true;
    if (what == DOTC && !is_complex(t)) return false;
    if (what == DOTC) need_blas(COMPLEXES(t, dotc, PAIR));
    if (what == DOT) need_blas(is_complex(t) ? COMPLEXES(t, dotu, PAIR) : REALS(t, dot, PAIR));
    if (what == NRM2 && !is_complex(t)) need_blas(REALS(t, nrm2, SINGLE));
    if (what == ASUM && !is_complex(t)) need_blas(REALS(t, asum, SINGLE));
    if (!is_complex(t) || what < NRM2) return true;
    if (what == NRM2) need_blas(t == 'C' ? BLAS(cublasScnrm2)(SINGLE) : BLAS(cublasDznrm2)(SINGLE));
    if (what == ASUM) need_blas(t == 'C' ? BLAS(cublasScasum)(SINGLE) : BLAS(cublasDzasum)(SINGLE));
    return true;
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

static void check_sum(Session *s, char t, int what, bool ex, unsigned number)
{
    const int *inc = INCREMENTS[digit(&number, 4)];
    Vec x = vec_make(t, SIZES[digit(&number, 4)], inc[0]), y = vec_make(t, x.n, inc[1]);
    char result = what <= DOTC ? t : real_of(t);
    operand_send(&x.o);
    operand_send(&y.o);
    void *to = scalar(s, result, 55);
    if (call_sum(s, t, what, ex, &x, &y, to)) {
        Exact got = scalar_value(s, result, to), want = want_sum(what, &x, &y);
        long double within = what == NRM2 || strchr("HT", t) ? epsilon(t) : 0.0L;
        check(same(creall(got), creall(want), within) && same(cimagl(got), cimagl(want), within),
              "%c, sum %d, ex %d, n %d, inc %d: %Lg + %Lgi, not %Lg + %Lgi", t, what, ex, x.n,
              x.inc, creall(got), cimagl(got), creall(want), cimagl(want));
    }
    vec_equal(&x, "a sum");
    vec_equal(&y, "a sum");
}

static void sums(Session *s)
{
    for (const char *t = "SDCZHT"; *t; t++)
        for (int what = 0; what < SUMS; what++)
            for (unsigned i = 0; i < 4 * 4; i++)
                for (int ex = 0; ex < 2; ex++) check_sum(s, *t, what, ex, i);
}
static void test_sums(void **state)
{
    run_session(sums);
}

// The squares of these overflow, or vanish, in their own type.
static void extreme_norms(Session *s)
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
        check(call_sum(s, t, NRM2, false, &x, &x, to), "no norm");
        long double got = creall(scalar_value(s, real_of(t), to)), want = cases[i].x * sqrtl(2);
        check(fabsl(got / want - 1) < 4 * epsilon(t), "%c: %Lg, not %Lg", t, got, want);
        vec_equal(&x, "a norm");
    }
}
static void test_extreme_norms(void **state)
{
    run_session(extreme_norms);
}

static void check_place(Session *s, char t, bool largest, bool ex, int n, int inc)
{
    Vec x = vec_make(t, n, inc);
    Size want = 0, got = -1;
    long double best = 0;
    for (int i = 0; i < n && inc > 0; i++) {
        long double size = fabsl(creall(x.x[i])) + fabsl(cimagl(x.x[i]));
        if (i == 0 || (largest ? size > best : size < best)) {
            best = size;
            want = i + 1;
        }
    }
    operand_send(&x.o);
    Size *to = s->on_device ? (Size *)(void *)s->room : &got;
    const void *X = x.o.device;
#define ARGUMENTS s->h, n, X, inc, to
#define PLACE(name)                                                                                \
    (t == 'S'   ? BLAS(cublasIs##name)(ARGUMENTS)                                                  \
     : t == 'D' ? BLAS(cublasId##name)(ARGUMENTS)                                                  \
     : t == 'C' ? BLAS(cublasIc##name)(ARGUMENTS)                                                  \
                : BLAS(cublasIz##name)(ARGUMENTS))
    if (ex)
        need_blas((largest ? BLAS(cublasIamaxEx) : BLAS(cublasIaminEx))(s->h, n, X, data_type(t),
                                                                        inc, to));
    else
        need_blas(largest ? PLACE(amax) : PLACE(amin));
    need_cuda(cudaDeviceSynchronize());
    if (s->on_device) need_cuda(cudaMemcpy(&got, to, sizeof got, cudaMemcpyDeviceToHost));
    check(got == want, "%c, n %d, inc %d: the %s is at %lld, not %lld", t, n, inc,
          largest ? "largest" : "smallest", (long long)got, (long long)want);
    vec_equal(&x, "a place");
}

static void places(Session *s)
{
    for (const char *t = "SDCZHT"; *t; t++)
        for (unsigned i = 0; i < 2 * 2 * 4 * 3; i++) {
            unsigned number = i;
            bool largest = digit(&number, 2), ex = digit(&number, 2);
            int n = SIZES[digit(&number, 4)], inc = digit(&number, 3) * 2 - 1;
            if (ex || !strchr("HT", *t)) check_place(s, *t, largest, ex, n, inc);
        }
}
static void test_places(void **state)
{
    run_session(places);
}

// ---- Making rotations ----

static void check_rotation(Session *s, char t, bool ex, Exact a, Exact b)
{
    char real = real_of(t);
    void *pa = scalar(s, t, a), *pb = scalar(s, t, b);
    void *pc = scalar(s, real, 55), *ps = scalar(s, t, 55);
    cudaDataType type = data_type(t), in = data_type(computed_in(t));
    if (ex)
        need_blas(cublasRotgEx(s->h, pa, pb, type, pc, ps, type, in));
    else
        need_blas(EACH_ONE(t, rotg, s->h, pa, pb, pc, ps));
    Exact r = scalar_value(s, t, pa), z = scalar_value(s, t, pb), sine = scalar_value(s, t, ps);
    long double c = creall(scalar_value(s, real, pc));
    long double size = hypotl(cabsl(a), cabsl(b)), within = 8 * epsilon(t) * fmaxl(size, 1e-30L);
    check(cabsl(c * a + sine * b - r) <= within && cabsl(c * b - conjl(sine) * a) <= within,
          "%c: (%Lg, %Lg) does not become (r, 0)", t, creall(a), creall(b));
    check(fabsl(c * c + cabsl(sine) * cabsl(sine) - 1) <= 8 * epsilon(t),
          "%c: c is %Lg, s is %Lg: no rotation", t, c, cabsl(sine));
    if (is_complex(t)) {
        check(z == b, "b changed");
        return;
    }
    // From z, c and s can be had again.
    long double Z = creall(z), c2 = Z == 1 ? 0 : fabsl(Z) < 1 ? sqrtl(1 - Z * Z) : 1 / Z;
    long double s2 = Z == 1 ? 1 : fabsl(Z) < 1 ? Z : sqrtl(1 - c2 * c2);
    check(fabsl(c - c2) <= 0.01L && fabsl(creall(sine) - s2) <= 0.01L + 16 * epsilon(t),
          "%c: z = %Lg says c = %Lg, s = %Lg, not %Lg, %Lg", t, Z, c2, s2, c, creall(sine));
}

static void rotations(Session *s)
{
    static const double pairs[][4] = {{3, 0, 4, 0}, {-4, 1, 3, 2}, {0, 0, 2, 1},   {5, -1, 0, 0},
                                      {0, 0, 0, 0}, {1, 1, 1, -1}, {-12, 5, -5, 3}};
    for (const char *t = "SDCZHT"; *t; t++)
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
            for (int ex = strchr("HT", *t) != NULL; ex < 2; ex++) {
                const double *p = pairs[i];
                check_rotation(s, *t, ex, fit(*t, CMPLXL(p[0], p[1])), fit(*t, CMPLXL(p[2], p[3])));
            }
    check_rotation(s, 'D', false, 1.2e308L, -1.2e308L);
}
static void test_rotations(void **state)
{
    run_session(rotations);
}

// What rotmg makes sets the second of (√d1·x1, √d2·y1) to 0 and keeps their length, so with D new:
// HᵀDH = D before, and H·(x1, y1) = (new x1, 0).
static void check_modified(Session *s, char t, bool ex, const double in[4])
{
    char *param = NULL;
    void *p[4];
    double host[5] = {0};
    for (int i = 0; i < 4; i++) p[i] = scalar(s, t, in[i]);
    need_cuda(cudaMalloc((void **)&param, 5 * bytes_of(t))); // and never written
    void *h = s->on_device ? (void *)param : host;
    cudaDataType T = data_type(t), computed = data_type(computed_in(t));
    if (ex)
        need_blas(cublasRotmgEx(s->h, p[0], T, p[1], T, p[2], T, p[3], T, h, T, computed));
    else
        need_blas(REALS_ONE(t, rotmg, s->h, p[0], p[1], p[2], p[3], h));
    if (s->on_device) need_cuda(cudaMemcpy(host, param, 5 * bytes_of(t), cudaMemcpyDeviceToHost));
    long double v[5], d1 = creall(scalar_value(s, t, p[0])), d2 = creall(scalar_value(s, t, p[1]));
    long double x1 = creall(scalar_value(s, t, p[2])), near = 64 * epsilon(t);
    for (size_t i = 0; i < 5; i++) v[i] = creall(blas_get(t, host, i));
    long double h11 = v[1], h21 = v[2], h12 = v[3], h22 = v[4];
    if (v[0] == 0 || v[0] == -2) h11 = h22 = 1;
    if (v[0] == -2) h12 = h21 = 0;
    if (v[0] == 1) h12 = 1;
    if (v[0] == 1) h21 = -1;
    need_cuda(cudaFree(param));
    if (in[0] < 0) {
        check(v[0] == -1 && d1 == 0 && d2 == 0 && x1 == 0, "%c: d1 < 0 is not all zeros", t);
        return;
    }
    check(fabsl(h11 * in[2] + h12 * in[3] - x1) <= near * (1 + fabsl(x1)), "%c: x1 is %Lg", t, x1);
    if (v[0] != -2)
        check(fabsl(h21 * in[2] + h22 * in[3]) <= near * (fabsl(h21 * in[2]) + 1),
              "%c: y1 is %Lg, not 0", t, h21 * in[2] + h22 * in[3]);
    long double old1 = in[0] * in[2] * in[2], old2 = in[1] * in[3] * in[3];
    long double length = v[0] == -2 ? old1 : d1 * x1 * x1;
    check(fabsl(length - (old1 + old2)) <= near * (fabsl(old1) + fabsl(old2)),
          "%c: the square is %Lg, not %Lg", t, length, old1 + old2);
    for (int i = 0; i < 2; i++) {
        long double d = i ? d2 : d1;
        check(d == 0 || strchr("HT", t) || v[0] == -2 ||
                  (fabsl(d) > 0x1p-24L && fabsl(d) < 0x1p24L),
              "%c: d%d is %Lg, out of bounds", t, i + 1, d);
    }
}

static void modified_rotations(Session *s)
{
    static const double cases[][4] = {{2, 3, 4, 1},  {1, 3, 1, 2},    {1, 1, 3, 0},
                                      {-1, 2, 3, 4}, {1e10, 3, 4, 1}, {1e-9, 1e-9, 4, 1},
                                      {0, 3, 4, 1},  {2, 3, 0, 1}};
    for (const char *t = "SDHT"; *t; t++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (int ex = strchr("HT", *t) != NULL; ex < 2; ex++)
                if (!strchr("HT", *t) || (cases[i][0] < 100 && fabs(cases[i][0] - 0.5) >= 0.5))
                    check_modified(s, *t, ex, cases[i]);
}
static void test_modified_rotations(void **state)
{
    run_session(modified_rotations);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_moves),          cmocka_unit_test(test_bits),
    cmocka_unit_test(test_infinite_parts), cmocka_unit_test(test_sums),
    cmocka_unit_test(test_extreme_norms),  cmocka_unit_test(test_places),
    cmocka_unit_test(test_rotations),      cmocka_unit_test(test_modified_rotations)};
SUITE_MAIN("cuBLAS, level 1", tests)
