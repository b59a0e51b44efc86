/* regroup.c: what a plan of all-gathers needs of a root, and no student writes (step_graph.h). */
#include "step_graph.h"

#include <stdlib.h>

void regroup_default(const StepPass *pass, RegroupPlan *plan)
{
    plan->n = 0;
    plan->is_default = true;
    for (int p = 1; p < pass->n; p++) {
        int at = pass->phase[p].ready == p ? p : p - 1; // p: it is there until then
        if (pass->phase[p].gather_bytes > 0) plan->bucket[plan->n++] = (RegroupBucket){p, p, at};
    }
}

// ---- The passes of a trace ----

// The phase of the trace that needs this all-gather: the unit's own from here on.
static int phase_of(const StepTrace *trace, const StepMark *gather)
{
    for (int i = 0; i < trace->n; i++) {
        const StepMark *m = &trace->marks[i];
        if (m->kind <= STEP_BACKWARD && m->unit == gather->unit && m->phase >= gather->phase)
            return m->phase;
    }
    return -1; // nobody used it
}

Status step_passes(const StepTrace *trace, const StepCosts *costs, StepPass pass[2])
{
    int forwards = 0;
    pass[0].n = pass[1].n = 0;
    for (int i = 0; i < trace->n; i++) {
        const StepMark *m = &trace->marks[i];
        if (m->kind > STEP_BACKWARD) continue;
        bool backward = m->kind == STEP_BACKWARD;
        if (!backward && pass[1].n > 0)
            return fail(ERR_ARGUMENT, "a trace of several micro-batches: regroup by that of one");
        if (pass[backward].n == STEP_MOST_PHASES)
            return fail(ERR_ARGUMENT, "a pass of more than %d phases", STEP_MOST_PHASES);
        forwards += !backward;
        const FlatLayout *layout = &trace->root->units[m->unit]->flat.layout;
        StepPhase *p = &pass[backward].phase[pass[backward].n++];
        *p = (StepPhase){
            .unit = m->unit,
            .compute_us = (1 + backward) * (double)layout->numel / costs->elements_per_us,
            .last = m->last - (backward ? forwards : 0),
        };
        for (const StepPhase *q = pass[backward].phase; q < p; q++)
            if (q->unit == p->unit) p->ready = q->last + 1;
    }
    for (StepPhase *p = pass[0].phase; p < pass[0].phase + pass[0].n; p++) {
        FsdpReshard reshard = trace->root->units[p->unit]->reshard_after_forward;
        if (reshard == FSDP_RESHARD_NEVER || (reshard == FSDP_RESHARD_AUTO && p->unit == 0))
            p->last = pass[0].n - 1; // at least
    }
    for (int i = 0; i < trace->n; i++) {
        const StepMark *m = &trace->marks[i];
        int phase = m->kind == STEP_GATHER ? phase_of(trace, m) : m->phase;
        if (m->kind <= STEP_BACKWARD || phase < 0) continue;
        bool backward = phase >= forwards;
        StepPhase *p = &pass[backward].phase[phase - (backward ? forwards : 0)];
        if (m->kind == STEP_GATHER)
            p->gather_bytes = m->bytes;
        else
            p->reduce_bytes += m->bytes;
    }
    return OK;
}

// ---- A plan on a root ----

// The hooks of the state gather ahead: the units' own do not.
static FsdpUnit *pop_post_forward(FsdpUnit *unit)
{
    extension_ops_before(unit->root, EXTENSION_REGROUP)->pop_post_forward(unit);
    return NULL;
}

// A forward within a backward (lab 4) is no phase of its own.
static Status pre_forward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    const FsdpExtensions *on = unit->root->extensions;
    return on->recomputes ? OK : regroup_begin(on->regroup, 0, unit);
}

static Status pre_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    return regroup_begin(unit->root->extensions->regroup, 1, unit);
}

// What a plan has gathered lives as long as its pass.
static Status post_forward(Module *module, void *arg)
{
    FsdpRoot *root = ((FsdpUnit *)arg)->root;
    return root->extensions->recomputes || root->iter_forward_root != NULL ? OK
                                                                           : prefetch_clear(root);
}

static Status post_backward(Module *module, void *arg)
{
    FsdpRoot *root = ((FsdpUnit *)arg)->root;
    return root->iter_backward_root != NULL ? OK : prefetch_clear(root);
}

static Status add_hooks(RegroupState *state)
{
    static const HookFn AT[HOOK_POINTS] = {pre_forward, post_forward, pre_backward, post_backward};
    int n = state->root->n_units * HOOK_POINTS;
    state->hooks = calloc((size_t)n, sizeof *state->hooks);
    if (state->hooks == NULL) return fail(ERR_MEMORY, "no host memory for a plan");
    for (int i = 0; i < n; i++) {
        FsdpUnit *unit = state->root->units[i / HOOK_POINTS];
        HookPoint point = (HookPoint)(i % HOOK_POINTS);
        state->hooks[i] = module_add_hook(unit->module, point, AT[point], unit);
        if (state->hooks[i] == NULL) return ERR_MEMORY;
    }
    return OK;
}

static void free_state(RegroupState *state)
{
    for (int i = 0; state->hooks != NULL && i < state->root->n_units * HOOK_POINTS; i++)
        module_remove_hook(state->root->units[i / HOOK_POINTS]->module, state->hooks[i]);
    free(state->hooks);
    free(state);
}

static Status check_root(const FsdpRoot *root)
{
    const char *name = root->units[0]->flat.name;
    if (root->extensions->regroup != NULL)
        return fail(ERR_ARGUMENT, "%s is regrouped already", name);
    if (root->extensions->prefetch != NULL)
        return fail(ERR_ARGUMENT, "%s has a prefetch, which queues its all-gathers", name);
    for (int i = 0; i < root->n_units; i++)
        if (root->units[i]->all_gather != fsdp_all_gather)
            return fail(ERR_ARGUMENT,
                        "%s gathers in another way than fsdp_all_gather, which cannot be in a "
                        "group",
                        root->units[i]->flat.name);
    return OK;
}

Status regroup_apply(Module *module, const StepPass pass[2], const StepCosts *costs,
                     int64_t limit_bytes)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(check_root(root));
    RegroupState *state = calloc(1, sizeof *state);
    if (state == NULL) return fail(ERR_MEMORY, "no host memory for a plan");
    state->root = root;
    for (int k = 0; k < 2; k++) {
        state->pass[k] = pass[k];
        regroup_plan(&pass[k], costs, limit_bytes, &state->plan[k]);
    }
    Status status = add_hooks(state);
    if (status == OK) status = extension_push(root, EXTENSION_REGROUP);
    if (status != OK) {
        free_state(state);
        return status;
    }
    root->extensions->regroup = state;
    root->ops.pop_post_forward = pop_post_forward;
    return OK;
}

Status regroup_remove(Module *module)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(extension_check_last(root, EXTENSION_REGROUP));
    free_state(root->extensions->regroup);
    root->extensions->regroup = NULL;
    extension_pop(root);
    return OK;
}
