/* llama.c: a model of Llama 3's shape (Grattafiori et al. 2024) as a sequence: embed, h.0 …
 * h.{layers-1}, norm_f, head.
 *
 * The head has a weight of its own, or the embedding's where they are tied (Llama 3.2's small
 * ones). Initial deviations are GPT-2's: 0.02, and 0.02/√(2·layers) for the two layers of each
 * block that write into the residual stream.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

static const float STD = 0.02f;

static float eps_of(const LlamaConfig *c)
{
    return c->eps > 0.0f ? c->eps : 1e-5f;
}

static Module *create_block(const LlamaConfig *c, int i)
{
    const float proj_std = STD / sqrtf(2.0f * (float)c->layers);
    char name[16];
    snprintf(name, sizeof name, "h.%d", i);
    Module *attn =
        grouped_attention_create("attn", c->dim, c->heads, c->kv_heads, &c->rotary, STD, proj_std);
    if (attn == NULL) return NULL; // its constructor has said why
    Module *mlp = gated_ffn_create("mlp", c->dim, c->hidden, STD, proj_std);
    if (mlp == NULL) {
        module_destroy(attn);
        return NULL;
    }
    return block_of(name, c->dim, rmsnorm_create("norm_1", c->dim, eps_of(c)), attn,
                    rmsnorm_create("norm_2", c->dim, eps_of(c)), mlp);
}

// The sequence of all layers but the head. `children` has room for layers + 2.
static Module *create_body(const LlamaConfig *c, Module **children)
{
    children[0] = token_embedding_create("embed", c->vocab, c->max_T, c->dim, STD);
    for (int i = 0; i < c->layers && children[i] != NULL; i++) children[1 + i] = create_block(c, i);
    if (children[c->layers] != NULL)
        children[1 + c->layers] = rmsnorm_create("norm_f", c->dim, eps_of(c));
    return sequence_create("llama", c->layers + 2, children);
}

static bool add_head(Module *m, const LlamaConfig *c)
{
    if (!c->tied) return module_add_child(m, linear_create("head", c->dim, c->vocab, false, STD));
    Module *head = linear_create_bare("head", c->dim, c->vocab);
    return module_add_child(m, head) && linear_tie(head, m->children[0]->params[0]);
}

Module *llama_create(const LlamaConfig *config)
{
    if (config->layers < 1 || config->layers > 10000) {
        fail(ERR_ARGUMENT, "Llama with %d layers; it takes 1 to 10000", config->layers);
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
    m->out_dim = config->vocab;
    if (add_head(m, config) && cast_logits(m, config->dtype)) return module_named(m);
    module_destroy(m);
    return NULL;
}
