// tests.h: what the files of this suite share.
#ifndef LAB_GRAPH_TESTS_H
#define LAB_GRAPH_TESTS_H

#include "step_graph.h"
#include "training.h"

// Steps of a sharded model on batches in fixed memory. No part of it waits on the host.
typedef struct Steps {
    Sharded *s;
    int rounds; // micro-batches of a pass
    int of;     // … and of the step, over which the gradient is the mean
    bool keeps; // the gradients are not zeroed before a pass
    int fails;  // > 0: the pass fails when it has run so many micro-batches
    Batch batch[4];
    float *loss; // (3) device: of the last micro-batch; for the two other streams
} Steps;

// Runs the body on so many ranks, on a model with an optimizer.
#define run_steps(spec, body, arg, ...)                                                            \
    for (const int *w_ = (const int[]){__VA_ARGS__, 0}; *w_ > 0; w_++)                             \
    run_ranks(*w_, steps_body, &((StepsRun){spec, body, arg}))
typedef struct StepsRun {
    Spec spec;
    ShardedBody body;
    void *arg;
} StepsRun;
void steps_body(const Rank *r, void *run);

void steps_create(Steps *t, Sharded *s, int rounds, const Rank *r);
void steps_destroy(Steps *t);
// StepGraphOptions.pass; arg is the Steps.
Status steps_pass(void *steps);
// One step as tasks 3 to 5 do it, clipped where max_norm > 0; the norm, or 0.
float steps_eager(Steps *t, float max_norm);
// The state after a training as tasks 3 to 5 do it, and its last norm.
typedef struct Training {
    float max_norm;
    int rounds, steps;
} Training;
float *steps_eagerly(const Spec *spec, const Training *k, const Rank *r, float *norm);
// The rate of step t = 1, 2 …, another one each time.
float rate_of(int t);
// This rank's shards, gradients and moments, back to back: host memory, *n of them; free it.
float *steps_state(const Sharded *s, size_t *n);
void steps_restore(Sharded *s, const float *state);
// The phase at whose end phase q's gradient is reduced; and regroup_peak, each by the test's own
// arithmetic.
int reduced_at(const StepPass *pass, const RegroupPlan *plan, int q);
int64_t peak_by_hand(const StepPass *pass, const RegroupPlan *plan);

#endif
