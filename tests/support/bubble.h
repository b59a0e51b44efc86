/* bubble.h: what share of a pipeline's step its stages are idle, on a modelled machine whose links
 * and launches are free.
 */
#ifndef TESTS_BUBBLE_H
#define TESTS_BUBBLE_H

#include "pipeline.h"

typedef enum BubbleModel {
    BUBBLE_EQUAL, // four equal linear layers on each stage
    BUBBLE_GPT2,  // eight blocks, an embedding in front and a head behind them
} BubbleModel;

// The idle share of all stages' time, from the first forward's begin to the last backward's end.
// False where logs cannot be timed, or so many ranks cannot be; a test that fails where they
// should.
bool bubble_of(BubbleModel model, PipelineKind kind, int stages, int n, double *idle);
// (p - 1) / (n + p - 1).
double bubble_ideal(int stages, int n);

#endif
