/* oracle.h: initial values by the tests' own arithmetic. Nothing here calls the code under test. */
#ifndef SHARDLAB_ORACLE_H
#define SHARDLAB_ORACLE_H

#include "nn.h"

// The product of the shape.
int64_t oracle_numel(const Param *p);
// Philox 4x32-10 (Salmon et al. 2011), by another way than the task's. A test holds it to the
// published answers before it holds anything else to it.
void oracle_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
// Which likely mistake gives these words, LIKELY and a question; "": none that is known.
const char *philox_cause(const uint32_t counter[4], const uint32_t key[2], const uint32_t got[4]);
// Elements [begin, begin + n) of a parameter's initial value by the formulas of fsdp.h and
// box_muller.h, in double.
void oracle_init(const Param *p, uint64_t seed, int64_t begin, int64_t n, float *want);

#endif
