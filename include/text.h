/* text.h: bytes of text files as training data. Given code.
 *
 * The files are read back to back; the last tenth is held out. A batch is made of sequences whose
 * places depend only on (seed, step, number of the sequence): rank r of W takes sequences r·B …
 * r·B+B-1 of the step's W·B, and no rank has to tell another what it took.
 */
#ifndef SHARDLAB_TEXT_H
#define SHARDLAB_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "check.h"

#define Status CHECKED_STATUS // as check.h says

typedef struct Text {
    unsigned char *bytes;
    size_t length; // all bytes
    size_t train;  // of which the first are for training, the rest is held out
} Text;

// Reads the files. A file that is missing, cannot be read or is empty, or too little text for one
// sequence of T tokens on either side, is an error with one line that names the file.
Status text_load(Text *text, char *const *paths, int n_paths, int T);
void text_free(Text *text);

// B sequences of T tokens and, as targets, the token that follows each: both (B,T) int32 in host
// memory. They are number first … first+B-1 of the step's sequences.
void text_batch(const Text *text, uint64_t seed, int step, int first, int B, int T, int32_t *in,
                int32_t *targets);
// The same from the held-out part.
void text_held_out(const Text *text, uint64_t seed, int step, int first, int B, int T, int32_t *in,
                   int32_t *targets);

// Mean cross entropy on the held-out bytes, in nats, of a model that knows how often each byte
// occurs in the training part (plus one, so that none is impossible) and nothing else.
double text_frequency_loss(const Text *text);

#undef Status

#endif
