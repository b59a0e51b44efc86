/* tests.h: what the files of this suite share, and the tests that each of them has. tests.c has the
 * others, and the list.
 */
#ifndef LAB_STRATEGIES_TESTS_H
#define LAB_STRATEGIES_TESTS_H

#include "harness.h"
#include "strategies.h"

static const Strategy ALL[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3};

// Trains, or is refused with the line that case_refusal says.
void run_or_refuse(int world, Case *c);

// What several micro-batches do: one, two that accumulate, two that reduce each, two of which the
// last is all-reduced.
enum { ONE, ACCUMULATE, EVERY, PARTIAL, MODES };
Case case_in_mode(Spec spec, Strategy strategy, int world, int replicas, int mode);

// tests_costs.c: a body of run_ranks, whose argument is a Case: memory and traffic of one step.
void costs_body(const Rank *r, void *c);
void costs_are_the_formula(void **state);

// tests_slices.c
void a_slice_is_gathered_from_fewer(void **state);

// tests_overlap.c: streams and buckets.
void replicas_overlap_shards(void **state);
void buckets_are_filled_from_the_end(void **state);
void buckets_overlap_the_backward(void **state);
void a_missing_gradient_is_named(void **state);

#endif
