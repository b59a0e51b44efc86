/* walk_with_a_list.c: The walk keeps a list of the parameters met so far instead of searching the
 * model for an earlier use; the list of units keeps a stack instead of calling itself.
 */
// ==== meta_init.c
typedef struct Met {
    Param **params; // as many as the model has, ties counted again
    int n;
} Met;

static int most(const Module *module)
{
    int n = module->n_params;
    for (int i = 0; i < module->n_children; i++) n += most(module->children[i]);
    return n;
}

static void meet(const Module *module, Met *met)
{
    for (int i = 0; i < module->n_params; i++) {
        bool before = false;
        for (int j = 0; j < met->n && !before; j++) before = met->params[j] == module->params[i];
        if (!before) met->params[met->n++] = module->params[i];
    }
    for (int i = 0; i < module->n_children; i++) meet(module->children[i], met);
}

// On the stack: a walk has no way to say that the host's memory is used up.
int meta_params(const Module *module, Param **out, int max)
{
    Param *params[most(module) + 1];
    Met met = {params, 0};
    meet(module, &met);
    for (int i = 0; i < met.n && i < max; i++) out[i] = met.params[i];
    return met.n;
}

// ==== api.c
typedef struct Waiting {
    const Module *module;
    struct Waiting *next;
} Waiting;

static Waiting *push(const Module *module, Waiting *next)
{
    Waiting *top = malloc(sizeof *top);
    if (top == NULL) abort();
    *top = (Waiting){module, next};
    return top;
}

int fsdp_units(const Module *root, FsdpUnit **out, int max)
{
    Waiting *top = push(root, NULL);
    int n = 0;
    while (top != NULL) {
        Waiting here = *top;
        free(top);
        top = here.next;
        FsdpUnit *unit = fsdp_unit(here.module);
        if (unit != NULL && n++ < max) out[n - 1] = unit;
        for (int i = here.module->n_children; i-- > 0;) top = push(here.module->children[i], top);
    }
    return n;
}
