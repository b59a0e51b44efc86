/* gpt2.c: GPT-2 (Radford et al. 2019) as a sequence: embed, h.0 … h.{layers-1}, ln_f, head.
 *
 * The head's weight is the embedding's wte: one Param that stands in two modules. Initial values
 * are the paper's: deviation 0.02, and 0.02/√(2·layers) for the two layers of each block that write
 * into the residual stream.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

// The sequence of all layers but the head. `children` has room for layers + 2.
static Module *create_body(const Gpt2Config *c, Module **children)
{
    const float std = 0.02f, proj_std = 0.02f / sqrtf(2.0f * (float)c->layers);
    children[0] = embedding_create("embed", c->vocab, c->max_T, c->dim, std);
    for (int i = 0; i < c->layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "h.%d", i);
        children[1 + i] = block_create(name, c->dim, c->heads, c->attention, std, proj_std);
        if (children[1 + i] == NULL) break; // its constructor has said why
    }
    if (children[c->layers] != NULL) children[1 + c->layers] = layernorm_create("ln_f", c->dim);
    return sequence_create("gpt2", c->layers + 2, children);
}

Module *gpt2_create(const Gpt2Config *config)
{
    if (config->layers < 1 || config->layers > 10000) {
        fail(ERR_ARGUMENT, "GPT-2 with %d layers; it takes 1 to 10000", config->layers);
        return NULL;
    }
    Module **children = calloc((size_t)config->layers + 2, sizeof(Module *));
    if (children == NULL) {
        fail(ERR_MEMORY, "no host memory for %d layers", config->layers);
        return NULL;
    }
    Module *m = create_body(config, children);
    free(children);
    if (m == NULL) return NULL;
    Module *head = linear_create_bare("head", config->dim, config->vocab);
    bool made = module_add_child(m, head) && linear_tie(head, m->children[0]->params[0]);
    m->out_dim = config->vocab;
    made = made && cast_logits(m, config->dtype);
    if (made) return module_named(m);
    module_destroy(m);
    return NULL;
}
