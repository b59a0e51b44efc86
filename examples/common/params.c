/* params.c: parameters that are not treated as the others. See params.h. */
#include "params.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

// How many fit; those are frozen. A tied one, which is met twice, is frozen already.
static int freeze(Module *m, const char *pattern, int *left)
{
    int n = 0;
    for (int i = 0; i < m->n_params; i++) {
        bool fits = fnmatch(pattern, m->params[i]->name, 0) == 0;
        m->params[i]->frozen |= fits;
        n += fits;
        *left += !m->params[i]->frozen;
    }
    for (int i = 0; i < m->n_children; i++) n += freeze(m->children[i], pattern, left);
    return n;
}

Status params_freeze(Module *model, const char *patterns)
{
    char pattern[128];
    int left = 0;
    for (const char *at = patterns; *at != '\0';) {
        size_t n = strcspn(at, ",");
        snprintf(pattern, sizeof pattern, "%.*s", (int)n, at);
        left = 0;
        if (freeze(model, pattern, &left) == 0)
            return fail(
                ERR_ARGUMENT,
                "--freeze %s: no parameter has such a name; there are %s, h.0.attn.qkv.weight "
                "and others",
                pattern, model->children[0]->params[0]->name);
        at += n + (at[n] == ',');
    }
    return left > 0 ? OK
                    : fail(ERR_ARGUMENT, "--freeze %s: nothing would be left to train", patterns);
}

static void decay_matrices(const Param *param, AdamWConfig *config, void *arg)
{
    if (param->ndim < 2) config->weight_decay = 0.0f;
}

const ParamGroups PARAMS_DECAY_MATRICES = {decay_matrices, NULL};
