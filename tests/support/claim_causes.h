/* claim_causes.h: why a claim about a whole training fails, where its numbers tell: LIKELY and a
 * sentence, or "".
 */
#ifndef CLAIM_CAUSES_H
#define CLAIM_CAUSES_H

#include "bytes.h"
#include "training.h"

// Which half of a step the losses of n steps accuse.
const char *losses_cause(const float *got, const float *want, int n);
// Why the first step's gradient is not the average of the ranks' grads.
const char *gradient_cause(const Plain *plain, int world, const float *got, const float *want,
                           float *const *grads, size_t n);
// What is live after everything was taken down.
const char *left_cause(size_t left, const Sizes *sizes);
// Why a step sends other bytes; part: what it takes to gather, or to reduce, every unit once.
const char *traffic_cause(uint64_t gathered, uint64_t reduced, uint64_t other, uint64_t part,
                          bool reshard);

// What training begins with, all parameters back to back; free it.
float *initial_values(const Layout *layout);

#endif
