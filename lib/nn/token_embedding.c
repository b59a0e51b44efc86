/* token_embedding.c: the layer of token embeddings without positions: wte (vocab, C).
 *
 * Its input is int32 tokens (B,T), so its backward returns no gradient.
 */
#include "internal.h"

typedef struct TokenEmbedding {
    int max_T;
} TokenEmbedding;

static Status token_embedding_forward(Module *self, NnRun *run, const void *in, void *out)
{
    const TokenEmbedding *s = self->state;
    const Param *wte = self->params[0];
    int first;
    TRY(kv_cache_begin(run, &first));
    if (first + run->T > s->max_T)
        return fail(ERR_ARGUMENT, "sequence of %d tokens, but the model takes at most %d",
                    first + run->T, s->max_T);
    TRY(param_has_data(wte, self->out_type));
    CUDA_TRY(kernel_embedding_forward_ex(self->out_type, out, in, wte->data.data, NULL, run->B,
                                         run->T, self->out_dim, (int)wte->shape[0], run->stream));
    return OK;
}

static Status token_embedding_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    const Param *wte = self->params[0];
    if (wte->frozen) return OK;
    TRY(param_has_grad(wte, self->out_type));
    CUDA_TRY(kernel_embedding_backward_ex(self->out_type, wte->grad.data, NULL, dout, self->in,
                                          run->B, run->T, self->out_dim, (int)wte->shape[0],
                                          run->stream));
    return OK;
}

Module *token_embedding_create(const char *name, int vocab, int max_T, int dim, float init_std)
{
    if (vocab < 1 || max_T < 1) {
        fail(ERR_ARGUMENT, "embedding %s would have %d tokens and %d positions", name, vocab,
             max_T);
        return NULL;
    }
    Module *m = module_create(name, 0, dim, sizeof(TokenEmbedding));
    if (m == NULL) return NULL;
    ((TokenEmbedding *)m->state)->max_T = max_T;
    m->forward = token_embedding_forward;
    m->backward = token_embedding_backward;
    if (module_add_param(m, param_create("wte", vocab, dim, INIT_NORMAL, init_std)))
        return module_named(m);
    module_destroy(m);
    return NULL;
}
