/* blas_exact.h: what the suites of cuBLAS share: numbers of every type, operands that show what was
 * read and written, and a call for a type known at run time.
 *
 * Right answers are computed by the definition, in long double, from matrices written out in full.
 * Numbers are small and whole, so every result is exact and must be equal. Whatever a call must not
 * read is NaN: gaps between columns, the other triangle, a C whose beta is 0.
 * Afterwards each operand is compared from its first byte to its last, so what must not be
 * written must still be NaN.
 *
 * A type of numbers is a letter: S D C Z as in cuBLAS; H half, T bfloat16, I int, B signed char,
 * K two signed chars.
 *
 * Interface: blas_get, blas_put, EACH, REALS, COMPLEXES; Operand; Mat, mat_…; Vec, vec_…; Session,
 * scalar; digit, small, SESSION_TEST.
 */
#ifndef SIMGPU_TEST_BLAS_EXACT_H
#define SIMGPU_TEST_BLAS_EXACT_H

#include <complex.h>
#include <cublas_v2.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "numbers.h"

// glibc has it for gcc alone, before 2.41 (clang says that it is gcc 4.2).
#ifndef CMPLXL
#define CMPLXL(real, imaginary) __builtin_complex((long double)(real), (long double)(imaginary))
#endif

#define need_blas(call)                                                                            \
    do {                                                                                           \
        cublasStatus_t need_ = (call);                                                             \
        if (need_ != CUBLAS_STATUS_SUCCESS)                                                        \
            rank_fails(__FILE__, __LINE__, "%s: %s", #call, cublasGetStatusName(need_));           \
    } while (0)

// The call of type t: EACH(t, gemv, handle, …) is cublasSgemv(handle, …) for 'S'.
#define REALS(t, name, ...) ((t) == 'S' ? cublasS##name(__VA_ARGS__) : cublasD##name(__VA_ARGS__))
#define COMPLEXES(t, name, ...)                                                                    \
    ((t) == 'C' ? cublasC##name(__VA_ARGS__) : cublasZ##name(__VA_ARGS__))
#define EACH(t, name, ...)                                                                         \
    (is_complex(t) ? COMPLEXES(t, name, __VA_ARGS__) : REALS(t, name, __VA_ARGS__))

#define HELPER __attribute__((unused)) static

// ---- Numbers ----

typedef long double _Complex Exact;

HELPER bool is_complex(char t)
{
    return t == 'C' || t == 'Z' || t == 'K';
}
HELPER char real_of(char t)
{
    return t == 'C' ? 'S' : t == 'Z' ? 'D' : t == 'K' ? 'B' : t;
}
HELPER size_t bytes_of(char t)
{
    if (is_complex(t)) return 2 * bytes_of(real_of(t));
    return t == 'D' ? 8 : t == 'S' || t == 'I' ? 4 : t == 'B' ? 1 : 2;
}
HELPER cudaDataType data_type(char t)
{
    static const char letters[] = "SDCZHTIBK";
    static const cudaDataType types[] = {CUDA_R_32F, CUDA_R_64F, CUDA_C_32F,
                                         CUDA_C_64F, CUDA_R_16F, CUDA_R_16BF,
                                         CUDA_R_32I, CUDA_R_8I,  CUDA_C_8I};
    return types[strchr(letters, t) - letters];
}

// The 16-bit types, by arithmetic; values here are far from the largest and the smallest.
HELPER uint16_t narrow(long double x, int fraction, int bias)
{
    int power;
    if (isnan(x)) return 0x7fff;
    long double digits = frexpl(x, &power);
    digits = nearbyintl(ldexpl(digits, fraction + 1));
    return number_code((double)ldexpl(digits, power - fraction - 1), fraction, bias);
}
HELPER long double widen(uint16_t x, int fraction, int bias)
{
    bool special = (x & 0x7fff) >> fraction == 2 * bias + 1;
    return special ? (long double)NAN : (long double)number_decode(x, fraction, bias);
}

HELPER long double get_real(char t, const void *p, size_t i)
{
    if (t == 'S') return ((const float *)p)[i];
    if (t == 'D') return ((const double *)p)[i];
    if (t == 'I') return ((const int *)p)[i];
    if (t == 'B') return ((const signed char *)p)[i];
    return t == 'H' ? widen(((const uint16_t *)p)[i], 10, 15)
                    : widen(((const uint16_t *)p)[i], 7, 127);
}
HELPER void put_real(char t, void *p, size_t i, long double x)
{
    if (t == 'S') ((float *)p)[i] = (float)x;
    if (t == 'D') ((double *)p)[i] = (double)x;
    if (t == 'I') ((int *)p)[i] = isnan(x) ? 77 : (int)x;
    if (t == 'B') ((signed char *)p)[i] = isnan(x) ? 77 : (signed char)x;
    if (t == 'H') ((uint16_t *)p)[i] = narrow(x, 10, 15);
    if (t == 'T') ((uint16_t *)p)[i] = narrow(x, 7, 127);
}
HELPER Exact blas_get(char t, const void *p, size_t i)
{
    if (!is_complex(t)) return get_real(t, p, i);
    return CMPLXL(get_real(real_of(t), p, 2 * i), get_real(real_of(t), p, 2 * i + 1));
}
HELPER void blas_put(char t, void *p, size_t i, Exact x)
{
    put_real(real_of(t), p, is_complex(t) ? 2 * i : i, creall(x));
    if (is_complex(t)) put_real(real_of(t), p, 2 * i + 1, cimagl(x));
}

HELPER unsigned blas_seed = 1;
// -2 … 2, in both parts where the type has two.
HELPER Exact small(char t)
{
    int part[2];
    for (int i = 0; i < 2; i++) {
        blas_seed = blas_seed * 1664525u + 1013904223u;
        part[i] = (int)(blas_seed >> 20) % 5 - 2;
    }
    return CMPLXL(part[0], is_complex(t) ? part[1] : 0);
}
// The real part of a factor for a real type.
HELPER Exact fit(char t, Exact x)
{
    return is_complex(t) ? x : (Exact)creall(x);
}

// ---- Operands ----

// n numbers, on the host as they must be and on the device as they are.
typedef struct Operand {
    char type;
    size_t n;
    void *host, *device;
} Operand;

HELPER Operand operand(char t, size_t n)
{
    Operand o = {t, n, calloc(n + 1, bytes_of(t)), NULL};
    for (size_t i = 0; i < n; i++) blas_put(t, o.host, i, CMPLXL(NAN, NAN));
    return o;
}

// Exactly as many bytes, so that one too many read or written is found.
HELPER void operand_send(Operand *o)
{
    need_cuda(cudaMalloc(&o->device, o->n ? o->n * bytes_of(o->type) : 1));
    need_cuda(cudaMemcpy(o->device, o->host, o->n * bytes_of(o->type), cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
}

HELPER bool same(long double a, long double b, long double within)
{
    return (isnan(a) && isnan(b)) || a == b || fabsl(a - b) <= within * fmaxl(1.0L, fabsl(b));
}

// Compares, and frees.
HELPER void operand_near(Operand *o, long double within, const char *what)
{
    void *got = calloc(o->n + 1, bytes_of(o->type));
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaMemcpy(got, o->device, o->n * bytes_of(o->type), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < o->n; i++) {
        Exact a = blas_get(o->type, got, i), b = blas_get(o->type, o->host, i);
        check(same(creall(a), creall(b), within) && same(cimagl(a), cimagl(b), within),
              "%s: element %zu is %Lg + %Lgi, not %Lg + %Lgi", what, i, creall(a), cimagl(a),
              creall(b), cimagl(b));
    }
    need_cuda(cudaFree(o->device));
    free(o->host);
    free(got);
}
HELPER void operand_equal(Operand *o, const char *what)
{
    operand_near(o, 0.0L, what);
}

// ---- Matrices ----

// All of it is stored, or one triangle.
typedef struct Mat {
    char type;
    int rows, cols, ld;
    bool triangle, upper, unit;
    Exact *x; // written out in full
    Operand o;
} Mat;

HELPER cublasFillMode_t uplo(const Mat *m)
{
    return m->upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
}
HELPER cublasDiagType_t diagonal(const Mat *m)
{
    return m->unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
}

// Where an element is stored, or -1.
HELPER long mat_place(const Mat *m, int i, int j)
{
    if (m->triangle && (m->upper ? i > j : i < j)) return -1;
    return (long)j * m->ld + i;
}

HELPER Exact *mat_ref(const Mat *m, int i, int j)
{
    return &m->x[(size_t)j * (size_t)m->rows + (size_t)i];
}

// Numbers for the elements that are stored; the others are 0. A diagonal of a triangle has only
// numbers whose quotients are exact.
HELPER void mat_fill(Mat *m)
{
    static const int diagonals[] = {2, -1, 1, -2};
    m->x = calloc((size_t)(m->rows * m->cols) + 1, sizeof *m->x);
    for (int j = 0; j < m->cols; j++)
        for (int i = 0; i < m->rows; i++) {
            long at = mat_place(m, i, j);
            bool one = i == j && m->unit;
            Exact x = small(m->type);
            if (at < 0) continue;
            if (i == j && m->triangle)
                x = fit(m->type,
                        i % 3 == 1 && is_complex(m->type) ? CMPLXL(0, 2) : diagonals[i % 4]);
            blas_put(m->type, m->o.host, (size_t)at, one ? CMPLXL(NAN, NAN) : x);
            *mat_ref(m, i, j) = one ? 1.0L : x;
        }
}

// `gap` more than the least leading dimension; the last column has no gap after it.
HELPER Mat mat_make(Mat m, int gap)
{
    m.ld = (m.rows > 1 ? m.rows : 1) + gap;
    m.o = operand(m.type, m.cols ? (size_t)(m.cols - 1) * (size_t)m.ld + (size_t)m.rows : 0);
    mat_fill(&m);
    return m;
}
HELPER Mat mat_general(char t, int rows, int cols, int gap)
{
    return mat_make((Mat){.type = t, .rows = rows, .cols = cols}, gap);
}
HELPER Mat mat_triangle(char t, int n, bool upper, bool unit, int gap)
{
    Mat m = {.type = t, .rows = n, .cols = n, .triangle = true, .upper = upper, .unit = unit};
    return mat_make(m, gap);
}
HELPER Exact mat_at(const Mat *m, cublasOperation_t op, int i, int j)
{
    if (op == CUBLAS_OP_N) return *mat_ref(m, i, j);
    return op == CUBLAS_OP_C ? conjl(*mat_ref(m, j, i)) : *mat_ref(m, j, i);
}
HELPER void mat_want(Mat *m, int i, int j, Exact x)
{
    long at = mat_place(m, i, j);
    if (at >= 0) blas_put(m->type, m->o.host, (size_t)at, x);
}
// alpha·sum + beta·(what was there), where beta = 0 forgets it.
HELPER void mat_combine(Mat *m, int i, int j, Exact sum, Exact beta)
{
    mat_want(m, i, j, sum + (beta == 0.0L ? 0.0L : beta * *mat_ref(m, i, j)));
}
// For beta = 0: nothing of the matrix may count.
HELPER void mat_poison(Mat *m)
{
    for (size_t i = 0; i < m->o.n; i++) blas_put(m->type, m->o.host, i, CMPLXL(NAN, NAN));
}
HELPER Exact product(const Mat *a, cublasOperation_t oa, const Mat *b, cublasOperation_t ob, int i,
                     int j, int k)
{
    Exact sum = 0.0L;
    for (int l = 0; l < k; l++) sum += mat_at(a, oa, i, l) * mat_at(b, ob, l, j);
    return sum;
}
HELPER void mat_equal(Mat *m, const char *what)
{
    operand_equal(&m->o, what);
    free(m->x);
}

// ---- Vectors ----

typedef struct Vec {
    char type;
    int n, inc;
    Exact *x;
    Operand o;
} Vec;

HELPER size_t vec_place(const Vec *v, int i)
{
    return (size_t)(v->inc < 0 ? v->n - 1 - i : i) * (size_t)abs(v->inc);
}
HELPER Vec vec_make(char t, int n, int inc)
{
    Vec v = {.type = t, .n = n, .inc = inc, .x = calloc((size_t)n + 1, sizeof(Exact))};
    v.o = operand(t, n ? (size_t)(n - 1) * (size_t)abs(inc) + 1 : 0);
    for (int i = 0; i < n; i++) blas_put(t, v.o.host, vec_place(&v, i), v.x[i] = small(t));
    return v;
}
HELPER void vec_want(Vec *v, int i, Exact x)
{
    blas_put(v->type, v->o.host, vec_place(v, i), x);
}
HELPER void vec_poison(Vec *v)
{
    for (int i = 0; i < v->n; i++) vec_want(v, i, CMPLXL(NAN, NAN));
}
HELPER void vec_equal(Vec *v, const char *what)
{
    operand_equal(&v->o, what);
    free(v->x);
}

// ---- A session: a handle in one of the two pointer modes ----

enum { SCALARS = 64 };
typedef struct Session {
    cublasHandle_t h;
    bool on_device;
    char *room; // for scalars
    unsigned used;
} Session;

// A scalar where the mode says; good until SCALARS more were made.
HELPER void *scalar(Session *s, char t, Exact x)
{
    static double host[SCALARS][2];
    unsigned slot = s->used++ % SCALARS;
    blas_put(t, host[slot], 0, x);
    if (!s->on_device) return host[slot];
    char *at = s->room + slot * sizeof host[0];
    need_cuda(cudaMemcpy(at, host[slot], bytes_of(t), cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    return at;
}
// What is there now.
HELPER Exact scalar_value(Session *s, char t, const void *at)
{
    double host[2];
    need_cuda(cudaDeviceSynchronize());
    if (s->on_device)
        need_cuda(cudaMemcpy(host, at, bytes_of(t), cudaMemcpyDeviceToHost));
    else
        memcpy(host, at, bytes_of(t));
    return blas_get(t, host, 0);
}

// The next digit of a case's number: one of n choices.
HELPER int digit(unsigned *number, int n)
{
    int choice = (int)(*number % (unsigned)n);
    *number /= (unsigned)n;
    return choice;
}

static const cublasOperation_t OPS[] = {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C};

// Runs the body in both pointer modes; in one, where scalars are to be on the host
// (SCALARS_ON_HOST).
#ifdef SCALARS_ON_HOST
enum { MODES = 1 };
#else
enum { MODES = 2 };
#endif
typedef void (*SessionBody)(Session *s);
HELPER void session_body(const Rank *r, void *arg)
{
    SessionBody body = *(SessionBody *)arg;
    for (int mode = 0; mode < MODES; mode++) {
        Session s = {.on_device = mode};
        need_blas(cublasCreate(&s.h));
        need_blas(cublasSetPointerMode(s.h, mode ? CUBLAS_POINTER_MODE_DEVICE
                                                 : CUBLAS_POINTER_MODE_HOST));
        cublasPointerMode_t is = (cublasPointerMode_t)2;
        need_blas(cublasGetPointerMode(s.h, &is));
        check(is == (mode ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST), "mode %d",
              (int)is);
        need_cuda(cudaMalloc((void **)&s.room, SCALARS * 2 * sizeof(double)));
        body(&s);
        need_blas(cublasDestroy(s.h));
        need_cuda(cudaFree(s.room));
    }
}
// SESSION_TEST(adds_up) { … }: a test whose body has a session s.
#define SESSION_TEST(name)                                                                         \
    static void name##_session(Session *s);                                                        \
    TEST(name)                                                                                     \
    {                                                                                              \
        SessionBody body = name##_session;                                                         \
        run_ranks(1, session_body, &body);                                                         \
    }                                                                                              \
    static void name##_session(Session *s)

#endif
