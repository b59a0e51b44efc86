/* source.h: what the demo learns from: sums that it makes itself, or the text of files. For each
 * the batches, and a score on what was held out.
 */
#ifndef EXAMPLES_SOURCE_H
#define EXAMPLES_SOURCE_H

#include "../common/trainer.h"
#include "sums.h"
#include "text.h"

enum { SOURCE_EXAMPLES = 3 };

typedef struct Source {
    bool sums;
    Text text;      // where not sums
    SumsPair *held; // sums: (n_held) those held out
    int n_held;
} Source;

// How well the model does on what was held out.
typedef struct Score {
    int right, n;                      // sums: how many are right in all three digits, of how many
    char example[SOURCE_EXAMPLES][32]; // "23+58=81", or "23+58=82, not 81"; on rank 0
    float loss;                        // text: nats per byte
} Score;

Status source_sums(Source *source);
Status source_text(Source *source, char *const *files, int n_files, int T);
void source_free(Source *source);

// This rank's part of the step's batch: sequences first … first+B-1; in and targets (B·T).
void source_batch(const Source *source, uint64_t seed, int step, int first, int B, int T,
                  int32_t *in, int32_t *targets);

// The same score on every rank; all of them must call it.
Status source_score(const Source *source, Trainer *t, Score *score);

#endif
