/* source.c: what the demo learns from. See source.h. */
#include "source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BATCHES = 8 }; // of held-out text that a score is the mean of

Status source_sums(Source *source)
{
    memset(source, 0, sizeof *source);
    source->sums = true;
    source->n_held = sums_held_out(NULL, 0);
    source->held = malloc((size_t)source->n_held * sizeof *source->held);
    if (source->held == NULL) return fail(ERR_MEMORY, "no host memory for %d sums", source->n_held);
    sums_held_out(source->held, source->n_held);
    return OK;
}

Status source_text(Source *source, char *const *files, int n_files, int T)
{
    memset(source, 0, sizeof *source);
    return text_load(&source->text, files, n_files, T);
}

void source_free(Source *source)
{
    if (!source->sums) text_free(&source->text);
    free(source->held);
}

void source_batch(const Source *source, uint64_t seed, int step, int first, int B, int T,
                  int32_t *in, int32_t *targets)
{
    if (source->sums)
        sums_batch(seed, step, first, B, in, targets);
    else
        text_batch(&source->text, seed, step, first, B, T, in, targets);
}

// ---- Sums ----

static int argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

// The number that the model answers, -1 for none. It reads the right digits, so its answer is right
// in all three exactly where it would have been, had it read its own.
static int answer(const float *logits)
{
    int number = 0, place = 1;
    for (int t = SUMS_ANSWER; t < SUMS_T; t++, place *= 10) {
        int token = argmax(logits + t * SUMS_VOCAB, SUMS_VOCAB);
        if (token > 9) return -1;
        number += place * token;
    }
    return number;
}

// A sum with the model's answer, and the right one where that is another.
static void note_example(char *text, size_t size, SumsPair pair, int number)
{
    int n = snprintf(text, size, "%d+%d=", pair.a, pair.b);
    if (number < 0)
        snprintf(text + n, size - (size_t)n, "?");
    else if (number == pair.a + pair.b)
        snprintf(text + n, size - (size_t)n, "%d", number);
    else
        snprintf(text + n, size - (size_t)n, "%d (%d)", number, pair.a + pair.b);
}

typedef struct Sheet { // host memory for a batch of held-out sums
    int32_t *in, *targets;
    float *logits;
} Sheet;

// Adds the right answers to held-out sums first … first+B-1; what is past the last is padding.
static Status score_sums(const Source *source, Trainer *t, int first, Sheet *sheet, Score *score)
{
    int B = t->opt.B;
    for (int row = 0; row < B; row++) {
        SumsPair pair = source->held[(first + row) % source->n_held];
        sums_write(pair.a, pair.b, sheet->in + row * SUMS_T, sheet->targets + row * SUMS_T);
    }
    TRY(trainer_forward(t, sheet->in, NULL, B, SUMS_T, NULL, sheet->logits));
    for (int row = 0; row < B && first + row < source->n_held; row++) {
        SumsPair pair = source->held[first + row];
        int number = answer(sheet->logits + row * SUMS_T * SUMS_VOCAB);
        score->right += number == pair.a + pair.b;
        if (first + row < SOURCE_EXAMPLES)
            note_example(score->example[first + row], sizeof score->example[0], pair, number);
    }
    return OK;
}

// The ranks share the held-out sums; every rank does as many forwards as the others.
static Status score_all_sums(const Source *source, Trainer *t, Sheet *sheet, Score *score)
{
    int B = t->opt.B, all = B * t->world.size;
    uint64_t right, counts[64];
    for (int first = 0; first < source->n_held; first += all)
        TRY(score_sums(source, t, first + t->world.rank * B, sheet, score));
    right = (uint64_t)score->right;
    TRY(gather_over_ranks(t, &right, 1, counts));
    score->right = 0;
    for (int rank = 0; rank < t->world.size; rank++) score->right += (int)counts[rank];
    score->n = source->n_held;
    return OK;
}

// ---- Text ----

static Status score_text(const Source *source, Trainer *t, Sheet *sheet, Score *score)
{
    for (int i = 0; i < TEXT_BATCHES; i++) {
        float one;
        text_held_out(&source->text, t->opt.seed, i, t->world.rank * t->opt.B, t->opt.B, t->opt.T,
                      sheet->in, sheet->targets);
        TRY(trainer_forward(t, sheet->in, sheet->targets, t->opt.B, t->opt.T, &one, NULL));
        score->loss += one / TEXT_BATCHES;
    }
    return mean_over_ranks(t, &score->loss);
}

Status source_score(const Source *source, Trainer *t, Score *score)
{
    size_t rows = (size_t)t->opt.B * (size_t)t->opt.T;
    Sheet sheet = {malloc(rows * sizeof(int32_t)), malloc(rows * sizeof(int32_t)),
                   malloc(rows * SUMS_VOCAB * sizeof(float))};
    Status status = ERR_MEMORY;
    memset(score, 0, sizeof *score);
    if (sheet.in == NULL || sheet.targets == NULL || sheet.logits == NULL)
        fail(ERR_MEMORY, "no host memory for a batch of %zu tokens", rows);
    else
        status = (source->sums ? score_all_sums : score_text)(source, t, &sheet, score);
    free(sheet.in);
    free(sheet.targets);
    free(sheet.logits);
    return status;
}
