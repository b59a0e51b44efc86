/* stages.h: the trainer's model cut into stages, for the programs that take --stages.
 *
 * The last stage has the loss. So that a mean over all ranks is the mean over its ranks, what is
 * handed back as the loss is there as many times as large as there are stages, and 0 elsewhere.
 */
#ifndef EXAMPLES_STAGES_H
#define EXAMPLES_STAGES_H

#include "trainer.h"

// Before the mesh is made: the model is this rank's stage.
Status stages_cut(Trainer *t);
// In the place of fully_shard; and once the model has its strategy.
Status stages_shard(Trainer *t, const FsdpOptions *options);
Status stages_create(Trainer *t);
Status stages_destroy(Trainer *t);

// The micro-batches of a step that are on the device, back to back at B·T tokens; sequences(t,
// step, i) is how many the i-th has. The gradient is the sum over them, each token's loss times
// `scale`.
Status stages_step(Trainer *t, int step, float scale, int (*sequences)(const Trainer *, int, int),
                   float *loss);
// The loss of one batch that is on the device.
Status stages_evaluate(Trainer *t, int B, float *loss);

#endif
