/* text.c: bytes of text files as training data. See text.h. */
#include "text.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mix.h"

// Appends the file's bytes.
static Status append_file(Text *text, const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t before = text->length, got;
    unsigned char block[65536];
    if (file == NULL) return fail(ERR_IO, "%s: %s", path, strerror(errno));
    while ((got = fread(block, 1, sizeof block, file)) > 0) {
        unsigned char *bytes = realloc(text->bytes, text->length + got);
        if (bytes == NULL) {
            fclose(file);
            return fail(ERR_MEMORY, "%s: no host memory for %zu bytes", path, text->length + got);
        }
        memcpy(bytes + text->length, block, got);
        text->bytes = bytes;
        text->length += got;
    }
    bool broken = ferror(file);
    fclose(file);
    if (broken) return fail(ERR_IO, "%s: it cannot be read (is it a folder?)", path);
    if (text->length == before) return fail(ERR_IO, "%s: the file is empty", path);
    return OK;
}

Status text_load(Text *text, char *const *paths, int n_paths, int T)
{
    Status status = OK;
    memset(text, 0, sizeof *text);
    if (n_paths == 0) return fail(ERR_ARGUMENT, "no text file was given");
    for (int i = 0; i < n_paths && status == OK; i++) status = append_file(text, paths[i]);
    text->train = text->length - text->length / 10;
    size_t least = (size_t)T + 2; // a sequence, the byte behind it, and a choice of two places
    if (status == OK && (text->train < least || text->length - text->train < least))
        status =
            fail(ERR_ARGUMENT,
                 "%s: %zu bytes of text are too few for sequences of %d: %zu are needed, a tenth "
                 "of which is held out",
                 paths[0], text->length, T, 10 * least + 10);
    if (status != OK) text_free(text);
    return status;
}

void text_free(Text *text)
{
    free(text->bytes);
    memset(text, 0, sizeof *text);
}

// One sequence, somewhere in bytes[0, length).
static void cut(const unsigned char *bytes, size_t length, uint64_t random, int T, int32_t *in,
                int32_t *targets)
{
    size_t places = length - (size_t)T;
    const unsigned char *at = bytes + random % places;
    for (int t = 0; t < T; t++) {
        in[t] = at[t];
        targets[t] = at[t + 1];
    }
}

static void cut_batch(const unsigned char *bytes, size_t length, uint64_t seed, int step, int first,
                      int B, int T, int32_t *in, int32_t *targets)
{
    for (int b = 0; b < B; b++) {
        uint64_t random = mix_sequence(seed, step, first + b);
        cut(bytes, length, random, T, in + (size_t)b * (size_t)T, targets + (size_t)b * (size_t)T);
    }
}

void text_batch(const Text *text, uint64_t seed, int step, int first, int B, int T, int32_t *in,
                int32_t *targets)
{
    cut_batch(text->bytes, text->train, seed, step, first, B, T, in, targets);
}

void text_held_out(const Text *text, uint64_t seed, int step, int first, int B, int T, int32_t *in,
                   int32_t *targets)
{
    cut_batch(text->bytes + text->train, text->length - text->train, seed, step, first, B, T, in,
              targets);
}

double text_frequency_loss(const Text *text)
{
    double count[256], sum = 0.0, loss = 0.0;
    for (int byte = 0; byte < 256; byte++) count[byte] = 1.0;
    for (size_t i = 0; i < text->train; i++) count[text->bytes[i]]++;
    for (int byte = 0; byte < 256; byte++) sum += count[byte];
    for (size_t i = text->train; i < text->length; i++) loss -= log(count[text->bytes[i]] / sum);
    return loss / (double)(text->length - text->train);
}
