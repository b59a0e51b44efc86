/* kv_cache.c: forwards of a few tokens at a time, with keys and values of those before them kept,
 * give the logits of one forward of all tokens; and what a cache has no room for.
 */
#include "numbers.h"

enum { VOCAB = 11, TOKENS = 23 };

static const Gpt2Config PLAIN = {
    .vocab = VOCAB, .max_T = TOKENS, .layers = 2, .heads = 2, .dim = 6};
static const Gpt2Config FUSED = {.vocab = VOCAB,
                                 .max_T = TOKENS,
                                 .layers = 2,
                                 .heads = 2,
                                 .dim = 6,
                                 .attention = ATTENTION_FUSED};
static const LlamaConfig LLAMA = {.vocab = VOCAB,
                                  .max_T = TOKENS,
                                  .layers = 2,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .dim = 8,
                                  .hidden = 5,
                                  .rotary = {.theta = 50.0f}};

typedef struct Writer {
    Module *m;
    NnRun run;
    int32_t *tokens;
} Writer;

static void writer_begin(Writer *w, const Rank *r, Module *m)
{
    int32_t host[TOKENS];
    uint64_t seed = 3;
    memset(w, 0, sizeof *w);
    w->m = m;
    check(m != NULL, "no model was made: %s", last_error());
    need(nn_run_create(&w->run, r->stream));
    give_storage(m, 0.4, &seed);
    for (int i = 0; i < TOKENS; i++) host[i] = (i * i + 3 * i) % VOCAB;
    w->tokens = tokens_on_device(host, TOKENS);
}

static void writer_end(Writer *w)
{
    need(kv_cache_destroy(w->run.cache, &w->run));
    take_storage(w->m);
    module_destroy(w->m);
    need_cuda(cudaFree(w->tokens));
    need(nn_run_destroy(&w->run));
}

// Logits (T, VOCAB) of so many tokens from number `first` on; free() them.
static float *read_tokens(Writer *w, int first, int T)
{
    float *logits;
    w->run.B = 1;
    w->run.T = T;
    need(module_forward(w->m, &w->run, w->tokens + first, &logits));
    float *host = fetch(logits, (size_t)(T * VOCAB));
    need(module_discard(w->m, &w->run));
    return host;
}

RANK_TEST(writes_as_a_forward_of_all, 1)
{
    static const int PARTS[] = {3, 1, 1, 14, 1, 1, 2};
    Module *models[] = {gpt2_create(&PLAIN), gpt2_create(&FUSED), llama_create(&LLAMA)};
    for (int k = 0; k < 3; k++) {
        Writer w;
        writer_begin(&w, r, models[k]);
        float *want = read_tokens(&w, 0, TOKENS);
        need(kv_cache_create(&w.run.cache, TOKENS));
        for (int p = 0, at = 0; at < TOKENS; at += PARTS[p++]) {
            float *got = read_tokens(&w, at, PARTS[p]);
            for (int i = 0; i < PARTS[p] * VOCAB; i++)
                check(fabsf(got[i] - want[at * VOCAB + i]) < 1e-5f,
                      "model %d: logit %d of token %d is %.7g, and %.7g without a cache", k,
                      i % VOCAB, at + i / VOCAB, (double)got[i], (double)want[at * VOCAB + i]);
            free(got);
            w.run.cache->length += PARTS[p];
        }
        free(want);
        writer_end(&w);
    }
}

RANK_TEST(refuses_what_does_not_fit, 1)
{
    static const int SIZES[][2] = {{1, 3}, {2, 1}}; // sequences, tokens
    Writer w;
    writer_begin(&w, r, gpt2_create(&PLAIN));
    need(kv_cache_create(&w.run.cache, TOKENS));
    free(read_tokens(&w, 0, TOKENS - 2));
    w.run.cache->length = TOKENS - 2;
    for (int i = 0; i < 2; i++) {
        float *logits;
        w.run.B = SIZES[i][0];
        w.run.T = SIZES[i][1];
        check(module_forward(w.m, &w.run, w.tokens, &logits) == ERR_ARGUMENT &&
                  strstr(last_error(), "tokens at most") != NULL,
              "%d sequences of %d tokens are not refused: %s", SIZES[i][0], SIZES[i][1],
              last_error());
        need(module_discard(w.m, &w.run));
    }
    writer_end(&w);
}

SUITE_MAIN("kv_cache")
