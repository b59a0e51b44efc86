/* strategies_oracle.h: the oracle of strategies.h: gradients of a model without FSDP, one for each
 * rank and micro-batch, added in the order that include/strategy.h states.
 */
#ifndef TESTS_STRATEGIES_ORACLE_H
#define TESTS_STRATEGIES_ORACLE_H

#include "narrow.h"
#include "strategies.h"

// What is added up, and what a mistake may leave out.
typedef struct Sum {
    float factor;    // what the sum is divided by
    int first, last; // of the micro-batches
    int replica;     // whose sum alone; -1: all
    bool last_apart; // what divides before the sum divides the last micro-batch alone
} Sum;

// The mistakes that a wrong gradient can come from: what it would be, and what to say.
enum { MOST_CAUSES = 8 };
typedef struct Causes {
    int n;
    Sum sum[MOST_CAUSES];
    const char *text[MOST_CAUSES];
} Causes;

// The model as the oracle has it: of a parameter that two stages share each has a copy, with the
// same values, and the gradients of its own part.
Module *oracle_model(const Case *c);
// Of a stage: its ranks, and this one's place among them. Ranks of the same place have the same
// data.
Rank oracle_place(const Case *c, const Rank *r);
// The type in which gradients are summed.
DType oracle_type(const Case *c, int world);
Sum oracle_sum(const Case *c, int world);
// Element i of the gradient that a step leaves.
float oracle_gradient(const Case *c, int world, const Sum *sum, size_t i);
// Writes this rank's gradients at the parameters of p into the shared memory, the first stage's;
// and the losses of its micro-batches.
void oracle_grads(Plain *p, const Case *c, const Rank *all, int step, float *losses);
// The same under a policy: at the parameters of p, rounded.
void oracle_narrow_grads(Narrow *w, Plain *p, const Case *c, const Rank *all, int step);
Causes oracle_causes(const Case *c, int world);
// What is sure where no such sum explains the gradient.
const char *oracle_otherwise(const Case *c);

// strategies.c
Module *case_model(const Case *c);
// Forward, loss and backward of a micro-batch, each token's loss times `scale`; returns the loss.
float case_pass(const Case *c, NnRun *run, Module *model, int step, int rank, int round,
                float scale);
// Says which micro-batch of a step is next.
Status case_micro_batch(Module *model, const Case *c, int k);

// strategies_graph.c (lab 8)
// Asks the library for a step as a graph, or for a plan. The plan has no phases: regroup_by_step
// gives it those of a micro-batch of that step.
Status graph_nothing(Wrapped *w);
Status regroup_nothing(Wrapped *w, const Case *c);
void regroup_by_step(Wrapped *w, const Case *c, int step);
// The micro-batches of a step: as they are, for the warm-up, then captured and launched.
void train_by_launch(Wrapped *w, const Case *c, int step, float scale);

#endif
