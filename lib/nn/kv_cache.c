/* kv_cache.c: keys and values of the earlier tokens, so that a model that generates text runs its
 * linear layers on the new tokens alone.
 *
 * For each attention layer it keeps the output rows of the first linear layer: queries, keys and
 * values, before rotary positions turn them. A forward turns a copy, so that each row gets its own
 * position, and computes the attention of the new rows alone. The results equal those of a forward
 * over all tokens.
 */
#include <math.h>
#include <stdlib.h>

#include "internal.h"
#include "product.h"

Status kv_cache_create(KvCache **cache, int max_T)
{
    *cache = calloc(1, sizeof **cache);
    if (*cache == NULL) return fail(ERR_MEMORY, "no host memory for a cache");
    (*cache)->max_T = max_T;
    return OK;
}

Status kv_cache_destroy(KvCache *cache, NnRun *run)
{
    for (int i = 0; cache != NULL && i < cache->n; i++) TRY(run_free_typed(run, &cache->rows[i]));
    if (cache != NULL) free(cache->rows);
    free(cache);
    return OK;
}

Status kv_cache_begin(NnRun *run, int *first)
{
    KvCache *cache = run->cache;
    *first = 0;
    if (cache == NULL) return OK;
    if (run->B != 1 || cache->length + run->T > cache->max_T)
        return fail(
            ERR_ARGUMENT,
            "%d sequences of %d tokens after %d: a cache is of one sequence, of %d tokens at most",
            run->B, run->T, cache->length, cache->max_T);
    cache->next = 0;
    *first = cache->length;
    return OK;
}

// The rows of the layer whose turn it is.
static Status layer_rows(const Module *self, NnRun *run, size_t width, void **rows)
{
    KvCache *cache = run->cache;
    if (cache->next == cache->n) {
        void **more = realloc(cache->rows, (size_t)(cache->n + 1) * sizeof *more);
        if (more == NULL) return fail(ERR_MEMORY, "no host memory for a cache");
        cache->rows = more;
        TRY(module_alloc_typed(self, run, &more[cache->n], (size_t)cache->max_T * width, "cache"));
        cache->n++;
    }
    *rows = cache->rows[cache->next++];
    return OK;
}

// Turns x (T, width), a copy of the cached rows; y (run->T, C) gets the outputs of all heads.
static Status attend(const Module *self, NnRun *run, int T, void *x, void *y, TurnRows turn)
{
    const LayerNumbers *n = &self->numbers;
    int hs = self->in_dim / n->heads;
    if (hs > ATTENTION_MOST_COLUMNS)
        return fail(ERR_ARGUMENT, "%s: a head has %d columns, and the cache's kernel takes %d",
                    self->name, hs, ATTENTION_MOST_COLUMNS);
    if (turn != NULL) TRY(turn(self, run, T, x));
    CUDA_TRY(kernel_attention_rows_ex(self->out_type, y, x, T - run->T, T, self->in_dim, n->heads,
                                      n->kv_heads, 1.0f / sqrtf((float)hs), run->stream));
    return OK;
}

Status kv_cache_attention(Module *self, NnRun *run, const void *qkv, TurnRows turn, void *out)
{
    size_t width = (size_t)self->children[0]->out_dim, C = (size_t)self->in_dim;
    size_t before = (size_t)run->cache->length, T = before + (size_t)run->T;
    size_t bytes = dtype_bytes(self->out_type);
    void *rows = NULL, *x = NULL, *y = NULL;
    TRY(layer_rows(self, run, width, &rows));
    TRY(module_alloc_typed(self, run, &x, T * width, "copy of the cache"));
    TRY(module_alloc_typed(self, run, &y, (size_t)run->T * C, "weighted values"));
    CUDA_TRY(cudaMemcpyAsync(element_at(rows, self->out_type, before * width), qkv,
                             (size_t)run->T * width * bytes, cudaMemcpyDeviceToDevice,
                             run->stream));
    CUDA_TRY(cudaMemcpyAsync(x, rows, T * width * bytes, cudaMemcpyDeviceToDevice, run->stream));
    TRY(attend(self, run, (int)T, x, y, turn));
    TRY(module_forward_into(self->children[1], run, y, out));
    TRY(run_free_typed(run, &x));
    return run_free_typed(run, &y);
}
