/* random_model.c: see random_model.h. */
#include "random_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

enum { MOST_CHILDREN = 24 };

// A sequence that is being made.
typedef struct Chain {
    const RandomModel *m;
    int n, columns;  // children so far, and what the last one gives
    unsigned *drawn; // how many numbers were drawn
    Module *child[MOST_CHILDREN];
} Chain;

// A number of [0, n), drawn from `shape`; 0 where nothing differs.
static int drawn_of(Chain *c, int n)
{
    uint32_t x = (uint32_t)c->m->shape * 2654435761u + ++*c->drawn * 40503u;
    x = (x ^ (x >> 15)) * 2246822519u;
    x ^= x >> 13;
    return c->m->shape == 0 ? 0 : (int)(x % (uint32_t)n);
}

static void add(Chain *c, Module *child)
{
    check(child != NULL && c->n < MOST_CHILDREN, "a layer of the test's model cannot be made");
    c->child[c->n++] = child;
    c->columns = child->out_dim;
}

static const char *numbered(char name[16], const char *word, int i)
{
    snprintf(name, 16, "%s%d", word, i);
    return name;
}

static void add_linear(Chain *c, const char *name, int columns)
{
    bool bias = drawn_of(c, 3) != 2;
    add(c, linear_create(name, c->columns, columns, bias, sqrtf(2.0f / (float)c->columns)));
}

// Two layers with one weight.
static void add_tied(Chain *c)
{
    add_linear(c, "tied_a", c->columns);
    add_linear(c, "tied_b", c->columns);
    Module *first = c->child[c->n - 2], *second = c->child[c->n - 1];
    free(second->params[0]);
    second->params[0] = first->params[0];
}

static void add_adapter(Chain *c)
{
    Chain own = {.m = c->m, .columns = c->columns, .drawn = c->drawn};
    add_linear(&own, "down", c->m->adapter);
    add(&own, gelu_create("gelu", own.columns));
    add_linear(&own, "up", c->columns);
    add(c, sequence_create("adapter", own.n, own.child));
}

static Module *sequence_of(Chain *outer, const char *name, int nest)
{
    Chain c = {.m = outer->m, .columns = outer->columns, .drawn = outer->drawn};
    const RandomModel *m = c.m;
    char text[16];
    for (int i = 0; i < m->layers; i++) {
        add_linear(&c, numbered(text, "fc", i), m->width - drawn_of(&c, m->width));
        if (m->gelu && drawn_of(&c, 2) == 0) add(&c, gelu_create("gelu", c.columns));
        bool norm = drawn_of(&c, 2) == 0 && c.columns > 2;
        if (norm && m->norm == 1) add(&c, layernorm_create(numbered(text, "norm", i), c.columns));
        if (norm && m->norm == 2)
            add(&c, rmsnorm_create(numbered(text, "norm", i), c.columns, 1e-5f));
        if (i == 0 && nest > 0) add(&c, sequence_of(&c, "inner", nest - 1));
    }
    return sequence_create(name, c.n, c.child);
}

// A block: a sequence of layers, and what a block has once.
static Module *block_of(Chain *outer, int i)
{
    Chain c = {.m = outer->m, .columns = outer->columns, .drawn = outer->drawn};
    char name[16];
    snprintf(name, sizeof name, "l.%d", i);
    add(&c, sequence_of(&c, "layers", c.m->nest));
    if (c.m->tied) add_tied(&c);
    if (c.m->adapter > 0) add_adapter(&c);
    return sequence_create(name, c.n, c.child);
}

Module *random_model_create(const RandomModel *m)
{
    unsigned drawn = 0;
    Chain c = {.m = m, .columns = m->in_dim, .drawn = &drawn};
    for (int i = 0; i < m->blocks; i++) add(&c, block_of(&c, i));
    add_linear(&c, "last", m->out_dim);
    Module *model = sequence_create("mlp", c.n, c.child);
    check(model != NULL, "the test's model cannot be made");
    // Without biases a row of zeros stays one, and each norm multiplies its gradient by 300.
    Param *params[256];
    int n = meta_params(model, params, 256);
    for (int i = 0; i < n && i < 256; i++) {
        if (params[i]->init != INIT_ZERO) continue;
        params[i]->init = INIT_NORMAL;
        params[i]->init_std = 0.5f;
    }
    return model;
}

// ---- Units ----

static bool has_unowned(const Module *module)
{
    for (int i = 0; i < module->n_params; i++)
        if (module->params[i]->owner == NULL) return true;
    for (int i = 0; i < module->n_children; i++)
        if (has_unowned(module->children[i])) return true;
    return false;
}

static bool wants_unit(const RandomModel *m, const Module *module, int depth)
{
    Param *first[1];
    if (m->units == UNITS_BLOCKS) return depth == 0;
    if (m->units == UNITS_ALL) return true;
    meta_params(module, first, 1);
    return m->units == UNITS_SOME && (first[0]->id * 7u + (unsigned)m->shape + 5u * depth) % 3 != 0;
}

static Status shard_sequence(const RandomModel *m, Module *module, int depth, FsdpContext *ctx,
                             const FsdpOptions *options)
{
    if (module->n_children == 0) return OK;
    for (int i = 0; i < module->n_children; i++)
        TRY(shard_sequence(m, module->children[i], depth + 1, ctx, options));
    if (!wants_unit(m, module, depth) || !has_unowned(module)) return OK;
    return fully_shard(module, ctx, options);
}

Status random_model_shard(const RandomModel *m, Module *model, FsdpContext *ctx,
                          const FsdpOptions *options)
{
    int n = model->n_children;
    for (int i = 0; i < n - 1; i++) TRY(shard_sequence(m, model->children[i], 0, ctx, options));
    return OK;
}

void random_model_freeze_base(const RandomModel *m, Module *model)
{
    const char *trains = m->adapter > 0 ? ".adapter." : "last.";
    Param *params[256];
    int n = meta_params(model, params, 256);
    for (int i = 0; i < n && i < 256; i++)
        params[i]->frozen = strstr(params[i]->name, trains) == NULL;
}
