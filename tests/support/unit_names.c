/* unit_names.c: what reports call the bytes of the units' buffers. See unit_names.h.
 *
 * A buffer is known by its address, which the unit holds while the report is written; which element
 * is which parameter's, by the model alone (layout.h), so that a wrong offset in the code under
 * test cannot make a report lie.
 */
#include "unit_names.h"

#include <stdio.h>
#include <string.h>

#define UNITS 32

static struct {
    int n;
    struct {
        const FlatParam *flat;
        const char *name;
        Layout whole, shard;
    } unit[UNITS];
} names;

// "h.0.weight[3]", "padding"
static void say_element(const Layout *layout, size_t n, size_t i, char text[128])
{
    size_t place = layout_place(layout, n, i);
    const Param *param = layout_param(layout, n, i);
    int k = 0;
    while (k < layout->n && layout->param[k] != param) k++;
    if (k < layout->n)
        snprintf(text, 128, "%.79s[%zu]", param->name, place - layout->begin[k]);
    else
        snprintf(text, 128, "padding");
}

static bool say_elements(const Layout *layout, const char *name, size_t n, size_t first,
                         size_t last, char *text, size_t size)
{
    char from[128], to[128], of[160];
    if (!layout_fits(layout, n) || last >= n) return false;
    say_element(layout, n, first, from);
    say_element(layout, n, last, to);
    if (layout->rank == LAYOUT_WHOLE)
        snprintf(of, sizeof of, "%.100s", name);
    else
        snprintf(of, sizeof of, "rank %d's shard of %.100s", layout->rank, name);
    if (first == last)
        snprintf(text, size, "element %zu of %s, %s", first, of, from);
    else if (strcmp(from, to) == 0)
        snprintf(text, size, "elements %zu to %zu of %s, %s", first, last, of, from);
    else
        snprintf(text, size, "elements %zu to %zu of %s, %s to %s", first, last, of, from, to);
    return true;
}

static bool name_elements(const void *ptr, size_t bytes, size_t begin, size_t end, char *text,
                          size_t size, void *arg)
{
    size_t n = bytes / sizeof(float), first = begin / sizeof(float);
    size_t last = end > begin ? (end - 1) / sizeof(float) : first;
    for (int i = 0; i < names.n; i++) {
        const FlatParam *flat = names.unit[i].flat;
        bool shard = ptr == flat->sharded_param.data || ptr == flat->sharded_grad.data;
        if (!shard && ptr != flat->unsharded_param.data && ptr != flat->unsharded_grad.data)
            continue;
        const Layout *layout = shard ? &names.unit[i].shard : &names.unit[i].whole;
        return say_elements(layout, names.unit[i].name, n, first, last, text, size);
    }
    return false;
}

static void add_unit(const Sharded *s, const Module *module)
{
    const FsdpUnit *own = fsdp_unit(module);
    if (own == NULL || names.n == UNITS) return;
    names.unit[names.n].flat = &own->flat;
    names.unit[names.n].name = module->name;
    layout_module(&names.unit[names.n].whole, module, true, s->world, LAYOUT_WHOLE);
    layout_module(&names.unit[names.n].shard, module, true, s->world, s->rank);
    names.n++;
}

void unit_names_of(const Sharded *s)
{
    names.n = 0;
    add_unit(s, s->model);
    for (int i = 0; i < s->model->n_children; i++) add_unit(s, s->model->children[i]);
    gpulog_name_elements(name_elements, NULL);
}

void unit_names_end(void)
{
    names.n = 0;
    gpulog_name_elements(NULL, NULL);
}
