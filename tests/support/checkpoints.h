/* checkpoints.h: models whose elements say what they are.
 *
 * state_fill gives every element of the shards and moments a value that depends on (parameter,
 * element, part, step) alone; state_check says whether that is what a rank holds. Both count for
 * themselves who owns what.
 */
#ifndef SHARDLAB_CHECKPOINTS_H
#define SHARDLAB_CHECKPOINTS_H

#include "checkpoint.h"
#include "training.h"

static const AdamWConfig STATE_ADAMW = {1e-3f, 0.9f, 0.99f, 1e-8f, 0.01f};

// The step whose values a test puts where a load is to bring others, so that it sees what was not
// read.
enum { STATE_BEFORE = 77 };

// Fills the rank's shards and moments with the values of `step`; the optimizer has done some steps
// more. Padding is zero.
enum { STATE_MORE_STEPS = 3 };
void state_fill(Sharded *s, int step);
// What it gives element i of the parameter with that id, at step 1.
float state_value(int id, int64_t i);
// Fails the rank where an element, t or the padding is not that of `step`.
void state_check(const Sharded *s, int step, const char *when);

// Calls of gpt2_export, llama_import and the like, by all ranks of a world. The values of step 1
// go out, and come in where there are others; what must be refused is, by all ranks with one line
// of one of them that has `says`, and has changed nothing.
typedef Status (*StateFile)(const char *path, Module *root);
void state_export(int world, Spec spec, StateFile save, const char *path);
void state_import(int world, Spec spec, StateFile load, const char *path);
void state_refused(int world, Spec spec, StateFile call, const char *path, const char *says);

#endif
