/* mlp.c: a stack of linear layers with GELU between them: children l.0 … l.{depth-2}, each a
 * sequence of fc and gelu, then a linear layer `last`.
 *
 * Initial weights have deviation √(2/inputs) (He et al. 2015), so that a deep stack keeps its
 * scale.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

static float he_std(int inputs)
{
    return sqrtf(2.0f / (float)(inputs > 0 ? inputs : 1));
}

static Module *create_hidden(int i, int in_dim, int hidden)
{
    char name[16];
    snprintf(name, sizeof name, "l.%d", i);
    Module *children[] = {
        linear_create("fc", in_dim, hidden, true, he_std(in_dim)),
        gelu_create("gelu", hidden),
    };
    return sequence_create(name, 2, children);
}

Module *mlp_create(int in_dim, int hidden, int out_dim, int depth)
{
    if (depth < 1 || depth > 10000) {
        fail(ERR_ARGUMENT, "stack of %d linear layers; it takes 1 to 10000", depth);
        return NULL;
    }
    Module **children = calloc((size_t)depth, sizeof(Module *));
    if (children == NULL) {
        fail(ERR_MEMORY, "no host memory for %d layers", depth);
        return NULL;
    }
    for (int i = 0; i < depth - 1; i++)
        children[i] = create_hidden(i, i == 0 ? in_dim : hidden, hidden);
    int inputs = depth == 1 ? in_dim : hidden;
    children[depth - 1] = linear_create("last", inputs, out_dim, true, he_std(inputs));
    Module *m = sequence_create("mlp", depth, children);
    free(children);
    return m;
}
