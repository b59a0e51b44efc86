/* ffn.c: the feed-forward part of a transformer block: Linear (C → hidden) followed by a GELU,
 * then Linear (hidden → C).
 */
#include "internal.h"

Module *ffn_create(const char *name, int dim, int hidden, float init_std, float proj_std)
{
    Module *children[] = {
        linear_gelu_create("fc", dim, hidden, init_std),
        linear_create("proj", hidden, dim, true, proj_std),
    };
    return sequence_create(name, 2, children);
}
