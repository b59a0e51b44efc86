/* sequence.c: runs its children one after the other, and backward in reverse.
 *
 * The last child writes the sequence's own output, and in the backward the first child the
 * sequence's own input gradient, so nothing is copied. A child's output stays until that child's
 * backward, because it is the next child's input.
 */
#include "internal.h"

typedef struct Sequence {
    void *grad; // device: the gradient on its way from child to child; kept here to be found on
                // errors
    bool cast_in, cast_out;  // the first child, or the last, is a cast of sequence_add_casts
    DType in_type, out_type; // the sequence's own without the casts
    bool types_stay;
} Sequence;

static Status sequence_forward(Module *self, NnRun *run, const void *in, void *out)
{
    int last = self->n_children - 1;
    const void *x = in;
    for (int i = 0; i < last; i++) {
        void *y = NULL;
        TRY(module_forward_any(self->children[i], run, x, &y));
        x = y;
    }
    TRY(module_forward_into(self->children[last], run, x, out));
    return OK;
}

static Status sequence_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    Sequence *s = self->state;
    for (int i = self->n_children - 1; i > 0; i--) {
        void *before = NULL;
        TRY(module_backward_any(self->children[i], run, s->grad != NULL ? s->grad : dout, &before));
        void *behind = s->grad;
        s->grad = before;
        TRY(run_free_typed(run, &behind));
    }
    TRY(module_backward_into(self->children[0], run, s->grad != NULL ? s->grad : dout, din));
    return OK;
}

static Status sequence_free_saved(Module *self, NnRun *run)
{
    Sequence *s = self->state;
    return run_free_typed(run, &s->grad);
}

// Whether the input of each child has the shape of the output before it.
static bool children_fit(const char *name, int n, Module **children)
{
    if (n < 1) {
        fail(ERR_ARGUMENT, "sequence %s would have %d children", name, n);
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (children[i] == NULL) return false; // its constructor said why
        if (i == 0) continue;
        if (children[i]->in_type != children[i - 1]->out_type) {
            fail(ERR_ARGUMENT, "sequence %s: %s takes another type than %s gives (cast_create)",
                 name, children[i]->name, children[i - 1]->name);
            return false;
        }
        if (children[i]->in_dim == children[i - 1]->out_dim) continue;
        fail(ERR_ARGUMENT, "sequence %s: %s gives %d columns, but %s takes %d", name,
             children[i - 1]->name, children[i - 1]->out_dim, children[i]->name,
             children[i]->in_dim);
        return false;
    }
    return true;
}

// The sequence without its children; NULL where they do not fit.
static Module *create_bare(const char *name, int n, Module **children)
{
    if (!children_fit(name, n, children)) return NULL;
    Module *m =
        module_create(name, children[0]->in_dim, children[n - 1]->out_dim, sizeof(Sequence));
    if (m == NULL) return NULL;
    m->in_type = children[0]->in_type;
    m->out_type = children[n - 1]->out_type;
    for (int i = 0; i < n; i++) m->types_stay |= children[i]->types_stay;
    m->forward = sequence_forward;
    m->backward = sequence_backward;
    m->free_saved = sequence_free_saved;
    return m;
}

Module *sequence_create(const char *name, int n, Module **children)
{
    Module *m = create_bare(name, n, children);
    bool made = m != NULL;
    for (int i = 0; i < n; i++) {
        if (made)
            made = module_add_child(m, children[i]);
        else
            module_destroy(children[i]);
    }
    if (made) return module_named(m);
    module_destroy(m);
    return NULL;
}

// ---- A stage of it ----

// Removes the parameters that `other` has from m and all below it, so that they are not freed.
static void leave_params(Module *m, const Module *other)
{
    for (int i = 0; i < m->n_params; i++)
        if (module_holds(other, m->params[i])) m->params[i] = NULL;
    for (int i = 0; i < m->n_children; i++) leave_params(m->children[i], other);
}

Status sequence_keep(Module *m, int first, int last)
{
    Sequence *s = m->state;
    if (m->forward != sequence_forward)
        return fail(ERR_ARGUMENT, "%s is not a sequence: it cannot be cut into stages", m->name);
    if (s->cast_in || s->cast_out || m->out != NULL || m->unit != NULL)
        return fail(ERR_ARGUMENT, "%s is cut into stages before it is used, cast or sharded",
                    m->name);
    if (first < 0 || last > m->n_children || first >= last)
        return fail(ERR_ARGUMENT, "%s has %d children: a stage of [%d, %d) has none", m->name,
                    m->n_children, first, last);
    for (int i = 0; i < m->n_children; i++) {
        if (i >= first && i < last) continue;
        for (int k = 0; k < m->n_children; k++) // of those before i only the kept ones still exist
            if (k > i || (k >= first && k < last)) leave_params(m->children[i], m->children[k]);
        module_destroy(m->children[i]);
    }
    m->n_children = last - first;
    m->types_stay = false;
    for (int i = 0; i < m->n_children; i++) {
        m->children[i] = m->children[first + i];
        m->types_stay |= m->children[i]->types_stay;
    }
    m->in_dim = m->children[0]->in_dim;
    m->in_type = m->children[0]->in_type;
    m->out_dim = m->children[m->n_children - 1]->out_dim;
    m->out_type = m->children[m->n_children - 1]->out_type;
    return OK;
}

// ---- Casts around it ----

Status sequence_add_casts(Module *m, DType in_type, DType out_type)
{
    Sequence *s = m->state;
    if (m->forward != sequence_forward && m->out_type == out_type &&
        (m->in_dim == 0 || m->in_type == in_type))
        return OK;
    if (m->forward != sequence_forward)
        return fail(ERR_ARGUMENT, "%s is not a sequence: no cast layer can be put around it",
                    m->name);
    if (!children_fit(m->name, m->n_children, m->children)) return ERR_ARGUMENT;
    s->in_type = m->in_type;
    s->out_type = m->out_type;
    s->types_stay = m->types_stay;
    DType inner = m->children[0]->in_type, outer = m->children[m->n_children - 1]->out_type;
    if (m->in_dim > 0 && inner != in_type) {
        if (!module_add_child(m, cast_create("cast_in", m->in_dim, in_type, inner)))
            return ERR_MEMORY;
        Module *cast = m->children[m->n_children - 1];
        for (int i = m->n_children - 1; i > 0; i--) m->children[i] = m->children[i - 1];
        m->children[0] = cast;
        s->cast_in = true;
    }
    if (outer != out_type) {
        if (!module_add_child(m, cast_create("cast_out", m->out_dim, outer, out_type))) {
            sequence_remove_casts(m);
            return ERR_MEMORY;
        }
        s->cast_out = true;
    }
    if (m->in_dim > 0) m->in_type = in_type;
    m->out_type = out_type;
    m->types_stay = true;
    return OK;
}

void sequence_remove_casts(Module *m)
{
    Sequence *s = m->state;
    if (m->forward != sequence_forward || (!s->cast_in && !s->cast_out)) return;
    if (s->cast_out) module_destroy(m->children[--m->n_children]);
    if (s->cast_in) {
        module_destroy(m->children[0]);
        m->n_children--;
        for (int i = 0; i < m->n_children; i++) m->children[i] = m->children[i + 1];
    }
    s->cast_in = s->cast_out = false;
    m->in_type = s->in_type;
    m->out_type = s->out_type;
    m->types_stay = s->types_stay;
}
