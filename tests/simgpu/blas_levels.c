/* blas_levels.c: levels 1 to 3 of cuBLAS in float, double and complex, against naive loops in long
 * double: every transposition, triangle and side, leading dimensions with and without gaps, odd
 * sizes, increments of both signs.
 *
 * Numbers are small and whole, so sums are exact and must be equal; systems have a tolerance.
 */
#include <complex.h>
#include <cublas_v2.h>
#include <math.h>
#include <stdlib.h>

#include "harness.h"

#define need_blas(call)                                                                            \
    do {                                                                                           \
        cublasStatus_t need_ = (call);                                                             \
        if (need_ != CUBLAS_STATUS_SUCCESS)                                                        \
            rank_fails(__FILE__, __LINE__, "%s: %s", #call, cublasGetStatusName(need_));           \
    } while (0)

typedef long double _Complex Exact;
enum { GENERAL, SYMMETRIC, HERMITIAN, TRIANGLE };
typedef struct Shape {
    int kind;
    cublasOperation_t op;
    bool upper, unit;
} Shape;

// -2 … 2
static int small(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (int)(*seed >> 20) % 5 - 2;
}

#undef I
#define UNIT_I __extension__ 1.0Li

#define L S
#define T float
#define REAL float
#define COMPLEX 0
#define READ(x) ((Exact)(x))
#define MAKE(re, im) ((float)((void)(im), (re)))
#define AMAX cublasIsamax
#include "blas_oracle.h"

#define L D
#define T double
#define REAL double
#define COMPLEX 0
#define READ(x) ((Exact)(x))
#define MAKE(re, im) ((double)((void)(im), (re)))
#define AMAX cublasIdamax
#include "blas_oracle.h"

#define L C
#define T cuComplex
#define REAL float
#define COMPLEX 1
#define READ(v) ((Exact)(v).x + (v).y * UNIT_I)
#define MAKE(re, im) make_cuComplex((float)(re), (float)(im))
#define AMAX cublasIcamax
#include "blas_oracle.h"

#define L Z
#define T cuDoubleComplex
#define REAL double
#define COMPLEX 1
#define READ(v) ((Exact)(v).x + (v).y * UNIT_I)
#define MAKE(re, im) make_cuDoubleComplex((re), (im))
#define AMAX cublasIzamax
#include "blas_oracle.h"

#define TYPE(letter)                                                                               \
    static void test_##letter(void **state)                                                        \
    {                                                                                              \
        run_ranks(1, check_all_##letter, NULL);                                                    \
    }
TYPE(S)
TYPE(D)
TYPE(C)
TYPE(Z)

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_S), cmocka_unit_test(test_D),
                                          cmocka_unit_test(test_C), cmocka_unit_test(test_Z)};
SUITE_MAIN("cuBLAS, levels 1 to 3", tests)
