/* module.c: what happens around every layer's forward and backward, and a module's life.
 *
 * Forward: pre-forward hooks, the output is allocated, the layer runs, post-forward hooks.
 * Backward: pre-backward hooks, the input's gradient is allocated, the layer runs, what the forward
 * kept is freed, post-backward hooks. The memory of a pass that failed stays with the module (its
 * output, and what the layer keeps in its state), where module_discard finds it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpulog.h"
#include "internal.h"

// ---- Life ----

Module *module_create(const char *name, int in_dim, int out_dim, size_t state_bytes)
{
    if (in_dim < 0 || out_dim < 1) {
        fail(ERR_ARGUMENT, "module %s would map %d columns to %d", name, in_dim, out_dim);
        return NULL;
    }
    Module *m = calloc(1, sizeof *m);
    void *state = calloc(1, state_bytes > 0 ? state_bytes : 1);
    if (m == NULL || state == NULL) {
        free(m);
        free(state);
        fail(ERR_MEMORY, "no host memory for module %s", name);
        return NULL;
    }
    snprintf(m->name, sizeof m->name, "%s", name);
    m->in_dim = in_dim;
    m->out_dim = out_dim;
    m->state = state;
    m->state_bytes = state_bytes;
    return m;
}

bool module_add_param(Module *m, Param *param)
{
    if (param == NULL) return false;
    Param **longer = realloc(m->params, (size_t)(m->n_params + 1) * sizeof(Param *));
    if (longer == NULL) {
        free(param);
        fail(ERR_MEMORY, "no host memory for the parameters of module %s", m->name);
        return false;
    }
    m->params = longer;
    m->params[m->n_params++] = param;
    return true;
}

bool module_add_child(Module *m, Module *child)
{
    if (child == NULL) return false;
    Module **longer = realloc(m->children, (size_t)(m->n_children + 1) * sizeof(Module *));
    if (longer == NULL) {
        module_destroy(child);
        fail(ERR_MEMORY, "no host memory for the children of module %s", m->name);
        return false;
    }
    m->children = longer;
    m->children[m->n_children++] = child;
    return true;
}

// Removes a parameter from m and all below it, so that nobody frees it a second time.
static void forget_param(Module *m, const Param *param)
{
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i] == param) m->params[i] = NULL;
    for (int i = 0; i < m->n_children; i++) forget_param(m->children[i], param);
}

// Frees the parameters of m and below; the model `root` may have tied ones in other places, too.
static void free_params(Module *m, Module *root)
{
    for (int i = 0; i < m->n_params; i++) {
        Param *param = m->params[i];
        if (param == NULL) continue;
        forget_param(root, param);
        free(param);
    }
    for (int i = 0; i < m->n_children; i++) free_params(m->children[i], root);
}

static void free_modules(Module *m)
{
    for (int i = 0; i < m->n_children; i++) free_modules(m->children[i]);
    for (int point = 0; point < HOOK_POINTS; point++)
        while (m->hooks[point] != NULL) module_remove_hook(m, m->hooks[point]);
    if (m->free_state != NULL)
        m->free_state(m);
    else
        free(m->state);
    free(m->params);
    free(m->children);
    free(m);
}

void module_destroy(Module *m)
{
    if (m == NULL) return;
    free_params(m, m);
    free_modules(m);
}

bool module_holds(const Module *m, const Param *param)
{
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i] == param) return true;
    for (int i = 0; i < m->n_children; i++)
        if (module_holds(m->children[i], param)) return true;
    return false;
}

void module_set_type(Module *m, DType type)
{
    if (!m->types_stay) m->in_type = m->out_type = type;
    for (int i = 0; i < m->n_children; i++) module_set_type(m->children[i], type);
}

// ---- Hooks ----

static Hook *create_hook(const Module *m, HookFn fn, void *arg)
{
    Hook *hook = malloc(sizeof *hook);
    if (hook == NULL)
        fail(ERR_MEMORY, "no host memory for a hook of module %s", m->name);
    else
        *hook = (Hook){fn, arg, NULL};
    return hook;
}

Hook *module_add_hook(Module *m, HookPoint point, HookFn fn, void *arg)
{
    Hook **end = &m->hooks[point];
    while (*end != NULL) end = &(*end)->next;
    *end = create_hook(m, fn, arg);
    return *end;
}

Hook *module_add_first_hook(Module *m, HookPoint point, HookFn fn, void *arg)
{
    Hook *hook = create_hook(m, fn, arg);
    if (hook == NULL) return NULL;
    hook->next = m->hooks[point];
    m->hooks[point] = hook;
    return hook;
}

void module_remove_hook(Module *m, Hook *hook)
{
    for (int point = 0; point < HOOK_POINTS && hook != NULL; point++) {
        for (Hook **at = &m->hooks[point]; *at != NULL; at = &(*at)->next) {
            if (*at != hook) continue;
            *at = hook->next;
            free(hook);
            return;
        }
    }
}

static Status run_hooks(Module *m, HookPoint point)
{
    for (Hook *hook = m->hooks[point], *next; hook != NULL; hook = next) {
        next = hook->next; // the hook may remove itself
        TRY(hook->fn(m, hook->arg));
    }
    return OK;
}

// ---- Passes ----

// Frees the output, the saved activations and the memory of the input.
static Status free_pass(Module *m, NnRun *run)
{
    Status dropped = m->free_saved != NULL ? m->free_saved(m, run) : OK;
    void *own = m->out_is_borrowed ? NULL : m->out;
    m->in = NULL;
    m->out = NULL;
    m->out_is_borrowed = false;
    TRY(run_free_typed(run, &own));
    TRY(dropped);
    return OK;
}

static Status check_forward(const Module *m, const NnRun *run, const void *in)
{
    if (run->B < 1 || run->T < 1)
        return fail(ERR_ARGUMENT, "forward of %s with B = %d, T = %d; both must be at least 1",
                    m->name, run->B, run->T);
    if (in == NULL) return fail(ERR_ARGUMENT, "forward of %s without an input", m->name);
    if (m->out != NULL)
        return fail(ERR_ARGUMENT,
                    "forward of %s a second time: run its backward first, or module_discard",
                    m->name);
    return OK;
}

// The module's path in the model, taken from the first parameter at or below it; where there is
// none, or it is named for another place (tied), the module's own name.
static void find_path(const Module *m, char *path, size_t size)
{
    const Module *holder = m;
    int parts = 1; // of the parameter's name, behind the module's path
    for (; holder->n_params == 0 && holder->n_children > 0; parts++) holder = holder->children[0];
    snprintf(path, size, "%s", holder->n_params > 0 ? holder->params[0]->name : "");
    for (char *dot = path; parts > 0 && dot != NULL; parts--) {
        dot = strrchr(path, '.');
        if (dot != NULL) *dot = '\0';
    }
    const char *dot = strrchr(path, '.');
    if (strcmp(dot != NULL ? dot + 1 : path, m->name) != 0) snprintf(path, size, "%s", m->name);
}

static Status alloc(const Module *m, NnRun *run, void **x, DType type, size_t n, const char *what)
{
    char path[sizeof m->params[0]->name];
    TRY(run_alloc_typed(run, x, type, n));
    find_path(m, path, sizeof path);
    gpulog_name(*x, "%s of %s", what, path);
    if (strncmp(what, "gradient", 8) != 0) gpulog_category(*x, GPU_ACTIVATION);
    return OK;
}

Status module_alloc(const Module *m, NnRun *run, float **x, size_t n, const char *what)
{
    void *memory = NULL;
    TRY(alloc(m, run, &memory, DTYPE_F32, n, what));
    *x = memory;
    return OK;
}

Status module_alloc_typed(const Module *m, NnRun *run, void **x, size_t n, const char *what)
{
    return alloc(m, run, x, m->out_type, n, what);
}

// The forward. The output goes to `lent`, or if that is NULL to memory of the module's own.
static Status forward(Module *m, NnRun *run, const void *in, void *lent)
{
    TRY(check_forward(m, run, in));
    TRY(run_hooks(m, HOOK_PRE_FORWARD));
    if (lent != NULL)
        m->out = lent;
    else
        TRY(module_alloc_typed(m, run, &m->out, run_rows(run) * (size_t)m->out_dim, "output"));
    m->out_is_borrowed = lent != NULL;
    m->in = in;
    TRY(m->forward(m, run, in, m->out));
    TRY(run_hooks(m, HOOK_POST_FORWARD));
    return OK;
}

Status module_forward_any(Module *m, NnRun *run, const void *in, void **out)
{
    TRY(forward(m, run, in, NULL));
    *out = m->out;
    return OK;
}

Status module_forward(Module *m, NnRun *run, const void *in, float **out)
{
    if (m->out_type != DTYPE_F32)
        return fail(ERR_ARGUMENT, "the output of %s is not float: module_forward_typed", m->name);
    TRY(forward(m, run, in, NULL));
    *out = m->out;
    return OK;
}

Status module_forward_typed(Module *m, NnRun *run, const void *in, Buffer *out)
{
    TRY(forward(m, run, in, NULL));
    *out = (Buffer){m->out, m->out_type, (int64_t)run_rows(run) * m->out_dim};
    return OK;
}

Status module_forward_into(Module *m, NnRun *run, const void *in, void *out)
{
    return forward(m, run, in, out);
}

static Status check_backward(const Module *m, const void *dout)
{
    if (m->out == NULL)
        return fail(ERR_ARGUMENT, "backward of %s without a forward before it", m->name);
    if (dout == NULL)
        return fail(ERR_ARGUMENT, "backward of %s without the gradient of its output", m->name);
    return OK;
}

// The backward itself, and the freeing after it.
static Status run_backward(Module *m, NnRun *run, const void *dout, void *din)
{
    TRY(m->backward(m, run, dout, din));
    TRY(free_pass(m, run));
    TRY(run_hooks(m, HOOK_POST_BACKWARD));
    return OK;
}

Status module_backward_any(Module *m, NnRun *run, const void *dout, void **din)
{
    void *grad = NULL;
    if (din != NULL) *din = NULL;
    TRY(check_backward(m, dout));
    TRY(run_hooks(m, HOOK_PRE_BACKWARD));
    size_t in_numel = run_rows(run) * (size_t)m->in_dim;
    if (in_numel > 0) TRY(alloc(m, run, &grad, m->in_type, in_numel, "gradient of the input"));
    Status done = run_backward(m, run, dout, grad);
    if (done != OK || din == NULL) TRY(run_free_typed(run, &grad));
    TRY(done);
    if (din != NULL) *din = grad;
    return OK;
}

Status module_backward(Module *m, NnRun *run, const float *dout, float **din)
{
    void *grad = NULL;
    if (din != NULL) *din = NULL;
    if (m->out_type != DTYPE_F32 || (m->in_dim > 0 && m->in_type != DTYPE_F32))
        return fail(ERR_ARGUMENT, "the output or input of %s is not float: module_backward_typed",
                    m->name);
    TRY(module_backward_any(m, run, dout, din != NULL ? &grad : NULL));
    if (din != NULL) *din = grad;
    return OK;
}

Status module_backward_typed(Module *m, NnRun *run, const void *dout, Buffer *din)
{
    void *grad = NULL;
    if (din != NULL) *din = (Buffer){NULL, m->in_type, 0};
    TRY(module_backward_any(m, run, dout, din != NULL ? &grad : NULL));
    if (din != NULL) *din = (Buffer){grad, m->in_type, (int64_t)run_rows(run) * m->in_dim};
    return OK;
}

Status module_backward_into(Module *m, NnRun *run, const void *dout, void *din)
{
    TRY(check_backward(m, dout));
    TRY(run_hooks(m, HOOK_PRE_BACKWARD));
    return run_backward(m, run, dout, din);
}

// Calls module_discard of all children; returns the first status that is not OK, beginning with
// `first`.
static Status discard_children(Module *m, NnRun *run, Status first)
{
    for (int i = 0; i < m->n_children; i++) {
        Status below = module_discard(m->children[i], run);
        if (first == OK) first = below;
    }
    return first;
}

Status module_discard(Module *m, NnRun *run)
{
    Status own = free_pass(m, run);
    return discard_children(m, run, own);
}

Status module_free_inside(Module *m, NnRun *run)
{
    Status own = m->free_saved != NULL ? m->free_saved(m, run) : OK;
    return discard_children(m, run, own);
}
