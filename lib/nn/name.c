/* name.c: the path names and numbers of a model's parameters.
 *
 * A walk takes a module's own parameters first, then its children in order. A parameter that
 * belongs to two modules (tied) gets its name and number where the walk meets it first. The root's
 * own name is not part of a path.
 */
#include <stdio.h>
#include <string.h>

#include "internal.h"

#define UNNUMBERED UINT32_MAX

static void forget_numbers(Module *m)
{
    for (int i = 0; i < m->n_params; i++) m->params[i]->id = UNNUMBERED;
    for (int i = 0; i < m->n_children; i++) forget_numbers(m->children[i]);
}

// Puts `prefix` before the parameter's own name, the last part of its path. False: too long.
static bool name_param(Param *param, const char *prefix)
{
    char own[sizeof param->name];
    const char *dot = strrchr(param->name, '.');
    snprintf(own, sizeof own, "%s", dot != NULL ? dot + 1 : param->name);
    int length = snprintf(param->name, sizeof param->name, "%s%s", prefix, own);
    return length >= 0 && (size_t)length < sizeof param->name;
}

// `prefix` is the path of m with a dot after it, or "" for the root.
static bool name_params(Module *m, const char *prefix, uint32_t *next)
{
    for (int i = 0; i < m->n_params; i++) {
        Param *param = m->params[i];
        if (param->id != UNNUMBERED) continue;
        if (!name_param(param, prefix)) return false;
        param->id = (*next)++;
    }
    for (int i = 0; i < m->n_children; i++) {
        char path[sizeof(((Param *)0)->name)];
        int length = snprintf(path, sizeof path, "%s%s.", prefix, m->children[i]->name);
        if (length < 0 || (size_t)length >= sizeof path) return false;
        if (!name_params(m->children[i], path, next)) return false;
    }
    return true;
}

Module *module_named(Module *m)
{
    uint32_t next = 0;
    forget_numbers(m);
    if (name_params(m, "", &next)) return m;
    fail(ERR_ARGUMENT, "a parameter's path in %s is longer than %zu characters", m->name,
         sizeof(((Param *)0)->name) - 1);
    module_destroy(m);
    return NULL;
}
