/* halves.h: arrays of bf16 and fp16 for the suites of lib/nn (half_numbers.h has the numbers).
 *
 * Interface: HALVES, round_halves.
 */
#ifndef TESTS_NN_HALVES_H
#define TESTS_NN_HALVES_H

#include "half_numbers.h"
#include "numbers.h"

static const DType HALVES[] = {DTYPE_BF16, DTYPE_F16};

// The same for n of them: the 16 bits of each; free() them.
static inline uint16_t *round_halves(DType type, const float *x, size_t n)
{
    uint16_t *bits = malloc((n + 1) * sizeof *bits);
    check(bits != NULL, "no host memory for %zu halves", n);
    for (size_t i = 0; i < n; i++) bits[i] = half_round(type, x[i]);
    return bits;
}

#endif
