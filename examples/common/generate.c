/* generate.c: tokens that a model writes. See generate.h. */
#include "generate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels.h"

static int most_likely(const float *logits, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static int larger_first(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

// The k-th largest of the logits; sorted: room for them.
static float least_of_top(const float *logits, int n, int k, float *sorted)
{
    for (int i = 0; i < n; i++) sorted[i] = logits[i];
    qsort(sorted, (size_t)n, sizeof *sorted, larger_first);
    return sorted[k - 1];
}

// Draws from softmax(logits / temperature) with a random number in [0, 1). sorted: room for n.
static int draw(const GenerateOptions *o, const float *logits, int n, double random, float *sorted)
{
    double sum = 0.0, at = 0.0, largest = (double)logits[most_likely(logits, n)];
    float least =
        o->top_k > 0 && o->top_k < n ? least_of_top(logits, n, o->top_k, sorted) : -INFINITY;
    int last = 0;
    if (o->temperature == 0.0f) return most_likely(logits, n);
    for (int i = 0; i < n; i++)
        if (logits[i] >= least) sum += exp(((double)logits[i] - largest) / o->temperature);
    for (int i = 0; i < n; i++) {
        if (logits[i] < least) continue;
        at += exp(((double)logits[i] - largest) / o->temperature) / sum;
        last = i;
        if (at > random) return i;
    }
    return last;
}

// Logits (vocab) of what follows tokens (n), of which the cache, where there is one, has some.
static Status read_on(Trainer *t, const int32_t *tokens, int n, float *logits)
{
    KvCache *cache = t->run.cache;
    int most = t->opt.model.max_T, vocab = t->opt.model.vocab;
    int half = most - most / 2, from = n > most ? (n - most + half - 1) / half * half : 0;
    if (cache == NULL) { // (T, vocab), where the last row is wanted
        int T = n < t->opt.T ? n : t->opt.T;
        TRY(trainer_forward(t, tokens + (n - T), NULL, 1, T, NULL, logits));
        for (int i = 0; i < vocab; i++)
            logits[i] = logits[(size_t)(T - 1) * (size_t)vocab + (size_t)i];
        return OK;
    }
    if (n - from <= cache->length) cache->length = 0; // another window begins
    while (cache->length < n - from) {
        int T = n - from - cache->length;
        if (T > t->opt.T) T = t->opt.T;
        TRY(trainer_next(t, tokens + from + cache->length, T, logits));
    }
    return OK;
}

static Status write_tokens(Trainer *t, const GenerateOptions *o, int32_t *tokens, int n, int more,
                           float *logits, float *sorted)
{
    const uint32_t key[2] = {(uint32_t)o->seed, (uint32_t)(o->seed >> 32)};
    for (int i = n; i < n + more; i++) {
        uint32_t word[4];
        const uint32_t counter[4] = {(uint32_t)i, (uint32_t)tokens[i - 1], 1, 0};
        philox4x32_10(counter, key, word);
        TRY(read_on(t, tokens, i, logits));
        tokens[i] = draw(o, logits, t->opt.model.vocab, word[0] * 0x1p-32, sorted);
    }
    return OK;
}

Status generate(Trainer *t, const GenerateOptions *options, int32_t *tokens, int n, int more)
{
    const Gpt2Config *model = &t->opt.model;
    size_t vocab = (size_t)model->vocab;
    float *logits = malloc((size_t)t->opt.T * vocab * sizeof *logits);
    float *sorted = malloc(vocab * sizeof *sorted);
    Status status = OK;
    if (logits == NULL || sorted == NULL)
        status = fail(ERR_MEMORY, "no host memory for %d · %zu logits", t->opt.T, vocab);
    // The cache's kernel takes heads of so many columns, and recomputation has a kernel of its own.
    if (status == OK && model->dim / model->heads <= ATTENTION_MOST_COLUMNS &&
        t->opt.recompute == RECOMPUTE_NONE)
        status = kv_cache_create(&t->run.cache, model->max_T);
    if (status == OK) status = write_tokens(t, options, tokens, n, more, logits, sorted);
    Status freed = kv_cache_destroy(t->run.cache, &t->run);
    t->run.cache = NULL;
    free(logits);
    free(sorted);
    return status != OK ? status : freed;
}

// ---- A sample of a model of bytes ----

#define TEMPERATURE 0.7f

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
    static const GenerateOptions OPTIONS = {.temperature = TEMPERATURE, .seed = 42};
    int n = (int)sizeof prompt - 1;
    int32_t *tokens = malloc((size_t)(n + bytes) * sizeof *tokens);
    if (tokens == NULL) return fail(ERR_MEMORY, "no host memory for a sample");
    for (int i = 0; i < n; i++) tokens[i] = prompt[i];
    Status status = generate(t, &OPTIONS, tokens, n, bytes);
    if (status == OK && t->world.rank == 0) print(tokens, n + bytes);
    free(tokens);
    return status;
}
