/* compare.h: what FSDP costs and what it saves, at the end of the demo: the first steps' loss and
 * gradient compared with a run that is not sharded, memory with that of DDP, traffic with the
 * formula. What should be equal and is not is an error.
 *
 * The formulas are computed here from the model's sizes alone. What is measured is the log's
 * (gpulog.h).
 */
#ifndef EXAMPLES_COMPARE_H
#define EXAMPLES_COMPARE_H

#include "source.h"

enum { COMPARE_STEPS = 20 };
#define COMPARE_TOLERANCE 1e-5      // of a loss
#define COMPARE_NORM_TOLERANCE 1e-4 // of a norm, as a share of it

typedef struct Measured {
    float loss[COMPARE_STEPS]; // of the first steps, on the whole batch
    float norm[COMPARE_STEPS]; // of their gradients
    int steps;                 // measured
    uint64_t held;             // bytes after the last step, the batch not counted, as below
    uint64_t peak;             // most bytes during a step
    uint64_t sent;             // bytes of the last step's all-gathers and reduce-scatters
    uint64_t uneven;           // steps that sent other than the one before
} Measured;

// Before and after a step of training. (The first losses are the caller's to note: their mean over
// the ranks takes a message.)
void measure_begin(const Trainer *t);
void measure_end(Measured *measured, const Trainer *t);

// Prints the comparisons, on rank 0. OK on every rank where all is equal that should be. All ranks
// must call it.
Status compare_all(Trainer *t, const Source *source, uint64_t seed, const Measured *measured);

#endif
