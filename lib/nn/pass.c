/* pass.c: what a module holds between a forward and its backward, put aside.
 *
 * A module has room for one forward that waits for its backward: its input, its output, and what
 * the layer has saved in its state. A pipeline has several micro-batches in flight. So all of it
 * can be exchanged with a copy, which begins as an idle module: its state is as the layer's
 * constructor left it. A state is plain memory with device pointers in it, and may be moved.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

// Of one module.
typedef struct Held {
    const void *in;
    void *out;
    bool out_is_borrowed;
    char *state; // (state_bytes)
    size_t state_bytes;
} Held;

struct ModulePass {
    int n; // the module and all below it, in walk order
    Held *held;
};

static int count(const Module *m)
{
    int n = 1;
    for (int i = 0; i < m->n_children; i++) n += count(m->children[i]);
    return n;
}

// Fills in what is there of m and below; returns the next place, or -1.
static int fill(ModulePass *pass, int at, const Module *m)
{
    Held *held = &pass->held[at++];
    if (m->out != NULL) {
        fail(ERR_ARGUMENT, "%s waits for a backward: a new pass is made before its forward",
             m->name);
        return -1;
    }
    held->state_bytes = m->state_bytes;
    held->state = malloc(m->state_bytes + 1);
    if (held->state == NULL) {
        fail(ERR_MEMORY, "no host memory for a pass of %s", m->name);
        return -1;
    }
    memcpy(held->state, m->state, m->state_bytes);
    for (int i = 0; i < m->n_children && at >= 0; i++) at = fill(pass, at, m->children[i]);
    return at;
}

Status module_pass_create(ModulePass **out, Module *m)
{
    ModulePass *pass = calloc(1, sizeof *pass);
    *out = NULL;
    if (pass != NULL) pass->held = calloc((size_t)count(m), sizeof *pass->held);
    if (pass == NULL || pass->held == NULL) {
        free(pass);
        return fail(ERR_MEMORY, "no host memory for a pass of %s", m->name);
    }
    pass->n = count(m);
    if (fill(pass, 0, m) < 0) {
        module_pass_destroy(pass);
        return ERR_ARGUMENT;
    }
    *out = pass;
    return OK;
}

// Whether the pass is of this module, from place *at on.
static bool fits(const ModulePass *pass, int *at, const Module *m)
{
    if (*at >= pass->n || pass->held[*at].state_bytes != m->state_bytes) return false;
    ++*at;
    for (int i = 0; i < m->n_children; i++)
        if (!fits(pass, at, m->children[i])) return false;
    return true;
}

static void swap_bytes(char *a, char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

static int swap(ModulePass *pass, int at, Module *m)
{
    Held *held = &pass->held[at++], now = {.in = m->in, .out = m->out};
    bool borrowed = m->out_is_borrowed;
    m->in = held->in;
    m->out = held->out;
    m->out_is_borrowed = held->out_is_borrowed;
    held->in = now.in;
    held->out = now.out;
    held->out_is_borrowed = borrowed;
    swap_bytes(m->state, held->state, m->state_bytes);
    for (int i = 0; i < m->n_children; i++) at = swap(pass, at, m->children[i]);
    return at;
}

Status module_pass_swap(ModulePass *pass, Module *m)
{
    int at = 0;
    if (!fits(pass, &at, m) || at != pass->n)
        return fail(ERR_ARGUMENT, "the pass is not of %s, or its children have changed", m->name);
    swap(pass, 0, m);
    return OK;
}

void module_pass_destroy(ModulePass *pass)
{
    if (pass == NULL) return;
    for (int i = 0; i < pass->n; i++) free(pass->held[i].state);
    free(pass->held);
    free(pass);
}
