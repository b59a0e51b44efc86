/* generate.h: tokens that a model writes, one after the other. */
#ifndef EXAMPLES_GENERATE_H
#define EXAMPLES_GENERATE_H

#include "trainer.h"

typedef struct GenerateOptions {
    float temperature; // 0: the most likely token, of several the first
    int top_k;         // drawn from so many, the most likely ones; 0: from all
    uint64_t seed;
} GenerateOptions;

// tokens (n + more): continues the first n, at least one, by `more`. The same on every run, and on
// any number of ranks; with FSDP all ranks must call it. Each token is one forward of itself alone,
// with the keys and values of those before it; of more than the model takes the last half is read
// again.
Status generate(Trainer *t, const GenerateOptions *options, int32_t *tokens, int n, int more);

// Continues "The " by `bytes` bytes, drawn at temperature 0.7, and prints the text on rank 0: of a
// model of bytes. The same on every run.
Status sample_text(Trainer *t, int bytes);

#endif
