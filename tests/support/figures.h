/* figures.h: how large the units of the test's models are, counted before the code under test is
 * called and compared after it.
 *
 * A test that loops to layout.shard_numel trusts whoever may write it: with 0 there, nothing is
 * compared and everything passes. So the figures are counted here from the parameters' shapes when
 * the model is made (sharded_create), and a rank fails where a unit has others later.
 */
#ifndef SHARDLAB_FIGURES_H
#define SHARDLAB_FIGURES_H

#include "fsdp.h"

// Counts the figures of every unit of the model, and keeps where its two shards are. A unit that
// has other figures from the start is left to the tests of whoever makes units.
void figures_take(const Module *model, int rank, int world, bool align);
void figures_forget(const Module *model);

// Fails the rank where a unit whose figures were taken has others by now. Cheap: call it after
// every call of the code under test, before a loop that ends at such a figure.
void check_figures(void);

#endif
