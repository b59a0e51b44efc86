/* sample.c: text that a byte-level model writes. See sample.h. */
#include "sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TEMPERATURE 0.7f

// Draws from softmax(logits / temperature) with a random number in [0, 1).
static int draw(const float *logits, int n, float temperature, double random)
{
    double sum = 0.0, largest = logits[0], at = 0.0;
    for (int i = 1; i < n; i++) largest = fmax(largest, logits[i]);
    for (int i = 0; i < n; i++) sum += exp((logits[i] - largest) / temperature);
    for (int i = 0; i < n; i++) {
        at += exp((logits[i] - largest) / temperature) / sum;
        if (at > random) return i;
    }
    return n - 1;
}

// The byte that follows tokens (n): every rank runs the forward, as its parameters are needed.
// logits: room for (T, vocab).
static Status next_byte(Trainer *t, const int32_t *tokens, int n, float *logits, int32_t *byte)
{
    int vocab = t->opt.model.vocab, T = n < t->opt.T ? n : t->opt.T;
    uint32_t word[4];
    const uint32_t counter[4] = {(uint32_t)n, (uint32_t)tokens[n - 1], 1, 0}, key[2] = {42, 7};
    TRY(trainer_forward(t, tokens + (n - T), NULL, 1, T, NULL, logits));
    philox4x32_10(counter, key, word);
    *byte = draw(logits + (size_t)(T - 1) * (size_t)vocab, vocab, TEMPERATURE, word[0] * 0x1p-32);
    return OK;
}

static void print(const int32_t *tokens, int n)
{
    printf("\na sample, at temperature %.1f\n  ", (double)TEMPERATURE);
    for (int i = 0; i < n; i++) {
        if (tokens[i] == '\n')
            printf("\n  ");
        else
            putchar(tokens[i] >= 32 && tokens[i] < 127 ? tokens[i] : '.');
    }
    printf("\n");
}

Status sample_text(Trainer *t, int bytes)
{
    static const char prompt[] = "The ";
    int n = (int)sizeof prompt - 1, end = n + bytes;
    int32_t *tokens = malloc((size_t)end * sizeof *tokens);
    float *logits = malloc((size_t)t->opt.T * (size_t)t->opt.model.vocab * sizeof *logits);
    Status status = OK;
    if (tokens == NULL || logits == NULL) status = fail(ERR_MEMORY, "no host memory for a sample");
    for (int i = 0; status == OK && i < n; i++) tokens[i] = prompt[i];
    // All ranks have the same parameters and draw with the same random numbers: the same text.
    for (int i = n; i < end && status == OK; i++)
        status = next_byte(t, tokens, i, logits, &tokens[i]);
    if (status == OK && t->world.rank == 0) print(tokens, end);
    free(tokens);
    free(logits);
    return status;
}
