/* layout.h: which element of an array is which element of which parameter.
 *
 * A comparison finds "element 37"; who reads it wants "h.1.weight[12]", or "padding". A Layout
 * knows, from the parameters' shapes alone: it asks nothing that the code under test computed, so
 * that a wrong offset there cannot make a message lie. Where the length of an array is none that
 * the layout can have, it names nothing.
 */
#ifndef SHARDLAB_LAYOUT_H
#define SHARDLAB_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "nn.h"

enum { LAYOUT_MAX = 256, LAYOUT_WHOLE = -1 };

typedef struct Layout {
    int n; // parameters, back to back; 0: nothing is known
    const Param *param[LAYOUT_MAX];
    size_t begin[LAYOUT_MAX + 1]; // begin[n]: where the padding begins
    int world;                    // padded to a multiple of it; 1: there is no padding
    int rank;                     // the array is this rank's shard; LAYOUT_WHOLE: it is the whole
} Layout;

void layout_params(Layout *layout, Param *const *params, int n, int world, int rank);
// The parameters of the module and of what is below it, each once, in the order of meta_params.
// units: without those of the modules below it that have hooks, which are units of their own.
void layout_module(Layout *layout, const Module *module, bool units, int world, int rank);

// Whether an array of n elements can be what the layout describes.
bool layout_fits(const Layout *layout, size_t n);
// The place in the whole of element i of an array of n.
size_t layout_place(const Layout *layout, size_t n, size_t i);
bool layout_is_padding(const Layout *layout, size_t n, size_t i);
// The parameter that element i belongs to, or NULL.
const Param *layout_param(const Layout *layout, size_t n, size_t i);

// "element 3 (h.1.weight[12])", "element 3 of rank 2's shard (element 11 of the flat parameter:
// h.0.bias[1])"; without a layout that fits "element 3".
const char *layout_say(const Layout *layout, size_t n, size_t i, char *text, size_t size);

// Whether the module has hooks: what makes it a unit to a test, whatever the code under test says.
bool module_has_hooks(const Module *m);

#endif
