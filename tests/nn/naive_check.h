/* naive_check.h: what a kernel gave against what naive.h has. */
#ifndef TESTS_NN_NAIVE_CHECK_H
#define TESTS_NN_NAIVE_CHECK_H

#include <math.h>

#include "naive.h"
#include "numbers.h"

// got must be within `bound` of want, relative to the larger of |want| and 1.
static inline void check_close(const char *what, const float *got, const double *want, size_t n,
                               double bound)
{
    for (size_t i = 0; i < n; i++)
        check(fabs(got[i] - want[i]) <= bound * fmax(1.0, fabs(want[i])),
              "%s, element %zu of %zu, is %.9g, not %.9g", what, i, n, got[i], want[i]);
}

#endif
