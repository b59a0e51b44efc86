// tests.h: what the files of this suite share.
#ifndef LAB_STRATEGIES_TESTS_H
#define LAB_STRATEGIES_TESTS_H

#include "harness.h"
#include "strategies.h"

static const Strategy ALL[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3};

// What several micro-batches do: one, two that accumulate, two that reduce each, two of which the
// last is all-reduced.
enum { ONE, ACCUMULATE, EVERY, PARTIAL, MODES };
Case case_in_mode(Spec spec, Strategy strategy, int world, int replicas, int mode);

// tests_costs.c: a body of run_ranks, whose argument is a Case: memory and traffic of one step.
void costs_body(const Rank *r, void *c);
// DDP's, or those of the other strategies with two replicas.
void rule_costs_of_replicas(Strategy strategy);

// rules.c
void rule_strategy_is_removed(Strategy strategy, int ranks, int replicas, int slices,
                              FsdpReshard reshard);
void rule_strategy_refusals(void);
void rule_backward_gathers_ahead(void);
void rule_failed_strategies_are_told(Strategy strategy, int ranks, int replicas, int slices);
void rule_buckets_by_hand(void);
void rule_complete_buckets_are_sent(void);
void rule_strategies_beyond_32_bits(void);
void rule_slices_beyond_32_bits(void);

#endif
