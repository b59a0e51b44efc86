/* drawn_claims.h: what must hold of shapes, slices and trees of modules that a test draws. Each of
 * them draws a case (draw.h), says what it drew, and runs it; call it as often as you want rounds.
 * tests/tasks and tests/hidden share them.
 *
 * They fail the cmocka test.
 */
#ifndef SHARDLAB_DRAWN_CLAIMS_H
#define SHARDLAB_DRAWN_CLAIMS_H

#include "nn.h"

// ---- Task 1 ----

// meta_numel of drawn shapes, meta_count and meta_bytes of a drawn MLP and a drawn GPT-2.
void claim_drawn_counts(void);
// meta_params of every module of a drawn tree, with ties.
void claim_drawn_walk(void);
// A drawn parameter made in at most so many slices, and a slice far out in a huge one.
void claim_drawn_slices(int slices);
// A drawn slice of each kind of parameter: constants, and nothing written outside.
void claim_drawn_constants(void);

// ---- Task 6: drawn trees in a drawn world from low to high ----

// Which unit gets which parameters, in which order; who is the root.
void claim_drawn_units(int low, int high);
// fsdp_units of every module.
void claim_drawn_list(int low, int high);
// fsdp_full_state: every parameter once, unit by unit, with its initial values.
void claim_drawn_state(int low, int high);
// fsdp_unwrap, with some units whole.
void claim_drawn_unwrap(int low, int high);

#endif
