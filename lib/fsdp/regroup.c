/* regroup.c: what a plan of collectives needs of a root, and no student writes (step_graph.h). */
#include "step_graph.h"

#include <stdlib.h>
#include <string.h>

#include "strategy.h"

void regroup_default(const StepPass *pass, RegroupPlan *plan)
{
    plan->n = 0;
    memset(plan->keeps, 0, sizeof plan->keeps);
    plan->is_default = true;
    for (int p = 1; p < pass->n; p++) {
        int at = pass->phase[p].ready == p ? p : p - 1; // p: it is there until then
        if (pass->phase[p].gather_bytes > 0) plan->bucket[plan->n++] = (RegroupBucket){p, p, at};
    }
}

void regroup_reductions(const StepPass *pass, const RegroupPlan *plan, int64_t *bytes)
{
    memset(bytes, 0, (size_t)pass->n * sizeof *bytes);
    for (int p = 0; p < pass->n; p++) bytes[pass->phase[p].last] += pass->phase[p].reduce_bytes;
    for (int p = 0; p + 1 < pass->n; p++) {
        if (!plan->keeps[p]) continue;
        bytes[p + 1] += bytes[p];
        bytes[p] = 0;
    }
}

int regroup_next_reduction(const StepPass *pass, const RegroupPlan *plan, int p)
{
    int64_t bytes[STEP_MOST_PHASES];
    regroup_reductions(pass, plan, bytes);
    int first = p, next = p + 1;
    while (first > 0 && plan->keeps[first - 1]) first--;
    while (next < pass->n && bytes[next] == 0) next++;
    if (pass->reduces_alone || next >= pass->n || bytes[p] == 0) return -1;
    for (int q = first + 1; q <= next; q++)
        if (pass->phase[q].ready > first) return -1;
    return next;
}

// ---- The passes of a trace ----

// The phase of the trace that a collective is of: the unit's next one that needs the all-gather, or
// its last one, whose gradient is reduced.
static int phase_of(const StepTrace *trace, const StepMark *call)
{
    int phase = -1; // nobody used it
    for (int i = 0; i < trace->n; i++) {
        const StepMark *m = &trace->marks[i];
        if (m->kind > STEP_BACKWARD || m->unit != call->unit) continue;
        if (call->kind == STEP_GATHER && m->phase >= call->phase) return m->phase;
        if (call->kind == STEP_REDUCE && m->phase <= call->phase) phase = m->phase;
    }
    return phase;
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
            .compute_us =
                (1 + backward) * (costs->phase_us + (double)layout->numel / costs->elements_per_us),
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
        int phase = m->kind <= STEP_BACKWARD ? -1 : phase_of(trace, m);
        if (phase < 0) continue;
        bool backward = phase >= forwards;
        StepPhase *p = &pass[backward].phase[phase - (backward ? forwards : 0)];
        *(m->kind == STEP_GATHER ? &p->gather_bytes : &p->reduce_bytes) = m->bytes;
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
    RegroupState *state = unit->root->extensions->regroup;
    if (unit->root->iter_backward_root == unit) state->n_grads = state->n_kept = 0;
    return regroup_begin(state, 1, unit);
}

// Frees what is reduced: the compute stream waits for it.
static Status free_reduced(RegroupState *state)
{
    const FsdpContext *ctx = state->root->ctx;
    if (state->n_reduced == 0) return OK;
    TRY(fsdp_free_reduce_scatter(state->root));
    CUDA_TRY(cudaStreamWaitEvent(ctx->compute_stream, state->root->reduce_scatter_state.event, 0));
    while (state->n_reduced > 0)
        CUDA_TRY(cudaFreeAsync(state->reduced[--state->n_reduced], ctx->compute_stream));
    return OK;
}

// Whether the plan has a gradient after this one in the same call.
static bool keeps(const RegroupState *state, const FsdpUnit *unit)
{
    const StepPass *pass = &state->pass[1];
    int end = state->phase[1] - 1, n = 0;
    if (state->plan[1].is_default || !state->follows[1]) return false;
    if (unit == state->root->iter_backward_root) return false; // nothing comes after it
    while (end + 1 < pass->n && state->plan[1].keeps[end]) end++;
    for (int q = 0; q < pass->n; q++)
        n += pass->phase[q].reduce_bytes > 0 && pass->phase[q].last <= end;
    return state->n_grads < n;
}

// FlatLayoutOps.reduce_grad: what a plan keeps waits, and goes with the last one of its call.
static Status reduce_grad(FsdpUnit *unit)
{
    RegroupState *state = unit->root->extensions->regroup;
    const FlatParam *flat = &unit->flat;
    if (flat->unsharded_grad.data != NULL && flat->unsharded_grad.numel > 0) {
        state->n_grads++;
        bool more = keeps(state, unit);
        if (more || state->n_kept > 0) state->kept[state->n_kept++] = unit;
        if (more) return OK;
    }
    TRY(free_reduced(state));
    if (state->n_kept == 0)
        return extension_before(unit, EXTENSION_REGROUP)->layout_ops->reduce_grad(unit);
    const StrategyState *strategy = unit->root->extensions->strategy;
    int n = state->n_kept;
    float divisor = strategy != NULL ? strategy_divisor(strategy) : (float)flat->layout.world;
    state->n_kept = 0;
    TRY(fsdp_free_reduce_scatter(state->root));
    TRY(regroup_reduce(state->kept, n, divisor, state->reduced));
    state->n_reduced = n;
    return OK;
}

// Whether each reduction of the root is a reduce-scatter and a sum, and nothing else.
static bool may_group_reductions(const FsdpRoot *root)
{
    const Mesh *mesh = &root->ctx->mesh;
    const FsdpExtensions *on = root->extensions;
    bool alone = mesh->shard.size == 1 || mesh->replicate.size > 1;
    for (int i = 0; i < root->n_units; i++) {
        const FsdpUnit *unit = root->units[i];
        alone |= unit->flat.layout.ops != &FLAT_LAYOUT_OPS;
        alone |= on->strategy == NULL && unit->reduce_scatter != fsdp_reduce_scatter;
    }
    return !alone;
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
    if (root->iter_backward_root != NULL) return OK;
    TRY(free_reduced(root->extensions->regroup));
    return prefetch_clear(root);
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
    if (root->extensions->pipeline != NULL)
        return fail(ERR_ARGUMENT, "%s is in a pipeline, and its micro-batches take turns", name);
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
    state->layout_ops = FLAT_LAYOUT_OPS;
    state->layout_ops.reduce_grad = reduce_grad;
    for (int k = 0; k < 2; k++) {
        state->pass[k] = pass[k];
        state->pass[k].reduces_alone |= !may_group_reductions(root);
        regroup_plan(&state->pass[k], costs, limit_bytes, &state->plan[k]);
    }
    Status status = add_hooks(state);
    if (status == OK) status = extension_push(root, EXTENSION_REGROUP);
    if (status != OK) {
        free_state(state);
        return status;
    }
    root->extensions->regroup = state;
    root->ops.pop_post_forward = pop_post_forward;
    for (int i = 0; i < root->n_units && !state->pass[1].reduces_alone; i++)
        root->units[i]->flat.layout.ops = &state->layout_ops;
    return OK;
}

Status regroup_remove(Module *module)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(extension_check_last(root, EXTENSION_REGROUP));
    TRY(free_reduced(root->extensions->regroup));
    free_state(root->extensions->regroup);
    root->extensions->regroup = NULL;
    extension_pop(root);
    return OK;
}
