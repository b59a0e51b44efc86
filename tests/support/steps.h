/* steps.h: what an optimizer must make of the tests' gradients, and the mistakes that its values
 * betray: each *_cause is LIKELY and a sentence, or "" where no known mistake gives these values.
 */
#ifndef STEPS_H
#define STEPS_H

#include "training.h"

enum { MAX_FLAT = 32 };

// Draws what given_gradient gives from here on: nobody can know a norm, or where a step leads,
// without reading the gradients. In the test's function, like draw; known_given, for the cases
// before that, makes it what it was at first.
void draw_given(void);
void known_given(void);
// Element i of a whole flat parameter's gradient, the same on every rank, and what it is multiplied
// by in step t. The factor must change from step to step: with equal gradients both moments,
// corrected, are the same for any two betas.
float given_gradient(int64_t i);
float given_scale(int t);

// The ways to get AdamW wrong of which the values alone tell.
typedef enum Wrong {
    RIGHT,
    NO_CORRECTION,
    NO_DECAY,
    COUPLED,
    SWAPPED,
    COUNT_FROM_ZERO,
    COUNT_FASTER,
    NO_STEP,
    EPS_AND_DECAY,
    TOO_OFTEN,
    WRONGS
} Wrong;
// Parameter and moments after so many steps with gradients given_scale(t) · g, in double
// (Loshchilov & Hutter 2019, algorithm 2). k: the unit's place in the list of n.
void follow_formula(const AdamWConfig *c, Wrong wrong, int steps, int k, int n, double start,
                    double g, double out[3]);
// got: the unit's shard after these steps, which began with `start`.
const char *formula_cause(const Sharded *s, const AdamWConfig *c, int steps, int k, int n,
                          const FlatParam *flat, const float *start, const float *got);
// value: of padding that was zero before a step with a gradient of 3 there.
const char *padding_cause(float value, bool sgd);

// Σ of the squares of all units' gradients given_gradient(i), exact in double.
double given_squares(const Sharded *s);
const char *norm_cause(const Sharded *s, float norm);
const char *clip_cause(const Sharded *s, const FlatParam *flat, const float *got, double norm,
                       double limit);

// Parameters place % 7, gradients given_gradient(place).
const char *sgd_cause(const FlatParam *flat, const float *got, float lr, float decay);
// An element of the unit at place k of n did not move.
const char *still_cause(const float *before, const float *after, int64_t numel, int k, int n);

#endif
