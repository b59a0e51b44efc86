/* pattern.h: what kind of wrong an array is.
 *
 * A mistake leaves its print: the sum that was never divided is W times too large everywhere, a
 * shard in the wrong place is right elsewhere, bytes taken for elements leave the first quarter.
 * likely_cause compares what was got with what was wanted and, where one such print explains every
 * element, says so in a sentence that ends as a question. The hypotheses that a test names (Clue)
 * come first: they are the most particular. Where nothing explains all, it says nothing: a wrong
 * cause is worse than none.
 */
#ifndef SHARDLAB_PATTERN_H
#define SHARDLAB_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "layout.h"

// What begins the line of the cause, behind the first line of a message (see rank_fails).
#define LIKELY "\nLikely cause: "

enum { CLUES_MAX = 12, WRONG_FEW = 4 }; // fewer wrong elements than this may be chance

// If the array holds these values, this sentence is why.
typedef struct Clue {
    const float *values;
    const char *cause;
} Clue;

typedef struct Clues {
    const Layout *layout;  // NULL: the array is no parameter, gradient, or shard of one
    int world;             // ranks that have a part in the values; 0 or 1: none but this one
    bool average;          // the values are averages over the ranks
    bool trained;          // they come from several steps: a small difference is no rounding
    double slack;          // what the test lets pass, absolute; 0: nothing, equal bits
    const char *known;     // what the test knows to be wrong: the cause, whatever the array says
    const char *otherwise; // the cause where no pattern explains all: what is sure all the same
    const float *before;   // what was there before the call; NULL: not known
    int n;
    Clue clue[CLUES_MAX];
} Clues;

// Whether a pattern explains how got differs from want, and its sentence. clues may be NULL.
bool likely_cause(char *text, size_t size, const float *got, const float *want, size_t n,
                  const Clues *clues);

// The same for a single number: the cause of the value that it has, to seven digits, as LIKELY and
// the sentence; "" where there is none, or where the value of two causes is the same.
typedef struct NumberClue {
    double value;
    const char *cause;
} NumberClue;
const char *number_cause(double got, double want, const NumberClue *clues, int n);

#endif
