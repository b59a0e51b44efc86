/* bytes.c: what a surplus of bytes is made of. See bytes.h. */
#include "bytes.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "layout.h"
#include "pattern.h"

static char text[700];

static void add_unit(Sizes *sizes, const Module *module)
{
    Layout layout;
    if (sizes->n == SIZES_MAX) return;
    layout_module(&layout, module, true, sizes->world, LAYOUT_WHOLE);
    size_t world = (size_t)sizes->world, numel = layout.begin[layout.n];
    Size *size = &sizes->size[sizes->n++];
    snprintf(size->name, sizeof size->name, "%.47s", module->name);
    size->bytes = (numel + world - 1) / world * world * sizeof(float);
}

void sizes_of(Sizes *sizes, const Module *root, int world)
{
    sizes->n = 0;
    sizes->world = world;
    add_unit(sizes, root);
    for (int c = 0; c < root->n_children; c++) {
        const Module *m = root->children[c];
        if (module_has_hooks(m)) add_unit(sizes, m);
    }
}

static int count_bits(unsigned set)
{
    int n = 0;
    for (; set != 0; set &= set - 1) n++;
    return n;
}

// Whether two choices of units have the same sizes, so that one cannot be told from the other.
static bool same_sizes(const Sizes *sizes, unsigned a, unsigned b)
{
    for (int i = 0; i < sizes->n; i++) {
        int in_a = 0, in_b = 0;
        for (int j = 0; j < sizes->n; j++) {
            if (sizes->size[j].bytes != sizes->size[i].bytes) continue;
            in_a += a >> j & 1;
            in_b += b >> j & 1;
        }
        if (in_a != in_b) return false;
    }
    return true;
}

// The smallest set of units of that size in all; 0: none, or more than one. *alike: units of the
// same sizes could stand in its place.
static unsigned choose(size_t bytes, const Sizes *sizes, bool *alike)
{
    unsigned found = 0;
    *alike = false;
    for (unsigned set = 1; set < 1u << sizes->n; set++) {
        size_t sum = 0;
        for (int i = 0; i < sizes->n; i++) sum += set >> i & 1 ? sizes->size[i].bytes : 0;
        if (sum != bytes) continue;
        if (found == 0 || count_bits(set) < count_bits(found)) {
            found = set;
            *alike = false;
        } else if (count_bits(set) == count_bits(found)) {
            if (!same_sizes(sizes, set, found)) return 0;
            *alike = true;
        }
    }
    return found;
}

static void add(const char *words)
{
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s", words);
}

const char *bytes_cause(size_t surplus, const Sizes *sizes)
{
    bool alike;
    text[0] = '\0';
    unsigned set = surplus > 0 ? choose(surplus, sizes, &alike) : 0;
    int n = count_bits(set), named = 0;
    if (n == 0 || n > 6) return text; // six of many units is a choice that fits by chance
    add(LIKELY "that is exactly the whole buffer");
    add(n > 1 ? "s of units " : " of unit ");
    for (int i = 0; i < sizes->n; i++) {
        if (!(set >> i & 1)) continue;
        add(named++ == 0 ? "" : named < n ? ", " : " and ");
        add(sizes->size[i].name);
    }
    add(alike ? " (or of others as large)" : "");
    add(n > 1 ? ": are their parameters, or gradients," : ": is its parameter, or its gradient,");
    add(" there too early, or freed too late or never?");
    return text;
}

const char *arrays_cause(size_t got, int arrays, size_t shard, size_t whole)
{
    text[0] = '\0';
    for (int k = 1; k <= arrays && whole > shard; k++) {
        if (got != (size_t)k * whole + (size_t)(arrays - k) * shard) continue;
        snprintf(text, sizeof text,
                 LIKELY "that is what %d array%s of the whole length and %d of a shard's take: is "
                        "`padded` where `shard_numel` belongs?",
                 k, k == 1 ? "" : "s", arrays - k);
    }
    return text;
}
