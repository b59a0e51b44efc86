/* draw_model.c: drawing models. See draw_model.h. */
#include "draw_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Spec draw_mlp(int layers)
{
    Spec spec = spec_mlp(draw(2, layers));

    spec.in_dim = draw(1, 19);
    spec.dim = draw(2, 23);
    spec.vocab = draw(2, 9);
    spec.B = draw(1, 7);
    return spec;
}

Spec draw_gpt2(int layers)
{
    Spec spec = spec_gpt2(draw(1, layers));

    spec.heads = draw(1, 4);
    spec.dim = spec.heads * draw(2, 7);
    spec.vocab = draw(3, 17);
    spec.B = draw(1, 3);
    spec.T = draw(2, 9);
    return spec;
}

void drawn_model(const Spec *spec, int world)
{
    if (spec->gpt2)
        drawn("GPT-2 of %d layers, C = %d, %d heads, %d words, %d · %d tokens, %d rank%s",
              spec->layers, spec->dim, spec->heads, spec->vocab, spec->B, spec->T, world,
              world == 1 ? "" : "s");
    else
        drawn("%d layers, %d > %d > %d, %d row%s, %d rank%s", spec->layers, spec->in_dim, spec->dim,
              spec->vocab, spec->B, spec->B == 1 ? "" : "s", world, world == 1 ? "" : "s");
}

void want_devices(int n)
{
    char number[16];

    snprintf(number, sizeof number, "%d", n);
    setenv("SIMGPU_DEVICES", number, 1);
}

int drawn_world(const Spec *spec, int low, int high)
{
    int world = draw(low, high);

    drawn_model(spec, world);
    return world;
}

// ---- Trees ----

static bool has(const Module *module, const Param *param)
{
    for (int i = 0; i < module->n_params; i++)
        if (param == module->params[i]) return true;
    return false;
}

// A parameter that is there already and that module m has not; NULL: there is none, or it shall be
// a new one.
static Param *draw_tie(Tree *tree, int m, bool across)
{
    Param *fit[TREE_PARAMS];
    int n = 0;

    for (int i = 0; i < tree->n_params; i++)
        if ((across || tree->home[i] == tree->unit[m]) && !has(&tree->module[m], &tree->param[i]))
            fit[n++] = &tree->param[i];
    return n > 0 && draw_chance(25) ? fit[draw(0, n - 1)] : NULL;
}

static Param *new_param(Tree *tree, int m)
{
    static const InitKind kinds[] = {INIT_NORMAL, INIT_NORMAL, INIT_ZERO, INIT_ONE};
    int i = tree->n_params++;
    Param *p = &tree->param[i];

    snprintf(p->name, sizeof p->name, "p%d", i);
    p->id = (uint32_t)i;
    p->ndim = draw(1, 3);
    for (int d = 0; d < p->ndim; d++) p->shape[d] = draw(1, 5);
    p->init = draw_of(kinds);
    p->init_std = (float)draw(1, 16) / 8.0f;
    tree->home[i] = tree->unit[m];
    return p;
}

// The module and what is below it, under module `parent` (-1: none).
static void grow(Tree *tree, int parent, int depth, bool across)
{
    int m = tree->n++;
    Module *module = &tree->module[m];
    bool is_unit = parent < 0 || draw_chance(40);
    int own = draw(is_unit, TREE_OWN);

    tree->unit[m] = is_unit ? m : tree->unit[parent];
    snprintf(module->name, sizeof module->name, "m%d", m);
    module->params = tree->own[m];
    module->children = tree->child[m];
    while (module->n_params < own && tree->n_params < TREE_PARAMS) {
        // A unit begins with a parameter of its own: one without any is refused.
        Param *tied = is_unit && module->n_params == 0 ? NULL : draw_tie(tree, m, across);
        module->params[module->n_params] = tied ? tied : new_param(tree, m);
        module->n_params++;
    }
    for (int left = depth > 0 ? draw(parent < 0, TREE_CHILDREN) : 0;
         left > 0 && tree->n < TREE_MODULES && tree->n_params < TREE_PARAMS - TREE_OWN; left--) {
        module->children[module->n_children++] = &tree->module[tree->n];
        grow(tree, m, depth - 1, across);
    }
    tree->end[m] = tree->n;
}

void draw_tree(Tree *tree, bool across)
{
    memset(tree, 0, sizeof *tree);
    grow(tree, -1, 3, across);
}

int tree_walk(const Tree *tree, int m, const Param **out)
{
    bool met[TREE_PARAMS] = {false};
    int n = 0;

    for (int k = m; k < tree->end[m]; k++)
        for (int i = 0; i < tree->module[k].n_params; i++) {
            const Param *p = tree->module[k].params[i];
            if (!met[p - tree->param]) out[n++] = p;
            met[p - tree->param] = true;
        }
    return n;
}

int tree_unit_walk(const Tree *tree, int u, const Param **out)
{
    int n = 0;

    for (int i = 0; i < tree->n_params; i++)
        if (tree->home[i] == u) out[n++] = &tree->param[i];
    return n;
}
