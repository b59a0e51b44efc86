/* data.h: what a training learns from and is validated on: the bytes of texts, a tenth of which is
 * held out, or files of tokens.
 */
#ifndef EXAMPLES_DATA_H
#define EXAMPLES_DATA_H

#include "text.h"
#include "tokens.h"
#include "trainer.h"

typedef struct DataOptions {
    char **files; // texts; none where `train` is set
    int n_files;
    const char *train, *val; // patterns of files of tokens; NULL: none
    bool in_order;           // tokens are drawn as they are in the files
} DataOptions;

typedef struct Data {
    DataOptions opt;
    Text text;
    Tokens train, val;
} Data;

// For sequences of T tokens below vocab. Every rank opens the same: one line is enough.
Status data_open(Data *data, const DataOptions *options, int vocab, int T);
void data_close(Data *data);

// Sequences first … first+B-1 of the `all` that the ranks take in this step, after `drawn` others
// in the steps before: in and targets (B·T). A token that is not below vocab is ERR_IO on all ranks
// alike, whoever's it is.
Status data_batch(const Data *data, uint64_t seed, int step, uint64_t drawn, int first, int B,
                  int all, int T, int32_t *in, int32_t *targets);

// Whether there is something to validate on, and the mean loss over its first `sequences`, at
// most. Collective. The ranks share them, and their losses are added in the order of the sequences,
// so that the number of ranks does not show.
bool data_validates(const Data *data);
Status data_validate(const Data *data, Trainer *t, int sequences, double *loss);

#endif
