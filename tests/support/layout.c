/* layout.c: which element of an array is which element of which parameter. See layout.h. */
#include "layout.h"

#include <stdio.h>

static size_t numel_of(const Param *param)
{
    size_t numel = 1;
    for (int i = 0; i < param->ndim && i < PARAM_MAX_DIMS; i++) numel *= (size_t)param->shape[i];
    return numel;
}

static void take(Layout *layout, const Param *param)
{
    for (int i = 0; i < layout->n; i++)
        if (layout->param[i] == param) return;
    if (layout->n == LAYOUT_MAX) return; // then no length fits, and nothing is named
    layout->param[layout->n++] = param;
    layout->begin[layout->n] = layout->begin[layout->n - 1] + numel_of(param);
}

static void begin(Layout *layout, int world, int rank)
{
    layout->n = 0;
    layout->begin[0] = 0;
    layout->world = world;
    layout->rank = rank;
}

void layout_params(Layout *layout, Param *const *params, int n, int world, int rank)
{
    begin(layout, world, rank);
    for (int i = 0; i < n; i++) take(layout, params[i]);
}

bool module_has_hooks(const Module *m)
{
    for (int point = 0; point < HOOK_POINTS; point++)
        if (m->hooks[point] != NULL) return true;
    return false;
}

static void walk(Layout *layout, const Module *module, bool units)
{
    for (int i = 0; i < module->n_params; i++) take(layout, module->params[i]);
    for (int i = 0; i < module->n_children; i++)
        if (!units || !module_has_hooks(module->children[i]))
            walk(layout, module->children[i], units);
}

void layout_module(Layout *layout, const Module *module, bool units, int world, int rank)
{
    begin(layout, world, rank);
    walk(layout, module, units);
}

// numel rounded up to a multiple of so many elements.
static size_t padded(const Layout *layout, size_t multiple)
{
    return (layout->begin[layout->n] + multiple - 1) / multiple * multiple;
}

bool layout_fits(const Layout *layout, size_t n)
{
    if (!layout || layout->n == 0 || layout->world < 1 || n == 0) return false;
    size_t whole = layout->rank == LAYOUT_WHOLE ? n : n * (size_t)layout->world;
    return whole == padded(layout, (size_t)layout->world) ||
           whole == padded(layout, 4 * (size_t)layout->world) ||
           (layout->rank == LAYOUT_WHOLE && n == layout->begin[layout->n]);
}

size_t layout_place(const Layout *layout, size_t n, size_t i)
{
    return layout->rank == LAYOUT_WHOLE ? i : (size_t)layout->rank * n + i;
}

bool layout_is_padding(const Layout *layout, size_t n, size_t i)
{
    return layout_fits(layout, n) && layout_place(layout, n, i) >= layout->begin[layout->n];
}

// The number of the parameter; layout->n: none.
static int find(const Layout *layout, size_t place)
{
    int k = 0;
    while (k < layout->n && layout->begin[k + 1] <= place) k++;
    return k;
}

const Param *layout_param(const Layout *layout, size_t n, size_t i)
{
    if (!layout_fits(layout, n)) return NULL;
    int k = find(layout, layout_place(layout, n, i));
    return k < layout->n ? layout->param[k] : NULL;
}

const char *layout_say(const Layout *layout, size_t n, size_t i, char *text, size_t size)
{
    char name[120] = "padding";
    if (!layout_fits(layout, n)) {
        snprintf(text, size, "element %zu", i);
        return text;
    }
    size_t place = layout_place(layout, n, i);
    int k = find(layout, place);
    if (k < layout->n)
        snprintf(name, sizeof name, "%.79s[%zu]", layout->param[k]->name, place - layout->begin[k]);
    if (layout->rank == LAYOUT_WHOLE || layout->world == 1)
        snprintf(text, size, "element %zu (%s)", i, name);
    else
        snprintf(text, size,
                 "element %zu of rank %d's shard (element %zu of the flat parameter: %s)", i,
                 layout->rank, place, name);
    return text;
}
