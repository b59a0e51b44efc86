/* sample.h: text that a byte-level model writes. */
#ifndef EXAMPLES_SAMPLE_H
#define EXAMPLES_SAMPLE_H

#include "trainer.h"

// Continues "The " by `bytes` bytes, drawn at temperature 0.7, and prints the text on rank 0. The
// same on every run. With FSDP all ranks must call it.
Status sample_text(Trainer *t, int bytes);

#endif
