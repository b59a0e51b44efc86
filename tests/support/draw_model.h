/* draw_model.h: models that a test draws (draw.h): the sizes of an MLP or a GPT-2, and trees of
 * modules that only have parameters.
 */
#ifndef SHARDLAB_DRAW_MODEL_H
#define SHARDLAB_DRAW_MODEL_H

#include "draw.h"
#include "training.h"

// An MLP of 2 to `layers` layers, whose sizes are small and mostly odd.
Spec draw_mlp(int layers);
// A GPT-2 of 1 to `layers` blocks.
Spec draw_gpt2(int layers);
// Simulated devices for worlds larger than the usual eight; before any rank runs.
void want_devices(int n);
// So many ranks, from low to high; says with the spec what was drawn.
int drawn_world(const Spec *spec, int low, int high);
// The same for ranks that are given.
void drawn_model(const Spec *spec, int world);

enum { TREE_MODULES = 24, TREE_PARAMS = 48, TREE_OWN = 3, TREE_CHILDREN = 3 };

// A tree of modules with parameters and nothing to run. Modules and parameters stand in the order
// in which a walk meets them: a module before its children, its own parameters first. A parameter
// that was met may be tied into a later module.
typedef struct Tree {
    int n, n_params;
    Module module[TREE_MODULES]; // [0] is the root
    int end[TREE_MODULES];       // the modules below i are i + 1 … end[i] - 1
    int unit[TREE_MODULES];      // of the unit that the module is part of; i: it is one
    Param param[TREE_PARAMS];
    int home[TREE_PARAMS];              // the unit of the module that brought it
    Param *own[TREE_MODULES][TREE_OWN]; // the modules' own lists
    Module *child[TREE_MODULES][TREE_CHILDREN];
} Tree;

// Draws a tree in place (it points into itself); the root is a unit. `across`: a parameter may be
// tied into a module of another unit than that which brought it.
void draw_tree(Tree *tree, bool across);
// The parameters of module m and what is below it, each once, in the order of a walk; how many.
int tree_walk(const Tree *tree, int m, const Param **out);
// Those of unit u alone, where no parameter is tied across units.
int tree_unit_walk(const Tree *tree, int u, const Param **out);

#endif
