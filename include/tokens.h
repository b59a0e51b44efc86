/* tokens.h: files of tokens as training data. Given code.
 *
 * The files are mapped, not read. By their first bytes they are of
 *
 *   llm.c, GPT-2     256 int32: 20240520, 1, the number of tokens; then uint16
 *   llm.c, Llama 3   256 int32: 20240801, 7, the number of tokens; then uint32
 *   nanoGPT          only uint16 (its first two would have to be 55432 or 55713 and 308 to be
 *                    taken for a header, and GPT-2 has 50257 tokens)
 *
 * A *sequence* is T tokens and, as targets, the token that follows each. Every file is cut into
 * those that it has room for, from its beginning; the remainder is left out. An epoch draws each
 * sequence once, in an order that the seed and the epoch decide. So where a training is in its data
 * is one number: how many sequences were drawn, by all ranks together.
 */
#ifndef SHARDLAB_TOKENS_H
#define SHARDLAB_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check.h"

#define Status CHECKED_STATUS // as check.h says

typedef struct TokenFile {
    char *path;
    void *map;
    size_t bytes, header; // of the file, and in front of the tokens
    int width;            // bytes of a token: 2 or 4
    int64_t tokens, sequences;
} TokenFile;

typedef struct Tokens {
    int T, vocab;
    int n;
    TokenFile *files;
    int64_t tokens, sequences; // of all files
} Tokens;

// Opens the files that a pattern of the shell's names ("data/train_*.bin"), in order of their
// names. ERR_IO, with one line that names the file: none is there, one is truncated, of an unknown
// version, or has a token that is not below vocab. (Of more than TOKENS_LOOKED_AT tokens that is
// found out sequence by sequence.) ERR_ARGUMENT if they have no sequence.
enum { TOKENS_LOOKED_AT = 1 << 26 };
Status tokens_open(Tokens *tokens, const char *pattern, int vocab, int T);
void tokens_close(Tokens *tokens);

// Sequence number i, from 0, in the order of the files: in and targets (T).
void tokens_sequence(const Tokens *tokens, int64_t i, int32_t *in, int32_t *targets);
// ERR_IO, with one line, if it has a token that is not below vocab.
Status tokens_check_sequence(const Tokens *tokens, int64_t i);
// Which sequence is drawn after `drawn` others.
int64_t tokens_drawn(const Tokens *tokens, uint64_t seed, uint64_t drawn);

#undef Status

#endif
