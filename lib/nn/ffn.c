/* ffn.c: the feed-forward part of a transformer block: Linear (C → hidden), GELU, Linear (hidden →
 * C).
 *
 * Interface: ffn_create.
 */
#include "internal.h"

Module *ffn_create(const char *name, int dim, int hidden, float init_std, float proj_std)
{
    Module *children[] = {
        linear_create("fc", dim, hidden, true, init_std),
        gelu_create("gelu", hidden),
        linear_create("proj", hidden, dim, true, proj_std),
    };
    return sequence_create(name, 3, children);
}
