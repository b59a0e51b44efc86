/* embedding.c: the layer of token and position embeddings: wte (vocab, C), wpe (max_T, C).
 *
 * Its input is int32 tokens (B,T), so its backward returns no gradient.
 */
#include "internal.h"
#include "kernels.h"
#include "product.h"

static Status check_length(const Module *self, int T)
{
    int max_T = (int)self->params[1]->shape[0];
    if (T <= max_T) return OK;
    return fail(ERR_ARGUMENT, "sequence of %d tokens, but the model takes at most %d", T, max_T);
}

static Status embedding_forward(Module *self, NnRun *run, const void *in, void *out)
{
    const Param *wte = self->params[0], *wpe = self->params[1];
    int first;
    TRY(kv_cache_begin(run, &first));
    TRY(check_length(self, first + run->T));
    TRY(param_has_data(wte, self->out_type));
    TRY(param_has_data(wpe, self->out_type));
    const void *positions =
        element_at(wpe->data.data, self->out_type, (size_t)first * (size_t)self->out_dim);
    CUDA_TRY(kernel_embedding_forward_ex(self->out_type, out, in, wte->data.data, positions, run->B,
                                         run->T, self->out_dim, (int)wte->shape[0], run->stream));
    return dropout(self, run, wte, out, (size_t)run->T * (size_t)self->out_dim);
}

static Status embedding_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    const Param *wte = self->params[0], *wpe = self->params[1];
    void *dwte, *dropped = NULL;
    if (wte->frozen && wpe->frozen) return OK;
    TRY(param_has_grad(wpe, self->out_type));
    TRY(dropout_copy(self, run, wte, &dout, (size_t)run->T * (size_t)self->out_dim, &dropped));
    TRY(param_grad_begin(wte, run, self->out_type, &dwte));
    CUDA_TRY(kernel_embedding_backward_ex(self->out_type, dwte, wpe->frozen ? NULL : wpe->grad.data,
                                          dout, self->in, run->B, run->T, self->out_dim,
                                          (int)wte->shape[0], run->stream));
    TRY(param_grad_end(wte, run, &dwte));
    return run_free_typed(run, &dropped);
}

Module *embedding_create(const char *name, int vocab, int max_T, int dim, float init_std)
{
    if (vocab < 1 || max_T < 1) {
        fail(ERR_ARGUMENT, "embedding %s would have %d tokens and %d positions", name, vocab,
             max_T);
        return NULL;
    }
    Module *m = module_create(name, 0, dim, 0);
    if (m == NULL) return NULL;
    m->forward = embedding_forward;
    m->backward = embedding_backward;
    if (module_add_param(m, param_create("wte", vocab, dim, INIT_NORMAL, init_std)) &&
        module_add_param(m, param_create("wpe", max_T, dim, INIT_NORMAL, init_std)))
        return module_named(m);
    module_destroy(m);
    return NULL;
}
