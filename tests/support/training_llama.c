/* training_llama.c: a Llama for the loops of training.c, in a file of its own: who trains none is
 * linked without it.
 */
#include "training.h"

static Module *create(const Spec *spec)
{
    LlamaConfig config = {.vocab = spec->vocab,
                          .max_T = spec->T,
                          .layers = spec->layers,
                          .heads = spec->heads,
                          .kv_heads = spec->kv_heads,
                          .dim = spec->dim,
                          .hidden = spec->hidden,
                          .tied = spec->tied};
    return llama_create(&config);
}

Spec spec_llama(int layers, bool tied)
{
    Spec spec = spec_gpt2(layers);
    spec.create = create;
    spec.heads = 6;
    spec.kv_heads = 2;
    spec.hidden = 17;
    spec.tied = tied;
    return spec;
}
