/* sums.h: sums of two numbers of two digits as training data. Given code.
 *
 * A sum is nine characters, "23+58=180": two numbers from 10 to 99, and their sum with three
 * digits, the units first, which is the order in which one adds on paper. A model reads the first
 * eight. After each character of "23+58" it must predict a blank, since nobody can know what comes
 * next, and then the answer's digits one by one. Every rank makes its data for itself.
 *
 * About one pair of numbers in eight is held out, the same on every rank and whatever the seed:
 * 23+58 and 58+23 both, or neither. No batch ever holds such a sum, so a right answer to one has
 * not been learned by heart.
 */
#ifndef SHARDLAB_SUMS_H
#define SHARDLAB_SUMS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SUMS_T = 8, // tokens of a sequence: the characters but the last
    SUMS_ANSWER =
        5, // the position of '=', whose target is the answer's first digit; two more follow
    SUMS_VOCAB = 13 // ten digits, '+', '=' and the blank
};

// The character of a token.
char sums_char(int32_t token);

// A sum as a sequence: in and targets, SUMS_T tokens each.
void sums_write(int a, int b, int32_t *in, int32_t *targets);

// Whether a + b is kept out of every batch.
bool sums_is_held_out(int a, int b);

typedef struct SumsPair {
    int a, b;
} SumsPair;

// How many sums are held out; the first `max` of them in pairs (NULL for max = 0). They come in a
// fixed order that looks random, so that the first ones are not special.
int sums_held_out(SumsPair *pairs, int max);

// B sequences for training, as text_batch (text.h): in and targets are (B, SUMS_T) in host memory,
// and sequence first + b of the step depends only on (seed, step, first + b).
void sums_batch(uint64_t seed, int step, int first, int B, int32_t *in, int32_t *targets);

#endif
