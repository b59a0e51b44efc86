/* graph_steps.h: the trainer's step as a CUDA graph, and regrouped (lab 8), for --graph and
 * --regroup.
 */
#ifndef EXAMPLES_GRAPH_STEPS_H
#define EXAMPLES_GRAPH_STEPS_H

#include "trainer.h"

// ERR_ARGUMENT, with a line, where the options do not go with --graph or --regroup.
Status graph_steps_check(const TrainerOptions *o);
// Once the optimizer is there; nothing without --graph. And before it goes, with the plan.
Status graph_steps_create(Trainer *t);
Status graph_steps_destroy(Trainer *t);
// A trainer's step: the first one by its calls, and then captured, the others by launches.
Status graph_steps_run(Trainer *t, const int32_t *in, const int32_t *targets, float *loss);

// Around micro-batch i of n. In the first step the first one and the last are recorded, and then
// there is a plan for the all-gathers of the one and the reductions of the other. Nothing
// otherwise, or without --regroup.
Status regroup_record(Trainer *t, int i, int n);
Status regroup_by_record(Trainer *t, int i, int n);

#endif
